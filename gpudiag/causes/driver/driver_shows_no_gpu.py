"""CUDA finds no GPU, though NVML reports {gpus} and nothing hides them

The usual reasons of "no CUDA-capable device is detected" are not at work here: CUDA_VISIBLE_DEVICES lets GPUs
through, the device files are there and may be opened, and the module is loaded. What is left: a module nvidia_uvm of
another version or in a failed state (after suspend, for example), a GPU that failed, or a driver that was half
upgraded.
"""

from __future__ import annotations

from gpudiag.cause import Cause, Evidence, Matches
from gpudiag.causes.shared.device_files import no_device
from gpudiag.model import Sure

CAUSE = Cause(
    fix=(
        "sudo rmmod nvidia_uvm && sudo modprobe nvidia_uvm  # no GPU being in use",
        "sudo dmesg | grep -i -e nvrm -e xid",
        "sudo reboot",
    ),
    url="https://docs.nvidia.com/deploy/xid-errors/index.html",
)


def find(evidence: Evidence) -> Matches:
    yield from no_device("driver_shows_no_gpu", Sure.POSSIBLE, evidence)
