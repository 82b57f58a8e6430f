"""What a fork server may import, well-behaved and not."""

from __future__ import annotations

import ctypes
import os
import shutil
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path

from gpudiag.isolate import server


def starts_a_thread() -> None:
    """As ``import tensorflow`` does: Python 3.12+ warns of forking such a process."""
    threading.Thread(target=time.sleep, args=(3600,), daemon=True).start()


def refuses_to_fork() -> Callable[[], str | None]:
    return lambda: "a device was queried in the fork server"


def kills_nothing() -> None:
    """Let the server pass no signal on to its children; when it shuts down, it ends them all the same."""
    server.Server._kill = lambda *_, **__: None  # type: ignore[method-assign]


def raises() -> None:
    raise ImportError("libtensorflow_framework.so.2: cannot open shared object file")


def segfaults() -> None:
    ctypes.string_at(0)


def hangs() -> None:
    time.sleep(3600)


def talks() -> None:
    print("é" * 100_000)


def floods() -> None:
    while True:
        print("a line" * 100)


def removes_slowly() -> None:
    """As on a file system that answers late."""
    shutil.rmtree = lambda *_, **__: time.sleep(20)  # type: ignore[assignment]


def is_killed_once() -> None:
    """As a preload that something else on the machine kills; the mark tells the second time from the first."""
    mark = Path(os.environ["GPUDIAG_TEST_MARK"])
    if not mark.exists():
        mark.touch()
        os.kill(os.getpid(), signal.SIGKILL)
