"""Shared by causes: the limits of a process, what each breaks, and how it is raised in the place that set it."""

from __future__ import annotations

from dataclasses import dataclass

from gpudiag.causes.shared.refusals import names, sandbox_of
from gpudiag.fix import Action, Kind, Role, check, configure, note, run, run_container, start
from gpudiag.knowledge.message import Message
from gpudiag.knowledge.messages.system import NO_HOST_MEMORY, NO_MORE_THREADS, THREADS_REFUSED, TOO_MANY_FILES
from gpudiag.model.facts import Facts, Limit, Unknown
from gpudiag.text import counted

_GIB = 1 << 30


@dataclass(frozen=True)
class LimitKind:
    """A kind of limit. Each option is "" where the place has none; ``{more}`` is a value that is enough."""

    words: str
    """What is limited, such as ``processes and threads``."""
    breaks: tuple[Message, ...] = ()
    """The messages of a program that meets it."""
    kills: bool = False
    """True if the kernel kills a process that meets it (SIGKILL)."""
    counts: bool = False
    """True if the kernel counts how often it refused."""
    in_bytes: bool = False
    option: str = ""
    """The option of ``docker run`` and its like."""
    unit: str = ""
    """The property of a systemd unit."""
    jobs: tuple[tuple[str, str], ...] = ()
    """For each scheduler of :mod:`gpudiag.knowledge.starters`, the command that starts a job with more of it."""
    pod: str = ""
    """Where Kubernetes sets it."""
    lxc: str = ""
    in_shell: str = ""
    """The command that raises it in a shell."""
    item: str = ""
    """Its name in /etc/security/limits.conf."""
    most: str = "unlimited"
    least: int = 0
    """How much of it an import of TensorFlow takes, roughly: with less it fails, in whatever words."""
    fewer: Action | None = None
    """How a program needs less of it."""


_FEWER_THREADS = run(
    "export TF_NUM_INTRAOP_THREADS=4 TF_NUM_INTEROP_THREADS=2 OPENBLAS_NUM_THREADS=4",
    "starts fewer threads",
    kind=Kind.SET_VARIABLE,
    role=Role.ALTERNATIVE,
)
_OF_THE_SHELL = (("Slurm", "srun --propagate=NONE ..."),)
"""Slurm gives a job the limits of the shell that submits it."""
_OWN_LIMITS = ("docker", "podman", "containerd", "toolbox")
"""Runtimes whose containers have limits of their own, which their start sets."""
_ULIMIT = "run it in the shell or job that starts the program"
KINDS = {
    "pids.max": LimitKind(
        "processes and threads",
        (NO_MORE_THREADS, THREADS_REFUSED),
        counts=True,
        option="--pids-limit=-1",
        unit="TasksMax=infinity",
        pod="podPidsLimit in the kubelet's configuration, on the node",
        lxc="limits.processes",
        fewer=_FEWER_THREADS,
    ),
    "memory.max": LimitKind(
        "RAM",
        (NO_HOST_MEMORY,),
        kills=True,
        counts=True,
        in_bytes=True,
        option="--memory=16g",
        unit="MemoryMax=16G",
        jobs=(("Slurm", "srun --mem=16G ..."),),
        pod="resources: {limits: {memory: 16Gi}}",
        lxc="limits.memory",
    ),
    "Max processes": LimitKind(
        "processes and threads of this user",
        (NO_MORE_THREADS, THREADS_REFUSED),
        option="--ulimit nproc=65536",
        unit="LimitNPROC=infinity",
        jobs=_OF_THE_SHELL,
        in_shell="ulimit -u $(ulimit -H -u)",
        item="nproc",
        fewer=_FEWER_THREADS,
    ),
    "Max open files": LimitKind(
        "open files and connections",
        (TOO_MANY_FILES,),
        option="--ulimit nofile=65536:65536",
        unit="LimitNOFILE=65536",
        jobs=_OF_THE_SHELL,
        in_shell="ulimit -n $(ulimit -H -n)",
        item="nofile",
        most="1048576",
    ),
    "Max address space": LimitKind(
        "addresses",
        (NO_HOST_MEMORY,),
        in_bytes=True,
        option="--ulimit as=-1",
        unit="LimitAS=infinity",
        jobs=(
            *_OF_THE_SHELL,
            ("Grid Engine", "qsub -l h_vmem=64G SCRIPT"),
            ("PBS", "qsub -l pvmem=64gb SCRIPT"),
            ("LSF", "bsub -v 64000000 < SCRIPT"),
        ),
        in_shell="ulimit -v unlimited",
        item="as",
        least=3 << 29,  # measured, 2.21: 1.4 GiB, and 1.8 GiB with a simulated GPU
    ),
    "Max data size": LimitKind(
        "data of a process",
        (NO_HOST_MEMORY,),
        in_bytes=True,
        option="--ulimit data=-1",
        unit="LimitDATA=infinity",
        in_shell="ulimit -d unlimited",
        item="data",
    ),
    "vm.overcommit_memory": LimitKind(
        "memory that the kernel promises (vm.overcommit_memory=2)",
        (NO_HOST_MEMORY,),
        in_bytes=True,
        in_shell="sudo sysctl vm.overcommit_memory=0",
    ),
}
"""The kinds of limits, by the name of a limit in the facts."""


