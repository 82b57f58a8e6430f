"""The first screen of the page: whether the machine is fine; if not, why, and which commands to type. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from gpudiag.fix import Action
from gpudiag.model.diagnosis import RootCause, Step, StepStatus, TrialOutcome
from gpudiag.model.report import STATUSES, Report, Verdict
from gpudiag.report import accounts, changes, words
from gpudiag.report.page.probe_sections import PageFinding, ProbeSection
from gpudiag.report.page.room import MOST_ITEMS, MOST_TEXT
from gpudiag.text import counted, one_line


@dataclass(frozen=True)
class Answer:
    """The first screen: whether the machine is fine, and if not, why."""

    mark: str
    """The verdict in a word."""
    status: str
    """The CSS class of its colour."""
    sentence: str
    why: str
    next_text: str = ""
    next_command: str = ""


@dataclass(frozen=True)
class CauseCard:
    """A cause, its evidence, and the commands to type."""

    sentence: str
    name: str
    confidence: str
    seen: tuple[str, ...]
    fix: tuple[Action, ...]
    tried: str
    url: str


def answer(report: Report) -> Answer:
    """Return the first screen."""
    why = words.headline(report)
    if report.program is not None:
        found = bool(report.diagnosis.causes)
        return Answer("program", "warning" if found else "pass", why, "")
    if report.is_log_alone:
        causes = report.diagnosis.causes
        sentence = why.removesuffix(one_line(causes[0].cause)).rstrip(": ") if causes else why or words.NO_CAUSE
        return Answer("log", "fail" if causes else "skipped", sentence, "")
    step = words.next_of(report)
    text = f"{step.text}:" if step.command else step.text
    status, sentence = _verdict(report)
    return Answer(words.verdict(report), status, sentence, why, text, step.command)


def _verdict(report: Report) -> tuple[str, str]:
    counts = report.counts
    if report.verdict is Verdict.PASS:
        warned = counts.get("warning", 0)
        rest = f", with {counted(warned, 'warning')}" if warned else ""
        return "pass", f"This machine is fine{rest}"
    if report.verdict is Verdict.FAIL:
        number = sum(any(finding.severity in report.limits.failing for finding in row.findings) for row in report.rows)
        if not number:
            return "fail", "This machine is not fine: a GPU is not fit for use"
        return "fail", f"This machine is not fine: {counted(number, 'check')} failed"
    if report.verdict is Verdict.BROKEN:
        number = counts.get("broken", 0)
        return (
            "broken",
            f"Not known: {counted(number, 'probe')} gave no result" if number else "Not known: gpudiag broke",
        )
    if report.facts.without_gpu and not report.gpus:
        return "skipped", "Nothing was verified: there is no NVIDIA GPU"
    return "skipped", "Not verified: a GPU was not shown to work"


def cause_cards(causes: Iterable[RootCause]) -> tuple[CauseCard, ...]:
    """Return the causes of the diagnosis."""
    return tuple(
        CauseCard(
            sentence=one_line(cause.cause)[:MOST_TEXT],
            name=one_line(cause.cause_id)[:80],
            confidence=cause.confidence.value,
            seen=tuple(one_line(text)[:MOST_TEXT] for text in cause.evidence[:MOST_ITEMS]),
            fix=tuple(_shown(action) for action in cause.fix[:MOST_ITEMS]),
            tried=_tried(cause),
            url=cause.url if re.fullmatch(r"https://[\w./#?=&%:+,~-]+", cause.url, re.ASCII) else "",
        )
        for cause in causes
    )


def _shown(action: Action) -> Action:
    return action.replaced(command=one_line(action.command)[:MOST_TEXT], note=one_line(action.note)[:MOST_TEXT])


def _tried(cause: RootCause) -> str:
    if cause.trial is None or cause.trial.outcome is TrialOutcome.NOT_TRIED:
        return ""
    tried = next((f"{action.command}: " for action in cause.fix if action.change == cause.trial.change), "")
    return one_line(
        f"Tried here: {tried}{cause.trial.outcome.value}{f' ({cause.trial.detail})' if cause.trial.detail else ''}"
    )


def worst_findings(sections: Iterable[ProbeSection]) -> tuple[tuple[ProbeSection, PageFinding], ...]:
    """Return the first failing findings, each once, for a report whose diagnosis names no cause."""
    seen: dict[str, tuple[ProbeSection, PageFinding]] = {}
    for section in sections:
        for finding in section.found:
            if finding.severity == "fail":
                seen.setdefault(finding.message, (section, finding))
    return tuple(seen.values())[:3]


def steps(report: Report) -> tuple[Step, ...]:
    """Return the stages of TensorFlow's way to a GPU, if they concern this machine."""
    any_tried = any(step.status in (StepStatus.OK, StepStatus.FAILED) for step in report.diagnosis.steps)
    return report.diagnosis.steps if any_tried and report.program is None and not report.is_log_alone else ()


def since(report: Report) -> tuple[str, tuple[str, ...]] | None:
    """Return the changes since the report that this one was compared with."""
    if report.since is None:
        return None
    heading, lines = changes.in_head(report.since)
    return heading, tuple(lines)


def account(report: Report) -> str:
    return accounts.summary(report)


def counts(report: Report) -> tuple[tuple[str, int], ...]:
    """Return the number of rows with each outcome."""
    return tuple((status, report.counts[status]) for status in STATUSES if status in report.counts)
