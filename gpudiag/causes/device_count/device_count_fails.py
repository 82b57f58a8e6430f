"""the CUDA driver starts but cannot count its GPUs

After cuInit TensorFlow asks how many GPUs there are. That this fails although the driver started is rare: a GPU that
failed in between, or a library that stands between the program and the driver.
"""

from __future__ import annotations

from gpudiag.cause import Cause, Matches, Rows
from gpudiag.causes.shared.last_resort import CODES, FIRST, LAST, UVM_AGAIN, match
from gpudiag.causes.shared.machine import WholeDriver
from gpudiag.causes.shared.steps import FirstFailed
from gpudiag.model.diagnosis import Stage
from gpudiag.model.facts import Facts

CAUSE = Cause(
    title="the CUDA driver starts but cannot count its GPUs: {code}{meaning}",
    fix=(FIRST, UVM_AGAIN, *LAST),
    url=CODES,
    last_resort=True,
)


def find(failed: FirstFailed, whole: WholeDriver | None, facts: Facts, rows: Rows) -> Matches:
    if failed.stage is Stage.DEVICE_COUNT:
        yield match(failed, whole, facts, rows)
