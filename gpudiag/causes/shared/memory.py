"""Shared by causes: memory that other processes hold, or that is less than a program assumes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from gpudiag.cause import Program, Rows
from gpudiag.causes.shared.launchers import LocalRank, allocated
from gpudiag.causes.shared.machine import container
from gpudiag.causes.shared.visibility import MASK
from gpudiag.fix import Action, Kind, Where, check, edit, export, note, nvidia_smi, run
from gpudiag.knowledge.log_lines import Log
from gpudiag.knowledge.message import Message
from gpudiag.knowledge.messages.memory import DEVICE_FULL, JAX_AT_WORK, JAX_FULL, TORCH_AT_WORK, TORCH_FULL
from gpudiag.knowledge.starters import BY_NAME
from gpudiag.model.facts import (
    DEAD,
    UNINTERRUPTIBLE,
    ZOMBIE,
    Facts,
    GpuProcess,
    NvmlDevice,
    ProcessIdentity,
    Unknown,
)
from gpudiag.model.report import Broken
from gpudiag.model.visibility import IDLE_BYTES, gpus_in_scope

ROOM_BYTES = 1 << 30
"""The free memory that a CUDA context needs."""
GROW = edit(
    "for gpu in tf.config.list_physical_devices('GPU'): tf.config.experimental.set_memory_growth(gpu, True)",
    "before the first operation",
)
GROW_BY_VARIABLE = export("TF_FORCE_GPU_ALLOW_GROWTH", "true", "the same with no change to the program")
OF_FRAMEWORKS = (JAX_FULL, TORCH_FULL, JAX_AT_WORK, TORCH_AT_WORK)


def gib(size: float) -> str:
    return f"{size / (1 << 30):.1f} GiB"


def devices_in_scope(facts: Facts) -> tuple[NvmlDevice, ...]:
    """Return the GPUs in scope whose memory NVML reports; it does not report that of a single MIG instance."""
    chosen = {gpu.pci_bus_id for gpu in gpus_in_scope(facts)}
    return tuple(
        device
        for device in facts.nvml_devices
        if device.pci_bus_id in chosen and device.memory_total_bytes and device.mig_mode != "enabled"
    )


def free_bytes(device: NvmlDevice) -> int:
    return device.memory_total_bytes - device.memory_used_bytes


def holders(device: NvmlDevice) -> str:
    """Return who holds memory of a GPU, in words."""
    known = [
        f"{'process' if process.computes else 'the drawing process'} {process.pid}{_who(process.holder)} holds "
        + ("some, NVML does not report how much" if process.used_bytes is None else gib(process.used_bytes))
        for process in sorted(device.processes, key=lambda candidate: -(candidate.used_bytes or 0))
    ]
    if not known and device.opened_by:
        known = [
            f"NVML lists nobody; process {process.pid}{_who(process.holder)} has its device file open"
            for process in device.opened_by
        ]
    elif not known and device.memory_used_bytes > IDLE_BYTES:
        known = ["a process that NVML does not list holds the rest"]
    return "; ".join(
        [f"GPU {device.index}: {gib(free_bytes(device))} of {gib(device.memory_total_bytes)} free", *known]
    )


def largest_holder(device: NvmlDevice) -> GpuProcess | None:
    """Return the process of another program that holds at least a quarter of a GPU's memory, the largest; None if none
    is known."""
    least = device.memory_total_bytes / 4
    others = (process for process in device.processes if process.computes and (process.used_bytes or 0) >= least)
    return max(others, key=lambda process: process.used_bytes or 0, default=None)


def described(process: GpuProcess) -> str:
    """Return the number of a process with its program, the framework that it has loaded and its job or container."""
    holder = process.holder
    if holder is None:
        return str(process.pid)
    user = (f"of {holder.user}" if holder.user else "of another user") if holder.of_another_user else None
    known = ", ".join(filter(None, (user, holder.command, holder.uses, holder.job)))
    return f"{process.pid} ({known})" if known else str(process.pid)


def _who(holder: ProcessIdentity | None) -> str:
    return f" ({holder.words})" if holder is not None and holder.words else ""


@dataclass(frozen=True)
class Holding:
    """Why a process holds memory of a GPU, which decides what is to be done."""

    words: str
    """What is known of the process, a sentence that begins with ``it``."""
    fix: tuple[Action, ...]
    is_wanted: bool = False
    """True if the process belongs to this program's run, or to the desktop: it is not to be ended."""
    can_share: bool = True
    """False if its memory is lost until something else ends: to take less does not help."""


