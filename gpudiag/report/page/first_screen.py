"""The first screen of the page: the cause, or what was verified, and which commands to type. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from gpudiag.fix import Shown
from gpudiag.model.diagnosis import RootCause, Step, StepStatus, TrialOutcome
from gpudiag.model.facts import Unknown
from gpudiag.model.report import STATUSES, Report, Verdict, causes_against
from gpudiag.report import accounts, changes, words
from gpudiag.report.formats.html import VERDICTS
from gpudiag.report.masking import HOST
from gpudiag.report.page.probe_sections import PageFinding, ProbeSection, cut_fix
from gpudiag.report.page.room import MOST_ITEMS, MOST_TEXT
from gpudiag.text import counted, one_line

_TITLE = 200
"""The most characters of a sentence in the title of the browser's tab."""


@dataclass(frozen=True)
class Answer:
    """The first screen: the cause, or what was verified."""

    title: str
    """The title of the browser's tab: the sentence, and the verdict."""
    mark: str
    """The verdict in a word."""
    status: str
    """The CSS class of its colour."""
    sentence: str
    lead: str
    """A line below the sentence; "" if there is nothing to add."""
    causes: tuple[CauseCard, ...]
    """The cause that the sentence names, if it does, comes first."""
    wrong: tuple[tuple[ProbeSection, PageFinding], ...]
    """The first failing findings, if no cause explains them; the sentence is the first of them."""
    next_text: str = ""
    next_command: str = ""


@dataclass(frozen=True)
class CauseCard:
    """A cause, its evidence, and the commands to type."""

    sentence: str
    name: str
    confidence: str
    seen: tuple[str, ...]
    fix: tuple[Shown, ...]
    tried: str
    url: str


def answer(report: Report, sections: Iterable[ProbeSection]) -> Answer:
    """Return the first screen."""
    head, cause = words.headline(report), _named_cause(report)
    causes = sorted(report.diagnosis.causes, key=lambda other: other is not cause)
    wrong = () if cause else _worst_findings(sections)
    lead = ""
    if report.program is not None:
        mark, status, sentence = "program", "warning" if causes else "pass", head
    elif report.is_log_alone:
        mark, status, sentence = "log", "fail" if cause else "skipped", head or words.NO_CAUSE
        lead = words.opening(report, cause).rstrip(": ") if cause else ""
    else:
        mark, status = words.verdict(report), VERDICTS[report.verdict.value]
        sentence = _sentence(report, wrong)
        lead = accounts.summary(report, without=cause.cause if cause else "") if accounts.unused(report) else ""
    if cause:
        sentence = one_line(cause.cause)[:MOST_TEXT]
    step = words.next_of(report)
    host = "" if isinstance(report.facts.system, Unknown) else one_line(report.facts.system.hostname)
    last = mark if mark != Verdict.PASS.value else "" if host == HOST else host
    return Answer(
        title=" · ".join(filter(None, (sentence if len(sentence) <= _TITLE else f"{sentence[:_TITLE]}…", last))),
        mark=mark,
        status=status,
        sentence=sentence,
        lead=lead,
        causes=_cause_cards(causes),
        wrong=wrong,
        next_text=f"{step.text}:" if step.command else step.text,
        next_command=step.command,
    )


def _named_cause(report: Report) -> RootCause | None:
    """Return the cause that the title names: the first that explains what the report says; None if none does."""
    if report.program is not None or (report.verdict is Verdict.PASS and not report.is_log_alone):
        return None
    named = {finding.cause for row in report.rows for finding in row.findings}
    return next(
        (
            cause
            for cause in report.diagnosis.causes
            if report.is_log_alone
            or words.is_failure(report, cause)
            or cause.cause_id in named
            or cause in causes_against(report)
        ),
        None,
    )


def _sentence(report: Report, wrong: tuple[tuple[ProbeSection, PageFinding], ...]) -> str:
    """Return what a report says that has no cause to name."""
    counts = report.counts
    if report.verdict is Verdict.PASS:
        number = len(report.gpus) - len(report.unverified)
        simulated = "simulated " if report.world.simulated else ""
        warned = f", with {counted(counts['warning'], 'warning')}" if counts.get("warning") else ""
        return f"PASS: {number} of {counted(len(report.gpus), f'{simulated}GPU')} verified{warned}"
    if wrong:
        section, finding = wrong[0]
        return f"{section.name}: {finding.message}"
    if report.verdict is Verdict.BROKEN and (number := counts.get("broken", 0)):
        return f"{counted(number, 'probe')} gave no result"
    if report.signal is not None:
        return "The run was stopped before all probes had run"
    return words.headline(report) or ("No NVIDIA GPU is in scope" if not report.gpus else "A GPU was not shown to work")


def _cause_cards(causes: Iterable[RootCause]) -> tuple[CauseCard, ...]:
    """Return the causes of the diagnosis."""
    return tuple(
        CauseCard(
            sentence=one_line(cause.cause)[:MOST_TEXT],
            name=one_line(cause.cause_id)[:80],
            confidence=cause.confidence.value,
            seen=tuple(one_line(text)[:MOST_TEXT] for text in cause.evidence[:MOST_ITEMS]),
            fix=cut_fix(cause.fix),
            tried=_tried(cause),
            url=cause.url if re.fullmatch(r"https://[\w./#?=&%:+,~-]+", cause.url, re.ASCII) else "",
        )
        for cause in causes
    )


def _tried(cause: RootCause) -> str:
    if cause.trial is None or cause.trial.outcome is TrialOutcome.NOT_TRIED:
        return ""
    tried = next((f"{action.command}: " for action in cause.fix if action.change == cause.trial.change), "")
    return one_line(
        f"Tried here: {tried}{cause.trial.outcome.value}{f' ({cause.trial.detail})' if cause.trial.detail else ''}"
    )


def _worst_findings(sections: Iterable[ProbeSection]) -> tuple[tuple[ProbeSection, PageFinding], ...]:
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


def counts(report: Report) -> tuple[tuple[str, int], ...]:
    """Return the number of rows with each outcome."""
    return tuple((status, report.counts[status]) for status in STATUSES if status in report.counts)
