"""TensorFlow lists the GPU and cannot make its device: {code}{meaning}

TensorFlow makes a context, streams and a memory pool on each GPU before its first operation. If one of them fails
it raises, or the process ends by a signal, as a stream that cannot be made does (measured, 2.21). The log of the
probe discovery.logical_devices has the driver's words.
"""

from __future__ import annotations

from gpudiag.cause import Cause, Evidence, Matches
from gpudiag.causes.shared.last_resort import CODES, FIX, failed
from gpudiag.model.diagnosis import Stage

CAUSE = Cause(
    fix=("gpudiag check -v discovery.logical_devices  # with its log", *FIX),
    url=CODES,
    last_resort=True,
    shown={"look": "nvidia-smi -q | grep -i -e error -e pending"},
)


def find(evidence: Evidence) -> Matches:
    yield from failed(Stage.CONTEXT, evidence)
