"""Shared by causes: variables with which TensorFlow looks for no GPU, or cannot make its devices."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from gpudiag.cause import TRACE, Evidence, Rows
from gpudiag.causes.shared.steps import context_error
from gpudiag.model import report
from gpudiag.model.diagnosis import Stage
from gpudiag.probes.discovery import trace

TYPES = "TF_ENABLED_DEVICE_TYPES"


class Error(NamedTuple):
    stage: Stage
    text: str


class Errors(tuple[Error, ...]):
    """The error that ended the import, the listing or the creation of devices."""

    __slots__ = ()

    @classmethod
    def of(cls, evidence: Evidence) -> Errors:
        return cls(_errors(Rows(evidence.rows), evidence.trace))


def _errors(rows: Rows, traced: trace.Reading | None) -> Iterator[Error]:
    for row in rows:
        if row.probe == TRACE and (crash := row.crash) is not None and crash.cause is report.NoReading.EXCEPTION:
            yield Error(Stage.PACKAGE, crash.detail)
    if traced is not None and traced.raised is not None:
        yield Error(Stage.DEVICE_FILTER, traced.raised.brief)
    if words := context_error(rows):
        yield Error(Stage.CONTEXT, words)
