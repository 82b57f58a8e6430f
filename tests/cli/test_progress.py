"""Progress: on standard error alone, without a thread, and fit for where it goes."""

from __future__ import annotations

import errno
import os
import pty
import re
import sys
import threading
from collections.abc import Iterator
from contextlib import redirect_stderr
from io import StringIO
from typing import IO

import pytest

from examples.facts import example_with_gpus
from gpudiag.cli.progress import Progress
from gpudiag.model.report import Broken, NoReading, Row, Skipped
from reports import GPUS, passed, row

FINE = row("placement.log", passed("fine"), s=0.123, log=("quiet log", "\x1b[31mred log\x1b[0m"))
SKIPPED = row("memory.growth", Skipped("no GPU\n\x1b[31m"))
BROKEN = row("logical.cpu_split", Broken(NoReading.SIGNAL, "SIGSEGV"), s=1.5)


def run(progress: Progress) -> None:
    """Tell of a run of three rows, two of which run at the same time."""
    with progress:
        progress.phase("host facts")
        progress.tick()
        progress.machine(example_with_gpus(1), GPUS[:1])
        progress.phase("probes", ["memory.growth", "placement.log", "logical.cpu_split"])
        progress.finished(SKIPPED, "memory.growth")
        progress.started("placement.log")
        progress.started("logical.cpu_split GPU 1")
        progress.tick()
        progress.finished(FINE, "placement.log")
        progress.tick()
        progress.note("[bold]a note[/bold]")
        progress.finished(BROKEN, "logical.cpu_split GPU 1")


def test_plain_lines_where_there_is_no_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    run(Progress())
    assert capsys.readouterr() == (
        "",
        "host facts\n"
        "probes (3)\n"
        "[1/3] memory: 1 skipped\n"
        "[2/3] placement: 1 pass\n"
        "[bold]a note[/bold]\n"
        "[3/3] logical: 1 broken\n",
    )


def test_an_area_has_one_line_even_if_it_is_continued(capsys: pytest.CaptureFixture[str]) -> None:
    with Progress() as progress:
        progress.phase("probes", ["placement.log", "placement.log"])
        progress.finished(FINE, "placement.log GPU 0")
        progress.finished(FINE, "placement.log GPU 1")
        progress.phase("probes that say why", ["placement.log"])
        progress.finished(FINE, "placement.log")
    assert capsys.readouterr().err == "probes (2)\n[2/2] placement: 2 pass\nprobes that say why (1)\n"


def test_verbose_tells_what_started_and_the_end_of_its_log(capsys: pytest.CaptureFixture[str]) -> None:
    run(Progress(verbose=True))
    out, err = capsys.readouterr()
    assert out == ""
    lines = err.splitlines()
    assert "placement.log: started" in lines
    position = lines.index("[2/3] placement.log: pass (0.12 s)")
    assert lines[position + 1 : position + 3] == ["    | quiet log", "    | red log"]


def test_of_a_long_log_the_end_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    long = Row("placement.log", (), passed(), 0.1, log=tuple(f"line {number}" for number in range(40)))
    with Progress(verbose=True) as progress:
        progress.finished(long, "placement.log")
    assert re.findall(r"\| line (\d+)", capsys.readouterr().err) == ["35", "36", "37", "38", "39"]


@pytest.mark.parametrize("verbose", [False, True])
def test_quiet_says_nothing(capsys: pytest.CaptureFixture[str], verbose: bool) -> None:
    run(Progress(quiet=True, verbose=verbose))
    assert capsys.readouterr() == ("", "")


class Terminal:
    """A pseudo-terminal that stands for standard error; what is written to it is kept."""

    def __init__(self) -> None:
        self._reading, writing = pty.openpty()
        self.stream: IO[str] = os.fdopen(writing, "w")

    def written(self) -> str:
        """Close the terminal and return all that was written to it."""
        os.set_blocking(self._reading, False)
        found = b""
        try:
            while chunk := os.read(self._reading, 1 << 16):
                found += chunk
        except BlockingIOError:
            return found.decode()
        return found.decode()

    def close(self) -> None:
        self.stream.close()
        os.close(self._reading)


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Iterator[Terminal]:
    opened = Terminal()
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("COLUMNS", "100")
    for variable in ("NO_COLOR", "FORCE_COLOR", "CLICOLOR", "CLICOLOR_FORCE"):
        monkeypatch.delenv(variable, raising=False)
    yield opened
    opened.close()


CONTROL = re.compile(r"\x1b\[[\d;?]*[A-Za-z]")


