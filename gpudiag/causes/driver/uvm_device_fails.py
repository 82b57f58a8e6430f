"""/dev/nvidia-uvm cannot be opened; CUDA needs it, but nvidia-smi does not

The module nvidia_uvm keeps the state of CUDA's memory. After suspend and resume, or after a crash of a program, it may
be in a state in which it refuses everybody. NVML and nvidia-smi do without it and show a healthy GPU, and cuInit fails
with 999, "unknown error". In a container, it is the host on which the module is loaded again.
"""

from __future__ import annotations

from gpudiag.cause import Cause, Match, Matches
from gpudiag.causes.shared.gpu_state import KernelLog, NoneListed, meaning
from gpudiag.fix import Kind, configure, reload_uvm, run
from gpudiag.model.facts import Facts, TriedFacts

CAUSE = Cause(
    title="/dev/nvidia-uvm cannot be opened: {error}; CUDA needs it, but nvidia-smi does not",
    unfit=True,
    fix=(
        reload_uvm("if no program uses a GPU"),
        run(
            "echo 'options nvidia NVreg_PreserveVideoMemoryAllocations=1' | sudo tee "
            "/etc/modprobe.d/nvidia-suspend.conf",
            kind=Kind.CHANGE_DRIVER,
        ),
        configure(
            "sudo systemctl enable nvidia-suspend nvidia-resume nvidia-hibernate", "keeps it working after a suspend"
        ),
    ),
    url="https://download.nvidia.com/XFree86/Linux-x86_64/560.35.03/README/powermanagement.html",
)
_OTHERS = (None, "EPERM", "EACCES", "ENXIO", "ENODEV", "ENOENT")


def find(facts: Facts, tried: TriedFacts, none: NoneListed, kernel: KernelLog) -> Matches:
    failed = [attempt for attempt in tried.opened if attempt.path == "/dev/nvidia-uvm" and attempt.error not in _OTHERS]
    if not failed:
        return
    yield Match(
        evidence=(f"open {failed[0].path}: {meaning(failed[0].error)}", *kernel.last("uvm")),
        figures={"error": meaning(failed[0].error)},
        stage=none.stage,
    )
