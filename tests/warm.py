"""Runs ``gpudiag`` from processes that have done already what every run does first: a test then costs what is its own.

One process has imported the modules of gpudiag. It forks for each worker of pytest, and that fork for each run. The
fork is ``gpudiag``: its arguments, environment, folder, output and exit status are a run's own, and so is everything
that it starts, but for its fork servers. The one that has imported nothing is another fork. The one that imports
TensorFlow, three to four seconds of a processor, is a fork of a process that has imported it: there is one for
simulated machines and one for the real machine, each started when it is first needed, for all workers.

A session of pytest is such a fork, too, and so is each of its workers. What it does not share is the import of plugins,
of test modules and of what these import.

All that is new in a fork is what the start of an interpreter, or an import, makes of the environment; :func:`_starts`
and :meth:`_Origin.serves` say when that would come out otherwise. Then the process is started as it is for a user. With
``GPUDIAG_TESTS_COLD=1`` it always is.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import importlib
import json
import os
import pkgutil
import re
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import traceback
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from types import ModuleType
from typing import Any, NoReturn

import psutil

from gpudiag.hardware.waiting import children
from gpudiag.isolate.server import PARTING_S

COLD = "GPUDIAG_TESTS_COLD"
PYTEST = "pytest"
READY_S = 300.0
SIMULATED = "gpudiag.run.worker:preload_simulated"
REAL = "gpudiag.run.worker:preload"
TRY = "gpudiag.run.bisect.attempt:run"
WITHOUT_ONEDNN = {"TF_ENABLE_ONEDNN_OPTS": "0"}
"""oneDNN looks at every graph for what it could compute itself, a quarter of what a small child takes after its fork.
Whatever starts as it does for a user has it."""
IN_NEW_INTERPRETER = ("gpudiag.run.trial:run_on_gpu", "gpudiag.run.worker:run_probe", "gpudiag.run.worker:run_peer")
"""Targets that import TensorFlow themselves where they are started afresh."""

# What the loader, libc and Python read when a program starts. PYTHONPATH is not among it: the tests set sys.path.
_READ_AT_START = re.compile("LD_.*|GLIBC_.*|MALLOC_.*|LANG.*|LC_.*|TZ|PYTHON(?!PATH$|WARNINGS$).*")
# Read when a device is looked for or made, or by gpudiag: a trace of getenv and os.environ during TensorFlow's import
# has none of them (2.21.0). Where another variable is not what it was at the import, TensorFlow is imported again.
_READ_LATER = re.compile(
    "COLUMNS|LINES|TMPDIR|XDG_STATE_HOME|GPUDIAG_BISECT|GPUDIAG_SIM_MACHINE|CUDA_VISIBLE_DEVICES|CUDA_VISIBLE_DEVCIES|"
    "CUDA_DEVICE_ORDER|CUDA_HOME|TF_CONFIG|"
    "TF_FORCE_GPU_ALLOW_GROWTH|TF_GPU_ALLOCATOR|TF_GPU_THREAD_MODE|TF_GPU_ALLOW_GROWTH|TF_PER_DEVICE_MEMORY_LIMIT_MB|"
    "TF_MIN_GPU_MULTIPROCESSOR_COUNT|TF_EAGER_ENABLE_SMALL_TENSOR_CPU_PINNING|PYTHONWARNINGS|"
    "(NVIDIA|NCCL|SLURM|KUBERNETES|OMPI|APPTAINER|PYTEST)_.*"
)
_MADV_COLLAPSE = 25
_MOST_FDS = 8
"""Descriptors beside a request."""
_MAPPED = re.compile(r" (/\S+)$", re.MULTILINE)
_LIBRARY_PATH = "LD_LIBRARY_PATH"
_MACHINE = "GPUDIAG_SIM_MACHINE"
_LIBRARIES = 1000
"""The descriptor of a machine's folder. The loader looks where LD_LIBRARY_PATH led when the first process started, so
that names this descriptor, which is each process' own: forks use different machines at one time."""
_LIBRARY_FOLDER = f"/proc/self/fd/{_LIBRARIES}/lib"


class Server:
    """The process that has imported gpudiag, and that forks for whoever connects."""

    def __init__(self) -> None:
        from gpudiag.simulator import Machine

        self._stack = contextlib.ExitStack()
        self._folder = Path(self._stack.enter_context(tempfile.TemporaryDirectory(prefix="warm-")))
        self.address = str(self._folder / "socket")
        machine = self._stack.enter_context(Machine("2x16GiB"))
        (self._folder / "none" / "lib").mkdir(parents=True)
        environment = clean(os.environ)
        path = environment.get(_LIBRARY_PATH)
        path = f"{_LIBRARY_FOLDER}:{path}" if path else _LIBRARY_FOLDER
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
            listener.bind(self.address)
            listener.listen()
            arguments = f"{listener.fileno()}, {str(self._folder)!r}, {str(machine.directory)!r}"
            boot = f"import sys; sys.path[:] = {modules()!r}; import warm; warm.main({arguments})"
            _lead_to(str(self._folder / "none"))
            with (self._folder / "output").open("w") as output:
                self._process = subprocess.Popen(
                    [sys.executable, "-c", boot],
                    env={**environment, _LIBRARY_PATH: path},
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=output,
                    pass_fds=[listener.fileno(), _LIBRARIES],
                )
            os.close(_LIBRARIES)

    def close(self) -> None:
        """End the process, and all that it has forked."""
        self._process.kill()
        self._process.wait()
        self._stack.close()


