"""The log of a user's program: however long, in bounded memory, and what matters is kept wherever it stands."""

from __future__ import annotations

import hashlib
import os
import resource
import string
import subprocess
import sys
import threading
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

from conftest import DEADLINE_S, Gpudiag
from gpudiag.cli import program_log
from gpudiag.errors import UsageError
from gpudiag.knowledge import log_sieve
from gpudiag.knowledge.log import recognised
from gpudiag.knowledge.log_lines import unwrapped
from gpudiag.knowledge.message import Worth
from gpudiag.knowledge.messages import MESSAGES
from gpudiag.model import codec

FAULT = "W0000 00:00:1.2 7 gpu_device.cc:2365] Cannot dlopen some GPU libraries."


def read(path: Path) -> tuple[str, ...]:
    return program_log.read(path, lambda: False).lines


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


def counted_characters(path: Path, monkeypatch: pytest.MonkeyPatch) -> int:
    """Return how many characters are looked at line by line when a log is read."""
    counts = [0]

    def counting(lines: Iterable[str]) -> Iterator[str]:
        for line in unwrapped(lines):
            counts[0] += len(line)
            yield line

    with monkeypatch.context() as patch:
        patch.setattr(program_log, "unwrapped", counting)
        read(path)
    return counts[0]


@pytest.mark.parametrize(
    "line",
    ["reading step {n} loss 0.1", "reading files {hash} val_error is not better", "reading files" + "{hash}" * 15],
    ids=["the same but for figures", "words of faults", "letters"],
)
def test_what_is_read_line_by_line_does_not_grow_with_the_log(
    line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_sieve, "END", 1 << 15)
    monkeypatch.setattr(log_sieve, "MIDDLE", 1 << 15)
    monkeypatch.setattr(program_log, "_CHUNK", 1 << 13)
    lines = [line.format(n=n, hash=hashlib.sha256(str(n).encode()).hexdigest()) for n in range(20_000)]
    (tmp_path / "app.log").write_text("\n".join(lines))
    assert sum(map(len, lines)) > 10 * (1 << 15)
    assert counted_characters(tmp_path / "app.log", monkeypatch) < 4 << 15


@pytest.mark.parametrize("flood", ["reading step {n}", "reading files {hash} val_error is not better"])
def test_a_fault_in_the_middle_is_found_with_the_lines_before_it(
    flood: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_sieve, "END", 1 << 15)
    monkeypatch.setattr(log_sieve, "MIDDLE", 1 << 15)
    monkeypatch.setattr(program_log, "_CHUNK", 1 << 13)
    lines = [flood.format(n=n, hash=hashlib.sha256(str(n).encode()).hexdigest()) for n in range(9_000)]
    traceback = ["Traceback (most recent call last):", '  File "train.py", line 3, in <module>', "    fit()", FAULT]
    (tmp_path / "app.log").write_text("\n".join((*lines[:1_000], *traceback, *lines)))
    text = program_log.read(tmp_path / "app.log", lambda: False)
    at = text.lines.index(FAULT)
    assert list(text.lines[at - 3 : at + 1]) == traceback
    assert any("only searched for words of faults" in note for note in text.notes)


def test_long_lines_are_cut_so_that_causes_look_at_a_bounded_text(tmp_path: Path) -> None:
    (tmp_path / "app.log").write_text("\n".join("x" * 1900 + FAULT for _ in range(3000)))
    text = program_log.read(tmp_path / "app.log", lambda: False)
    assert len(text.lines) > 1000
    assert sum(map(len, text.lines)) < 2 * program_log.MOST_CHARACTERS
    assert all("Cannot dlopen some GPU libraries" in line for line in text.lines), "messages are kept"
    assert any("lines were cut" in note for note in text.notes)


_VALUES = {"d": "7", "v": "1.2", "w": "word", "p": "/folder/file", "b": "0000:01:00.0"}


def line_of(text: str) -> str:
    """Return a line that a program prints for a text of the table."""
    parts = string.Formatter().parse(text)
    return "".join(f"{words}{'' if name is None else _VALUES.get(kind or '', 'x')}" for words, name, kind, _ in parts)


def test_each_text_of_a_fault_is_taken_from_the_middle_though_it_is_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing of it is a sign by itself: it is taken because the table has it."""
    monkeypatch.setattr(log_sieve, "END", 0)
    monkeypatch.setattr(log_sieve, "SIGNS", ())
    faults = [message for message in MESSAGES if message.worth in (Worth.FAULT, Worth.MISLEADING)]
    lines = {line for message in faults for text in message.texts if recognised(line := line_of(text))}
    assert len(lines) > 2000
    assert [line for line in lines if line not in log_sieve.Sieve().lines([f"reading\n{line}\n", "\n"])] == []


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


@pytest.mark.parametrize("endless", [False, True])
def test_of_a_stream_that_is_too_long_the_beginning_and_the_end_are_read(
    endless: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(program_log, "MOST_BYTES", 2 << 20)
    monkeypatch.setattr(program_log, "_STREAM_END", 1 << 20)
    monkeypatch.setattr(program_log, "MOST_STREAM_BYTES", (3 if endless else 100) << 20)
    os.mkfifo(tmp_path / "pipe")
    count = "" if endless else "500000"
    script = f"{{ echo first; seq -f 'Epoch %.0f' {count or '99999999'}; echo last; }} > pipe"
    with subprocess.Popen(["/bin/sh", "-c", script], cwd=tmp_path, stderr=subprocess.DEVNULL) as writer:
        kept = read(tmp_path / "pipe")
        writer.kill()
    assert kept[0] == "first"
    assert (kept[-1] == "last") is not endless
    written = capsys.readouterr().err
    assert "its first 2 MiB and its last 1 MiB were read" in written
    assert ("was not read" in written) is endless


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
        "print(program_log.read(Path(sys.argv[1]), lambda: False).lines[-1])"
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
    with subprocess.Popen(["yes", FAULT], stdout=subprocess.PIPE) as yes:
        done = subprocess.run(
            command,
            stdin=yes.stdout,
            capture_output=True,
            text=True,
            env=gpudiag.environment,
            check=False,
            timeout=DEADLINE_S,
        )
        yes.kill()
    report = codec.decode(done.stdout, done.stderr)
    assert set(report.lines) <= {FAULT, FAULT[: len(report.lines[-1])]}
    assert 0 < len(report.lines) <= program_log.MOST_LINES


def test_a_stream_that_says_nothing_more_ends_with_the_deadline_or_a_signal(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    stop = threading.Event()
    until = threading.Timer(1, stop.set)
    until.start()
    assert program_log.read(tmp_path / "pipe", stop.is_set).lines == (), "nobody ever wrote to it"
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
    assert done.stderr == "gpudiag: error: --log -: standard input is closed. Name a file, or pipe the log in.\n"
