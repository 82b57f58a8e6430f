"""The error that ended a program, as a traceback, a notebook or TensorFlow's log prints it.

When an operation fails, TensorFlow raises an error with a status code (``INVALID_ARGUMENT``), a sentence and the name
of the node; if the operation is part of a graph, they stand on separate lines. The program's own line is in the
traceback, or, for a graph, in the stack of the node.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import takewhile

from msgspec.structs import replace

from gpudiag.knowledge.frames import is_installed, packages_in
from gpudiag.knowledge.graph_error import FUNCTION_NODE, of_a_graph
from gpudiag.record import Record
from gpudiag.text import one_line, plain

_RAISED = re.compile(
    r"^(?:E\s+|[*>` ]{1,4}|\[[^\]]{1,40}\]:? ?|\([^)]{1,40}\) ?|[\w.-]{1,40} ?\| ?|"
    r"Unhandled [Ee]xception[.:] |INFO:tensorflow:Error reported to Coordinator: <class ')?"
    r"(?P<type>(?:[A-Za-z_]\w*\.)*[A-Z]\w*(?:Error|Exception|Iteration|Interrupt))"
    r"(?: \(see above for traceback\))?(?:(?:'>,|:) ?(?P<sentence>.*)|\s*$)"
)
"""An exception's name at the beginning of a line, behind what pytest or a launcher puts before it."""
_OF_AN_OPERATION = re.compile(
    r"(?:OP_REQUIRES failed at \S{1,80} : |Local rendezvous is aborting with status: |op_kernel\.cc:\d{1,5}\] )"
    r"(?P<status>[A-Z][A-Za-z_ ]{3,30}): (?P<sentence>.*)"
)
"""TensorFlow's log of an error that an operation returned."""
_STATUS = re.compile(r"\s*(?P<status>[A-Z][A-Z_]{4,30}|[A-Z][a-z]+(?: [a-z]+)?): +(?=\S)")
_NAME = re.compile(
    r"\{\{node (?P<node>[^{}]{1,300})\}\}|\bNode: '?(?P<of_graph>[^\s'=]{1,300})|"
    r"\[\[(?:node |Node: ?)?(?P<old>[\w./:-]{1,300})(?= ?[(=]|\]\])|"
    r"\[Op:(?!__)(?P<op>\w{1,60})\]|__wrapped__(?P<eager>\w{1,60}?)_device_"
)
"""The name of a node, or of an operation that was called eagerly."""
_FRAME = re.compile(
    r'\W{0,6}(?:File "(?P<file>[^"]{1,300})", line (?P<line>\d{1,7})|Cell In ?\[\d{1,5}\], line (?P<at>\d{1,5})|'
    r"-{2,}> {0,3}(?P<arrow>\d{1,7}) (?P<code>.*))"
)
"""A frame of a traceback; of a notebook, the line that it marks with an arrow."""
_HEADERS = (".py in ", ".py:", "input-", "Input In", "Cell In", "ipykernel")
"""Parts of a notebook's line above the code of a frame, which names its file."""
_LONGEST_CELL = 100
"""Lines of a cell; a frame beyond it without the name of its file, which the log has lost, is of a module."""
_MOST_LINES = 300
"""The most lines of an error's own text, and of the traceback above it."""
_HEADING = "Traceback (most recent call last)"
_OF_DATA = "OUT_OF_RANGE"
"""The status that TensorFlow logs at the end of each pass over the data, which is no error; exceptions have it, too."""
_WITHOUT_SENTENCE = ("AssertionError", "StopIteration", "KeyboardInterrupt")

_CLASSES = {
    "InvalidArgumentError": "INVALID_ARGUMENT",
    "OutOfRangeError": "OUT_OF_RANGE",
    "FailedPreconditionError": "FAILED_PRECONDITION",
    "UnimplementedError": "UNIMPLEMENTED",
    "NotFoundError": "NOT_FOUND",
    "AlreadyExistsError": "ALREADY_EXISTS",
    "InternalError": "INTERNAL",
    "UnknownError": "UNKNOWN",
    "ResourceExhaustedError": "RESOURCE_EXHAUSTED",
    "AbortedError": "ABORTED",
    "CancelledError": "CANCELLED",
    "UnavailableError": "UNAVAILABLE",
    "DeadlineExceededError": "DEADLINE_EXCEEDED",
    "PermissionDeniedError": "PERMISSION_DENIED",
    "DataLossError": "DATA_LOSS",
}
"""TensorFlow's exceptions, each with its status code."""


class RaisedError(Record):
    """The last error of a log."""

    type: str = ""
    """The exception's class without its module; "" if TensorFlow only logged the error of an operation."""
    status: str = ""
    """TensorFlow's status code, such as ``INVALID_ARGUMENT``; "" for any other exception."""
    sentence: str = ""
    """What went wrong, on one line; "" if the log does not say it."""
    node: str = ""
    """The node of the graph that failed, or the operation that was called; "" if the log does not name it."""
    place: str = ""
    """The program's own line, ``FILE:LINE: CODE``; "" if no traceback shows it."""
    package: str = ""
    """The installed package in whose code a traceback ends; "" if it ends in the program's own."""
    line: str = ""
    """The line of the log that names the error."""


