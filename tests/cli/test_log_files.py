"""The log of a user's program: however long, in bounded memory, and what matters is kept wherever it stands."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from conftest import Gpudiag
from gpudiag.cli import program_log
from gpudiag.errors import UsageError
from gpudiag.model import codec

FAULT = "W0000 00:00:1.2 7 gpu_device.cc:2365] Cannot dlopen some GPU libraries."


def read(path: Path) -> tuple[str, ...]:
    return program_log.read(path, lambda: False)


@pytest.mark.parametrize("at", [0, 5, 50_000, 99_999])
def test_what_matters_is_kept_wherever_it_stands(at: int, tmp_path: Path) -> None:
    lines = [f"Epoch {number}" for number in range(100_000)]
    lines[at] = FAULT
    (tmp_path / "app.log").write_text("\n".join(lines))
    kept = read(tmp_path / "app.log")
    assert len(kept) == program_log.MOST_LINES
    assert FAULT in kept
    assert [kept[0], kept[-1]] == [lines[0], lines[-1]]
    order = {line: number for number, line in enumerate(lines)}
    assert sorted(kept, key=order.__getitem__) == list(kept), "in their order"


def test_a_flood_of_errors_keeps_the_first_and_the_last(tmp_path: Path) -> None:
    (tmp_path / "app.log").write_text("\n".join(f"{FAULT} {number}" for number in range(20_000)))
    kept = read(tmp_path / "app.log")
    assert len(kept) == program_log.MOST_LINES
    assert (kept[0], kept[-1]) == (f"{FAULT} 0", f"{FAULT} 19999")


@pytest.mark.parametrize("cut", [1, 7, 64])
@pytest.mark.parametrize("encoding", ["utf-8", "utf-16", "utf-8-sig"])
def test_where_a_piece_ends_does_not_matter(
    cut: int, encoding: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = ("käse 漢字", "", "two", "x" * 3000, "last")
    (tmp_path / "app.log").write_bytes("\r\n".join(lines).encode(encoding))
    monkeypatch.setattr(program_log, "_CHUNK", max(cut, 4) if encoding != "utf-8" else cut)
    assert read(tmp_path / "app.log") == tuple(line[: program_log.MOST_LINE_CHARACTERS] for line in lines)


def test_of_a_file_that_is_too_long_both_ends_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(program_log, "MOST_BYTES", 2 << 20)
    monkeypatch.setattr(program_log, "_CHUNK", 1 << 16)
    with (tmp_path / "app.log").open("w") as stream:
        stream.write("first\n")
        stream.writelines(f"Epoch {number}\n" for number in range(500_000))
        stream.write("last\n")
    kept = read(tmp_path / "app.log")
    assert (kept[0], kept[-1]) == ("first", "last")
    assert "its first and its last 1 MiB were read" in capsys.readouterr().err


def limited() -> None:
    resource.setrlimit(resource.RLIMIT_AS, (1 << 30, 1 << 30))


def test_a_huge_file_costs_no_memory(tmp_path: Path) -> None:
    """Of 3 GB, nearly all of it a hole, in an address space of 1 GiB."""
    with (tmp_path / "huge.log").open("wb") as stream:
        stream.write(b"first\n" * 1000)
        stream.seek(3_000_000_000)
        stream.write(b"\nlast\n")
    source = (
        f"import sys; sys.path[:] = {sys.path!r}\n"
        "from pathlib import Path; from gpudiag.cli import program_log\n"
        "program_log.MOST_BYTES = 1 << 27\n"
        "print(program_log.read(Path(sys.argv[1]), lambda: False)[-1])"
    )
    command = [sys.executable, "-c", source, str(tmp_path / "huge.log")]
    done = subprocess.run(
        command, capture_output=True, text=True, check=True, timeout=120, preexec_fn=limited, cwd=tmp_path
    )
    assert done.stdout == "last\n"


def test_what_is_not_text_ends_at_once() -> None:
    with pytest.raises(UsageError, match="/dev/zero is not text"):
        read(Path("/dev/zero"))


def test_an_endless_stream_ends_with_the_deadline(gpudiag: Gpudiag) -> None:
    command = gpudiag.command("check", "host.gpus", "--log", "-", "--deadline", "1", "--format", "json")
    began = time.monotonic()
    with subprocess.Popen(["yes", FAULT], stdout=subprocess.PIPE) as yes:
        done = subprocess.run(
            command, stdin=yes.stdout, capture_output=True, text=True, env=gpudiag.environment, check=False, timeout=120
        )
        yes.kill()
    assert time.monotonic() - began < 60
    report = codec.decode(done.stdout, done.stderr)
    assert set(report.lines) <= {FAULT, FAULT[: len(report.lines[-1])]}
    assert 0 < len(report.lines) <= program_log.MOST_LINES


def test_a_stream_that_says_nothing_more_ends_with_the_deadline_or_a_signal(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    stop = threading.Event()
    until = threading.Timer(1, stop.set)
    until.start()
    assert program_log.read(tmp_path / "pipe", stop.is_set) == (), "nobody ever wrote to it"
    until.join()


def test_a_closed_standard_input_is_said_to_be(gpudiag: Gpudiag) -> None:
    command = gpudiag.command("check", "host.gpus", "--log", "-")
    done = subprocess.run(
        ["/bin/sh", "-c", 'exec "$@" <&-', "sh", *command],
        capture_output=True,
        text=True,
        env=gpudiag.environment,
        cwd=gpudiag.folder,
        check=False,
        timeout=120,
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "gpudiag: error: --log -: standard input is closed.\n"
