"""a launcher started several processes here, and each takes the memory of all GPUs that it sees

Each process of TensorFlow takes nearly all free memory of every GPU that it sees when it first computes. A launcher
starts one for each GPU and numbers them, and does not say which GPU is whose: the first process takes all, and the
others run out of memory. A mask that is the same for all processes puts them on one GPU.
"""

from __future__ import annotations

from gpudiag.cause import Cause, Match, Matches, Rows
from gpudiag.causes.shared.holding import Holders, own_gpu
from gpudiag.causes.shared.launchers import Launcher
from gpudiag.causes.shared.memory import checked, devices_in_scope, holders
from gpudiag.causes.shared.visibility import MASK
from gpudiag.fix import Role, check, edit, export
from gpudiag.knowledge.messages.memory import DEVICE_FULL
from gpudiag.knowledge.variables import FORCE_GROWTH
from gpudiag.model.diagnosis import Confidence
from gpudiag.model.facts import Facts
from gpudiag.model.visibility import gpus_in_scope

CAUSE = Cause(
    title="{launcher} started {processes} processes here, and each takes the memory of {all} that it sees: {who} "
    "holds it",
    fix=(
        edit(
            "os.environ['CUDA_VISIBLE_DEVICES'] = os.environ['LOCAL_RANK']",
            "gives each process one GPU; must come before import tensorflow",
        ),
        export("TF_FORCE_GPU_ALLOW_GROWTH", "true", "if they are meant to share a GPU", role=Role.ALTERNATIVE),
        check("ps -o pid,user,etime,args -p 4711", "shows who holds it: if it does not belong to this program, end it"),
    ),
    url="https://www.tensorflow.org/guide/gpu#limiting_gpu_memory_growth",
    unless={
        "host_memory_not_pinned": "the memory that is short is the host's",
    },
)
_WORKERS = "PYTEST_XDIST_WORKER_COUNT"


def find(facts: Facts, rows: Rows, launcher: Launcher | None) -> Matches:
    full = checked(rows, DEVICE_FULL)
    taken = [gpu for gpu in devices_in_scope(facts) if gpu.memory_used_bytes > gpu.memory_total_bytes / 2]
    started = (launcher.name, launcher.processes, launcher.variable) if launcher else _of_xdist(facts)
    if not full or not taken or started is None or facts.variables.get(FORCE_GROWTH) == "true":
        return
    name, processes, variable = started
    visible = len(gpus_in_scope(facts))
    held = Holders.of(facts, taken, own_gpu(facts) or own_gpu(facts, "LOCAL_RANK"))
    of_run = [process.holder is not None and process.holder.run for process in held.processes]
    pids = ",".join(str(process.pid) for process in held.processes)
    yield Match(
        evidence=(
            *full,
            f"{variable}={facts.variables[variable]}, {MASK}={facts.variables.get(MASK, '(not set)')}",
            *map(holders, taken),
        ),
        confidence=Confidence.LIKELY,
        figures={
            "launcher": name,
            "processes": processes,
            "all": f"all {visible} GPUs" if visible > 1 else "the one GPU",
            "who": held.who or "another one",
        },
        fix=(
            held.other,
            CAUSE.fix[1],
            check(f"ps -o pid,user,etime,args -p {pids}", _IF_OTHER) if pids and not all(of_run) else None,
        ),
    )


_XDIST = "pytest-xdist"
_IF_OTHER = "shows who holds it: if it does not belong to this program, end it"


def _of_xdist(facts: Facts) -> tuple[str, int, str] | None:
    count = facts.variables.get(_WORKERS, "")
    return (_XDIST, int(count), _WORKERS) if count.isdecimal() and int(count) > 1 else None
