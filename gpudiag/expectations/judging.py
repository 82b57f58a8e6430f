"""Compares a report with expectations: adds a row for each of them, and marks accepted findings."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import date
from typing import Any

import msgspec

from gpudiag.errors import UsageError
from gpudiag.expectations.keys import KEYS, Key
from gpudiag.expectations.seen import Seen
from gpudiag.fix import Action, Role
from gpudiag.model.expectations import AREA, Expectations, Waiver
from gpudiag.model.report import (
    Acceptance,
    Broken,
    Figure,
    Finding,
    Judged,
    Level,
    NoReading,
    Report,
    Row,
    Severity,
    conclude,
)
from gpudiag.text import counted

NOT_MET = "not_met"
NOT_KNOWN = "not_known"
NOT_JUDGED = "not_judged"
KINDS = (NOT_MET, NOT_KNOWN, NOT_JUDGED)
"""The possible findings in a row of an expectation."""
EXPIRED = "expired"
UNUSED = "unused"

_MOST_NAMED = 6


def judged(report: Report, expected: Expectations, on: date) -> Report:
    """Return ``report`` with the rows of ``expected``, and with the findings accepted that it accepts ``on`` that day.

    The verdict follows from the rows, as always: an expectation that is not met, or about which nothing is known,
    fails; an accepted finding is a note. Acceptance verifies nothing: a GPU on which no kernel was verified stays
    unverified. Judgements by earlier expectations are undone. Raises :class:`UsageError` for a report that
    says nothing about a machine.
    """
    if report.program is not None or report.is_log_alone:
        raise UsageError(
            "the report is about a program, not about a machine: there is nothing to compare with. Save one by: "
            "gpudiag check -o report.json"
        )
    waivers = _Waivers(expected, on)
    probes = [waivers.applied(_as_found(row)) for row in report.rows if row.area != AREA]
    subject = msgspec.structs.replace(report, rows=tuple(probes))
    values = ((key, getattr(expected, key.field)) for key in KEYS)
    own = [waivers.applied(_row(key, value, subject, expected)) for key, value in values if value is not None]
    rows = (*probes, *own, *waivers.row())
    return conclude(msgspec.structs.replace(report, rows=rows, expected=expected))


def _row(key: Key, value: Any, report: Report, expected: Expectations) -> Row:
    outcome: Judged | Broken
    try:
        outcome = _outcome(key, value, report, expected)
    except Exception as error:  # a bug here breaks its own row and no other
        outcome = Broken(NoReading.EXCEPTION, f"comparing raised {type(error).__name__}: {error!a}")
    return Row(f"{AREA}.{key.name}", (), outcome, 0.0)


def _outcome(key: Key, value: Any, report: Report, expected: Expectations) -> Judged:
    wanted = key.comparison.expected(value)
    if reason := key.not_judged(report):
        message = f"not judged: {reason}"
        return Judged((Finding(NOT_JUDGED, Severity.NOTE, message, figures={"expected": wanted}),), figure=message)
    seen = key.seen(report, value)
    unknown = [where for where, what in seen.items() if what is None]
    others = {
        where: what for where, what in seen.items() if what is not None and not key.comparison.is_met(value, what)
    }
    fix = _edit(key.advice.format(key=key.name, file=expected.source, value=value))
    findings = []
    if others:
        findings.append(
            Finding(
                NOT_MET,
                Severity.FAIL,
                f"{_summary(key, others)}; expected: {wanted}",
                fix,
                figures={"seen": _summary(key, others), "expected": wanted},
            )
        )
    left_out = key.beyond_level(report, value)
    if unknown or not (seen or left_out):
        what = _named(unknown) if seen else "nothing in scope can be compared"
        message = f"not known{f' ({what})' if what else ''}; expected: {wanted}"
        findings.append(Finding(NOT_KNOWN, Severity.FAIL, message, fix, figures={"expected": wanted}))
    figure = _summary(key, seen, brief=True) + ("" if findings or not seen else f" (expected: {wanted})")
    if left_out:
        findings.append(_of_left_out(left_out, report.level))
        figure = figure or findings[-1].message
    return Judged(tuple(findings), figure=figure)


def _of_left_out(probes: tuple[str, ...], level: Level) -> Finding:
    """Return the note that names the probes that are not judged, because the caller's level does not run them."""
    message = f"{counted(len(probes), 'probe')} not judged: level {level.name} does not run {_named(list(probes))}"
    return Finding(
        NOT_JUDGED, Severity.NOTE, message, _edit("Level full runs them."), figures={"left_out": len(probes)}
    )


