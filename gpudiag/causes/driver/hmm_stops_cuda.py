"""CUDA cannot start because of HMM, which module nvidia_uvm switches on under this kernel

Heterogeneous memory management (HMM) lets GPUs read all memory of a process. nvidia_uvm switches it on by itself if the
kernel offers it, and with some kernels (Enterprise Linux 9, 6.11 and later ones with driver 570) cuInit then fails with
"initialization error", though nvidia-smi, the device files and the kernel's log show nothing wrong. TensorFlow does not
need HMM. In a container, it is the host on which HMM is switched off.
"""

from __future__ import annotations

import re

from gpudiag.cause import Cause, Match, Matches
from gpudiag.causes.shared.machine import WholeDriver, operating_system
from gpudiag.causes.shared.steps import CuInitFailed
from gpudiag.fix import Kind, check, reload_uvm, run
from gpudiag.model.diagnosis import Confidence

CAUSE = Cause(
    title="CUDA cannot start because of HMM, which module nvidia_uvm {module} switches on under kernel {kernel}",
    fix=(
        run(
            "echo options nvidia_uvm uvm_disable_hmm=1 | sudo tee /etc/modprobe.d/nvidia-uvm.conf",
            kind=Kind.CHANGE_DRIVER,
        ),
        reload_uvm("if no program uses a GPU; or reboot"),
        check("cat /sys/module/nvidia_uvm/parameters/uvm_disable_hmm", "must then show Y"),
    ),
    url="https://github.com/NVIDIA/open-gpu-kernel-modules/issues/901",
    unless={
        "library_and_module_differ": "two versions of the driver explain the error without HMM",
        "device_files_kept_by_control_group": "files that cannot be opened explain the error without HMM",
    },
)
_FIRST_WITH_HMM = 535


def find(known: WholeDriver, failed: CuInitFailed) -> Matches:
    release = known.driver.kernel_module or ""
    module = re.match(r"\d+", release)
    if "NOT_INITIALIZED" not in failed or not known.nvml.devices or module is None:
        return
    if int(module[0]) < _FIRST_WITH_HMM:
        return
    yield Match(
        evidence=(
            f"cuInit: {failed}",
            f"kernel module {release}; GPUs by NVML: {len(known.nvml.devices)}",
        ),
        confidence=Confidence.LIKELY,
        figures={
            "module": release,
            "kernel": operating_system(known.facts)[1],
        },
    )
