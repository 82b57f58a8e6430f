"""A verdict in a word or two, for programs: the name of the first cause, or else of the first finding that fails."""

from __future__ import annotations

from collections.abc import Iterator

from gpudiag.model.diagnosis import Confidence, RootCause
from gpudiag.model.report import Broken, Finding, Report, Row, Verdict

TIMED_OUT = "timed_out"
_ORDER = (Confidence.PROVED, Confidence.LIKELY, Confidence.POSSIBLE)


def ranked_causes(report: Report) -> list[RootCause]:
    """Return the causes in a report, the most certain first."""
    return sorted(report.diagnosis.all_causes, key=lambda cause: _ORDER.index(cause.confidence))


def failures(report: Report) -> tuple[str, ...]:
    """Return a name for each finding that fails and for each probe that broke, without repeats.

    Findings come first, such as ``load.gpus.wrong``, then probes without a result, such as ``libraries.cudnn.broken``.
    All that the run's deadline ended have the name ``timed_out``: which probe it met says nothing about the machine.
    """
    failed = [f"{row.probe}.{finding.kind}" for row, finding in failing(report)]
    broke = [TIMED_OUT if outcome.at_the_deadline else f"{probe}.broken" for probe, outcome in broken(report)]
    return tuple(dict.fromkeys((*failed, *broke)))


def failing(report: Report) -> Iterator[tuple[Row, Finding]]:
    """Yield the findings that fail, each with its row."""
    for row in report.rows:
        for finding in row.findings:
            if finding.severity in report.limits.failing:
                yield row, finding


def broken(report: Report) -> list[tuple[str, Broken]]:
    """Return the probes without a result, those that the run's deadline ended last."""
    found = [(row.probe, row.outcome) for row in report.rows if isinstance(row.outcome, Broken)]
    return sorted(found, key=lambda item: item[1].at_the_deadline)


def label(report: Report) -> str:
    """Return the name of what is wrong; empty after a PASS, and if no cause and no finding says what."""
    if report.verdict is Verdict.PASS:
        return ""
    names = (*(cause.cause_id for cause in ranked_causes(report)), *failures(report))
    return next(iter(names), "")


def line(report: Report) -> str:
    """Return a line for scripts: the verdict and its label, such as ``FAIL mask_hides_all``."""
    return f"{report.verdict.value} {label(report)}".rstrip() + "\n"
