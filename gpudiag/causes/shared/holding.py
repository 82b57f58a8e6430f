"""Shared by causes: who is on a GPU that this program cannot use, and what this user can do about it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from gpudiag.causes.shared.launchers import Launcher, LocalRank, allocated
from gpudiag.causes.shared.machine import container
from gpudiag.causes.shared.memory import ROOM_BYTES, devices_in_scope, free_bytes
from gpudiag.causes.shared.visibility import MASK
from gpudiag.fix import Action, Kind, Role, Where, check, edit, export, note, nvidia_smi, run
from gpudiag.knowledge.starters import BY_NAME
from gpudiag.model.facts import DEAD, UNINTERRUPTIBLE, ZOMBIE, Facts, GpuProcess, NvmlDevice, ProcessIdentity, Unknown
from gpudiag.model.visibility import IDLE_BYTES, gpus_in_scope


@dataclass(frozen=True)
class Holding:
    """Why a process is on a GPU, which decides what is to be done."""

    words: str
    """What is known of the process, a sentence that begins with ``it``; "" if its description says all."""
    fix: tuple[Action, ...]
    is_wanted: bool = False
    """True if the process belongs to this program's run, or to the desktop: it is not to be ended."""
    can_share: bool = True
    """False if its memory is lost until something else ends: to take less does not help."""


@dataclass(frozen=True)
class Holders:
    """The processes on GPUs that this program cannot use."""

    processes: tuple[GpuProcess, ...]
    """Those that compute, or else all that are known, the largest first; empty if nobody is known."""
    held: Holding
    """Why the largest of them is there."""
    other: Action | None
    """How to use another GPU; None if there is none that is this process's to use."""
    has_room: bool = True
    """True if the GPUs have room for a program that takes only what it needs."""

    @classmethod
    def of(cls, facts: Facts, full: Sequence[NvmlDevice], other: Action | None) -> Holders:
        """Return who is on the ``full`` GPUs; ``other`` chooses another GPU."""
        listed = [process for device in full for process in (*device.processes, *device.opened_by)]
        computing = [process for process in listed if process.computes] or listed  # a desktop holds little beside them
        by_size = sorted(computing, key=lambda process: -(process.used_bytes or 0))
        processes = tuple({process.pid: process for process in by_size}.values())
        has_room = not full or any(free_bytes(device) > ROOM_BYTES for device in full)
        return cls(processes, _held(processes, facts, full), other, has_room)

    @property
    def who(self) -> str:
        """The processes in words; "" if nobody is known."""
        return f"process {', '.join(map(described, self.processes))}" if self.processes else ""

    @property
    def is_wanted(self) -> bool:
        """True if the largest process is not to be ended, so that both have to take less."""
        return self.held.is_wanted

    @property
    def why(self) -> str:
        """What is known of the largest process, as the end of a sentence; "" if nothing is."""
        largest = "the largest: " if len(self.processes) > 1 else ""
        return f"; {largest}{self.held.words}" if self.held.words else ""

    def fix(self, *share: Action | None) -> tuple[Action | None, ...]:
        """Return what this user can do, the best first; ``share`` are ways to share the GPU with its holder."""
        held, ends = self.held, self.held.fix
        # A holder that is to stay can take less, too; next to another's nothing helps if nothing is free.
        shared = share if held.can_share and (held.is_wanted or self.has_room) else ()
        # To take another GPU harms nobody; whether the holder may be ended, its user knows.
        is_line = self.other is not None and self.other.command
        return (self.other, *ends, *shared) if is_line else (*ends, *shared)


def _held(processes: tuple[GpuProcess, ...], facts: Facts, full: Sequence[NvmlDevice]) -> Holding:
    """Return why the largest of these processes is on the GPUs, with what to do about all of them."""
    why = holding(processes[0], facts) if processes else None
    if why is not None:
        return why
    if not processes:
        if container(facts) and full and all(map(_unseen, full)):
            return _OUTSIDE
        return Holding("", (nvidia_smi("shows who holds it: end that process"),))
    known = [process.holder for process in processes if process.holder is not None and process.holder.user]
    pids = " ".join(str(process.pid) for process in processes)
    if len(known) == len(processes) and all(holder.parent_gone for holder in known):
        note_of_left = "if nobody waits for it: what started it has ended"
        return Holding("", (run(f"kill {pids}", note_of_left, kind=Kind.END_PROCESS),))
    look = check(f"ps -o pid,user,etime,args -p {pids.replace(' ', ',')}")
    end = run(f"kill {pids}", "ends it, if it is not needed any more", kind=Kind.END_PROCESS)
    return Holding("", (look, end) if len(known) == len(processes) else (look,))


def described(process: GpuProcess) -> str:
    """Return the number of a process with its program, the framework that it has loaded and its job or container."""
    holder = process.holder
    if holder is None:
        return str(process.pid)
    user = (f"of {holder.user}" if holder.user else "of another user") if holder.of_another_user else None
    known = ", ".join(filter(None, (user, holder.command, holder.uses, holder.job)))
    return f"{process.pid} ({known})" if known else str(process.pid)


