"""NULL where a pointer is needed, and handles that are stale or never were: an error of CUDA's, and no crash."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, cast

import pytest
from elftools.elf.elffile import ELFFile

from gpudiag.simulator import Machine, library_directory

from .on_machine import MIB, cards, run_python

INVALID_VALUE, INVALID_CONTEXT, INVALID_HANDLE = 1, 201, 400
REGISTERED, NOT_REGISTERED = 712, 713

START = """
import ctypes, json, os, sys
core = ctypes.CDLL(os.environ["GPUDIAG_SIM_MACHINE"] + "/lib/libgpudiag_cuda.so")
new, size = ctypes.c_void_p, ctypes.c_size_t

def start():
    context = new()
    codes = core.cuInit(0), core.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0), core.cuCtxSetCurrent(context)
    assert codes == (0, 0, 0) and core.nvmlInit_v2() == 0, codes

def made(function, *arguments):
    handle = new()
    assert getattr(core, function)(ctypes.byref(handle), *arguments) == 0, function
    return handle
"""

ALL_NULL = (
    START
    + """
active = ctypes.c_int()
for function in sys.argv[1:]:
    print(function, flush=True)
    start()
    getattr(core, function)(*[new(None)] * 12)
    core.cuCtxSynchronize()  # of what it queued
    while not core.cuDevicePrimaryCtxGetState(0, ctypes.byref(size()), ctypes.byref(active)) and active.value:
        core.cuDevicePrimaryCtxRelease_v2(0)  # a launch has stopped the device
