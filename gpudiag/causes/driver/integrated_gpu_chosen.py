"""the NVIDIA GPU is switched off in favour of the integrated one, by prime-select, EnvyControl or Bumblebee

On notebooks with two GPUs a tool decides which is used. In the profile "intel" of Ubuntu's prime-select NVIDIA's
modules are not loaded, to save power; the GPU stays on the PCI bus, and CUDA sees none. EnvyControl ("integrated") and
others write a rule of udev that takes the GPU off the bus as soon as the kernel finds it: it looks as if there were
none. Bumblebee's bbswitch cuts its power, and no module can be loaded until it is switched on. In the profiles "on-
demand" and "hybrid" the desktop runs on the integrated GPU and CUDA on NVIDIA's.
"""

from __future__ import annotations

from gpudiag.cause import Cause, Match, Matches
from gpudiag.causes.shared.kernel_module import SWITCH_ON, InstalledDriver, ModuleSettings, shown
from gpudiag.causes.shared.machine import WholeDriver
from gpudiag.fix import Kind, configure, reboot, run
from gpudiag.model.diagnosis import Confidence, Stage

CAUSE = Cause(
    title="{tool} has switched the NVIDIA GPU{pci} off in favour of the integrated one",
    fix=(
        configure("sudo prime-select on-demand"),
        reboot(),
        configure("sudo envycontrol -s hybrid", "if EnvyControl wrote the rule; optimus-manager, if that did"),
        *SWITCH_ON,
    ),
    url="https://documentation.ubuntu.com/server/how-to/graphics/install-nvidia-drivers/",
    views=("host.driver.no_module",),
    needs_gpu=False,
)


def find(gpu: InstalledDriver | None, whole: WholeDriver, settings: ModuleSettings) -> Matches:
    if gpu is not None and gpu.driver.prime == "intel" and not gpu.nouveau:
        found = gpu.match("/etc/prime-discrete: intel", fix=CAUSE.fix[:2])
        yield Match(
            found.evidence,
            figures={"tool": "prime-select", "pci": f" {found.figures['pci']}"},
            fix=CAUSE.fix[:2],
            stage=found.stage,
        )
        return
    rules = tuple(setting for setting in settings.settings if "/udev/rules.d/" in setting.place)
    off = settings.switched_off
    if whole.nvml.devices or whole.driver.kernel_module or not (off or (rules and not whole.nodes.pci_gpus)):
        return
    bus = ", ".join(whole.nodes.pci_gpus) or "no NVIDIA GPU"
    files = dict.fromkeys(setting.place.rpartition(":")[0] for setting in rules)
    remove = run(f"sudo rm {' '.join(files)}", "or removes the rule, if no such tool is there", kind=Kind.REMOVE)
    yield Match(
        (f"PCI bus: {bus}", *shown(off or rules)),
        Confidence.LIKELY,
        {"tool": "bbswitch (Bumblebee)" if off else "a rule of udev", "pci": ""},
        fix=CAUSE.fix[3:] if off else (CAUSE.fix[2], remove, CAUSE.fix[1]),
        stage=Stage.DRIVER_LIBRARY if whole.driver.libcuda_path is None else Stage.DRIVER,
    )
