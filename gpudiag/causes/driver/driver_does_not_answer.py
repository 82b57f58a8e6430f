"""NVIDIA's kernel module is loaded, but neither CUDA nor NVML can reach it

The module is loaded and its device files are there, but programs that open them get no answer: the files have the
numbers of an earlier start of the module, the module did not set up the GPU, or it is in a failed state. NVML then says
"Driver Not Loaded" or "Unknown Error", and cuInit that there is no device. Loading the module again changes nothing as
long as it is loaded.
"""

from __future__ import annotations

from gpudiag.cause import Cause, Matches
from gpudiag.causes.shared.device_files import DRIVER_DOCUMENT, NoDevice
from gpudiag.causes.shared.gpu_state import KernelLog
from gpudiag.fix import check, configure, kernel_log, reboot
from gpudiag.model.diagnosis import Confidence

CAUSE = Cause(
    title="NVIDIA's kernel module {module} is loaded, but neither CUDA nor NVML ({error}) can reach it",
    fix=(
        check("ls -l /dev/nvidia*; grep nvidia /proc/devices", "must show the same numbers in both"),
        kernel_log(),
        configure("sudo nvidia-modprobe -c 0 -u", "creates the files with the module's numbers"),
        reboot("if that does not help"),
    ),
    url=f"{DRIVER_DOCUMENT}faq.html",
    views=("host.driver.nvml_failed",),
    symptom=True,
)
_OF_OTHERS = ("Shared Library Not Found", "version mismatch", "Insufficient Permissions", "lost")
"""Parts of NVML's answers that other causes explain."""


def find(gpu: NoDevice, kernel: KernelLog) -> Matches:
    error = gpu.nvml.error
    reason = kernel.reason(gpu.nodes.pci_gpus)
    if reason is not None and reason.confidence is Confidence.LIKELY:
        return  # the kernel's log names the fault
    is_silent = gpu.with_all_files and not gpu.nvml.devices
    if is_silent and error is not None and not any(words in error for words in _OF_OTHERS):
        yield gpu.match(Confidence.POSSIBLE)
