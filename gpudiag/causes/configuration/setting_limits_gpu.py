"""a variable limits the memory or the speed of a GPU

Such a variable is set for one program, for a test or to look for an error, and stays in a shell, a service file or an
image. TensorFlow, CUDA and MPS say nothing of it: a model that fits on the card runs out of memory, or every step is
slow. A limit is named if it leaves less than half of a GPU; if that is intended, nothing has to be done.
"""

from __future__ import annotations

from collections.abc import Iterator

from gpudiag.cause import Cause, Match, Matches, Variables
from gpudiag.causes.shared.machine import container
from gpudiag.causes.shared.memory import devices_in_scope
from gpudiag.fix import configure, run_container, unset
from gpudiag.knowledge.variables import MPS_CONTROL, mps_folder
from gpudiag.model.facts import Facts, TriedFacts
from gpudiag.model.report import Severity

CAUSE = Cause(
    title="{setting} {what}",
    severity=Severity.WARNING,
    fix=(unset("{name}"),),
    url="https://www.tensorflow.org/guide/gpu#limiting_gpu_memory_growth",
    unless={
        "limited_by_variable": "it names the variable and what the program needs",
        "mps_limits_memory": "it names the limit of MPS",
        "little_memory_left": "the GPU is full: the setting is not what limits",
    },
)
_LIMIT, _RESERVE = "TF_PER_DEVICE_MEMORY_LIMIT_MB", "TF_DEVICE_MIN_SYS_MEMORY_IN_MB"
_MPS_THREADS, _MPS_MEMORY = "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"
_BLOCKING = "CUDA_LAUNCH_BLOCKING"
_PART = 0.5
"""The part of a GPU below which a limit is seldom intended; people who share a GPU give each program a part."""
_WORKER = "PYTEST_XDIST_WORKER"
"""The variable of a worker of a test run, to which gpudiag's own plugin gives a part of a GPU."""


def find(facts: Facts, variables: Variables, tried: TriedFacts | None) -> Matches:
    if _WORKER in variables:
        return
    if tried is not None and _has_no_mps(tried):
        for name in (_MPS_THREADS, _MPS_MEMORY):
            if name in variables:
                yield _without_mps(facts, name, variables)
    for name, what in _limits(facts, variables, with_mps=_has_mps(tried)):
        setting = f"{name}={variables[name]}"
        yield Match(evidence=(setting,), figures={"name": name, "setting": setting, "what": what}, tried=CAUSE.fix[0])
        return
    if (
        tried is not None
        and tried.mps
        and tried.mps.share
        and tried.mps.share < 100 * _PART
        and _MPS_THREADS not in variables
    ):
        setting = f"the daemon of MPS ({tried.mps.known_by})"
        what = f"lets each program use {tried.mps.share:g} % of the multiprocessors of a GPU"
        more = configure(
            f"echo set_default_active_thread_percentage 100 | {MPS_CONTROL}", "for servers that start then"
        )
        yield Match(evidence=(setting,), figures={"name": "", "setting": setting, "what": what}, fix=(more,))


def _limits(facts: Facts, variables: Variables, *, with_mps: bool) -> Iterator[tuple[str, str]]:
    """Yield each variable that limits a GPU, and its effect."""
    devices = devices_in_scope(facts)
    if not devices:
        return
    smallest = min(devices, key=lambda device: device.memory_total_bytes)
    total_mib = smallest.memory_total_bytes >> 20
    of_all = f"of the {total_mib} MiB of GPU {smallest.index}"
    limit, reserve = _number(variables, _LIMIT), _number(variables, _RESERVE)
    if 0 < limit < _PART * total_mib:
        yield _LIMIT, f"lets TensorFlow take only {limit} MiB {of_all}, without any message"
    if total_mib > reserve > (1 - _PART) * total_mib:
        yield _RESERVE, f"keeps TensorFlow from {reserve} MiB {of_all}, without any message"
    if with_mps and 0 < _number(variables, _MPS_THREADS) < 100 * _PART:
        yield _MPS_THREADS, f"lets each program use {variables[_MPS_THREADS]} % of the multiprocessors of a GPU"
    if variables.get(_BLOCKING) == "1":
        yield _BLOCKING, "makes every program wait for each CUDA kernel: this is slow, and meant for finding "


"errors"


def _without_mps(facts: Facts, name: str, variables: Variables) -> Match:
    """Return the match of a limit that clients of MPS alone have, where no daemon of MPS answers."""
    folder, setting = mps_folder(variables), f"{name}={variables[name]}"
    start = (
        run_container("--ipc=host", f"-v {folder}:{folder}", note="shares the host's daemon, if one runs there")
        if container(facts)
        else configure("nvidia-cuda-mps-control -d", "starts the daemon; programs that start then are its clients")
    )
    return Match(
        evidence=(setting, f"no daemon of MPS answers at {folder}/control"),
        figures={
            "name": name,
            "setting": setting,
            "what": "has no effect: it is for clients of MPS, and no daemon answers",
        },
        fix=(start, CAUSE.fix[0]),
    )


def _number(variables: Variables, name: str) -> int:
    """Return the value of a variable; 0 if it is not set, or not a whole number."""
    value = variables.get(name, "").strip()
    return int(value) if value.isdecimal() else 0


def _has_no_mps(tried: TriedFacts) -> bool:
    """Return whether no daemon of MPS answers; one that this user may not ask is there all the same."""
    return all(attempt.error in ("ENOENT", "ECONNREFUSED") for attempt in tried.connected if "mps" in attempt.path)


def _has_mps(tried: TriedFacts | None) -> bool:
    return any("mps" in attempt.path and attempt.error is None for attempt in (tried.connected if tried else ()))
