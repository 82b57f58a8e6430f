"""a device file is missing, although NVIDIA's kernel module runs for the GPU

Programs reach a GPU through the files /dev/nvidia0, /dev/nvidiactl and /dev/nvidia-uvm. The X server or the helper
nvidia-modprobe makes them, which must be installed and have its setuid bit; on a server without a desktop they are
missing until then. cuInit answers "no CUDA-capable device is detected", and NVML "Driver Not Loaded" if /dev/nvidiactl
is missing, though the module is loaded.
"""

from __future__ import annotations

from dataclasses import replace

from gpudiag.cause import Cause, Matches
from gpudiag.causes.shared.device_files import DRIVER_DOCUMENT, NoDevice
from gpudiag.causes.shared.refusals import UNKNOWN_SANDBOX, names, sandbox_of
from gpudiag.fix import Kind, configure, fill_in, note, run
from gpudiag.model.diagnosis import Confidence

CAUSE = Cause(
    title="not found: {missing}, although NVIDIA's kernel module {module} runs for GPU {pci}",
    fix=(
        configure("sudo nvidia-modprobe -c 0 -u", "creates the files now"),
        run(
            "sudo apt install nvidia-modprobe nvidia-persistenced",
            "creates them at each start",
            kind=Kind.INSTALL_AS_ROOT,
        ),
    ),
    url=f"{DRIVER_DOCUMENT}faq.html",
    views=("host.driver.nvml_failed",),
    unless={
        "no_memory_region": "the driver makes no file for a GPU that it refuses",
        "kernel_module_of_wrong_kind": "the driver makes no file for a GPU that it refuses",
    },
)


def find(gpu: NoDevice) -> Matches:
    if not gpu.missing or not (gpu.nodes.pci_gpus or gpu.nvml.devices):
        return
    match = gpu.match(Confidence.PROVED)
    if not gpu.nodes.private_dev:
        yield match
        return
    sandbox = sandbox_of(gpu.facts) or UNKNOWN_SANDBOX
    give, words = (fill_in(action, names(gpu.facts)) for action in (sandbox.give, note(sandbox.words)))
    yield replace(match, evidence=(*match.evidence, f"{words.note} has a /dev of its own"), fix=(give,))
