"""The CUDA driver through ``ctypes``: which GPUs it shows this process, and in which order.

Asking initialises the driver, which reads ``CUDA_VISIBLE_DEVICES`` and ``CUDA_DEVICE_ORDER`` then and never again.
"""

from __future__ import annotations

import ctypes
import uuid
from collections.abc import Iterator
from typing import Any

from gpudiag.hardware.nvml import normalise_pci
from gpudiag.probe import CudaDevice

_LIBRARY = "libcuda.so.1"


def devices(library: str = _LIBRARY) -> tuple[CudaDevice, ...]:
    """Return the GPUs that the driver shows, in its order; empty if it shows none or fails. Makes no context."""
    try:
        driver = ctypes.CDLL(library)
        count = ctypes.c_int()
        if driver.cuInit(0) or driver.cuDeviceGetCount(ctypes.byref(count)):
            return ()
        return tuple(_device(driver, ordinal) for ordinal in range(count.value))
    except (OSError, AttributeError):  # no such library, or one that lacks these functions
        return ()


def refusals(library: str = _LIBRARY) -> dict[str, str]:
    """Return the name of the error for each GPU (PCI bus id) on which the driver makes no context for this process."""
    shown = devices(library)
    try:
        return dict(_refusals(ctypes.CDLL(library), shown)) if shown else {}
    except AttributeError:  # a library that lacks these functions
        return {}


def _refusals(driver: Any, shown: tuple[CudaDevice, ...]) -> Iterator[tuple[str, str]]:
    for ordinal, device in enumerate(shown):
        handle, context, name = ctypes.c_int(), ctypes.c_void_p(), ctypes.c_char_p()
        driver.cuDeviceGet(ctypes.byref(handle), ordinal)
        if code := driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), handle):
            driver.cuGetErrorName(code, ctypes.byref(name))
            yield device.pci_bus_id, name.value.decode() if name.value else f"CUDA error {code}"
        else:
            driver.cuDevicePrimaryCtxRelease_v2(handle)


def _device(driver: Any, ordinal: int) -> CudaDevice:
    handle = ctypes.c_int()
    driver.cuDeviceGet(ctypes.byref(handle), ordinal)
    bus_id, identifier = ctypes.create_string_buffer(32), ctypes.create_string_buffer(16)
    driver.cuDeviceGetPCIBusId(bus_id, len(bus_id), handle)
    # The first version, the only one before CUDA 11.4, gives the UUID of the whole GPU for a MIG instance, too.
    get_uuid = getattr(driver, "cuDeviceGetUuid_v2", None) or driver.cuDeviceGetUuid
    get_uuid(identifier, handle)
    return CudaDevice(normalise_pci(bus_id.value) if bus_id.value else "", str(uuid.UUID(bytes=identifier.raw)))


def cudnn_version(library: ctypes.CDLL) -> str | None:
    """Return the version that a cuDNN reports, such as ``9.3.0``; None if the library is not a cuDNN."""
    try:
        library.cudnnGetVersion.restype = ctypes.c_size_t
        number = int(library.cudnnGetVersion())
    except AttributeError:
        return None
    thousands = 10_000 if number >= 90_000 else 1_000  # 90300 is 9.3.0, 8907 was 8.9.7
    return f"{number // thousands}.{number % thousands // 100}.{number % 100}"
