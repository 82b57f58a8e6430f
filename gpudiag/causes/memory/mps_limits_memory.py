"""out of GPU memory: MPS, or a library that shares GPUs out, gives this program only a part of it, and it needs more

A server of MPS gives each of its clients at most the memory that CUDA_MPS_PINNED_DEVICE_MEM_LIMIT names; HAMi and other
libraries that are loaded before the driver (/etc/ld.so.preload) do it by CUDA_DEVICE_MEMORY_LIMIT. The driver then
answers "out of memory", and NVML shows a GPU that is nearly empty. The context of CUDA and its libraries count, too:
some hundred MiB.
"""

from __future__ import annotations

from gpudiag.cause import Cause, Match, Matches, Rows
from gpudiag.causes.shared.devices import ChosenGpus
from gpudiag.causes.shared.last_resort import texts_of
from gpudiag.causes.shared.memory import devices_in_scope, holders, refused_with_room
from gpudiag.fix import Kind, note, unset
from gpudiag.model.diagnosis import Confidence
from gpudiag.model.facts import Unknown

CAUSE = Cause(
    title="out of GPU memory: {who} limits this program to {name}={limit}, but it needs more",
    fix=(unset("CUDA_MPS_PINNED_DEVICE_MEM_LIMIT", note="or raise it"),),
    url="https://docs.nvidia.com/deploy/mps/index.html",
)
_MPS = "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"
_SHARE = "CUDA_DEVICE_MEMORY_LIMIT"
"""The variable of all GPUs, and what the names of those of one GPU begin with."""


def find(gpus: ChosenGpus, rows: Rows) -> Matches:
    variables = gpus.facts.variables
    refused = refused_with_room(gpus.facts, gpus.rows)
    shares = [name for name in variables if name.startswith(_SHARE)]
    names = [_MPS, *shares] if _MPS in variables else shares
    if names and (refused or (refused := _memory_failed(rows))):
        yield _match(gpus, names[0], refused)


def _memory_failed(rows: Rows) -> tuple[str, ...]:
    """Return how a probe of a GPU's memory failed."""
    failed = (text for row in rows if row.area == "memory" and row.status == "fail" for text in texts_of(row))
    return tuple(failed)[:1]


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
            "name": name,
            "limit": limit,
        },
        about=(name,),
        fix=() if name == _MPS else (share, unset(name, note="if nobody else uses the GPU")),
        tried=CAUSE.fix[0] if name == _MPS else None,
    )