def holding(process: GpuProcess, facts: Facts) -> Holding | None:
    """Return why a process holds memory, if ``/proc`` or NVML shows more than that it does."""
    holder, pid = process.holder, process.pid
    if container(facts) and (holder is None or holder.state == DEAD) and process.computes:
        on_host = check(f"ps -o pid,user,etime,args -p {pid}", "its number is the host's", where=Where.HOST)
        ask = note(f"ask its user to end process {pid} of the host, if it is not needed", kind=Kind.ASK_USER)
        return Holding(_OUTSIDE.words, (on_host, ask))
    if holder is None:
        return None if process.computes else _DRAWS
    if (by_state := _by_state(holder, pid)) is not None:
        return by_state
    if holder.is_ancestor:
        words = "it has started this program, and keeps its memory until it ends"
        return Holding(
            words, (note("start this program before that one computes, or let both take less:"),), is_wanted=True
        )
    if holder.run is not None:
        kind, number = ("worker", "pytest run") if "XDIST" in f"{holder.rank}" else ("rank", "run")
        words = f"it is {kind} {(holder.rank or '').partition('=')[2]} of the same {number}"
        return Holding(words, _of_a_run(facts, number), is_wanted=True)
    if holder.rank is not None:
        words = f"it is a process of a run of several ({holder.rank}), which ends with it"
        look = check(f"ps -o pid,ppid,user,etime,args -p {pid}", "shows it, and what has started it")
        return Holding(words, (look, *_of_a_run(facts, "run")), is_wanted=True)
    command = holder.command or ""
    if not process.computes or command.partition(" ")[0] in _OF_DESKTOPS:
        return _DRAWS
    return _by_program(process, holder, facts)


def _of_a_run(facts: Facts, run_or_job: str) -> tuple[Action, ...]:
    """Return how each process of a run or a job gets a GPU of its own."""
    first = "" if len(facts.nvml_devices) == 1 else f"give each process of the {run_or_job} a GPU of its own, or "
    return (own_gpu(facts) or note(f"{first}let each process take less:"),)


def own_gpu(facts: Facts, otherwise: str = "") -> Action | None:
    """Return the line of a program that gives each process of its run a GPU of its own; None if no variable numbers the
    processes (then ``otherwise`` is taken), or if there is one GPU alone.

    A mask that all processes have chooses the GPUs of the run; if it names one alone, any of the machine is meant.
    """
    rank, gpus = LocalRank.in_variables(facts.variables), len(gpus_in_scope(facts))
    variable = otherwise if rank is None else rank.variable
    number = f"os.environ['{variable}']"
    if not variable or len(facts.nvml_devices) < 2:
        return None
    if variable == "PYTEST_XDIST_WORKER":
        number = f"{number}[2:]"
    share = f"int({number}) % {gpus if gpus > 1 else len(facts.nvml_devices)}"
    if gpus > 1 and MASK in facts.variables:
        number = f"os.environ['{MASK}'].split(',')[{share}]"
    elif number.endswith("[2:]") or _processes(facts) > len(facts.nvml_devices):
        number = f"str({share})"
    clause = "gives each process of the run a GPU of its own; must come before import tensorflow"
    return edit(f"os.environ['{MASK}'] = {number}", clause)


def _processes(facts: Facts) -> int:
    launcher = Launcher.in_variables(facts.variables)
    return launcher.processes if launcher else 1


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


def _by_program(process: GpuProcess, holder: ProcessIdentity, facts: Facts) -> Holding | None:
    """Return why a program holds memory that runs, by its job, its name or its user."""
    command = holder.command or ""
    program = command.partition(" ")[0]
    if command.startswith("ray::") or (holder.same_job or "").startswith("RAY_JOB_ID"):
        words = "it is a worker of Ray" + (", of the same job" if holder.same_job else "")
        own = note("declare num_gpus=1 for each task or actor that uses a GPU: Ray then gives each one of its own")
        return Holding(words, (own,), is_wanted=True)
    if holder.same_job is not None:
        words = f"it is another process of the same job ({holder.same_job})"
        return Holding(words, _of_a_run(facts, "job"), is_wanted=True)
    if command.startswith("nvidia-cuda-mps"):
        clients = check("echo ps | nvidia-cuda-mps-control", "lists the clients: the memory is theirs")
        return Holding("it is the server of MPS, for its clients", (clients,), is_wanted=True)
    what = _what_ends(program, command)
    if not holder.of_another_user:
        return what
    root = not isinstance(facts.system, Unknown) and facts.system.root
    if root and what is not None:
        return what
    end = what.fix[0].text if what is not None else f"end process {process.pid}, which is not yours"
    ask = note(f"ask {holder.user or 'its user'}: {end}", kind=Kind.ASK_USER)
    kill = run(f"kill {process.pid}", "as root, if its user agrees", kind=Kind.END_PROCESS, role=Role.ALTERNATIVE)
    return Holding("" if what is None else what.words, (ask, kill) if root else (ask,))


def _what_ends(program: str, command: str) -> Holding | None:
    """Return how what this program holds is given back, if the program itself has a way to do it."""
    if program in ("ollama", "ollama_llama_server"):
        unload = check("ollama ps", "shows its model, and until when it stays loaded: ollama stop MODEL unloads it")
        return Holding("it is Ollama, which keeps a model loaded", (unload,))
    if "ipykernel" in command:
        shut = note("in Jupyter: Kernel, Shut Down Kernel, of the notebook that is not needed")
        return Holding("it is a notebook's kernel", (shut,), is_wanted=True)
    if "spyder_kernels" in command:
        shut = note("in Spyder: Consoles, Restart kernel, of the console that is not needed")
        return Holding("it is the kernel of a console of Spyder", (shut,), is_wanted=True)
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
_OUTSIDE = Holding(
    "it runs outside of this container, where it cannot be seen",
    (
        check("nvidia-smi", "a container cannot see which process holds the memory", where=Where.HOST),
        note("ask its user to end it, if it is not needed", kind=Kind.ASK_USER),
    ),
)
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
        return own_gpu(facts) if 0 < rank.number < len(devices) and devices[rank.number] not in full else None
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


def _unseen(device: NvmlDevice) -> bool:
    """Return whether a process that NVML names, or one that it does not, cannot be seen from this pid namespace."""
    if device.processes:
        return all(process.holder is None for process in device.processes)
    return device.memory_used_bytes > IDLE_BYTES
