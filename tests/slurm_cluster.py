"""A real Slurm on loopback: one slurmctld, a slurmd for each node and a munged, without root, systemd or accounting.

Debian's package lets several slurmd run on one machine. Two character devices stand for the GPUs of a node: Slurm asks
for no more, and sets CUDA_VISIBLE_DEVICES by them.
"""

from __future__ import annotations

import contextlib
import getpass
import os
import random
import re
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import fleets
import psutil
import pytest

from gpudiag.fleet import checking
from gpudiag.fleet.names import expand
from gpudiag.model.fleet import EngineOptions, FleetReport
from gpudiag.model.frame import framed

HEALTHY = Path(__file__).parents[1] / "reports/healthy.json"
LIMIT_S = 60.0
PATH = f"{os.environ['PATH']}:/usr/sbin:/sbin"
PROGRAMS = ("munged:munge", "slurmctld:slurmctld", "slurmd:slurmd", "sinfo:slurm-client")
"""Programs, and the packages of Debian that bring them."""
CONFIGURATION = """\
ClusterName=test
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={port}
SlurmUser={user}
SlurmdUser={user}
AuthType=auth/munge
AuthInfo=socket={root}/munge/socket
CommunicationParameters=NoCtldInAddrAny,NoInAddrAny
StateSaveLocation={root}/state
SlurmdSpoolDir={root}/spool/%n
SlurmctldPidFile={root}/slurmctld.pid
SlurmdPidFile={root}/slurmd-%n.pid
SlurmctldLogFile={root}/log/slurmctld.log
SlurmdLogFile={root}/log/slurmd-%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
MpiDefault=none
SwitchType=switch/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SlurmdParameters=config_overrides
ReturnToService=2
SlurmdTimeout=6
MessageTimeout=5
KillWait=2
UnkillableStepTimeout=10
SchedulerParameters=sched_interval=2,bf_interval=2
GresTypes=gpu
"""


