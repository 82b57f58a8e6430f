"""A program of a user, as a strict type checker sees it: ``python scripts/check.py`` runs mypy on it, a test runs it.

Each ``type: ignore`` is an error that mypy must find: it reports those that are not needed.
"""

from __future__ import annotations

from pathlib import Path

import gpudiag


def gate(saved: Path) -> list[str]:
    """Check a simulated machine as a gate before a training would, and return what it says."""
    report: gpudiag.Report = gpudiag.check("discovery.logical_devices", simulate=1, keep_last_pass=False)
    lines: list[str] = [str(report)]
    if report.verdict is not gpudiag.Verdict.PASS:
        for cause in report.causes:
            lines += [cause.cause, *(action.command for action in cause.fix if action.command)]
    lines += [f"{row.probe}: {row.status}" for row in report.rows]
    lines += [f"{gpu.name} {gpu.memory_total_bytes >> 30} GiB" for gpu in report.gpus]
    report.save(saved)
    changed: gpudiag.Comparison = gpudiag.diff(gpudiag.load(saved), report)
    lines += [change.name for change in changed.worse]
    return lines


def mistaken() -> None:
    """Do what is wrong, and is never run."""
    gpudiag.check(level="fast")  # type: ignore[arg-type]
    gpudiag.check(gpus=2)  # type: ignore[call-arg]
    gpudiag.check(timeout="30")  # type: ignore[arg-type]
    gpudiag.check().verdicts  # type: ignore[attr-defined]  # noqa: B018
    gpudiag.why(b"log")  # type: ignore[arg-type]
    gpudiag.diff(gpudiag.check(), 2)  # type: ignore[arg-type]
