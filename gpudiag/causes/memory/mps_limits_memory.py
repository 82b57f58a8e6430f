"""out of GPU memory: MPS, or a library that shares GPUs out, gives this program only a part of it, and it needs more

A server of MPS gives each of its clients at most the memory that CUDA_MPS_PINNED_DEVICE_MEM_LIMIT names, or the limit
that was set in its daemon, which no variable shows: the daemon and its logs say it. HAMi and other libraries that are
loaded before the driver (/etc/ld.so.preload) do it by CUDA_DEVICE_MEMORY_LIMIT. The driver then answers "out of
memory", and NVML shows a GPU that is nearly empty. The context of CUDA and its libraries count, too: some hundred MiB.
"""

from __future__ import annotations

from gpudiag.cause import Cause, Match, Matches, Rows
from gpudiag.causes.shared.devices import ChosenGpus
from gpudiag.causes.shared.last_resort import texts_of
from gpudiag.causes.shared.machine import container
from gpudiag.causes.shared.memory import devices_in_scope, gib, holders, refused_with_room
from gpudiag.fix import Kind, Where, configure, edit_note, note, unset
from gpudiag.knowledge.variables import MPS_CONTROL
from gpudiag.model.diagnosis import Confidence
from gpudiag.model.facts import MpsFacts, TriedFacts, Unknown

CAUSE = Cause(
    title="out of GPU memory: {who} limits this program to {limit}, but it needs more",
    fix=(unset("CUDA_MPS_PINNED_DEVICE_MEM_LIMIT", note="or raise it"),),
    url="https://docs.nvidia.com/deploy/mps/index.html",
)
_MPS = "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"
_SHARE = "CUDA_DEVICE_MEMORY_LIMIT"
"""The variable of all GPUs, and what the names of those of one GPU begin with."""


def find(gpus: ChosenGpus, rows: Rows, tried: TriedFacts | None) -> Matches:
    variables, driver = gpus.facts.variables, gpus.facts.driver
    refused = refused_with_room(gpus.facts, gpus.rows)
    # A library that this user's loader passes over limits nothing.
    passed_over = not isinstance(driver, Unknown) and driver.preload_error and not driver.interposed
    shares = [] if passed_over else [name for name in variables if name.startswith(_SHARE)]
    names = [_MPS, *shares] if _MPS in variables else shares
    daemon = tried.mps if tried is not None else None
    if (names or (daemon and daemon.memory)) and (refused or (refused := _memory_failed(rows))):
        yield _match(gpus, names[0], refused) if names or not daemon else _by_daemon(gpus, daemon, refused)


def _memory_failed(rows: Rows) -> tuple[str, ...]:
    """Return how a probe of a GPU's memory failed."""
    failed = (text for row in rows if row.area == "memory" and row.status == "fail" for text in texts_of(row))
    return tuple(failed)[:1]


def _by_daemon(gpus: ChosenGpus, daemon: MpsFacts, refused: tuple[str, ...]) -> Match:
    """Return the match of a limit that was set in the daemon of MPS."""
    device, size = min(daemon.memory.items(), key=lambda item: item[1])
    command = f"set_default_device_pinned_mem_limit {device}"
    inside = container(gpus.facts)
    return Match(
        evidence=(*refused, f"{daemon.known_by}: {gib(size)} of GPU {device} for each client"),
        confidence=Confidence.LIKELY,
        figures={"who": "MPS", "limit": f"{gib(size)} of GPU {device}"},
        fix=(
            configure(
                f"echo {command} {2 * size >> 20}M | {MPS_CONTROL}",
                "doubles it for servers that start then, as the user who runs the daemon",
                where=Where.HOST if inside else Where.HERE,
            ),
            edit_note("or let the program take less"),
        ),
    )


def _match(gpus: ChosenGpus, name: str, refused: tuple[str, ...]) -> Match:
    limit, driver = gpus.facts.variables[name], gpus.facts.driver
    interposed = () if isinstance(driver, Unknown) else driver.interposed
    share = note(
        "raise it where it was set: the pod's resource nvidia.com/gpumem, for HAMi; or let the program take less",
        kind=Kind.START_CONTAINER,
    )
    return Match(
        evidence=(
            *refused,
            f"{name}={limit}",
            *(f"{file} is loaded before the driver" for file in interposed),
            *map(holders, devices_in_scope(gpus.facts)),
        ),
        confidence=Confidence.LIKELY,
        figures={
            "who": "MPS" if name == _MPS else "a library that shares the GPU out",
            "limit": f"{name}={limit}",
        },
        about=(name,),
        fix=() if name == _MPS else (share, unset(name, note="if nobody else uses the GPU")),
        tried=CAUSE.fix[0] if name == _MPS else None,
    )
