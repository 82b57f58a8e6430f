"""What ``/proc`` shows of real processes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from gpudiag.hardware.processes import identify, opening

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")


@pytest.fixture
def sleeper(wait_until: Callable[[Callable[[], bool]], None]) -> Iterator[subprocess.Popen[bytes]]:
    variables = {"OMPI_COMM_WORLD_RANK": "3", "SLURM_JOB_ID": "17", "SECRET": "never shown"}
    process = subprocess.Popen(["sleep", "60"], env={"PATH": os.environ["PATH"], **variables})
    # Popen returns when the kernel has closed its pipe, which it does before /proc shows the program's arguments.
    wait_until(lambda: Path(f"/proc/{process.pid}/cmdline").read_bytes() == b"sleep\x0060\0")
    yield process
    process.kill()
    process.wait()


def _reach(pid: int, state: str) -> None:
    until = time.monotonic() + 20
    while identify(pid).state != state:
        assert time.monotonic() < until, identify(pid)
        time.sleep(0.02)


def test_a_sibling_of_the_same_run_has_its_rank(sleeper: subprocess.Popen[bytes]) -> None:
    known = identify(sleeper.pid, environ={"OMPI_COMM_WORLD_RANK": "0", "SLURM_JOB_ID": "17"})
    assert (known.command, known.rank, known.run) == ("sleep ...", "OMPI_COMM_WORLD_RANK=3", "SLURM_JOB_ID")
    assert (known.parent, known.is_ancestor) == (os.getpid(), False)
    assert "never shown" not in repr(known)


@pytest.mark.parametrize(
    "environ",
    [{"OMPI_COMM_WORLD_RANK": "0", "SLURM_JOB_ID": "18"}, {"SLURM_JOB_ID": "17"}, {}],
    ids=["another job", "no rank here", "nothing"],
)
def test_of_another_run_nothing_is_the_same(sleeper: subprocess.Popen[bytes], environ: dict[str, str]) -> None:
    assert identify(sleeper.pid, environ=environ).run is None


def test_a_stopped_process_a_zombie_and_one_that_is_gone(sleeper: subprocess.Popen[bytes]) -> None:
    sleeper.send_signal(signal.SIGSTOP)
    _reach(sleeper.pid, "T")
    sleeper.kill()
    _reach(sleeper.pid, "Z")  # this process has not waited for it
    assert identify(sleeper.pid).parent == os.getpid()
    sleeper.wait()
    _reach(sleeper.pid, "X")


def test_what_has_started_this_process_is_its_ancestor() -> None:
    assert identify(os.getpid()).is_ancestor
    assert identify(os.getppid()).is_ancestor


def test_who_has_a_file_open() -> None:
    """Relatives are left out, which examine the GPU themselves; the grandchild here is none."""
    command = "sh -c 'echo $$; exec sleep 60' </dev/full & wait"  # it says its number when it has the file open
    with subprocess.Popen(["sh", "-c", command], stdout=subprocess.PIPE, text=True, start_new_session=True) as shell:
        assert shell.stdout is not None
        grandchild = int(shell.stdout.readline())
        try:
            assert grandchild in opening(Path("/dev/full"))
            assert shell.pid not in opening(Path("/dev/full"))
        finally:
            os.killpg(shell.pid, signal.SIGKILL)
