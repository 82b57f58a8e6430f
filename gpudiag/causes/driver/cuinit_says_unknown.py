"""cuInit fails with CUDA_ERROR_UNKNOWN: the module nvidia_uvm is not loaded or is in a bad state, most often after
suspend

nvidia-smi works without nvidia_uvm, CUDA does not. After the machine was suspended the module often has to be loaded
again; after an installation it may never have been, or /dev/nvidia-uvm is missing, or its number is an old one, or a
user may not open it.
"""

from __future__ import annotations

from gpudiag.cause import Cause, Match, Matches, Program
from gpudiag.causes.shared.gpu_state import KernelLog
from gpudiag.fix import Kind, configure, reboot, run
from gpudiag.knowledge.messages.programs_and_drivers import CUINIT_UNKNOWN
from gpudiag.model.diagnosis import Confidence
from gpudiag.model.facts import Facts
from gpudiag.model.missing import lost_gpus

CAUSE = Cause(
    fix=(
        run(
            "sudo rmmod nvidia_uvm; sudo modprobe nvidia_uvm",
            "end every program that uses the GPU first",
            kind=Kind.RELOAD_DRIVER,
        ),
        configure(
            "sudo nvidia-modprobe -u -c 0; ls -l /dev/nvidia*", "creates /dev/nvidia-uvm, readable and writable for all"
        ),
        reboot("if that does not help; afterwards look at: sudo dmesg | grep -i -e nvrm -e xid"),
        configure(
            "sudo systemctl enable nvidia-suspend nvidia-resume", "prevents it from happening again after suspend"
        ),
    ),
    url="https://docs.nvidia.com/cuda/cuda-installation-guide-linux/",
    needs_gpu=False,
    unless={
        "kernel_module_not_running": "CUDA says unknown because the module does not run",
    },
)


def find(program: Program, facts: Facts, kernel: KernelLog) -> Matches:
    reason = kernel.reason() if lost_gpus(facts) else None
    if reason is not None and reason.is_likely:
        return  # the kernel's log says why: a GPU has failed
    if said := program.said(CUINIT_UNKNOWN):
        yield Match(said, Confidence.LIKELY)
