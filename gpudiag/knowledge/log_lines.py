"""Logs: TensorFlow's lines as records, the messages in any log, and the excerpt that is kept of a long log."""

from __future__ import annotations

import re
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache, cached_property, lru_cache
from itertools import chain, islice

from gpudiag.knowledge.frames import FRAME
from gpudiag.knowledge.log import may_have_other, messages_of_shape, recognised, shape
from gpudiag.knowledge.message import Event, Message, Worth
from gpudiag.knowledge.messages.program import XDIST_WORKER
from gpudiag.knowledge.messages.way import LIBRARY_NOT_OPENED, LIBRARY_OPENED
from gpudiag.record import Record
from gpudiag.text import one_line, plain

# 2.21 writes as abseil does, "I0000 00:00:1795261972.775117   16176 gpu_device.cc:7] text"; 2.18-2.20 mostly in
# another form, "2026-01-31 12:00:00.500000: I tensorflow/core/gpu_device.cc:7] text".
_LINE = re.compile(
    r"^(?:\d{4}-\d\d-\d\d \S+ )?(?P<level>[IWEF])(?:\d{4,8} \S+ +\d+)? (?:\S*/)?(?P<file>[\w.]+):\d+\] (?P<text>.*)"
)
_MOST_CHARACTERS = 300


class Line(Record):
    """A line of TensorFlow's log, without line number and time stamp, which carry no meaning."""

    level: str
    """The level: ``I``, ``W``, ``E`` or ``F``."""
    file: str
    """The source file, such as ``gpu_device.cc``."""
    text: str


def parse(log: Iterable[str]) -> tuple[Line, ...]:
    """Return the lines of ``log`` that TensorFlow wrote."""
    return tuple(Line(**found.groupdict()) for found in map(_LINE.match, log) if found)


def text(line: str) -> str:
    """Return a line of TensorFlow's log without level, time, thread and number; return any other line unchanged."""
    parsed = parse([plain(line)])
    return one_line(f"{parsed[0].file}: {parsed[0].text}" if parsed else line)[:_MOST_CHARACTERS]


class Log:
    """Lines of a log, and the messages in them."""

    def __init__(self, lines: Iterable[str]) -> None:
        self.lines = tuple(lines)

    @cached_property
    def events(self) -> tuple[Event, ...]:
        return tuple(event for line in self.lines for event in recognised(line))

    def all(self, *messages: Message) -> list[Event]:
        """Return the events of these messages, in the order of the lines."""
        return [event for event in self.events if event.message in messages]

    def first(self, *messages: Message) -> Event | None:
        """Return the first event of these messages."""
        return next((event for event in self.events if event.message in messages), None)

    def said(self, *messages: Message, most: int = 2) -> tuple[str, ...]:
        """Return the first ``most`` different texts of lines with one of these messages, for a person."""
        return tuple(islice(dict.fromkeys(text(event.line) for event in self.all(*messages)), most))

    def named(self, worth: Worth) -> tuple[str, ...]:
        """Return the messages with this worth, each once: the quoted text in the log, and the meaning."""
        found: dict[Message, str] = {}
        for event in self.events:
            if event.message.worth is worth:
                found.setdefault(event.message, f'"{event.text}": {event.message.meaning}')
        return tuple(found.values())

    @property
    def worrying(self) -> Log:
        """The lines that TensorFlow wrote as warnings or errors."""
        return Log(line for line in self.lines if any(entry.level != "I" for entry in parse([line])))

    @property
    def workers(self) -> int:
        """The number of pytest-xdist workers that wrote to the log."""
        return len({event["worker"] for event in self.all(XDIST_WORKER)})


def opened(log: Iterable[str]) -> tuple[str, ...]:
    """Return the libraries that TensorFlow opened, each once, in order; needs ``TF_CPP_VMODULE=dso_loader=1``."""
    return tuple(dict.fromkeys(event["library"] for event in Log(log).all(LIBRARY_OPENED)))


def unopened(log: Iterable[str]) -> dict[str, str]:
    """Map each library that TensorFlow could not open to the loader's words; needs ``TF_CPP_VMODULE=dso_loader=1``."""
    return {event["library"]: event["reason"] for event in Log(log).all(LIBRARY_NOT_OPENED)}


# --- lines that a terminal or a form has wrapped ----------------------------------------------------------------------

