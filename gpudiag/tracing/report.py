"""The report on a program: the record of what it did, and the causes that are found in it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from datetime import datetime, timedelta, timezone

import msgspec

import gpudiag
from gpudiag import causes
from gpudiag.model.facts import Facts, Unknown
from gpudiag.model.program import ProgramTrace
from gpudiag.model.report import SCHEMA_VERSION, Limits, Report, Severity, World, conclude
from gpudiag.run import judgement
from gpudiag.run.machine import ExaminedMachine

NOTHING_WRONG, SOMETHING_WRONG, GPUDIAG_BROKE = 0, 1, 3
_NOT_ASKED = Unknown("gpudiag trace looks at the program; for the machine: gpudiag check")


def environment(machine: ExaminedMachine) -> Mapping[str, str]:
    """Return the environment of a program on the machine."""
    return {**os.environ, **machine.environment}


def made(
    trace: ProgramTrace, command: tuple[str, ...], machine: ExaminedMachine | None = None, status: int | None = None
) -> Report:
    """Return the report on what a program did; ``status``: that of the program, if gpudiag is to exit with it."""
    facts = Facts(**dict.fromkeys(Facts.__struct_fields__, _NOT_ASKED))
    began = datetime.now(timezone.utc) - timedelta(seconds=trace.seconds)
    report = Report(
        schema_version=SCHEMA_VERSION,
        gpudiag_version=gpudiag.__version__,
        started_at=began.isoformat(timespec="seconds"),
        duration_s=trace.seconds,
        command=command,
        isolation="spawn",
        world=World(simulated=False) if machine is None else machine.world,
        limits=Limits(),
        facts=facts,
        gpus=(),
        rows=(),
        signal=None,
        program=trace,
        lines=trace.raised,
    )
    diagnosis = judgement.diagnosed(judgement.JudgedSubject(report.facts, lines=trace.raised, program=trace))
    report = conclude(msgspec.structs.replace(report, diagnosis=diagnosis))
    return msgspec.structs.replace(report, exit_code=_exit_code(report) if status is None else status)


def _exit_code(report: Report) -> int:
    """Return the exit status of ``gpudiag trace``: whether a setting was ignored, or an operation fell back."""
    diagnosis = report.diagnosis
    for cause in diagnosis.all_causes:
        known = causes.get(cause.cause_id)
        if known is not None and known.declared.severity is not Severity.NOTE:
            return SOMETHING_WRONG
    return GPUDIAG_BROKE if diagnosis.failed else NOTHING_WRONG