def test_the_machine_a_tree_and_a_bar_on_a_terminal(terminal: Terminal, capsys: pytest.CaptureFixture[str]) -> None:
    with redirect_stderr(terminal.stream):
        run(Progress())
    written = terminal.written()
    drawn = [" ".join(line.split()) for line in re.split(r"[\r\n]+", CONTROL.sub("", written))]
    assert any(re.fullmatch(r"host facts \S+ 0/\? [\d:]+", line) for line in drawn)
    assert "GPU 0 NVIDIA A100-SXM4-40GB, 40 GiB, PCI 0000:01:00.0" in drawn
    first = drawn.index("memory 1/1 1 skipped")
    assert [*drawn[first + 1 : first + 3]] == ["placement 0/1", "logical 0/1"]
    assert "placement 0/1 log" in drawn, "what runs is beside its area"
    assert "logical 0/1 cpu_split GPU 1" in drawn
    assert "placement 1/1 1 pass" in drawn
    assert any(re.fullmatch(r"probes \S+ 1/3 [\d:]+", line) for line in drawn)
    assert any(re.fullmatch(r"probes \S+ 2/3 [\d:]+", line) for line in drawn)
    assert re.search(r"\x1b\[32m1 pass", written), "an outcome has its colour"
    assert "[bold]a note[/bold]" in drawn
    assert not any("0.12 s" in line for line in drawn), "what a row says is in the report"
    assert written.endswith("\x1b[2K"), "in the end the lines are removed"
    assert written.rindex("\x1b[?25h") > written.rindex("\x1b[?25l"), "in the end the cursor is shown"
    assert capsys.readouterr().out == ""


def test_a_low_terminal_has_what_it_has_room_for(terminal: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LINES", "6")
    with redirect_stderr(terminal.stream):
        run(Progress())
    written = CONTROL.sub("", terminal.written())
    tree = written[written.index("memory") :]
    assert "placement" in tree
    assert "TensorFlow" not in tree
    assert "..." not in written, "rich cuts what is too high there, the bar first"


def test_verbose_on_a_terminal_adds_lines(terminal: Terminal) -> None:
    with redirect_stderr(terminal.stream):
        run(Progress(verbose=True))
    lines = [line.strip() for line in re.split(r"[\r\n]+", CONTROL.sub("", terminal.written()))]
    for expected in ("[2/3] placement.log: pass (0.12 s)", "| red log", "[1/3] memory.growth: skipped (no GPU)"):
        assert expected in lines


@pytest.mark.parametrize(("variable", "value"), [("NO_COLOR", "1"), ("CLICOLOR", "0")])
def test_no_colour_where_it_is_not_wanted(
    variable: str, value: str, terminal: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(variable, value)
    with redirect_stderr(terminal.stream):
        run(Progress())
    written = terminal.written()
    assert "1/3" in written
    assert re.findall(r"\x1b\[[\d;]*3[0-7][\d;]*m", written) == []


def test_a_dumb_terminal_gets_plain_lines(terminal: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "dumb")
    with redirect_stderr(terminal.stream):
        run(Progress())
    written = terminal.written()
    assert "[2/3] placement: 1 pass\r\n" in written
    assert "\x1b" not in written


def test_colours_are_forced_on_no_file(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    run(Progress())
    assert "\x1b" not in capsys.readouterr().err


def test_no_thread_is_started_and_no_stream_replaced(terminal: Terminal) -> None:
    with redirect_stderr(terminal.stream):
        before = (threading.enumerate(), sys.stdout, sys.stderr)
        with Progress(verbose=True) as progress:
            progress.phase("probes", ["memory.growth", "placement.log", "logical.cpu_split"])
            progress.started("placement.log")
            progress.tick()
            assert (threading.enumerate(), sys.stdout, sys.stderr) == before
        assert (threading.enumerate(), sys.stdout, sys.stderr) == before
    assert "placement" in terminal.written()


class Lost(StringIO):
    """A standard error whose reader has gone."""

    def __init__(self, *, terminal: bool) -> None:
        super().__init__()
        self._terminal = terminal
        self.attempts = 0

    def isatty(self) -> bool:
        return self._terminal

    def write(self, _: str) -> int:
        self.attempts += 1
        raise OSError(errno.EIO if self._terminal else errno.EPIPE, "lost")


@pytest.mark.parametrize("is_terminal", [False, True])
def test_a_lost_standard_error_does_not_end_the_run(monkeypatch: pytest.MonkeyPatch, is_terminal: bool) -> None:
    monkeypatch.setenv("TERM", "xterm")
    lost = Lost(terminal=is_terminal)
    monkeypatch.setattr(sys, "stderr", lost)
    run(Progress(verbose=True))
    assert lost.attempts > 0


def test_a_closed_standard_error_does_not_end_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", None)
    run(Progress())
    closed = StringIO()
    closed.close()
    monkeypatch.setattr(sys, "stderr", closed)
    run(Progress(verbose=True))
