"""Runs ``gpudiag check --simulate`` from a process that has imported TensorFlow already: the import, three to four
seconds of a processor, is most of what a machine of the corpus costs.

One process for each worker of pytest imports TensorFlow on a simulated machine and forks for each run. The fork is
``gpudiag``: its arguments, environment, folder, output and exit status are a run's own, and so is everything that it
starts, but for the fork server: where that would import TensorFlow, it is forked again. All that is new in it is what
an import makes of the environment, and :meth:`_Origin.serves` tells where that would come out otherwise: then the fork
server is started as it is for a user. With ``GPUDIAG_TESTS_COLD=1`` it always is.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import traceback
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn

COLD = "GPUDIAG_TESTS_COLD"
READY_S = 300.0
PRELOAD = "gpudiag.child:preload_simulated"
IN_NEW_INTERPRETER = ("gpudiag.child:run_on_gpu", "gpudiag.child:run_probe", "gpudiag.child:run_peer")
"""Targets that import TensorFlow themselves where they are started afresh."""

# Read when a device is looked for or made, or by gpudiag: a trace of getenv and os.environ during TensorFlow's import
# has none of them (2.21.0). Where another variable is not what it was at the import, TensorFlow is imported again.
_READ_LATER = re.compile(
    "TMPDIR|GPUDIAG_SIM_MACHINE|CUDA_VISIBLE_DEVICES|CUDA_VISIBLE_DEVCIES|CUDA_DEVICE_ORDER|"
    "CUDA_HOME|TF_FORCE_GPU_ALLOW_GROWTH|TF_GPU_ALLOCATOR|TF_GPU_THREAD_MODE|TF_GPU_ALLOW_GROWTH|TF_CONFIG|"
    "TF_MIN_GPU_MULTIPROCESSOR_COUNT|TF_EAGER_ENABLE_SMALL_TENSOR_CPU_PINNING|PYTHONWARNINGS|"
    "(NVIDIA|NCCL|SLURM|KUBERNETES|OMPI|APPTAINER|PYTEST_XDIST)_.*"
)
_MAPPED = re.compile(r" (/\S+)$", re.MULTILINE)


class Warm:
    """The process that has imported TensorFlow, as the tests see it; it starts with the first run."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._stack = contextlib.ExitStack()
        self._control: socket.socket | None = None
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int | None:
        return self._process.pid if self._process is not None else None

    def run(
        self,
        arguments: tuple[str, ...],
        folder: Path,
        environment: Mapping[str, str],
        libraries: Path | None,
        deadline_s: float,
    ) -> subprocess.CompletedProcess[str]:
        """Run ``gpudiag`` with these arguments and return what came of it."""
        if self._control is None:
            self._control = self._start()
        self._control.settimeout(deadline_s)
        request = {"arguments": arguments, "folder": str(folder), "environment": dict(environment)}
        if libraries is not None:
            request["libraries"] = str(libraries)
        with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err, tempfile.TemporaryFile() as said:
            said.write(json.dumps(request).encode())
            said.flush()
            try:
                socket.send_fds(self._control, [b"run"], [said.fileno(), out.fileno(), err.fileno()])
                answer = self._control.recv(1 << 10)
                if not answer:
                    raise ConnectionError("the process that has imported TensorFlow died")
            except OSError:  # that, or the deadline has passed; the next run starts another
                self.close()
                raise
            texts = [_content(file).decode() for file in (out, err)]
        return subprocess.CompletedProcess(arguments, int(answer), *texts)

    def _start(self) -> socket.socket:
        from gpudiag.runner import LOG_LEVELS
        from gpudiag.simulator import Machine

        machine = self._stack.enter_context(Machine("2x16GiB"))
        # The loader keeps the folders that LD_LIBRARY_PATH named when the process began: each run's machine is put
        # there under this name.
        link = self._folder / "machine"
        link.symlink_to(machine.directory)
        environment = machine.environment(clean(os.environ))
        environment |= {name: value for name, value in LOG_LEVELS.items() if value is not None}
        first, *rest = environment["LD_LIBRARY_PATH"].split(":")
        assert first == f"{machine.directory}/lib"
        environment["LD_LIBRARY_PATH"] = ":".join([f"{link}/lib", *rest])
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        boot = f"import sys; sys.path[:] = {modules()!r}; import warm; warm.main({theirs.fileno()}, {str(link)!r})"
        with theirs, (self._folder / "output").open("w") as output:
            self._process = subprocess.Popen(
                [sys.executable, "-c", boot],
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                pass_fds=[theirs.fileno()],
            )
        ours.settimeout(READY_S)
        assert ours.recv(1 << 10) == b"ready", (self._folder / "output").read_text()
        return ours

    def close(self) -> None:
        """End the process; a run that goes on dies with it."""
        if self._control is not None:
            self._control.close()
            self._control = None
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None
        self._stack.close()
        (self._folder / "machine").unlink(missing_ok=True)


