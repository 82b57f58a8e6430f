"""the CUDA driver starts and does not count its GPUs: {code}{meaning}

After cuInit TensorFlow asks how many GPUs there are. That this fails although the driver started is rare: a
GPU that failed in between, or a library that stands between the program and the driver.
"""

from __future__ import annotations

from gpudiag.cause import Cause, Evidence, Matches
from gpudiag.causes.shared.last_resort import CODES, FIX, failed
from gpudiag.model.diagnosis import Stage

CAUSE = Cause(
    fix=FIX,
    url=CODES,
    last_resort=True,
    shown={"look": "sudo rmmod nvidia_uvm && sudo modprobe nvidia_uvm  # no GPU being in use"},
)


def find(evidence: Evidence) -> Matches:
    yield from failed(Stage.DEVICE_COUNT, evidence)
