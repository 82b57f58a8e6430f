"""A code quality report of GitLab, which shows findings in the merge request, compared with its target branch.

The form: https://docs.gitlab.com/ci/testing/code_quality/#code-quality-report-format. A finding on a device always has
the same fingerprint, whatever its figures.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from typing import Any

from gpudiag.knowledge.codes import explained
from gpudiag.model.report import Broken, Report, Severity
from gpudiag.report import words
from gpudiag.text import one_line

SUFFIX = ""
_NOWHERE = "gpudiag"
"""The path of every finding: GitLab requires one, and a machine has no line of code."""
_OF_SEVERITY = {Severity.FAIL: "critical", Severity.WARNING: "minor", Severity.NOTE: "info"}


def render(report: Report, **_: object) -> str:
    """Return a list of issues, JSON in ASCII; empty if nothing was found and nothing left out."""
    issues: dict[str, dict[str, Any]] = {}
    for check, where, severity, text in _found(report):
        number = sum(issue["check_name"] == check for issue in issues.values())
        same = hashlib.sha256("\0".join((check, where)).encode(errors="replace")).hexdigest()
        fingerprint = same if same not in issues else hashlib.sha256(f"{same}{number}".encode()).hexdigest()
        issues[fingerprint] = {
            "description": explained(text),
            "check_name": check,
            "fingerprint": fingerprint,
            "severity": severity,
            "location": {"path": _NOWHERE, "lines": {"begin": 1}},
        }
    return json.dumps([*issues.values()], indent=2) + "\n"


def _found(report: Report) -> Iterator[tuple[str, str, str, str]]:
    """Yield name, device, severity and text of every finding, the verdict first."""
    if report.exit_code != 0:
        description = " ".join(filter(None, (words.summary(report), words.headline(report), words.next_step(report))))
        yield "verdict", "", "blocker", one_line(f"gpudiag: {words.verdict(report)}: {description}")
    elif report.skip:
        yield "verdict", "", "info", one_line(f"gpudiag: {words.verdict(report)}: {words.summary(report)}")
    for cause in report.diagnosis.causes:
        fix = f" Fix: {cause.fix[0].text}" if cause.fix else ""
        severity = "critical" if words.is_failure(report, cause) else "minor"
        yield one_line(cause.cause_id), "cause", severity, one_line(f"{cause.cause}.{fix}")
    for failed in report.diagnosis.failed:
        yield one_line(failed.part), "diagnosis", "major", one_line(f"{failed.part} broke: {failed.why}")
    for row in report.rows:
        where = words.label(report, row)
        if isinstance(row.outcome, Broken):
            yield one_line(row.probe), where, "major", f"{where} broke: {words.figure(row)}"
        for found in row.findings:
            severity = "critical" if found.severity in report.limits.failing else _OF_SEVERITY[found.severity]
            yield (
                one_line(f"{row.probe}.{found.kind}"),
                where,
                severity,
                one_line(f"{where}: {found.message} {words.advice(found)}"),
            )
