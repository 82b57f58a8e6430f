"""Describes a process by ``/proc``: who started it, in which job or container, as which rank, and whether it lives."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from datetime import datetime, timezone
from pathlib import Path, PurePath

from gpudiag.model.facts import DEAD, UNINTERRUPTIBLE, ProcessIdentity
from gpudiag.text import printable

_JOB = re.compile(
    r"(?m)slurm.{0,200}/job_(?P<slurm>\d+)|kubepods.{0,300}pod(?P<pod>[0-9a-f][0-9a-f_-]{7})|"
    r"docker[/-](?P<docker>[0-9a-f]{12})|libpod-(?P<podman>[0-9a-f]{12})|"
    r"(?:cri-containerd|crio)-(?P<container>[0-9a-f]{12})|lxc(?:\.payload)?[/.](?P<lxc>[\w-]+)|"
    r"/(?P<service>[\w@.-]+)\.service$"
)
"""The part of a control group's path that names a job or a container."""
_JOBS = {
    "slurm": "job {} of Slurm",
    "pod": "pod {}",
    "docker": "container {} of Docker",
    "podman": "container {} of Podman",
    "container": "container {}",
    "lxc": "container {} of LXC",
    "service": "service {}",
}
"""The kinds of jobs in words, the one first that says most if the path names several."""
_TICKS = 100
"""Ticks per second of the times in ``/proc/<pid>/stat``: USER_HZ, the same on every architecture that NVIDIA
supports."""
RUNS = ("PYTEST_XDIST_TESTRUNUID", "PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid", "TORCHELASTIC_RUN_ID", "SLURM_JOB_ID")
"""Variables with a name or number of a run that all its processes share, the narrowest first."""
_SCHEDULED = ("SLURM_JOB_ID", "LSB_JOBID", "PBS_JOBID", "FLUX_JOB_ID", "RAY_JOB_ID", "JOB_ID")
"""Variables with the number of a job: Slurm, LSF, PBS and Torque, Flux, Ray, Grid Engine."""
_RANKS = (
    "PYTEST_XDIST_WORKER",
    "HOROVOD_RANK",
    "OMPI_COMM_WORLD_RANK",
    "MV2_COMM_WORLD_RANK",
    "RANK",
    "PMIX_RANK",
    "PMI_RANK",
    "SLURM_PROCID",
)
"""Variables with the number of a process in its run."""
_FRAMEWORKS = (
    ("libtensorflow_framework", "TensorFlow"),
    ("libtensorflow_cc", "TensorFlow"),
    ("/jaxlib/", "JAX"),
    ("xla_cuda_plugin", "JAX"),
    ("libtorch_cuda", "PyTorch"),
    ("libmxnet", "MXNet"),
    ("libpaddle", "PaddlePaddle"),
    ("libonnxruntime_providers_cuda", "ONNX Runtime"),
    ("libggml-cuda", "llama.cpp"),
)
"""Parts of the paths of libraries that one framework alone has."""
_MOST_MAPS = 4 << 20
_NAME_LENGTH = 15
"""The kernel cuts the names of processes."""
_OF_THREADS = ("pt_main_thread", "MainThread")
"""Names that frameworks give their first thread."""
_LOOKS, _PAUSE_S = 4, 0.05
"""A process that reads a disk waits in the kernel, too, for a moment: only one that always does is stuck."""
_MOST_ENVIRONMENT = 1 << 20


def identify(pid: int, root: Path = Path("/"), environ: Mapping[str, str] = os.environ) -> ProcessIdentity:
    """Return what ``root/proc`` says of a process; ``environ`` is this process's own environment.

    A process that does not exist has the state ``X``; of one that is hidden at most its user is known.
    """
    folder = root / f"proc/{pid}"
    status = _status(folder)
    if not status:
        return _without_folder(pid, root)
    cgroup = _text(folder / "cgroup")
    parent = int(status["PPid"]) if status.get("PPid", "").isdecimal() else None
    numbers = {match.lastgroup: match[match.lastgroup or 0] for match in reversed([*_JOB.finditer(cgroup)])}
    job = next((words.format(numbers[kind]) for kind, words in _JOBS.items() if kind in numbers), None)
    own = ancestors(root)
    theirs = environment(folder)
    return ProcessIdentity(
        user=_user(status.get("Uid", "").split()),
        of_another_user=status.get("Uid", "").split()[:1] not in ([], [str(os.getuid())]),
        command=_named(_command_of(folder), printable(status.get("Name", ""))),
        started_at=_started(root, folder),
        # What a container or a job has started may have the first process as its parent, too.
        parent_gone=parent == 1 and pid != 1 and job is None and ".service" not in cgroup
        if parent is not None
        else None,
        job=job,
        state=_state(folder, status),
        parent=parent,
        parent_command=_command_of(root / f"proc/{parent}") if parent else None,
        rank=next((printable(f"{name}={theirs[name]}") for name in _RANKS if name in theirs), None),
        run=_run(theirs, environ, related=parent in own[1:]),
        same_job=next(
            (printable(f"{name}={theirs[name]}") for name in _SCHEDULED if theirs.get(name, 0) == environ.get(name)),
            None,
        ),
        is_ancestor=pid in own,
        uses=_framework(folder),
    )


