"""NVML through ``pynvml`` (nvidia-ml-py); the only file that knows it.

NVML can hang on a wedged driver: call it only in a child process that has a deadline. NVML initialises no CUDA, ignores
``CUDA_VISIBLE_DEVICES`` and counts GPUs in PCI order.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import combinations
from types import ModuleType
from typing import Any

import msgspec

from gpudiag.model.facts import GpuProcess, GpuState, NvmlDevice, NvmlFacts
from gpudiag.model.health import HealthCounters, HealthSample
from gpudiag.probe import MemoryUse

_VIRTUALIZATION = {0: "none", 1: "passthrough", 2: "vgpu", 3: "host_vgpu", 4: "host_vsga"}
_FABRIC = {0: "not_supported", 1: "not_started", 2: "in_progress", 3: "completed"}
_PEER = {
    0: "ok",
    1: "chipset not supported",
    2: "GPU not supported",
    3: "topology not supported",
    4: "disabled by a setting of the driver",
    5: "not supported",
}
_SLOWED_BY = {
    0x001: "idle",
    0x002: "chosen_clocks",
    0x004: "power_cap",
    0x008: "hardware",
    0x010: "sync_boost",
    0x020: "warm",
    0x040: "hot",
    0x080: "power_brake",
    0x100: "display",
}
"""Bits of nvmlClocksEventReasons that slow a GPU. Hardware slows one that is ``hot`` or lacks power, the driver one
that is ``warm``."""

_HEALTH_S = 4.0
"""Time limit for the questions about health: about forty for each GPU, of some ten microseconds each as a rule."""

_NOT_FOR_US = (3, 4, 13)
"""Errors with which nothing is wrong: this card, driver or user has no answer (not supported, no permission, not
found)."""

_COMPUTE_MODES = {0: "default", 1: "exclusive_thread", 2: "prohibited", 3: "exclusive_process"}


def preload() -> None:
    """Import the Python modules for NVML, for all children of a process; NVML is not called. Raises ``ImportError``."""
    _library()


def gather() -> NvmlFacts:
    """Return NVML's answers; never raises for an NVML that is absent or fails, wholly or for one GPU."""
    try:
        nvml = _library()
    except ImportError as error:
        return NvmlFacts(f"The Python package nvidia-ml-py cannot be imported: {error}", None, None, ())
    try:
        with _session(nvml):
            return _facts(nvml)
    except nvml.NVMLError as error:
        return NvmlFacts(_words(nvml, error), None, None, ())


def memory(uuid: str) -> MemoryUse:
    """Return the memory in use on the GPU called ``uuid``, in bytes; raises ``pynvml.NVMLError`` where NVML fails.

    ``own_bytes`` is the part of this process, or None if NVML does not know it: in a container it counts pids of the
    host, and under MIG and in WSL it gives no figure.
    """
    nvml = _library()
    with _session(nvml):
        handle = nvml.nvmlDeviceGetHandleByUUID(uuid)
        used = int(nvml.nvmlDeviceGetMemoryInfo(handle).used)
        own = {process.pid: process.used_bytes for process in _processes(nvml, handle)}.get(os.getpid())
        return MemoryUse(used, own)


def used_memory(uuid: str) -> int | None:
    """Return the bytes in use on the GPU called ``uuid``; None if NVML is absent or does not say."""
    try:
        nvml = _library()
    except ImportError:
        return None
    try:
        return memory(uuid).used_bytes
    except nvml.NVMLError:
        return None


@contextmanager
def in_use(uuids: tuple[str, ...]) -> Iterator[Callable[[], tuple[int, ...]]]:
    """Yield a function that returns the bytes in use on each of these GPUs; raises ``pynvml.NVMLError`` if NVML
    fails."""
    nvml = _library()
    with _session(nvml):
        handles = [nvml.nvmlDeviceGetHandleByUUID(uuid) for uuid in uuids]
        yield lambda: tuple(int(nvml.nvmlDeviceGetMemoryInfo(handle).used) for handle in handles)


