"""`gpudiag list` and `gpudiag explain`: the texts about whatever has a name."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import click

from gpudiag.cli import candidates
from gpudiag.cli.binding import takes
from gpudiag.cli.candidates import SavedReport, Word
from gpudiag.cli.delivery import on_terminal, page, pager_option, width
from gpudiag.cli.help import Command
from gpudiag.cli.options import debug_option, variable
from gpudiag.errors import UsageError, nearest, sentences
from gpudiag.option import option
from gpudiag.probes import listing


@dataclass(frozen=True)
class Listing:
    """How the probes are listed."""

    TITLE: ClassVar[str] = "Output"

    format: str | None = option(
        "tsv: a line for each probe, with its name, level, needs and summary between tabs; names: the names alone. "
        "[default: table on a terminal, tsv elsewhere]",
        choices=listing.FORMATS,
    )


@click.command(cls=Command, name="list")
@click.argument("select", nargs=-1, type=Word(candidates.probes))
@takes("LIST_", how=Listing)
@pager_option
@debug_option
def list_(*, select: tuple[str, ...], how: Listing) -> int:
    """List the probes: name, level, what each needs, and what it shows.

    SELECT are areas (placement), probes (memory.growth) or globs ('*.list_*'); none means all.
    """
    rows = listing.listed(select)
    if rows is None:  # a probe that is not in the index yet
        from gpudiag.cli import describe

        rows = describe.listed(select)
    kind = how.format or ("table" if on_terminal() else "tsv")
    page(listing.text(rows, width(), kind))
    return 0


@click.command(cls=Command)
@click.argument("name", nargs=-1, type=Word(candidates.explained))
@click.option(
    "--report",
    type=SavedReport(path_type=Path),
    help="A saved report (JSON): show what the probe measured there, or what it says of the cause.",
    **variable("REPORT"),
)
@pager_option
@debug_option
def explain(*, name: tuple[str, ...], report: Path | None) -> int:
    """Explain the probe, cause, rule, expectation or message called NAME, or list those that NAME is about.

    Of a probe: what it does, why it matters, what a failure means and what to do. Of a cause that a report names: how
    it comes about, and the fix. Of a rule of gpudiag lint: what it finds, with examples. Of an expectation, such as
    expect.driver: what to write.

    An area or a stage (memory), a kind (rules), a word (growth) or a pattern ('mask_*') gives a list; without NAME all
    areas and stages are listed.
    """
    from gpudiag.cli import explainable, explanation

    topic = " ".join(name)
    found = explanation.indexed(topic)
    everything = [] if found else explanation.read()
    matches = explainable.matching(everything, topic)
    if found is None and not matches and (topic or not everything):  # no index, or a former name
        from gpudiag.cli import describe

        if (found := describe.find(topic)) is None:
            everything = everything or describe.explanations()
            matches = explainable.matching(everything, topic)
    if found is not None:
        text = found.text(width())
        if report is not None:
            from gpudiag.cli import describe
            from gpudiag.model import codec

            text += describe.in_report(found, codec.load(report), width())
    elif not topic:
        text = explainable.overview(everything, width())
    elif matches:
        text = explainable.table(matches, width())
    else:
        raise _unknown(topic, [explanation.name for explanation in everything], explainable.topics(everything))
    page(text)
    return 0


def _unknown(topic: str, names: Iterable[str], topics: Iterable[str]) -> UsageError:
    """Return the error for a topic that nothing is about."""
    from gpudiag.model import renamed

    if topic in renamed.REMOVED:
        return UsageError(f"{topic} was a cause of an earlier version: {renamed.REMOVED[topic]}.")
    near = nearest(topic, [*names, *topics])
    return UsageError(sentences(f"nothing that can be explained is called {topic!r}.", near, "See 'gpudiag explain'."))
