"""The Windows Subsystem for Linux: there the driver is Windows's, and its library comes by a folder of its own."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

from msgspec.structs import replace

from gpudiag.diagnosis.machine import (
    DOCKER,
    LIBCUDA,
    NO_DEVICE,
    container,
    example_driver,
    example_evidence,
    example_facts,
    parts,
)
from gpudiag.diagnosis.rule import Evidence, Match, Rule, RuleCase
from gpudiag.diagnosis.steps import cuinit_error
from gpudiag.hostfacts import DeviceNode, DeviceNodeFacts, EnvironmentFacts, NvmlFacts, SystemFacts, example
from gpudiag.model import Stage, Sure
from gpudiag.scope import apply_mask

_FOLDER = "/usr/lib/wsl/lib"
_DXG = "/dev/dxg"


def _why(evidence: Evidence) -> str:
    """Return the rule that tells why Windows's driver does not reach this distribution; "" where it does."""
    known = parts(evidence)
    system = evidence.facts.system
    if known is None or not isinstance(system, SystemFacts) or not system.wsl or container(evidence):
        return ""
    driver, nvml, nodes = known
    path = driver.libcuda_path
    works = path is not None and not cuinit_error(evidence)
    if works or not (driver.wsl_library or driver.windows_driver):
        return ""
    if all(node.path != _DXG for node in nodes.nodes):
        return "wsl_without_gpu_device"
    if driver.wsl_library is None:
        return "wsl_driver_folder_gone"
    if path is not None and path.startswith("/usr/lib/wsl/"):
        mask = evidence.facts.variables.get("CUDA_VISIBLE_DEVICES")
        return "wsl_driver_fails" if apply_mask(mask, nvml.devices).devices or mask is None else ""
    return "linux_driver_in_wsl" if driver.packages or path is not None else "wsl_library_not_on_path"


def _find(rule: str, sure: Sure, evidence: Evidence) -> Iterator[Match]:
    known = parts(evidence)
    system = evidence.facts.system
    if known is None or not isinstance(system, SystemFacts) or _why(evidence) != rule:
        return
    driver, _, nodes = known
    installed = [f"{name} {version}" for name, version in driver.packages.items()]
    mends = rule in ("wsl_library_not_on_path", "linux_driver_in_wsl")
    former = evidence.facts.variables.get("LD_LIBRARY_PATH", "")
    path = ":".join(filter(None, (_FOLDER, former)))
    yield Match(
        evidence=(
            f"kernel {system.kernel}; device files: {', '.join(node.path for node in nodes.nodes) or 'none'}",
            f"from Windows: {driver.wsl_library or driver.windows_driver}",
            f"libcuda.so.1: {driver.libcuda_path or driver.libcuda_error}",
            *([f"installed here: {', '.join(installed)}"] if installed else []),
            *([f"cuInit: {cuinit_error(evidence)}"] if cuinit_error(evidence) else []),
        ),
        sure=sure,
        figures={
            "kernel": system.kernel,
            "remove": f"sudo apt purge {' '.join(driver.packages)} && sudo apt autoremove"
            if driver.packages
            else f"sudo nvidia-uninstall  # which takes {driver.libcuda_path} away",
            "path": path,
            "library": driver.libcuda_path or "a Linux driver",
        },
        change={"LD_LIBRARY_PATH": path} if mends else None,
        stage=Stage.DRIVER_LIBRARY if driver.libcuda_path is None else Stage.DRIVER,
    )


_PACKAGES = {"libnvidia-compute-535": "535.104.05-0ubuntu0.22.04.1"}
_KERNEL = "5.15.153.1-microsoft-standard-WSL2"


