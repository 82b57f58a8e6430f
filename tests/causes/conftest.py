"""The table of the corpus, at the end of the run."""

from __future__ import annotations

import pytest
from tabulate import tabulate


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print each item of the corpus: its number, the kind of machine it was built on, whether it was detected."""
    rows = sorted(
        (*value, outcome)
        for outcome in ("passed", "failed", "skipped")
        for report in terminalreporter.getreports(outcome)
        for name, value in getattr(report, "user_properties", ())
        if name == "corpus" and report.when == "call"
    )
    if not rows:
        return
    cells = [(number, title, kind, "yes" if outcome == "passed" else outcome) for number, title, kind, outcome in rows]
    terminalreporter.section("corpus of misconfigurations")
    terminalreporter.write_line(tabulate(cells, headers=("id", "misconfiguration", "machine", "detected")))
    detected = {number for number, _, _, outcome in cells if outcome == "yes"}
    whole = {number for number, _, kind, outcome in cells if outcome == "yes" and kind == "end to end"}
    terminalreporter.write_line(
        f"\n{len(detected)} of {len({row[0] for row in rows})} detected, {len(whole)} of them end to end"
    )
