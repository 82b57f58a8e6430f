"""Faults of gpudiag's own surroundings, and what a run makes of each: no verdict on the machine, no row lost.

Each call of the supervisor and of the server fails with the errnos it can have, once and every time; then the real
things: limits, full and read-only file systems, no ``/proc``, a stopped process.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

DEADLINE_S = 60

SHORTAGES = {
    "supervisor": {
        "socket.socketpair": ("EMFILE", "ENFILE", "ENOMEM"),
        "os.pipe2": ("EMFILE", "ENFILE", "ENOMEM"),
        "os.memfd_create": ("EMFILE", "ENOMEM", "ENOSYS"),
        "subprocess.Popen": ("EAGAIN", "ENOMEM", "E2BIG", "ENOSPC"),
        "socket.send_fds": ("EMSGSIZE", "ENOBUFS", "ETOOMANYREFS"),
        "socket.recv_fds": ("ECONNRESET",),
        "os.set_blocking": ("EMFILE",),
    },
    "server": {
        "os.fork": ("EAGAIN", "ENOMEM"),
        "os.pipe2": ("EMFILE",),
        "socket.recv_fds": ("ECONNRESET", "ENOMEM"),
        "socket.send_fds": ("EMSGSIZE", "ENOBUFS", "EPIPE"),
        "select.select": ("ENOMEM",),
        "tempfile.mkdtemp": ("ENOSPC", "EROFS", "EACCES"),
        "os.mkdir": ("ENOSPC", "EROFS", "EDQUOT"),
        "os.rmdir": ("EACCES", "EBUSY"),
        "os.open": ("EMFILE", "ENFILE"),
        "os.dup": ("EMFILE",),
        "os.dup2": ("EBUSY",),
        "os.setsid": ("EPERM",),
        "os.execv": ("ENOMEM", "E2BIG"),
        "os.killpg": ("EPERM",),
        "os.kill": ("EPERM",),
    },
}


@dataclass(frozen=True)
class Fault:
    """Something that gpudiag lacks, and how it is made to lack it."""

    name: str
    env: Mapping[str, str] = field(default_factory=dict)
    before: tuple[str, ...] = ()
    """A command that runs the rest of its arguments."""
    stopped: bool = False
    """True: gpudiag is stopped for 3 s while it runs."""
    says: tuple[str, ...] = ()
    """One of these stands in the report, if the run is broken."""


@dataclass(frozen=True)
class Outcome:
    """What a run came to."""

    fault: Fault
    status: int
    rows: Mapping[str, int]
    """How many rows there are of each outcome; empty if there is no report."""
    reasons: tuple[str, ...]
    late_s: float
    """Seconds over the deadline; 0 if it ended before."""
    stderr: str
    left: tuple[str, ...]
    """Temporary files and processes that it left."""

    @property
    def faults(self) -> list[str]:
        """What is wrong with it; empty if it is as it must be."""
        found = []
        if self.status not in (0, 3, 5):
            found.append(f"exit status {self.status}")
        if not self.rows:
            found.append("no report")
        if "failed" in self.rows:
            found.append("a verdict on the machine")
        if "Traceback" in self.stderr or "internal error" in self.stderr:
            found.append("an internal error")
        said = any(words in reason for words in self.fault.says for reason in self.reasons)
        if self.status == 3 and self.rows and not said:
            found.append("no true reason")
        return found + [f"left {what}" for what in self.left]


def injected() -> Iterator[Fault]:
    """Yield a fault for each call, errno and number of times."""
    for process, calls in SHORTAGES.items():
        for function, names in calls.items():
            for name in names:
                for which in ("1", "all"):
                    asked = f"{process}:{function}:{name}:{which}"
                    yield Fault(
                        f"{process}: {function} {name}, {'every time' if which == 'all' else 'once'}",
                        {"FAULT_INJECT": asked},
                        says=(name, "fork server died", "starting Python:"),
                    )


# A user who is not root, for whom limits hold, who may read what root's interpreter lies in, and who runs nothing else.
_AS_NOBODY = (
    "setpriv",
    f"--reuid={100_000 + os.getpid()}",
    "--clear-groups",
    "--inh-caps=+dac_override,+dac_read_search",
    "--ambient-caps=+dac_override,+dac_read_search",
)


def _mounted(what: str) -> tuple[str, ...]:
    """Return the command that runs its arguments where ``what`` has been done to the mounts."""
    return ("unshare", "--mount", "--propagation", "private", "sh", "-c", f'{what} && exec "$@"', "sh")


def real(folder: Path) -> Iterator[Fault]:
    """Yield the faults that are made without altering Python; most need root. ``folder`` is for mount points."""
    small = folder / "small"
    for most in (1, 2, 3, 5, 8):
        limits = (*_AS_NOBODY, "prlimit", f"--nproc={most}")
        yield Fault(f"at most {most} processes of the user", before=limits, says=("EAGAIN", "Resource temporarily"))
    for most in (16, 20, 24, 32, 40):
        says = ("EMFILE", "Too many open files")
        yield Fault(f"at most {most} open files", before=("prlimit", f"--nofile={most}"), says=says)
    for megabytes in (300, 600):
        space = ("prlimit", f"--as={megabytes << 20}")
        yield Fault(f"at most {megabytes} MiB of address space", before=space, says=("ENOMEM", "MemoryError", "memory"))
    read_only = f"mount -t tmpfs -o ro none {small}"
    yield Fault("TMPDIR is read-only", {"TMPDIR": str(small)}, _mounted(read_only))
    full = f"mount -t tmpfs -o size=4k none {small} && (cat /dev/zero > {small}/full; true) 2>/dev/null"
    yield Fault("TMPDIR is full", {"TMPDIR": str(small)}, _mounted(full), says=("ENOSPC", "No space left"))
    inodes = f"mount -t tmpfs -o nr_inodes=3 none {small}"
    yield Fault("TMPDIR has no inodes", {"TMPDIR": str(small)}, _mounted(inodes), says=("ENOSPC", "No space left"))
    everywhere = " && ".join(f"mount -t tmpfs -o ro none {place}" for place in (small, "/var/tmp", "/dev/shm"))
    yield Fault("no folder for temporary files", {"TMPDIR": str(small)}, _mounted(everywhere))
    yield Fault("TMPDIR is not UTF-8", {"TMPDIR": os.fsdecode(os.fsencode(folder) + b"/\xff")})
    yield Fault("TMPDIR is not there", {"TMPDIR": str(folder / "gone")})
    yield Fault("no /proc", before=_mounted("mount -t tmpfs none /proc"), says=("/proc", "import tensorflow: killed"))
    yield Fault("a variable of 100 kB with quotes", {"TF_CPP_VMODULE": '"' * 100_000})
    yield Fault("variables of 300 kB", {f"LARGE_{number}": "x" * 100_000 for number in range(3)})
    yield Fault("stopped for 3 s", stopped=True)


def possible(fault: Fault) -> str:
    """Say why ``fault`` cannot be made here; "" if it can."""
    tools = [word for word in ("setpriv", "prlimit", "unshare") if word in fault.before]
    if missing := [tool for tool in tools if shutil.which(tool) is None]:
        return f"{missing[0]} is not installed"
    if {"setpriv", "unshare"} & set(tools) and subprocess.run(["unshare", "--mount", "true"], check=False).returncode:
        return "needs root"
    return ""


def run(fault: Fault, folder: Path, select: str = "host") -> Outcome:
    """Run ``gpudiag check`` under ``fault``; ``folder`` is empty and becomes its working directory."""
    for needed in (word for word in fault.env.values() if word.endswith(("/small", "/\udcff"))):
        Path(needed).mkdir(exist_ok=True)
    place = Path(__file__).parent / "injected"
    report = folder / "report.json"
    temporary = folder / "tmp"
    temporary.mkdir()
    # As the console script does, without the working directory on the path; what a test run adds to it stays.
    boot = f"import sys; sys.path[:] = {[entry for entry in sys.path if entry]!a}; from gpudiag.cli import main; main()"
    arguments = ["check", *select.split(), "-q", "--deadline", str(DEADLINE_S), "-o", str(report)]
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("GPUDIAG_", "PYTEST_", "TF_"))}
    folder.chmod(0o777)
    temporary.chmod(0o777)
    began = time.monotonic()
    with subprocess.Popen(
        [*fault.before, sys.executable, "-c", boot, *arguments],
        cwd=folder,
        env={**clean, "TMPDIR": str(temporary), **fault.env, "PYTHONPATH": str(place)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
        start_new_session=True,
    ) as process:
        moments = ((1.0, signal.SIGSTOP), (4.0, signal.SIGCONT)) if fault.stopped else ()
        timers = [threading.Timer(seconds, process.send_signal, [number]) for seconds, number in moments]
        for timer in timers:
            timer.start()
        try:
            _, stderr = process.communicate(timeout=DEADLINE_S + 60)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            _, stderr = process.communicate()
        for timer in timers:
            timer.cancel()
    late_s = max(0.0, time.monotonic() - began - DEADLINE_S)
    rows, reasons = _read(report)
    left = tuple(path.name for path in temporary.iterdir())
    return Outcome(fault, process.returncode, rows, reasons, late_s, stderr, left)


def _read(report: Path) -> tuple[dict[str, int], tuple[str, ...]]:
    rows: dict[str, int] = {}
    reasons = []
    with contextlib.suppress(OSError):
        content = json.loads(report.read_text())
        for row in content["rows"]:
            outcome = row["outcome"]
            kinds = [finding["severity"] for finding in outcome.get("findings", ())]
            name = "failed" if "fail" in kinds else "warned" if "warning" in kinds else outcome["outcome"]
            rows[name] = rows.get(name, 0) + 1
            reasons += [outcome.get("detail", ""), *row["log"]]
        reasons += [family.get("reason", "") for family in content["facts"].values()]
        reasons += [failed["why"] for failed in content["diagnosis"]["failed"]]
    return rows, tuple(filter(None, reasons))
