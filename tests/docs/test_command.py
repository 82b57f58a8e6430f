"""``gpudiag docs``: finds topics, says what is near, imports little."""

from __future__ import annotations

import contextlib
import os
import pty
import re
import select
import subprocess

import pytest

from conftest import DEADLINE_S, Gpudiag
from gpudiag import docs


def test_without_a_topic_it_lists_the_pages(gpudiag: Gpudiag) -> None:
    done = gpudiag("docs")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == (docs.FOLDER / "README.md").read_text(encoding="utf-8"), "a pipe gets the Markdown itself"


@pytest.mark.parametrize(
    ("topic", "first"),
    [
        (["start"], "# Start here"),
        (["pytest.md"], "# pytest"),
        (["causes/memory"], "# Causes: memory"),
        (["reports#verdict"], "## Verdict"),
        (["memory.growth"], "## memory.growth"),
        (["library_missing"], "## library_missing"),
        (["--lock-wait"], "#### --lock-wait SECONDS"),
        (["-j"], "#### -j, --jobs"),
        (["deployment", "slurm"], "## Slurm"),
        (["deployment", "docker"], "## Docker"),
        (["pytest", "markers"], "## Markers and fixtures"),
        (["prolog"], "## Slurm"),
        (["oneDNN", "custom", "operations", "are", "on"], "### onednn_on"),
        (["masked", "report"], "## Masked reports"),
    ],
)
def test_a_topic_is_found(topic: list[str], first: str) -> None:
    assert docs.answer(topic).startswith(first)


@pytest.mark.parametrize(
    ("topic", "offered"),
    [
        (["memory"], ["causes/memory", "probes/memory"]),
        (["memory growth"], ["memory.growth", "memory.growth_lost"]),
        (["exit", "status", "5"], ["reports exit-status"]),
        (["cudnn"], ["cudnn_too_old"]),
        (["Failed call to cuInit: UNKNOWN ERROR (303)"], ["cuinit_303"]),
        (["Could", "not", "find", "cuda", "drivers", "on", "your", "machine"], ["no_cuda_drivers"]),
    ],
)
def test_a_topic_with_several_answers_gives_a_list_that_opens_them(topic: list[str], offered: list[str]) -> None:
    text = docs.answer(topic)
    commands = re.findall(r"^- `gpudiag docs ([^`]+)`", text, re.MULTILINE)
    assert {*offered} <= {*commands}
    assert len(commands) <= 8
    for command in commands:
        assert docs.answer(command.split()).startswith("#"), "each command opens one section"


@pytest.mark.parametrize(
    ("topic", "first"),
    [
        (["growth"], "memory.growth"),
        (["memory", "growth"], "memory.growth"),
        (["cudnn"], "libraries.cudnn"),
        (["mask"], "visibility.mask"),
        (["nccl"], "libraries.nccl"),
    ],
)
def test_what_the_words_name_comes_before_what_only_mentions_them(topic: list[str], first: str) -> None:
    commands = re.findall(r"^- `gpudiag docs ([^`]+)`", docs.answer(topic), re.MULTILINE)
    assert (commands or [docs.answer(topic).splitlines()[0].removeprefix("## ")])[0] == first


@pytest.mark.parametrize(
    ("topic", "near"),
    [
        (["slrum"], "'slurm'"),
        (["memory.grwoth"], "'memory.growth'"),
        (["--lock-wiat"], "'--lock-wait'"),
        (["pytest", "xyzzyq"], "gpudiag docs"),
        (["xyzzyq"], "gpudiag docs"),
    ],
)
def test_an_unknown_topic_names_the_nearest(topic: list[str], near: str, gpudiag: Gpudiag) -> None:
    done = gpudiag("docs", *topic)
    assert (done.returncode, done.stdout) == (2, "")
    assert near in done.stderr
    assert topic[-1] in done.stderr


def test_it_imports_nothing_that_takes_long(gpudiag: Gpudiag) -> None:
    done = gpudiag("docs", "memory", flags=("-X", "importtime"))
    imported = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines() if "|" in line}
    assert "gpudiag.docs" in imported, "the list of imports was read"
    assert not imported & {"tensorflow", "numpy", "pynvml", "rich", "tabulate", "msgspec", "gpudiag.model.report"}


def on_a_terminal(gpudiag: Gpudiag, **variables: str) -> str:
    """Return what ``gpudiag docs start`` writes to a terminal."""
    ours, its = pty.openpty()
    environment = {**gpudiag.environment, "TERM": "xterm", "GPUDIAG_NO_PAGER": "1", **variables}
    command = gpudiag.command("docs", "start")
    with subprocess.Popen(command, env=environment, stdout=its, stdin=its, stderr=its) as process:
        os.close(its)
        written = b""
        with contextlib.suppress(OSError):  # EIO: the other end was closed
            while select.select([ours], [], [], DEADLINE_S)[0]:
                written += os.read(ours, 1 << 16)
        process.kill()
    os.close(ours)
    return written.decode().replace("\r\n", "\n")


def test_a_terminal_gets_its_width_and_colour(gpudiag: Gpudiag) -> None:
    narrow = on_a_terminal(gpudiag, COLUMNS="60", NO_COLOR="1")
    assert "\x1b" not in narrow
    prose = [line for line in narrow.splitlines() if not line.startswith("    ")]
    assert 50 < max(map(len, prose[:12])) <= 60
    assert "\x1b[1m" in on_a_terminal(gpudiag, COLUMNS="80")
