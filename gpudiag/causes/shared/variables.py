"""Shared by causes: variables with which TensorFlow looks for no GPU, or cannot make its devices."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from gpudiag.cause import TRACE, Evidence
from gpudiag.causes.shared.steps import context_error
from gpudiag.model import report
from gpudiag.model.diagnosis import Stage

TYPES = "TF_ENABLED_DEVICE_TYPES"


class Error(NamedTuple):
    stage: Stage
    text: str


def errors(evidence: Evidence) -> Iterator[Error]:
    """Yield what ended the import, the listing or the creation of devices."""
    for row in evidence.rows:
        if row.probe == TRACE and (crash := row.crash) is not None and crash.cause is report.Cause.EXCEPTION:
            yield Error(Stage.PACKAGE, crash.detail)
    if evidence.trace is not None and evidence.trace.raised is not None:
        yield Error(Stage.DEVICE_FILTER, evidence.trace.raised.brief)
    if words := context_error(evidence):
        yield Error(Stage.CONTEXT, words)
