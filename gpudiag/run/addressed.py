"""The commands of fixes in a report about another environment: ``pip`` and ``python`` may belong to a third one."""

from __future__ import annotations

import sys
from pathlib import Path

import msgspec

from gpudiag import guest
from gpudiag.fix import Action, for_python
from gpudiag.model.diagnosis import Diagnosis, RootCause
from gpudiag.model.report import Finding, Judged, Row


def addressed(diagnosis: Diagnosis, rows: tuple[Row, ...]) -> tuple[Diagnosis, tuple[Row, ...]]:
    """Return both with fixes that name the interpreter which runs, if gpudiag is its guest."""
    if not guest.home:
        return diagnosis, rows
    causes, folded = (tuple(map(_of_cause, several)) for several in (diagnosis.causes, diagnosis.folded))
    return msgspec.structs.replace(diagnosis, causes=causes, folded=folded), tuple(map(_of_row, rows))


def _of_cause(cause: RootCause) -> RootCause:
    return msgspec.structs.replace(cause, fix=tuple(map(_of_action, cause.fix)))


def _of_row(row: Row) -> Row:
    if not isinstance(row.outcome, Judged):
        return row
    findings = tuple(map(_of_finding, row.outcome.findings))
    return msgspec.structs.replace(row, outcome=msgspec.structs.replace(row.outcome, findings=findings))


def _of_finding(finding: Finding) -> Finding:
    return msgspec.structs.replace(finding, fix=tuple(map(_of_action, finding.fix)))


def _of_action(action: Action) -> Action:
    prefix = sys.prefix if Path(sys.prefix, "conda-meta").is_dir() else ""
    return for_python(action, sys.executable, guest.home["executable"], conda_prefix=prefix)