def limits_in_force(facts: Facts) -> tuple[Limit, ...]:
    """Return the limits that hold this process; none if they are not known."""
    return () if isinstance(facts.container, Unknown) else facts.container.limits


def below(facts: Facts, size: int, *kinds: str) -> tuple[Limit, ...]:
    """Return the limits of these kinds that leave less than ``size`` bytes, the tightest first."""
    left = {limit: limit.value - (limit.used or 0) for limit in limits_in_force(facts) if limit.name in kinds}
    return tuple(sorted((limit for limit, room in left.items() if room < size), key=lambda limit: left[limit]))


def amount(limit: Limit, number: int | None = None) -> str:
    """Return a limit, or a number of what it counts, in words."""
    number = limit.value if number is None else number
    if not KINDS[limit.name].in_bytes:
        return f"{number:,}"
    return f"{number / _GIB:.1f} GiB" if number >= _GIB else f"{number >> 20} MiB"


def in_words(limit: Limit) -> str:
    """Return a limit, where it is stated and what the kernel counted, as a line of evidence."""
    whose = "of all users " if limit.name == "Max processes" else ""
    used = "" if limit.used is None else f"; {amount(limit, limit.used)} {whose}in use"
    refused = limit.during_run or limit.reached
    times = f"; refused {counted(refused, 'time')}" if refused else ""
    name = f"{limit.name}: " if limit.place == "/proc/self/limits" else ""
    since = f"; since {limit.since}" if limit.since else ""
    return f"{limit.place}: {name}{amount(limit)}{used}{times}{since}"


def in_shell(name: str) -> Action:
    """Return the line that raises a limit in a shell."""
    line = KINDS[name].in_shell
    return configure(line, _ULIMIT if "ulimit" in line else "promises memory as usual, until the next start")


def raised(limit: Limit, facts: Facts) -> tuple[Action, ...]:
    """Return how a limit is raised in the place that set it, and how a program needs less."""
    kind, sandbox, fields = KINDS[limit.name], sandbox_of(facts), names(facts)
    fewer = (kind.fewer,) if kind.fewer is not None else ()
    for starter in () if isinstance(facts.system, Unknown) else facts.system.started_by:
        if line := dict(kind.jobs).get(starter):
            return (start(line, "a job with more"), *fewer)
    name = sandbox.name if sandbox is not None else ""
    if name == "kubernetes" and kind.pod:
        return (note(f"raise it: {kind.pod}", kind=Kind.START_CONTAINER), *fewer)
    if name == "lxc" and kind.lxc:
        return (start(f"lxc config unset NAME {kind.lxc}"), *fewer)
    # Apptainer, Flatpak and others of their kind have no limits of their own: those of the machine hold.
    if name in _OWN_LIMITS and kind.option:
        shell = () if limit.is_hard or not kind.item else (in_shell(limit.name),)
        return (*shell, run_container(kind.option, note="a higher limit"), *fewer)
    if name == "systemd" and kind.unit:
        edit = f"{fields['systemctl']} edit {fields['unit']}"
        return (configure(edit, f"write: [Service] {kind.unit}; then restart the unit"), *fewer)
    if kind.in_shell and limit.is_hard and limit.since:
        files = "~/.bashrc ~/.profile /etc/profile /etc/profile.d"
        here = f"the limit holds for {limit.since} and all that it starts"
        own = note(f"start the program from another shell or job: {here}", kind=Kind.START_CONTAINER)
        return (own, check(f"grep -rns ulimit {files}", "shows whether a start-up file of the shell sets it"), *fewer)
    if kind.in_shell and limit.is_hard:
        file = "/etc/security/limits.conf"
        return (configure(f"echo '* hard {kind.item} {kind.most}' | sudo tee -a {file}", "then log in again"), *fewer)
    if kind.in_shell:
        return (in_shell(limit.name), *fewer)
    look = check("systemctl status $$", f"names the unit or slice that sets it; its setting is {kind.unit}")
    return (look, configure(f"sudo systemctl set-property UNIT {kind.unit}"), *fewer)
