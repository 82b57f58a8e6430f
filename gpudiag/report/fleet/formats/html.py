"""A page of a fleet for people: one file that loads nothing, with the answer first, and a square for each node."""

from __future__ import annotations

from gpudiag.model.fleet import FleetReport, NodeVerdict
from gpudiag.report.fleet import page, together, words
from gpudiag.report.formats import html

SUFFIX = ".html"


def render(report: FleetReport, **_: object) -> str:
    """Return the page."""
    headline = words.headline(report)
    return html.page(
        "fleet.html",
        also=("fleet.css", "fleet.js"),
        most_bytes=page.MOST_BYTES,
        title=f"{headline} · gpudiag fleet",
        headline=headline,
        report=report,
        words=words,
        fleet=page,
        together=together,
        verdicts=html.VERDICTS,
        counts=[
            (verdict.value, words.STATUSES[verdict], page.LETTERS[verdict], number)
            for verdict in NodeVerdict
            if (number := report.counts.get(verdict.value, 0))
        ],
    )
