"""Runs a job in its process: calls one function, writes one record, exits.

A record is a length and that many bytes of JSON, ``{"value": ...}`` or ``{"raised": ...}``. It has a separate pipe,
which is not used for anything that is printed.
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib
import json
import os
import sys
import traceback
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NoReturn

import msgspec

from gpudiag import guest
from gpudiag.errors import Disturbed, NoContext, NoMemory, NotSimulated, OperationFailed, shortage
from gpudiag.interpreter import SAFE_PATH
from gpudiag.isolate.protocol import LENGTH_BYTES, JobException, JobRecord, readable
from gpudiag.model.report import NoReading

preload_output = ""
"""In a fork: the beginning of the server's output while it preloaded."""

CAPTURE_BYTES = 16 << 20
"""The most bytes that an output stream of a job may write while it is captured."""

order_files: dict[int, int] = {}
"""The file of the order of a job, by the job's process: if that dies, its supervisor reads what is behind the order."""

CAUSES: dict[type[BaseException], NoReading] = {
    Disturbed: NoReading.DISTURBED,
    NoContext: NoReading.NO_CONTEXT,
    NoMemory: NoReading.NO_MEMORY,
    NotSimulated: NoReading.NOT_SIMULATED,
    OperationFailed: NoReading.OPERATION_FAILED,
}
"""The causes of errors that say nothing about the job's own code."""


def command(module: str, *arguments: str) -> list[str]:
    """Return the command that runs ``module.main(*arguments)`` in a new interpreter with this one's ``sys.path``.

    With ``-c`` Python 3.10 puts the working directory first on its path, where anybody may have left a ``json.py``:
    nothing is imported before the path is replaced. gpudiag imports the standard library from its own folder, as in
    this process, even if an earlier folder on the path later gets a module of the same name.
    """
    path = [entry for entry in sys.path if isinstance(entry, str)]
    standard = Path(os.__file__).parent
    own = sorted(filter(None, path), key=lambda entry: Path(entry) not in (standard, standard / "lib-dynload"))
    # ascii(): a name that is not UTF-8 is written with escapes.
    start = f"import sys; sys.path[:] = {own!a}; {guest.boot()}import {module} as far_side; sys.path[:] = {path!a}"
    return [sys.executable, *SAFE_PATH, "-c", f"{start}; far_side.main()", *arguments]


def resolve(target: str) -> Any:
    """Return the function that ``module:function`` names."""
    module, _, name = target.partition(":")
    return getattr(importlib.import_module(module), name)


def fork() -> int:
    """Return ``os.fork()`` without the warning of Python 3.12 and newer that there are threads.

    TensorFlow's threads are idle: its device and executor pools start with the first device query, after which nothing
    forks.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        return os.fork()


def raised(error: BaseException, cause: NoReading | None = None) -> JobException:
    """Describe an exception; its traceback goes to stderr, which is kept as evidence."""
    with contextlib.suppress(Exception):
        traceback.print_exception(type(error), error, error.__traceback__)
    cause = cause or CAUSES.get(type(error), NoReading.EXCEPTION)
    try:
        message = readable(
            shortage(error) if cause is NoReading.NOT_STARTED and isinstance(error, OSError) else str(error)
        )
    except Exception:  # its __str__ is the job's code
        message = "(its text cannot be read)"
    return JobException(readable(type(error).__name__), message, cause)


def call(target: str, argument: dict[str, Any], result_fd: int) -> NoReturn:
    """Call ``target`` with ``argument``, write its record to ``result_fd``, and leave without any exit handler."""
    process = os.getpid()
    try:
        value: bytes = resolve(target)(argument)
        record = msgspec.json.encode(JobRecord(msgspec.Raw(value)))
    except BaseException as error:  # SystemExit and KeyboardInterrupt are results too: the job's function raised them
        record = _of_raised(raised(error))
    if os.getpid() != process:
        leave(0)  # a fork that the function made, and that came back from it: the record is its parent's to write
    deliver(record, result_fd)


def not_started(error: BaseException, result_fd: int) -> NoReturn:
    """Write the record of a job whose process could not be set up, and exit."""
    deliver(_of_raised(raised(error, NoReading.NOT_STARTED)), result_fd)


def _of_raised(error: JobException) -> bytes:
    return msgspec.json.encode(JobRecord(msgspec.Raw(b"null"), error))


def deliver(record: bytes, result_fd: int) -> NoReturn:
    """Write a record and exit."""
    try:
        with os.fdopen(result_fd, "wb", closefd=False) as pipe:
            pipe.write(len(record).to_bytes(LENGTH_BYTES, "little") + record)
    except OSError:
        leave(1)  # nobody reads any more
    leave(0)


def leave(status: int) -> NoReturn:
    """Flush the buffers of Python and C and exit at once: TensorFlow's exit handlers can hang or crash."""
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
    if os.name == "posix":
        ctypes.CDLL(None).fflush(None)  # a session prints its placement through C's stdout, which a pipe buffers
    os._exit(status)


def order(target: str, argument: Mapping[str, Any], env: Mapping[str, str | None] = {}) -> bytes:
    """Return a child's order as JSON in ASCII, written by the standard library, which also accepts lone surrogates."""
    return json.dumps({"target": target, "argument": argument, "env": env}).encode()


def read_order(fd: int) -> dict[str, Any]:
    """Return what :func:`order` wrote to the file, which stays open."""
    with open(fd, "rb", closefd=False) as file:
        file.seek(0)
        content: dict[str, Any] = json.load(file)
    return content


def main() -> NoReturn:
    """Run as the program of a new interpreter; the arguments are the order and the result, as descriptors or paths."""
    asked, result = sys.argv[1:]
    result_fd = _descriptor(result, os.O_WRONLY)
    try:
        job = read_order(order_fd := _descriptor(asked, os.O_RDONLY))
        if asked.isdigit():
            order_files[os.getpid()] = order_fd
    except Exception as error:
        not_started(error, result_fd)
    call(job["target"], job["argument"], result_fd)


def _descriptor(where: str, flags: int) -> int:
    return int(where) if where.isdigit() else os.open(where, flags | getattr(os, "O_BINARY", 0))
