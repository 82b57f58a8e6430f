"""How long a process was kept from running: by the kernel's figures, and of processes that are stopped or starved."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import pytest

from gpudiag.hardware.starvation import Starvation, Threads, threads

S = 10**9
"""A second, as the kernel counts."""


@pytest.mark.parametrize(
    ("looks", "waited_s"),
    [
        ([{1: (2 * S, 8 * S)}], 8.0),
        ([{1: (1 * S, 4 * S)}, {1: (2 * S, 8 * S)}], 8.0),
        ([{1: (0, 0), 2: (S // 10, S // 10)}], 0.1),
        ([{1: (10 * S, 0)}], 0.0),
        ([{1: (5 * S, 5 * S), 2: (5 * S, 5 * S)}], 0.0),
        ([{1: (1 * S, 9 * S), 2: (1 * S, 9 * S)}], 8.0),
        ([{1: (1 * S, 4 * S), 2: (3 * S, 1 * S)}, {1: (2 * S, 8 * S)}], 5.0),
        ([{}], 0.0),
    ],
    ids=[
        "a thread that got a fifth of a processor",
        "the same in two looks",
        "a hang, beside which a thread wakes up now and then",
        "a thread that computes without end",
        "threads that take turns on the one processor that is theirs",
        "two threads that got a tenth each",
        "a thread that ended",
        "nobody counts",
    ],
)
def test_what_the_kernel_counted_in_ten_seconds(looks: list[Threads], waited_s: float) -> None:
    starvation = Starvation(100.0)
    for number, counted in enumerate(looks, 1):
        starvation.note(counted, 100.0 + 10 * number / len(looks), stopped=False)
    assert starvation.waited_s == pytest.approx(waited_s)
    assert starvation.is_most is (waited_s >= 5)


def test_a_process_that_was_stopped_counts_when_it_runs_again() -> None:
    starvation = Starvation(0.0)
    starvation.note({1: (S, 0)}, 1.0, stopped=False)
    starvation.note({1: (S, 0)}, 9.0, stopped=True)
    assert not starvation.is_most, "it has not come back: it hangs"
    starvation.note({1: (2 * S, 0)}, 10.0, stopped=False)
    assert starvation.is_most
    assert str(starvation) == "it was stopped for 8 of 10 s"


def test_of_a_process_and_its_child_that_are_stopped_and_starved() -> None:
    """Four busy processes on one processor: each waits, whatever else the machine does."""
    spins = "import os; os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})\nif os.fork(): os.wait()\nwhile 1: pass"
    group = [subprocess.Popen([sys.executable, "-c", spins]) for _ in range(3)]
    try:
        starvation = Starvation(time.monotonic())
        until = time.monotonic() + 300
        while len(threads(group[0].pid)) < 2 and time.monotonic() < until:
            time.sleep(0.05)
        while starvation.waited_s == 0 and time.monotonic() < until:
            time.sleep(0.2)
            starvation.look(group[0].pid, time.monotonic())
        assert starvation.waited_s > 0
        assert str(starvation).startswith("its processes waited ")
        os.kill(group[0].pid, signal.SIGSTOP)
        while not starvation._stopped_s and time.monotonic() < until:
            time.sleep(0.05)
            starvation.look(group[0].pid, time.monotonic())
        os.kill(group[0].pid, signal.SIGCONT)
        while not starvation.stopped_s and time.monotonic() < until:
            time.sleep(0.05)
            starvation.look(group[0].pid, time.monotonic())
        assert starvation.stopped_s > 0
    finally:
        for process in group:
            for thread in threads(process.pid):
                os.kill(thread, signal.SIGKILL)
            process.wait()
