"""A verdict in a word or two, for programs: the name of the first cause, or else of the first finding that fails."""

from __future__ import annotations

from gpudiag.model.diagnosis import Confidence, RootCause
from gpudiag.model.report import Broken, Report, Row, Verdict

_ORDER = (Confidence.PROVED, Confidence.LIKELY, Confidence.POSSIBLE)


def ranked_causes(report: Report) -> list[RootCause]:
    """Return the causes in a report, the most certain first."""
    return sorted(report.diagnosis.all_causes, key=lambda cause: _ORDER.index(cause.confidence))


def failed_names(report: Report, row: Row) -> list[str]:
    """Return the names of what failed or broke in a row, such as ``load.gpus.wrong`` or ``libraries.cudnn.broken``."""
    if isinstance(row.outcome, Broken):
        return [f"{row.probe}.broken"]
    return [f"{row.probe}.{finding.kind}" for finding in row.findings if finding.severity in report.limits.failing]


def label(report: Report) -> str:
    """Return the name of what is wrong; empty after a PASS, and if no cause and no finding says what."""
    if report.verdict is Verdict.PASS:
        return ""
    names = [cause.cause_id for cause in ranked_causes(report)]
    names += [name for row in report.rows for name in failed_names(report, row)]
    return next(iter(names), "")


def line(report: Report) -> str:
    """Return a line for scripts: the verdict and its label, such as ``FAIL mask_hides_all``."""
    return f"{report.verdict.value} {label(report)}".rstrip() + "\n"
