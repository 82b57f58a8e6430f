"""Bundles for bug reports: a zip file, or a text for an issue, made of a report alone. The same report gives the same.

Both list their omissions, the zip file its contents too (``README.txt``). They contain the report as given; the caller
masks it.
"""

from __future__ import annotations

import hashlib
import io
import re
import zipfile
from collections import Counter
from collections.abc import Iterator
from itertools import accumulate
from typing import Any

import msgspec

from gpudiag.errors import OutputError
from gpudiag.model import codec
from gpudiag.model.archive import REPORT
from gpudiag.model.facts import Unknown
from gpudiag.model.report import Report, Row
from gpudiag.report import render, words
from gpudiag.text import counted, plain

_TIME = (1980, 1, 1, 0, 0, 0)
"""The date of every file in the bundle: the earliest that a zip file can hold."""
_MODE = 0o100644 << 16
_UNIX = 3
_LARGE = 8 << 20
"""Size of the JSON, in bytes, above which readings and logs of a report are cut."""
_LARGEST = 32 << 20
_LARGE_READING = 64 << 10
_MOST_LINES = 2000
_LONGEST_LINE = 1000
_MOST_LOG = 256 << 10
"""The most bytes of a log; its end is kept."""
_MOST_LOGS, _MOST_PASTED_LOGS = 100, 20
_MOST_PASTED = 60_000
"""The most characters of a text for an issue: GitHub takes 65,536, and the user has something to say as well."""

_CUT = "[{} lines left out: 'gpudiag bundle' writes them to a file]"

_DIGESTS = "sha256.txt"
_FILES = {
    REPORT: "the report, all of it: gpudiag show BUNDLE.zip",
    "report.txt": "the report as a table for people",
    "report.md": "the report as Markdown, for an issue",
    "facts.json": "what is known about the machine",
    "versions.txt": "gpudiag, Python, TensorFlow, packages, driver, libraries",
    "bisection.json": "the result of trying other environments",
    "left-out.txt": "what is not in this bundle, and why",
    _DIGESTS: "the digests of the other files",
}


def packed(report: Report, was: Report | None = None) -> bytes:
    """Return the bundle of ``report``; ``was`` is the report before masking, or None if it is not masked.

    Raises :class:`gpudiag.errors.OutputError` for a report that is too large.
    """
    kept, cut = _bounded(report)
    logs, cut_logs = _logs(kept, _MOST_LOGS)
    files = {
        REPORT: codec.encode(kept),
        "report.txt": render(kept, "table", width=100, color=False, verbose=True),
        "report.md": render(kept, "markdown", width=100, color=False, verbose=True),
        "facts.json": _json(kept.facts),
        "versions.txt": _versions(kept),
        **logs,
    }
    if kept.diagnosis.bisection is not None:
        files["bisection.json"] = _json(kept.diagnosis.bisection)
    files["left-out.txt"] = "".join(f"- {line}\n" for line in (*_masked(report, was), *cut, *cut_logs, *_unknown(kept)))
    files["README.txt"] = _readme(files, masked=was is not None)
    contents = {name: plain(text).encode() for name, text in files.items() if name != REPORT}
    contents[REPORT] = files[REPORT].encode()
    digests = (f"{hashlib.sha256(content).hexdigest()}  {name}\n" for name, content in sorted(contents.items()))
    contents[_DIGESTS] = "".join(digests).encode()
    return _zipped(contents)


