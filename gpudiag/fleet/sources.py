"""Where a merge reads from: the folder of a fleet check, files of reports, or lines on standard input."""

from __future__ import annotations

import contextlib
import gc
import itertools
import multiprocessing
import os
import re
import signal
import sys
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

import msgspec

from gpudiag.errors import ReportError, UsageError, shortage
from gpudiag.fleet.folder import PLAN, RunFolder
from gpudiag.fleet.names import expand
from gpudiag.fleet.summary import summaries_in, summarized
from gpudiag.model import codec
from gpudiag.model.fleet import Answer, NoReport
from gpudiag.model.frame import SUMMARY, WORD, CutShortError, OtherVersionError, reports_in
from gpudiag.model.together import Task
from gpudiag.text import one_line

_PREFIX = re.compile(rb"^\s*([A-Za-z0-9_][A-Za-z0-9_.-]{0,252})\s?[:\s]\s*(?=\S*" + WORD.encode() + rb" )")
"""The name of a node before its line, as pdsh, clush and ``srun --label`` write it."""
_SUMMARY_PREFIX = re.compile(rb"^\s*([A-Za-z0-9_][A-Za-z0-9_.-]{0,252}):\s.*?(?=" + SUMMARY.encode() + rb" )")
"""The name of a node before the text that comes with its summary, as ``kubectl -o jsonpath`` is told to write it."""
_SUFFIXES = (".json", ".json.gz")
_MOST_WORKERS = 8
"""The most processes that read files: one collector takes in 5,000 summaries a second."""
_FILES_OF_A_WORKER = 100
"""For fewer files, another process is not worth its start."""


@dataclass(frozen=True)
class Source:
    """Answers, and the nodes that were asked for."""

    answers: Iterable[Answer]
    asked: tuple[str, ...]
    origin: str
    engine: str = ""
    run: str = ""
    racks: Mapping[str, str] = field(default_factory=dict)
    """The rack of each node, as far as it is known."""
    task: Task | None = None
    """What the nodes were told, if they trained together."""

    @classmethod
    def of(cls, folder: RunFolder, racks: Mapping[str, str] | None = None) -> Source:
        """Return the answers of a fleet check, with other racks than its own if they are given."""
        plan = folder.plan
        return cls(
            folder.answers(),
            plan.nodes,
            str(folder.path),
            plan.engine,
            plan.run,
            racks or plan.racks,
            plan.together,
        )


def read(paths: tuple[Path, ...], racks: Mapping[str, str] | None = None) -> Source:
    """Return what the paths hold; raises :class:`ReportError` or :class:`UsageError`.

    A single folder with a plan is a run. Other folders stand for the reports in them. The name of a node is that of
    its file, or stands before its line on standard input.
    """
    if len(paths) == 1 and (paths[0] / PLAN).is_file():
        return Source.of(RunFolder.open(paths[0]), racks)
    if any((path / PLAN).is_file() for path in paths):
        raise UsageError("a fleet check's folder is merged alone: give one folder, or the files in its reports/.")
    origin = ", ".join(map(str, paths[:3])) + (f" and {len(paths) - 3} more" if len(paths) > 3 else "")
    return Source(_answers(paths), (), origin, racks=racks or {})


def _answers(paths: tuple[Path, ...]) -> Iterator[Answer]:
    """Yield an answer for each report; a name that comes twice is DUPLICATE."""
    seen: set[str] = set()
    streams = (_of_stream(sys.stdin.buffer) for path in paths if str(path) == "-")
    files = [file for path in paths if str(path) != "-" for file in _files(path)]
    for answer in itertools.chain(*streams, _of_files(files)):
        if answer.node in seen:
            yield Answer(answer.node, 1, NoReport.DUPLICATE, f"two reports are called {answer.node}")
        else:
            seen.add(answer.node)
            yield answer


