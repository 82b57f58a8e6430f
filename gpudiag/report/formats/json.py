"""JSON: the report itself, which every other format is made from."""

from __future__ import annotations

from gpudiag.model import codec
from gpudiag.model.report import Report

SUFFIX = ".json"


def render(report: Report, **_: object) -> str:
    """Return the whole report as JSON, which ``gpudiag show`` reads."""
    return codec.encode(report)
