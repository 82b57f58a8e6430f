"""Lines of a log that nobody knows and that look like a fault, and whether the program went on after them.

A word such as "failed" does not show that a program failed: trainings and servers log what they did without, and go
on. An exception, an error of TensorFlow, a line of level ERROR, the end of a process by a signal or with an exit status
do, whatever follows them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from gpudiag.knowledge.frames import FRAME
from gpudiag.knowledge.log import recognised
from gpudiag.knowledge.log_lines import parse, text
from gpudiag.knowledge.message import Worth
from gpudiag.knowledge.messages.notices import NO_GPU_AS_MEANT
from gpudiag.knowledge.messages.way import DEVICE_CREATED, DRIVER_LIBRARY_NOT_OPENED
from gpudiag.knowledge.relevance import went_on
from gpudiag.text import plain

_RAISED = re.compile(
    r"^(?:E\s+)?(?:[A-Za-z_]\w*\.)*[A-Z]\w*(?:Error|Exception|Interrupt)\b(?::|$|\s+Traceback \()|^what\(\): "
)
_ENDED = re.compile(
    # What TensorFlow adds to the error of an operation.
    r"\[Op:\w|\{\{(?:function_)?node |"
    r"\bcore dumped\b|\b[Ss]egmentation fault\b|\b[Bb]us error\b|\b(?:Killed|Aborted)\b|\bterminated by signal\b|"
    r"\b[Ee]xit(?:ed|ing)?(?: with)?(?: (?:code|status|value))?[:=]? ?-?[1-9]|\bnon-zero exit|\b[1-9]\d* failed\b"
)
"""How an operation, a process or a test ended."""
_WRONG = re.compile(
    r"(?i)\berror\b|\bfail(?:s|ed|ure)?\b|\bfatal\b|\babort(?:ed|ing)\b|\bcannot\b|could ?n[o']t\b|\bunable to\b|"
    r"\bkilled\b|\bout of memory\b|\bnot found\b|\bno such\b|\brefused\b|\bunhandled exception\b|"
    r"\btimed out\b|\bdenied\b|\bunsupported\b|\b[A-Z]+_(?:ERROR|STATUS)_[A-Z_]+|\bXid\b"
)
_DEMANDS = re.compile(
    r"(?i)\b(?:not|\w+n't|required?s?|must|should|received|got|found|needs?|expected|invalid|illegal|mismatch\w*|incompatible|missing|un(?:known|"
    r"defined|recognized|expected))\b"
)
"""Words of an error that stands alone, without the name of an exception and without a program that goes on."""
_LEVEL = re.compile(
    r"^.{0,120}?(?:(?<![\w.'\"-])(?P<level>DEBUG|INFO|NOTICE|WARN(?:ING)?|ERROR|CRITICAL|FATAL|[A-Z]\w{1,40}Warning)(?=[\s:|,)\]]|$)|"
    r"(?:\blevel[\"']?[=:] ?[\"']?|\[)(?P<other>(?i:debug|info|notice|warn(?:ing)?|error|critical|fatal))\b)"
)
"""The level that a logger, or Python's ``warnings``, gives a line."""
_FRAME_OF_A_STACK = re.compile(
    r'^\s*(?:File "|at \S+\(|#\d+\s|@\s+0x|\*\*\* |raise \w|\[\[\{\{node |\.\.\.$|\^|~|Traceback |During handling of|'
    r"The above exception|warnings\.warn\()|^\s{4,}\S"
)
MOST_SUSPICIOUS = 5
_FAULT, _ERROR, _WORDS, _WORDS_OF_A_WARNING, _WARNING = range(5)
"""What speaks for a fault, the strongest first: an exception, a level, or words; of a warning, words or none."""
_OF_PYTHON = "Warning: "
"""Part of the lines of Python's ``warnings``: the program was asked to be changed, and goes on."""
_BEGINNING = 80


class Suspicion(NamedTuple):
    """The lines of a log that look like a fault and that nobody knows."""

    unexplained: tuple[str, ...] = ()
    """The texts of those that look most like a fault: errors first, then warnings, without stack frames."""
    overcome: tuple[str, ...] = ()
    """Those after which the program went on, each with what shows it; only if there are no others."""