print("done")
"""
)


def functions() -> list[str]:
    """The names of all that is simulated, without those that answer "not supported" and look at no argument."""
    with (library_directory() / "libgpudiag_cuda.so").open("rb") as file:
        symbols: list[Any] = list(cast(Any, ELFFile(file).get_section_by_name(".dynsym")).iter_symbols())
    return [
        symbol.name
        for symbol in symbols
        if symbol["st_info"]["bind"] == "STB_GLOBAL"
        and symbol["st_info"]["type"] == "STT_FUNC"
        and symbol["st_shndx"] != "SHN_UNDEF"
    ]


def test_every_function_with_nothing_but_null() -> None:
    names = functions()
    assert len(names) > 200
    with Machine(cards(2)) as machine:
        done = run_python(machine, "-c", ALL_NULL, *names)
    died_in = done.stdout.split()[-1]
    assert (done.returncode, died_in) == (0, "done"), done.stderr


STREAM = "stream = made('cuStreamCreate', 0); assert core.cuStreamDestroy_v2(stream) == 0"
EVENT = "event = made('cuEventCreate', 0); assert core.cuEventDestroy_v2(event) == 0"
MODULE = (
    "module = made('cuModuleLoadData', b'x'); function = made('cuModuleGetFunction', module, b'f'); "
    "assert core.cuModuleUnload(module) == 0"
)
POOL = (
    "pool = made('cuMemPoolCreate', (ctypes.c_int * 64)(1, 0, 1, 0)); "
    "live = made('cuMemAllocFromPoolAsync', size(4096), pool, None); assert core.cuMemPoolDestroy(pool) == 0"
)
FREED = (
    "freed = made('cuMemAlloc_v2', size(4096)); assert core.cuMemFree_v2(freed) == 0; host = (ctypes.c_char * 4096)()"
)
SPACE = "space = (ctypes.c_char * 64)(); "


@pytest.mark.parametrize("stale", [True, False], ids=["stale", "never one"])
@pytest.mark.parametrize(
    ("made", "call", "code"),
    [
        (STREAM, "cuStreamDestroy_v2(stream)", INVALID_HANDLE),
        (STREAM, "cuStreamSynchronize(stream)", INVALID_HANDLE),
        (STREAM, "cuStreamQuery(stream)", INVALID_HANDLE),
        (STREAM, "cuStreamGetCtx(stream, space)", INVALID_HANDLE),
        (STREAM, "cuLaunchHostFunc(stream, space, None)", INVALID_HANDLE),
        (EVENT, "cuEventDestroy_v2(event)", INVALID_HANDLE),
        (EVENT, "cuEventRecord(event, None)", INVALID_HANDLE),
        (EVENT, "cuEventQuery(event)", INVALID_HANDLE),
        (EVENT, "cuEventElapsedTime(space, event, event)", INVALID_HANDLE),
        (EVENT, "cuStreamWaitEvent(None, event, 0)", INVALID_HANDLE),
        (MODULE, "cuModuleUnload(module)", INVALID_HANDLE),
        (MODULE, "cuModuleGetFunction(space, module, b'f')", INVALID_HANDLE),
        (MODULE, "cuLaunchKernel(function)", INVALID_HANDLE),
        (POOL, "cuMemPoolDestroy(pool)", INVALID_VALUE),
        (POOL, "cuMemPoolTrimTo(pool, size(0))", INVALID_VALUE),
        (POOL, "cuMemPoolGetAttribute(pool, 6, space)", INVALID_VALUE),
        (POOL, "cuMemAllocFromPoolAsync(space, size(512), pool, None)", INVALID_VALUE),
        (FREED, "cuMemFree_v2(freed)", INVALID_VALUE),
        (FREED, "cuMemcpyHtoD_v2(freed, host, size(4096))", INVALID_VALUE),
        (FREED, "cuMemcpyDtoH_v2(host, freed, size(4096))", INVALID_VALUE),
        (FREED, "cuMemcpyDtoD_v2(freed, freed, size(4096))", INVALID_VALUE),
        (FREED, "cuMemsetD32_v2(freed, 1, size(1024))", INVALID_VALUE),
    ],
)
def test_a_stale_handle_and_an_invented_one(made: str, call: str, code: int, stale: bool) -> None:
    invented = "\nstream = event = module = function = pool = freed = new(0xdead000)"
    script = f"{START}\nstart()\n{SPACE}{made}{'' if stale else invented}\nprint(core.{call})"
    with Machine(cards(1)) as machine:
        done = run_python(machine, "-c", script)
    assert (done.stdout, done.returncode) == (f"{code}\n", 0), done.stderr


@pytest.mark.parametrize(
    ("lines", "codes"),
    [
        # What a destroyed pool still holds stays usable and charged; the last free ends the pool.
        (
            [
                "pool = made('cuMemPoolCreate', (ctypes.c_int * 64)(1, 0, 1, 0))",
                "one = made('cuMemAllocFromPoolAsync', size(1 << 20), pool, None)",
                "two = made('cuMemAllocFromPoolAsync', size(1 << 20), pool, None)",
                "show(core.cuMemPoolDestroy(pool), taken())",
                "show(core.cuMemsetD8_v2(one, 1, size(1 << 20)), core.cuMemFreeAsync(one, None), taken())",
                "show(core.cuMemFreeAsync(two, None), taken(), core.cuMemFreeAsync(two, None))",
            ],
            [0, 2 * MIB, 0, 0, MIB, 0, 0, INVALID_VALUE],
        ),
        (["pool = made('cuDeviceGetDefaultMemPool', 0)", "show(core.cuMemPoolDestroy(pool))"], [INVALID_VALUE]),
        (
            [
                "show(*[core.cuMemAlloc_v2(ctypes.byref(new()), size(-n)) for n in (1, 511, 600, 1 << 62)], taken())",
                "show(*[core.cuMemAllocManaged(ctypes.byref(new()), size(-n), 1) for n in (1, 511, 600)], taken())",
            ],
            [2, 2, 2, 2, 0, 2, 2, 2, 0],
        ),
        (
            [
                "host = made('cuMemHostAlloc', size(4096), 0)",
                "device = made('cuMemAlloc_v2', size(4096))",
                "show(core.cuMemFree_v2(host), core.cuMemFreeHost(device), core.cuMemFree_v2(device))",
                "show(core.cuMemHostRegister_v2(host, size(4096), 0), core.cuMemHostUnregister(host))",
                "show(*[core.cuMemHostRegister_v2(space, size(64), 0) for _ in range(2)])",
                "show(*[core.cuMemHostUnregister(space) for _ in range(2)])",
            ],
            [INVALID_VALUE, INVALID_VALUE, 0, REGISTERED, NOT_REGISTERED, 0, REGISTERED, 0, NOT_REGISTERED],
        ),
        (
            [
                "device = made('cuMemAlloc_v2', size(4096))",
                "host = (ctypes.c_char * 8192)()",
                "show(core.cuMemcpyHtoD_v2(device, host, size(4097)), core.cuMemcpyHtoD_v2(device, host, size(4096)))",
                "show(core.cuMemsetD32_v2(device, 7, size((1 << 62) + 1)), core.cuMemsetD32_v2(device, 7, size(1024)))",
            ],
            [INVALID_VALUE, 0, INVALID_VALUE, 0],
        ),
        (
            [
                "show(core.cuCtxSetCurrent(new(0xdead000)), core.cuCtxPushCurrent_v2(new(0xdead000)))",
                "show(core.cuCtxEnablePeerAccess(new(0xdead000), 0))",
                "show(core.cuMemcpyPeer(None, None, None, None, size(1)))",
            ],
            [INVALID_CONTEXT] * 4,
        ),
        # The default stream has three names.
        (["show(*[core.cuStreamSynchronize(new(n)) for n in (0, 1, 2, 3)])"], [0, 0, 0, INVALID_HANDLE]),
        (["show(*[core.nvmlDeviceGetName(new(n), space, 64) for n in (0, 1, 0xdead000)])"], [2, 2, 2]),
        # A destroyed handle is not made again at once, and many may be alive.
        (
            [
                "events = [made('cuEventCreate', 0).value for _ in range(60000)]",
                "show(len(set(events)), *{core.cuEventDestroy_v2(new(one)) for one in events})",
                "show(*{core.cuEventDestroy_v2(new(one)) for one in events})",
                "show(*{made('cuStreamCreate', 0).value in events for _ in range(1000)})",
            ],
            [60000, 0, INVALID_HANDLE, False],
        ),
        # What a destroyed pool still holds is written to when it is freed: until then its place is nobody else's.
        (
            [
                "pool = made('cuMemPoolCreate', (ctypes.c_int * 64)(1, 0, 1, 0))",
                "one = made('cuMemAllocFromPoolAsync', size(1 << 20), pool, None)",
                "show(core.cuMemPoolDestroy(pool))",
                "events = (made('cuEventCreate', 0) for _ in range(70000))",
                "show(*{core.cuEventDestroy_v2(event) or event.value == pool.value for event in events})",
                "show(core.cuMemFreeAsync(one, None), taken())",
            ],
            [0, False, 0, 0],
        ),
    ],
    ids=[
        "destroyed pool",
        "default pool",
        "huge",
        "host memory",
        "beyond the end",
        "contexts",
        "default stream",
        "NVML",
        "reuse",
        "place of a destroyed pool",
    ],
)
def test_answers(lines: list[str], codes: list[int], tmp_path: Path) -> None:
    script = f"""{START}
start()
space = (ctypes.c_char * 64)()
answers = []
def show(*codes): answers.extend(codes)
def taken():
    free, total = size(), size()
    assert core.cuMemGetInfo_v2(ctypes.byref(free), ctypes.byref(total)) == 0
    return total.value - free.value
{chr(10).join(lines)}
print(json.dumps(answers))
"""
    with Machine(cards(1)) as machine:
        done = run_python(machine, "-c", script)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == codes
