"""Why a program does not use its GPUs: from its log alone, whatever machine wrote it, or on this machine."""

from __future__ import annotations

import time
from datetime import datetime, timezone

import msgspec

import gpudiag
from gpudiag.errors import UsageError
from gpudiag.model.facts import Facts, Unknown
from gpudiag.model.report import SCHEMA_VERSION, Limits, Report, World, conclude
from gpudiag.run import judgement

PROBES = ("host", "discovery.trace", "discovery.logical_devices", "libraries.cublas", "libraries.cudnn")
"""The probes that the diagnosis of this machine needs: GPUs that are listed may still fail at a product or convolution.
"""
_ELSEWHERE = Unknown("only the log was examined: it may come from another machine")
NO_MACHINE = Facts(**dict.fromkeys(Facts.__struct_fields__, _ELSEWHERE))


def explained(lines: tuple[str, ...], command: tuple[str, ...], notes: tuple[str, ...] = ()) -> Report:
    """Return a report on a program's log alone: nothing of this machine is looked at, and no TensorFlow is started.

    ``notes`` list the parts of the log that were not read. Raises ``UsageError`` if the log has no line.
    """
    if not any(line.strip() for line in lines):
        raise UsageError("the log is empty. A log is the output of a program: python program.py > app.log 2>&1")
    began = time.monotonic()
    report = Report(
        schema_version=SCHEMA_VERSION,
        gpudiag_version=gpudiag.__version__,
        started_at=datetime.now(timezone.utc).isoformat(timespec="seconds"),
        duration_s=0.0,
        command=command,
        isolation="spawn",
        world=World(simulated=False),
        limits=Limits(),
        facts=NO_MACHINE,
        gpus=(),
        rows=(),
        signal=None,
        lines=lines,
        notes=notes,
    )
    diagnosis = judgement.diagnosed(judgement.JudgedSubject(report.facts, lines=lines))
    took_s = round(time.monotonic() - began, 3)
    return conclude(msgspec.structs.replace(report, diagnosis=diagnosis, duration_s=took_s))
