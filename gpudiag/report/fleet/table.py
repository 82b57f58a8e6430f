"""The table of a fleet, for the terminal: groups of nodes, what sets them apart, and at the end the counts."""

from __future__ import annotations

from gpudiag.model.fleet import FleetReport, NodeVerdict
from gpudiag.report.formats.table import Page
from gpudiag.text import counted, one_line

_STYLES = {
    NodeVerdict.FAIL: "bold red",
    NodeVerdict.FLAKY: "bold red",
    NodeVerdict.BROKEN: "bold red",
    NodeVerdict.NOT_VERIFIED: "bold yellow",
    NodeVerdict.NO_REPORT: "bold yellow",
    NodeVerdict.PASS: "bold green",
}


def render(report: FleetReport, *, width: int, color: bool) -> str:
    """Return the table, no line wider than ``width`` columns but names and commands."""
    page = Page(max(width, 40), color=color)
    numbers = max((len(str(group.number)) for group in report.groups), default=1)
    for group in report.groups:
        lead = f"{group.verdict.value:<12}  {group.number:>{numbers}}  "
        page.add(one_line(f"{group.nodes}  {group.label}"), lead=lead, lead_style=_STYLES[group.verdict])
        if group.text:
            page.add(one_line(group.text), "dim", lead=" " * len(lead))
    page.blank()
    page.add(counts(report), "bold")
    return page.text()


def counts(report: FleetReport) -> str:
    """Return the last line: how many nodes have each verdict."""
    parts = [f"{number} {verdict}" for verdict, number in report.counts.items()]
    return one_line(" · ".join([counted(report.asked, "node"), *parts, f"exit {report.exit_code}"]))