@contextmanager
def usage() -> Iterator[Callable[[], list[tuple[int, int, int, dict[int, int], int | None, str]]]]:
    """Yield a function that returns for each GPU its index, total and used bytes, the bytes of each process, the
    percentage of recent time in which it computed, and its PCI bus id.

    Raises ``pynvml.NVMLError`` where NVML fails; a process whose bytes NVML does not know is left out.
    """
    nvml = _library()

    def ask() -> list[tuple[int, int, int, dict[int, int], int | None, str]]:
        usages = []
        for index in range(nvml.nvmlDeviceGetCount()):
            handle = nvml.nvmlDeviceGetHandleByIndex(index)
            held = nvml.nvmlDeviceGetMemoryInfo(handle)
            known = {
                process.pid: process.used_bytes
                for process in _processes(nvml, handle)
                if process.used_bytes is not None
            }
            busy = _asked(nvml, "nvmlDeviceGetUtilizationRates", handle)
            percent = None if busy is None else int(busy.gpu)
            pci = _asked(nvml, "nvmlDeviceGetPciInfo", handle)
            bus_id = "" if pci is None else normalise_pci(pci.busId)
            usages.append((index, int(held.total), int(held.used), known, percent, bus_id))
        return usages

    with _session(nvml):
        yield ask


@contextmanager
def health() -> Iterator[Callable[[float], list[tuple[str, HealthSample, HealthCounters]]]]:
    """Yield a function that takes the time of a sample, and returns for each GPU its UUID, its state and its counters.

    Raises ``pynvml.NVMLError`` where NVML fails; a GPU that does not answer any more is left out.
    """
    nvml = _library()

    def ask(at_s: float) -> list[tuple[str, HealthSample, HealthCounters]]:
        found = []
        for index in range(nvml.nvmlDeviceGetCount()):
            with contextlib.suppress(nvml.NVMLError):
                handle = nvml.nvmlDeviceGetHandleByIndex(index)
                uuid = _text(nvml.nvmlDeviceGetUUID(handle))
                found.append((uuid, _sample(nvml, handle, at_s), _counters(nvml, handle)))
        return found

    with _session(nvml):
        yield ask


def _sample(nvml: ModuleType, handle: Any, at_s: float) -> HealthSample:
    def ask(call: str, *arguments: Any) -> Any:
        return _asked(nvml, f"nvmlDeviceGet{call}", handle, *arguments)

    busy, milliwatts = ask("UtilizationRates"), ask("PowerUsage")
    return HealthSample(
        at_s=at_s,
        clock_mhz=ask("ClockInfo", 1),
        memory_clock_mhz=ask("ClockInfo", 2),
        temperature=ask("Temperature", 0),
        power_watts=None if milliwatts is None else milliwatts / 1000,
        busy_percent=None if busy is None else int(busy.gpu),
        slowed_by=_slowed_by(nvml, handle),
        pcie_generation=ask("CurrPcieLinkGeneration"),
        pcie_width=ask("CurrPcieLinkWidth"),
    )


def _counters(nvml: ModuleType, handle: Any) -> HealthCounters:
    def ask(call: str, *arguments: Any) -> Any:
        return _asked(nvml, f"nvmlDeviceGet{call}", handle, *arguments)

    links = range(getattr(nvml, "NVML_NVLINK_MAX_LINKS", 0))
    # 0 replays, 1 recoveries, 2 damaged packets, 3 damaged data
    errors = [
        count for link in links for kind in range(4) if (count := ask("NvLinkErrorCounter", link, kind)) is not None
    ]
    return HealthCounters(
        corrected_errors=ask("TotalEccErrors", 0, 0),
        uncorrected_errors=ask("TotalEccErrors", 1, 0),
        remapped_rows=(ask("RemappedRows") or (None, None))[1],
        pcie_replays=ask("PcieReplayCounter"),
        nvlink_errors=sum(errors) if errors else None,
    )


def _slowed_by(nvml: ModuleType, handle: Any) -> tuple[str, ...] | None:
    """Return why the clocks are lowered."""
    bits = _asked(nvml, "nvmlDeviceGetCurrentClocksEventReasons", handle)
    bits = _asked(nvml, "nvmlDeviceGetCurrentClocksThrottleReasons", handle) if bits is None else bits  # before 535
    return None if bits is None else tuple(name for bit, name in _SLOWED_BY.items() if bits & bit)


def state(uuid: str) -> GpuState:
    """Return the current health and limits of the GPU called ``uuid``; all fields are unknown if NVML does not
    answer."""
    nvml = _library()
    try:
        with _session(nvml):
            return _state(nvml, nvml.nvmlDeviceGetHandleByUUID(uuid))
    except nvml.NVMLError:
        return GpuState()


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


def _words(nvml: ModuleType, error: Any) -> str:
    """Return NVML's words for an error, and the code of the error that it has no words for."""
    return f"{error}, NVML_ERROR_UNKNOWN" if error.value == nvml.NVML_ERROR_UNKNOWN else str(error)


