"""several processes of the program use one GPU at the same time

Each process of TensorFlow takes nearly all free memory of each GPU that it sees, at its first operation: the first
leaves too little for the next. Launchers start a process for each GPU and number them; a program that does not choose
its GPU by that number uses the first, or all of them.
"""

from __future__ import annotations

from gpudiag.cause import Cause, Match, Matches
from gpudiag.causes.shared.traced import GROWTH_GUIDE, MOST
from gpudiag.fix import Action, Role, edit, export, note
from gpudiag.knowledge.variables import FORCE_GROWTH
from gpudiag.model.program import MadeDevice, Process, ProgramTrace, Setting, place
from gpudiag.model.program import SettingFate as Fate
from gpudiag.model.report import Severity

CAUSE = Cause(
    title="{count} processes of the program use GPU {gpu} at the same time",
    severity=Severity.WARNING,
    fix=(
        edit("os.environ['CUDA_VISIBLE_DEVICES'] = os.environ['LOCAL_RANK']", "before import tensorflow"),
        export("TF_FORCE_GPU_ALLOW_GROWTH", "true", "if they are to share it", role=Role.ALTERNATIVE),
    ),
    url=GROWTH_GUIDE,
    needs_gpu=False,
)
_BY_RANK = edit(
    "os.environ['CUDA_VISIBLE_DEVICES'] = os.environ['LOCAL_RANK']", "before import tensorflow: a GPU for each"
)
_MAKING_S = 2.0
"""The longest time that TensorFlow takes to make its devices; their creation is recorded when it is complete."""
_BY_TASK = edit("os.environ['CUDA_VISIBLE_DEVICES'] = str(json.loads(os.environ['TF_CONFIG'])['task']['index'])")


def find(program: ProgramTrace) -> Matches:
    users: dict[str, list[Process]] = {}
    for process in program.processes:
        if process.how == "forked" and process.forked_when == "initialised":
            continue  # another cause
        for gpu in dict.fromkeys(device.gpu for device in process.devices if _is_used(program, process, device)):
            users.setdefault(gpu, []).append(process)
    shared = {
        gpu: at_once
        for gpu, all_of in users.items()
        if len(at_once := _at_once(all_of)) > 1
        and (_ranks_beside_free_gpu(program, at_once) or not all(_shares(program, process) for process in at_once))
    }
    for gpu, processes in list(shared.items())[:1]:
        others = f"; likewise GPU {', '.join(other for other in shared if other != gpu)}" if len(shared) > 1 else ""
        yield Match(
            evidence=tuple(
                f"process {process.pid}{_named(process)}: CUDA_VISIBLE_DEVICES "
                f"{'is not set' if process.mask is None else repr(process.mask)}{_left(process, gpu)}"
                for process in processes[:MOST]
            )
            + ((others.removeprefix("; "),) if others else ())
            + tuple(f"no process of the program uses GPU {free}" for free in _free(program)),
            figures={"count": len(processes), "gpu": gpu},
            fix=(_own_gpu(processes), CAUSE.fix[1]),
        )


def _is_used(program: ProgramTrace, process: Process, device: MadeDevice) -> bool:
    """Return whether a process uses a GPU, or failed with an error, such as the lack of memory there."""
    return bool(device.gpu) and (program.uses(process, device) or bool(process.errors))


def _named(process: Process) -> str:
    """Return the rank of a process, and the line that started it."""
    parts = [process.rank, f"started at {place(process.started_at)}" if process.started_at else ""]
    return f" ({', '.join(filter(None, parts))})" if any(parts) else ""


def _ranks_beside_free_gpu(program: ProgramTrace, processes: list[Process]) -> bool:
    """Return whether a launcher numbered the processes, and there is a GPU that no process of the program uses."""
    return bool(_free(program)) and len({process.rank for process in processes if process.rank}) == len(processes)


def _free(program: ProgramTrace) -> list[int]:
    """Return the GPUs of the machine that no process of the program uses."""
    used = {device.gpu for process in program.processes for device in process.devices}
    return [card.index for card in program.booked if str(card.index) not in used]


def _shares(program: ProgramTrace, process: Process) -> bool:
    """Return whether a setting keeps the process from taking a whole GPU: growth, a limit or a fraction."""
    return any(
        setting.fate in (Fate.TOOK_EFFECT, Fate.NOT_CHECKED) and _is_for_sharing(setting)
        for setting in program.settings
        if setting.process == process.pid or not setting.line
    )


def _is_for_sharing(setting: Setting) -> bool:
    if setting.what in ("memory_growth", FORCE_GROWTH):
        return "true" in setting.value.lower()
    return setting.what == "logical_devices" or "per_process_gpu_memory_fraction" in setting.value


def _own_gpu(processes: list[Process]) -> Action:
    """Return how to give each process its own GPU, by the number of the process if it has one."""
    process = processes[0]
    if any(other.parent == process.pid for other in processes):
        before = (
            f"in process {process.pid}, which started the others, before it uses TensorFlow, if they compute for it"
        )
        return edit("tf.config.set_visible_devices([], 'GPU')", before)
    if process.rank.startswith("TF_CONFIG"):
        return _BY_TASK
    if process.rank:
        return _BY_RANK
    if not process.started_at:
        return note("start each process with CUDA_VISIBLE_DEVICES=N, its own GPU")
    return edit(
        "os.environ['CUDA_VISIBLE_DEVICES'] = '0'",
        f"before {place(process.started_at)} starts it, or in its env=; another GPU for each process",
    )


def _at_once(processes: list[Process]) -> list[Process]:
    """Return the processes that hold the GPU while another one does."""
    return [
        process for process in processes if any(_overlap(process, other) for other in processes if process is not other)
    ]


def _overlap(first: Process, other: Process) -> bool:
    """Return whether two processes live at the same time, by their first and last sign of life.

    The parent of a process is alive when the process begins, and still holds its own GPU memory.
    """
    if other.pid == first.parent and 0 < other.made_s <= first.began_s:
        return True
    if first.pid == other.parent and 0 < first.made_s <= other.began_s:
        return True
    return _first(first) <= _last(other) and _first(other) <= _last(first)


def _first(process: Process) -> float:
    return max(process.began_s, process.made_s - _MAKING_S)


def _last(process: Process) -> float:
    return max(process.last_s, process.seen_s, _first(process))


def _left(process: Process, gpu: str) -> str:
    """Return how much of a GPU was free when the process made its devices, if others held a large part."""
    device = next((device for device in process.devices if device.gpu == gpu), None)
    if device is None or device.free_bytes is None or 2 * device.free_bytes > device.total_bytes:
        return ""
    return f"; {device.free_bytes >> 20:,} MiB of {device.total_bytes >> 20:,} MiB were left for it"
