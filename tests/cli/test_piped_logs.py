"""`gpudiag why` without LOG: what is piped in is the log, and no standard input makes it wait for ever."""

from __future__ import annotations

import os
import pty
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from conftest import DEADLINE_S, Gpudiag

FAULT = "W0000 00:00:1.2 7 gpu_device.cc:2365] Cannot dlopen some GPU libraries.\n"
READS = "gpudiag: the log is standard input; for this machine: gpudiag why < /dev/null"
MACHINE = "To examine this machine instead: gpudiag why < /dev/null"


@pytest.fixture
def cleanup() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def standard_input(kind: str, folder: Path, cleanup: ExitStack) -> int:
    """Return an open file descriptor of this kind, for the standard input of a program."""
    opened: tuple[int, ...]
    if kind == "terminal":
        opened = pty.openpty()[::-1]
    elif kind == "pipe":
        opened = os.pipe()
    elif kind == "socket":
        opened = tuple(end.detach() for end in socket.socketpair())
    elif kind == "socket with a log":
        opened = tuple(end.detach() for end in socket.socketpair())
        os.write(opened[1], FAULT.encode())
    elif kind == "file":
        (folder / "app.log").write_text(FAULT)
        opened = (os.open(folder / "app.log", os.O_RDONLY),)
    else:
        opened = (os.open(kind, os.O_RDONLY),)
    for descriptor in opened:
        cleanup.callback(os.close, descriptor)
    return opened[0]


@pytest.mark.starts
@pytest.mark.parametrize(
    ("kind", "piped"),
    [
        ("terminal", False),
        ("/dev/null", False),  # systemd, sbatch, docker run, kubectl run
        ("socket", False),  # Node.js, inetd
        ("socket with a log", True),  # ssh without a terminal, where it uses sockets
        ("/dev/zero", False),
        ("pipe", True),  # a shell, cron, ssh -T, docker run -i, the runners of GitHub and GitLab
        ("file", True),
    ],
)
def test_a_pipe_or_a_file_on_standard_input_is_the_log(
    kind: str, piped: bool, tmp_path: Path, cleanup: ExitStack
) -> None:
    source = "from gpudiag.cli import program_log; print(program_log.is_piped())"
    stdin = standard_input(kind, tmp_path, cleanup)
    done = subprocess.run(
        [sys.executable, "-c", source], stdin=stdin, stdout=-1, text=True, check=True, timeout=DEADLINE_S
    )
    assert done.stdout == f"{piped}\n"


@pytest.mark.starts
def test_a_closed_standard_input_is_no_log() -> None:
    source = "from gpudiag.cli import program_log; print(program_log.is_piped())"
    command = ["/bin/sh", "-c", 'exec "$@" <&-', "sh", sys.executable, "-c", source]
    done = subprocess.run(command, stdout=-1, text=True, check=True, timeout=DEADLINE_S)
    assert done.stdout == "False\n"


def shell(gpudiag: Gpudiag, script: str) -> subprocess.CompletedProcess[str]:
    """Run a script of the shell in which ``why`` is `gpudiag why`."""
    (gpudiag.folder / "app.log").write_text(FAULT)
    (gpudiag.folder / "empty.log").write_text("")
    command = " ".join(map(repr, gpudiag.command("why")))
    return subprocess.run(
        ["/bin/sh", "-c", f'why() {{ {command} "$@"; }}\n{script}'],
        cwd=gpudiag.folder,
        env=gpudiag.environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        timeout=DEADLINE_S,
    )


@pytest.mark.parametrize(
    "script", ["cat app.log | why", "why < app.log", "why <<EOF\n$(cat app.log)\nEOF\n"], ids=["pipe", "file", "here"]
)
def test_the_log_is_explained_and_this_machine_is_not_examined(script: str, gpudiag: Gpudiag) -> None:
    done = shell(gpudiag, script)
    assert done.returncode == 1
    assert "TensorFlow does not find its CUDA libraries" in done.stdout
    assert "this machine was not examined" in done.stdout
    assert done.stderr == f"{READS}\n"


def test_quiet_does_not_say_that_it_reads(gpudiag: Gpudiag) -> None:
    done = shell(gpudiag, "cat app.log | why -q")
    assert (done.returncode, done.stderr) == (1, "")


@pytest.mark.parametrize("script", [": | why", "why < empty.log", "printf '\\n\\n' | why"])
def test_an_empty_input_is_said_to_be_and_how_to_do_it(script: str, gpudiag: Gpudiag) -> None:
    done = shell(gpudiag, script)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("gpudiag: error: nothing was piped into gpudiag why: standard input is empty.")
    assert "python program.py 2>&1 | gpudiag why" in done.stderr
    assert done.stderr.endswith(f"{MACHINE}\n")


def test_a_log_that_is_named_leaves_standard_input_alone(gpudiag: Gpudiag) -> None:
    done = shell(gpudiag, "printf 'a\\nb\\n' > lines; while read line; do why -q app.log; echo $line; done < lines")
    assert [line for line in done.stdout.splitlines() if line in {"a", "b"}] == ["a", "b"]
    assert done.stderr == ""


def test_a_loop_is_told_that_its_input_was_read(gpudiag: Gpudiag) -> None:
    done = shell(gpudiag, "printf 'a\\nb\\nc\\n' > lines; while read line; do why; echo $line; done < lines")
    assert done.stdout.splitlines()[-1] == "a", "the rest of the input is gone"
    assert READS in done.stderr


@pytest.mark.starts
def test_a_pipe_that_stays_silent_ends_in_time(cleanup: ExitStack, tmp_path: Path) -> None:
    """As of `ssh host gpudiag why`: the pipe is open as long as the terminal is."""
    source = (
        "from gpudiag.cli import program_log; from gpudiag.errors import UsageError\n"
        "program_log.SILENCE_S, program_log._WAITING_S = 1.0, 0.2\n"
        "try: program_log.read_piped(lambda: False, quiet=False)\n"
        "except UsageError as error: print(error)"
    )
    stdin = standard_input("pipe", tmp_path, cleanup)
    command = [sys.executable, "-c", source]
    done = subprocess.run(command, stdin=stdin, capture_output=True, text=True, check=True, timeout=DEADLINE_S)
    assert done.stderr == "gpudiag: waiting for standard input; for this machine: gpudiag why < /dev/null\n"
    assert done.stdout.startswith("nothing was piped into gpudiag why for 1 s.")


def test_of_a_pipe_that_never_ends_what_came_until_ctrl_c_is_explained(gpudiag: Gpudiag) -> None:
    command = gpudiag.command("why")
    with subprocess.Popen(command, stdin=-1, stdout=-1, stderr=-1, text=True, env=gpudiag.environment) as process:
        assert process.stdin is not None
        process.stdin.write(FAULT)
        process.stdin.flush()
        fd = Path(f"/proc/{process.pid}/fd/0")
        until = time.monotonic() + DEADLINE_S
        while unread(fd) and time.monotonic() < until:
            time.sleep(0.05)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=DEADLINE_S)
    assert process.returncode == 128 + signal.SIGINT
    assert "TensorFlow does not find its CUDA libraries" in out
    assert "reading ended at SIGINT" in out
    assert "Traceback" not in err


def unread(pipe: Path) -> bool:
    """Return whether a pipe holds what nobody has read yet."""
    with pipe.open("rb", buffering=0) as stream:
        return bool(select.select([stream], [], [], 0)[0])
