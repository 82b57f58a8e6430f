"""a GPU serves only one process at a time (compute mode exclusive_process), and another process has it

In the compute mode exclusive_process, which clusters set, the second process that makes a context on the GPU is
refused. TensorFlow lists the GPU all the same; then creating its devices fails with "busy or unavailable", and in 2.21
every later call into TensorFlow in that process blocks for ever. The second process is often one's own: a notebook that
is still open, a second worker, pytest -n. Under MPS the mode is right, and programs must find the daemon
(CUDA_MPS_PIPE_DIRECTORY).
"""

from __future__ import annotations

from gpudiag.cause import Cause, Match, Matches
from gpudiag.causes.shared.devices import ChosenGpus, SaidToBeBusy, computing
from gpudiag.causes.shared.holding import Holders, instead
from gpudiag.causes.shared.machine import container
from gpudiag.causes.shared.memory import holders
from gpudiag.fix import Action, Role, check, configure, export, note, run_container
from gpudiag.knowledge.variables import MPS_PIPES, mps_folder
from gpudiag.model.diagnosis import Confidence
from gpudiag.model.facts import Facts, Unknown

CAUSE = Cause(
    title="GPU {index} {serves} only one process at a time (compute mode exclusive_process), and {holder}",
    fix=(
        check("ps -o pid,user,etime,args -p 4711"),
        note("there is no other GPU to choose here"),
        configure(
            "sudo nvidia-smi -i {index} -c 0",
            "lets several processes in; on a cluster the administrators decide",
            role=Role.ALTERNATIVE,
        ),
    ),
    url="https://docs.nvidia.com/deploy/mps/index.html",
)


def find(facts: Facts, gpus: ChosenGpus, busy: SaidToBeBusy) -> Matches:
    held = [pair for pair in gpus.by_nvml if (pair[1].compute_mode or "").startswith("exclusive")]
    if not held:
        return
    used = [pair for pair in held if computing(pair[1])]
    gpu, device = (used or held)[0]
    pids = ", ".join(map(str, computing(device)))
    rest = [gpu for gpu, _ in used or held]
    other: Action | None = gpus.without(rest)
    if other and other.change is not None and len(rest) < len(gpus.gpus):  # not each is for every rank or job
        other = instead(facts, [device for _, device in used or held], "")
    all_held = len(used) == len(gpus.gpus) > 1 and not (other and other.change)
    holding = Holders.of(facts, [device for _, device in used] if all_held else [device], other)
    yield Match(
        evidence=(
            f"GPU {gpu.index} ({gpu.name}): compute mode {device.compute_mode}",
            *([holders(device) for _, device in used] if all_held else []),
            *([holders(device)] if pids and not all_held else []),
            *([] if pids else ["processes on it: none that NVML lists"]),
            busy.text,
        ),
        confidence=Confidence.PROVED if pids else Confidence.LIKELY,
        figures={
            "index": " and ".join(str(gpu.index) for gpu, _ in used) if all_held else gpu.index,
            "serves": "serve" if all_held else "serves",
            "holder": f"{holding.who} {'use them' if all_held else 'uses it'}{holding.why}"
            if pids
            else "another process uses or used it",
        },
        fix=(*_by_mps(facts), *holding.fix())
        if _uses_mps(facts, holding)
        else _opened_to_all(facts, holding, [gpu.index for gpu, _ in used])
        if all_held
        else (*holding.fix(), CAUSE.fix[2]),
        tried=other if other and other.change else None,
    )


def _opened_to_all(facts: Facts, holding: Holders, indices: list[int]) -> tuple[Action | None, ...]:
    """Return what frees GPUs that are all in use: the mode first, for root whose own programs are on them."""
    root = not isinstance(facts.system, Unknown) and facts.system.root
    own = all(process.holder is not None and not process.holder.of_another_user for process in holding.processes)
    command = f"sudo nvidia-smi -i {','.join(map(str, indices))} -c 0"
    mode = configure(command, CAUSE.fix[2].note, role=Role.FIX if root and own else Role.ALTERNATIVE)
    return (mode, *holding.fix()) if root and own else (*holding.fix(), mode)


def _uses_mps(facts: Facts, holding: Holders) -> bool:
    """Return whether programs share the GPU by MPS, for which this mode is the right one."""
    commands = [process.holder.command or "" for process in holding.processes if process.holder is not None]
    return MPS_PIPES in facts.variables or any(command.startswith("nvidia-cuda-mps") for command in commands)


def _by_mps(facts: Facts) -> tuple[Action, ...]:
    folder = mps_folder(facts.variables)
    if container(facts):
        clause = "reaches the daemon of MPS, which lets several programs in: it needs the host's /dev/shm, too"
        return (run_container("--ipc=host", f"-v {folder}:{folder}", note=clause),)
    return (export(MPS_PIPES, folder, "reaches the daemon of MPS, which lets several programs in"),)