_WRAPPED_FROM = 50
"""The least width in columns at which logs are wrapped."""
_MOST_PARTS = 6
_BEGINS = re.compile(
    r"\s*$| {4,}|\t|\W{0,3}[IWEF]\d{4} \d|\W{0,3}\d\d:\d\d:\d\d|"
    r'\s*(?:File "|Traceback |>>> |\$ |# |\[\[\{\{node|\^)|[\w.]+(?:Error|Exception|Warning):|\[\s*\d+\.\d+\] '
)
"""Patterns with which lines begin that are not the continuation of another line."""
_DATE = re.compile(r"\d\d\d\d-\d\d-\d\d[T ]\d\d:")
_PLACE = re.compile(r"\.(?:cc|cu|h|py):\d+\]")
"""With a date, what is anywhere in such lines. Searched alone, each takes a third of the time of one expression."""
_STARTS = re.compile(
    r"^\d{4}-\d\d-\d\d[T ]\d\d:|^[IWEF]\d{4} \d|^[IWEF] tensorflow/|"
    r'^\s*(?:File "|Traceback |>>> |\$ |# |\[\[\{\{node)|^[\w.]+(?:Error|Exception|Warning):|^\[\s*\d+\.\d+\] |'
    r"^/[^\s:]{1,300}:\d+:|^Target //|^(?:INFO|WARNING|ERROR)[: ]|^\w{3} +\d+ \d\d:\d\d:\d\d "
)
"""Patterns of such lines in a terminal, where a continuation may begin with almost anything."""


def unwrapped(lines: Iterable[str]) -> Iterator[str]:
    """Yield ``lines``, with the parts of one wrapped message joined.

    A terminal wraps inside words, a web form at spaces. Lines are joined only if the joined line has a message that no
    part has.
    """
    source = _of_a_terminal(iter(lines))
    ahead: deque[str] = deque()
    while True:
        ahead.extend(islice(source, _MOST_PARTS - len(ahead)))
        if not ahead:
            return
        line = ahead.popleft()
        joined, parts = _joined(line, ahead)
        if not parts:
            yield line
            continue
        for _ in range(parts):
            ahead.popleft()
        ahead.appendleft(joined)  # the end of the message may be in a further part


_LOOKED_AT = 200
"""The number of lines by which the width of a terminal is recognised."""
_TERMINALS = (80, 120, 132)
_WIDEST = 250
_ALIKE = 12
"""Lines that begin with this many identical letters are separate lines."""
_OF_A_TABLE = re.compile(r"^\s*(?:[|+]|[-=]{3})|^[\w.-]{1,60} {2,60}\S{1,60} {2,60}\S")
"""Rows of tables, between bars or in columns as conda lists packages: all rows are equally wide."""


def _of_a_terminal(source: Iterator[str]) -> Iterator[str]:
    """Yield the lines; if a terminal has wrapped them, join each with its continuation.

    In a wrapped log no line is longer than the terminal's width, and each wrapped line is exactly that long.
    """
    first = list(islice(source, _LOOKED_AT))
    width = max(map(len, first), default=0)
    full = sum(len(line) == width and not _OF_A_TABLE.match(line) for line in first)
    is_wrapped = _WRAPPED_FROM <= width <= _WIDEST and (full > 1 or (full == 1 and width in _TERMINALS))
    whole = ""
    for line in chain(first, source):
        alike = whole[:_ALIKE] == line[:_ALIKE]
        if whole and (not line or alike or _STARTS.search(line) or len(line) > width):
            yield whole
            whole = ""
        whole += line
        if not (is_wrapped and len(line) == width) or _OF_A_TABLE.match(line):
            yield whole
            whole = ""
    if whole:
        yield whole


def _joined(line: str, following: Iterable[str]) -> tuple[str, int]:
    """Return ``line`` joined with its parts in the ``following`` lines, and the number of these parts."""
    if len(line) < _WRAPPED_FROM or not (_may_begin(shape(line)) or recognised(line)):
        return line, 0
    if not (least := _least_parts(shape(line), *map(shape, following))):
        return line, 0
    known = {event.message for event in recognised(line)}
    for parts, part, wholes in _wholes(line, following):
        known |= {event.message for event in recognised(part)}
        for whole in wholes if parts >= least else ():
            if may_have_other(whole, known) and any(event.message not in known for event in recognised(whole)):
                return whole, parts
    return line, 0


def _is_beginning(line: str) -> bool:
    return bool(_BEGINS.match(line) or _DATE.search(line) or _PLACE.search(line))


@lru_cache(maxsize=1 << 14)
def _may_begin(shape: str) -> bool:
    return _is_beginning(shape) or _may_tell(shape)


