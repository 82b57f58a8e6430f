"""TensorFlow lists the GPU but cannot make its device

TensorFlow makes a context, streams and a memory pool on each GPU before its first operation. If one of them fails
it raises, or the process ends by a signal, as a stream that cannot be made does (measured, 2.21). The log of the
probe discovery.logical_devices has the driver's words.
"""

from __future__ import annotations

from gpudiag.cause import Cause, Matches, Rows
from gpudiag.causes.shared.last_resort import CODES, FIRST, LAST, LOOK, match
from gpudiag.causes.shared.machine import WholeDriver
from gpudiag.causes.shared.steps import FirstFailed
from gpudiag.fix import ask
from gpudiag.model.diagnosis import Stage
from gpudiag.model.facts import Facts

CAUSE = Cause(
    title="TensorFlow lists the GPU but cannot make its device: {code}{meaning}",
    fix=(ask("gpudiag check -v discovery.logical_devices", "with its log"), FIRST, LOOK, *LAST),
    url=CODES,
    last_resort=True,
)


def find(failed: FirstFailed, whole: WholeDriver | None, facts: Facts, rows: Rows) -> Matches:
    if failed.stage is Stage.CONTEXT:
        yield match(failed, whole, facts, rows, before=CAUSE.fix[:1])
