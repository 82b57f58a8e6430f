"""A child that is forked while other threads are inside the simulator."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from gpudiag.simulator import Machine

from .on_machine import ROOT, cards, run_python

SOURCES = ROOT / "gpudiag/simulator/src"

# Threads call without pause, while children are forked, each of which makes the same call. A child that waits for a
# lock of a thread that it has not got would wait for ever; an alarm ends it.
FORKS = """
import ctypes, os, signal, sys, threading, warnings
warnings.simplefilter("ignore", DeprecationWarning)  # Python 3.12: about forks beside threads, which this is about
core = ctypes.CDLL(os.environ["GPUDIAG_SIM_MACHINE"] + "/lib/libgpudiag_cuda.so")
device, memory = ctypes.c_void_p(), (ctypes.c_ulonglong * 3)()
core.nvmlInit_v2()
core.nvmlDeviceGetHandleByIndex_v2(0, ctypes.byref(device))
name = ctypes.create_string_buffer(b"kernel")
calls = {
    "nvmlDeviceGetMemoryInfo": lambda: core.nvmlDeviceGetMemoryInfo(device, memory),
    "nvmlDeviceGetCount_v2": lambda: core.nvmlDeviceGetCount_v2(memory),
    "__cudaRegisterFunction": lambda: core.__getattr__("__cudaRegisterFunction")(None, name, name, name),
}
call = calls[sys.argv[1]]

def again_and_again():
    while True:
        call()

for _ in range(2):
    threading.Thread(target=again_and_again, daemon=True).start()
hung = 0
for _ in range(150):
    child = os.fork()
    if not child:
        signal.alarm(3)
        call()
        os._exit(0)
    hung += os.waitpid(child, 0)[1] != 0
    if hung:
        break
print(hung, flush=True)
os._exit(0)
"""


@pytest.mark.parametrize(
    ("call", "trace"),
    [("nvmlDeviceGetMemoryInfo", False), ("nvmlDeviceGetCount_v2", True), ("__cudaRegisterFunction", False)],
    ids=["memory table", "trace", "kernels"],
)
def test_a_fork_beside_threads_inside_the_simulator(call: str, trace: bool, tmp_path: Path) -> None:
    with Machine(cards(1)) as machine:
        done = run_python(machine, "-c", FORKS, call, GPUDIAG_SIM_TRACE=str(tmp_path / "trace") if trace else "")
    assert (done.stdout, done.returncode) == ("0\n", 0), done.stderr
    lines = (tmp_path / "trace").read_text().splitlines() if trace else []
    assert all(re.fullmatch(r"\d+ \d+\.\d{6} \w+", line) for line in lines), "a child wrote half a line"


def test_no_lock_is_forgotten() -> None:
    """Every mutex is one of locks.c, which a fork waits for; but that of the shared table, and two of kernels.

    A child that is forked beside TensorFlow's threads runs no kernel: it waits for threads that it has not got.
    """
    found = {
        (file.name, line.strip())
        for file in SOURCES.iterdir()
        for line in file.read_text().splitlines()
        if re.search(
            r"pthread_(?:mutex|rwlock|spinlock)_t|std::\w*mutex \w+;|call_once|mtx_t",
            line,
        )
    }
    assert found == {
        ("locks.c", "static pthread_mutex_t mutexes[LOCKS] = {[0 ... LOCKS - 1] = PTHREAD_MUTEX_INITIALIZER};"),
        ("memory.c", "pthread_mutex_t lock;"),
        ("eager.cc", "static std::mutex mutex;"),
        ("nccl.cc", "std::mutex mutex;"),
    }
