"""Shared by causes: the Windows Subsystem for Linux."""

from __future__ import annotations

from collections.abc import Iterator

from gpudiag.cause import Evidence, Match
from gpudiag.causes.shared.machine import container, parts
from gpudiag.causes.shared.steps import cuinit_error
from gpudiag.hostfacts import SystemFacts
from gpudiag.model import Stage, Sure
from gpudiag.scope import apply_mask

FOLDER = "/usr/lib/wsl/lib"
DXG = "/dev/dxg"


def why(evidence: Evidence) -> str:
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
    if all(node.path != DXG for node in nodes.nodes):
        return "wsl_without_gpu_device"
    if driver.wsl_library is None:
        return "wsl_driver_folder_gone"
    if path is not None and path.startswith("/usr/lib/wsl/"):
        mask = evidence.facts.variables.get("CUDA_VISIBLE_DEVICES")
        return "wsl_driver_fails" if apply_mask(mask, nvml.devices).devices or mask is None else ""
    return "linux_driver_in_wsl" if driver.packages or path is not None else "wsl_library_not_on_path"


def not_reached(rule: str, sure: Sure, evidence: Evidence) -> Iterator[Match]:
    known = parts(evidence)
    system = evidence.facts.system
    if known is None or not isinstance(system, SystemFacts) or why(evidence) != rule:
        return
    driver, _, nodes = known
    installed = [f"{name} {version}" for name, version in driver.packages.items()]
    mends = rule in ("wsl_library_not_on_path", "linux_driver_in_wsl")
    former = evidence.facts.variables.get("LD_LIBRARY_PATH", "")
    path = ":".join(filter(None, (FOLDER, former)))
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


URL = "https://docs.nvidia.com/cuda/wsl-user-guide/index.html"
