"""`gpudiag list` and `gpudiag explain`: the texts about probes and causes."""

from __future__ import annotations

from pathlib import Path

import click

from gpudiag.cli.delivery import page, pager_option, width
from gpudiag.cli.help import Command
from gpudiag.cli.options import debug_option, variable


@click.command(cls=Command, name="list")
@click.argument("select", nargs=-1)
@pager_option
@debug_option
def list_(select: tuple[str, ...]) -> int:
    """List the probes: name, what each needs, and what it shows."""
    from gpudiag.probes import listing

    rows = listing.listed(select)
    if rows is None:  # a probe that is not in the index yet
        from gpudiag.cli import describe

        rows = describe.listed(select)
    page(listing.text(rows, width()))
    return 0


@click.command(cls=Command)
@click.argument("name")
@click.option(
    "--report",
    type=click.Path(path_type=Path),
    help="A saved report (JSON): show what the probe measured there, or what it says of the cause.",
    **variable("REPORT"),
)
@pager_option
@debug_option
def explain(*, name: str, report: Path | None) -> int:
    """Explain the probe, the cause or the rule called NAME.

    Of a probe: what it does, why it matters, what a failure means and what to do. Of a cause that a report names: how
    it comes about, and the fix. Of a rule of gpudiag lint: what it finds, with examples. Of an expectation, such as
    expect.driver: what to write.
    """
    from gpudiag.cli import explanation

    if report is None and (explanation_in_index := explanation.indexed(name)) is not None:
        page(explanation_in_index.text(width()))
        return 0
    from gpudiag import catalogue, causes
    from gpudiag.cli import describe
    from gpudiag.errors import UsageError
    from gpudiag.model import codec, renamed
    from gpudiag.model.expectations import AREA

    saved = None if report is None else codec.load(report)
    if name.partition(".")[0] == AREA:
        from gpudiag.expectations import keys

        page(keys.explanation(name))
        return 0
    if "." not in name and (rule := causes.get(name)) is not None:
        page(describe.cause_explanation(rule, width(), saved))
        return 0
    from gpudiag.causes import messages
    from gpudiag.lint import rule as lint_rules

    if "." not in name and (lint_rule := lint_rules.get(name)) is not None:
        from gpudiag.lint import listing

        page(listing.explanation(lint_rule, width()))
        return 0
    if name in renamed.REMOVED:
        raise UsageError(f"{name} was a cause of an earlier version: {renamed.REMOVED[name]}.")
    entry = catalogue.get(name, also=[*causes.names(), *messages.all_of_them(), *lint_rules.names()])
    page(describe.explanation(entry, width(), saved))
    return 0
