"""Shared by causes: NVIDIA's driver is not installed, or its kernel module not loaded."""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import groupby

from gpudiag.cause import Evidence, Fix, Match
from gpudiag.causes.shared.machine import (
    WholeDriver,
    container,
    kept_for_others,
    on_the_bus,
    operating_system,
    uses_apt,
)
from gpudiag.causes.shared.signs import Signs
from gpudiag.fix import Action, Kind, note, run
from gpudiag.knowledge.systems import OTHER, system_of
from gpudiag.model.diagnosis import Confidence, Stage
from gpudiag.model.facts import Facts, KernelFacts, ModuleSetting

_KEY = "/var/lib/dkms/mok.pub"
_KEYS = {"Fedora": "/etc/pki/akmods/certs/public_key.der"}
"""The key with which a distribution signs the modules that it builds, if that is not dkms's: Fedora has akmods."""


class IdleGpu(WholeDriver):
    """A GPU on the PCI bus that NVIDIA's driver does not drive."""

    def match(self, sign: str = "", confidence: Confidence = Confidence.PROVED, fix: Fix = ()) -> Match:
        """Return the match of a cause, with ``sign`` as its evidence."""
        name, kernel = operating_system(self.facts)
        system = system_of(name) or OTHER
        pci = self.nodes.pci_gpus[0]
        loaded = "loaded" if self.driver.kernel_module else "not loaded"
        library = self.driver.libcuda_path or self.driver.libcuda_error
        return Match(
            evidence=(
                on_the_bus(self.nodes),
                f"NVIDIA's kernel module is {loaded}; libcuda.so.1: {library}",
                *([sign] if sign else []),
            ),
            confidence=confidence,
            figures={
                "pci": pci,
                "holder": self.nodes.bound.get(pci, ""),
                "kernel": kernel,
                "key": "/var/lib/shim-signed/mok/MOK.der" if "Ubuntu" in name else _KEYS.get(system.name, _KEY),
            },
            fix=fix,
            stage=Stage.DRIVER_LIBRARY if self.driver.libcuda_path is None else Stage.DRIVER,
        )


class KeptGpu(IdleGpu):
    """A GPU that a kernel driver which is not NVIDIA's keeps for something else."""

    @classmethod
    def of(cls, evidence: Evidence) -> KeptGpu | None:
        idle = super().of(evidence)
        if idle is None or not kept_for_others(idle.nodes) or idle.nvml.devices or idle.container:
            return None
        return cls(idle.facts, idle.driver, idle.nvml, idle.nodes)


class GpuWithoutModule(IdleGpu):
    """A GPU on the PCI bus for which NVIDIA's kernel module is not loaded, and that is not kept for something else."""

    @classmethod
    def of(cls, evidence: Evidence) -> GpuWithoutModule | None:
        signs = Signs.of(evidence)
        if signs is None or not signs.no_module or not signs.nodes.pci_gpus or KeptGpu.of(evidence):
            return None
        return cls(signs.facts, signs.driver, signs.nvml, signs.nodes)


class InstalledDriver(GpuWithoutModule):
    """A GPU without a loaded kernel module on a machine where NVIDIA's driver is installed."""

    @classmethod
    def of(cls, evidence: Evidence) -> InstalledDriver | None:
        one = super().of(evidence)
        return (
            None if one is None or one.driver.libcuda_path is None else cls(one.facts, one.driver, one.nvml, one.nodes)
        )

    @property
    def nouveau(self) -> bool:
        """True if the free driver nouveau is loaded, or holds a GPU."""
        return "nouveau" in self.driver.modules or "nouveau" in self.nodes.bound.values()


class UnloadedModule(InstalledDriver):
    """An idle GPU that neither nouveau nor prime-select explains: its module was not built, or was refused."""

    @classmethod
    def of(cls, evidence: Evidence) -> UnloadedModule | None:
        one = super().of(evidence)
        return (
            None
            if one is None or one.nouveau or one.driver.prime == "intel"
            else cls(one.facts, one.driver, one.nvml, one.nodes)
        )


SWITCH_ON = (
    run("echo ON | sudo tee /proc/acpi/bbswitch && sudo modprobe nvidia", "until it is switched off again"),
    run("optirun python PROGRAM", "if Bumblebee runs here: switches the GPU on for this program, and loads the module"),
)
"""How a GPU is switched on that Bumblebee's bbswitch has switched off."""
_NVIDIA = ("nvidia", "nvidia_current")
"""NVIDIA's module; Debian calls it nvidia-current."""


