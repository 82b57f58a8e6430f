"""`gpudiag expect`: writes a deployment's expectations of its machines, from the report of a good one."""

from __future__ import annotations

from pathlib import Path

import click

from gpudiag.cli.candidates import SavedReport
from gpudiag.cli.help import Command
from gpudiag.cli.options import debug_option, variable
from gpudiag.text import put, say


@click.command(cls=Command)
@click.option(
    "--from",
    "report",
    type=SavedReport(path_type=Path),
    required=True,
    metavar="REPORT",
    help="The saved report (JSON) of a good machine, with the verdict PASS.",
    **variable("EXPECT_FROM"),
)
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Write to this file, not to standard output.",
    **variable("EXPECT_OUTPUT"),
)
@debug_option
def expect(*, report: Path, output: Path | None) -> int:
    """Write what the machine of a saved report is, as expectations for others like it (TOML, with comments).

    'gpudiag check --expect FILE' compares a machine with it. A report without PASS is refused.
    """
    from gpudiag.expectations.writing import from_report
    from gpudiag.model import codec
    from gpudiag.report import files, words

    loaded = codec.load(report)
    text = from_report(loaded, str(report))
    if simulation := words.simulation(loaded):
        say(f"gpudiag: note: {simulation}")
    if output is None:
        put(text)
    else:
        files.reserve([output])
        files.write(output, text)
    return 0
