"""The line of `gpudiag lint` that counts files: on a terminal alone, late, and gone in the end."""

from __future__ import annotations

import os
import pty
import time
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest

from conftest import Gpudiag
from gpudiag.cli.file_counter import FileCounter
from terminal import Session


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FileCounter, "_AFTER_S", 0.0)
    monkeypatch.setattr(FileCounter, "_EVERY_S", 0.0)
    monkeypatch.setenv("TERM", "xterm")


def count(stack: ExitStack, monkeypatch: pytest.MonkeyPatch, *, is_terminal: bool) -> str:
    """Return what is written of three steps to a standard error."""
    ours, its = pty.openpty() if is_terminal else os.pipe()
    stack.callback(os.close, ours)
    with os.fdopen(its, "w") as stream, monkeypatch.context() as patch:
        patch.setattr("sys.stderr", stream)
        with FileCounter() as counter:
            counter.show(7, 0)
            counter.show(0, 2)
            counter.show(1, 2)
        os.set_blocking(ours, False)
        written = b""
        with suppress(BlockingIOError):
            while chunk := os.read(ours, 1 << 16):
                written += chunk
        return written.decode()


@pytest.mark.usefixtures("at_once")
def test_files_are_counted_and_the_line_is_removed(monkeypatch: pytest.MonkeyPatch) -> None:
    with ExitStack() as stack:
        written = count(stack, monkeypatch, is_terminal=True)
    assert written.split("\r\x1b[2K") == ["", "reading: 7 files", "checking: 0/2 files", "checking: 1/2 files", ""]


@pytest.mark.usefixtures("at_once")
def test_nothing_is_written_elsewhere_or_to_a_dumb_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    with ExitStack() as stack:
        assert count(stack, monkeypatch, is_terminal=False) == ""
        monkeypatch.setenv("TERM", "dumb")
        assert count(stack, monkeypatch, is_terminal=True) == ""


def test_a_short_run_shows_no_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    began = time.monotonic()
    with ExitStack() as stack:
        written = count(stack, monkeypatch, is_terminal=True)
    assert written == "" or time.monotonic() - began > 1


def test_the_findings_are_all_that_stays(gpudiag: Gpudiag, tmp_path: Path) -> None:
    program = "import tensorflow as tf\nwith tf.device('gpu:zero'):\n    tf.constant(1)\n"
    for number in range(300):
        (tmp_path / f"program{number}.py").write_text(program * (1 + number % 7))
    session = Session(gpudiag, "lint", str(tmp_path))
    *drawn, last = session.read().split("\r\x1b[2K")
    assert session.end() in {0, 1}
    assert "checking:" not in last
    assert "files" in last
    assert all(line.startswith(("checking: ", "reading: ")) for line in drawn[1:])
