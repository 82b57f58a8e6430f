"""The command line in a process of its own: its arguments, its progress, its report or its error."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

import msgspec

from gpudiag import examined
from gpudiag.api.records import Report
from gpudiag.errors import GpudiagError, UsageError, shortage
from gpudiag.isolate import worker
from gpudiag.model import codec
from gpudiag.text import listed, printable

if TYPE_CHECKING:
    from gpudiag.api import PathName, Progress

_CHILD = "gpudiag.api.child"  # by name: it imports the command line, which this process does not need
_NOT_PASSED_ON = frozenset({"GITHUB_STEP_SUMMARY"})
"""Variables by which the command line writes somewhere that nobody asked a function to."""
_TICK_S = 0.2
_PARTING_S = 10.0
"""How long a command that was interrupted may take to clean up; it takes less than 4 s as a rule."""
_ERROR = "gpudiag: error: "
_OPTION = re.compile(r"--([a-z][a-z-]{0,50})")
_FILE = re.compile(r"\S*(?:/\S*|\.\w+)")
"""A string that is the name of a file rather than a line of a log."""


def log_argument(log: PathName | None) -> tuple[str | None, str | None]:
    """Return the argument of the command line for a log, and the text of the log if standard input has to give it."""
    if log is None:
        return None, None
    if not isinstance(log, str):
        return os.fspath(log), None
    if "\n" not in log and os.path.exists(log):  # noqa: PTH110  # pathlib raises for a long text
        return log, None
    if _FILE.fullmatch(log):
        raise UsageError(f"{log}: there is no such file. A log is a file, or the text that a program printed.")
    return "-", log


def report(
    command: str,
    options: Mapping[str, object],
    words: tuple[str, ...],
    *,
    text: str | None,
    progress: Progress | None,
) -> Report:
    """Run a command of gpudiag and return its report.

    ``options`` are values by the name of the option, ``words`` the other arguments, and ``text`` is standard input.
    """
    own = ("--format", "json", *(("--exit-scheme", "gpudiag") if command == "check" else ()))
    own += () if progress else ("--quiet",)
    if options["python"] is None and examined.VARIABLE not in os.environ:
        own += ("--python", sys.executable)  # the caller's, whatever environment is active in the terminal
    end = ("--",) if any(len(word) > 1 and word.startswith("-") for word in words) else ()
    answer, messages, status = _run((command, *own, *_options(options), *end, *words), text, progress)
    if not answer or status < 0:
        raise _error(command, options, messages, status)
    made = Report.of(codec.decode(answer, f"gpudiag {command}"))
    begins = next((at for at in range(len(made.command)) if made.command[at : at + len(own)] == own), len(made.command))
    without_own = (*made.command[:begins], *made.command[begins + len(own) :])
    return msgspec.structs.replace(made, command=without_own, notes=(*made.notes, *_caller_on_gpus(made, command)))


def _options(options: Mapping[str, object]) -> Iterator[str]:
    for name, value in options.items():
        option = _option(name)
        if value is True:
            yield option
        elif isinstance(value, tuple):
            for item in value:
                yield from (option, item)
        elif value is not None and value is not False:
            yield from (option, os.fspath(value) if isinstance(value, os.PathLike) else str(value))


def _option(name: str) -> str:
    return f"--{name.rstrip('_').replace('_', '-')}"


def _run(arguments: tuple[str, ...], text: str | None, progress: Progress | None) -> tuple[bytes, str, int]:
    """Return what the command wrote to standard output and to standard error, and its exit status.

    The status is 0 if it is lost: in a program that ignores SIGCHLD, or that reaps every child.
    """
    if not sys.executable:
        raise GpudiagError("sys.executable is empty: Python does not know its own program, and cannot start another.")
    try:
        process = subprocess.Popen(
            worker.command(_CHILD, str(os.getpid()), *arguments),
            stdin=subprocess.DEVNULL if text is None else subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={name: value for name, value in os.environ.items() if name not in _NOT_PASSED_ON},
        )
    except OSError as error:
        raise GpudiagError(f"{sys.executable} cannot be started: {shortage(error)}") from None
    except ValueError:
        raise UsageError("an argument or a variable holds a NUL character.") from None
    content = None if text is None else text.encode("utf-8", "backslashreplace")
    with process:
        try:
            return _followed(process, content, progress)
        except BaseException:
            _end(process)
            raise


def _followed(
    process: subprocess.Popen[bytes], content: bytes | None, progress: Progress | None
) -> tuple[bytes, str, int]:
    """Follow a process to its end; no thread is started for that, and ``progress`` is called by this one."""
    lines_shown = 0
    while True:
        try:
            answer, messages = process.communicate(content, None if progress is None else _TICK_S)
            is_running = False
        except subprocess.TimeoutExpired as late:
            answer, messages, is_running = b"", late.stderr or b"", True
            content = None
        text = messages.decode("utf-8", "replace")
        if progress is not None:
            lines = text.splitlines() if not is_running else text.splitlines()[: text.count("\n")]
            for line in lines[lines_shown:]:
                progress(line)
            lines_shown = len(lines)
        if not is_running:
            return answer, text, process.returncode


def _end(process: subprocess.Popen[bytes]) -> None:
    """End a command and all that it started."""
    try:
        process.terminate()
        process.communicate(timeout=_PARTING_S)
    except subprocess.TimeoutExpired:
        pass
    finally:
        process.kill()


def _error(command: str, options: Mapping[str, object], messages: str, status: int) -> GpudiagError:
    """Return the error for which there is no report; it names arguments as the function of this name has them."""
    before, _, text = messages.partition(_ERROR)
    if status < 0:
        ended = signal.Signals(-status).name if -status in {*signal.Signals} else f"signal {-status}"
        text = f"'gpudiag {command}' was ended by {ended} before it had a report. {text or before}".rstrip()
    else:
        text = (text or before).strip() or f"'gpudiag {command}' ended without a report (exit status {status})."
    text = text.replace(f"'gpudiag {command} --help'", f"help(gpudiag.{command})")
    for name in options:
        if (variable := f"GPUDIAG_{name.upper()}") not in os.environ:
            text = text.replace(f" (env var: '{variable}')", "")
    text = _OPTION.sub(lambda found: name if (name := found[1].replace("-", "_")) in options else found[0], text)
    return UsageError(text) if status == 2 else GpudiagError(text)


def _caller_on_gpus(made: Report, command: str) -> Iterator[str]:
    """Yield a note if this process, a notebook perhaps, is one of those that hold memory of a GPU."""
    held = [
        f"GPU {device.index}"
        for device in made.facts.nvml_devices
        for process in device.processes
        # Without a holder NVML counts in another pid namespace, where the number may be of another process.
        if process.pid == os.getpid() and (process.holder is not None or made.world.simulated)
    ]
    if held:
        yield printable(
            f"process {os.getpid()}, which uses {listed(held)}, is the one that called gpudiag.{command}(): what it "
            "holds of a GPU is free once it ends"
        )
