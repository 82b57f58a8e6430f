"""The family ``calls``: how long the first call of the CUDA driver and of NVML takes a process. Can hang.

Each call is recorded when it begins and when it ends, so that a call that never ends has a name. Libraries are
opened by name, as the loader finds them; a context is made only if a GPU is asked for.
"""

from __future__ import annotations

import ctypes
import json
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

from gpudiag.hardware.nvml import normalise_pci
from gpudiag.model.facts import CallFacts, TimedCall

DRIVER, NVML = "libcuda.so.1", "libnvidia-ml.so.1"
_MARK = "gpudiag call: "
_BYTES = 1 << 20
_NON_BLOCKING = 1  # cuda.h: CU_STREAM_NON_BLOCKING, as TensorFlow's are
_KERNEL_EXEC_TIMEOUT = 17  # CU_DEVICE_ATTRIBUTE_KERNEL_EXEC_TIMEOUT
_NO_TIMES = 2  # CU_EVENT_DISABLE_TIMING


def gather() -> CallFacts:
    """Return the seconds of each first call, also of calls that fail."""
    calls = _Calls()
    driver = calls.opened(DRIVER)
    count = ctypes.c_int()
    if driver is not None:
        calls.timed("cuInit", lambda: driver.cuInit(0))
        calls.timed("cuDeviceGetCount", lambda: driver.cuDeviceGetCount(ctypes.byref(count)))
    nvml = calls.opened(NVML)
    if nvml is not None:
        calls.timed("nvmlInit", lambda: nvml.nvmlInit_v2())  # noqa: PLW0108  # a stub may lack it
    with suppress(AttributeError):  # a stub may lack these functions
        return CallFacts(tuple(calls.done), tuple(_time_limited(driver, count.value)))
    return CallFacts(tuple(calls.done))


def _time_limited(driver: Any, count: int) -> Iterator[str]:
    """Yield the PCI bus id of each GPU on which the driver ends a kernel that runs for too long."""
    device, limited, bus_id = ctypes.c_int(), ctypes.c_int(), ctypes.create_string_buffer(32)
    for ordinal in range(count):
        driver.cuDeviceGet(ctypes.byref(device), ordinal)
        failed = driver.cuDeviceGetAttribute(ctypes.byref(limited), _KERNEL_EXEC_TIMEOUT, device)
        if not failed and limited.value and not driver.cuDeviceGetPCIBusId(bus_id, len(bus_id), device):
            yield normalise_pci(bus_id.value)


def use_gpu(_: dict[str, Any]) -> bytes:
    """Test whether the first visible GPU answers: make a context on it and use it as TensorFlow does.

    This uses a stream with an event, pinned host memory, copies there and back, and a kernel of the driver (its
    memset).
    """
    calls = _Calls()
    driver = calls.opened(DRIVER)
    if driver is not None:
        device, context, memory = ctypes.c_int(), ctypes.c_void_p(), ctypes.c_void_p()
        stream, event, host = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_void_p()
        content, size = ctypes.create_string_buffer(_BYTES), ctypes.c_size_t(_BYTES)
        calls.timed("cuInit", lambda: driver.cuInit(0))
        calls.timed("cuDeviceGet", lambda: driver.cuDeviceGet(ctypes.byref(device), 0))
        calls.timed("cuDevicePrimaryCtxRetain", lambda: driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), device))
        calls.timed("cuCtxSetCurrent", lambda: driver.cuCtxSetCurrent(context))
        calls.timed("cuStreamCreate", lambda: driver.cuStreamCreate(ctypes.byref(stream), _NON_BLOCKING))
        calls.timed("cuEventCreate", lambda: driver.cuEventCreate(ctypes.byref(event), _NO_TIMES))
        calls.timed("cuMemHostAlloc", lambda: driver.cuMemHostAlloc(ctypes.byref(host), size, 0))
        calls.timed("cuMemAlloc", lambda: driver.cuMemAlloc_v2(ctypes.byref(memory), size))
        if memory.value and stream.value:
            calls.timed("cuMemcpyHtoD", lambda: driver.cuMemcpyHtoD_v2(memory, content, size))
            calls.timed("cuMemsetD8Async", lambda: driver.cuMemsetD8Async(memory, 1, size, stream))
            calls.timed("cuEventRecord", lambda: driver.cuEventRecord(event, stream))
            calls.timed("cuStreamSynchronize", lambda: driver.cuStreamSynchronize(stream))
            calls.timed("cuMemcpyDtoH", lambda: driver.cuMemcpyDtoH_v2(content, memory, size))
    return json.dumps([]).encode()


def of_a_child(output: str, gpu: str = "", waited_s: float = 0.0) -> CallFacts:
    """Return the calls that a child recorded until it was ended; the unfinished call has no seconds."""
    begun: dict[str, TimedCall] = {}
    for line in output.splitlines():
        mark, found, rest = line.partition(_MARK)
        name, _, seconds = rest.partition(" ")
        if found and not mark:
            begun[name] = (
                TimedCall(name, float(seconds), gpu) if seconds else TimedCall(name, None, gpu, round(waited_s, 1))
            )
    return CallFacts(tuple(begun.values()))


class _Calls:
    """Measures calls, and records them on standard error."""

    def __init__(self) -> None:
        self.done: list[TimedCall] = []

    def timed(self, name: str, call: Callable[[], object]) -> object:
        """Return the result of ``call``; None if the library lacks the function."""
        print(f"{_MARK}{name}", file=sys.stderr, flush=True)
        began = time.monotonic()
        try:
            answer = call()
        except (AttributeError, OSError):
            answer = None
        seconds = round(time.monotonic() - began, 3)
        print(f"{_MARK}{name} {seconds}", file=sys.stderr, flush=True)
        self.done.append(TimedCall(name, seconds))
        return answer

    def opened(self, library: str) -> Any:
        """Return the library; None if it cannot be opened."""
        return self.timed(f"dlopen({library})", lambda: ctypes.CDLL(library))
