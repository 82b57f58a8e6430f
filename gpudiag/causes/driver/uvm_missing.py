"""/dev/nvidia-uvm is missing: the kernel module nvidia_uvm is not loaded

CUDA needs a second kernel module, nvidia_uvm, and its device file. On machines without a desktop nothing loads it at
boot until a program that may (nvidia-modprobe is setuid root) asks for it. nvidia-smi works without it, and cuInit
fails with an unknown error.
"""

from __future__ import annotations

from gpudiag.cause import Cause, Match, Matches
from gpudiag.causes.shared.containers import CONTROL, UNIFIED_MEMORY, InContainer
from gpudiag.causes.shared.kernel_module import ModuleSettings, shown
from gpudiag.causes.shared.steps import CuInitFailed
from gpudiag.fix import Kind, run
from gpudiag.model.facts import DeviceNodeFacts

CAUSE = Cause(
    fix=(
        run("sudo nvidia-modprobe -u -c=0", kind=Kind.RELOAD_DRIVER),
        run(
            "sudo apt install nvidia-modprobe",
            "the driver's library calls it to load the module and make the file",
            kind=Kind.INSTALL_AS_ROOT,
        ),
    ),
    url="https://docs.nvidia.com/cuda/cuda-installation-guide-linux/",
)


def find(files: DeviceNodeFacts, failed: CuInitFailed, inside: InContainer | None, settings: ModuleSettings) -> Matches:
    nodes = [node.path for node in files.nodes]
    if inside is None and CONTROL in nodes and UNIFIED_MEMORY not in nodes:
        written = settings.forbidding("nvidia_uvm") + settings.blacklisting("nvidia_uvm")
        yield Match(
            evidence=(f"devices: {' '.join(nodes)}", f"cuInit: {failed}", *shown(written)),
            fix=(*settings.without(written), *CAUSE.fix) if written else (),
        )