class Warm:
    """What runs ``gpudiag`` for one worker of pytest; its process starts with the first run."""

    def __init__(self, address: str | None = None) -> None:
        self._address = address
        """Of a server that others use, too; None: one is started."""
        self._server: Server | None = None
        self._control: socket.socket | None = None
        self._lender: _Lender | None = None
        self._runner = self._parent = 0

    def processes(self) -> tuple[set[psutil.Process], set[psutil.Process]]:
        """Return the processes that stay between runs, those of other workers among them, and what runs have left."""
        if self._control is None:
            return set(), set()
        server = psutil.Process(self._parent)
        every = {server, *descendants(self._parent)}
        left = {one for one in every if _name(one) == _mark(self._runner)}
        return every - left, left

    def run(
        self,
        arguments: tuple[str, ...],
        *,
        folder: Path,
        environment: Mapping[str, str],
        path: list[str],
        libraries: Path | None,
        deadline_s: float,
        sabotages: Mapping[str, str] | None = None,
    ) -> subprocess.CompletedProcess[str] | None:
        """Run ``gpudiag`` with these arguments and return what came of it; None if a fork would not be the same.

        ``bisect`` is :func:`bisect_here`, and ``pytest`` a session, with the words that follow as its arguments.
        """
        if self._control is None:
            self._control = self._start()
        if not _starts(environment, self._environment) or not _same_modules(path):
            return None
        self._control.settimeout(deadline_s)
        request: dict[str, Any] = {"arguments": arguments, "folder": str(folder), "path": path}
        request["environment"] = dict(environment)
        if sabotages:
            request["sabotages"] = dict(sabotages)
        if libraries is not None:
            request["libraries"] = str(libraries)
        with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err, tempfile.TemporaryFile() as order:
            order.write(json.dumps(request).encode())
            order.flush()
            try:
                socket.send_fds(self._control, [b"run"], [order.fileno(), out.fileno(), err.fileno()])
                answer = self._control.recv(1 << 10)
                if not answer:
                    raise ConnectionError("the process that has imported gpudiag died")
            except OSError:  # that, or the deadline has passed; the next run starts another
                self.close()
                raise
            status = json.loads(answer)
            texts = [_content(file).decode() for file in (out, err)]
        return subprocess.CompletedProcess(arguments, status, *texts)

    def lender(self) -> _Lender:
        """Return where this process itself can ask for one that has imported TensorFlow."""
        if self._lender is None:
            self._control = self._control or self._start()
            socket.send_fds(self._control, [b"lender"], [self._control.fileno()])
            _, (lender,), _, _ = socket.recv_fds(self._control, 16, 1)
            self._lender = _Lender(socket.socket(fileno=lender), _LENT, modules())
        return self._lender

    def _start(self) -> socket.socket:
        self._environment = clean(os.environ)
        address = self._address
        if address is None:
            self._server = Server()
            address = self._server.address
        control = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        control.settimeout(READY_S)
        control.connect(address)
        answer = control.recv(1 << 10)
        assert answer, Path(address).with_name("output").read_text()
        self._parent, self._runner = json.loads(answer)
        return control

    def close(self) -> None:
        """End what runs for this worker."""
        if self._lender is not None:
            self._lender.control.close()
            self._lender = None
        if self._control is not None:
            self._control.close()
            self._control = None
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._runner, signal.SIGKILL)
        if self._server is not None:
            self._server.close()
            self._server = None


@contextlib.contextmanager
def lent(warm: Warm | None) -> Iterator[None]:
    """Let supervisors of this process fork, meanwhile, a server that would import TensorFlow."""
    from gpudiag.isolate import supervisor

    launch = supervisor.Supervisor._launch
    if warm is not None:
        _fork_servers(warm.lender(), {}, session=True)
    try:
        yield
    finally:
        supervisor.Supervisor._launch = launch  # type: ignore[method-assign]


def descendants(pid: int) -> Iterator[psutil.Process]:
    """Yield the processes below one. Each knows its children; psutil asks every process for its parent."""
    for child in children(pid):
        with contextlib.suppress(psutil.NoSuchProcess):
            yield psutil.Process(child)
        yield from descendants(child)


def _name(process: psutil.Process) -> str:
    try:
        return process.name()
    except psutil.NoSuchProcess:
        return ""


def _mark(runner: int) -> str:
    """Return what the processes of a worker's runs are called, and their forks; at most 15 letters."""
    return f"warm-{runner}"


