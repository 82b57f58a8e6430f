"""the program ended with an error of its own: its data, shapes or arguments are wrong, and not the GPU

TensorFlow's status code says whose fault an error is. INVALID_ARGUMENT and OUT_OF_RANGE mean that an operation was
given what it cannot compute: shapes that do not fit, an index outside of a table, a record or an image that cannot be
read. The same operation fails on the CPU, often with a better sentence. An exception that Python raises in the program
after TensorFlow has made its GPUs is the program's, too. It counts only if no line of the log names another fault.
"""

from __future__ import annotations

import re

from gpudiag.cause import Cause, LogAlone, Match, Matches
from gpudiag.fix import Action, Kind, check, edit, edit_note, run
from gpudiag.knowledge.codes import cut
from gpudiag.knowledge.frames import is_installed
from gpudiag.knowledge.log import recognised
from gpudiag.knowledge.message import Worth
from gpudiag.knowledge.messages.notices import LOADED_CUDNN
from gpudiag.knowledge.messages.python_packages import NAME_OF_ANOTHER_FILE
from gpudiag.knowledge.messages.way import DEVICE_CREATED
from gpudiag.knowledge.raised import RaisedError, last_error
from gpudiag.model.diagnosis import Confidence
from gpudiag.model.program import ProgramTrace

CAUSE = Cause(
    title="{whose}: {error}{although}",
    fix=(
        edit("model.compile(..., run_eagerly=True)", "makes the traceback name your line: print the shapes before it"),
        check("CUDA_VISIBLE_DEVICES=-1 python program.py", "if it ends so on the CPU too, the GPU is not the reason"),
    ),
    url="https://www.tensorflow.org/api_docs/python/tf/errors",
    needs_gpu=False,
    last_resort=True,
)
_OF_ARGUMENTS = ("INVALID_ARGUMENT", "OUT_OF_RANGE")
_OF_THE_PROGRAM = (*_OF_ARGUMENTS, "FAILED_PRECONDITION", "UNIMPLEMENTED", "ALREADY_EXISTS", "DATA_LOSS")
_BUILTIN = frozenset(
    name
    for names in (
        "ArithmeticError AssertionError AttributeError EOFError FileExistsError FileNotFoundError FloatingPointError",
        "IndexError IsADirectoryError JSONDecodeError KeyError LookupError NameError NotADirectoryError",
        "NotImplementedError OverflowError ParserError RecursionError StopIteration TypeError UnboundLocalError",
        "UnicodeDecodeError ValueError ZeroDivisionError",
    )
    for name in names.split()
)
"""Exceptions of Python that say nothing about the machine."""
_OF_RELEASES = ("AttributeError", "TypeError", "NotImplementedError", "AssertionError")
"""Exceptions that installed packages also raise if their releases do not fit each other."""
_COMMAND = re.compile(
    r"[`'\"](?P<command>(?:(?:python\d? -m )?pip3? install|conda install) [\w .=<>~!,/:\[\]-]{1,100})[`'\"]"
)
"""A command in quotation marks, with which a sentence says what helps."""
_OF_A_GPU = ("cuda", "gpu", "nvidia", "cudnn", "cublas", "driver", "memory", "device", "rocm", "nccl")


def find(program: LogAlone, traced: ProgramTrace | None) -> Matches:
    if traced is not None:  # a trace shows the error that ended its program beside the exit status
        return
    error = last_error(program.lines)
    if error is None:
        return
    devices = list(dict.fromkeys(f"GPU:{event['number']}" for event in program.all(DEVICE_CREATED)))
    if not devices:
        devices = [event.text for event in program.all(LOADED_CUDNN) if "cuDNN" in event.text][:1]
    lower = error.sentence.lower()
    if advised := _COMMAND.search(error.sentence):
        whose, confidence = "the program says what it lacks", Confidence.LIKELY
    elif error.status:
        if error.status not in _OF_THE_PROGRAM or _names_gpu(lower):
            return
        whose = "the program gives an operation what it cannot compute"
        if error.status not in _OF_ARGUMENTS:
            whose = "the program asks TensorFlow for what it cannot do"
        confidence = Confidence.LIKELY if error.status in _OF_ARGUMENTS else Confidence.POSSIBLE
    else:
        is_known = error.type in _BUILTIN or _is_of_own_file(error)
        of_release = error.type in _OF_RELEASES and bool(error.package or not error.place or "module" in lower)
        if not is_known or ((_names_gpu(lower) or of_release) and not devices):
            return
        whose = f"the program ended with {'an' if error.type[0] in 'AEIOU' else 'a'} {error.type} of its own"
        confidence = Confidence.LIKELY if devices and not of_release else Confidence.POSSIBLE
    known = [event.message for event in recognised(error.line)]
    if any(message.worth is Worth.HARMLESS for message in known) and not error.type:
        return
    if any(message.worth is Worth.FAULT and message.fix for message in known):
        return  # a message of the table says more
    yield Match(
        evidence=tuple(dict.fromkeys(filter(None, (cut(_shown(error), 300), error.place)))),
        confidence=confidence,
        figures={
            "whose": whose,
            "error": cut(error.sentence, 200) or f"{error.type}, whose sentence is not in the log",
            "although": "" if advised else _although(error, devices),
        },
        fix=(run(advised["command"], "as the error says", kind=Kind.INSTALL),) if advised else _fix(error),
    )


def _is_of_own_file(error: RaisedError) -> bool:
    """Return whether the program imports a name that another file of its own does not have."""
    files = [event["file"] for event in recognised(error.line) if event.message is NAME_OF_ANOTHER_FILE]
    return bool(files) and not any(map(is_installed, files))


def _names_gpu(lower: str) -> bool:
    return any(word in lower for word in _OF_A_GPU)


def _shown(error: RaisedError) -> str:
    named = error.type or error.status
    where = f" (node {error.node})" if error.node else ""
    return f"{named}: {error.sentence}{where}"


def _although(error: RaisedError, devices: list[str]) -> str:
    if devices:
        return f"; TensorFlow had its GPU before ({', '.join(devices)})"
    return (
        "; the GPU is not at fault" if error.status in _OF_ARGUMENTS else "; no line of the log names a fault of a GPU"
    )


def _fix(error: RaisedError) -> tuple[Action, ...]:
    look = edit_note(f"correct the program at {error.place or 'the line that the traceback names last'}")
    if not error.status:
        return (look,)
    return (*((look,) if error.place else ()), *CAUSE.fix[: 1 if error.node else 0], CAUSE.fix[1])
