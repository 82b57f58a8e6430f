"""Bisects the environment of this process: the one entry of this package."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from gpudiag import causes
from gpudiag.facts.environment import recorded
from gpudiag.isolate import Job, Supervision, run_to_end
from gpudiag.model.diagnosis import Bisection, BisectionOutcome, Confidence, Diagnosis, RootCause, Stage, TrialOutcome
from gpudiag.model.facts import Facts
from gpudiag.model.report import Gpu, NoReading
from gpudiag.model.visibility import least_visible
from gpudiag.run.bisect import attempt, elsewhere, wording
from gpudiag.run.bisect.elsewhere import Gathered, missing, untried
from gpudiag.run.bisect.parts import LIBRARY_PATH, StartFiles, Surroundings, suspects
from gpudiag.run.bisect.search import Search
from gpudiag.run.bisect.tries import Tries

LOOK_S = 10.0
"""Time limit for reading which files set variables."""


def is_called_for(diagnosis: Diagnosis, facts: Facts) -> bool:
    """Return whether trying may say more than the diagnosis: something fails, and why is not proved.

    A proved cause needs no search, unless its fix was tried and did not help. If a library is not found,
    :func:`bisected` searches for another file that names its folder. Without a GPU only the import can be made to work.
    """
    if diagnosis.broken_at is None or (facts.without_gpu and diagnosis.broken_at is not Stage.PACKAGE):
        return False
    if any(cause.trial is not None and cause.trial.outcome is TrialOutcome.WORKS for cause in diagnosis.causes):
        return False
    return not any(map(_needs_no_search, diagnosis.causes)) or diagnosis.broken_at in _LOADED


_LOADED = (Stage.RUNTIME_LIBRARY, Stage.DRIVER_LIBRARY, Stage.LIBRARIES)
"""The stages at which TensorFlow opens a library."""
_BEFORE_GPUS = (Stage.PACKAGE, Stage.BUILD, *_LOADED, None)


def _is_proved(cause: RootCause) -> bool:
    """Return whether a cause is proved, and its fix was not tried in vain."""
    failed = cause.trial is not None and cause.trial.outcome in (TrialOutcome.DOES_NOT_HELP, TrialOutcome.HELPS_IN_PART)
    return cause.confidence is Confidence.PROVED and not failed


def _needs_no_search(cause: RootCause) -> bool:
    """Return whether a cause is proved and is not just a symptom of another cause."""
    catalogue_cause = causes.get(cause.cause_id)
    is_symptom = catalogue_cause is not None and catalogue_cause.declared.symptom
    return _is_proved(cause) and not is_symptom


def bisected(
    children: Supervision,
    server: str,
    diagnosis: Diagnosis,
    facts: Facts,
    *,
    gpus: Sequence[Gpu],
    environment: Mapping[str, str],
    machine: Path | None,
    jobs: int,
    within_s: float,
    stopped: Callable[[], str] = lambda: "",
    tick: Callable[[int], None] = lambda _: None,
) -> Bisection | None:
    """Return the smallest change of the environment with which TensorFlow gets its GPU.

    ``gpus`` are the GPUs in scope. ``environment`` has the variables that a simulated machine needs, and ``machine`` is
    its folder. If it is proved that a library is not found, only folders that other files name for it are tried. If it
    is proved that a library fails, only the variables that choose another copy of it are left out. None if there is
    nothing to try, or if it does not help.
    """
    began = time.monotonic()
    # What Python sets whenever it starts is not the environment: it comes again by itself.
    own = {name: value for name, value in os.environ.items() if name not in facts.set_by_python}
    simulated = {name: value for name, value in environment.items() if name.startswith("GPUDIAG_")}
    wanted = 0 if facts.without_gpu else max(1, least_visible(facts))
    around = Surroundings(
        variables={**own, **simulated, "TF_FORCE_GPU_ALLOW_GROWTH": "true"},  # others may use the GPU
        start=_start_files(_ask(children, server, f"{attempt.__name__}:start_files", {}, stopped)),
        on_path=_is_on_path(),
        folder=_folder() if _is_on_path() else "",
        own_library_path=str(machine / "lib") if machine is not None else "",
        gpus={} if diagnosis.broken_at in _BEFORE_GPUS else {gpu.uuid: gpu.index for gpu in gpus},
        driver=diagnosis.broken_at in (Stage.DRIVER, Stage.CONTEXT, Stage.MEMORY),
        libraries=diagnosis.broken_at is Stage.FIRST_OP,
        limits=attempt.low_limits(),
    )
    only_missing = any(map(_needs_no_search, diagnosis.causes))
    only_suspects = not only_missing and any(map(_is_proved, diagnosis.causes))
    if only_suspects and not suspects(around):
        return Bisection(BisectionOutcome.LIBRARY_FAILS, wanted=wanted)
    root = {"root": str(machine / "root")} if machine is not None else {}
    asked = {**root, "variables": dict(around.variables)}
    gathered = _gathered(_ask(children, server, elsewhere.TARGET, asked, stopped))
    settings = gathered.settings
    if only_missing:
        settings = tuple(setting for setting in settings if setting.name == LIBRARY_PATH)
        if not missing(settings, around.variables):
            return None
    left_s = within_s - (time.monotonic() - began)
    tries = Tries(children, server, jobs=jobs, within_s=left_s, wanted=wanted, stopped=stopped, tick=tick)
    affected = diagnosis.causes[0].gpus if diagnosis.causes else ()
    blamed = [gpu.uuid for gpu in gpus if gpu.pci_bus_id in affected and gpu.uuid in around.gpus]
    result = Search(
        around,
        settings,
        tries,
        wanted,
        only_missing=only_missing,
        only_suspects=only_suspects,
        blamed=blamed if len(blamed) < len(around.gpus) else (),
    ).run()
    is_told = result.taken or result.outcome is BisectionOutcome.LIBRARY_FAILS
    if (only_missing and not result.added) or (only_suspects and not is_told):
        return None
    seconds = time.monotonic() - began
    return wording.bisection(
        result,
        around,
        settings,
        recorded,
        wanted=wanted,
        tried=tries.count,
        seconds=seconds,
        untried=untried(gathered),
    )


def _ask(
    children: Supervision, server: str, target: str, argument: dict[str, Any], stopped: Callable[[], str]
) -> bytes | None:
    """Return a child's answer; None if it gives none."""
    job = Job(target, target, argument, LOOK_S, server)
    return run_to_end(children, job, lambda: (NoReading.INTERRUPTED, "stopped") if stopped() else None).value


def _start_files(answer: bytes | None) -> StartFiles:
    return StartFiles() if answer is None else msgspec.json.decode(answer, type=StartFiles)


def _gathered(answer: bytes | None) -> Gathered:
    return Gathered() if answer is None else msgspec.json.decode(answer, type=Gathered)


def _is_on_path() -> bool:
    """Return whether Python looks for modules in the working directory here, as with ``python -m``."""
    import sys

    first = sys.path[0] if sys.path else None
    return first is not None and first in ("", _folder())


def _folder() -> str:
    try:
        return str(Path.cwd())
    except FileNotFoundError:  # it was deleted
        return ""
