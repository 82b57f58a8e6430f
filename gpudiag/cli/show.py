"""`gpudiag show` and `gpudiag schema`: a saved report, and the schema of reports."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import click

from gpudiag.cli.binding import takes
from gpudiag.cli.candidates import SavedReport
from gpudiag.cli.delivery import deliver, reserve
from gpudiag.cli.help import Command
from gpudiag.cli.options import (
    Judging,
    Rendering,
    as_plugin,
    debug_option,
    exit_status,
    expectations,
    today,
)
from gpudiag.errors import UsageError
from gpudiag.option import option
from gpudiag.text import put


@dataclass(frozen=True)
class Shown:
    """The report that is shown, if no file is named."""

    TITLE: ClassVar[str] = "Report"

    last: bool = option("Show the last run of 'gpudiag check' on this machine, instead of a file.", default=False)


@dataclass(frozen=True)
class Again:
    """The changes made to a saved report before it is shown."""

    TITLE: ClassVar[str] = "Verdict and exit status"

    rejudge: bool = option("Judge its readings again, by the probes and causes of this gpudiag.", default=False)


@click.command(cls=Command)
@click.argument("report", type=SavedReport(path_type=Path), required=False)
@takes(shown=Shown, rendering=Rendering, again=Again, judging=Judging)
@debug_option
@click.pass_context
def show(
    context: click.Context, *, report: Path | None, shown: Shown, rendering: Rendering, again: Again, judging: Judging
) -> int:
    """Show a saved REPORT (JSON) again, or the last run, in any format.

    Needs neither TensorFlow nor a GPU. The exit status is 0 if that worked, whatever the verdict is; with --expect or
    --exit-scheme it is that of the report, as of 'gpudiag check'.
    """
    from gpudiag.model import codec

    expected = expectations(judging.expect)
    if (report is None) is not shown.last:
        raise UsageError(
            "one report is needed: name a saved report (JSON), or write --last for the last run of 'gpudiag check' "
            "on this machine."
        )
    if report is None:
        from gpudiag.comparison import kept

        loaded = kept.newest_run()
    else:
        loaded = codec.load(report)
    if again.rejudge:
        from gpudiag.run import rejudging

        loaded = rejudging.rejudge_apart(loaded)
    if expected is None and again.rejudge and loaded.expected is not None:
        from gpudiag.expectations import file

        expected = file.again(loaded.expected)
    if expected is not None:
        from gpudiag.expectations.judging import judged

        loaded = judged(loaded, expected, today())
    plugin, rendering = as_plugin(context, judging, rendering)
    reserve(rendering.output)
    deliver(loaded, rendering)
    return exit_status(loaded, plugin=plugin) if plugin or judging.expect is not None else 0


@click.command(cls=Command)
@click.argument("kind", type=click.Choice(("report", "fleet")), default="report")
@debug_option
def schema(*, kind: str) -> int:
    """Print the JSON Schema of a report, or of that of a fleet: gpudiag schema fleet"""
    from gpudiag.model import codec

    put(codec.schema_text(kind), "json")
    return 0
