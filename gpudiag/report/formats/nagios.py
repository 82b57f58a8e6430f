"""The output of a plugin of Nagios, Icinga or Naemon: a line with performance data, then the table.

The form is that of the Monitoring Plugins Development Guidelines: https://www.monitoring-plugins.org/doc/guidelines.html
"""

from __future__ import annotations

from enum import IntEnum

from gpudiag.model.report import Report, Verdict
from gpudiag.report import accounts, words
from gpudiag.report.formats import table

SUFFIX = ""


class Status(IntEnum):
    """The exit status of a plugin."""

    OK = 0
    WARNING = 1
    CRITICAL = 2
    UNKNOWN = 3


def status(report: Report) -> Status:
    """Return the monitoring status of a report.

    A failure is critical, and so is a reason against a PASS, such as a lost GPU or a proved cause. A run that broke or
    verified nothing is unknown. Warnings of a run that ends with 0 are a warning.
    """
    if report.signal is not None or report.verdict is Verdict.BROKEN:
        return Status.UNKNOWN
    if report.verdict is Verdict.FAIL or (report.program is not None and report.exit_code != 0):
        return Status.CRITICAL
    if report.exit_code != 0:
        return Status.CRITICAL if report.withheld else Status.UNKNOWN
    return Status.WARNING if report.counts.get("warning") else Status.OK


def render(report: Report, *, width: int, verbose: bool, head: bool = False, **_: object) -> str:
    """Return the line and the table; bars after the line are replaced, too, because they would begin performance
    data."""
    parts = [f"{words.verdict(report)}: {words.outcome_counts(report)}", words.headline(report)]
    if report.program is None:
        parts.append(accounts.summary(report))
    parts.append("SIMULATED GPUs" if report.world.simulated else "")
    text = _without_bar("; ".join(filter(None, parts)))
    shown = _without_bar(table.render(report, width=width, color=False, verbose=verbose, head=head))
    return f"GPUDIAG {status(report).name} - {text} | {_data(report)}\n{shown}"


def failed(text: str) -> str:
    """Return the line of a run that produced no report."""
    return f"GPUDIAG {Status.UNKNOWN.name} - {_without_bar(text)}\n"


def _data(report: Report) -> str:
    """Return the performance data: label, value, unit and, where they make sense, thresholds and limits."""
    counts = report.counts
    gpus = len(report.gpus)
    fewest = f"{required}:" if (required := report.limits.require_gpus) else ""
    warned, failing = counts.get("warning", 0), counts.get("fail", 0)
    return " ".join(
        (
            f"time={report.duration_s:.1f}s;;;0",
            f"gpus={gpus};;{fewest};0",
            f"verified={gpus - len(report.unverified)};;{gpus}:;0;{gpus}",
            f"passed={counts.get('pass', 0) + counts.get('note', 0)};;;0",
            f"warnings={warned};0;;0",
            f"failed={failing};;0;0",
            f"broken={counts.get('broken', 0)};;;0",
            f"skipped={counts.get('skipped', 0) + counts.get('interrupted', 0)};;;0",
        )
    )


def _without_bar(text: str) -> str:
    return text.replace("|", "/")
