"""/dev/nvidia-uvm cannot be opened: {error}; CUDA needs it, nvidia-smi does not

The module nvidia_uvm keeps the state of CUDA's memory. After suspend and resume, or after a crash of a program, it may
be in a state in which it refuses everybody. NVML and nvidia-smi do without it and show a healthy GPU, and cuInit fails
with 999, "unknown error".
"""

from __future__ import annotations

from gpudiag.cause import Cause, Evidence, Match, Matches
from gpudiag.causes.shared.gpu_state import kernel_lines, lists_none, meaning, opened
from gpudiag.causes.shared.machine import container, stage_of_driver

CAUSE = Cause(
    fix=(
        "sudo rmmod nvidia_uvm && sudo modprobe nvidia_uvm  # {where}no program using a GPU",
        "echo 'options nvidia NVreg_PreserveVideoMemoryAllocations=1' | sudo tee /etc/modprobe.d/nvidia-suspend.conf",
        "sudo systemctl enable nvidia-suspend nvidia-resume nvidia-hibernate  # so that it survives a suspend",
    ),
    url="https://download.nvidia.com/XFree86/Linux-x86_64/560.35.03/README/powermanagement.html",
    shown={"where": ""},
)
_OTHERS = (None, "EPERM", "EACCES", "ENXIO", "ENODEV", "ENOENT")


def find(evidence: Evidence) -> Matches:
    failed = [one for one in opened(evidence) if one.path == "/dev/nvidia-uvm" and one.error not in _OTHERS]
    if not failed or not lists_none(evidence):
        return
    yield Match(
        evidence=(f"open {failed[0].path}: {meaning(failed[0].error)}", *kernel_lines(evidence, "uvm")),
        figures={"error": meaning(failed[0].error), "where": "on the host, " if container(evidence.facts) else ""},
        stage=stage_of_driver(evidence.listing),
    )
