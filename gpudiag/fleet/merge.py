"""Merges what the nodes answered into one report of the fleet. It reads files only, one answer at a time."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timezone

import msgspec

import gpudiag
from gpudiag.fleet import actions, comparing, drift, expecting, outliers, separation
from gpudiag.fleet.expecting import FleetExpectations
from gpudiag.fleet.folder import ANSWERS
from gpudiag.fleet.names import fold
from gpudiag.fleet.nodes import NodeTable
from gpudiag.fleet.sources import Source
from gpudiag.fleet.together import blame
from gpudiag.model.fleet import SCHEMA_VERSION, FleetReport, Group, NodeRow, NodeVerdict, NoReport
from gpudiag.model.together import Together
from gpudiag.text import counted

_ORDER = list(NodeVerdict)


def merged(
    source: Source,
    *,
    against: Source | None = None,
    allow_missing: int = 0,
    expected: FleetExpectations | None = None,
) -> FleetReport:
    """Return the report of a fleet: a row for every node that was asked for, and what the rows have in common.

    ``against`` is an older run, ``allow_missing`` how many nodes may lack a report before the exit status says so, and
    ``expected`` what the fleet must be.
    """
    table = NodeTable.of(source)
    before = None if against is None else NodeTable.of(against)
    rows = table.rows()
    counts = Counter(row.verdict for row in rows)
    trained = None
    if source.task is not None and NoReport.INTERRUPTED in {row.reason for row in rows}:
        trained = Together("NOT VERIFIED", "the collector was stopped before all had answered", source.task.places)
    elif source.task is not None:
        missing = {row.node: row.text or row.label for row in rows if row.node not in table.witnesses}
        trained = blame.together(source.task, table.witnesses, missing)
    odd, groups_of_gpus = outliers.outliers(table)
    report = FleetReport(
        schema_version=SCHEMA_VERSION,
        gpudiag_version=gpudiag.__version__,
        made_at=datetime.now(timezone.utc).isoformat(timespec="seconds"),
        origin=source.origin,
        asked=len(rows),
        counts={verdict.value: counts[verdict] for verdict in _ORDER if counts[verdict]},
        groups=groups(rows),
        rows=rows,
        exit_code=1 if trained is not None and trained.blames else exit_code(counts, allow_missing),
        engine=source.engine,
        run=source.run,
        separations=separation.separations(table),
        outliers=odd,
        drift=drift.drift(table),
        actions=actions.summed(table),
        against="" if against is None else against.origin,
        changes=() if before is None else comparing.changes(before, table),
        fact_changes=() if before is None else comparing.fact_changes(before, table),
        figure_changes=() if before is None else comparing.figure_changes(before, table),
        racks=dict(source.racks),
        simulated=sum(row.simulated for row in rows),
        together=trained,
    )
    uncompared = () if before is None else comparing.notes(before, table)
    notes = (*groups_of_gpus, *uncompared, *_notes(report), *_notes_of_run(source, rows))
    report = msgspec.structs.replace(report, notes=notes)
    if expected is None:
        return report
    met, unmet = expecting.judge(report, table, expected)
    left = {verdict: number for verdict, number in counts.items() if verdict not in expecting.allowed(expected)}
    status = 1 if unmet or (trained is not None and trained.blames) else exit_code(left, allow_missing)
    return msgspec.structs.replace(report, expected_by=expected.source, met=met, unmet=unmet, exit_code=status)


def _notes(report: FleetReport) -> tuple[str, ...]:
    """Return which lists of a report are as long as they may be."""
    lists = (
        ("odd GPUs", report.outliers, outliers.MOST),
        ("facts in which nodes differ", report.drift, drift.MOST),
        ("facts that changed", report.fact_changes, comparing.MOST_FACTS),
    )
    return tuple(f"{most:,} {what} are listed; there may be more" for what, items, most in lists if len(items) >= most)


def _notes_of_run(source: Source, rows: Sequence[NodeRow]) -> Iterator[str]:
    """Yield what is wrong with the folder of a run, and how to go on with a run that was stopped."""
    folder = source.folder
    if folder is None:
        return
    if folder.unread:
        yield f"{counted(folder.unread, 'line')} of {folder.path / ANSWERS} cannot be read as an answer"
    unasked = (NoReport.INTERRUPTED, NoReport.NO_ANSWER)  # no answer and no text: nobody asked yet
    left = sum(row.reason in unasked and not (row.reason is NoReport.NO_ANSWER and row.text) for row in rows)
    missing = sum(row.reason is not None for row in rows)
    if missing and source.task is None:
        what = f"{counted(left, 'node', ',')} left to ask; go on" if left else "ask the nodes without a report again"
        yield f"{what}: gpudiag fleet check --resume {shlex.quote(str(folder.path))}"


def groups(rows: Iterable[NodeRow]) -> tuple[Group, ...]:
    """Return nodes with the same verdict for the same reason, the worst verdict and the largest group first."""
    rows_of_group: dict[tuple[NodeVerdict, str], list[NodeRow]] = {}
    for row in rows:
        rows_of_group.setdefault((row.verdict, row.label), []).append(row)
    ordered = sorted(rows_of_group.items(), key=lambda item: (_ORDER.index(item[0][0]), -len(item[1]), item[0][1]))
    return tuple(
        Group(verdict, label, fold(row.node for row in same), len(same), same[0].text)
        for (verdict, label), same in ordered
    )


def exit_code(counts: Mapping[NodeVerdict, int], allow_missing: int) -> int:
    """Return the exit status: 1 if a node failed, 3 if a check broke, 5 if one was not verified or too many have no
    report, else 0."""
    if counts.get(NodeVerdict.FAIL, 0) or counts.get(NodeVerdict.FLAKY, 0):
        return 1
    if counts.get(NodeVerdict.BROKEN, 0):
        return 3
    missing = counts.get(NodeVerdict.NO_REPORT, 0)
    if counts.get(NodeVerdict.NOT_VERIFIED, 0) or missing > allow_missing or not counts.get(NodeVerdict.PASS, 0):
        return 5
    return 0
