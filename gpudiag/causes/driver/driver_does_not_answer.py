"""neither CUDA nor NVML ({error}) reaches NVIDIA's kernel module {module}, though it is loaded

The module is loaded and its device files are there, and what opens them gets no answer: the files have the numbers of
an earlier start of the module, the module did not set up the GPU, or it is in a failed state. NVML then says "Driver
Not Loaded" or "Unknown Error", and cuInit that there is no device. To load the module again changes nothing while it
is loaded.
"""

from __future__ import annotations

from gpudiag.cause import Cause, Evidence, Matches
from gpudiag.causes.shared.device_files import DRIVER_DOCUMENT, no_device
from gpudiag.model import Sure

CAUSE = Cause(
    fix=(
        "ls -l /dev/nvidia*; grep nvidia /proc/devices  # the numbers must be the same",
        "sudo dmesg | grep -i -e nvrm -e xid",
        "sudo nvidia-modprobe -c 0 -u  # gives the files the module's numbers",
        "sudo reboot  # where that does not help",
    ),
    url=f"{DRIVER_DOCUMENT}faq.html",
    views=("host.driver.nvml_failed",),
)


def find(evidence: Evidence) -> Matches:
    yield from no_device("driver_does_not_answer", Sure.POSSIBLE, evidence)
