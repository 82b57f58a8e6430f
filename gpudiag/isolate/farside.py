"""The far side of a job: call one function, write one record, leave.

A record is a length and that many bytes of JSON, ``{"value": ...}`` or ``{"raised": ...}``. It has a pipe of its own,
apart from whatever is printed.
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib
import json
import os
import sys
import traceback
from typing import Any, NoReturn

import msgspec

from gpudiag.errors import Disturbed, NoContext, NoMemory
from gpudiag.isolate.job import LENGTH_BYTES
from gpudiag.model import Cause

# A new interpreter gets the very sys.path of this one: the same modules, whatever its working directory or flags.
BOOT = (
    "import sys, json; sys.path[:] = json.loads(sys.argv[1]); import importlib; "
    "importlib.import_module(sys.argv[2]).main(*sys.argv[3:])"
)


preload_output = ""
"""In a fork: what its server printed while it preloaded, or the beginning of it."""

CAUSES: dict[type[BaseException], Cause] = {
    Disturbed: Cause.DISTURBED,
    NoContext: Cause.NO_CONTEXT,
    NoMemory: Cause.NO_MEMORY,
}
"""What an error means that says nothing about the job's own code."""


def command(module: str, *arguments: str) -> list[str]:
    """Return the command that runs ``module.main(*arguments)`` in a new interpreter with this one's ``sys.path``."""
    return [sys.executable, "-c", BOOT, json.dumps(sys.path), module, *arguments]


def resolve(target: str) -> Any:
    """Return the function that ``module:function`` names."""
    module, _, name = target.partition(":")
    return getattr(importlib.import_module(module), name)


def raised(error: BaseException) -> dict[str, str]:
    """Describe an exception; its traceback goes to stderr, which is kept as evidence."""
    with contextlib.suppress(Exception):
        traceback.print_exception(type(error), error, error.__traceback__)
    cause = CAUSES.get(type(error), Cause.EXCEPTION)
    try:
        message = str(error).encode("utf-8", "replace").decode()
    except Exception:  # its __str__ is the job's code
        message = "(its text cannot be read)"
    return {"type": type(error).__name__, "message": message, "cause": cause.value}


def call(target: str, argument: dict[str, Any], result_fd: int) -> NoReturn:
    """Call ``target`` with ``argument``, write its record to ``result_fd``, and leave without any exit handler."""
    process = os.getpid()
    try:
        value: bytes = resolve(target)(argument)
        record = b'{"value":' + value + b"}"
    except BaseException as error:  # SystemExit and KeyboardInterrupt are results too: the job's function raised them
        record = msgspec.json.encode({"raised": raised(error)})
    if os.getpid() != process:
        leave(0)  # a fork that the function made, and that came back from it: the record is its parent's to write
    try:
        with os.fdopen(result_fd, "wb", closefd=False) as pipe:
            pipe.write(len(record).to_bytes(LENGTH_BYTES, "little") + record)
    except OSError:
        leave(1)  # nobody reads any more
    leave(0)


def leave(status: int) -> NoReturn:
    """Flush what Python and C hold back, and leave at once: TensorFlow's exit handlers can hang or crash."""
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
    if os.name == "posix":
        ctypes.CDLL(None).fflush(None)  # a session prints its placement through C's stdout, which a pipe buffers
    os._exit(status)


def main(target: str, argument: str, result: str) -> NoReturn:
    """Entry of a new interpreter; ``result`` is a file descriptor, or a path where none can be inherited."""
    fd = int(result) if result.isdigit() else os.open(result, os.O_WRONLY | getattr(os, "O_BINARY", 0))
    call(target, msgspec.json.decode(argument), fd)
