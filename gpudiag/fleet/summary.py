"""What a fleet keeps of a report."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from gpudiag.errors import ReportError, ReportVersionError
from gpudiag.fix import Action, Role, distinct
from gpudiag.fleet.facts import facts_of, figures_of, unread_in
from gpudiag.model.codec import encoded
from gpudiag.model.diagnosis import RootCause
from gpudiag.model.fleet import Answer, CauseSummary, NoReport, Summary
from gpudiag.model.frame import SUMMARY, OtherVersionError, reports_in
from gpudiag.model.report import Report, Verdict
from gpudiag.report import labels, words
from gpudiag.text import listed, one_line

_NO_MODULE = frozenset({"tensorflow_missing", "tensorflow_not_in_interpreter"})
"""Causes of a node on which there is no TensorFlow to check."""


def summarized(report: Report) -> Summary:
    """Return the summary of a report."""
    facts = facts_of(report)
    causes = labels.ranked_causes(report)
    actions = [_first_action(cause) for cause in causes]
    return Summary(
        gpudiag_version=report.gpudiag_version,
        started_at=report.started_at,
        duration_s=report.duration_s,
        level=report.level.name,
        verdict=report.verdict,
        headline=_headline(report, causes) or _failure(report) or _unverified(report),
        hostname=getattr(report.facts.system, "hostname", ""),
        simulated=report.world.simulated,
        causes=tuple(
            CauseSummary(cause.cause_id, one_line(cause.cause), cause.confidence, cause.unfit) for cause in causes
        ),
        findings=labels.failures(report),
        actions=distinct(action for action in actions if action is not None),
        gpus=tuple(gpu.name for gpu in report.gpus),
        indices=tuple(gpu.index for gpu in report.gpus),
        facts=facts,
        unread=unread_in(report, facts),
        figures=figures_of(report),
    )


def _headline(report: Report, causes: Sequence[RootCause]) -> str:
    """Return the heading of the diagnosis, and the first cause if no cause stands in it."""
    heading = words.headline(report)
    sentences = [one_line(cause.cause) for cause in causes]
    if not sentences or any(sentence.lower() in heading.lower() for sentence in sentences):
        return heading
    return f"{heading}: {sentences[0]}"


def _first_action(cause: RootCause) -> Action | None:
    """Return the first fix of a cause, or else the first command that looks further."""
    actions = [action for role in (Role.FIX, Role.CHECK) for action in cause.fix if action.role is role]
    return next(iter(actions), None)


MOST = 128 << 10
"""The most bytes of a summary; one of eight GPUs under load has about 3 kB."""


def answer_with(node: str, summary: Summary, attempt: int = 1, seconds: float = 0.0) -> Answer:
    """Return the answer of a node with this summary; one without TensorFlow has no verdict."""
    missing = next((cause for cause in summary.causes if cause.cause_id in _NO_MODULE), None)
    if missing is not None:
        return Answer(node, attempt, NoReport.NO_TENSORFLOW, missing.cause, seconds=seconds)
    return Answer(node, attempt, summary=summary, seconds=seconds)


def answer_in(node: str, read: Callable[[], Report], attempt: int = 1, seconds: float = 0.0) -> Answer:
    """Return the answer of a node in the report that ``read`` returns; one that cannot be read costs this row alone.

    ``read`` raises :class:`gpudiag.errors.ReportError`.
    """
    try:
        return answer_with(node, decoded(encoded(summarized(read()))), attempt, seconds)
    except ReportVersionError as error:
        reason, text = NoReport.OTHER_VERSION, str(error)
    except ReportError as error:
        reason, text = NoReport.NOT_A_REPORT, str(error)
    except Exception as error:  # of a report that somebody made up, such as with a number of 400 digits
        reason, text = NoReport.NOT_A_REPORT, f"gpudiag fails on this report: {type(error).__name__}: {error}"
    return Answer(node, attempt, reason, one_line(text), seconds=seconds)


def _unverified(report: Report) -> str:
    """Return why a report without a failure is NOT VERIFIED; "" for one that passes."""
    if report.verdict is not Verdict.NOT_VERIFIED:
        return ""
    if report.withheld:
        return one_line(report.withheld[0])
    if not report.gpus:
        return "no GPU is in scope, so nothing was verified"
    gpus = [f"GPU {gpu.index}" for gpu in report.unverified]
    return f"no kernel was verified on {listed(gpus)}" if gpus else ""


def summaries_in(output: bytes) -> list[Summary]:
    """Return each different summary that is framed in an output, such as a termination message.

    Raises :class:`gpudiag.model.frame.CutShortError` or :class:`gpudiag.model.frame.OtherVersionError`.
    """
    try:
        return [decoded(json) for json in reports_in(output, SUMMARY)]
    except ReportError as error:
        raise OtherVersionError(str(error)) from None


def decoded(json: bytes) -> Summary:
    """Return a summary whose values are within their bounds, so that nothing which is counted later can fail on it.

    Raises :class:`gpudiag.errors.ReportError`.
    """
    if len(json) > MOST:
        raise ReportError(f"its summary has {len(json):,} bytes; {MOST:,} are the most.")
    try:
        return msgspec.json.decode(json, type=Summary)
    except msgspec.MsgspecError as error:
        raise ReportError(f"its summary is not one that this gpudiag reads: {error}") from None


def _failure(report: Report) -> str:
    """Return a sentence about the first finding that fails or, if there is none, the first probe that broke; or ""."""
    for row, finding in labels.failing(report):
        return one_line(f"{row.probe}: {finding.message}")
    broken = labels.broken(report)
    for probe, outcome in broken:
        if outcome.at_the_deadline:
            return one_line(f"{outcome.detail}, {len(broken)} of {len(report.rows)} probes have no result")
        return one_line(f"{probe} broke: {outcome.detail}")
    return ""
