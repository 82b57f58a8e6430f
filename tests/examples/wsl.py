"""Examples of causes: the Windows Subsystem for Linux."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from examples import Example
from examples.facts import example
from examples.machines import DOCKER, LIBCUDA, NO_DEVICE, example_driver, example_evidence, example_facts
from gpudiag.cause import Evidence
from gpudiag.causes.shared.wsl import DXG, FOLDER
from gpudiag.model.facts import DeviceNode, DeviceNodeFacts, EnvironmentFacts, NvmlFacts, SystemFacts

_PACKAGES = {"libnvidia-compute-535": "535.104.05-0ubuntu0.22.04.1"}
_KERNEL = "5.15.153.1-microsoft-standard-WSL2"


def _machine(
    libcuda: str | None = None,
    *,
    kernel: str = _KERNEL,
    dxg: bool = True,
    cuinit: str = "",
    wsl_library: str | None = f"{FOLDER}/libcuda.so.1",
    windows: str | None = "/mnt/c/Windows/System32/nvidia-smi.exe",
    **changes: Any,
) -> Evidence:
    """Return the evidence of a distribution in WSL, on a Windows that has NVIDIA's driver."""
    families = {"container": changes.pop("container", example().container)}
    if "mask" in changes:
        families["environment"] = EnvironmentFacts({"CUDA_VISIBLE_DEVICES": changes.pop("mask")})
    system = example().system
    assert isinstance(system, SystemFacts)
    nodes = (DeviceNode(DXG, "crw-rw-rw-", True, True),) if dxg else ()
    facts = example_facts(
        0,
        driver=example_driver(None, libcuda, wsl_library=wsl_library, windows_driver=windows, **changes),
        nvml=NvmlFacts("NVML Shared Library Not Found", None, None, ()),
        device_nodes=DeviceNodeFacts(nodes, ()),
        **families,
    )
    facts = replace(facts, system=replace(system, kernel=kernel, wsl="microsoft" in kernel.lower()))
    return example_evidence(facts, cuinit=cuinit)


def _cases(*cases: Example, **machine: Any) -> tuple[Example, ...]:
    """Return the cases of one rule; it does not fire without WSL, in a container, or where Windows has no driver."""
    return (
        *cases,
        Example("no WSL", _machine(**{**machine, "kernel": "6.1.0-18-amd64"}), fires=False),
        Example("a container in WSL", _machine(**machine, container=DOCKER), fires=False),
        Example(
            "Windows without NVIDIA's driver",
            _machine(**{**machine, "wsl_library": None, "windows": None}),
            fires=False,
        ),
        Example(
            "in order",
            _machine(f"{FOLDER}/libcuda.so.1.1", packages=_PACKAGES),
            fires=False,
        ),
    )


EXAMPLES: dict[str, tuple[Example, ...]] = {
    "wsl_library_not_on_path": _cases(
        Example("not found", _machine()),
        Example("a Linux driver is installed", _machine(packages=_PACKAGES), fires=False),
        Example("not in its folder", _machine(wsl_library=None), fires=False),
        Example("no /dev/dxg", _machine(dxg=False), fires=False),
    ),
    "linux_driver_in_wsl": _cases(
        Example("its library is found first", _machine(LIBCUDA, cuinit=NO_DEVICE, packages=_PACKAGES)),
        Example("without packages", _machine(LIBCUDA, cuinit=NO_DEVICE)),
        Example("packages, and no library found", _machine(packages=_PACKAGES)),
        Example("cuInit works", _machine(LIBCUDA, packages=_PACKAGES), fires=False),
        Example(
            "Windows's library, and it fails",
            _machine(f"{FOLDER}/libcuda.so.1.1", cuinit=NO_DEVICE, packages=_PACKAGES),
            fires=False,
        ),
        Example("no /dev/dxg", _machine(LIBCUDA, dxg=False, cuinit=NO_DEVICE), fires=False),
        libcuda=LIBCUDA,
        cuinit=NO_DEVICE,
    ),
    "wsl_driver_folder_gone": _cases(
        Example("gone", _machine(wsl_library=None)),
        Example("there", _machine(), fires=False),
        Example("no /dev/dxg", _machine(wsl_library=None, dxg=False), fires=False),
        wsl_library=None,
    ),
    "wsl_driver_fails": _cases(
        Example("no device", _machine(f"{FOLDER}/libcuda.so.1.1", cuinit=NO_DEVICE)),
        Example("a Linux driver", _machine(LIBCUDA, cuinit=NO_DEVICE), fires=False),
        Example("not found", _machine(), fires=False),
        Example("hidden", _machine(f"{FOLDER}/libcuda.so.1.1", cuinit=NO_DEVICE, mask="-1"), fires=False),
        libcuda=f"{FOLDER}/libcuda.so.1.1",
        cuinit=NO_DEVICE,
    ),
    "wsl_without_gpu_device": _cases(
        Example("WSL 1", _machine(kernel="4.4.0-19041-Microsoft", wsl_library=None, dxg=False)),
        Example("WSL 2", _machine(dxg=False)),
        Example("/dev/dxg is there", _machine(), fires=False),
        dxg=False,
    ),
}
