"""/dev/nvidia-uvm cannot be opened; CUDA needs it, but nvidia-smi does not

The module nvidia_uvm keeps the state of CUDA's memory. After suspend and resume, or after a crash of a program, it may
be in a state in which it refuses everybody. NVML and nvidia-smi do without it and show a healthy GPU, and cuInit fails
with 999, "unknown error". In a container, it is the host on which the module is loaded again.
"""

from __future__ import annotations

from gpudiag.cause import Cause, Matches
from gpudiag.causes.shared.containers import UNIFIED_MEMORY
from gpudiag.causes.shared.gpu_state import KernelLog, meaning
from gpudiag.causes.shared.refusals import Refusals, Refuser
from gpudiag.fix import Kind, configure, reload_uvm, run

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


def find(files: Refusals, kernel: KernelLog) -> Matches:
    if failed := [refusal for refusal in files.by(Refuser.DRIVER) if refusal.node.path == UNIFIED_MEMORY]:
        yield files.match(tuple(failed), (), *kernel.last("uvm"), error=meaning(failed[0].error))
