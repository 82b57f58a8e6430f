"""Tries what the diagnosis proposes: the fixes of its causes, or other environments if no cause is known."""

from __future__ import annotations

import os

import msgspec

from gpudiag.isolate import Bounds, Job, JobResult, run_to_end
from gpudiag.knowledge import log_lines
from gpudiag.model.diagnosis import Bisection, Diagnosis, FixAttempt, RootCause, Stage, TrialOutcome
from gpudiag.model.facts import Facts
from gpudiag.model.report import RUN_ENDED, Gpu, NoReading
from gpudiag.run.bisect import elsewhere
from gpudiag.run.bisect import here as bisect
from gpudiag.run.plan import MOST_CHILDREN, default_jobs, lack_of_linux, room_on
from gpudiag.run.servers import PLAIN
from gpudiag.run.session import Session
from gpudiag.run.trial import OnGpu
from gpudiag.text import one_line

TRIAL_S = 60.0
"""Time limit for a tried fix to run an operation on a GPU."""
_MOST_CHARACTERS = 500
_NOT_ITS_FAULT = (
    NoReading.BUSY,
    NoReading.INTERRUPTED,
    NoReading.NOT_STARTED,
    NoReading.SERVER_LOST,
)
"""Ends of a trial for which the fix is not to blame."""


def tried(session: Session, diagnosis: Diagnosis, gpus: tuple[Gpu, ...]) -> tuple[RootCause, ...]:
    """Return the causes; each fix that is a change of variables was tried, one after the other.

    Only if no GPU is used or operations fail: what works without the fix says nothing about the fix.
    """
    used = diagnosis.broken_at is None
    return tuple(
        cause
        if cause.trial is None or lack_of_linux() or (used and cause.stage is not Stage.FIRST_OP)
        else msgspec.structs.replace(cause, trial=_try(session, cause.cause_id, cause.trial, gpus))
        for cause in diagnosis.causes
    )


def _try(session: Session, rule: str, trial: FixAttempt, gpus: tuple[Gpu, ...]) -> FixAttempt:
    if stopped := session.stopped():
        return msgspec.structs.replace(trial, detail=stopped[1])
    environment = {**os.environ, **session.options.machine.environment}
    for name, value in trial.change.items():
        if reason := elsewhere.distrust(name, value or "", environment):
            return msgspec.structs.replace(trial, detail=reason)
    session.observer.phase(f"trying the fix of {rule}")
    if not session.taken(gpus):
        return msgspec.structs.replace(trial, detail=f"{session.other_run(gpus)} holds a GPU")
    deadline_s = (session.options.timeout_s or TRIAL_S) + (session.options.timeout_s or Bounds().preload_s)
    env = {"TF_FORCE_GPU_ALLOW_GROWTH": "true", **trial.change}  # other processes may use the GPU
    job = Job(rule, "gpudiag.run.trial:run_on_gpu", {}, deadline_s, PLAIN, fresh=True, env=env)
    result = run_to_end(session.children, job, session.stopped, session.observer.tick)
    session.devices.release(gpus)
    if result.cause in _NOT_ITS_FAULT or RUN_ENDED in result.detail:
        return msgspec.structs.replace(trial, detail=result.detail)
    if result.value is None:
        last = _last_error(result)
        detail = f"{result.detail}: {last}" if last else result.detail
        return msgspec.structs.replace(trial, outcome=TrialOutcome.DOES_NOT_HELP, detail=detail)
    done = msgspec.json.decode(result.value, type=OnGpu)
    if not done.listed:
        return msgspec.structs.replace(trial, outcome=TrialOutcome.DOES_NOT_HELP, detail="TensorFlow lists no GPU")
    if done.device:
        return msgspec.structs.replace(trial, outcome=TrialOutcome.WORKS, detail=done.device)
    detail = f"the GPU is listed, but an operation on it fails: {' '.join(done.failed.split())}"
    return msgspec.structs.replace(trial, outcome=TrialOutcome.HELPS_IN_PART, detail=detail)


def _last_error(result: JobResult) -> str:
    """Return the last fatal line, or else the last error, of a process that ended without giving a reason."""
    if result.cause not in (NoReading.NO_RESULT, NoReading.SIGNAL):
        return ""
    errors = [line for line in log_lines.parse(result.stderr.splitlines()) if line.level in "EF"]
    worst = [line for line in errors if line.level == "F"] or errors
    return one_line(worst[-1].text)[:_MOST_CHARACTERS] if worst else ""


def bisected(session: Session, diagnosis: Diagnosis, facts: Facts, gpus: tuple[Gpu, ...]) -> Bisection | None:
    """Return what of the environment keeps TensorFlow from its GPU; None if that is known, or not asked."""
    within_s = session.options.bisect_s
    if not within_s or lack_of_linux() or session.stopped() or not bisect.is_called_for(diagnosis, facts):
        return None
    if not session.taken(gpus):
        return None
    shown = -1

    def tick(tried: int) -> None:
        nonlocal shown
        if tried != shown:
            session.observer.phase(f"bisecting the environment: try {tried}")
        shown = tried
        session.observer.tick()

    devices = {device.pci_bus_id: device for device in facts.nvml_devices}
    room = min((room_on(gpu, devices[gpu.pci_bus_id]) for gpu in gpus), default=MOST_CHILDREN)
    try:
        return bisect.bisected(
            session.children,
            PLAIN,
            diagnosis,
            facts,
            gpus=gpus,
            environment=session.options.machine.environment,
            machine=None if session.options.machine.root is None else session.options.machine.root.parent,
            jobs=min(session.options.jobs or default_jobs(), room),
            within_s=within_s,
            stopped=lambda: (session.stopped() or (None, ""))[1],
            tick=tick,
        )
    finally:
        session.devices.release(gpus)