class Cluster:
    """A running cluster with nodes ``n1``, ``n2`` and so on, two GPUs each, all in the partition ``gpu``."""

    def __init__(
        self,
        nodes: int,
        extra: str = "",
        *,
        partitions: str = "",
        files: Mapping[str, str] | None = None,
        with_one_gpu: Sequence[str] = (),
    ) -> None:
        fleets.require(*PROGRAMS)
        # munged refuses a folder that others may not enter, as those of pytest are, and the path of a socket is short.
        self.root = Path(tempfile.mkdtemp(prefix="gpudiag-slurm-"))
        self.nodes = tuple(f"n{number + 1}" for number in range(nodes))
        self.file = self.root / "slurm.conf"
        self.environment = {"SLURM_CONF": str(self.file), "PATH": PATH}
        self._port = _free_ports(nodes + 1)
        self._start_munge()
        for name, text in (files or {}).items():
            self.write(name, text)
        self.configure(extra, partitions, with_one_gpu)
        try:
            self.start_controller()
            for node in self.nodes:
                self.start_node(node)
            self.wait(lambda: set(self.states().values()) == {"idle"}, "the nodes are not idle")
        except BaseException:
            self.close()
            raise

    def _start_munge(self) -> None:
        for folder in ("munge", "state", "log", "spool"):
            (self.root / folder).mkdir(parents=True)
        self.root.chmod(0o755)
        munge = self.root / "munge"
        munge.chmod(0o711)
        (munge / "key").write_bytes(os.urandom(1024))
        (munge / "key").chmod(0o600)
        files = [f"--{name}-file={munge / name}" for name in ("key", "pid", "seed", "log")]
        self._start("munged", *files, f"--socket={munge / 'socket'}", "--num-threads=2")

    def enter(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Let this process, and what it starts, use this cluster."""
        for name, value in self.environment.items():
            monkeypatch.setenv(name, value)

    def write(self, name: str, text: str) -> None:
        """Write a program into the cluster's folder; ``{root}`` in it is that folder."""
        file = self.root / name
        file.parent.mkdir(exist_ok=True)
        file.write_text(text.replace("{root}", str(self.root)))
        file.chmod(0o755)

    def configure(self, extra: str, partitions: str, with_one_gpu: Sequence[str]) -> None:
        """Write Slurm's files."""
        host = socket.gethostname().partition(".")[0]
        text = CONFIGURATION.format(host=host, port=self._port, user=getpass.getuser(), root=self.root)
        text += extra.replace("{root}", str(self.root)) + "\n"
        gres = ""
        for number, node in enumerate(self.nodes):
            (self.root / "spool" / node).mkdir(exist_ok=True)
            text += f"NodeName={node} NodeHostname={host} NodeAddr=127.0.0.1 Port={self._port + 1 + number} "
            devices = ("/dev/null", "/dev/zero")[: 1 if node in with_one_gpu else 2]
            text += f"CPUs=2 RealMemory=1000 Gres=gpu:{len(devices)}\n"
            for device in devices:
                gres += f"NodeName={node} Name=gpu File={device} Flags=nvidia_gpu_env\n"
        text += partitions or "PartitionName=gpu Nodes=ALL Default=YES MaxTime=INFINITE State=UP\n"
        self.file.write_text(text)
        (self.root / "gres.conf").write_text(gres)
        (self.root / "cgroup.conf").write_text("CgroupAutomount=no\n")

    def _start(self, *command: str) -> None:
        done = subprocess.run(
            command, env={**os.environ, **self.environment}, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"

    def start_node(self, node: str) -> None:
        """Start the slurmd of a node."""
        self._start("slurmd", "-N", node, "-f", str(self.file))

    def __call__(self, *command: str) -> str:
        """Run a command of Slurm, and return what it prints; it must end with 0."""
        done = subprocess.run(
            command,
            env={**os.environ, **self.environment},
            capture_output=True,
            text=True,
            timeout=LIMIT_S,
            check=False,
        )
        assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
        return done.stdout

    def states(self) -> dict[str, str]:
        """Return the state of each node."""
        return dict(line.split("|") for line in self("sinfo", "-a", "-h", "-N", "-o", "%N|%T").splitlines())

    def reason(self, node: str) -> str:
        """Return why a node is drained or down."""
        return self("sinfo", "-h", "-N", "-n", node, "-o", "%E").strip()

    def jobs(self) -> list[str]:
        """Return the names of the jobs that wait or run."""
        return self("squeue", "-h", "-o", "%j").split()

    def drain(self, node: str, reason: str) -> None:
        """Take a node away, with a reason."""
        self("scontrol", "update", f"nodename={node}", "state=drain", f"reason={reason}")

    @staticmethod
    def wait(question: Callable[[], bool], complaint: str) -> None:
        """Wait until the answer is yes."""
        until = time.monotonic() + LIMIT_S
        while not question():
            assert time.monotonic() < until, complaint
            time.sleep(0.05)

    @contextlib.contextmanager
    def job(self, *options: str) -> Iterator[str]:
        """Hold nodes by a job that sleeps; yield its number."""
        number = self("sbatch", "--parsable", "-o", "/dev/null", *options, "--wrap", "sleep 300").strip()
        try:
            self.wait(lambda: self("squeue", "-h", "-j", number, "-o", "%T").strip() == "RUNNING", "the job waits")
            yield number
        finally:
            self("scancel", number)

    def processes(self, node: str) -> list[psutil.Process]:
        """Return slurmd, the slurmstepd of its steps, and all that runs below these."""
        found = [psutil.Process(int((self.root / f"slurmd-{node}.pid").read_text()))]
        listed = subprocess.run(["ss", "-lxpH"], capture_output=True, text=True, check=True).stdout.splitlines()
        for line in listed:
            if f"{self.root}/spool/{node}/" in line:
                found += [psutil.Process(int(pid)) for pid in re.findall(r"pid=(\d+)", line)]
        for process in tuple(found):
            with contextlib.suppress(psutil.NoSuchProcess):
                found += process.children(recursive=True)
        return list(dict.fromkeys(found))

    def lose(self, node: str, number: signal.Signals = signal.SIGKILL) -> None:
        """Kill or stop all of a node at once, as a power cut or a frozen kernel does."""
        for process in self.processes(node):
            with contextlib.suppress(psutil.NoSuchProcess):
                process.send_signal(number)

    def mend(self) -> None:
        """End all jobs and bring every node back."""
        for node in self.nodes:
            pid = self.root / f"slurmd-{node}.pid"
            is_stopped = False
            with contextlib.suppress(psutil.NoSuchProcess, FileNotFoundError, ValueError):
                is_stopped = psutil.Process(int(pid.read_text())).status() == psutil.STATUS_STOPPED
            if is_stopped:
                self.lose(node)
        self("scancel", "--full", "-u", getpass.getuser())
        for node in self.nodes:
            if not self.is_up(node):
                self.start_node(node)
        self.wait(lambda: not self.jobs(), "jobs do not end")
        for node, state in self.states().items():
            if state.startswith(("drain", "down", "fail")):
                self("scontrol", "update", f"nodename={node}", "state=resume")
        self.wait(lambda: set(self.states().values()) == {"idle"}, f"nodes do not come back: {self.states()}")

    def is_up(self, node: str) -> bool:
        """Return whether the slurmd of a node runs."""
        with contextlib.suppress(psutil.NoSuchProcess, FileNotFoundError, ValueError):
            process = psutil.Process(int((self.root / f"slurmd-{node}.pid").read_text()))
            return process.status() != psutil.STATUS_ZOMBIE and "slurmd" in process.name()
        return False

    def stop_controller(self) -> None:
        """End slurmctld."""
        process = psutil.Process(int((self.root / "slurmctld.pid").read_text()))
        process.terminate()
        process.wait(LIMIT_S)

    def start_controller(self) -> None:
        """Start slurmctld with the state that it had."""
        self._start("slurmctld", "-f", str(self.file))

    def close(self) -> None:
        """End the jobs first: a slurmd that is killed leaves its slurmstepd, and these wait for their tasks."""
        processes: list[psutil.Process] = []
        for node in self.nodes:
            with contextlib.suppress(psutil.NoSuchProcess, FileNotFoundError, ValueError):
                processes += self.processes(node)
        for file in (self.root / "slurmctld.pid", self.root / "munge/pid"):
            with contextlib.suppress(psutil.NoSuchProcess, FileNotFoundError, ValueError):
                processes.append(psutil.Process(int(file.read_text())))
        for process in processes:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        psutil.wait_procs(processes, timeout=10)
        shutil.rmtree(self.root)


def _free_ports(number: int) -> int:
    """Return the first of so many ports in a row that nobody listens at, below those that the kernel gives away."""
    for _ in range(100):
        first = random.randrange(20000, 32000 - number)
        with contextlib.suppress(OSError), contextlib.ExitStack() as stack:
            for port in range(first, first + number):
                stack.enter_context(socket.socket()).bind(("127.0.0.1", port))
            return first
    raise AssertionError("no ports are free")


class SlurmFleet:
    """Checks nodes in this process, with a script in the place of gpudiag."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.frame = folder / "frame"
        self.frame.write_text(framed(HEALTHY.read_bytes()))
        self.script = folder / "gpudiag"
        self.write()

    def write(self, before: str = "") -> None:
        """Write the script: what it does before it prints the report, by ``$SLURMD_NODENAME``."""
        self.script.write_text(f"#!/bin/sh\n{before}\ncat {self.frame}\n")
        self.script.chmod(0o755)

    def __call__(
        self, names: str = "", *options: str, deadline_s: float = 30.0, jobid: str | None = None
    ) -> FleetReport:
        request = checking.Request(
            nodes=tuple(names.split()),
            arguments=(),
            engine="slurm",
            folder=self.folder / f"run{len(list(self.folder.glob('run*')))}",
            options=EngineOptions(options=options, jobid=jobid),
            deadline_s=deadline_s,
            words=(str(self.script),),
        )
        report = checking.run(request, lambda text: None)
        assert [row.node for row in report.rows][: len(expand(request.nodes))] == list(expand(request.nodes))
        return report


def verdicts(report: FleetReport) -> dict[str, str]:
    """Return the verdict or the reason of each node."""
    return {row.node: row.reason.value if row.reason else row.verdict.value for row in report.rows}


def texts(report: FleetReport) -> dict[str, str]:
    """Return the text of each node's row."""
    return {row.node: row.text for row in report.rows}