def _files(path: Path) -> Iterator[Path]:
    if not path.is_dir():
        yield path
        return
    try:
        found = sorted(file for file in path.rglob("*") if file.name.endswith(_SUFFIXES) and file.is_file())
    except OSError as error:
        raise ReportError(f"{path}: cannot be read: {shortage(error)}") from None
    if not found:
        raise ReportError(f"{path}: has no report: files NODE.json or NODE.json.gz.")
    yield from found


def _of_files(files: Sequence[Path]) -> Iterator[Answer]:
    """Yield the answer in each file, in order; many are read by several processes.

    To read a full report strictly takes 3 ms of a processor. What comes back from a process is a summary, not a report.
    """
    from concurrent.futures import ProcessPoolExecutor
    from concurrent.futures.process import BrokenProcessPool

    read = 0
    workers = min(_MOST_WORKERS, len(os.sched_getaffinity(0)), len(files) // _FILES_OF_A_WORKER)
    if workers > 1 and threading.active_count() == 1:  # a fork has the locks that other threads hold
        context = multiprocessing.get_context("fork")
        with ProcessPoolExecutor(workers, context, _prepare) as pool, contextlib.suppress(BrokenProcessPool):
            try:
                for answer in pool.map(_encoded_answer, files, chunksize=16):
                    yield msgspec.json.decode(answer, type=Answer)
                    read += 1
            finally:
                pool.shutdown(wait=False, cancel_futures=True)
    yield from map(_of_file, files[read:])  # all, or what is left when a process was killed, such as for its memory


def _prepare() -> None:
    """Let Ctrl-C end the process that merges, which ends those that read, and look for no cycles: reports have none."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    gc.disable()


def _encoded_answer(path: Path) -> bytes:
    return msgspec.json.encode(_of_file(path))


def _of_file(path: Path) -> Answer:
    name = one_line(path.name.removesuffix(".gz").removesuffix(".json"))
    try:
        return Answer(name, summary=summarized(codec.load(path)))
    except ReportError as error:
        reason = NoReport.OTHER_VERSION if "schema version" in str(error) else NoReport.NOT_A_REPORT
        return Answer(name, 1, reason, one_line(str(error)))


def _of_stream(stream: BinaryIO) -> Iterator[Answer]:
    """Yield the answers in lines such as ``node7: gpudiag-report 1 ...``; other lines are passed over."""
    for line in stream:
        if WORD.encode() not in line and SUMMARY.encode() not in line:
            continue
        prefix = _PREFIX.match(line) or _SUMMARY_PREFIX.match(line)
        if prefix is None:
            raise ReportError(
                "standard input: a report has no name of a node before it: expected lines such as 'node7: "
                f"{WORD} 1 ...', as pdsh, clush and srun --label write them."
            )
        name = prefix[1].decode()
        try:
            for report in reports_in(line):
                yield Answer(name, summary=summarized(codec.decode(report, f"the report of {name}")))
            for summary in summaries_in(line):
                yield Answer(name, summary=summary)
        except CutShortError as error:
            yield Answer(name, 1, NoReport.CUT_SHORT, str(error))
        except OtherVersionError as error:
            yield Answer(name, 1, NoReport.OTHER_VERSION, str(error))
        except ReportError as error:
            yield Answer(name, 1, NoReport.NOT_A_REPORT, one_line(str(error)))


def racks_in(path: Path | None) -> dict[str, str]:
    """Return the rack of each node from lines such as ``r1: n[1-18]``; raises :class:`UsageError`."""
    if path is None:
        return {}
    found: dict[str, str] = {}
    try:
        lines = path.read_text(errors="replace").splitlines()
    except OSError as error:
        raise UsageError(f"{path}: cannot be read: {shortage(error)}") from None
    for number, line in enumerate(lines, 1):
        text = line.partition("#")[0].strip()
        if not text:
            continue
        rack, colon, nodes = text.partition(":")
        if not colon or not rack.strip():
            raise UsageError(f"{path}: line {number} is not 'RACK: NODES', such as 'r1: n[1-18]': {one_line(line)!r}.")
        found |= dict.fromkeys(expand(nodes.split()), one_line(rack))
    return found
