"""SARIF 2.1.0, which GitHub's code scanning, GitLab and editors read."""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import quote

import msgspec

from gpudiag.lint import rule
from gpudiag.lint.result import LintFinding, Result

_LEVELS = {"fail": "error", "warning": "warning", "note": "note"}
_SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"


def render(result: Result, **_: object) -> str:
    """Return one run, with the rules that have findings."""
    used = sorted({finding.rule for finding in result.findings})
    log: dict[str, Any] = {
        "$schema": _SCHEMA,
        "version": "2.1.0",
        "runs": [
            {
                "tool": {
                    "driver": {
                        "name": "gpudiag lint",
                        "version": result.gpudiag,
                        "informationUri": "https://pypi.org/project/gpudiag/",
                        "rules": [_rule(name) for name in used],
                    }
                },
                "columnKind": "unicodeCodePoints",
                "results": [_result(finding, used) for finding in result.findings],
                "invocations": [
                    {
                        "executionSuccessful": True,
                        "toolExecutionNotifications": [
                            {
                                "level": "warning",
                                "message": {"text": problem.message},
                                "locations": [_location(problem.file, {"startLine": problem.line or 1})],
                            }
                            for problem in result.problems
                        ],
                    }
                ],
            }
        ],
    }
    return json.dumps(log, indent=2) + "\n"


def _rule(name: str) -> dict[str, Any]:
    known = rule.get(name)
    assert known is not None
    return {
        "id": name,
        "shortDescription": {"text": known.general},
        "fullDescription": {"text": " ".join(known.why)},
        "helpUri": known.declared.url,
        "defaultConfiguration": {"level": _LEVELS[known.declared.severity.value]},
    }


def _result(finding: LintFinding, used: list[str]) -> dict[str, Any]:
    cell = "" if finding.cell is None else f"cell {finding.cell}, line {finding.line}: "
    region: dict[str, Any] = {"startLine": 1}
    if finding.cell is None:
        region = {
            "startLine": finding.line,
            "startColumn": finding.column,
            "endLine": finding.end_line,
            "endColumn": finding.end_column,
        }
    return {
        "ruleId": finding.rule,
        "ruleIndex": used.index(finding.rule),
        "level": _LEVELS[finding.severity.value],
        "message": {"text": f"{cell}{finding.message}. {finding.fix_text}"},
        "properties": {"fix": msgspec.to_builtins(finding.fix)},
        "locations": [_location(finding.file, region)],
    }


def _location(file: str, region: dict[str, Any]) -> dict[str, Any]:
    return {"physicalLocation": {"artifactLocation": {"uri": quote(file)}, "region": region}}