def holding(process: GpuProcess, facts: Facts) -> Holding | None:
    """Return why a process holds memory, if ``/proc`` or NVML shows more than that it does."""
    holder, pid = process.holder, process.pid
    if container(facts) and (holder is None or holder.state == DEAD) and process.computes:
        return Holding("it runs outside of this container, where it cannot be seen", (_ON_THE_HOST,))
    if holder is None:
        return None if process.computes else _DRAWS
    if (by_state := _by_state(holder, pid)) is not None:
        return by_state
    if holder.is_ancestor:
        words = "it has started this program, and keeps its memory until it ends"
        return Holding(words, (note("start this program before that one computes, or let both take less:"),), True)
    if holder.run is not None:
        kind, number = ("worker", "pytest run") if "XDIST" in f"{holder.rank}" else ("rank", "run")
        words = f"it is {kind} {(holder.rank or '').partition('=')[2]} of the same {number}"
        return Holding(words, (note("give each process of the run a GPU of its own, or let each take less:"),), True)
    command = holder.command or ""
    if not process.computes or command.partition(" ")[0] in _OF_DESKTOPS:
        return _DRAWS
    return _by_program(holder, command)


def _by_state(holder: ProcessIdentity, pid: int) -> Holding | None:
    """Return why a process holds memory that does not run."""
    if holder.state == DEAD:
        return Holding("NVML still lists it, but it does not exist any more", _OF_A_DEAD_PROCESS, can_share=False)
    if holder.state == ZOMBIE:
        parent = f"process {holder.parent}" + (f" ({holder.parent_command})" if holder.parent_command else "")
        end = (
            run(f"kill {holder.parent}", "ends its parent, if that does nothing else", kind=Kind.END_PROCESS)
            if holder.parent and holder.parent > 1
            else note("start the container again: its first process does not look after processes that have ended")
        )
        words = f"it is a zombie: it has ended, and its parent, {parent}, has not noticed"
        return Holding(words, (end, *_OF_A_DEAD_PROCESS), can_share=False)
    if holder.state == UNINTERRUPTIBLE:
        return Holding(
            "it waits in the kernel, where no signal reaches it",
            (
                check("sudo dmesg | grep -i -e nvrm -e xid -e 'blocked for more'", "shows what the driver waits for"),
                check(f"sudo cat /proc/{pid}/stack", "shows where it waits: if in the driver, only a reboot ends it"),
            ),
            can_share=False,
        )
    if holder.state in ("T", "t"):
        return Holding(
            "it is stopped, as by Ctrl-Z",
            (
                run("fg", "in its terminal: lets it go on; then end it by Ctrl-C"),
                run(f"kill {pid} && kill -CONT {pid}", "or ends it from here", kind=Kind.END_PROCESS),
            ),
            can_share=False,
        )
    return None


def _by_program(holder: ProcessIdentity, command: str) -> Holding | None:
    """Return why a program holds memory that runs, by its job, its name or its user."""
    program = command.partition(" ")[0]
    if command.startswith("ray::") or (holder.same_job or "").startswith("RAY_JOB_ID"):
        words = "it is a worker of Ray" + (", of the same job" if holder.same_job else "")
        own = note("declare num_gpus=1 for each task or actor that uses a GPU: Ray then gives each one of its own")
        return Holding(words, (own,), True)
    if holder.same_job is not None:
        words = f"it is another process of the same job ({holder.same_job})"
        return Holding(words, (note("give each process of the job a GPU of its own, or let each take less:"),), True)
    if command.startswith("nvidia-cuda-mps"):
        clients = check("echo ps | nvidia-cuda-mps-control", "lists the clients: the memory is theirs")
        return Holding("it is the server of MPS, for its clients", (clients,), True)
    if program in ("ollama", "ollama_llama_server"):
        unload = check("ollama ps", "shows its model, and until when it stays loaded: ollama stop MODEL unloads it")
        return Holding("it is Ollama, which keeps a model loaded", (unload,))
    if holder.of_another_user:
        ask = note(f"ask {holder.user or 'its user'} to end it, or use another GPU: it is another user's process")
        return Holding("", (ask.replaced(kind=Kind.ASK_ADMIN),))
    if "ipykernel" in command:
        shut = note("in Jupyter: Kernel, Shut Down Kernel, of the notebook that is not needed")
        return Holding("it is a notebook's kernel", (shut,), True)
    if "spyder_kernels" in command:
        shut = note("in Spyder: Consoles, Restart kernel, of the console that is not needed")
        return Holding("it is the kernel of a console of Spyder", (shut,), True)
    return None


