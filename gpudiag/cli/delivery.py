"""Writes a report to files, and to standard output in the width of the terminal."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gpudiag.errors import OutputError
from gpudiag.text import one_line, put, say

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


def deliver(report: Any, rendering: Rendering, *, head: bool = False) -> None:
    """Write the report to every file and to standard output; a file that cannot be written does not stop the others."""
    from gpudiag import report as formats
    from gpudiag.report.files import write

    verbose = rendering.verbose
    if rendering.mask:
        from gpudiag.report.masking import mask as masked

        report = masked(report)
    failures = []
    for path in rendering.output:
        try:
            text = formats.render(report, formats.format_of(path), width=80, color=False, verbose=verbose, head=head)
            write(path, text)
        except Exception as error:  # a fault of one renderer, too, must not cost the other files
            failures.append(str(error) if isinstance(error, OutputError) else f"{path}: {_fault(error)}")
    color = in_color()
    try:
        text = formats.render(report, rendering.format, width=width(), color=color, verbose=verbose, head=head)
        put(text, rendering.format, color=color and rendering.format == "table")
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


def in_color() -> bool:
    return on_terminal() and "NO_COLOR" not in os.environ and os.environ.get("TERM") != "dumb"