@lru_cache(maxsize=1 << 14)
def _least_parts(line: str, *following: str) -> int:
    """Return how many of the following lines at least have a message with ``line`` that none of them has; 0 if none do.

    So it is for all lines that differ from these only in their digits.
    """
    known = set(messages_of_shape(line))
    for parts, part, wholes in _wholes(line, following):
        known |= messages_of_shape(part)
        if any(may_have_other(whole, known, of_its_shape=True) for whole in wholes):
            return parts
    return 0


def _wholes(line: str, following: Iterable[str]) -> Iterator[tuple[int, str, tuple[str, str]]]:
    """Yield the number of parts that were joined, the last of them, and the whole, cut in words and at spaces."""
    inside, between = line, line.rstrip()
    for parts, part in enumerate(following, 1):
        if _is_beginning(part):
            return
        inside, between = inside + part, f"{between} {part.strip()}"
        yield parts, part, (inside, between)


# --- what of a long log is kept --------------------------------------------------------------------------------------

_TELLING = re.compile(
    r"Created device|CUDA|cuda|GPU|Error|ERROR|error:|Exception|Traceback|failed|Failed|fatal|out of memory|"
    r"Out of memory|OOM|lib(?:cu|nv)\w{0,40}\.so"
)
_TELLS = re.compile(r"(?:\d{4}-\d\d-\d\d \S+ )?[WEF](?:\d{4} \S+ +\d+)? \S*:\d+\] | *File \"")
"""How lines with possible evidence begin. Without this, each way of :data:`_TELLING` begins with a letter, and other
letters are skipped."""
_MOST_OF_A_MESSAGE = 3
_BEFORE = 12
"""The number of lines kept before a fault, for the traceback that leads to it."""


@lru_cache(maxsize=1 << 14)
def is_telling(line: str) -> bool:
    """Return whether a line of any program contains possible evidence: an error, or the mention of a GPU."""
    return _may_tell(line) or bool(recognised(line))


def _may_tell(line: str) -> bool:
    return _TELLS.match(line) is not None or _TELLING.search(line) is not None


def _is_fault(messages: Iterable[Message]) -> bool:
    return any(message.worth is Worth.FAULT for message in messages)


class LogExcerpt:
    """The excerpt that is kept of a log of any length: its beginning, its end, and relevant lines between them.

    Each known message is kept a few times, with the lines before it, and then other lines that look relevant, as long
    as there is room.
    """

    def __init__(self, first: int, between: int, most: int, matters: Callable[[str], bool] = is_telling) -> None:
        self._first, self._between, self._most, self._matters = first, between, most, matters
        self._beginning: list[str] = []
        self._middle: dict[int, str] = {}
        self._of_events = 0
        self._others = 0
        self._end: deque[str] = deque()
        self._passed: deque[tuple[int, str]] = deque(maxlen=_BEFORE)
        self._times: Counter[Message] = Counter()
        self.count = 0

    def add(self, line: str) -> None:
        self.count += 1
        if len(self._beginning) < self._first:
            self._beginning.append(line)
            return
        self._end.append(line)
        while len(self._beginning) + len(self._middle) + len(self._end) > self._most:
            self._pass(self.count - len(self._end), self._end.popleft())

    def _pass(self, number: int, line: str) -> None:
        """Keep a line from the middle of the log if it is relevant."""
        events = recognised(line)
        new = [event.message for event in events if self._times[event.message] < _MOST_OF_A_MESSAGE]
        if events:  # few lines have any, and the call takes longer than all else here
            self._times.update(event.message for event in events)
        room = self._between // 2 - self._of_events
        if new and room > 0:
            before = [entry for entry in self._passed if entry[0] not in self._middle] if _is_fault(new) else []
            kept = {number: line} | dict(before[-room + 1 :] if room > 1 else ())
            self._of_events += len(kept)
            self._middle |= kept
        elif self._others < self._between // 2 and self._matters(line):
            self._others += 1
            self._middle[number] = line
        self._passed.append((number, line))

    @property
    def lines(self) -> tuple[str, ...]:
        return (*self._beginning, *(self._middle[at] for at in sorted(self._middle)), *self._end)


def fatal_line(lines: Sequence[str]) -> str:
    """Return the last line that TensorFlow logged as fatal, with which it ends the process; "" if there is none."""
    return next((line for line in reversed(lines) if any(entry.level == "F" for entry in parse([line]))), "")


def is_error(line: str) -> bool:
    """Return whether TensorFlow logged a line as an error."""
    return any(entry.level in "EF" for entry in parse([line]))


def of_a_child(lines: Sequence[str], last: int, others: int, characters: int) -> tuple[str, ...]:
    """Return the ``last`` lines that a child wrote, and of the earlier ones the errors and known messages.

    Much output may follow an error, such as a list of all flags, and push the error out of the last lines.
    """
    log = LogExcerpt(0, 2 * others, last + 2 * others, is_error)
    for line in lines:
        log.add(line)
    return tuple(shortened(line, characters) for line in log.lines)


