"""What goes to standard output: colours as the variables say, long texts through a pager, files that are named."""

from __future__ import annotations

import os
import pty
import shlex
import shutil
import signal
import sys
from pathlib import Path

import pytest

from conftest import Gpudiag
from gpudiag.cli.delivery import in_color
from terminal import Session

REPORT = str(Path(__file__).parents[2] / "reports/diagnosis-library.json")


@pytest.mark.parametrize(
    ("variables", "on_terminal", "on_file"),
    [
        ({}, True, False),
        ({"NO_COLOR": ""}, True, False),
        ({"NO_COLOR": "1"}, False, False),
        ({"NO_COLOR": "0"}, False, False),
        ({"TERM": "dumb"}, False, False),
        ({"CLICOLOR": "0"}, False, False),
        ({"CLICOLOR": "1"}, True, False),
        ({"CLICOLOR_FORCE": "1"}, True, True),
        ({"CLICOLOR_FORCE": "0"}, True, False),
        ({"CLICOLOR_FORCE": "1", "CLICOLOR": "0", "TERM": "dumb"}, True, True),
        ({"CLICOLOR_FORCE": "1", "NO_COLOR": "1"}, False, False),
        ({"FORCE_COLOR": "1", "NO_COLOR": "1", "TERM": "dumb"}, True, True),
        ({"FORCE_COLOR": ""}, True, False),
    ],
    ids=str,
)
def test_the_variables_decide_in_their_order(
    variables: dict[str, str], on_terminal: bool, on_file: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name in ("FORCE_COLOR", "NO_COLOR", "CLICOLOR_FORCE", "CLICOLOR"):
        monkeypatch.delenv(name, raising=False)
    for name, value in ({"TERM": "xterm"} | variables).items():
        monkeypatch.setenv(name, value)
    ours, its = pty.openpty()
    with os.fdopen(ours, "rb"), os.fdopen(its, "w") as terminal, (tmp_path / "file").open("w") as file:
        assert (in_color(terminal), in_color(file)) == (on_terminal, on_file)


def test_forced_colours_are_in_a_report_and_in_no_other_format(gpudiag: Gpudiag) -> None:
    assert "\x1b[" in gpudiag("show", REPORT, FORCE_COLOR="1").stdout
    assert "\x1b" not in gpudiag("show", REPORT, NO_COLOR="1", CLICOLOR_FORCE="1").stdout
    assert "\x1b" not in gpudiag("show", REPORT, "--format", "markdown", FORCE_COLOR="1").stdout
    gpudiag("show", REPORT, "-o", str(gpudiag.folder / "report.txt"), FORCE_COLOR="1")
    assert "\x1b" not in (gpudiag.folder / "report.txt").read_text()


def test_each_file_that_was_written_is_named_before_the_report(gpudiag: Gpudiag) -> None:
    done = gpudiag("show", REPORT, "-o", "report.html", "-o", "report.xml")
    assert done.stderr == "gpudiag: report written to report.html\ngpudiag: report written to report.xml\n"
    assert (gpudiag.folder / "report.html").exists()


def pager(source: str) -> str:
    """Return a value of PAGER: a program in Python."""
    return shlex.join([sys.executable, "-c", source])


def test_a_long_text_goes_through_the_pager(gpudiag: Gpudiag) -> None:
    source = "import os, sys; print('PAGED', os.environ['LESS'], len(sys.stdin.read().splitlines()) > 24)"
    session = Session(gpudiag, "docs", "start", PAGER=pager(source))
    assert session.read() == "PAGED FRX True\n"
    assert session.end() == 0


@pytest.mark.parametrize(
    ("arguments", "variables"),
    [
        (["docs", "start", "--no-pager"], {"PAGER": pager("print('PAGED')")}),
        (["docs", "start"], {"GPUDIAG_NO_PAGER": "1", "PAGER": pager("print('PAGED')")}),
        (["docs", "start"], {"PAGER": ""}),
        (["docs", "start"], {"PAGER": "cat"}),
        (["docs", "start"], {"PAGER": "no-such-pager"}),
        (["docs", "start"], {"PAGER": "'"}),
        (["docs", "start"], {"LINES": "9999", "PAGER": pager("print('PAGED')")}),
        (["docs", "start"], {"TERM": "dumb", "PAGER": pager("print('PAGED')")}),
        (["explain", "memory.growth"], {"LINES": "9999", "PAGER": pager("print('PAGED')")}),
    ],
    ids=str,
)
def test_no_pager_is_started_where_none_is_wanted(
    arguments: list[str], variables: dict[str, str], gpudiag: Gpudiag
) -> None:
    session = Session(gpudiag, *arguments, **variables)
    text = session.read()
    assert session.end() == 0
    assert "PAGED" not in text
    assert text.count("\n") > 20


def test_off_a_terminal_there_is_no_pager(gpudiag: Gpudiag) -> None:
    done = gpudiag("docs", "start", PAGER=pager("print('PAGED')"), LINES="5")
    assert (done.returncode, done.stderr) == (0, "")
    assert "PAGED" not in done.stdout


def test_a_pager_that_is_left_early_is_no_error(gpudiag: Gpudiag) -> None:
    session = Session(gpudiag, "docs", "commands", PAGER=pager("print(input())"))
    assert session.read().splitlines()[1:] == [], "the first line, and no traceback"
    assert session.end() == 0


def test_ctrl_c_is_the_pagers(gpudiag: Gpudiag) -> None:
    source = (
        "import signal; signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})\n"
        "print('READY', flush=True); print('GOT', signal.sigwait({signal.SIGINT}).name)"
    )
    session = Session(gpudiag, "docs", "start", PAGER=pager(source))
    session.read(until="READY")
    session.type("\x03")
    text = session.read()
    assert "GOT SIGINT\n" in text
    assert "Traceback" not in text
    assert session.end() == 0, f"not 128 + {signal.SIGINT}"


@pytest.mark.skipif(shutil.which("less") is None, reason="less is not installed")
def test_less_shows_colours_and_ends_with_q(gpudiag: Gpudiag) -> None:
    session = Session(gpudiag, "docs", "start")
    assert "\x1b[1mStart here" in session.read(until="\n:")
    session.type("q")
    session.read()
    assert session.end() == 0
