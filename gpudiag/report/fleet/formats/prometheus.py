"""Metrics of a fleet in the text format of Prometheus (0.0.4).

No series is one node's: a fleet's nodes fail and recover, and each name would be a new series. The number of series is
bounded by the catalogue of causes; what a report says beyond :data:`MOST` is summed up as ``other``.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import datetime

from gpudiag.model.fleet import FleetReport, NodeVerdict, NoReport
from gpudiag.report.formats.prometheus import Metric, Sample, written
from gpudiag.text import one_line

SUFFIX = ".prom"
MOST = 200
"""The most series of a metric whose labels come from reports."""
_OTHER = "other"


def render(report: FleetReport, **_: object) -> str:
    """Return the metrics; a metric without samples in the report is left out."""
    return written(METRICS, report)


def _of(value: Callable[[FleetReport], float]) -> Callable[[FleetReport], Iterator[Sample]]:
    return lambda report: iter([({}, float(value(report)))])


def _summed(samples: Iterator[tuple[dict[str, str], int]]) -> Iterator[Sample]:
    """Yield one sample for each set of labels, the largest :data:`MOST`, and one for the rest."""
    numbers: Counter[tuple[tuple[str, str], ...]] = Counter()
    for labels, number in samples:
        numbers[tuple((name, one_line(label)) for name, label in labels.items())] += number
    ranked = numbers.most_common()
    yield from ((dict(labels), number) for labels, number in ranked[:MOST])
    if rest := ranked[MOST:]:
        yield {name: _OTHER for name, _ in rest[0][0]}, sum(number for _, number in rest)


def _verdicts(report: FleetReport) -> Iterator[Sample]:
    for verdict in NodeVerdict:
        yield {"verdict": verdict.value}, report.counts.get(verdict.value, 0)


def _reasons(report: FleetReport) -> Iterator[Sample]:
    numbers = Counter(row.reason for row in report.rows)
    for reason in NoReport:
        yield {"reason": reason.value}, numbers[reason]


def _causes(report: FleetReport) -> Iterator[Sample]:
    without = (NodeVerdict.PASS, NodeVerdict.NO_REPORT)
    return _summed(
        ({"verdict": group.verdict.value, "cause": group.label}, group.number)
        for group in report.groups
        if group.verdict not in without
    )


def _together(report: FleetReport) -> Iterator[Sample]:
    if report.together is not None:
        for verdict in ("PASS", "FAIL", "NOT VERIFIED"):
            yield {"verdict": verdict}, report.together.verdict == verdict


def _made_at(report: FleetReport) -> Iterator[Sample]:
    with contextlib.suppress(ValueError):
        yield {}, datetime.fromisoformat(report.made_at).timestamp()


METRICS: tuple[Metric[FleetReport], ...] = (
    Metric(
        "gpudiag_fleet_info",
        "The gpudiag that merged the reports, and the engine that carried the checks",
        lambda report: iter([({"version": report.gpudiag_version, "engine": report.engine}, 1)]),
        ("version", "engine"),
    ),
    Metric("gpudiag_fleet_exit_status", "Exit status of the merge", _of(lambda report: report.exit_code)),
    Metric("gpudiag_fleet_merge_timestamp_seconds", "When the reports were merged, Unix time", _made_at),
    Metric("gpudiag_fleet_asked_nodes", "Nodes that were asked for", _of(lambda report: report.asked)),
    Metric("gpudiag_fleet_simulated_nodes", "Nodes whose GPUs are simulated", _of(lambda report: report.simulated)),
    Metric("gpudiag_fleet_nodes", "Nodes by verdict", _verdicts, ("verdict",)),
    Metric("gpudiag_fleet_no_report_nodes", "Nodes without a report by reason", _reasons, ("reason",)),
    Metric(
        "gpudiag_fleet_cause_nodes",
        "Nodes by verdict and first cause or finding",
        _causes,
        ("verdict", "cause"),
    ),
    Metric("gpudiag_fleet_together", "1 for the verdict of nodes that train together", _together, ("verdict",)),
    Metric(
        "gpudiag_fleet_outliers",
        "Figures of GPUs that are far from those of other GPUs of their model, by figure",
        lambda report: _summed(({"figure": odd.figure}, 1) for odd in report.outliers),
        ("figure",),
    ),
    Metric(
        "gpudiag_fleet_drift_nodes",
        "Nodes in which a fact differs from the majority",
        lambda report: _summed(
            ({"fact": differing.fact}, sum(number for _, _, number in differing.others)) for differing in report.drift
        ),
        ("fact",),
    ),
    Metric(
        "gpudiag_fleet_actions",
        "Actions that nodes need, by kind and by the place where they are done",
        lambda report: _summed(({"kind": asked.kind, "where": asked.where}, asked.number) for asked in report.actions),
        ("kind", "where"),
    ),
    Metric("gpudiag_fleet_unmet_expectations", "Expectations that are not met", _of(lambda report: len(report.unmet))),
)
"""Every metric, in the order in which they are written."""