_LENT = "warm-lent"
"""What a process is called that a worker has asked for itself: it stays between runs."""

_nowhere = ""
"""Where the loader looks in a process that uses no simulated machine: a folder without libraries."""


def _lead_to(machine: str | None) -> None:
    """Let the loader find the libraries of this machine, in this process and in its forks."""
    there = machine if machine is not None and Path(machine).is_dir() else _nowhere
    folder = os.open(there, os.O_PATH | os.O_DIRECTORY)
    os.dup2(folder, _LIBRARIES, inheritable=False)
    os.close(folder)


def clean(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the environment in which tests run ``gpudiag``, but for what they set themselves."""
    foreign = ("GPUDIAG_", "TF_", "CUDA_", "PYTEST_", "PYTHON")
    return {name: value for name, value in environment.items() if not name.startswith(foreign)}


def modules() -> list[str]:
    """Return the folders in which the tests, and ``gpudiag`` under test, find modules: each once, as pytest names some
    twice in its workers, and the process that serves them is started by no worker."""
    return list(dict.fromkeys(entry for entry in sys.path if entry))


def take_libraries(folder: str) -> None:
    """Let this process make simulated machines of the libraries in ``folder``."""
    from gpudiag.simulator import machine

    machine.library_directory = lambda: Path(folder)


def _starts(environment: Mapping[str, str], own: Mapping[str, str]) -> bool:
    """Return whether a program would start in ``environment`` as it did in ``own``."""
    changed = _changed(_without_machine(environment), _without_machine(own))
    return not any(_READ_AT_START.fullmatch(name) for name in changed)


def _changed(one: Mapping[str, str], other: Mapping[str, str]) -> set[str]:
    return {name for name in one.keys() | other.keys() if one.get(name) != other.get(name)}


def _without_machine(environment: Mapping[str, str]) -> dict[str, str]:
    """Return ``environment`` with no simulated machine's folder among the folders of libraries and of commands."""
    machine = environment.get(_MACHINE, "/nowhere")
    return _without(_without(environment, f"{machine}/lib"), f"{machine}/bin", "PATH")


def _without(environment: Mapping[str, str], folder: str, variable: str = _LIBRARY_PATH) -> dict[str, str]:
    kept = ":".join(entry for entry in environment.get(variable, "").split(":") if entry != folder)
    rest = {name: value for name, value in environment.items() if name != variable}
    return {**rest, variable: kept} if kept else rest


def _same_modules(path: list[str]) -> bool:
    """Return whether what gpudiag imports is, on this path, what it is on that of the tests."""
    own = modules()
    if path == own:
        return True
    return all(_found(name, path) == _found(name, own) for name in _IMPORTED)


_IMPORTED = (
    "_pytest",
    "gpudiag",
    "click",
    "elftools",
    "execnet",
    "filelock",
    "msgspec",
    "packaging",
    "pluggy",
    "psutil",
    "pynvml.py",
    "pytest",
    "rich",
    "tabulate",
    "xdist",
)


def _found(name: str, path: list[str]) -> Path | None:
    return next((file.resolve() for entry in path if (file := Path(entry, name)).exists()), None)


def _content(file: Any) -> bytes:
    file.seek(0)
    content: bytes = file.read()
    return content


# What follows runs in the processes that have imported, and in their forks.


class _Origin:
    """What the import of TensorFlow met."""

    def __init__(self, before: Mapping[str, str], machine: Path | None, printed: str) -> None:
        self.printed = printed
        self._environment = _without_machine(before)
        self.added = {name: value for name, value in os.environ.items() if before.get(name) != value}
        """Variables that the import set."""
        libraries = {Path(file).resolve() for file in _MAPPED.findall(Path("/proc/self/maps").read_text())}
        """Every file that is mapped: a library that the loader has is not looked for again."""
        own = list((machine / "lib").iterdir()) if machine is not None else []
        self._mapped = {file.name: file.resolve() for file in own if file.resolve() in libraries}

    def serves(self, environment: Mapping[str, str]) -> bool:
        """Return whether an import in ``environment`` would come to what this one came to."""
        machine = Path(environment.get(_MACHINE, "/nowhere"))
        if any((machine / "lib" / name).resolve() != file for name, file in self._mapped.items()):
            return False
        changed = _changed(self._environment, _without_machine(environment))
        return all(_READ_LATER.fullmatch(name) for name in changed)


class _Forked(subprocess.Popen[bytes]):
    """A fork server that is a fork of this process; what :class:`subprocess.Popen` knows of a child."""

    def __init__(self, command: list[str], **given: Any) -> None:
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
                _serve(command[command.index("-c") + 2 :], **given)
            finally:
                os._exit(1)


class _Lent(subprocess.Popen[bytes]):
    """A fork server that is a fork of another process, which says when and how it has ended."""

    def __init__(self, command: list[str], parent: socket.socket, pid: int) -> None:
        self.args = command
        self.stdin = self.stdout = self.stderr = None
        self.returncode = None
        self._child_created = False
        self._parent = parent
        self.pid = pid

    def poll(self) -> int | None:
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.wait(0)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        if self.returncode is None:
            self._parent.settimeout(timeout)
            try:
                answer = self._parent.recv(1 << 10)
            except (TimeoutError, BlockingIOError):
                raise subprocess.TimeoutExpired(self.args, timeout or 0) from None
            self.returncode = int(answer or -signal.SIGKILL)
            self._parent.close()
        return self.returncode


def _serve(
    arguments: list[str],
    *,
    stdin: int,
    stdout: int,
    stderr: int,
    pass_fds: list[int],
    env: Mapping[str, str],
    start_new_session: bool,
    printed: str = "",
    entry: str = "gpudiag.isolate.server:main",
) -> NoReturn:
    """Be the fork server, or another program, that is started with these arguments, and that has printed this."""
    from gpudiag.isolate import worker

    assert stdin == subprocess.DEVNULL
    if start_new_session:
        os.setsid()
    _reset_signals()
    _redirect(os.open(os.devnull, os.O_RDONLY), stdout, stderr, keep=pass_fds)
    _lead_to(env.get(_MACHINE))
    _replace_environment(env)
    os.write(1, printed.encode())
    sys.argv = ["-c", *arguments]
    worker.resolve(entry)()
    os._exit(0)


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
    for kept in sorted({*keep, _LIBRARIES}):
        os.closerange(first, kept)
        first = kept + 1
    os.closerange(first, 1 << 12)


def _replace_environment(environment: Mapping[str, str]) -> None:
    os.environ.clear()
    os.environ.update(environment)


@dataclass(frozen=True)
class _Lender:
    """Where a run asks for a process that has imported TensorFlow."""

    control: socket.socket
    mark: str
    path: list[str] | None = None
    """The folders of modules of whoever asks; None: those of this process, when it asks."""

    def start(self, entry: str, environment: Mapping[str, str], fds: list[int]) -> socket.socket | None:
        """Start a program that finds TensorFlow imported on a simulated machine; None if that import does not serve.

        It is ``module:function``, its arguments are the numbers of ``fds``, and it ends if the socket is closed.
        """
        with open(os.devnull, "wb") as nothing:  # noqa: PTH123
            asked = [nothing.fileno(), *fds]
            answer, parent = self._send(SIMULATED, environment, str(Path.cwd()), asked, entry=entry)
        if answer.isdigit():
            return parent
        parent.close()
        return None

    def ask(self, preload: str, environment: Mapping[str, str]) -> bool:
        """Return whether an import in this environment would come to what the import there came to."""
        answer, parent = self._send(preload, environment, None, [])
        parent.close()
        return answer == b"yes"

    def fork(
        self,
        preload: str,
        command: list[str],
        *,
        stdin: int,
        stdout: int,
        stderr: int,
        pass_fds: list[int],
        env: Mapping[str, str],
        start_new_session: bool,
    ) -> _Lent | None:
        """Return a fork server that has imported; None if an import in this environment may come out otherwise."""
        assert (stdin, stderr, start_new_session) == (subprocess.DEVNULL, stdout, True)
        answer, parent = self._send(preload, env, str(Path.cwd()), [stdout, *pass_fds])
        if answer.isdigit():
            return _Lent(command, parent, int(answer))
        parent.close()
        return None

    def _send(
        self, preload: str, environment: Mapping[str, str], folder: str | None, fds: list[int], **more: str
    ) -> tuple[bytes, socket.socket]:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        request: dict[str, Any] = {"preload": preload, "environment": dict(environment), "folder": folder, **more}
        request |= {"mark": self.mark, "path": sys.path if self.path is None else self.path}
        with theirs, tempfile.TemporaryFile() as order:
            order.write(json.dumps(request).encode())
            order.flush()
            socket.send_fds(self.control, [b"lend"], [order.fileno(), theirs.fileno(), *fds])
        return ours.recv(1 << 10), ours


def _fork_servers(lender: _Lender, own: Mapping[str, str], *, session: bool = False) -> None:
    """Let supervisors fork where they would start an interpreter.

    In a session of pytest only for a server that imports TensorFlow: any other would be a fork of the session itself.
    """
    from gpudiag.isolate import Job, ServerSpec, server_process, supervisor

    popen = subprocess.Popen
    launch, start = supervisor.Supervisor._launch, supervisor.Supervisor.start

    def launched(self: supervisor.Supervisor, server: server_process.ServerProcess) -> None:
        def started(command: list[str], **given: Any) -> subprocess.Popen[bytes]:
            if server.spec.preload in (SIMULATED, REAL):
                return lender.fork(server.spec.preload, command, **given) or popen(command, **given)
            if session or server.spec.preload is not None or not _starts(given["env"], own):
                return popen(command, **given)
            subprocess.Popen = popen  # type: ignore[misc]  # the fork has it, too
            return _Forked(command, **given)

        subprocess.Popen = started  # type: ignore[assignment,misc]
        try:
            launch(self, server)
        finally:
            subprocess.Popen = popen  # type: ignore[misc]

    def begun(self: supervisor.Supervisor, job: Job) -> None:
        """Begin ``job``; a probe that is spawned, and the trial of a fix, would import TensorFlow, too."""
        if job.target == TRY and (env := _served(lender, job.argument)) is not None:
            self._servers[job.key] = server_process.ServerProcess(
                job.key, ServerSpec(SIMULATED, "import tensorflow", env), self._bounds
            )
            job = replace(job, server=job.key, target="warm:tried")
        spec = ServerSpec(SIMULATED, "import tensorflow", {**self._servers[job.server].spec.env, **job.env})
        environment = _merged(os.environ, spec.env)
        imports = job.fresh and job.target in IN_NEW_INTERPRETER and _MACHINE in environment
        if imports and lender.ask(SIMULATED, environment):
            self._servers[job.key] = server_process.ServerProcess(job.key, spec, self._bounds)
            job = replace(job, server=job.key, fresh=False)
        start(self, job)

    supervisor.Supervisor._launch = launched  # type: ignore[method-assign]
    if not session:
        supervisor.Supervisor.start = begun  # type: ignore[method-assign]


def _served(lender: _Lender, variant: Mapping[str, Any]) -> dict[str, str | None] | None:
    """Return the changes of the environment for a variant of a bisection that this process serves; else None."""
    from gpudiag.run.servers import LOG_LEVELS

    started_otherwise = variant["skipped"] or not variant["user_site"] or variant["elsewhere"] or variant["on_path"]
    own: dict[str, str] = {**variant["variables"], **{name: value for name, value in LOG_LEVELS.items() if value}}
    if started_otherwise or not lender.ask(SIMULATED, own):
        return None
    return {**dict.fromkeys(os.environ), **own}


def tried(variant: dict[str, Any]) -> bytes:
    """Do in a fork what a try does in a new interpreter."""
    import msgspec

    from gpudiag.run.bisect import script
    from gpudiag.run.bisect.attempt import Reached

    notes = Path(tempfile.mkdtemp()) / "notes"
    pid = os.fork()
    if not pid:
        try:
            script.main({"notes": str(notes), "skipped": [], "user_site": True, "on_path": False, "libraries": False})
        finally:
            os._exit(1)
    os.waitpid(pid, 0)
    return msgspec.json.encode(Reached(**json.loads(notes.read_bytes())) if notes.exists() else Reached(ended="died"))


def bisect_here() -> None:
    """Bisect the environment of this process, on the simulated machine that it names, and print what came of it."""
    import msgspec

    from examples.facts import example_with_gpus
    from gpudiag.facts import environment
    from gpudiag.isolate import Bounds, ServerSpec, supervise
    from gpudiag.model.diagnosis import Diagnosis
    from gpudiag.run.bisect import here

    machine = Path(os.environ["GPUDIAG_SIM_MACHINE"])
    with supervise({"plain": ServerSpec()}, Bounds()) as children:
        facts = example_with_gpus(2, environment=environment.gather())
        nothing = Diagnosis(steps=())
        found = here.bisected(
            children, "plain", nothing, facts, gpus=(), environment={}, machine=machine, jobs=2, within_s=300.0
        )
    print(msgspec.json.encode(found).decode())


def _merged(environment: Mapping[str, str], changes: Mapping[str, str | None]) -> dict[str, str]:
    merged = {**environment, **changes}
    return {name: value for name, value in merged.items() if value is not None}


def _be_gpudiag(lender: _Lender, request: dict[str, Any], out: int, err: int) -> int:
    """Be ``gpudiag`` and return its exit status."""
    from gpudiag import cli

    session = request["arguments"][:1] == [PYTEST]
    _fork_servers(lender, dict(os.environ), session=session)
    if "libraries" in request:
        take_libraries(request["libraries"])
    if "sabotages" in request:
        import sabotages

        sabotages.install(request["sabotages"])
    _reset_signals()
    _redirect(os.open(os.devnull, os.O_RDONLY), out, err, keep=[lender.control.fileno()])
    _replace_environment(request["environment"])
    sys.warnoptions[:] = filter(None, os.environ.get("PYTHONWARNINGS", "").split(","))
    warnings._processoptions(sys.warnoptions)  # type: ignore[attr-defined]
    os.chdir(request["folder"])
    tempfile.tempdir = None
    sys.path[:] = request["path"]
    importlib.invalidate_caches()
    sys.argv = ["-c", *request["arguments"][session:]]
    try:
        if session:
            return _session(lender)
        if request["arguments"] == ["bisect"]:
            bisect_here()
            return 0
        cli.main()
    except SystemExit as ended:
        return int(ended.code or 0)
    except BaseException:
        traceback.print_exc()
        return 1
    finally:
        sys.stdout.flush()
        sys.stderr.flush()


def _session(lender: _Lender) -> int:
    """Be a session of pytest; its workers are forks of what it is a fork of."""
    import execnet.gateway_io
    import pytest

    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    _child(lambda: _workers(lender, theirs, ours))
    theirs.close()
    _lead_to(os.environ.get(_MACHINE))

    def begun(self: Any, args: list[str], execmodel: Any) -> None:
        assert args[-2:] == ["-c", execnet.gateway_io.popen_bootstrapline], args
        self.popen = _Worker(args, ours)
        super(execnet.gateway_io.Popen2IOMaster, self).__init__(self.popen.stdin, self.popen.stdout, execmodel)

    execnet.gateway_io.Popen2IOMaster.__init__ = begun  # type: ignore[method-assign]
    try:
        return int(pytest.main())
    finally:
        atexit._run_exitfuncs()


class _Worker(subprocess.Popen[bytes]):
    """A worker of pytest-xdist, which is a fork of another process."""

    def __init__(self, command: list[str], workers: socket.socket) -> None:
        self.args = command
        self.stderr = self.returncode = None
        self._child_created = False
        life, living = os.pipe()
        their_in, to_worker = os.pipe()
        of_worker, their_out = os.pipe()
        self._life = life
        self.stdin, self.stdout = os.fdopen(to_worker, "wb"), os.fdopen(of_worker, "rb")
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with ours, theirs, tempfile.TemporaryFile() as order:
            order.write(json.dumps({"environment": dict(os.environ), "folder": str(Path.cwd())}).encode())
            order.flush()
            socket.send_fds(workers, [b"start"], [order.fileno(), theirs.fileno(), their_in, their_out, 2, living])
            theirs.close()
            self.pid = int(ours.recv(1 << 10))
        _close([their_in, their_out, living])

    def wait(self, timeout: float | None = None) -> int:
        """Wait for its end, which closes what it alone has open; how it ended is not known here, and nobody asks."""
        if self.returncode is None:
            if not select.select([self._life], [], [], timeout)[0]:
                raise subprocess.TimeoutExpired(self.args, timeout or 0)
            os.close(self._life)
            self.returncode = 0
        return self.returncode

    def send_signal(self, sig: int) -> None:
        """Send a signal; its process number stays its own, because nobody reaps it before the session ends."""
        if self.returncode is None:
            os.kill(self.pid, sig)


def _workers(lender: _Lender, control: socket.socket, other_end: socket.socket) -> int:
    """Fork for each worker that a session starts; they die with this process, and this one with the session."""
    other_end.close()
    while fds := _received(control, 6):
        order, said, *streams, living = fds
        pid = _child(lambda: _be_worker(lender, _read_order(order), streams, living))  # noqa: B023  # called at once
        os.write(said, str(pid).encode())
        _close(fds)
    return 0


def _be_worker(lender: _Lender, order: dict[str, Any], streams: list[int], living: int) -> int:
    """Be the interpreter that execnet starts."""
    import execnet.gateway_io

    stdin, stdout, stderr = streams
    _redirect(stdin, stdout, stderr, keep=[living, lender.control.fileno()])
    for stream, mode in enumerate("rww"):
        setattr(sys, ("stdin", "stdout", "stderr")[stream], os.fdopen(stream, mode, closefd=False))
    _replace_environment(order["environment"])
    os.chdir(order["folder"])
    _lead_to(order["environment"].get(_MACHINE))
    sys.argv = ["-c"]
    sys.modules["__main__"] = ModuleType("__main__")
    try:
        exec(execnet.gateway_io.popen_bootstrapline, vars(sys.modules["__main__"]))
    finally:
        atexit._run_exitfuncs()
    return 0


def _child(work: Callable[[], int]) -> int:
    """Start a process that does ``work``, ends with its status, and dies with this one; return its number."""
    from gpudiag.isolate import linux

    parent = os.getpid()
    pid = os.fork()
    if pid:
        return pid
    status = 70
    try:
        linux.die_with_parent(parent)
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        status = work()
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


def _received(control: socket.socket, most: int) -> list[int]:
    """Return the descriptors of the next request, the first of which is its order; none if nobody will ask again."""
    _, fds, _, _ = socket.recv_fds(control, 16, most)
    return list(fds)


def _read_order(fd: int) -> dict[str, Any]:
    with os.fdopen(os.dup(fd), "rb") as file:
        order: dict[str, Any] = json.loads(_content(file))
    return order


def _close(fds: list[int]) -> None:
    for fd in fds:
        os.close(fd)


@dataclass
class _Importers:
    """The processes that have imported TensorFlow."""

    folder: Path
    machine: Path
    """The simulated machine on which it is imported."""
    started: dict[str, socket.socket]

    def pass_on(self, fds: list[int]) -> None:
        """Hand what a run asks for to the process that has imported; start that if there is none."""
        order = _read_order(fds[0])
        preload = order["preload"]
        if preload not in self.started:
            self.started[preload] = self._start(preload)
        with contextlib.suppress(OSError):  # it has died: whoever asked sees the end of its socket
            socket.send_fds(self.started[preload], [b"lend"], fds)

    def _start(self, preload: str) -> socket.socket:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        machine = self.machine if preload == SIMULATED else None
        _child(lambda: _import(preload, theirs, machine, self.folder / preload.partition(":")[2]))
        theirs.close()
        ours.recv(16)
        return ours


def _import(preload: str, control: socket.socket, machine: Path | None, output: Path) -> int:
    """Import TensorFlow, then fork for each fork server that is asked for."""
    import gc

    from gpudiag.isolate import worker
    from gpudiag.run.servers import LOG_LEVELS

    printed = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    _redirect(os.open(os.devnull, os.O_RDONLY), printed, printed, keep=[control.fileno()])
    _lead_to(None if machine is None else str(machine))
    for name, value in LOG_LEVELS.items():
        if value is not None:
            os.environ[name] = value
    if machine is not None:
        os.environ[_MACHINE] = str(machine)
    before = dict(os.environ)
    os.environ.update(WITHOUT_ONEDNN)  # TensorFlow reads it once, while it is imported
    gc.disable()
    worker.resolve(preload)()
    for name in WITHOUT_ONEDNN:
        del os.environ[name]
    gc.freeze()
    gc.enable()
    _take_large_pages()
    sys.stdout.flush()
    origin = _Origin(before, machine, output.read_text())
    control.send(b"ready")

    keepers = _Keepers()
    while fds := keepers.next_request(control):
        order = _read_order(fds[0])
        _, said, *given = fds
        if not origin.serves(order["environment"]) or not _finds_the_same(order):
            os.write(said, b"no")
        elif order["folder"] is None:
            os.write(said, b"yes")
        else:
            keepers.start(origin, order, said, *given)
        _close(fds)
    return 0


def _finds_the_same(order: dict[str, Any]) -> bool:
    """Return whether everything that was imported here is where whoever asks would find it.

    A folder more on the path, as pytest adds that of the tests, must hold neither a package, which might be one that
    TensorFlow looks for, nor a module of a name that was imported.
    """
    path: list[str] = order["path"]
    more = [Path(order["folder"] or "/", entry) for entry in path if entry not in sys.path]
    files = [file for folder in more if folder.is_dir() for file in folder.iterdir() if file.name != "__pycache__"]
    hides = any(file.is_dir() or file.name.partition(".")[0] in sys.modules for file in files)
    return [entry for entry in path if entry in sys.path] == sys.path and not hides


class _Keepers:
    """The fork servers that are forks of this process; whoever asked for one hears here how it has ended."""

    def __init__(self) -> None:
        self._asking: dict[int, int] = {}
        """On what the run listens that asked for a server, by the process of its keeper."""
        self._until: dict[int, float] = {}
        """When the keeper is ended whose run is no more: the server has seen that, too, and ends itself."""
        self._woken, wake = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(wake)

    def next_request(self, control: socket.socket) -> list[int]:
        """Return the descriptors of the next request; none if nobody will ask again."""
        while True:
            wait_s = max(0.0, min(self._until.values()) - time.monotonic()) if self._until else None
            listening: list[Any] = [control, self._woken, *self._asking.values()]
            ready, _, _ = select.select(listening, [], [], wait_s)
            if self._woken in ready:
                os.read(self._woken, 4096)
                self._reap()
            for keeper, said in list(self._asking.items()):
                if said in ready:  # the run has ended
                    os.close(self._asking.pop(keeper))
                    self._until[keeper] = time.monotonic() + PARTING_S
            for keeper, until in list(self._until.items()):
                if time.monotonic() >= until:
                    del self._until[keeper]
                    os.kill(keeper, signal.SIGTERM)
            if control in ready:
                return _received(control, _MOST_FDS)

    def start(self, origin: _Origin, order: dict[str, Any], said: int, output: int, *given: int) -> None:
        """Fork a server, and say the number of its keeper; or another program, which has no keeper."""
        arguments = [*given, os.getpid()] if "entry" not in order else given
        keeper = os.fork()
        if not keeper:
            try:
                Path("/proc/self/comm").write_text(order["mark"])
                os.chdir(order["folder"])
                sys.path[:] = order["path"]
                importlib.invalidate_caches()
                _serve(
                    list(map(str, arguments)),
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=output,
                    pass_fds=list(given),
                    env={**order["environment"], **origin.added},
                    start_new_session=True,
                    printed=origin.printed,
                    **{name: value for name, value in order.items() if name == "entry"},
                )
            finally:
                os._exit(1)
        self._asking[keeper] = os.dup(said)
        os.write(said, str(keeper).encode())

    def _reap(self) -> None:
        with contextlib.suppress(ChildProcessError):
            while (ended := os.waitpid(-1, os.WNOHANG))[0]:
                keeper, status = ended
                self._until.pop(keeper, None)
                if (said := self._asking.pop(keeper, None)) is not None:
                    with contextlib.suppress(OSError):  # the run has ended at the same time
                        os.write(said, str(os.waitstatus_to_exitcode(status)).encode())
                    os.close(said)


def _preload() -> None:
    """Import what any run may: all of gpudiag but what takes part in a program or a session of pytest.

    And do once what each run does for the first time: a diagnosis, and what it makes ready.
    """
    import gc

    from _pytest.config import default_plugins

    import gpudiag
    from examples.facts import example_with_gpus
    from gpudiag.run import judgement
    from gpudiag.simulator import library_directory, machine

    def all_below(path: list[str], prefix: str) -> None:
        for found in pkgutil.iter_modules(path, prefix):
            if found.name in ("gpudiag.__main__", "gpudiag.pytest_plugin", "gpudiag.simulator", "gpudiag.suite"):
                continue
            module = importlib.import_module(found.name)
            if found.ispkg:
                all_below(list(module.__path__), f"{found.name}.")

    gc.disable()
    all_below(list(gpudiag.__path__), "gpudiag.")
    rich = ("rich.console", "rich.live", "rich.progress", "rich.table")
    own = (f"_pytest.{name}" for name in default_plugins)  # but not plugins that are installed, which pytest rewrites
    packaging = ("packaging.requirements", "packaging.tags", "packaging.version")
    for name in ("gpudiag.simulator.machine", *rich, *packaging, "pynvml", "execnet", "pytest", *own):
        importlib.import_module(name)
    judgement.import_all()
    judgement.diagnosed(judgement.Subject(example_with_gpus(1)))
    machine._require_loadable(library_directory())
    _remember_libraries()
    gc.freeze()
    gc.enable()
    _take_large_pages()


def _take_large_pages() -> None:
    """Move this process' memory into pages of 2 MB: to fork copies the table of the pages, 16 ms with TensorFlow.

    Linux before 6.1 does not know the advice, and it all stays as it is.
    """
    libc = ctypes.CDLL(None)
    for line in Path("/proc/self/maps").read_text().splitlines():
        region, access, _, _, inode, *name = line.split()
        if access == "rw-p" and inode == "0" and name in ([], ["[heap]"]):
            first, last = (int(address, 16) for address in region.split("-"))
            libc.madvise(ctypes.c_void_p(first), ctypes.c_size_t(last - first), _MADV_COLLAPSE)


def _remember_libraries() -> None:
    """Read the libraries that every simulated machine has, and TensorFlow's: forks know them, as long as they last."""
    from gpudiag.facts import libraries
    from gpudiag.hardware import elf
    from gpudiag.simulator import library_directory

    known: dict[tuple[int, ...], elf.Elf | None] = {}
    read = elf.read

    def remembered(file: Path) -> elf.Elf | None:
        try:
            stat = file.stat()
        except OSError:
            return read(file)
        same = (stat.st_dev, stat.st_ino, stat.st_size, stat.st_mtime_ns, stat.st_mode)
        if same not in known:
            known[same] = read(file)
        return known[same]

    elf.read = remembered
    package = libraries._tensorflow()
    own = [package / libraries._OPENER] if package else []
    for file in (Path(sys.executable), *own, *library_directory().iterdir()):
        remembered(file)


def main(listener_fd: int, folder: str, machine: str) -> NoReturn:
    """Entry of the process: import gpudiag, then fork for each worker of pytest, and for what their runs ask for."""
    global _nowhere  # noqa: PLW0603  # its forks know it, too
    from gpudiag.isolate import linux

    linux.die_with_parent(os.getppid())
    _preload()
    _nowhere = f"{folder}/none"
    _replace_environment(_without(os.environ, _LIBRARY_FOLDER))
    importers = _Importers(Path(folder), Path(machine), {})
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with socket.socket(fileno=listener_fd) as listener:
        while True:
            ready, _, _ = select.select([listener, ours], [], [])
            if listener in ready:
                control, _ = listener.accept()
                with control:
                    _child(lambda: _run_for(control, theirs))  # noqa: B023  # called at once
            if ours in ready:
                asked = _received(ours, _MOST_FDS)
                importers.pass_on(asked)
                _close(asked)


def _run_for(control: socket.socket, lender: socket.socket) -> int:
    """Fork for each run that a worker of pytest asks for, one at a time, until it asks no more."""
    control.send(json.dumps([os.getppid(), os.getpid()]).encode())
    mark = _mark(os.getpid())
    while fds := _received(control, 3):
        if len(fds) == 1:  # the worker asks for itself
            socket.send_fds(control, [b"lender"], [lender.fileno()])
            _close(fds)
            continue
        order, out, err = fds

        def run() -> int:
            os.setsid()
            Path("/proc/self/comm").write_text(mark)
            return _be_gpudiag(_Lender(lender, mark), _read_order(order), out, err)  # noqa: B023  # called at once

        pid = _child(run)
        _close(fds)
        _, status = os.waitpid(pid, 0)
        control.send(json.dumps(os.waitstatus_to_exitcode(status)).encode())
    return 0