def clean(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the environment in which tests run ``gpudiag``, but for what they set themselves."""
    foreign = ("GPUDIAG_", "TF_", "CUDA_", "PYTEST_", "PYTHON")
    return {name: value for name, value in environment.items() if not name.startswith(foreign)}


def modules() -> list[str]:
    """Return the folders in which the tests, and ``gpudiag`` under test, find modules."""
    return [entry for entry in sys.path if entry]


def take_libraries(folder: str) -> None:
    """Let this process make simulated machines of the libraries in ``folder``."""
    from gpudiag.simulator import machine

    machine.library_directory = lambda: Path(folder)


def _content(file: Any) -> bytes:
    file.seek(0)
    content: bytes = file.read()
    return content


# What follows runs in the process that has imported TensorFlow, and in its forks.


class _Origin:
    """What the import of TensorFlow met."""

    def __init__(self, link: Path, before: Mapping[str, str], printed: str) -> None:
        self._link = link
        self.printed = printed
        self._environment = _without_machine(before, str(link))
        self.added = {name: value for name, value in os.environ.items() if before.get(name) != value}
        """Variables that the import set."""
        maps = Path("/proc/self/maps").read_text()
        self._libraries = {Path(file).resolve() for file in _MAPPED.findall(maps)}
        """Every file that is mapped: a library that the loader has is not looked for again."""
        self._own = {Path(file).resolve(): file.name for file in (link / "lib").iterdir()}

    def serves(self, environment: Mapping[str, str]) -> bool:
        """Tell whether an import in ``environment`` would come to what this one came to."""
        machine = Path(environment.get("GPUDIAG_SIM_MACHINE", "/nowhere"))
        mapped = {name: file for file, name in self._own.items() if file in self._libraries}
        if any((machine / "lib" / name).resolve() != file for name, file in mapped.items()):
            return False
        own = _without_machine(environment, str(machine))
        names = self._environment.keys() | own.keys()
        changed = {name for name in names if self._environment.get(name) != own.get(name)}
        return all(_READ_LATER.fullmatch(name) for name in changed)

    def move_to(self, machine: str) -> None:
        """Let the loader find the libraries of this machine from now on."""
        new = self._link.with_name("next")
        new.symlink_to(machine)
        new.rename(self._link)


def _without_machine(environment: Mapping[str, str], machine: str) -> dict[str, str]:
    path = environment.get("LD_LIBRARY_PATH", "").split(":")
    return {**environment, "LD_LIBRARY_PATH": ":".join(entry for entry in path if entry != f"{machine}/lib")}


class _Forked(subprocess.Popen[bytes]):
    """A fork server that is a fork of this process; what :class:`subprocess.Popen` knows of a child."""

    def __init__(self, origin: _Origin, command: list[str], **given: Any) -> None:
        self.args = command
        self.stdin = self.stdout = self.stderr = None
        self.returncode = None
        self._waitpid_lock = threading.Lock()
        self._child_created = True
        sys.stdout.flush()
        sys.stderr.flush()
        self.pid = os.fork()
        if not self.pid:
            try:
                _serve(origin, command, **given)
            finally:
                os._exit(1)


def _serve(
    origin: _Origin,
    command: list[str],
    *,
    stdin: int,
    stdout: int,
    stderr: int,
    pass_fds: list[int],
    env: dict[str, str],
    start_new_session: bool,
) -> NoReturn:
    """Be the fork server that ``command`` would start."""
    from gpudiag.isolate import server

    assert stdin == subprocess.DEVNULL
    if start_new_session:
        os.setsid()
    _reset_signals()
    _redirect(os.open(os.devnull, os.O_RDONLY), stdout, stderr, keep=pass_fds)
    _replace_environment({**env, **origin.added})
    os.write(1, origin.printed.encode())
    sys.argv = command[2:]
    server.main()


def _reset_signals() -> None:
    """Handle signals as a new program does."""
    signal.set_wakeup_fd(-1)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGCHLD):
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, signal.SIG_DFL)
    if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def _redirect(stdin: int, stdout: int, stderr: int, keep: list[int]) -> None:
    """Put these into the places of the standard streams, and close all others but ``keep``."""
    for source, target in ((stdin, 0), (stdout, 1), (stderr, 2)):
        os.dup2(source, target)
    first = 3
    for kept in sorted(keep):
        os.closerange(first, kept)
        first = kept + 1
    os.closerange(first, 1 << 12)


def _replace_environment(environment: Mapping[str, str]) -> None:
    os.environ.clear()
    os.environ.update(environment)


def _fork_servers(origin: _Origin) -> None:
    """Let supervisors fork this process where they would start one that imports TensorFlow on a simulated machine."""
    from gpudiag.isolate import Job, ServerSpec, supervisor

    popen = subprocess.Popen
    launch, start = supervisor.Supervisor._launch, supervisor.Supervisor.start

    def launched(self: supervisor.Supervisor, one: supervisor._Server) -> None:
        def started(command: list[str], **given: Any) -> subprocess.Popen[bytes]:
            if one.spec.preload != PRELOAD or not origin.serves(given["env"]):
                return popen(command, **given)
            origin.move_to(given["env"]["GPUDIAG_SIM_MACHINE"])
            return _Forked(origin, command, **given)

        subprocess.Popen = started  # type: ignore[assignment,misc]
        try:
            launch(self, one)
        finally:
            subprocess.Popen = popen  # type: ignore[misc]

    def begun(self: supervisor.Supervisor, job: Job) -> None:
        """Begin ``job``; a probe that is spawned, and the trial of a fix, would import TensorFlow, too."""
        spec = ServerSpec(PRELOAD, "import tensorflow", {**self._servers[job.server].spec.env, **job.env})
        if job.fresh and job.target in IN_NEW_INTERPRETER and origin.serves(_changed(os.environ, spec.env)):
            self._servers[job.key] = supervisor._Server(job.key, spec)
            job = replace(job, server=job.key, fresh=False)
        start(self, job)

    supervisor.Supervisor._launch = launched  # type: ignore[method-assign]
    supervisor.Supervisor.start = begun  # type: ignore[method-assign]


def _changed(environment: Mapping[str, str], changes: Mapping[str, str | None]) -> dict[str, str]:
    merged = {**environment, **changes}
    return {name: value for name, value in merged.items() if value is not None}


def _be_gpudiag(origin: _Origin, request: dict[str, Any], out: int, err: int) -> int:
    """Be ``gpudiag`` and return its exit status."""
    from gpudiag import cli

    _fork_servers(origin)
    if "libraries" in request:
        take_libraries(request["libraries"])
    _reset_signals()
    _redirect(os.open(os.devnull, os.O_RDONLY), out, err, keep=[])
    _replace_environment(request["environment"])
    os.chdir(request["folder"])
    tempfile.tempdir = None
    sys.argv = ["-c", *request["arguments"]]
    try:
        cli.main()
    except SystemExit as ended:
        return int(ended.code or 0)
    except BaseException:
        traceback.print_exc()
        return 1
    finally:
        sys.stdout.flush()
        sys.stderr.flush()


def main(control_fd: int, link: str) -> NoReturn:
    """Entry of the process: import TensorFlow, then fork for each run."""
    import gc

    from gpudiag import child, cli, codec, config, diagnosis, report, runner  # noqa: F401  # once for all runs
    from gpudiag.isolate import linux

    linux.die_with_parent(os.getppid())
    with socket.socket(fileno=control_fd) as control:
        sys.stdout.flush()
        printed = Path("/proc/self/fd/1").resolve()
        began, before = printed.stat().st_size, dict(os.environ)
        gc.disable()
        child.preload_simulated()
        diagnosis.rules()
        gc.freeze()
        gc.enable()
        sys.stdout.flush()
        origin = _Origin(Path(link), before, printed.read_text()[began:])
        control.send(b"ready")
        while True:
            _, fds, _, _ = socket.recv_fds(control, 16, 3)
            if not fds:
                os._exit(0)
            parent = os.getpid()
            pid = os.fork()
            if not pid:
                status = 70
                try:
                    linux.die_with_parent(parent)
                    os.setsid()
                    with os.fdopen(fds[0], "rb") as said:
                        request = json.loads(_content(said))
                    status = _be_gpudiag(origin, request, fds[1], fds[2])
                finally:
                    os._exit(status)
            for fd in fds:
                os.close(fd)
            _, ended = os.waitpid(pid, 0)
            control.send(str(os.waitstatus_to_exitcode(ended)).encode())
