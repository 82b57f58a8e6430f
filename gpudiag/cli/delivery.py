"""Writes a report to files, and to standard output in the width of the terminal."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

import click

from gpudiag.errors import OutputError
from gpudiag.text import encoded, one_line, plain, put, say

if TYPE_CHECKING:
    from gpudiag.cli.options import Rendering

MOST_COLUMNS = 1000
"""The widest output, whatever ``COLUMNS`` says."""


def discard_output() -> None:
    """Discard the buffer of standard output: Python would try to write it at exit, and complain."""
    if sys.stdout is not None:
        with Path(os.devnull).open("wb") as null:
            os.dup2(null.fileno(), sys.stdout.fileno())


def reserve(output: tuple[Path, ...]) -> None:
    """Refuse, before anything runs, a file that cannot be written."""
    if output:
        from gpudiag.report.files import reserve

        reserve(output)


def deliver(report: Any, rendering: Rendering, *, head: bool = False, quiet: bool = False) -> None:
    """Write the report to every file and to standard output; a file that cannot be written does not stop the others.

    Unless ``quiet``, standard error says which files were written.
    """
    from gpudiag import report as formats
    from gpudiag.report.files import is_termination_message, write

    verbose = rendering.verbose
    if rendering.mask:
        from gpudiag.report.masking import mask as masked

        report = masked(report)
    failures = []
    for path in rendering.output:
        try:
            if is_termination_message(path):
                from gpudiag.fleet.digest import digest

                text = digest(report)
            else:
                text = formats.render(
                    report, formats.format_of(path), width=80, color=False, verbose=verbose, head=head
                )
            write(path, text)
            if not quiet:
                say(f"gpudiag: report written to {path}")
        except Exception as error:  # a fault of one renderer, too, must not cost the other files
            failures.append(str(error) if isinstance(error, OutputError) else f"{path}: {_fault(error)}")
    color = in_color()
    try:
        text = formats.render(report, rendering.format, width=width(), color=color, verbose=verbose, head=head)
        put(text, rendering.format, color=color and rendering.format in ("summary", "table"))
    except BrokenPipeError:  # nobody wants to read it, which is not a fault
        discard_output()
    except OSError as error:
        discard_output()
        failures.append(f"standard output: cannot be written: {error.strerror or error}.")
    except Exception as error:
        failures.append(f"standard output: {_fault(error)}")
    if failures:
        raise OutputError("\ngpudiag: error: ".join(failures))


SUMMARY = "GITHUB_STEP_SUMMARY"
_LARGEST_SUMMARY = 1_000_000
"""The most bytes of a summary; GitHub shows none of a larger one than 1 MiB."""


def summarize(report: Any, *, mask: bool) -> None:
    """Add the report to the step summary of GitHub Actions, if there is one; a note tells why that failed."""
    file = os.environ.get(SUMMARY)
    if not file:
        return
    from gpudiag.report import render
    from gpudiag.report.masking import mask as masked

    try:
        text = render(masked(report) if mask else report, "markdown", width=80, color=False)
        if len(text.encode()) > _LARGEST_SUMMARY:
            head = text.encode()[:_LARGEST_SUMMARY].decode(errors="ignore").rpartition("\n")[0]
            text = f"{head}\n\nThe rest is left out: a summary has at most 1 MiB.\n"
        with Path(file).open("a", encoding="utf-8") as stream:
            stream.write(text)
    except OSError as error:
        say(f"gpudiag: note: {SUMMARY}={file}: cannot be written: {error.strerror or error}")
    except Exception as error:  # nobody asked for it: it must not cost the report
        say(f"gpudiag: note: {SUMMARY}={file}: {_fault(error)}")


def _fault(error: Exception) -> str:
    return one_line(f"cannot be written: {type(error).__name__}: {error!a}. This is a bug in gpudiag.")


def width() -> int:
    """Return the columns of the terminal, or 80 if standard output is not one."""
    if not on_terminal():
        return 80
    import shutil

    return min(shutil.get_terminal_size().columns, MOST_COLUMNS)


def on_terminal() -> bool:
    return sys.stdout is not None and sys.stdout.isatty()


def in_color(stream: TextIO | None = None) -> bool:
    """Return whether a stream, by default standard output, gets colours.

    The order is that of https://force-color.org, https://no-color.org and https://bixense.com/clicolors: FORCE_COLOR,
    NO_COLOR, CLICOLOR_FORCE, CLICOLOR, and then whether the stream is a terminal that has colours.
    """
    stream = stream or sys.stdout
    if os.environ.get("FORCE_COLOR"):
        return True
    if os.environ.get("NO_COLOR"):
        return False
    if os.environ.get("CLICOLOR_FORCE", "0") not in {"", "0"}:
        return True
    if os.environ.get("CLICOLOR") == "0" or os.environ.get("TERM") == "dumb":
        return False
    return stream is not None and stream.isatty()


_NO_PAGER = "gpudiag.no-pager"


def _note_pager(context: click.Context, _: click.Parameter, is_off: bool) -> None:
    context.meta[_NO_PAGER] = is_off


pager_option = click.option(
    "--no-pager",
    is_flag=True,
    expose_value=False,
    callback=_note_pager,
    help="Write long text to a terminal at once, not through the pager (PAGER, or less).",
    envvar="GPUDIAG_NO_PAGER",
    show_envvar=True,
)


def page(text: str, *, color: bool = False) -> None:
    """Write a text to standard output; to a terminal that is too low for it through the user's pager."""
    command = _pager(text)
    if command is None:
        put(text, color=color)
        return
    import signal
    import subprocess

    # The terminal sends Ctrl-C to the pager, too, which decides what it does. A handler is not inherited.
    on_interrupt = signal.signal(signal.SIGINT, lambda *_: None)
    try:
        process = subprocess.Popen(command, stdin=-1, env={"LESS": "FRX", "LV": "-c", **os.environ})
        process.communicate(encoded(text if color else plain(text), sys.stdout))
    except OSError:
        put(text, color=color)
    finally:
        signal.signal(signal.SIGINT, on_interrupt)


def _pager(text: str) -> list[str] | None:
    """Return the command of the pager, or None if the text needs none."""
    context = click.get_current_context(silent=True)
    if context is not None and context.meta.get(_NO_PAGER):
        return None
    if not on_terminal() or sys.stdin is None or not sys.stdin.isatty() or os.environ.get("TERM") == "dumb":
        return None
    import shlex
    import shutil

    if text.count("\n") < shutil.get_terminal_size().lines:
        return None
    try:
        command = shlex.split(os.environ.get("PAGER", "less"))
    except ValueError:  # a quotation mark that is not closed
        return None
    return command if command and command[0] != "cat" and shutil.which(command[0]) else None
