"""JSON: the report itself."""

from __future__ import annotations

import msgspec

from gpudiag.model.codec import encoded
from gpudiag.model.fleet import FleetReport
from gpudiag.text import escaped

SUFFIX = ".json"


def render(report: FleetReport, **_: object) -> str:
    """Return the whole report as JSON."""
    return escaped(msgspec.json.format(encoded(report), indent=2).decode()) + "\n"
