"""Shared by causes: GPUs of a generation that the wheel or cuDNN has no code for."""

from __future__ import annotations

from gpudiag.cause import Rows
from gpudiag.model import report
from gpudiag.model.diagnosis import Stage


def where_kernels_fail(rows: Rows) -> Stage:
    """Return the stage at which a lack of machine code shows: kernels fail, never end, or are slow at first."""
    if rows.found("discovery.logical_devices", "product_failed"):
        return Stage.FIRST_OP
    for row in rows:
        if row.probe == "discovery.logical_devices" and (crash := row.crash) is not None:
            return Stage.CONTEXT if crash.cause is report.NoReading.TIMEOUT else Stage.CONFIGURATION
    return Stage.CONFIGURATION
