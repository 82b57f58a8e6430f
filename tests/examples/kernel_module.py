"""Examples of causes: NVIDIA's driver is not installed, or its kernel module not loaded."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from examples import Example
from examples.facts import example
from examples.machines import (
    DOCKER,
    LIBCUDA,
    NO_DEVICE,
    PCI,
    example_driver,
    example_evidence,
    example_facts,
    example_nodes,
)
from gpudiag.cause import Evidence
from gpudiag.model.facts import ContainerFacts, KernelFacts, ModuleSetting, NvmlFacts


def _machine(
    libcuda: str | None = LIBCUDA, bound: str = "", where: ContainerFacts | None = None, **changes: Any
) -> Evidence:
    """Return the evidence of a machine with a GPU, whose kernel module is not loaded."""
    facts = example_facts(
        0,
        driver=example_driver(None, libcuda, **changes),
        nvml=NvmlFacts("Driver Not Loaded", None, None, ()),
        device_nodes=example_nodes(bound={PCI: bound} if bound else {}),
        container=where or example().container,
    )
    return example_evidence(facts, cuinit=NO_DEVICE)


_ENVYCONTROL = ModuleSetting(
    "/etc/udev/rules.d/50-remove-nvidia.rules:10",
    'ACTION=="add", SUBSYSTEM=="pci", ATTR{vendor}=="0x10de", ATTR{class}=="0x03[0-9]*", ATTR{power/control}="auto", '
    'ATTR{remove}="1"',
)
_BBSWITCH = ModuleSetting("/proc/acpi/bbswitch", "0000:01:00.0 OFF")


def _removed(*settings: ModuleSetting, pci: tuple[str, ...] = ()) -> Evidence:
    """Return the evidence of a machine without a loaded module, whose files have these settings."""
    facts = example_facts(
        0,
        driver=example_driver(None, LIBCUDA),
        nvml=NvmlFacts("Driver Not Loaded", None, None, ()),
        device_nodes=replace(example_nodes(), pci_gpus=pci),
        kernel=KernelFacts(settings=settings),
    )
    return example_evidence(facts, cuinit=NO_DEVICE)


def _cases(*cases: Example) -> tuple[Example, ...]:
    """Return the cases of one rule, and those on which none of them fires."""
    return (
        *cases,
        Example("in a container that was given no GPU", _machine(where=DOCKER, modules=("nouveau",)), fires=False),
        Example("loaded", example_evidence(example_facts(driver=example_driver(modules=("nvidia",)))), fires=False),
        Example(
            "no NVIDIA hardware", example_evidence(example_facts(0, device_nodes=example().device_nodes)), fires=False
        ),
    )


_LEGACY = (
    "NVRM: The NVIDIA Tesla K80 GPU installed in this system is",
    "NVRM:  supported through the NVIDIA 470.xx Legacy drivers. Please",
    "NVRM:  information.  The 560.35.05 NVIDIA driver will ignore",
)
EXAMPLES: dict[str, tuple[Example, ...]] = {
    "gpu_needs_legacy_driver": _cases(
        Example("Kepler", _machine(kernel_log=_LEGACY)),
        Example("another line", _machine(kernel_log=("NVRM: No NVIDIA GPU found.",)), fires=False),
        Example("the log may not be read", _machine(), fires=False),
        Example("in a container", _machine(where=DOCKER, kernel_log=_LEGACY), fires=False),
        Example(
            "another GPU is driven",
            example_evidence(example_facts(driver=example_driver(kernel_log=_LEGACY)), listed=1),
            fires=False,
        ),
    ),
    "driver_not_installed": _cases(
        Example("neither module nor library", _machine(None)),
        Example("with nouveau", _machine(None, bound="nouveau", modules=("nouveau",))),
        Example("the library is there", _machine(), fires=False),
        Example("kept for a virtual machine", _machine(None, bound="vfio-pci"), fires=False),
    ),
    "nouveau_in_use": _cases(
        Example("bound to the GPU", _machine(bound="nouveau")),
        Example("loaded", _machine(modules=("nouveau",))),
        Example("no nouveau", _machine(), fires=False),
        Example("the driver is not installed", _machine(None, modules=("nouveau",)), fires=False),
    ),
    "integrated_gpu_chosen": _cases(
        Example("intel", _machine(prime="intel")),
        Example("on-demand", _machine(prime="on-demand"), fires=False),
        Example("EnvyControl's rule of udev", _removed(_ENVYCONTROL)),
        Example("bbswitch", _removed(_BBSWITCH, pci=(PCI,))),
        Example("such a rule, and the GPU is there", _removed(_ENVYCONTROL, pci=(PCI,)), fires=False),
        Example("no rule and no GPU", _removed(), fires=False),
    ),
    "module_not_built": _cases(
        Example("not in modules.dep", _machine(module_installed=False)),
        Example("built", _machine(module_installed=True), fires=False),
        Example("not known", _machine(), fires=False),
    ),
    "module_refused_by_secure_boot": _cases(
        Example("on", _machine(module_installed=True, secure_boot=True)),
        Example("off", _machine(module_installed=True, secure_boot=False), fires=False),
        Example("the module was not built", _machine(module_installed=False, secure_boot=True), fires=False),
    ),
    "module_not_loaded": _cases(
        Example("without a reason to be seen", _machine()),
        Example("the driver ignores the GPU", _machine(kernel_log=_LEGACY), fires=False),
        Example("built, Secure Boot off", _machine(module_installed=True, secure_boot=False)),
        Example("nouveau", _machine(bound="nouveau"), fires=False),
        Example("not built", _machine(module_installed=False), fires=False),
        Example("prime-select", _machine(prime="intel"), fires=False),
        Example("Secure Boot", _machine(module_installed=True, secure_boot=True), fires=False),
        Example("kept for a virtual machine", _machine(bound="vfio-pci"), fires=False),
    ),
    "gpu_kept_for_others": (
        Example("vfio-pci", _machine(bound="vfio-pci")),
        Example("vfio-pci, no driver", _machine(None, bound="vfio-pci")),
        Example("nvidia", _machine(bound="nvidia"), fires=False),
        Example("not bound", _machine(), fires=False),
        Example("in a container", _machine(bound="vfio-pci", where=DOCKER), fires=False),
        Example(
            "one of two",
            example_evidence(example_facts(device_nodes=example_nodes(bound={PCI: "vfio-pci"}))),
            fires=False,
        ),
    ),
}