def _edit(sentence: str) -> tuple[Action, ...]:
    return (Action(note=sentence, role=Role.NOTE),)


def _summary(key: Key, seen: Seen, *, brief: bool = False) -> str:
    """Return the machine's values; equal values once, each with its places. ``brief``: omit the places of a single
    value."""
    places: dict[str, list[str]] = {}
    for where, what in seen.items():
        places.setdefault("not known" if what is None else key.comparison.text(what), []).append(where)
    if brief and len(places) == 1 and len(seen) > 1:
        return next(iter(places))
    return "; ".join(f"{text}{f' ({_named(where)})' if any(where) else ''}" for text, where in places.items())


def _named(places: list[str]) -> str:
    more = [f"and {len(places) - _MOST_NAMED} more"] if len(places) > _MOST_NAMED else []
    return ", ".join([*places[:_MOST_NAMED], *more])


def _as_found(row: Row) -> Row:
    """Return ``row`` without its acceptances."""

    def found(finding: Finding) -> Finding:
        if finding.accepted is None:
            return finding
        was = finding.accepted
        return msgspec.structs.replace(finding, severity=was.severity, accepted=None)

    return _with_findings(row, tuple(map(found, row.findings)))


def _with_findings(row: Row, findings: tuple[Finding, ...]) -> Row:
    if findings == row.findings or not isinstance(row.outcome, Judged):
        return row
    return msgspec.structs.replace(row, outcome=msgspec.structs.replace(row.outcome, findings=findings))


class _Waivers:
    """The accepted findings, and which of them occurred."""

    def __init__(self, expected: Expectations, on: date) -> None:
        self._expected = expected
        self._on = on
        self._found: set[str] = set()

    def applied(self, row: Row) -> Row:
        """Return ``row`` with those findings accepted that have an unexpired waiver."""
        return _with_findings(
            row, tuple(self._accepted(f"{row.probe}.{finding.kind}", finding) for finding in row.findings)
        )

    def _accepted(self, name: str, finding: Finding) -> Finding:
        waivers = [waiver for waiver in self._expected.accept if waiver.finding == name]
        if not waivers:
            return finding
        self._found.add(name)
        lasting = max(waivers, key=lambda waiver: waiver.until)
        if self._has_expired(lasting):
            return finding
        return msgspec.structs.replace(
            finding,
            severity=Severity.NOTE,
            accepted=Acceptance(lasting.reason, lasting.until, finding.severity, self._expected.source),
        )

    def _has_expired(self, waiver: Waiver) -> bool:
        return self._on > waiver.until

    def row(self) -> Iterator[Row]:
        """Yield the row about the waivers, if there are any."""
        waivers = self._expected.accept
        if waivers:
            used = sum(waiver.finding in self._found and not self._has_expired(waiver) for waiver in waivers)
            figure = f"{used} of {counted(len(waivers), 'waiver')} in use"
            yield Row(f"{AREA}.accept", (), Judged(tuple(self._findings()), figure=figure), 0.0)

    def _findings(self) -> Iterator[Finding]:
        source = self._expected.source
        for waiver in self._expected.accept:
            figures: dict[str, Figure] = {"finding": waiver.finding, "until": waiver.until.isoformat()}
            if waiver.finding not in self._found:
                message = f"{waiver.finding} was accepted until {waiver.until}, and is not found here"
                fix = _edit(f"Remove it from {source} if no machine has it.")
                yield Finding(UNUSED, Severity.NOTE, message, fix, figures=figures)
            elif self._has_expired(waiver):
                message = f"{waiver.finding} was accepted until {waiver.until}: {waiver.reason}"
                fix = _edit(f"Fix it; or decide again, and write a later date and the reason in {source}.")
                yield Finding(EXPIRED, Severity.FAIL, message, fix, figures=figures)
