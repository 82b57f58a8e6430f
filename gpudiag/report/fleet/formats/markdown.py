"""Markdown of a fleet's report, as GitHub reads it: groups of nodes, what they have in common, and what to do."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from gpudiag.model.fleet import FactChange, FleetReport
from gpudiag.report.fleet import together, words
from gpudiag.report.formats.markdown import code, escaped_text, page
from gpudiag.text import counted, one_line

SUFFIX = ".md"
_MOST = 100
"""The most rows of a table: GitHub shows no summary of a job above 1 MiB."""
_MOST_NODES = 300
"""The most characters of folded names."""
_MOST_TEXT = 300


def render(report: FleetReport, **_: object) -> str:
    """Return the report as GitHub-flavoured Markdown."""
    simulation = words.simulation(report)
    blocks = [
        f"# {_text(words.counts(report))}",
        f"> **{_text(simulation)}**" if simulation else "",
        _text(f"{words.title(report)}, {report.origin}, {report.made_at}"),
        "\n".join(f"- {_text(note)}" for note in report.notes),
        *_expectations(report),
        *_together(report),
        *_groups(report),
        *_actions(report),
        *_outliers(report),
        *_drift(report),
        *_changes(report),
        *_last_lines(report),
    ]
    return page(filter(None, blocks))


def _text(text: str) -> str:
    line = one_line(text)
    return escaped_text(line if len(line) <= _MOST_TEXT else f"{line[:_MOST_TEXT]}...")


def _nodes(nodes: str) -> str:
    return escaped_text(words.shortened(nodes, _MOST_NODES))


def _table(headers: Sequence[str], rows: Iterable[Sequence[str]], *, number: int) -> str:
    """Return a table whose column ``number`` is aligned to the right, with a line that says how many rows are left
    out."""
    from tabulate import tabulate

    cells = list(rows)
    alignment = ["right" if column == number else "left" for column in range(len(headers))]
    table = tabulate(cells[:_MOST], headers, tablefmt="github", colalign=alignment, disable_numparse=True)
    rest = len(cells) - _MOST
    return f"{table}\n\nand {rest:,} more in the JSON" if rest > 0 else table


def _expectations(report: FleetReport) -> Iterator[str]:
    if report.expected_by:
        yield f"## Expectations of {code(report.expected_by)}"
        lines = [
            *(f"- **unmet** {_text(text)}" for text in report.unmet),
            *(f"- met: {_text(text)}" for text in report.met),
        ]
        yield "\n".join(lines)


def _together(report: FleetReport) -> Iterator[str]:
    """Yield whether the nodes train together, and who keeps them from it."""
    if report.together is None:
        return
    yield "## Together"
    yield _text(f"{report.together.verdict}: {report.together.text}")
    lines = []
    for blame in report.together.blames[:_MOST]:
        nodes = " - ".join(blame.nodes)
        lines.append(f"- **{_text(f'{nodes}: {blame.why}')}**")
        lines += [f"  - {_text(line)}" for line in blame.evidence[:_MOST]]
        lines += [f"  - {together.title(action)}: {_text(together.words(action))}" for action in blame.fix]
    lines += [f"- {_text(note)}" for note in report.together.notes[:_MOST]]
    if lines:
        yield "\n".join(lines)


def _groups(report: FleetReport) -> Iterator[str]:
    yield "## Nodes"
    yield _table(
        ("verdict", "number", "nodes", "cause or reason", "of one of them"),
        (
            (group.verdict.value, f"{group.number:,}", _nodes(group.nodes), _text(group.label), _text(group.text))
            for group in report.groups
        ),
        number=1,
    )
    if report.separations:
        yield "## In common"
        yield "\n".join(
            f"- {code(found.label)}: {_text(words.in_common(found))}" for found in report.separations[:_MOST]
        )


def _actions(report: FleetReport) -> Iterator[str]:
    """Yield the actions as a list: in a table a command could not have every character."""
    if report.actions:
        yield "## To do"
        yield "\n".join(
            f"- {_text(words.action(asked))}: {counted(asked.number, 'node', ',')}, {_nodes(asked.nodes)}"
            + "".join(f"\n  - {_command(*line)}" for line in words.texts(asked))
            for asked in report.actions[:_MOST]
        )


def _command(text: str, is_command: bool, nodes: str) -> str:
    return f"{code(text) if is_command else _text(text)}{f' on {nodes}' if nodes else ''}"


def _outliers(report: FleetReport) -> Iterator[str]:
    if report.outliers:
        yield "## Odd figures"
        yield _table(
            ("node", "GPU", "figure", "value", "of its model", "model"),
            (
                (
                    _text(odd.node),
                    str(odd.gpu),
                    _text(odd.figure),
                    _text(words.odd_value(odd)),
                    _text(words.deviation(odd)),
                    _text(odd.model),
                )
                for odd in report.outliers
            ),
            number=1,
        )


def _drift(report: FleetReport) -> Iterator[str]:
    if report.drift:
        yield "## Drift"
        yield _table(
            ("fact", "most nodes", "number", "others"),
            (
                (
                    _text(" ".join(filter(None, (differing.fact, words.drift_beside(differing))))),
                    _text(words.value(differing.majority)),
                    f"{differing.number:,}",
                    "; ".join(
                        f"{_text(value)} on {number:,}{f' ({_nodes(nodes)})' if nodes else ''}"
                        for value, nodes, number in words.drift_values(differing)
                    ),
                )
                for differing in report.drift
            ),
            number=2,
        )


def _changes(report: FleetReport) -> Iterator[str]:
    if not report.against:
        return
    yield f"## Changed since {code(report.against)}"
    lines = [f"- {_text(words.fact_change(change))}{_kept(change)}" for change in report.fact_changes[:_MOST]]
    lines += [
        f"- {'**worse** ' if change.worse else ''}{_text(words.figure_change(change))}"
        for change in report.figure_changes[:_MOST]
    ]
    if lines:
        yield "\n".join(lines)
    if report.changes:
        yield _table(
            ("", "number", "before", "now", "nodes"),
            (
                (
                    "**worse**" if change.worse else "",
                    f"{change.number:,}",
                    _text(change.old),
                    _text(change.new),
                    _nodes(change.nodes),
                )
                for change in report.changes
            ),
            number=1,
        )
    elif not lines:
        yield "Nothing changed."


def _kept(change: FactChange) -> str:
    return f"; still the old value on {change.kept_number:,}: {_nodes(change.kept)}" if change.kept_number else ""


def _last_lines(report: FleetReport) -> Iterator[str]:
    """Yield what was seen last of the nodes without a report."""
    if rows := words.with_last_lines(report):
        yield "## No report"
        yield _table(
            ("node", "reason", "last line"),
            ((_text(row.node), _text(row.label), _text(row.text)) for row in rows),
            number=-1,
        )
