"""Decides which lines of a program's log are evidence: no quoted messages, and no faults that were overcome.

A runbook, a comment or a script that searches logs holds the same words as the fault itself, and a program that was
started again after a fault logs both. Such lines stay in the log, but causes do not see them.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from itertools import islice

from gpudiag.knowledge.fault import Stage
from gpudiag.knowledge.log import recognised
from gpudiag.knowledge.message import Event, Message, Worth
from gpudiag.knowledge.messages.memory import HOST_FULL, OOM_HINT, POOL_FULL
from gpudiag.knowledge.messages.way import DEVICE_CREATED
from gpudiag.text import one_line

_QUOTES = re.compile(
    # An instruction, a comparison, an assertion: 'If you see "', 'assert "'.
    r"(?i)(?:\b(?:if|elif|when|whenever|while|once|in case|assert|and|or|not)\b[^\"'`“]{0,60}|"
    # A search, and a text that is printed.
    r"\b(?:e?grep|rg|awk|sed|re\.\w{4,9}\(|startswith\(|endswith\(|contains\(|includes\(|assert\w{2,30}\(|raises\().{0,60}|"
    r"^(?:\S{1,200}:\d{1,6}: ?)?(?:echo|print|printf|log(?:ger|ging)?\.\w{4,9})\b ?\(?f?)"
    r"[\"'`“][^\"'`”]{0,200}$|"
    # The name of a case of pytest, with the parameters that the test was given.
    r"::test_\w{1,200}\[[^\]]{0,600}$"
)
"""The text before a message that is only quoted, up to the opening quotation mark."""
_LONGEST_BEFORE = 1000
_WORK = re.compile(
    r"(?i)\bloss\b[^.\d]{0,24}\d|\b\d{1,9}/\d{1,9} ?(?:\[[=>.]|━)|\b(?:it|steps|examples|images)/s(?:ec)?\b|"
    r"\b(?:training|evaluation|prediction|inference|startup|shutdown)\b.{0,20}\b(?:done|finished|completed?|ok|succeeded)\b|"
    r"\bHTTP/\d\.\d\" 200\b"
)
"""Lines that programs print when a step is done; the heading of an epoch does not count, because it comes before the
first step."""
_DONE = re.compile(
    r"\bTensorBoard \d[\d.]{1,12} at http|^Serving TensorBoard on |^Successfully installed |"
    r"(?i:^.{0,80}\b(?:done|finished|completed|saved|created|processed|wrote)\b(?!.{0,200}(?:\bnot\b|error|fail)))"
)
"""Lines of programs that need no GPU and run, and of those that have done their work."""
_FAILED = re.compile(r"^(?:\S{0,80}(?:Error|Exception)\b|Traceback |.*(?:core dumped|Killed|Aborted)\b)")
LOGGED = re.compile(r"\.cc:\d{1,5}\]")
"""TensorFlow's own lines, whatever another program puts before them."""
_SAYS_GPU = re.compile(r"(?i)gpu|cuda|nvidia|\bepoch\b|\bloss\b")
"""Words of a program that a GPU was meant for; a training is one: without a GPU it was too slow for most."""
_BEGINNING = 80
_SPEAKER = re.compile(r"\[[^\]]{1,40}\]|\([^)]{1,40}\)|[\w.-]{1,40}(?= ?\|)")
"""The prefix that a launcher puts before each line of one of its processes."""
_STAGES = tuple(Stage)
_BEFORE_DEVICES = frozenset(_STAGES[_STAGES.index(Stage.BUILD) : _STAGES.index(Stage.MEMORY)])
"""Stages that TensorFlow has passed when it has made its devices."""
_WITH_DEVICES = frozenset({Stage.MEMORY, Stage.FIRST_OP})
"""Stages that a program has passed when it computes with its devices."""


