"""A fault has one voice: a finding that tells of the same fault as a cause gives the command of the cause.

Findings keep the names that reports have had since schema 1, and their messages. Which findings tell of a fault that a
cause explains, the cause says (:attr:`gpudiag.cause.Cause.views`). A finding whose cause is not found, as on a machine
without a GPU, keeps its own advice: nothing else is said there.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from gpudiag import causes
from gpudiag.model import Diagnosis, Finding, Judged, RootCause, Row

_LEAST = 4
"""Letters of a figure that tells findings of one kind apart, such as the name of a library."""


def with_one_voice(rows: Iterable[Row], diagnosis: Diagnosis) -> tuple[Row, ...]:
    """Return ``rows`` with the advice of each finding that tells of the same fault as a cause of ``diagnosis``."""
    explained: dict[str, list[RootCause]] = {}
    for cause in (*diagnosis.causes, *diagnosis.folded):
        known = causes.get(cause.rule)
        for view in known.declared.views if known is not None else ():
            explained.setdefault(view, []).append(cause)
    return tuple(_of_row(row, explained) for row in rows)


def _of_row(row: Row, explained: dict[str, list[RootCause]]) -> Row:
    if not isinstance(row.outcome, Judged):
        return row
    findings = tuple(_of_finding(one, explained.get(f"{row.probe}.{one.kind}", [])) for one in row.findings)
    if findings == row.findings:
        return row
    return msgspec.structs.replace(row, outcome=msgspec.structs.replace(row.outcome, findings=findings))


def _of_finding(finding: Finding, causes: list[RootCause]) -> Finding:
    """Return ``finding`` with the advice of the cause that has most in common with it."""
    if not causes:
        return finding
    cause = max(causes, key=lambda cause: _in_common(finding, cause))
    return msgspec.structs.replace(finding, advice=f"See the cause {cause.rule}: {cause.fix[0]}")


def _in_common(finding: Finding, cause: RootCause) -> int:
    said = " ".join((cause.cause, *cause.evidence))
    return sum(str(figure) in said for figure in finding.figures.values() if len(str(figure)) >= _LEAST)