def _facts(nvml: ModuleType) -> NvmlFacts:
    devices: list[NvmlDevice] = []
    errors: list[str] = []
    for index in range(nvml.nvmlDeviceGetCount()):
        try:
            devices.append(_device(nvml, index))
        except nvml.NVMLError as error:  # one lost GPU must not hide the others
            errors.append(f"GPU {index}: {_words(nvml, error)}")
    # A driver that is busy or ill answers slowly: what is known without these must not be lost to the deadline.
    until = time.monotonic() + _HEALTH_S
    confidential = _asked(nvml, "nvmlSystemGetConfComputeState")
    ready = _asked(nvml, "nvmlSystemGetConfComputeGpusReadyState") if confidential and confidential.ccFeature else None
    driver = _optional(nvml, nvml.nvmlSystemGetDriverVersion)
    cuda = _optional(nvml, nvml.nvmlSystemGetCudaDriverVersion_v2)
    return NvmlFacts(
        error="; ".join(errors) or None,
        driver_version=None if driver is None else _text(driver),
        cuda_version=None if cuda is None else f"{cuda // 1000}.{cuda % 1000 // 10}",
        devices=tuple(_with_state(nvml, device, until) for device in devices),
        peers=_peers(nvml, [device.index for device in devices], until),
        confidential=None if confidential is None else bool(confidential.ccFeature),
        confidential_ready=None if ready is None else bool(ready),
    )


def _device(nvml: ModuleType, index: int) -> NvmlDevice:
    handle = nvml.nvmlDeviceGetHandleByIndex(index)
    memory_info, memory_error = None, ""
    try:
        memory_info = nvml.nvmlDeviceGetMemoryInfo(handle)
    except nvml.NVMLError as error:
        memory_error = "" if error.value in _NOT_FOR_US else _words(nvml, error)
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
        mig_memory_bytes=tuple(
            (int(instance.total), int(instance.used)) if instance else (0, 0) for instance in instances.values()
        ),
        memory_error=memory_error,
    )


def _with_state(nvml: ModuleType, device: NvmlDevice, until: float) -> NvmlDevice:
    handle = _asked(nvml, "nvmlDeviceGetHandleByIndex", device.index) if time.monotonic() < until else None
    return device if handle is None else msgspec.structs.replace(device, state=_state(nvml, handle))


def _state(nvml: ModuleType, handle: Any) -> GpuState:
    """Return health and limits; fields that this card, driver or nvidia-ml-py does not answer stay None."""

    def ask(call: str, *arguments: Any) -> Any:
        return _asked(nvml, f"nvmlDeviceGet{call}", handle, *arguments)

    def flag(value: int | None) -> bool | None:
        return None if value is None else bool(value)

    def watts(milliwatts: int | None) -> int | None:
        return None if milliwatts is None else milliwatts // 1000

    ecc = ask("EccMode")
    retired = [
        ask("RetiredPages_v2", cause) for cause in (0, 1)
    ]  # after one bit that was wrong often; after two at once
    _, remapped, pending, failed = ask("RemappedRows") or (None, None, None, None)
    fabric = _fabric(nvml, handle)
    virtualization = ask("VirtualizationMode")
    performance = ask("PerformanceState")
    return GpuState(
        virtualization=_VIRTUALIZATION.get(virtualization),
        licensed=_licensed(ask("GridLicensableFeatures_v4")) if virtualization == 2 else None,
        persistence=flag(ask("PersistenceMode")),
        ecc=flag(ecc[0]) if ecc else None,
        uncorrected_errors=ask("TotalEccErrors", 1, 0),
        corrected_errors=ask("TotalEccErrors", 0, 0),
        retired_pages=None if None in retired else sum(map(len, retired)),
        retirement_pending=flag(ask("RetiredPagesPendingStatus")),
        remapped_rows=remapped,
        remap_pending=flag(pending),
        remap_failed=flag(failed),
        pcie_generation=ask("CurrPcieLinkGeneration"),
        pcie_generation_max=ask("MaxPcieLinkGeneration"),
        pcie_width=ask("CurrPcieLinkWidth"),
        pcie_width_max=ask("MaxPcieLinkWidth"),
        slowed_by=_slowed_by(nvml, handle),
        performance_state=performance if performance is not None and performance < 16 else None,
        power_limit_watts=watts(ask("EnforcedPowerLimit")),
        power_default_watts=watts(ask("PowerManagementDefaultLimit")),
        clock_mhz=ask("ClockInfo", 1),
        clock_max_mhz=ask("MaxClockInfo", 1),
        temperature=ask("Temperature", 0),
        temperature_max=ask("TemperatureThreshold", 3),
        display=flag(ask("DisplayActive")),
        fabric=None if fabric is None else _FABRIC.get(fabric.state),
        fabric_error=None if fabric is None or fabric.state != 3 else fabric.status,
        nvlinks=_nvlinks(nvml, handle),
    )