def last_error(lines: Sequence[str]) -> RaisedError | None:
    """Return the last exception of a log that has a sentence, or else the last error of an operation that TensorFlow
    logged; None if there is none."""
    logged, heading = 0, 0
    for at in range(len(lines) - 1, -1, -1):
        line = plain(lines[at])
        if line.endswith(_HEADING):
            heading = heading or at + 1
            continue
        if (found := _RAISED.match(line)) is not None:
            error = _of_exception(lines, at, found)
            if error.sentence or error.type in _WITHOUT_SENTENCE:
                return error
        elif not logged and (operation := _OF_AN_OPERATION.search(line)) and _code(operation["status"]) != _OF_DATA:
            logged = at + 1
    found = _OF_AN_OPERATION.search(plain(lines[logged - 1])) if logged else None
    if found is None and heading:  # a cell of a notebook whose end is not in the log
        type_ = plain(lines[heading - 1]).split()[0].rpartition(".")[2]
        body = tuple(map(plain, lines[heading : heading + _MOST_LINES]))
        return _located(RaisedError(type=type_, status=_CLASSES.get(type_, "")), lines, heading - 1, body)
    if found is None:
        return None
    return _located(RaisedError(status=_code(found["status"]), sentence=found["sentence"]), lines, logged - 1)


def _of_exception(lines: Sequence[str], at: int, found: re.Match[str]) -> RaisedError:
    type_ = found["type"].rpartition(".")[2]
    sentence, status = found["sentence"] or "", _CLASSES.get(type_, "")
    following = map(plain, lines[at + 1 : at + _MOST_LINES])
    body = tuple(takewhile(lambda line: not (line.startswith("Traceback ") or _RAISED.match(line)), following))
    if status:
        is_whole = sentence.strip() and "root error(s) found" not in sentence
        first = sentence if is_whole else "Graph execution error:"
        sentence = of_a_graph("\n".join((first, *body))) or sentence
    if (code := _STATUS.match(sentence)) and (status or type_ == "XlaRuntimeError"):
        status, sentence = _code(code["status"]), sentence[code.end() :]
    return _located(RaisedError(type=type_, status=status, sentence=sentence), lines, at, body)


def _located(error: RaisedError, lines: Sequence[str], at: int, body: Sequence[str] = ()) -> RaisedError:
    """Return the error at line ``at`` with the node and the place that it, its ``body`` or lines above name."""
    names, text, whole = dict[str, str](), one_line(error.sentence), "\n".join((lines[at], *body))
    if error.status:
        groups = (found.groupdict().items() for found in _NAME.finditer(whole))
        names = {kind: name for several in groups for kind, name in several if name}
        text = one_line(FUNCTION_NODE.sub("", error.sentence).partition("[[")[0].partition("[Op:")[0])
    place, package = _place(lines, at)
    return replace(
        error,
        sentence=text.removesuffix(" name:"),
        node=next((names[kind] for kind in _NAME.groupindex if kind in names), ""),
        place=place or _place(body, len(body))[0],
        package=package,
        line=lines[at],
    )


def _place(lines: Sequence[str], end: int) -> tuple[str, str]:
    """Return the program's own line in the traceback that ends at line ``end``, and the package in which that ends."""
    package, is_last = "", True
    for number in range(end - 1, max(end - _MOST_LINES, -1), -1):
        line = plain(lines[number])
        if line.startswith("Traceback "):
            break
        if (frame := _FRAME.match(line)) is None:
            continue
        source = frame["file"] or (_header(lines, number) if frame["arrow"] else "")
        if not source and int(frame["arrow"] or 0) > _LONGEST_CELL:
            continue
        if not is_installed(source):
            return _shown(lines, number, frame), package
        if is_last:
            package, is_last = next(reversed(packages_in(source)), ""), False
    return "", package


def _header(lines: Sequence[str], arrow: int) -> str:
    above = (plain(line) for line in reversed(lines[max(arrow - 8, 0) : arrow]))
    return next((line for line in above if any(part in line for part in _HEADERS)), "")


def _shown(lines: Sequence[str], number: int, frame: re.Match[str]) -> str:
    if frame["arrow"]:
        return f"line {frame['arrow']} of a cell: {one_line(frame['code'])}"
    if frame["at"]:
        return f"line {frame['at']} of a cell"
    code = one_line(lines[number + 1]) if number + 1 < len(lines) else ""
    where = f"{frame['file']}:{frame['line']}"
    return where if not code or code.startswith("File ") else f"{where}: {code}"


def _code(status: str) -> str:
    """Return a status code as releases from 2.9 on print it; older ones print ``Invalid argument``."""
    return status.strip().upper().replace(" ", "_")