@dataclass(frozen=True)
class ModuleSettings:
    """What files, the kernel's options and sysfs say about the modules that drive NVIDIA's GPUs."""

    facts: Facts
    settings: tuple[ModuleSetting, ...]

    @classmethod
    def of(cls, evidence: Evidence) -> ModuleSettings:
        """In a container the files are the image's, and the host's count: then nothing is known."""
        kernel = evidence.facts.kernel
        known = isinstance(kernel, KernelFacts) and container(evidence.facts) is None
        return cls(evidence.facts, kernel.settings if known and isinstance(kernel, KernelFacts) else ())

    @property
    def switched_off(self) -> tuple[ModuleSetting, ...]:
        """What says that bbswitch has cut the power of a GPU."""
        return tuple(setting for setting in self.settings if setting.place == "/proc/acpi/bbswitch")

    def forbidding(self, *modules: str) -> tuple[ModuleSetting, ...]:
        """Return the settings because of which the module is never loaded, not even by ``modprobe``."""
        return tuple(setting for setting in self.settings if _forbids(setting.text, modules or _NVIDIA))

    def blacklisting(self, *modules: str) -> tuple[ModuleSetting, ...]:
        """Return the settings because of which the module is not loaded by itself, for a device."""
        return tuple(setting for setting in self.settings if _blacklists(setting.text, modules or _NVIDIA))

    def giving(self, gpu: str, model: str) -> tuple[ModuleSetting, ...]:
        """Return the settings that give a GPU, of this PCI bus id and device number, to another driver."""
        number = f"10de:{model.removeprefix('0x')}"
        return tuple(
            setting
            for setting in self.settings
            if (re.search(r"vfio[-_]pci", setting.text) and number in setting.text.lower()) or gpu in setting.place
        )

    def without(self, settings: tuple[ModuleSetting, ...]) -> tuple[Action, ...]:
        """Return how these settings are removed, each where it is written."""
        actions: list[Action] = []
        for file, several in groupby(settings, key=lambda setting: re.sub(r":\d+$", "", setting.place)):
            lines = list(several)
            words = " and ".join(dict.fromkeys(f"'{setting.text}'" for setting in lines))
            if file == "/proc/cmdline":
                boot = "/etc/default/grub, then run update-grub" if uses_apt(self.facts) else "the boot loader"
                actions.append(note(f"take {words} out of the kernel's options in {boot}", kind=Kind.CHANGE_DRIVER))
            elif file.startswith("/sys/"):
                actions.append(run(f"echo | sudo tee {file}", kind=Kind.CHANGE_DRIVER))
            elif file.startswith("/etc/driverctl.d/"):
                actions.append(run(f"sudo driverctl unset-override {file.rpartition('/')[2]}", kind=Kind.CHANGE_DRIVER))
            else:
                numbers = ";".join(f"{setting.place.rpartition(':')[2]}d" for setting in lines)
                actions.append(run(f"sudo sed -i '{numbers}' {file}", f"deletes {words}", kind=Kind.CHANGE_DRIVER))
        return tuple(actions)

    @property
    def boot_image(self) -> Action:
        """The command that puts the settings of modules into the image that the machine starts from."""
        return run("sudo update-initramfs -u", kind=Kind.CHANGE_DRIVER)


def shown(settings: tuple[ModuleSetting, ...]) -> tuple[str, ...]:
    """Return settings as lines of evidence."""
    return tuple(f"{setting.place}: {setting.text}" for setting in settings)


def _forbids(text: str, modules: tuple[str, ...]) -> bool:
    words = text.split()
    if text.startswith("module_blacklist="):
        return any(module in _listed(text) for module in modules)
    if len(words) < 3 or words[1].replace("-", "_") not in modules:
        return False
    return (words[0] == "alias" and words[2] == "off") or (
        words[0] == "install" and re.fullmatch(r"(/usr)?/bin/(true|false)|exit|:", words[2]) is not None
    )


def _blacklists(text: str, modules: tuple[str, ...]) -> bool:
    words = text.split()
    if re.match(r"(modprobe|rd\.driver)\.blacklist=", text):
        return any(module in _listed(text) for module in modules)
    return len(words) == 2 and words[0] == "blacklist" and words[1].replace("-", "_") in modules


def _listed(text: str) -> set[str]:
    return {name.replace("-", "_") for name in text.partition("=")[2].split(",")}
