"""Examples of causes: NVIDIA's driver is of two versions, too old, or not ready."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from examples import Example
from examples.facts import example, example_gpu, example_with_gpus
from examples.machines import DOCKER, LIBCUDA, example_driver, example_evidence, example_facts, example_nodes
from gpudiag.cause import Evidence
from gpudiag.model.facts import ContainerFacts, EnvironmentFacts, FactFamily, NvmlFacts

_MISMATCH = "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH: system has unsupported display driver / cuda driver combination"
_COMPAT_ERROR = "CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE: forward compatibility was attempted on non supported HW"
_STUB_ERROR = "CUDA_ERROR_STUB_LIBRARY: CUDA driver is a stub library"
_STUB = "/usr/local/cuda/lib64/stubs/libcuda.so"
_NOT_READY = "CUDA_ERROR_SYSTEM_NOT_READY: system not yet initialized"
_PACKAGES = {"libnvidia-compute-535": "535.104.05-0ubuntu0.22.04.1"}
_HALF = {"libnvidia-compute-535": "half-configured"}
_APPTAINER = ContainerFacts("apptainer", ("APPTAINER_CONTAINER",), False, None)
_DISTROBOX = ContainerFacts("distrobox", ("DISTROBOX_ENTER_PATH",), False, None)
_NVML_18 = NvmlFacts("RM has detected an NVML/RM version mismatch.", None, None, ())
_OLD = example_driver("515.65.01")
_COMPAT_LIBCUDA = "/usr/local/cuda-12.5/compat/libcuda.so.555.42.06"
_SWITCH = example_nodes("/dev/nvidia0", "/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia-nvswitch0")


def _upgraded(error: str = _MISMATCH, **changes: Any) -> Evidence:
    """Return the evidence of a machine whose driver was upgraded while the kernel runs the former module."""
    facts = example_facts(**{"driver": _OLD, "nvml": _NVML_18, **changes})
    return example_evidence(facts, cuinit=error)


def _compat(error: str, libcuda: str = _COMPAT_LIBCUDA, path: str = "/usr/local/cuda-12.5/compat:/opt/lib") -> Evidence:
    facts = example_facts(
        driver=example_driver(libcuda=libcuda), environment=EnvironmentFacts({"LD_LIBRARY_PATH": path})
    )
    return example_evidence(facts, cuinit=error)


def _fabric(
    error: str = _NOT_READY, state: str = "absent", packages: dict[str, str] | None = None, version: str | None = None
) -> Evidence:
    driver = example_driver(fabric_manager=state, packages=packages or {}, fabric_manager_version=version)
    return example_evidence(example_facts(8, driver=driver, device_nodes=_SWITCH), cuinit=error)


def _without_switch(name: str, where: FactFamily | None = None) -> Evidence:
    nvml = NvmlFacts(None, "535.104.05", "12.2", (replace(example_gpu(), name=name),))
    return example_evidence(example_facts(nvml=nvml, container=where or example().container), cuinit=_NOT_READY)


def _cuda_11(name: str = "NVIDIA A100-SXM4-40GB") -> Evidence:
    gpu = replace(example_gpu(), name=name)
    driver = replace(example_driver("470.82.01"), cuda_version="11.4")
    return example_evidence(example_facts(driver=driver, nvml=NvmlFacts(None, "470.82.01", "11.4", (gpu,))))


_HOOK = "/usr/local/vgpu/libvgpu.so"
_HOOKED = replace(example_driver(), interposed=(_HOOK,))
_UNREAD = replace(example_driver(), preload_error="EACCES")
_NOT_INITIALIZED = "CUDA_ERROR_NOT_INITIALIZED: initialization error"


def _beside_hmm(module: str = "570.158.01", error: str = _NOT_INITIALIZED, gpus: int = 1) -> Evidence:
    """Return the evidence of a machine on which cuInit fails, and nothing else shows why."""
    nvml = NvmlFacts(None, module, "12.8", tuple(example_gpu(index) for index in range(gpus)))
    driver = example_driver(module, f"/usr/lib/x86_64-linux-gnu/libcuda.so.{module}")
    return example_evidence(example_facts(gpus, driver=driver, nvml=nvml), cuinit=error)


EXAMPLES: dict[str, tuple[Example, ...]] = {
    "hmm_stops_cuda": (
        Example("driver 570", _beside_hmm()),
        Example("a driver without HMM", _beside_hmm("525.105.17"), fires=False),
        Example("another code", _beside_hmm(error="CUDA_ERROR_UNKNOWN: unknown error"), fires=False),
        Example("NVML reports no GPU", _beside_hmm(gpus=0), fires=False),
        Example("it starts", _beside_hmm(error=""), fires=False),
    ),
    "driver_calls_interposed": (
        Example("a library that shares GPUs out", example_evidence(example_facts(driver=_HOOKED))),
        Example("none", example_evidence(example_facts()), fires=False),
        Example("a list that this user may not read", example_evidence(example_facts(driver=_UNREAD))),
    ),
    "interposed_library_fails": (
        Example("a list that this user may not read", example_evidence(example_facts(driver=_UNREAD)), fires=False),
        Example("cuInit fails", example_evidence(example_facts(driver=_HOOKED), cuinit=_MISMATCH)),
        Example("cuInit works", example_evidence(example_facts(driver=_HOOKED)), fires=False),
        Example("none", example_evidence(example_facts(), cuinit=_MISMATCH), fires=False),
    ),
    "library_and_module_differ": (
        Example("NVML and cuInit", _upgraded()),
        Example("NVML alone", example_evidence(example_facts(driver=_OLD, nvml=_NVML_18))),
        Example("cuInit alone", example_evidence(example_facts(), cuinit=_MISMATCH)),
        Example("in a container that brings no driver", _upgraded(container=DOCKER)),
        Example(
            "in a container, whose library is the host's",
            _upgraded(driver=replace(_OLD, packages=_PACKAGES, libcuda_mounted=True), container=DOCKER),
        ),
        Example("half upgraded", _upgraded(driver=replace(_OLD, packages=_PACKAGES, unfinished=_HALF))),
        Example("no module built for it", _upgraded(driver=replace(_OLD, rebuilt="515.65.01"))),
        Example(
            "a log",
            example_evidence(
                example_facts(driver=_OLD, nvml=NvmlFacts("Unknown Error", None, None, ())),
                lines=("E cuda_diagnostics.cc] kernel version 515.65.1 does not match DSO version 535.104.5 --",),
            ),
        ),
        Example("of one version", example_evidence(example_facts(), listed=1), fires=False),
        Example("another error", example_evidence(example_facts(), cuinit=_NOT_READY), fires=False),
        Example("a compatibility package", _compat(_MISMATCH), fires=False),
    ),
    "driver_in_image": (
        Example("a package in Docker", _upgraded(driver=replace(_OLD, packages=_PACKAGES), container=DOCKER)),
        Example("no package", _upgraded(container=DOCKER), fires=False),
        Example("no mount", _upgraded(driver=replace(_OLD, libcuda_mounted=False), container=DOCKER)),
        Example("no mount in Apptainer", _upgraded(driver=replace(_OLD, libcuda_mounted=False), container=_APPTAINER)),
        Example("no mount in Distrobox", _upgraded(driver=replace(_OLD, libcuda_mounted=False), container=_DISTROBOX)),
        Example(
            "a mount",
            _upgraded(driver=replace(_OLD, packages=_PACKAGES, libcuda_mounted=True), container=DOCKER),
            fires=False,
        ),
        Example("no container", _upgraded(driver=replace(_OLD, packages=_PACKAGES)), fires=False),
        Example(
            "of one version",
            example_evidence(example_facts(driver=example_driver(packages=_PACKAGES), container=DOCKER)),
            fires=False,
        ),
    ),
    "compat_library_refused": (
        Example("not for this GPU", _compat(_COMPAT_ERROR)),
        Example("older than the module", _compat(_MISMATCH)),
        Example("by the loader's cache", _compat(_MISMATCH, path="")),
        Example("not for this GPU, in another folder", _compat(_COMPAT_ERROR, LIBCUDA, path="")),
        Example("not for this GPU, by LD_LIBRARY_PATH", _compat(_COMPAT_ERROR, LIBCUDA)),
        Example("the driver was upgraded", _upgraded(error=_COMPAT_ERROR), fires=False),
        Example("accepted", _compat(""), fires=False),
        Example("another error", _compat(_NOT_READY), fires=False),
        Example("the driver's own library", _compat(_MISMATCH, LIBCUDA), fires=False),
    ),
    "stub_library_opened": (
        Example("by LD_LIBRARY_PATH", _compat(_STUB_ERROR, _STUB, path="/usr/local/cuda/lib64/stubs")),
        Example("by the loader's cache", _compat(_STUB_ERROR, _STUB, path="")),
        Example("in another folder", _compat(_STUB_ERROR, LIBCUDA, path="")),
        Example("another error", _compat(_NOT_READY, _STUB), fires=False),
        Example("it works", _compat("", _STUB), fires=False),
    ),
    "driver_too_old": (
        Example("CUDA 11.4", _cuda_11()),
        Example("CUDA 11.4 on a GeForce", _cuda_11("NVIDIA GeForce RTX 3090")),
        Example("an older minor version", example_evidence(example_with_gpus(1), listed=1), fires=False),
    ),
    "fabric_manager_not_running": (
        Example("not installed", _fabric()),
        Example("stopped", _fabric(state="stopped")),
        Example("running", _fabric(state="running")),
        Example("of another version", _fabric(state="stopped", packages={"nvidia-fabricmanager-535": "535.54.03-1"})),
        Example("of another version, of no package", _fabric(state="stopped", version="535.54.03")),
        Example("in a container", example_evidence(example_facts(container=DOCKER), cuinit=_NOT_READY)),
        Example("in a log", example_evidence(example_facts(), lines=(f"E ] failed call to cuInit: {_NOT_READY}",))),
        Example("without NVSwitch", _without_switch("NVIDIA GeForce RTX 4090")),
        Example("without NVSwitch, in a container", _without_switch("NVIDIA L4", DOCKER)),
        Example("no device file, and yet of a kind that is joined", _without_switch("NVIDIA H200", DOCKER)),
        Example("ready", _fabric(""), fires=False),
        Example("another error", _fabric(_MISMATCH), fires=False),
    ),
}
