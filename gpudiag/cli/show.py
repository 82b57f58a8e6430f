"""`gpudiag show` and `gpudiag schema`: a saved report, and the form of one."""

from __future__ import annotations

from pathlib import Path

import click

from gpudiag.cli.delivery import deliver, reserve
from gpudiag.cli.options import (
    as_plugin,
    debug_option,
    exit_scheme_option,
    expect_option,
    expectations,
    formatted,
    today,
    variable,
)
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
@expect_option
@exit_scheme_option
@debug_option
@click.pass_context
def show(
    context: click.Context,
    *,
    report: Path,
    format_: str,
    output: tuple[Path, ...],
    mask: bool,
    verbose: bool,
    rejudge: bool,
    expect: Path | None,
    exit_scheme: str,
) -> int:
    """Show a saved REPORT (JSON) again, in any format.

    Needs neither TensorFlow nor a GPU. The exit status is 0 if that worked, whatever the verdict is; with --expect or
    --exit-scheme it is that of the report, as of 'gpudiag check'.
    """
    from gpudiag.model import codec

    expected = expectations(expect)
    loaded = codec.load(report)
    if rejudge:
        from gpudiag.run import rejudging

        loaded = rejudging.rejudge_apart(loaded)
    if expected is None and rejudge and loaded.expected is not None:
        from gpudiag.expectations.file import again

        expected = again(loaded.expected)
    if expected is not None:
        from gpudiag.expectations.judging import judged

        loaded = judged(loaded, expected, today())
    plugin, format_ = as_plugin(context, exit_scheme, format_)
    reserve(output)
    deliver(loaded, format_, output, mask=mask, verbose=verbose)
    if plugin:
        from gpudiag.report.formats import nagios

        return nagios.status(loaded)
    return loaded.exit_code if expect is not None else 0


@click.command()
@debug_option
def schema() -> int:
    """Print the JSON Schema of a report."""
    from gpudiag.model import codec

    put(codec.schema_text(), "json")
    return 0
