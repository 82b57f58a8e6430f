"""`gpudiag diff`: the differences between two reports."""

from __future__ import annotations

from pathlib import Path

import click

from gpudiag.cli.candidates import SavedReport
from gpudiag.cli.delivery import in_color, reserve, width
from gpudiag.cli.help import Command
from gpudiag.cli.options import ReportFile, debug_option, variable
from gpudiag.text import put, say


@click.command(cls=Command)
@click.argument("old", type=SavedReport(path_type=Path))
@click.argument("new", type=SavedReport(path_type=Path))
@click.option(
    "--format",
    "format_",
    type=click.Choice(("table", "json", "markdown", "html")),
    default="table",
    show_default=True,
    help="Format on standard output.",
    **variable("FORMAT"),
)
@click.option(
    "-o",
    "--output",
    type=ReportFile(),
    multiple=True,
    help="Write the comparison to a file as well; format by suffix: .txt .json .md .html. May be repeated.",
    **variable("OUTPUT"),
)
@debug_option
def diff(*, old: Path, new: Path, format_: str, output: tuple[Path, ...]) -> int:
    """Say what changed from the saved report OLD to NEW.

    Changes of what was found come first, then those of the machine. It got worse if the verdict or an outcome is worse,
    if there is a new cause or a new finding of severity warning or fail, or if a GPU is no longer in scope. What a
    masked report does not say is not a change. Needs neither TensorFlow nor a GPU.

    Exit status: 0 nothing got worse, 1 something got worse, 2 wrong usage.
    """
    from gpudiag.comparison import reports
    from gpudiag.report import comparison
    from gpudiag.report.files import write

    formats = [comparison.format_of(path) for path in output]
    found = reports.compare(reports.ComparedReport.load(old), reports.ComparedReport.load(new))
    reserve(output)
    for path, format_of_file in zip(output, formats, strict=True):
        write(path, comparison.render(found, format_of_file, width=80, color=False))
        say(f"gpudiag: comparison written to {path}")
    color = in_color() and format_ == "table"
    put(comparison.render(found, format_, width=width(), color=color), format_, color=color)
    return 1 if found.worse else 0
