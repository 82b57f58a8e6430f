"""The folder of a fleet check: ``plan.json``, ``answers.jsonl`` and the reports.

The plan is written before anything starts. Each answer is a line of JSON, written as soon as it came: what was written
when the collector was killed is read by the next one, which asks the rest. A report is ``reports/NODE.json.gz``, which
``gpudiag show`` opens, and that of a later attempt ``reports/NODE@ATTEMPT.json.gz``; the line of its answer has its
summary, so that a merge reads no other file.
"""

from __future__ import annotations

import contextlib
import gzip
import os
from collections.abc import Iterator
from pathlib import Path

import filelock
import msgspec

from gpudiag.errors import OutputError, ReportError, UsageError, shortage
from gpudiag.folders import file_beside, put_in_place
from gpudiag.model.fleet import Answer, Plan

PLAN, ANSWERS, REPORTS, LOCK = "plan.json", "answers.jsonl", "reports", ".lock"


class RunFolder:
    """The folder of one fleet check."""

    def __init__(self, path: Path, plan: Plan) -> None:
        self.path = path
        self.plan = plan
        self.unread = 0
        """How many lines :meth:`answers` could not read, but for a last one that is cut short."""

    @classmethod
    def create(cls, path: Path, plan: Plan) -> RunFolder:
        """Make the folder and write the plan; raises :class:`UsageError` if the folder has a run, or other files."""
        try:
            path.mkdir(parents=True, exist_ok=True)
            if (path / PLAN).exists():
                raise UsageError(f"{path}: has another run: take a new folder, or go on with that run by --resume.")
            if any(path.iterdir()):
                raise UsageError(f"{path}: has files of something else: take a new folder.")
            (path / REPORTS).mkdir()
            _write(path / PLAN, msgspec.json.format(msgspec.json.encode(plan), indent=2) + b"\n")
        except OSError as error:
            raise UsageError(f"{path}: cannot be used: {shortage(error)}") from None
        return cls(path, plan)

    @classmethod
    def open(cls, path: Path) -> RunFolder:
        """Return the folder of a run that was begun; raises :class:`ReportError` if it is none."""
        try:
            plan = msgspec.json.decode((path / PLAN).read_bytes(), type=Plan)
        except FileNotFoundError:
            raise ReportError(f"{path}: is not the folder of a fleet check: it has no {PLAN}.") from None
        except OSError as error:
            raise ReportError(f"{path / PLAN}: cannot be read: {error.strerror or error}.") from None
        except msgspec.MsgspecError as error:
            raise ReportError(f"{path / PLAN}: is not the plan of a fleet check: {error}.") from None
        return cls(path, plan)

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """Keep other collectors away; raises :class:`UsageError` if one works here."""
        lock = filelock.FileLock(self.path / LOCK)
        try:
            lock.acquire(timeout=0)
        except filelock.Timeout:
            raise UsageError(f"{self.path}: another 'gpudiag fleet check' works on this folder.") from None
        try:
            yield
        finally:
            lock.release()

    def write(self, answer: Answer, report: bytes | None = None) -> None:
        """Keep an answer, and its report; raises :class:`OutputError`, such as for a full disk."""
        try:
            if report is not None:
                _write(self._report_of(answer), gzip.compress(report, 6, mtime=0))
            with (self.path / ANSWERS).open("ab+") as file:
                if file.tell():
                    file.seek(-1, os.SEEK_END)
                    if file.read(1) != b"\n":  # the collector before was killed while it wrote
                        file.write(b"\n")
                file.write(msgspec.json.encode(answer) + b"\n")
        except OSError as error:
            raise OutputError(
                f"{self.path}: the answer of {answer.node} cannot be kept: {error.strerror or error}. What came before "
                f"is kept; when that is mended, go on: gpudiag fleet check --resume {self.path}"
            ) from None

    def _report_of(self, answer: Answer) -> Path:
        """Return the file of a report: no name of a node has an ``@``."""
        first = self.path / REPORTS / f"{answer.node}.json.gz"
        return first.with_name(f"{answer.node}@{answer.attempt}.json.gz") if first.exists() else first

    def answers(self) -> Iterator[Answer]:
        """Yield the answers of this run's nodes; lines that cannot be read are counted."""
        asked = set(self.plan.nodes)
        self.unread = 0
        decoder = msgspec.json.Decoder(Answer)
        try:
            with (self.path / ANSWERS).open("rb") as file:
                for line in file:
                    try:
                        answer = decoder.decode(line)
                    except msgspec.MsgspecError:
                        self.unread += line.endswith(b"\n")
                        continue
                    if answer.node in asked:
                        yield answer
        except FileNotFoundError:
            return
        except OSError as error:
            raise ReportError(f"{self.path / ANSWERS}: cannot be read: {error.strerror or error}.") from None


def _write(path: Path, content: bytes) -> None:
    with file_beside(path) as temporary:
        temporary.write_bytes(content)
        put_in_place(temporary, path)
