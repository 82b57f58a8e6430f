"""Finds the rows that failed or broke for a proved cause. Pure.

The verdict on a row that broke for one is FAIL, since gpudiag and its probes work.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec

from gpudiag.cause import TRACE
from gpudiag.knowledge.log import recognised
from gpudiag.knowledge.log_lines import is_error
from gpudiag.knowledge.message import Worth
from gpudiag.model.diagnosis import Diagnosis, RootCause, Stage
from gpudiag.model.report import Broken, Finding, Gpu, Judged, NoReading, Row, Severity, is_affected

_OFF_THE_WAY = (Stage.CONFIGURATION, Stage.PROGRAM)
"""Stages of causes that end no process: TensorFlow uses a GPU, but not as intended."""
_BY_ITSELF = (NoReading.EXCEPTION, NoReading.SIGNAL, NoReading.NO_RESULT, NoReading.OPERATION_FAILED)
"""The ends of a process that TensorFlow raised or ended, so that a fault of the machine can be the reason."""

_APART = "in a process apart: "


def with_reasons(rows: Iterable[Row], diagnosis: Diagnosis, gpus: tuple[Gpu, ...] = ()) -> tuple[Row, ...]:
    """Return ``rows``, broken ones and findings with the proved cause that explains them.

    A cause explains a finding that names a fault of the cause's evidence, and a broken row whose log has one. It also
    explains the row by which its stage failed. Rows that ended in the same way, and whose log has no other error, are
    explained with them.
    """
    causes = [cause for cause in diagnosis.proved if cause.stage not in _OFF_THE_WAY]
    rows = tuple(_with_causes(row, [cause for cause in causes if is_affected(row, cause, gpus)]) for row in rows)
    broken = {
        number: outcome
        for number, row in enumerate(rows)
        if isinstance(outcome := row.outcome, Broken) and row.crash is not None and outcome.cause in _BY_ITSELF
    }
    reasons: dict[int, str] = {}
    ends: dict[str, str] = {}
    for number, outcome in broken.items():
        faults = set(_faults(rows[number]))
        if cause := next((cause for cause in causes if _ends(cause, rows[number], faults, diagnosis)), None):
            reasons[number] = ends[_end(outcome)] = cause.cause_id
    for number, outcome in broken.items():
        if number not in reasons and not any(map(is_error, rows[number].log)):
            reasons[number] = ends.get(_end(outcome), "")
    return tuple(
        msgspec.structs.replace(row, outcome=msgspec.structs.replace(row.outcome, explained_by=reasons.get(number, "")))
        if isinstance(row.outcome, Broken)
        else row
        for number, row in enumerate(rows)
    )


def _with_causes(row: Row, causes: list[RootCause]) -> Row:
    """Return a judged row, each finding with the cause that explains it, whose fix takes the place of its own."""
    if not causes or not isinstance(row.outcome, Judged) or not row.findings:
        return row
    findings = tuple(_with_cause(finding, causes) for finding in row.findings)
    return msgspec.structs.replace(row, outcome=msgspec.structs.replace(row.outcome, findings=findings))


def _with_cause(finding: Finding, causes: list[RootCause]) -> Finding:
    if finding.cause or finding.severity is Severity.NOTE:
        return finding
    faults = set(_faults_in(finding.message))
    cause = next((cause for cause in causes if not faults.isdisjoint(cause.explains)), None)
    return finding if cause is None else msgspec.structs.replace(finding, fix=(), cause=cause.cause_id)


def _end(outcome: Broken) -> str:
    """Return how a process ended, whether it was the probe's own or one that the probe started."""
    return outcome.detail.rpartition(_APART)[2]


def _ends(cause: RootCause, row: Row, faults: set[str], diagnosis: Diagnosis) -> bool:
    """Return whether a cause explains how a row ended, by itself."""
    is_of_import = row.probe == TRACE and cause.stage is Stage.PACKAGE is diagnosis.broken_at
    return is_of_import or not faults.isdisjoint(cause.explains)


def _faults(row: Row) -> Iterator[str]:
    """Yield the names of the faults in what a broken row reports and logged."""
    assert isinstance(row.outcome, Broken)
    for line in (row.outcome.detail, *row.log):
        yield from _faults_in(line)


def _faults_in(line: str) -> Iterator[str]:
    return (event.message.name for event in recognised(line) if event.message.worth is Worth.FAULT)
