"""Finds the rows that broke for a proved cause: their verdict is FAIL, since gpudiag and its probes work. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec

from gpudiag.cause import TRACE
from gpudiag.knowledge.log import recognised
from gpudiag.knowledge.log_lines import is_error
from gpudiag.knowledge.message import Worth
from gpudiag.model.diagnosis import Diagnosis, RootCause, Stage
from gpudiag.model.report import Broken, NoReading, Row

_OFF_THE_WAY = (Stage.CONFIGURATION, Stage.PROGRAM)
"""Stages of causes that end no process: TensorFlow uses a GPU, but not as intended."""
_BY_ITSELF = (NoReading.EXCEPTION, NoReading.SIGNAL, NoReading.NO_RESULT, NoReading.OPERATION_FAILED)
"""The ends of a process that TensorFlow raised or ended, so that a fault of the machine can be the reason."""

_End = tuple[NoReading, str]


def with_reasons(rows: Iterable[Row], diagnosis: Diagnosis) -> tuple[Row, ...]:
    """Return ``rows``, the broken ones with the proved cause that explains them.

    A cause explains a row whose log has a fault that is a message of the cause's evidence. It also explains the row by
    which its stage failed. Rows that ended in the same way, and whose log has no other error, are explained with them.
    """
    rows = tuple(rows)
    causes = [cause for cause in diagnosis.proved if cause.stage not in _OFF_THE_WAY]
    broken = {
        number: outcome
        for number, row in enumerate(rows)
        if isinstance(outcome := row.outcome, Broken) and row.crash is not None and outcome.cause in _BY_ITSELF
    }
    reasons: dict[int, str] = {}
    ends: dict[_End, str] = {}
    for number, outcome in broken.items():
        faults = set(_faults(rows[number]))
        if cause := next((cause for cause in causes if _ends(cause, rows[number], faults, diagnosis)), None):
            reasons[number] = ends[outcome.cause, outcome.detail] = cause.cause_id
    for number, outcome in broken.items():
        if number not in reasons and not any(map(is_error, rows[number].log)):
            reasons[number] = ends.get((outcome.cause, outcome.detail), "")
    return tuple(
        msgspec.structs.replace(row, outcome=msgspec.structs.replace(row.outcome, explained_by=reasons.get(number, "")))
        if isinstance(row.outcome, Broken)
        else row
        for number, row in enumerate(rows)
    )


def _ends(cause: RootCause, row: Row, faults: set[str], diagnosis: Diagnosis) -> bool:
    """Return whether a cause explains how a row ended, by itself."""
    is_of_import = row.probe == TRACE and cause.stage is Stage.PACKAGE is diagnosis.broken_at
    return is_of_import or not faults.isdisjoint(cause.explains)


def _faults(row: Row) -> Iterator[str]:
    """Yield the names of the faults in what a broken row reports and logged."""
    assert isinstance(row.outcome, Broken)
    for line in (row.outcome.detail, *row.log):
        yield from (event.message.name for event in recognised(line) if event.message.worth is Worth.FAULT)
