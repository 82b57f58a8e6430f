"""One line for a stream that others write to as well: the whole report with its length and checksum, for a fleet."""

from __future__ import annotations

from gpudiag.model import frame
from gpudiag.model.codec import encoded
from gpudiag.model.report import Report

SUFFIX = ""


def render(report: Report, **_: object) -> str:
    """Return the report as a line that :mod:`gpudiag.fleet` reads."""
    return frame.framed(encoded(report))