def _machine(
    libcuda: str | None = None,
    *,
    kernel: str = _KERNEL,
    dxg: bool = True,
    cuinit: str = "",
    wsl_library: str | None = f"{_FOLDER}/libcuda.so.1",
    windows: str | None = "/mnt/c/Windows/System32/nvidia-smi.exe",
    **changes: Any,
) -> Evidence:
    """Return the evidence of a distribution in WSL, on a Windows that has NVIDIA's driver."""
    families = {"container": changes.pop("container", example().container)}
    if "mask" in changes:
        families["environment"] = EnvironmentFacts({"CUDA_VISIBLE_DEVICES": changes.pop("mask")})
    system = example().system
    assert isinstance(system, SystemFacts)
    nodes = (DeviceNode(_DXG, "crw-rw-rw-", True, True),) if dxg else ()
    facts = example_facts(
        0,
        driver=example_driver(None, libcuda, wsl_library=wsl_library, windows_driver=windows, **changes),
        nvml=NvmlFacts("NVML Shared Library Not Found", None, None, ()),
        device_nodes=DeviceNodeFacts(nodes, ()),
        **families,
    )
    facts = replace(facts, system=replace(system, kernel=kernel, wsl="microsoft" in kernel.lower()))
    return example_evidence(facts, cuinit=cuinit)


def _cases(*cases: RuleCase, **machine: Any) -> tuple[RuleCase, ...]:
    """Return the cases of one rule; it does not fire without WSL, in a container, or where Windows has no driver."""
    return (
        *cases,
        RuleCase("no WSL", _machine(**{**machine, "kernel": "6.1.0-18-amd64"}), fires=False),
        RuleCase("a container in WSL", _machine(**machine, container=DOCKER), fires=False),
        RuleCase(
            "Windows without NVIDIA's driver",
            _machine(**{**machine, "wsl_library": None, "windows": None}),
            fires=False,
        ),
        RuleCase(
            "in order",
            _machine(f"{_FOLDER}/libcuda.so.1.1", packages=_PACKAGES),
            fires=False,
        ),
    )


_URL = "https://docs.nvidia.com/cuda/wsl-user-guide/index.html"

