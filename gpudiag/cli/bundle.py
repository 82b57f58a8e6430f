"""`gpudiag bundle`: a zip file or a text for a bug report."""

from __future__ import annotations

import contextlib
import io
from pathlib import Path
from typing import TYPE_CHECKING

import click

from gpudiag.cli.candidates import SavedReport
from gpudiag.cli.delivery import deliver
from gpudiag.cli.help import Command
from gpudiag.cli.options import Rendering, debug_option, variable
from gpudiag.errors import UsageError
from gpudiag.text import put, say

if TYPE_CHECKING:
    from gpudiag.model.report import Report


@click.command(cls=Command)
@click.argument("options", nargs=-1, type=click.UNPROCESSED, metavar="[-- OPTIONS]")
@click.option(
    "--from",
    "report",
    type=SavedReport(path_type=Path),
    metavar="REPORT",
    help="Make it of this saved report (JSON); nothing is run.",
    **variable("BUNDLE_FROM"),
)
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Write to this file.  [default: gpudiag-bundle.zip; with --paste standard output]",
    **variable("BUNDLE_OUTPUT"),
)
@click.option(
    "--paste",
    is_flag=True,
    help="Write a text to paste into an issue instead: Markdown, at most 60,000 characters.",
    **variable("BUNDLE_PASTE"),
)
@click.option(
    "--mask/--no-mask",
    default=True,
    show_default=True,
    help="Keep only words that gpudiag knows: no names, paths, UUIDs.",
    **variable("BUNDLE_MASK"),
)
@debug_option
def bundle(*, options: tuple[str, ...], report: Path | None, output: Path | None, paste: bool, mask: bool) -> int:
    """Write a zip file for a bug report: the report, facts, logs, versions, bisection, and what was left out.

    Without --from it runs 'gpudiag check' with these OPTIONS first. It is masked unless you say --no-mask. The same
    report gives the same bytes. 'gpudiag show FILE' opens it. The exit status is 0 if it was written.
    """
    from gpudiag.model import codec
    from gpudiag.report import files
    from gpudiag.report.bundle import packed, pasted
    from gpudiag.report.masking import mask as masked

    if report is not None and options:
        raise UsageError(
            f"--from runs nothing, so these have no effect: {' '.join(options)}. Leave one of the two out."
        )
    if output is None and not paste:
        output = Path("gpudiag-bundle.zip")
    files.reserve([] if output is None else [output])
    loaded = codec.load(report) if report is not None else _checked(options, shown=output is not None)
    of = (masked(loaded), loaded) if mask else (loaded,)
    content = pasted(*of) if paste else packed(*of)
    if output is None:
        put(str(content))
    else:
        files.write(output, content)
    what = "masked" if mask else "NOT masked: look at it before you share it"
    size = f"{len(content):,} characters" if paste else f"{len(content) / 1024:.0f} KiB"
    to_open = "" if paste else f". To open it: gpudiag show {output}"
    say(f"gpudiag: {output or 'text for an issue'}: {size}, {what}{to_open}")
    return 0


def _checked(options: tuple[str, ...], *, shown: bool) -> Report:
    """Run ``gpudiag check`` and return its report; if ``shown``, the screen shows it as after a check."""
    from gpudiag.cli.check import check
    from gpudiag.model import codec

    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        check.main([*options, "--format", "json"], prog_name="gpudiag bundle --", standalone_mode=False)
    report = codec.decode(printed.getvalue(), "gpudiag check")
    if shown:
        deliver(report, Rendering())
    return report