def pasted(report: Report, was: Report | None = None) -> str:
    """Return ``report`` as Markdown for an issue: its screen, and below it, folded, what a bundle has besides.

    It has at most :data:`_MOST_PASTED` characters: of the logs, which share what the others leave, the ends are kept.
    """
    kept, cut = _bounded(report)
    logs, cut_logs = _logs(kept, _MOST_PASTED_LOGS)
    left_out = (*_masked(report, was), *cut, *cut_logs, *_unknown(kept))
    parts = {
        "Versions": _versions(kept),
        "Left out": "".join(f"- {line}\n" for line in left_out),
        "All probes": render(kept, "table", width=100, color=False),
    }
    text = _fenced(render(kept, "summary", width=100, color=False), _MOST_PASTED // 3)
    for name, content in parts.items():
        text += _folded(name, content, (_MOST_PASTED - len(text)) // 2)
    for number, (name, content) in enumerate(logs.items()):
        text += _folded(name, content, (_MOST_PASTED - len(text)) // (len(logs) - number), from_end=True)
    return text


def _folded(name: str, content: str, room: int, *, from_end: bool = False) -> str:
    """Return a part of an issue that a click unfolds."""
    title = f"\n<details><summary>{name}</summary>\n\n"
    end = "\n</details>\n"
    return title + _fenced(content, room - len(title) - len(end), from_end=from_end) + end


def _fenced(content: str, room: int, *, from_end: bool = False) -> str:
    """Return a block of Markdown of at most ``room`` characters whose text GitHub shows as it is."""
    lines = plain(content).splitlines()
    fence = "`" * max(3, 1 + max(map(len, re.findall("`+", content)), default=0))
    room -= len(f"{fence}text\n{_CUT.format(len(lines))}\n{fence}\n")
    sizes = accumulate(len(line) + 1 for line in (reversed(lines) if from_end else lines))
    count = sum(size <= room for size in sizes)
    mark = [_CUT.format(len(lines) - count)] if count < len(lines) else []
    shown = [*mark, *lines[len(lines) - count :]] if from_end else [*lines[:count], *mark]
    return "\n".join([f"{fence}text", *shown, fence, ""])


def _zipped(contents: dict[str, bytes]) -> bytes:
    written = io.BytesIO()
    with zipfile.ZipFile(written, "w") as bundle:
        for name, content in sorted(contents.items()):
            member = zipfile.ZipInfo(name, _TIME)
            member.external_attr, member.create_system, member.compress_type = _MODE, _UNIX, zipfile.ZIP_DEFLATED
            bundle.writestr(member, content, compresslevel=9)
    return written.getvalue()


def _json(value: Any) -> str:
    return msgspec.json.format(codec.encoded(value), indent=2).decode() + "\n"


def _bounded(report: Report) -> tuple[Report, list[str]]:
    """Return ``report`` cut to the size that a bundle may have, and a list of the omissions."""
    if len(codec.encoded(report)) <= _LARGE:
        return report, []

    def smaller(row: Row) -> Row:
        large = len(codec.encoded(row.reading)) > _LARGE_READING
        return msgspec.structs.replace(row, reading=None if large else row.reading, log=_end(row.log))

    rows = tuple(map(smaller, report.rows))
    kept = msgspec.structs.replace(report, rows=rows, lines=_end(report.lines))
    if len(codec.encoded(kept)) > _LARGEST:
        raise OutputError(
            f"the report is larger than {_LARGEST >> 20} MiB, also without its logs: make a bundle of fewer probes."
        )
    readings = sum(old.reading != new.reading for old, new in zip(report.rows, rows, strict=True))
    return kept, [
        f"the report was larger than {_LARGE >> 20} MiB: of each log the last {_MOST_LINES} lines, of each line "
        f"{_LONGEST_LINE} characters, and {counted(readings, 'large reading')} were left out of it"
    ]


def _end(lines: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(line[:_LONGEST_LINE] for line in lines[-_MOST_LINES:])


def _logs(report: Report, most: int) -> tuple[dict[str, str], list[str]]:
    """Return the logs of failed, broken and warning probes and of the program, and a list of the omissions."""
    wanted = {
        f"logs/{_name(words.label(report, row))}.log": row.log for row in report.rows if row.log and _matters(row)
    }
    logs = {"logs/program.log": report.lines, **wanted} if report.lines else wanted
    cut = []
    if len(logs) > most:
        cut.append(f"{len(logs) - most} logs of {len(logs)}: the report as JSON has them")
        logs = dict(list(logs.items())[:most])
    texts = {name: "".join(f"{line}\n" for line in lines) for name, lines in logs.items()}
    for name, text in texts.items():
        if len(text) > _MOST_LOG:
            texts[name] = text[-_MOST_LOG:]
            cut.append(f"{name}: all but its last {_MOST_LOG >> 10} KiB")
    quiet = sum(bool(row.log) and not _matters(row) for row in report.rows)
    if quiet:
        cut.append(f"logs of {counted(quiet, 'row')} that passed or were skipped: the report as JSON has them")
    return texts, cut


def _matters(row: Row) -> bool:
    return row.status in ("fail", "broken", "warning")


def _name(label: str) -> str:
    """Return a file's name without characters that a file system or a shell could misread."""
    return re.sub(r"[^A-Za-z0-9.-]+", "_", label)[:80].strip(".") or "_"


def _versions(report: Report) -> str:
    """Return the versions of all programs and libraries involved."""
    facts = report.facts
    lines = [("gpudiag", report.gpudiag_version), *words.machine(report)]
    if not isinstance(facts.tensorflow, Unknown):
        tensorflow = facts.tensorflow
        lines += [
            (distribution.name, distribution.version)
            for distribution in (*tensorflow.distributions, *tensorflow.companions, *tensorflow.frameworks)
        ]
    if not isinstance(facts.libraries, Unknown):
        lines += [
            (library.soname, library.version or "not known") for library in facts.libraries.libraries if library.path
        ]
    widest = max(len(name) for name, _ in lines)
    return "".join(f"{name:{widest}}  {text}\n" for name, text in dict.fromkeys(lines))


_MASKS = {
    "words that gpudiag does not know": ("<masked>", "<masked-"),
    "paths and folders": ("<path-", "<env>", "<machine>", "<python>", "<gpudiag>", "~"),
    "names of users and hosts": ("<user>", "<host>"),
    "addresses": ("<address>",),
    "lines of the program's log": ("<left out>",),
}


def _masked(report: Report, was: Report | None) -> Iterator[str]:
    """Yield which parts of the report were masked and by what, but never the original text."""
    if was is None:
        return
    counters: dict[str, Counter[str]] = {}
    for place, old, new in _changed("", msgspec.to_builtins(was), msgspec.to_builtins(report)):
        for what, masks in _MASKS.items():
            if more := sum(new.count(mask) - old.count(mask) for mask in masks):
                counters.setdefault(place, Counter())[what] += max(more, 0)
    for place, counts in counters.items():
        if named := ", ".join(f"{number} {what}" for what, number in counts.items() if number):
            yield f"masked in {place}: {named}"


def _changed(place: str, old: Any, new: Any) -> Iterator[tuple[str, str, str]]:
    """Yield each text that differs, and the part of the report that it is in."""
    if isinstance(new, str) and isinstance(old, str):
        if old != new:
            yield place, old, new
        return
    if isinstance(new, dict) and isinstance(old, dict):
        pairs = [(key, a, b) for (_, a), (key, b) in zip(old.items(), new.items(), strict=False)]
    elif isinstance(new, list | tuple) and isinstance(old, list | tuple):
        pairs = [("", a, b) for a, b in zip(old, new, strict=False)]
    else:
        return
    for key, a, b in pairs:
        known = place.count(".") < 1 and place != "rows"
        yield from _changed(f"{place}.{key}".strip(".") if known and key else place, a, b)


def _unknown(report: Report) -> Iterator[str]:
    """Yield the facts that the report itself lacks."""
    for name in report.facts.__struct_fields__:
        family = getattr(report.facts, name)
        if isinstance(family, Unknown):
            yield f"facts.{name}, which is not known: {family.reason}"
    yield "variables that do not concern TensorFlow, CUDA or the launcher: gpudiag does not read them"


def _readme(files: dict[str, str], *, masked: bool) -> str:
    sentences = (
        "Names, paths, UUIDs and all words that gpudiag does not know were replaced: see left-out.txt."
        if masked
        else "NOT MASKED: it has names, paths and UUIDs of the machine. Look at it before you share it."
    )
    names = [*(name for name in _FILES if name in files or name == _DIGESTS), *sorted(set(files) - set(_FILES))]
    lines = "".join(f"{name:<16}  {_FILES.get(name, 'what it printed')}\n" for name in names)
    return (
        f"A bundle of gpudiag, for a bug report. It is made of one report, and of nothing else.\n{sentences}\n\n{lines}"
    )