def _licensed(features: Any) -> bool | None:
    if features is None or not features.isGridLicenseSupported:
        return None
    count = min(features.licensableFeaturesCount, len(features.gridLicensableFeatures))
    enabled = [
        gridlicensablefeature
        for gridlicensablefeature in features.gridLicensableFeatures[:count]
        if gridlicensablefeature.featureEnabled
    ]
    return any(feature.featureState for feature in enabled) if enabled else None


def _fabric(nvml: ModuleType, handle: Any) -> Any:
    made = getattr(nvml, "c_nvmlGpuFabricInfo_t", None)
    if made is None:
        return None
    info = made()
    return None if _asked(nvml, "nvmlDeviceGetGpuFabricInfo", handle, ctypes.byref(info)) is None else info


def _nvlinks(nvml: ModuleType, handle: Any) -> tuple[bool, ...] | None:
    active_links: list[bool] = []
    for link in range(getattr(nvml, "NVML_NVLINK_MAX_LINKS", 0)):
        active = _asked(nvml, "nvmlDeviceGetNvLinkState", handle, link)
        if active is None:  # a card without NVLink, or the number after its last
            break
        active_links.append(bool(active))
    return tuple(active_links) or None


def _peers(nvml: ModuleType, indices: list[int], until: float) -> dict[str, str]:
    """Return for each pair of GPUs whether one may read the other's memory."""
    handles = {index: _asked(nvml, "nvmlDeviceGetHandleByIndex", index) for index in indices}
    peers = {}
    for first, other in combinations(indices, 2):
        if time.monotonic() > until:
            break
        status = _asked(nvml, "nvmlDeviceGetP2PStatus", handles[first], handles[other], 0)
        if status is not None:
            peers[f"{first} {other}"] = _PEER.get(status, "unknown")
    return peers


def _mig_instances(nvml: ModuleType, handle: Any) -> Iterator[tuple[str, Any]]:
    """Yield the UUID of each MIG instance of a GPU, and its memory (None if that cannot be asked)."""
    for slot in range(_optional(nvml, nvml.nvmlDeviceGetMaxMigDeviceCount, handle) or 0):
        instance = _optional(nvml, nvml.nvmlDeviceGetMigDeviceHandleByIndex, handle, slot)  # empty slots raise
        if instance is not None:
            yield _text(nvml.nvmlDeviceGetUUID(instance)), _optional(nvml, nvml.nvmlDeviceGetMemoryInfo, instance)


def _processes(nvml: ModuleType, handle: Any) -> tuple[GpuProcess, ...]:
    processes: dict[int, GpuProcess] = {}
    # By version: the names without one raise something that is not an NVMLError where the driver is older than pynvml.
    drawing, computing = nvml.nvmlDeviceGetGraphicsRunningProcesses_v3, nvml.nvmlDeviceGetComputeRunningProcesses_v3
    for listing, computes in ((drawing, False), (computing, True)):
        for process in _optional(nvml, listing, handle) or ():
            # A process that computes and draws is in both lists, with the same figure.
            processes[process.pid] = GpuProcess(process.pid, process.usedGpuMemory, computes)
    return tuple(processes[pid] for pid in sorted(processes))


def _optional(nvml: ModuleType, call: Callable[..., Any], *arguments: Any) -> Any:
    """Return the result of ``call``, or None if this GPU, driver or user cannot have it."""
    try:
        return call(*arguments)
    except nvml.NVMLError:
        return None


def _asked(nvml: ModuleType, call: str, *arguments: Any) -> Any:
    """Return the result of the call of this name; None also if this nvidia-ml-py lacks it or takes other arguments.

    Such details must never cost the list of GPUs.
    """
    function = getattr(nvml, call, None)
    try:
        return None if function is None else _optional(nvml, function, *arguments)
    except (AttributeError, TypeError, ValueError, ctypes.ArgumentError):
        return None


def _text(value: str | bytes) -> str:
    """Return ``value`` as text: some versions of nvidia-ml-py return bytes."""
    return value.decode(errors="replace") if isinstance(value, bytes) else value
