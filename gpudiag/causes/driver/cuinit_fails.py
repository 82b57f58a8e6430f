"""the CUDA driver does not start

cuInit is the first call of every CUDA program, and its code is all that the driver says. None of the causes that facts
show (modules, versions, device files, masks, containers) was found. What is left is the general meaning of the code,
and the kernel's log: a line with Xid names a fault of the GPU itself.
"""

from __future__ import annotations

from gpudiag.cause import Cause, Matches, Rows
from gpudiag.causes.shared.last_resort import CODES, FIRST, LAST, UVM_AGAIN, match
from gpudiag.causes.shared.machine import WholeDriver
from gpudiag.causes.shared.steps import FirstFailed
from gpudiag.model.diagnosis import Stage
from gpudiag.model.facts import Facts

CAUSE = Cause(
    title="the CUDA driver does not start: {code}{meaning}",
    fix=(FIRST, UVM_AGAIN, *LAST),
    url=CODES,
    last_resort=True,
)


def find(failed: FirstFailed, whole: WholeDriver | None, facts: Facts, rows: Rows) -> Matches:
    if failed.stage is Stage.DRIVER:
        yield match(failed, whole, facts, rows)