def shortened(line: str, characters: int) -> str:
    """Return a line cut to at most ``characters``, and the messages in it that the cut would remove."""
    cut = line[:characters]
    lost = (event.text for event in recognised(line) if event.text not in cut) if len(line) > characters else ()
    return " … ".join([cut, *(text[:characters] for text in islice(lost, 1))])


# --- what a program's traceback says ---------------------------------------------------------------------------------

_LIBRARY = re.compile(r"[/\\](?:tensorflow|keras)[/\\]")
_MARGIN = re.compile(r"^(?:E\s)?[\s>-]*(?:\d+\s)?\s*")
"""The prefix that pytest and notebooks put before a statement in a traceback."""
_MOST_LINES_BACK = 100


def statements(log: Log, error: Message, statement: re.Pattern[str]) -> Iterator[tuple[Event, str, str]]:
    """Yield, for each ``error`` in ``log``, the event, its text, and the ``statement`` that raised it.

    The statement is of the user's own program, with its place, from a traceback as Python, pytest or a notebook prints
    it; "" if the log has none. The text is cut for display, and must not be searched again.
    """

    @cache  # many errors may have the same lines above them
    def shows(number: int) -> bool:
        return statement.search(log.lines[number]) is not None

    for number, line in enumerate(log.lines):
        for found in recognised(line):
            if found.message is error:
                said = text(_MARGIN.sub("", line, count=1))
                if found.text not in said:  # as in a structured log, whose message comes late in the line
                    said = text(line[max(line.find(found.text), 0) :])
                yield found, said, _statement(log.lines, number, shows)


def _statement(log: Sequence[str], error: int, shows: Callable[[int], bool]) -> str:
    """Return the nearest line above the ``error`` that ``shows`` the statement, with its place; "" if there is none."""
    for number in range(error - 1, max(error - _MOST_LINES_BACK, 0) - 1, -1):
        if log[number].startswith("Traceback (most recent call last)"):
            return ""
        if not shows(number):
            continue
        frame = FRAME.search(log[number - 1]) if number else None
        if frame is None:
            return one_line(_MARGIN.sub("", plain(log[number]), count=1))[:_MOST_CHARACTERS]
        if not _LIBRARY.search(frame["file"]):
            return f"{frame['file']}:{frame['line']}: {one_line(log[number])}"[:_MOST_CHARACTERS]
    return ""


_ASKS = re.compile(
    r"list_(?:physical|logical)_devices\([^()]{0,20}['\"]X?L?A?_?GPU['\"]|is_gpu_available\(|gpu_device_name\(|list_gpus\(|"
    r"\.name for \w{1,20} in \w{0,20}\.?list_local_devices\(|list_physical_devices\(\)"
)
_ANSWERS_NONE = re.compile(
    r"^\s*(?:Out\[\d+\]:\s*)?(?:\[\]|False|''|\"\"|"
    r"\['/(?:device:)?[cC][pP][uU]:0'\])\s*$"
)
_MOST_BETWEEN = 60
"""The most lines that TensorFlow logs between a question and its answer."""


def lists_no_gpu(lines: Sequence[str]) -> tuple[str, ...]:
    """Return the query for GPUs and its empty answer, as an interactive Python shows them; () if there is none."""
    for number, line in enumerate(lines):
        if _ASKS.search(line):
            for answer in islice(lines, number + 1, number + _MOST_BETWEEN):
                if _ANSWERS_NONE.match(answer):
                    return (one_line(line)[:_MOST_CHARACTERS], one_line(answer))
                if _ASKS.search(answer):
                    break
    return ()


_OF_AN_ERROR = re.compile(
    r"\s|Traceback |During handling |The above exception |Hint: |\[\[\{\{node |\[Op:|"
    r"E  |=+ |-+ |FAILED |ERROR |[\w.]+(?:Error|Exception)\b"
)
"""How lines begin that may follow the error that ended a program: its continuation, a traceback, pytest's summary."""


def ended_by(log: Log, error: Message) -> bool:
    """Return True if ``log`` ends with a raised ``error``: the program did not catch it and go on.

    TensorFlow also logs errors that the program catches: such a line does not show that the program ended.
    """
    for line in reversed(log.lines):
        if not line.strip() or parse([line]):
            continue
        if any(event.message is error for event in recognised(line)):
            return True
        if not _OF_AN_ERROR.match(line):
            return False
    return False