def evidence_lines(lines: Sequence[str]) -> tuple[str, ...]:
    """Return the ``lines`` in their places, with lines that are no evidence made blank."""
    faults = {at: found for at, line in enumerate(lines) if (found := _faults(line))}
    if not faults:
        return tuple(lines)
    progress = _Progress(lines, min(faults))
    without_gpu = ended_without_gpu(lines)
    raised = {event.message for at, events in faults.items() if not _is_statement(lines[at]) for event in events}
    of_host = _is_host_full(faults.values())

    hidden = {
        at
        for at, events in faults.items()
        if all(_is_quoted(event) or progress.overcame(event.message, at) for event in events)
        or (_is_statement(lines[at]) and all(event.message in raised for event in events))
        or (of_host and any(map(_names_no_allocator, events)))
        or (at < without_gpu and all(event.message.stage in _BEFORE_DEVICES for event in events))
    }
    return tuple("" if at in hidden else line for at, line in enumerate(lines))


def _faults(line: str) -> list[Event]:
    return [event for event in recognised(line) if event.message.worth in (Worth.FAULT, Worth.MISLEADING)]


def _is_statement(line: str) -> bool:
    """Return whether a line of a traceback is the statement that raised the error, whose text it has without values."""
    return line.lstrip().startswith("raise ")


def _is_quoted(event: Event) -> bool:
    before, _, _ = one_line(event.line).partition(event.text)
    return _QUOTES.search(before[-_LONGEST_BEFORE:]) is not None


def _is_host_full(faults: Iterable[Sequence[Event]]) -> bool:
    """Return whether every allocator that ran out of memory, if lines name it, allocates the computer's memory."""
    messages = {event.message for events in faults for event in events if not _names_no_allocator(event)}
    return HOST_FULL in messages and POOL_FULL not in messages


def _names_no_allocator(event: Event) -> bool:
    """Return whether a line reports a lack of memory without the allocator's name, which is in other lines."""
    return event.message is OOM_HINT or (event.message is POOL_FULL and not event["code"])


def ended_without_gpu(lines: Sequence[str]) -> int:
    """Return the number of the line in which a program shows that it needs no GPU, or was done without one; 0 if none.

    It comes after every line of a fault before TensorFlow has its devices, no error comes after it, and no line of the
    program itself names a GPU.
    """
    done = next((at for at in range(len(lines) - 1, 0, -1) if _DONE.search(lines[at])), 0)
    if not done or any(map(_FAILED.match, lines[done:])):
        return 0
    said = [line for line in lines if not LOGGED.search(line)]
    return 0 if any(map(_SAYS_GPU.search, said)) else done


def went_on(line: str) -> bool:
    """Return whether a line shows that a program has done work, or has done all of it."""
    return (_WORK.search(line) or _DONE.search(line)) is not None


def not_needed(lines: Sequence[str]) -> tuple[str, ...]:
    """Return the notice for a missing GPU that the program did not need."""
    done = ended_without_gpu(lines)
    events = (event for line in lines[:done] for event in _faults(line) if event.message.stage in _BEFORE_DEVICES)
    return tuple(
        f'"{event.text}": the program did without a GPU ("{one_line(lines[done])[:_BEGINNING]}"), and no line of its '
        "own asks for one"
        for event in islice(events, 1)
    )


class _Progress:
    """The progress of a log's processes: the last line in which each made a device, and in which it had computed."""

    def __init__(self, lines: Sequence[str], first: int) -> None:
        """``first`` is the number of the first line that is considered."""
        self._lines = lines
        self._made: dict[str, list[int]] = defaultdict(list)
        self._worked: dict[str, int] = {}
        for at, line in enumerate(lines):
            if any(event.message is DEVICE_CREATED for event in recognised(line)):
                self._made[_speaker(line)].append(at)
            elif at > first and _WORK.search(line):
                self._worked[_speaker(line)] = at

    def overcame(self, fault: Message, at: int) -> bool:
        """Return whether a line after line ``at`` shows that the failed part works by now."""
        speaker = _speaker(self._lines[at])
        made = self._made.get(speaker)
        if not made:
            return False
        if fault.stage in _BEFORE_DEVICES and made[-1] > at:
            return True
        return fault.stage in _BEFORE_DEVICES | _WITH_DEVICES and self._worked.get(speaker, -1) > max(at, made[0])


def _speaker(line: str) -> str:
    found = _SPEAKER.match(line)
    return found[0] if found else ""