def _without_folder(pid: int, root: Path) -> ProcessIdentity:
    """Return what is known of a process that ``/proc`` does not show; with ``hidepid`` it hides other users'."""
    try:
        if root == Path("/"):
            os.kill(pid, 0)
            return ProcessIdentity()
    except PermissionError:
        return ProcessIdentity(of_another_user=True)
    except (OSError, OverflowError):
        pass
    return ProcessIdentity(state=DEAD)


def _named(command: str | None, name: str) -> str:
    """Return a process's command, with the name that it gave itself or has from its script, if the command lacks it."""
    if command is None or name in command or command.startswith(name[:_NAME_LENGTH]):
        return command or name
    return command if name in _OF_THREADS else f"{name} ({command})"


def uses_gpu(pid: int, root: Path = Path("/")) -> bool:
    """Return whether a process visibly has a device file of NVIDIA's open or libcuda loaded."""
    with suppress(OSError):
        for file in (root / f"proc/{pid}/fd").iterdir():
            with suppress(OSError):
                if str(file.readlink()).startswith("/dev/nvidia"):
                    return True
    with suppress(OSError), (root / f"proc/{pid}/maps").open(errors="replace") as maps:
        return "/libcuda.so" in maps.read(_MOST_MAPS)
    return False


def opening(device: Path, root: Path = Path("/")) -> Iterator[int]:
    """Yield the processes, except relatives of this one, that have the file ``device`` open, as far as this user may
    look."""
    relatives = set(ancestors(root)[:2])
    for folder in (root / "proc").glob("[0-9]*"):
        pid = int(folder.name)
        parent = _status(folder).get("PPid", "")
        if pid in relatives or (parent.isdecimal() and int(parent) in relatives):
            continue
        with suppress(OSError):
            if any(file.readlink() == device for file in (folder / "fd").iterdir()):
                yield pid


def _run(theirs: Mapping[str, str], own: Mapping[str, str], *, related: bool) -> str | None:
    """Return the variable that shows that a process belongs to the same run as this one; None if nothing shows it."""
    ranked = any(name in theirs and name in own for name in _RANKS)
    named = (name for name in RUNS if name in theirs and theirs[name] == own.get(name))
    if ranked:
        return next(named, None) or (
            next(name for name in _RANKS if name in theirs and name in own) if related else None
        )
    return None


def ancestors(root: Path) -> tuple[int, ...]:
    """Return this process, its parent and so on, without the first process of the system."""
    pids = [os.getpid()]
    while len(pids) < 64:
        parent = _status(root / f"proc/{pids[-1]}").get("PPid", "0")
        if not parent.isdecimal() or int(parent) <= 1:
            break
        pids.append(int(parent))
    return tuple(pids)


def _framework(folder: Path) -> str | None:
    """Return the framework whose library a process has mapped."""
    with suppress(OSError), (folder / "maps").open(errors="replace") as file:
        maps = file.read(_MOST_MAPS)
        return next((name for part, name in _FRAMEWORKS if part in maps), None)
    return None


def _state(folder: Path, status: Mapping[str, str]) -> str | None:
    letter = status.get("State", "")[:1]
    for _ in range(_LOOKS if letter == UNINTERRUPTIBLE else 0):
        time.sleep(_PAUSE_S)
        letter = _status(folder).get("State", "")[:1] or DEAD
        if letter != UNINTERRUPTIBLE:
            break
    return letter or None


def _status(folder: Path) -> dict[str, str]:
    lines = (line.split(":", 1) for line in _text(folder / "status").splitlines() if ":" in line)
    return {name: value.strip() for name, value in lines}


def environment(folder: Path) -> dict[str, str]:
    """Return the environment with which the process of a folder in ``/proc`` was started; {} if it may not be read."""
    try:
        with (folder / "environ").open("rb") as file:
            entries = os.fsdecode(file.read(_MOST_ENVIRONMENT)).split("\0")
    except OSError:
        return {}
    return {name: value for name, equals, value in (entry.partition("=") for entry in entries) if equals}


def _text(file: Path) -> str:
    try:
        return file.read_text(errors="replace")
    except OSError:
        return ""


def _user(numbers: list[str]) -> str | None:
    if not numbers:
        return None
    try:
        import pwd

        return printable(pwd.getpwuid(int(numbers[0])).pw_name)
    except (ImportError, KeyError, ValueError):  # a user of a container has no name here
        return numbers[0]


def _command_of(folder: Path) -> str | None:
    """Return a process's program and its script or module, without other arguments, which can hold secrets."""
    words = _text(folder / "cmdline").split("\0")
    if not words[0]:
        return None
    shown = [PurePath(words[0]).name]
    rest = [word for word in words[1:] if word]
    if rest[:1] == ["-m"]:
        shown += rest[:2]
    elif script := next((word for word in rest if re.search(r"\.(py|sh|ipynb)$", word)), None):
        shown.append(PurePath(script).name)
    return printable(" ".join(shown)) + (" ..." if len(rest) > len(shown) - 1 else "")


def _started(root: Path, folder: Path) -> str | None:
    boot = re.search(r"^btime (\d+)", _text(root / "proc/stat"), re.MULTILINE)
    fields = _text(folder / "stat").rpartition(")")[2].split()  # after the name, which may hold anything
    if boot is None or len(fields) < 20 or not fields[19].isdecimal():
        return None
    return datetime.fromtimestamp(int(boot[1]) + int(fields[19]) // _TICKS, timezone.utc).strftime("%Y-%m-%d %H:%M UTC")