RULES = (
    Rule(
        id="wsl_library_not_on_path",
        stage=Stage.DRIVER_LIBRARY,
        cause=f"Windows's CUDA driver library is in {_FOLDER}, where the loader of this distribution does not look",
        why="""
        Under WSL 2 the driver is the one of Windows, and its libraries appear in /usr/lib/wsl/lib. A file of
        /etc/ld.so.conf.d names that folder; where it was lost (a distribution that was imported or upgraded, a Docker
        image turned into one, automount off), libcuda.so.1 is not found. There is no /dev/nvidia0 under WSL: that is as
        it should be. Do not install a Linux driver.
        """,
        fix=(
            "export LD_LIBRARY_PATH={path}",
            f"echo {_FOLDER} | sudo tee /etc/ld.so.conf.d/ld.wsl.conf && sudo ldconfig  # or, for good",
        ),
        url=_URL,
        find=partial(_find, "wsl_library_not_on_path", Sure.PROVED),
        cases=_cases(
            RuleCase("not found", _machine()),
            RuleCase("a Linux driver is installed", _machine(packages=_PACKAGES), fires=False),
            RuleCase("not in its folder", _machine(wsl_library=None), fires=False),
            RuleCase("no /dev/dxg", _machine(dxg=False), fires=False),
        ),
    ),
    Rule(
        id="linux_driver_in_wsl",
        stage=Stage.DRIVER,
        cause="a Linux driver is installed in this WSL distribution and stands in for Windows's own ({library})",
        why="""
        Under WSL the driver is the one of Windows, and its libraries appear in /usr/lib/wsl/lib. The packages cuda,
        cuda-drivers and nvidia-driver bring a driver for Linux that has no kernel module there, and its libcuda.so.1 is
        found first: cuInit then fails. In WSL install the package cuda-toolkit alone, or the CUDA libraries that pip
        brings with TensorFlow.
        """,
        fix=("{remove}", "sudo ldconfig", "export LD_LIBRARY_PATH={path}  # until then"),
        url=_URL,
        tried=2,
        find=partial(_find, "linux_driver_in_wsl", Sure.PROVED),
        cases=_cases(
            RuleCase("its library is found first", _machine(LIBCUDA, cuinit=NO_DEVICE, packages=_PACKAGES)),
            RuleCase("without packages", _machine(LIBCUDA, cuinit=NO_DEVICE)),
            RuleCase("packages, and no library found", _machine(packages=_PACKAGES)),
            RuleCase("cuInit works", _machine(LIBCUDA, packages=_PACKAGES), fires=False),
            RuleCase(
                "Windows's library, and it fails",
                _machine(f"{_FOLDER}/libcuda.so.1.1", cuinit=NO_DEVICE, packages=_PACKAGES),
                fires=False,
            ),
            RuleCase("no /dev/dxg", _machine(LIBCUDA, dxg=False, cuinit=NO_DEVICE), fires=False),
            libcuda=LIBCUDA,
            cuinit=NO_DEVICE,
        ),
    ),
    Rule(
        id="wsl_driver_folder_gone",
        stage=Stage.DRIVER_LIBRARY,
        cause=f"Windows has NVIDIA's driver, and {_FOLDER} of this distribution lacks libcuda.so.1",
        why="""
        WSL 2 shows the libraries of Windows's driver in /usr/lib/wsl/lib when it starts. They are missing after an
        update of the driver until WSL is started anew, with a driver older than 470, with an old WSL, or where somebody
        wrote into that folder. There is no /dev/nvidia0 under WSL: that is as it should be.
        """,
        fix=(
            "wsl --update; wsl --shutdown  # in PowerShell",
            "# then, if it is still missing, install the newest driver from https://www.nvidia.com/drivers in Windows",
        ),
        url=_URL,
        find=partial(_find, "wsl_driver_folder_gone", Sure.PROVED),
        cases=_cases(
            RuleCase("gone", _machine(wsl_library=None)),
            RuleCase("there", _machine(), fires=False),
            RuleCase("no /dev/dxg", _machine(wsl_library=None, dxg=False), fires=False),
            wsl_library=None,
        ),
    ),
    Rule(
        id="wsl_driver_fails",
        stage=Stage.DRIVER,
        cause="the CUDA driver library of Windows is found in this distribution, and it fails",
        why="""
        The library in /usr/lib/wsl/lib belongs to Windows's driver. It fails after an update of that driver until WSL
        is started anew, where driver, Windows and WSL are of very different age, and where the GPU is switched off or
        failing in Windows.
        """,
        fix=(
            "wsl --update; wsl --shutdown  # in PowerShell",
            "# then, if it still fails, install the newest driver from https://www.nvidia.com/drivers in Windows",
        ),
        url=_URL,
        find=partial(_find, "wsl_driver_fails", Sure.LIKELY),
        cases=_cases(
            RuleCase("no device", _machine(f"{_FOLDER}/libcuda.so.1.1", cuinit=NO_DEVICE)),
            RuleCase("a Linux driver", _machine(LIBCUDA, cuinit=NO_DEVICE), fires=False),
            RuleCase("not found", _machine(), fires=False),
            RuleCase("hidden", _machine(f"{_FOLDER}/libcuda.so.1.1", cuinit=NO_DEVICE, mask="-1"), fires=False),
            libcuda=f"{_FOLDER}/libcuda.so.1.1",
            cuinit=NO_DEVICE,
        ),
    ),
    Rule(
        id="wsl_without_gpu_device",
        stage=Stage.DRIVER_LIBRARY,
        cause="this WSL ({kernel}) has no /dev/dxg, and so no GPU: it is WSL 1, or its GPU support is off",
        why="""
        Only WSL 2 gives a distribution access to the GPU, through /dev/dxg; WSL 1 never does. Under WSL 2 the file is
        missing where .wslconfig has gpuSupport=false, or with a Windows older than 21H2.
        """,
        fix=(
            "wsl --list --verbose  # in PowerShell: the version of this distribution",
            "wsl --set-version NAME 2  # in PowerShell, with its name, if it is 1",
            "# in %UserProfile%\\.wslconfig: take out gpuSupport=false, then wsl --shutdown",
        ),
        url="https://learn.microsoft.com/windows/wsl/compare-versions",
        find=partial(_find, "wsl_without_gpu_device", Sure.PROVED),
        cases=_cases(
            RuleCase("WSL 1", _machine(kernel="4.4.0-19041-Microsoft", wsl_library=None, dxg=False)),
            RuleCase("WSL 2", _machine(dxg=False)),
            RuleCase("/dev/dxg is there", _machine(), fires=False),
            dxg=False,
        ),
    ),
)
