"""`gpudiag show` and `gpudiag schema`: a saved report, and the form of one."""

from __future__ import annotations

from pathlib import Path

import click

from gpudiag.cli.delivery import deliver, reserve
from gpudiag.cli.options import debug_option, expect_option, expectations, formatted, today, variable
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
@debug_option
def show(
    *,
    report: Path,
    format_: str,
    output: tuple[Path, ...],
    mask: bool,
    verbose: bool,
    rejudge: bool,
    expect: Path | None,
) -> int:
    """Show a saved REPORT (JSON) again, in any format.

    Needs neither TensorFlow nor a GPU. The exit status is 0 if that worked, whatever the verdict is; with --expect it
    is that of the report, as of 'gpudiag check'.
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
    reserve(output)
    deliver(loaded, format_, output, mask=mask, verbose=verbose)
    return loaded.exit_code if expect is not None else 0


@click.command()
@debug_option
def schema() -> int:
    """Print the JSON Schema of a report."""
    from gpudiag.model import codec

    put(codec.schema_text(), "json")
    return 0
