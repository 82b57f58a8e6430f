"""NVML does not start, and this TensorFlow lists no GPU without it

Since 2.21 TensorFlow asks NVML before it lists GPUs. Where nvmlInit fails it lists none and prints no line at all.
nvidia-smi fails with the same words: what makes it work makes TensorFlow work.
"""

from __future__ import annotations

from gpudiag.cause import Cause, Match, Matches
from gpudiag.causes.shared.libraries import needs_nvml, tensorflow_version
from gpudiag.causes.shared.signs import NO_NVML, Signs
from gpudiag.fix import Kind, check, configure, nvidia_smi, reboot, run
from gpudiag.model.facts import DriverFacts, Facts, NvmlFacts, Unknown
from gpudiag.probes.discovery import trace

CAUSE = Cause(
    title="NVML does not start ({error}), and TensorFlow {tensorflow} lists no GPU without it",
    fix=(
        check("nvidia-smi; sudo dmesg | grep -i -e nvrm -e xid", "most often a reboot helps"),
        nvidia_smi("must work first"),
    ),
    url="https://docs.nvidia.com/deploy/nvml-api/group__nvmlDeviceEnumvs.html",
    needs_gpu=False,
    views=("host.driver.nvml_failed",),
    unless={
        "device_files_kept_by_control_group": "it says who refuses the device files",
        "device_files_kept_by_security_module": "it says who refuses the device files",
        "kernel_module_of_wrong_kind": "NVML fails because the driver refuses the GPU",
        "no_memory_region": "NVML fails because the driver refuses the GPU",
    },
)


def find(
    facts: Facts, nvml: NvmlFacts, driver: DriverFacts, signs: Signs | None, traced: trace.Reading | None
) -> Matches:
    named = signs is not None and (signs.two_versions or signs.shut_files or signs.no_module)
    nodes = facts.device_nodes
    of_others = signs is None and not isinstance(nodes, Unknown) and bool(nodes.other_gpus) and not nodes.pci_gpus
    if nvml.devices or named or of_others or not needs_nvml(facts, traced):
        return
    error = nvml.error
    if error is None or error == NO_NVML or driver.libcuda_path is None:
        return
    module = driver.kernel_module
    cure = next((cure for words, cure in _CURES_OF_NVML.items() if words in error), _CURE_OF_OTHERS)
    if module is not None and "Not Loaded" in error:
        cure = configure(
            "sudo nvidia-modprobe -c 0 -u", f"module {module} is loaded: this makes /dev/nvidiactl and the others"
        )
    yield Match(
        evidence=(f"NVML: {error}",),
        figures={"error": error, "tensorflow": tensorflow_version(facts)},
        fix=(cure, CAUSE.fix[1]),
    )


_CURES_OF_NVML = {
    "version mismatch": reboot("or reload the nvidia modules: the driver was upgraded while they were loaded"),
    "Not Loaded": run(
        "sudo modprobe nvidia", "if that fails look at dmesg, and install the driver again", kind=Kind.RELOAD_DRIVER
    ),
    "Permission": check("ls -l /dev/nvidia*", "join the group that owns the files, and log in again"),
    "lost": check("sudo dmesg | grep -i xid", "shows the GPU's PCI bus id; switch the machine off and on"),
}
_CURE_OF_OTHERS = check("nvidia-smi; sudo dmesg | grep -i -e nvrm -e xid", "most often a reboot helps")
