"""out of GPU memory: other processes hold it

TensorFlow takes nearly all free memory of every GPU that it sees when it first computes, whether it needs it or not,
and keeps it until the process ends. A second process then fails: when its context is created ("cudaSetDevice() failed:
out of memory", "Bad StatusOr access: RESOURCE_EXHAUSTED") or when it takes its own pool ("failed to allocate ... from
device", in sizes that fall by a tenth, for ever if nothing is left). A notebook whose cell has ended holds its memory
until its kernel is shut down.
"""

from __future__ import annotations

from gpudiag.cause import Cause, Match, Matches, Program
from gpudiag.causes.shared.devices import ChosenGpus
from gpudiag.causes.shared.holding import Holders, instead
from gpudiag.causes.shared.memory import (
    GROW,
    GROW_BY_VARIABLE,
    checked,
    devices_in_scope,
    holders,
    refused_with_room,
    shared_otherwise,
)
from gpudiag.fix import check, edit_note, export
from gpudiag.knowledge.messages.memory import DEVICE_FULL
from gpudiag.knowledge.origin import Origin
from gpudiag.model.diagnosis import Confidence
from gpudiag.model.facts import Facts

CAUSE = Cause(
    title="out of GPU memory: {who} holds it{why}",
    fix=(
        check("ps -o pid,user,etime,args -p 4711"),
        edit_note("or let each take only what it needs:"),
        GROW,
        GROW_BY_VARIABLE,
        export("CUDA_VISIBLE_DEVICES", "GPU-00000001-0000-4000-8000-000000000000", "or use another GPU"),
    ),
    url="https://www.tensorflow.org/guide/gpu#limiting_gpu_memory_growth",
    unless={
        "host_memory_not_pinned": "the memory that is short is the host's",
        "ranks_share_gpus": "the processes are the program's own ranks",
    },
)


def find(facts: Facts, gpus: ChosenGpus, program: Program, origin: Origin) -> Matches:
    here = checked(gpus.rows, DEVICE_FULL)
    said = program.said(DEVICE_FULL)
    if (not here and (not said or shared_otherwise(program))) or refused_with_room(facts, gpus.rows):
        return
    taken = [device for device in devices_in_scope(facts) if device.memory_used_bytes > device.memory_total_bytes / 2]
    free = [device for device in devices_in_scope(facts) if device.memory_used_bytes < device.memory_total_bytes / 4]
    full = [device for device in devices_in_scope(facts) if device not in free]
    other = instead(facts, full, "or use another GPU") if free else gpus.hidden_and_free
    held = Holders.of(facts, taken, other if taken else None)
    others = f"{origin.owner.name} or another process" if origin.owner and origin.is_of_another else "another process"
    nobody = ["NVML shows nobody who holds it now"] if facts.nvml_devices else []
    yield Match(
        evidence=(*(here or said), *(map(holders, taken) if taken else nobody)),
        confidence=(Confidence.PROVED if here else Confidence.LIKELY) if taken else Confidence.POSSIBLE,
        figures={"who": held.who or others, "why": held.why},
        fix=held.fix(None if held.is_wanted else CAUSE.fix[1], *CAUSE.fix[2:4]),
        tried=other if here and taken and free and other and other.change else None,
    )
