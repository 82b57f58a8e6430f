"""The rows of the host: views of causes.

A row of the host has no text of its own. It shows the causes that follow from facts alone, each under its name in
reports since schema 1 (:attr:`gpudiag.cause.Cause.finding`). After the diagnosis a finding gets the fix of the cause
that explains it (:attr:`gpudiag.cause.Cause.views`), so that both say the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import cache

import msgspec

from gpudiag import causes
from gpudiag.catalogue import Entry
from gpudiag.cause import CatalogueCause, Evidence
from gpudiag.fix import ask
from gpudiag.model.diagnosis import Diagnosis, RootCause
from gpudiag.model.facts import Facts
from gpudiag.model.reading import AnyReading
from gpudiag.model.report import Finding, Gpu, Judged, Limits, Row, is_affected
from gpudiag.model.visibility import gpus_in_scope
from gpudiag.place import Place, fitted_all
from gpudiag.probe import NOTHING_BESIDE, Beside, FindingKind, Reading


def judge(
    entry: Entry, reading: AnyReading | None, facts: Facts, limits: Limits, beside: Beside = NOTHING_BESIDE
) -> Judged:
    """Return the outcome of a row: of a probe's reading, or, for a row of the host, of the facts."""
    if entry.reading is not None:
        if not isinstance(reading, Reading):
            raise msgspec.ValidationError("the reading comes from another version of the probe")
        outcome = entry.judge(reading, facts, beside)
        place = Place.of(facts)
        findings = (msgspec.structs.replace(it, fix=fitted_all(it.fix, place)) for it in outcome.findings)
        return msgspec.structs.replace(outcome, findings=tuple(findings))
    return Judged(findings=tuple(_findings(entry, facts, limits)), figure=str(entry.module.figure(facts)))


def kinds(entry: Entry) -> tuple[FindingKind, ...]:
    """Return the kinds of findings that a probe can make or a row of the host can show."""
    if entry.reading is not None:
        return entry.kinds
    named: dict[str, list[CatalogueCause]] = {}
    for known in _shown_by(entry):
        named.setdefault(known.kind, []).append(known)
    return tuple(
        FindingKind(
            kind,
            several[0].declared.severity,
            several[0].cause,
            tuple(ask(f"gpudiag explain {known.id}") for known in several),
            means=several[0].general_cause,
        )
        for kind, several in named.items()
    )


def _shown_by(entry: Entry) -> Sequence[CatalogueCause]:
    return _by_row().get(entry.name, ())


@cache
def _by_row() -> dict[str, list[CatalogueCause]]:
    """Return the causes that each row of the host shows."""
    causes_by_row: dict[str, list[CatalogueCause]] = {}
    for cause in causes.all_of_them():
        causes_by_row.setdefault(cause.row, []).append(cause)
    return causes_by_row


def _findings(entry: Entry, facts: Facts, limits: Limits) -> Iterator[Finding]:
    concerns = getattr(entry.module, "concerns", None)
    if concerns is not None and not concerns(facts):
        return
    evidence = Evidence(facts, gpus_in_scope(facts), limits=limits)
    for known in _shown_by(entry):
        for match in known.matches(evidence):
            cause = known.cause_of(match, evidence)
            yield Finding(known.kind, known.declared.severity, cause.cause, cause.fix[:1], figures=match.figures)


def with_one_voice(rows: Iterable[Row], diagnosis: Diagnosis, gpus: tuple[Gpu, ...] = ()) -> tuple[Row, ...]:
    """Return ``rows`` with each finding's fix taken from the cause of ``diagnosis`` that explains it: one that affects
    a GPU of the row."""
    explained: dict[str, list[RootCause]] = {}
    for cause in diagnosis.all_causes:
        catalogue_cause = causes.get(cause.cause_id)
        for view in (
            (catalogue_cause.declared.finding, *catalogue_cause.declared.views) if catalogue_cause is not None else ()
        ):
            explained.setdefault(view, []).append(cause)
    return tuple(_of_row(row, explained, gpus) for row in rows)


def _of_row(row: Row, explained: dict[str, list[RootCause]], gpus: tuple[Gpu, ...]) -> Row:
    if not isinstance(row.outcome, Judged):
        return row
    explaining = {
        finding.kind: [
            cause for cause in explained.get(f"{row.probe}.{finding.kind}", ()) if is_affected(row, cause, gpus)
        ]
        for finding in row.findings
    }
    findings = tuple(_of_finding(finding, explaining[finding.kind]) for finding in row.findings)
    if findings == row.findings:
        return row
    return msgspec.structs.replace(row, outcome=msgspec.structs.replace(row.outcome, findings=findings))


def _of_finding(finding: Finding, causes: list[RootCause]) -> Finding:
    """Return ``finding`` with the fix of the cause that is about most of its figures."""
    if not causes:
        return finding
    cause = max(causes, key=lambda cause: _in_common(finding, cause))
    return msgspec.structs.replace(finding, fix=cause.fix[:1], cause=cause.cause_id)


def _in_common(finding: Finding, cause: RootCause) -> int:
    return len({*finding.figures.values()} & {*cause.about})