_DRAWS = Holding(
    "it draws the screen",
    (note("connect the screen to another GPU, or leave the desktop its memory and take less:"),),
    is_wanted=True,
)
_OF_DESKTOPS = frozenset(
    ("Xorg", "Xwayland", "X", "gnome-shell", "kwin_x11", "kwin_wayland", "plasmashell", "cinnamon", "mutter", "sway")
)
"""Programs that draw the screen. NVML lists some of them as computing, too."""
_ON_THE_HOST = check("nvidia-smi", "a container cannot see which process holds the memory", where=Where.HOST)
_OF_A_DEAD_PROCESS = (
    check("sudo fuser -v /dev/nvidia*", "shows which process, such as a child of it, has the GPU open: end that"),
)


def instead(facts: Facts, full: Sequence[NvmlDevice], why: str) -> Action | None:
    """Return how to use GPUs in scope other than the ``full`` ones; None if none of them is this process's to use.

    What a launcher or a scheduler gave to others is not offered: a rank has one GPU of its own, and of a job whose GPUs
    nothing names only those count that its mask lets through.
    """
    devices = devices_in_scope(facts)
    rank = LocalRank.in_variables(facts.variables)
    if rank is not None and rank.variable != "PYTEST_XDIST_WORKER":
        own = edit(
            f"os.environ['{MASK}'] = os.environ['{rank.variable}']",
            "gives each process of the run a GPU of its own; must come before import tensorflow",
        )
        return own if 0 < rank.number < len(devices) and devices[rank.number] not in full else None
    given = allocated(facts)
    starters = () if isinstance(facts.system, Unknown) else facts.system.started_by
    if (
        given is None
        and MASK not in facts.variables
        and any(BY_NAME[name].elsewhere for name in starters if name in BY_NAME)
    ):
        return None
    room = [gpu.uuid for gpu in devices if gpu not in full and (given is None or gpu.index in given)]
    return export(MASK, ",".join(room), why) if room else None


def unseen(device: NvmlDevice) -> bool:
    """Return whether a process that NVML names, or one that it does not, cannot be seen from this pid namespace."""
    if device.processes:
        return all(process.holder is None for process in device.processes)
    return device.memory_used_bytes > IDLE_BYTES


def command_for_holders(facts: Facts, devices: Sequence[NvmlDevice]) -> Action:
    """Return the command that shows who is on these GPUs, or ends what was left behind."""
    listed = [process for device in devices for process in device.processes]
    processes = [process for process in listed if process.computes] or listed
    pids = dict.fromkeys(str(gpu_process.pid) for gpu_process in processes)
    gone = dict.fromkeys(
        str(gpu_process.pid)
        for gpu_process in processes
        if gpu_process.holder is not None and gpu_process.holder.parent_gone
    )
    if gone and len(gone) == len(pids):
        return run(f"kill {' '.join(gone)}", "if nobody waits for it: what started it has ended", kind=Kind.END_PROCESS)
    opened = [str(process.pid) for device in devices for process in device.opened_by]
    if opened and not pids:
        note_of_opened = "shows the processes that have the GPU open, which NVML does not list: end what is left over"
        return check(f"ps -o pid,user,stat,etime,args -p {','.join(dict.fromkeys(opened))}", note_of_opened)
    if container(facts) and devices and all(map(unseen, devices)):
        return _ON_THE_HOST
    return check(f"ps -o pid,user,etime,args -p {','.join(pids)}") if pids else nvidia_smi()


def checked(rows: Rows, message: Message) -> tuple[str, ...]:
    """Return the failures with ``message`` in probes that fill no memory."""
    met = []
    for row in rows:
        if row.area in ("discovery", "libraries"):
            met += (
                [row.outcome.detail]
                if isinstance(row.outcome, Broken)
                else [finding.message for finding in row.findings]
            )
            met += row.log if isinstance(row.outcome, Broken) or row.findings else ()
    return Log(met).said(message, most=1)


def shared_otherwise(program: Program) -> bool:
    """Return True if the log names others on the GPU: another framework, or other workers of a test run."""
    return program.first(*OF_FRAMEWORKS) is not None or program.workers > 1


def refused_with_room(facts: Facts, rows: Rows) -> tuple[str, ...]:
    """Return out-of-memory errors in discovery's probes, if NVML shows free memory on every GPU."""
    devices = devices_in_scope(facts)
    room = bool(devices) and all(
        free_bytes(device) > max(ROOM_BYTES, device.memory_total_bytes / 2) for device in devices
    )
    return checked(rows, DEVICE_FULL) if room else ()


def free_share(log: Log) -> float | None:
    """Return how much of the GPU's memory was free when a library failed, from 0 to 1; None if no line says it."""
    shares = [int(event["free"]) / int(event["total"]) for event in log.events if event["free"] and event["total"]]
    return max(shares, default=None)


MOST_IS_FREE = 0.5
"""If a larger share of the memory was free, memory is not blamed for a library that did not start.

It was chosen, not measured: a pool that leaves a library too little has taken nearly all of the GPU."""
