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
from functools import partial
from pathlib import Path
from typing import BinaryIO

import msgspec

from gpudiag.errors import ReportError, UsageError, shortage
from gpudiag.fleet.folder import PLAN, RunFolder
from gpudiag.fleet.names import expand
from gpudiag.fleet.summary import answer_in, answer_with, summaries_in
from gpudiag.model import codec
from gpudiag.model.fleet import Answer, NoReport
from gpudiag.model.frame import WORD, CutShortError, OtherVersionError, first_frame, reports_in
from gpudiag.model.together import Task
from gpudiag.text import one_line

_NAMED = re.compile(rb"\s*([A-Za-z0-9_][A-Za-z0-9_.-]{0,252})(?:\s?:(?:\s.*)?|\s)\s*", re.DOTALL)
"""The name of a node before its report, as pdsh, clush, ``srun --label`` and ``kubectl -o jsonpath`` write it; after a
colon there may be a text."""
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
    folder: RunFolder | None = None
    """The folder of the run, if it is one."""

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
            folder,
        )


def read(paths: tuple[Path, ...], racks: Mapping[str, str] | None = None, asked: tuple[str, ...] = ()) -> Source:
    """Return what the paths hold; raises :class:`ReportError` or :class:`UsageError`.

    A single folder with a plan is a run, which has its own list of nodes. Other folders stand for the reports in them,
    of which ``asked`` says which there must be. The name of a node is that of its file, or stands before its line on
    standard input.
    """
    if len(paths) == 1 and (paths[0] / PLAN).is_file():
        if asked:
            raise UsageError(f"{paths[0]}: has a list of the nodes that were asked for: leave out --nodes.")
        return Source.of(RunFolder.open(paths[0]), racks)
    if any((path / PLAN).is_file() for path in paths):
        raise UsageError("a fleet check's folder is merged alone: give one folder, or the files in its reports/.")
    origin = ", ".join(map(str, paths[:3])) + (f" and {len(paths) - 3} more" if len(paths) > 3 else "")
    return Source(_answers(paths), asked, origin, racks=racks or {})


def _answers(paths: tuple[Path, ...]) -> Iterator[Answer]:
    """Yield an answer for each report, or DUPLICATE for a second, different report of a node in the same attempt."""
    seen: dict[tuple[str, int], int] = {}
    streams = (_of_stream(sys.stdin.buffer) for path in paths if str(path) == "-")
    files = [file for path in paths if str(path) != "-" for file in _files(path)]
    for answer in itertools.chain(*streams, _of_files(files)):
        key, content = (answer.node, answer.attempt), hash(codec.encoded(answer))
        if key not in seen:
            seen[key] = content
            yield answer
        elif seen[key] != content:
            yield Answer(answer.node, 1, NoReport.DUPLICATE, f"two different reports are called {answer.node}")


def _files(path: Path) -> Iterator[Path]:
    if not path.is_dir():
        yield path
        return
    try:
        files = sorted(file for file in path.rglob("*") if file.name.endswith(_SUFFIXES) and file.is_file())
    except OSError as error:
        raise ReportError(f"{path}: cannot be read: {shortage(error)}") from None
    if not files:
        raise ReportError(f"{path}: has no report: files NODE.json or NODE.json.gz.")
    yield from files


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
    return codec.encoded(_of_file(path))


def _of_file(path: Path) -> Answer:
    name, _, attempt = one_line(path.name.removesuffix(".gz").removesuffix(".json")).partition("@")
    return answer_in(name, partial(codec.load, path), int(attempt) if attempt.isdecimal() else 1)


def _of_stream(stream: BinaryIO) -> Iterator[Answer]:
    """Yield the answers in lines such as ``node7: gpudiag-report 1 ...``; other lines are passed over."""
    is_empty = True
    for line in stream:
        start = first_frame(line)
        if start is None:
            continue
        is_empty = False
        prefix = _NAMED.fullmatch(line, 0, start)
        if prefix is None:
            raise ReportError(
                "standard input: a report has no name of a node before it: expected lines such as 'node7: "
                f"{WORD} 1 ...', as pdsh, clush and srun --label write them."
            )
        name = prefix[1].decode()
        try:
            for report in reports_in(line):
                yield answer_in(name, partial(codec.decode, report, f"the report of {name}"))
            for summary in summaries_in(line):
                yield answer_with(name, summary)
        except CutShortError as error:
            yield Answer(name, 1, NoReport.CUT_SHORT, str(error))
        except OtherVersionError as error:
            yield Answer(name, 1, NoReport.OTHER_VERSION, str(error))
    if is_empty:
        raise ReportError(f"standard input: has no report: expected lines such as 'node7: {WORD} 1 ...'.")


def racks_in(path: Path | None) -> dict[str, str]:
    """Return the rack of each node from lines such as ``r1: n[1-18]``; raises :class:`UsageError`."""
    if path is None:
        return {}
    rack_of: dict[str, str] = {}
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
        names = expand(nodes.split())
        if twice := next((name for name in names if name in rack_of), ""):
            raise UsageError(f"{path}: line {number} puts {twice} into a second rack; the first is {rack_of[twice]}.")
        rack_of |= dict.fromkeys(names, one_line(rack))
    return rack_of
