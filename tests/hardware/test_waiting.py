"""What a process waits in: read from outside, without a list of functions."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
import pytest

from gpudiag.hardware import elf, waiting
from gpudiag.hardware.waiting import WaitPlace
from gpudiag.simulator import Machine

IN_A_LIBRARY = """
import ctypes, threading
library = ctypes.CDLL("libcuda.so.1")
print(flush=True)
for name in {threads!r}:
    threading.Thread(target=getattr(library, name), args=(None,)).start()
"""
IN_A_CHILD = (
    f"import subprocess, sys; subprocess.run([sys.executable, '-c', {IN_A_LIBRARY.format(threads=('cudnnCreate',))!r}])"
)


@contextmanager
def running(program: str, *faults: str) -> Iterator[int]:
    """A program on a simulated machine that has begun."""
    with Machine("1", faults) as machine:
        command = [sys.executable, "-c", program]
        process = subprocess.Popen(command, env=machine.environment(), stdout=subprocess.PIPE)
        try:
            assert process.stdout is not None
            process.stdout.readline()
            yield process.pid
        finally:
            subprocess.run(["pkill", "-P", str(process.pid)], check=False)
            process.kill()
            process.communicate()


def seen(pid: int) -> WaitPlace:
    return msgspec.json.decode(waiting.look({"pid": pid}), type=WaitPlace)


@pytest.mark.parametrize(
    ("program", "function", "call"),
    [
        (IN_A_LIBRARY.format(threads=("cudnnCreate",)), "cudnnCreate", "cudnnCreate"),
        (IN_A_CHILD, "cudnnCreate", "cudnnCreate"),
        (IN_A_LIBRARY.format(threads=("cuInit",)).replace("args=(None,)", "args=(0,)"), "cuInit", "cuInit"),
        (IN_A_LIBRARY.format(threads=("cublasCreate_v2",)), "cublasCreate_v2", "cublasCreate"),
    ],
)
def test_the_call_is_named_in_any_thread_and_in_a_child(
    program: str, function: str, call: str, wait_until: Callable[[Callable[[], bool]], None]
) -> None:
    with running(program, f"slow_call={function}:1000") as pid:
        wait_until(lambda: seen(pid).call != "")
        found = seen(pid)
        assert found.call == call
        assert waiting.woken(found.thread) == found.woken, "it was not woken since"


def test_a_file_is_named_that_is_waited_for(tmp_path: Path, wait_until: Callable[[Callable[[], bool]], None]) -> None:
    file = tmp_path / "index"
    program = (
        f"import fcntl; f, g = open({str(file)!r}, 'w'), open({str(file)!r}); fcntl.flock(f, 2); print(flush=True); "
    )
    with running(program + "fcntl.flock(g, 2)") as pid:
        wait_until(lambda: seen(pid).file != "")
        assert (seen(pid).call, seen(pid).file) == ("", f"flock on {file}")


def test_who_waits_in_no_library_and_for_no_file_is_not_named(wait_until: Callable[[Callable[[], bool]], None]) -> None:
    with running(
        "import ctypes, time; ctypes.CDLL('libcuda.so.1').cuInit(0); print(flush=True); time.sleep(99)"
    ) as pid:
        wait_until(lambda: waiting.woken(f"/proc/{pid}") is not None)
        assert (seen(pid).call, seen(pid).file) == ("", "")
    assert seen(pid) == WaitPlace(), "it has ended"
    assert waiting.woken(f"/proc/{pid}") is None


def test_the_functions_of_what_is_no_library_are_none(tmp_path: Path) -> None:
    (tmp_path / "x").write_text("text")
    assert elf.functions(tmp_path / "x") == elf.functions(tmp_path / "y") == ()


@pytest.mark.parametrize(
    ("code", "is_call"),
    [
        ("90 90 90 e8 01 02 03 04", True),  # call an address
        ("90 90 90 90 90 90 ff d0", True),  # call *%rax
        ("90 90 ff 15 01 02 03 04", True),  # call *0x4030201(%rip)
        ("90 90 90 90 90 41 ff d4", True),  # call *%r12
        ("90 90 90 90 90 ff 50 18", True),  # call *0x18(%rax)
        ("90 90 90 90 90 90 ff e0", False),  # jmp *%rax
        ("00 00 00 00 00 00 00 00", False),
    ],
)
def test_calls_are_recognised(code: str, is_call: bool) -> None:
    assert waiting._after_a_call(bytes.fromhex(code)) is is_call
