"""`gpudiag show` and `gpudiag schema`: a saved report, and the form of one."""

from __future__ import annotations

from pathlib import Path

import click

from gpudiag.cli.delivery import deliver, reserve
from gpudiag.cli.options import debug_option, formatted, variable
from gpudiag.text import put


@click.command()
@click.argument("report", type=click.Path(path_type=Path))
@formatted
@click.option(
    "--rejudge",
    is_flag=True,
    help="Judge its readings again, by the probes and causes of this gpudiag.",
    **variable("REJUDGE"),
)
@debug_option
def show(*, report: Path, format_: str, output: tuple[Path, ...], mask: bool, verbose: bool, rejudge: bool) -> int:
    """Show a saved REPORT (JSON) again, in any format.

    Needs neither TensorFlow nor a GPU. The exit status is 0 if that worked, whatever the verdict is.
    """
    from gpudiag.model import codec

    loaded = codec.load(report)
    if rejudge:
        from gpudiag.run import rejudging

        loaded = rejudging.rejudge_apart(loaded)
    reserve(output)
    deliver(loaded, format_, output, mask=mask, verbose=verbose)
    return 0


@click.command()
@debug_option
def schema() -> int:
    """Print the JSON Schema of a report."""
    from gpudiag.model import codec

    put(codec.schema_text(), "json")
    return 0
