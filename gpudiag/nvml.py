"""NVML through ``pynvml`` (nvidia-ml-py); the only file that knows it.

NVML can hang on a wedged driver: call it only in a child process that has a deadline. It initialises no CUDA, ignores
``CUDA_VISIBLE_DEVICES`` and counts GPUs in PCI order.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any

from gpudiag.hostfacts import GpuProcess, NvmlDevice, NvmlFacts
from gpudiag.probe import MemoryUse

_COMPUTE_MODES = {0: "default", 1: "exclusive_thread", 2: "prohibited", 3: "exclusive_process"}


def gather() -> NvmlFacts:
    """Return what NVML answers; never raises for an NVML that is absent or fails, wholly or for one GPU."""
    try:
        nvml = _library()
    except ImportError as error:
        return NvmlFacts(f"The Python package nvidia-ml-py cannot be imported: {error}", None, None, ())
    try:
        with _session(nvml):
            return _facts(nvml)
    except nvml.NVMLError as error:
        return NvmlFacts(str(error), None, None, ())


def memory(uuid: str) -> MemoryUse:
    """Return the memory in use on the GPU called ``uuid``, in bytes; raises ``pynvml.NVMLError`` where NVML fails.

    ``own_bytes`` is what NVML books on this process. None where it does not know it: in a container NVML counts pids of
    the host, and under MIG and in WSL it gives no figure.
    """
    nvml = _library()
    with _session(nvml):
        handle = nvml.nvmlDeviceGetHandleByUUID(uuid)
        used = int(nvml.nvmlDeviceGetMemoryInfo(handle).used)
        own = {process.pid: process.used_bytes for process in _processes(nvml, handle)}.get(os.getpid())
        return MemoryUse(used, own)


def normalise_pci(bus_id: str | bytes) -> str:
    """Return a PCI bus id as CUDA and sysfs print it: NVML's ``00000000:3B:00.0`` becomes ``0000:3b:00.0``."""
    domain, _, rest = _text(bus_id).lower().partition(":")
    return f"{int(domain, 16):04x}:{rest}"


def _library() -> ModuleType:
    with warnings.catch_warnings():
        # The deprecated PyPI project `pynvml`, where installed beside nvidia-ml-py, warns on import.
        warnings.simplefilter("ignore")
        import pynvml
    module: ModuleType = pynvml
    return module


@contextmanager
def _session(nvml: ModuleType) -> Iterator[None]:
    nvml.nvmlInit()
    try:
        yield
    finally:
        _optional(nvml, nvml.nvmlShutdown)


def _facts(nvml: ModuleType) -> NvmlFacts:
    devices: list[NvmlDevice] = []
    errors: list[str] = []
    for index in range(nvml.nvmlDeviceGetCount()):
        try:
            devices.append(_device(nvml, index))
        except nvml.NVMLError as error:  # one lost GPU must not hide the others
            errors.append(f"GPU {index}: {error}")
    driver = _optional(nvml, nvml.nvmlSystemGetDriverVersion)
    cuda = _optional(nvml, nvml.nvmlSystemGetCudaDriverVersion_v2)
    return NvmlFacts(
        error="; ".join(errors) or None,
        driver_version=None if driver is None else _text(driver),
        cuda_version=None if cuda is None else f"{cuda // 1000}.{cuda % 1000 // 10}",
        devices=tuple(devices),
    )


def _device(nvml: ModuleType, index: int) -> NvmlDevice:
    handle = nvml.nvmlDeviceGetHandleByIndex(index)
    memory_info = _optional(nvml, nvml.nvmlDeviceGetMemoryInfo, handle)
    capability = _optional(nvml, nvml.nvmlDeviceGetCudaComputeCapability, handle)
    mode = _optional(nvml, nvml.nvmlDeviceGetComputeMode, handle)
    mig = _optional(nvml, nvml.nvmlDeviceGetMigMode, handle)
    instances = dict(_mig_instances(nvml, handle)) if mig and mig[0] else {}
    return NvmlDevice(
        index=index,
        name=_text(nvml.nvmlDeviceGetName(handle)),
        uuid=_text(nvml.nvmlDeviceGetUUID(handle)),
        pci_bus_id=normalise_pci(nvml.nvmlDeviceGetPciInfo(handle).busId),
        memory_total_bytes=int(memory_info.total) if memory_info else 0,
        memory_used_bytes=int(memory_info.used) if memory_info else 0,
        compute_capability=None if capability is None else f"{capability[0]}.{capability[1]}",
        compute_mode=None if mode is None else _COMPUTE_MODES.get(mode, str(mode)),
        mig_mode=None if mig is None else ("enabled" if mig[0] else "disabled"),
        mig_uuids=tuple(instances),
        processes=_processes(nvml, handle),
        mig_memory_bytes=tuple((int(one.total), int(one.used)) if one else (0, 0) for one in instances.values()),
    )


def _mig_instances(nvml: ModuleType, handle: Any) -> Iterator[tuple[str, Any]]:
    """Yield the UUID of each MIG instance of a GPU, and its memory (None where that cannot be asked)."""
    for slot in range(_optional(nvml, nvml.nvmlDeviceGetMaxMigDeviceCount, handle) or 0):
        instance = _optional(nvml, nvml.nvmlDeviceGetMigDeviceHandleByIndex, handle, slot)  # empty slots raise
        if instance is not None:
            yield _text(nvml.nvmlDeviceGetUUID(instance)), _optional(nvml, nvml.nvmlDeviceGetMemoryInfo, instance)


def _processes(nvml: ModuleType, handle: Any) -> tuple[GpuProcess, ...]:
    found: dict[int, GpuProcess] = {}
    # By version: the names without one raise something that is no NVMLError where the driver is older than pynvml.
    drawing, computing = nvml.nvmlDeviceGetGraphicsRunningProcesses_v3, nvml.nvmlDeviceGetComputeRunningProcesses_v3
    for listing, computes in ((drawing, False), (computing, True)):
        for process in _optional(nvml, listing, handle) or ():
            # A process that computes and draws is in both lists, with the same figure.
            found[process.pid] = GpuProcess(process.pid, process.usedGpuMemory, computes)
    return tuple(found[pid] for pid in sorted(found))


def _optional(nvml: ModuleType, call: Callable[..., Any], *arguments: Any) -> Any:
    """Return what ``call`` returns, or None where this GPU, driver or user cannot have it."""
    try:
        return call(*arguments)
    except nvml.NVMLError:
        return None


def _text(value: str | bytes) -> str:
    """Return ``value`` as text: some versions of nvidia-ml-py return bytes."""
    return value.decode(errors="replace") if isinstance(value, bytes) else value
