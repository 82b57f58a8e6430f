"""NVIDIA's driver is not installed, or its kernel module is not loaded."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

from gpudiag.diagnosis.machine import (
    DOCKER,
    HOST_DRIVER,
    INSTALLATION,
    LIBCUDA,
    NO_DEVICE,
    PCI,
    container,
    example_driver,
    example_evidence,
    example_facts,
    example_nodes,
    install_command,
    kept_for_others,
    on_the_bus,
    operating_system,
    parts,
    uses_apt,
)
from gpudiag.diagnosis.rule import Evidence, Match, Rule, RuleCase
from gpudiag.hostfacts import ContainerFacts, NvmlFacts, example
from gpudiag.model import Stage, Sure


def _why(evidence: Evidence) -> str:
    """Return the rule that tells why the module is not loaded; "" where it is, or there is no GPU for it."""
    known = parts(evidence)
    if known is None:
        return ""
    driver, nvml, nodes = known
    if kept_for_others(nodes) and not nvml.devices and not container(evidence):
        return "gpu_kept_for_others"
    if not nodes.pci_gpus or not evidence.found(HOST_DRIVER, "no_module"):
        return ""
    if driver.libcuda_path is None:
        return "driver_not_installed"
    if "nouveau" in driver.modules or "nouveau" in nodes.bound.values():
        return "nouveau_in_use"
    if driver.prime == "intel":
        return "integrated_gpu_chosen"
    if driver.module_installed is False:
        return "module_not_built"
    if driver.module_installed and driver.secure_boot:
        return "module_refused_by_secure_boot"
    return "module_not_loaded"


def _find(rule: str, sign: str, sure: Sure, evidence: Evidence) -> Iterator[Match]:
    known = parts(evidence)
    if known is None or _why(evidence) != rule:
        return
    driver, _, nodes = known
    name, kernel = operating_system(evidence)
    apt = uses_apt(evidence)
    library = driver.libcuda_path or driver.libcuda_error
    yield Match(
        evidence=(
            on_the_bus(nodes),
            f"NVIDIA's kernel module is {'loaded' if driver.kernel_module else 'not loaded'}; libcuda.so.1: {library}",
            *([sign.format(kernel=kernel)] if sign else []),
        ),
        sure=sure,
        figures={
            "pci": nodes.pci_gpus[0],
            "holder": nodes.bound.get(nodes.pci_gpus[0], ""),
            "kernel": kernel,
            "install": install_command(evidence),
            "initramfs": "sudo update-initramfs -u" if apt else "sudo dracut --force",
            "build": f"sudo apt install linux-headers-{kernel} && sudo dkms autoinstall -k {kernel}"
            if apt
            else f"sudo dnf install kernel-devel-{kernel} && sudo dkms autoinstall -k {kernel}  # or: sudo akmods",
            "key": "/var/lib/shim-signed/mok/MOK.der" if "Ubuntu" in name else "/var/lib/dkms/mok.pub",
        },
        stage=Stage.DRIVER_LIBRARY if driver.libcuda_path is None else Stage.DRIVER,
    )


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


def _cases(*cases: RuleCase) -> tuple[RuleCase, ...]:
    """Return the cases of one rule, and those on which none of them fires."""
    return (
        *cases,
        RuleCase("in a container that was given no GPU", _machine(where=DOCKER, modules=("nouveau",)), fires=False),
        RuleCase("loaded", example_evidence(example_facts(driver=example_driver(modules=("nvidia",)))), fires=False),
        RuleCase(
            "no NVIDIA hardware", example_evidence(example_facts(0, device_nodes=example().device_nodes)), fires=False
        ),
    )


RULES = (
    Rule(
        id="driver_not_installed",
        stage=Stage.DRIVER_LIBRARY,
        cause="NVIDIA's driver is not installed, though GPU {pci} is in this machine",
        why="""
        The CUDA libraries that pip installs are not the driver. The driver is the kernel module and libcuda.so.1, and
        it comes from the distribution or from NVIDIA's installer. Without it cuInit fails with "UNKNOWN ERROR (303)".
        "Could not find cuda drivers" in TensorFlow's log does not mean this: it means that the CUDA runtime library is
        not found.
        """,
        fix=("{install}", "sudo reboot", "nvidia-smi  # must list the GPU"),
        url=INSTALLATION,
        find=partial(_find, "driver_not_installed", "", Sure.PROVED),
        cases=_cases(
            RuleCase("neither module nor library", _machine(None)),
            RuleCase("with nouveau", _machine(None, bound="nouveau", modules=("nouveau",))),
            RuleCase("the library is there", _machine(), fires=False),
            RuleCase("kept for a virtual machine", _machine(None, bound="vfio-pci"), fires=False),
        ),
    ),
    Rule(
        id="nouveau_in_use",
        stage=Stage.DRIVER,
        cause="the kernel drives GPU {pci} with nouveau instead of NVIDIA's module",
        why="""
        nouveau, the free driver, cannot run CUDA, and while it holds the GPU NVIDIA's module cannot be loaded. The
        driver's packages normally forbid nouveau, and an installation by hand, a boot image that was not made anew or
        a kernel update can leave it in use. cuInit then answers "no CUDA-capable device is detected".
        """,
        fix=(
            "echo 'blacklist nouveau' | sudo tee /etc/modprobe.d/blacklist-nouveau.conf",
            "{initramfs}",
            "sudo reboot",
        ),
        url=INSTALLATION,
        find=partial(_find, "nouveau_in_use", "nouveau is loaded", Sure.PROVED),
        cases=_cases(
            RuleCase("bound to the GPU", _machine(bound="nouveau")),
            RuleCase("loaded", _machine(modules=("nouveau",))),
            RuleCase("no nouveau", _machine(), fires=False),
            RuleCase("the driver is not installed", _machine(None, modules=("nouveau",)), fires=False),
        ),
    ),
    Rule(
        id="integrated_gpu_chosen",
        stage=Stage.DRIVER,
        cause="prime-select has switched the NVIDIA GPU {pci} off in favour of the integrated one",
        why="""
        On notebooks with two GPUs Ubuntu's prime-select decides which is used. In its profile "intel" NVIDIA's modules
        are not loaded, to save power; the GPU stays on the PCI bus, and CUDA sees none. In the profile "on-demand" the
        desktop runs on the integrated GPU and CUDA on NVIDIA's.
        """,
        fix=("sudo prime-select on-demand", "sudo reboot"),
        url="https://documentation.ubuntu.com/server/how-to/graphics/install-nvidia-drivers/",
        find=partial(_find, "integrated_gpu_chosen", "/etc/prime-discrete: intel", Sure.PROVED),
        cases=_cases(
            RuleCase("intel", _machine(prime="intel")),
            RuleCase("on-demand", _machine(prime="on-demand"), fires=False),
        ),
    ),
    Rule(
        id="module_not_built",
        stage=Stage.DRIVER,
        cause="NVIDIA's kernel module was not built for the running kernel {kernel}",
        why="""
        The module must be built for each kernel. After an update of the kernel that fails, or is not done, where the
        kernel's headers are not installed or the driver is too old for the new kernel; the machine then starts without
        the module. The driver's libraries are still there, so that everything looks installed.
        """,
        fix=("{build}", "sudo modprobe nvidia", "# or start the former kernel from the boot menu"),
        url=INSTALLATION,
        find=partial(
            _find, "module_not_built", "/lib/modules/{kernel}/modules.dep lists no module nvidia", Sure.PROVED
        ),
        cases=_cases(
            RuleCase("not in modules.dep", _machine(module_installed=False)),
            RuleCase("built", _machine(module_installed=True), fires=False),
            RuleCase("not known", _machine(), fires=False),
        ),
    ),
    Rule(
        id="module_refused_by_secure_boot",
        stage=Stage.DRIVER,
        cause="Secure Boot is on and NVIDIA's kernel module, which is installed, is not loaded",
        why="""
        Under Secure Boot the kernel loads only modules that are signed with a key it knows. A module that was built on
        this machine is signed with a key of its own, which somebody must enrol in the firmware, at the blue screen of
        the next start. `sudo dmesg` then says "Loading of module with unavailable key is rejected", and modprobe "Key
        was rejected by service".
        """,
        fix=(
            "sudo modprobe nvidia  # says whether the key is rejected",
            "sudo mokutil --import {key}",
            "sudo reboot  # and choose: Enroll MOK",
            "# or switch Secure Boot off in the firmware",
        ),
        url="https://wiki.ubuntu.com/UEFI/SecureBoot/DKMS",
        find=partial(
            _find, "module_refused_by_secure_boot", "UEFI variable SecureBoot: on; the module was built", Sure.LIKELY
        ),
        cases=_cases(
            RuleCase("on", _machine(module_installed=True, secure_boot=True)),
            RuleCase("off", _machine(module_installed=True, secure_boot=False), fires=False),
            RuleCase("the module was not built", _machine(module_installed=False, secure_boot=True), fires=False),
        ),
    ),
    Rule(
        id="module_not_loaded",
        stage=Stage.DRIVER,
        cause="NVIDIA's kernel module is not loaded, though its driver is installed and GPU {pci} is in this machine",
        why="""
        The libraries of the driver are there, and the kernel does not run its module: the machine was not restarted
        after the installation, the module does not fit the kernel, the driver does not support this GPU, or a file in
        /etc/modprobe.d forbids the module. modprobe, and the kernel's log after it, say which.
        """,
        fix=(
            "sudo modprobe nvidia",
            "sudo dmesg | grep -i -e nvrm -e nvidia  # where that fails",
            "grep -rn nvidia /etc/modprobe.d  # a line 'blacklist nvidia' forbids it",
        ),
        url=INSTALLATION,
        find=partial(_find, "module_not_loaded", "", Sure.PROVED),
        cases=_cases(
            RuleCase("without a reason to be seen", _machine()),
            RuleCase("built, Secure Boot off", _machine(module_installed=True, secure_boot=False)),
            RuleCase("nouveau", _machine(bound="nouveau"), fires=False),
            RuleCase("not built", _machine(module_installed=False), fires=False),
            RuleCase("prime-select", _machine(prime="intel"), fires=False),
            RuleCase("Secure Boot", _machine(module_installed=True, secure_boot=True), fires=False),
            RuleCase("kept for a virtual machine", _machine(bound="vfio-pci"), fires=False),
        ),
    ),
    Rule(
        id="gpu_kept_for_others",
        stage=Stage.DRIVER,
        cause="the kernel driver {holder} keeps GPU {pci} for something else, such as a virtual machine",
        why="""
        A GPU that is passed through to a virtual machine is bound to vfio-pci (or pci-stub, xen-pciback) on the host.
        NVIDIA's driver on the host does not see it then, and cuInit says that there is no device.
        """,
        fix=(
            "# run TensorFlow in the virtual machine that has the GPU, or give the GPU back to this one:",
            "echo {pci} | sudo tee /sys/bus/pci/drivers/{holder}/unbind",
            "echo > /sys/bus/pci/devices/{pci}/driver_override; echo {pci} | sudo tee /sys/bus/pci/drivers/nvidia/bind",
        ),
        url="https://docs.kernel.org/driver-api/vfio.html",
        find=partial(_find, "gpu_kept_for_others", "", Sure.PROVED),
        cases=(
            RuleCase("vfio-pci", _machine(bound="vfio-pci")),
            RuleCase("vfio-pci, no driver", _machine(None, bound="vfio-pci")),
            RuleCase("nvidia", _machine(bound="nvidia"), fires=False),
            RuleCase("not bound", _machine(), fires=False),
            RuleCase("in a container", _machine(bound="vfio-pci", where=DOCKER), fires=False),
            RuleCase(
                "one of two",
                example_evidence(example_facts(device_nodes=example_nodes(bound={PCI: "vfio-pci"}))),
                fires=False,
            ),
        ),
    ),
)
