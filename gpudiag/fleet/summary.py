"""What a fleet keeps of a report."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from gpudiag.fix import Role, distinct
from gpudiag.fleet.facts import facts_of, figures_of
from gpudiag.model.fleet import CauseSummary, Summary
from gpudiag.model.frame import SUMMARY, OtherVersionError, reports_in
from gpudiag.model.report import Broken, Report, Verdict
from gpudiag.report import labels, words
from gpudiag.text import listed, one_line

NO_MODULE = frozenset({"tensorflow_missing", "tensorflow_not_in_interpreter"})
"""Causes of a node on which there is no TensorFlow to check."""


def summarized(report: Report) -> Summary:
    """Return the summary of a report."""
    system = report.facts.system
    causes = labels.ranked_causes(report)
    actions = [next((action for action in cause.fix if action.role is Role.FIX), None) for cause in causes]
    return Summary(
        gpudiag_version=report.gpudiag_version,
        started_at=report.started_at,
        duration_s=report.duration_s,
        level=report.level.name,
        verdict=report.verdict,
        headline=words.headline(report) or next(_failures(report), "") or _unverified(report),
        hostname=getattr(system, "hostname", ""),
        simulated=report.world.simulated,
        causes=tuple(
            CauseSummary(cause.cause_id, one_line(cause.cause), cause.confidence, cause.unfit) for cause in causes
        ),
        findings=tuple(dict.fromkeys(name for row in report.rows for name in labels.failed_names(report, row))),
        actions=distinct(action for action in actions if action is not None),
        gpus=tuple(gpu.name for gpu in report.gpus),
        facts=facts_of(report),
        figures=figures_of(report),
    )


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
        return [msgspec.json.decode(json, type=Summary) for json in reports_in(output, SUMMARY)]
    except msgspec.MsgspecError as error:
        raise OtherVersionError(f"its summary is not one that this gpudiag reads: {error}") from None


def _failures(report: Report) -> Iterator[str]:
    """Yield the sentences about what failed or broke."""
    for row in report.rows:
        if isinstance(row.outcome, Broken):
            yield one_line(f"{row.probe} broke: {row.outcome.detail}")
        for finding in row.findings:
            if finding.severity in report.limits.failing:
                yield one_line(f"{row.probe}: {finding.message}")