def suspicion(lines: Iterable[str], most: int = MOST_SUSPICIOUS, *, without_gpu: bool = False) -> Suspicion:
    """Return the lines that look like a fault.

    Lines that are known to be harmless are left out; so are those about a missing driver if ``without_gpu``.
    """
    lines = tuple(line for line in map(plain, lines) if line.strip())
    known = [{event.message for event in recognised(line)} for line in lines]
    without_gpu = without_gpu or any(NO_GPU_AS_MEANT in messages for messages in known)
    ranked: dict[str, tuple[int, int]] = {}
    history = set[str]()  # lines of other programs before TensorFlow had made its devices
    for at, (line, messages) in enumerate(zip(lines, known, strict=True)):
        if DEVICE_CREATED in messages:
            history.update(shown for shown, (rank, _) in ranked.items() if rank)
        if _FRAME_OF_A_STACK.match(line):
            continue
        if without_gpu and (DRIVER_LIBRARY_NOT_OPENED in messages or "failed call to cuInit" in line):
            continue
        is_harmless = any(message.worth in (Worth.HARMLESS, Worth.MISLEADING) for message in messages)
        if (rank := _rank(line, is_harmless=is_harmless, is_last=at == len(lines) - 1)) is not None:
            shown = text(line)
            ranked[shown] = min(rank, ranked.get(shown, (rank,))[0]), at
    if not ranked:
        return Suspicion(tuple(map(text, () if known and known[-1] else _ending(lines))))
    if history.issuperset(ranked):
        return Suspicion(
            (),
            tuple(f'"{shown[: 2 * _BEGINNING]}": it comes before TensorFlow had made its devices' for shown in ranked),
        )
    if overcome := _overcome(lines, ranked):
        return Suspicion((), overcome[:most])
    return Suspicion(tuple(sorted(ranked, key=lambda shown: ranked[shown][0])[:most]))


def _rank(line: str, *, is_harmless: bool, is_last: bool) -> int | None:
    """Return what speaks for a fault in a line; None if nothing does."""
    entry = next(iter(parse([line])), None)
    level = entry.level if entry else _level(line)
    if _RAISED.search(entry.text if entry else line) or (level != "I" and not is_harmless and _ENDED.search(line)):
        return _FAULT
    if is_harmless:
        return None
    if level in ("E", "F"):
        return _FAULT if entry else _ERROR
    has_words = _WRONG.search(line) is not None
    if level == "W":
        return _WORDS_OF_A_WARNING if has_words else None if _OF_PYTHON in line else _WARNING
    # What a program says for information is a fault only if it was its last word.
    return _WORDS if has_words and (level != "I" or (is_last and not entry)) else None


def _level(line: str) -> str:
    """Return the level of a line that another program than TensorFlow logged, by its first letter; "" if none."""
    found = _LEVEL.match(line)
    if found is None:
        return ""
    level = (found["level"] or found["other"]).upper()
    return "W" if level.endswith("WARNING") else {"D": "I", "N": "I", "C": "F"}.get(level[0], level[0])


def _ending(lines: Sequence[str]) -> Sequence[str]:
    """Return the line that tells how a program ended, if nothing else of the log looks like a fault.

    It stands above the name of a node, it ends a traceback whose exception has lost its name, or it is the last of a
    log that shows no program at work.
    """
    node = next((at for at, line in enumerate(lines) if at and line.lstrip().startswith("[[{{node ")), 0)
    if node and not (parse([lines[node - 1]]) or recognised(lines[node - 1])):
        return (lines[node - 1],)
    frame = next((at for at in range(len(lines) - 1, -1, -1) if FRAME.search(lines[at])), None)
    if frame is not None:
        after = (line for line in lines[frame + 1 :] if not line[0].isspace())
        return (next(after, lines[-1]),)
    is_at_work = any(went_on(line) or _level(line) == "I" for line in lines)
    return [] if is_at_work else [line for line in lines[-1:] if _DEMANDS.search(line) and not parse([line])]


def _overcome(lines: Sequence[str], ranked: Mapping[str, tuple[int, int]]) -> tuple[str, ...]:
    """Return each suspicious line with the later one that shows the program going on; () if one of them has none.

    After words alone only work shows it; after a warning, what the program says for information, or that it was done.
    """
    works = [at for at, line in enumerate(lines) if went_on(line)]
    said = [at for at, line in enumerate(lines) if _level(line) == "I"]
    overcome = []
    for shown, (rank, at) in ranked.items():
        if rank <= _ERROR:
            return ()
        later = works[-1:] if rank == _WORDS else [*works[-1:], *said[-1:]]
        shows = [number for number in later if number > at]
        if not shows:
            return ()
        overcome.append(
            f'"{shown[: 2 * _BEGINNING]}": the program went on after it ("{text(lines[max(shows)])[:_BEGINNING]}")'
        )
    return tuple(overcome)
