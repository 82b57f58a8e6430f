"""little of a GPU's memory is left for TensorFlow

TensorFlow uses what is free when it makes its device, less a reserve: the display, another job or a small card leave
little. "Created device ... with 100 MB memory" says it, as information, and programs run until their first large
tensor. TF_DEVICE_MIN_SYS_MEMORY_IN_MB, if it is set, is the reserve.
"""

from __future__ import annotations

from gpudiag.cause import Cause, Match, Matches, Program, Unprovoked
from gpudiag.causes.shared.holding import Holders, described, instead
from gpudiag.causes.shared.memory import devices_in_scope, free_bytes, gib, holders, shared_otherwise
from gpudiag.fix import edit_note, nvidia_smi, unset
from gpudiag.knowledge.log_lines import text
from gpudiag.knowledge.messages.memory import POOL_FULL
from gpudiag.knowledge.messages.way import DEVICE_CREATED
from gpudiag.model.diagnosis import Confidence, Stage
from gpudiag.model.facts import Facts, GpuProcess, NvmlDevice
from gpudiag.model.report import Figure

CAUSE = Cause(
    title="GPU {gpu} has {left} of its {total} left for TensorFlow{holder}",
    fix=(
        nvidia_smi("shows what holds the memory: end it, or wait for it"),
        edit_note("or use another GPU, or smaller batches"),
    ),
    url="https://www.tensorflow.org/guide/gpu#limiting_gpu_memory_growth",
    unless={
        "memory_held_by_others": "it names the processes that hold the memory",
    },
)
_RESERVE = "TF_DEVICE_MIN_SYS_MEMORY_IN_MB"
_LITTLE = 1 / 8
"""The part of a GPU's memory below which hardly any program can do its work. It was chosen, not measured."""
_SHARED = 1 / 3
"""The part below which a program that was written for the whole GPU may not fit beside the one that holds the rest.

It was chosen, not measured: two programs of one kind share a GPU if each has half, and a third leaves room for a
smaller one; it decides a warning alone."""


def find(facts: Facts, log: Unprovoked, program: Program) -> Matches:
    yield from _little_now(facts, log) or _little_then(facts, program)


def _little_now(facts: Facts, log: Unprovoked) -> list[Match]:
    value = facts.variables.get(_RESERVE, "")
    reserve = int(value) << 20 if value.isdecimal() else 0
    left = {}
    for device in devices_in_scope(facts):
        free = free_bytes(device) - (reserve if reserve < free_bytes(device) else 0)
        if free < device.memory_total_bytes * (_SHARED if _largest(device) else _LITTLE):
            left[device] = free
    if not left:
        return []
    device = min(left, key=lambda gpu: left[gpu])
    reserved = left[device] < free_bytes(device)
    release = unset(_RESERVE) if reserved else None
    holder = None if reserved else _largest(device)
    held = Holders.of(facts, [device], instead(facts, tuple(left), "or use only GPUs that are free"))
    seen = [*map(holders, left), *([f"{_RESERVE}={value}"] if reserved else [])]
    return [
        Match(
            evidence=(*seen, *log.said(DEVICE_CREATED, most=1)),
            figures={**_left(device, left[device]), "holder": _words(holder) if holder else ""},
            fix=(release, CAUSE.fix[1]) if release else (*held.fix(), CAUSE.fix[1]),
            tried=release,
            # Beside another program the GPU can be used, if not by a program that needs all of it.
            stage=None if left[device] < device.memory_total_bytes * _LITTLE else Stage.CONFIGURATION,
        )
    ]


def _little_then(facts: Facts, program: Program) -> list[Match]:
    """Look for a program that ran out of memory when much less than the GPU's memory was left."""
    failed = program.said(POOL_FULL, most=1)
    if not failed or shared_otherwise(program):
        return []
    devices = {device.pci_bus_id: device for device in devices_in_scope(facts)}
    for made in program.all(DEVICE_CREATED):
        device = devices.get(made["pci"].lower())
        if device is None or int(made["mib"]) << 20 >= device.memory_total_bytes * _LITTLE:
            continue
        first = nvidia_smi("while the program runs; or raise the limit that it sets itself")
        seen = (text(made.line), *failed, holders(device))
        return [Match(seen, Confidence.POSSIBLE, _left(device, int(made["mib"]) << 20), fix=(first, CAUSE.fix[1]))]
    return []


def _largest(device: NvmlDevice) -> GpuProcess | None:
    """Return the process of another program that holds at least a quarter of a GPU's memory, the largest; None if none
    is known."""
    least = device.memory_total_bytes / 4
    others = (process for process in device.processes if process.computes and (process.used_bytes or 0) >= least)
    return max(others, key=lambda process: process.used_bytes or 0, default=None)


def _words(holder: GpuProcess) -> str:
    return f": process {described(holder)} holds {gib(holder.used_bytes or 0)}"


def _left(device: NvmlDevice, left: int) -> dict[str, Figure]:
    return {"gpu": device.index, "left": gib(left), "total": gib(device.memory_total_bytes), "holder": ""}
