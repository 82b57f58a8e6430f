"""Fixtures: the command line as a user runs it, machines whose TensorFlow is missing or broken, processes left over."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Generator, Iterable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from gpudiag.isolate import linux
from gpudiag.simulator import SimulatorMissing, library_directory
from warm import COLD, Server, Warm, clean, descendants, modules

DEADLINE_S = 400

collect_ignore = ["samples"]
"""Suites of their own, which tests run with other options."""

_EXITING = 0x4
"""PF_EXITING of Linux, among the flags of /proc/PID/stat."""
_SERVER = pytest.StashKey[Server]()
_REPORTS = pytest.StashKey[list[pytest.TestReport]]()

for _number in (signal.SIGINT, signal.SIGHUP, signal.SIGQUIT):
    # A job in the background of a shell, or of nohup, ignores them, and so would what the tests start, and send them
    # to. What is handled here, by whatever function, is not ignored there.
    if signal.getsignal(_number) is signal.SIG_IGN:
        signal.signal(_number, lambda *_: None)


def pytest_configure() -> None:
    """Say in a sentence what would otherwise be hundreds of failures."""
    if importlib.util.find_spec("tensorflow") is None:
        raise pytest.UsageError(
            "the tests run TensorFlow, which is not installed here: pip install '.[tensorflow,test]'"
        )
    try:
        library_directory()
    except SimulatorMissing as missing:
        raise pytest.UsageError(f"the tests run on simulated GPUs: {missing}") from missing


def pytest_xdist_auto_num_workers() -> int:
    """Two more than the processors: many tests wait, for a deadline or for a machine that hangs."""
    return len(os.sched_getaffinity(0)) + 2


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with the tests that have files of their own, which run programs: a long one begun last would end alone."""
    items.sort(key=lambda item: "tmp_path_factory" not in getattr(item, "fixturenames", ()))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    item.stash.setdefault(_REPORTS, []).append(report)
    return report


class Gpudiag:
    """Runs ``gpudiag`` in a folder of its own, on this interpreter's modules, with a clean environment."""

    def __init__(self, folder: Path, warm: Warm | None = None) -> None:
        self.folder = folder
        self.warm = warm
        """Spares runs the start of interpreters and the import of TensorFlow; None: each begins as a user's does."""
        self.temporary = folder / "tmp"
        self.temporary.mkdir()
        self.path = modules()
        self.libraries: Path | None = None
        """Of simulated machines; None: those that were built."""
        self.program: tuple[str, str, tuple[str, ...], dict[str, str]] | None = None
        """What was run last: machine, source, command and variables."""
        self.sabotages: dict[str, str] = {}
        """Probes whose children are sabotaged; see :mod:`sabotages`."""
        self.environment = clean(os.environ) | {"XDG_STATE_HOME": str(folder / "state"), "GPUDIAG_BISECT": "0"}
        """Without the bisection, which starts interpreters that import TensorFlow wherever a machine has a fault."""

    def command(self, *arguments: str, flags: tuple[str, ...] = ()) -> list[str]:
        boot = f"import sys; sys.path[:] = {self.path!r}; "
        if self.libraries is not None:
            boot += f"import warm; warm.take_libraries({str(self.libraries)!r}); "
        if self.sabotages:
            boot += f"import sabotages; sabotages.install({self.sabotages!r}); "
        boot += "from gpudiag.cli import main; main()"
        return [sys.executable, *flags, "-c", boot, *arguments]

    def start(self, *arguments: str, flags: tuple[str, ...] = (), **variables: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            self.command(*arguments, flags=flags),
            cwd=self.folder,
            env={**self.environment, "TMPDIR": str(self.temporary), **variables},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def __call__(
        self, *arguments: str, flags: tuple[str, ...] = (), **variables: str
    ) -> subprocess.CompletedProcess[str]:
        if self.warm is not None and not flags:
            environment = {**self.environment, "TMPDIR": str(self.temporary), **variables}
            done = self.warm.run(
                arguments,
                folder=self.folder,
                environment=environment,
                path=self.path,
                libraries=self.libraries,
                deadline_s=DEADLINE_S,
                sabotages=self.sabotages,
            )
            if done is not None:
                return done
        with self.start(*arguments, flags=flags, **variables) as process:
            try:
                out, err = process.communicate(timeout=DEADLINE_S)
            except subprocess.TimeoutExpired:
                process.kill()
                raise
        return subprocess.CompletedProcess(process.args, process.returncode, out, err)

    def simulated(self, machine: str, faults: tuple[str, ...] = ()) -> list[str]:
        """Return the arguments of ``check`` for a simulated machine.

        ``machine`` is a specification, or TOML where it holds a line break; "" for the machine that runs the test.
        """
        if not machine:
            return []
        if "\n" in machine:
            (self.folder / "machine.toml").write_text(machine)
            machine = "machine.toml"
        return ["--simulate", machine, *(word for fault in faults for word in ("--fault", fault))]

    def with_tensorflow(self, source: str) -> Gpudiag:
        """Put a module ``tensorflow`` with this source before the real one."""
        package = self.folder / "modules" / "tensorflow"
        package.mkdir(parents=True)
        (package / "__init__.py").write_text(source)
        self.path.insert(0, str(package.parent))
        return self

    def without(self, package: str) -> Gpudiag:
        """Replace every folder that holds ``package`` by one of links to all the rest."""
        for number, entry in enumerate(self.path):
            if (Path(entry) / package).is_dir():
                rest = self.folder / f"modules{number}-without-{package}"
                rest.mkdir()
                for one in Path(entry).iterdir():
                    if not one.name.startswith(package):
                        (rest / one.name).symlink_to(one)
                self.path[number] = str(rest)
        return self

    def run_program(self, machine: str, source: str, *command: str, **variables: str) -> str:
        """Run a program, or ``command``, on a simulated machine; its output becomes ``app.log`` and is returned."""
        self.program = (machine, source, command, variables)
        (self.folder / "app.py").write_text(source)
        modules = {"PYTHONPATH": os.pathsep.join(self.path)}
        program = (sys.executable, *(command or ("app.py",)))
        done = self("simulate", machine, "--", *program, flags=(), **modules, **variables)
        log = done.stdout + done.stderr
        (self.folder / "app.log").write_text(log)
        return log

    def with_site_packages(self, *real: str) -> Path:
        """Put a folder of links in the place of the one that holds TensorFlow, and return it.

        What is put there is beside TensorFlow, and in the folders that its libraries name. The folders ``real`` are
        copied link by link, so that files in them can be replaced.
        """
        site = self.folder / "site-packages"
        own = next(Path(entry) for entry in self.path if (Path(entry) / "tensorflow").is_dir())
        # The loader takes the folder of a library and goes up from it, and links do not lead back.
        folders = [Path(), Path("tensorflow"), Path("tensorflow/python"), *map(Path, real)]
        for folder in folders:
            (site / folder).mkdir()
            for one in (own / folder).iterdir():
                if folder / one.name not in folders:
                    (site / folder / one.name).symlink_to(one)
        self.path[self.path.index(str(own))] = str(site)
        return site

    def with_simulator(self, change: Callable[[Path], None]) -> Gpudiag:
        """Let ``change`` alter a folder of links to the simulated machines' libraries, which is used instead."""
        self.libraries = self.folder / "libraries"
        self.libraries.mkdir()
        for library in library_directory().iterdir():
            (self.libraries / library.name).symlink_to(library.resolve())
        change(self.libraries)
        return self

    def with_distribution(self, site: Path, name: str, version: str, *files: str) -> Gpudiag:
        """Put the metadata of a distribution into ``site``: its name, its version and the files that it installed."""
        metadata = site / f"{name.replace('-', '_')}-{version}.dist-info"
        metadata.mkdir()
        (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
        (metadata / "RECORD").write_text("".join(f"{file},,\n" for file in files))
        return self


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """Give a worker of pytest-xdist the process that has imported gpudiag, which serves all of them."""
    if COLD not in os.environ:
        if _SERVER not in node.config.stash:
            node.config.stash[_SERVER] = Server()
        node.workerinput["warm"] = node.config.stash[_SERVER].address


def pytest_unconfigure(config: pytest.Config) -> None:
    if (server := config.stash.get(_SERVER, None)) is not None:
        server.close()


@pytest.fixture(scope="session")
def warm(pytestconfig: pytest.Config) -> Iterator[Warm | None]:
    """What runs gpudiag in forks of a process that has imported it; that starts where a test uses it."""
    if COLD in os.environ:
        yield None
        return
    process = Warm(getattr(pytestconfig, "workerinput", {}).get("warm"))
    yield process
    process.close()


@pytest.fixture
def gpudiag(tmp_path: Path, warm: Warm | None) -> Gpudiag:
    return Gpudiag(tmp_path, warm)


@pytest.fixture
def wait_until() -> Callable[[Callable[[], bool]], None]:
    def wait(happened: Callable[[], bool]) -> None:
        until = time.monotonic() + 30
        while not happened():
            assert time.monotonic() < until, "it did not happen within 30 s"
            time.sleep(0.02)

    return wait


@pytest.fixture(autouse=True)
def _ends_what_it_started(request: pytest.FixtureRequest, warm: Warm | None) -> Iterator[None]:
    """End what a test that fails has started: the tests after it have to do with it otherwise."""
    before = linux.children()
    yield
    if any(report.failed for report in request.node.stash.get(_REPORTS, [])):
        stay, left = warm.processes() if warm is not None else (set(), set())
        started = [one for one in psutil.Process().children() if one.pid not in before and one not in stay]
        grandchildren = [each for one in started for each in one.children(recursive=True)]
        _end([*started, *grandchildren, *left, *_marked(request.node.funcargs.get("tmp_path"))])


@pytest.fixture
def no_child_left(tmp_path: Path, warm: Warm | None) -> Iterator[None]:
    """Fail where a test leaves a process behind that it, or one of its children, started; and end that process."""
    before = _running(tmp_path, warm)
    yield
    left = {process: _named(process) for process in _running(tmp_path, warm) - before}
    _end(left)
    if left:
        pytest.fail(f"left behind: {'; '.join(left.values())}", pytrace=False)


def _running(folder: Path, warm: Warm | None) -> set[psutil.Process]:
    """Return the descendants of this process, and whatever else a test with this folder of its own has started."""
    stay, left = warm.processes() if warm is not None else (set(), set())
    found = {*descendants(os.getpid()), *_marked(folder)} - stay | left
    return {process for process in found if not _has_gone(process)}


def _marked(folder: Path | None) -> Iterator[psutil.Process]:
    """Yield every process with a file of this folder in its environment: one that left its parents, too."""
    for process in Path("/proc").glob("[0-9]*") if folder is not None else ():
        with contextlib.suppress(OSError, psutil.NoSuchProcess):
            if os.fsencode(f"{folder}/") in (process / "environ").read_bytes():
                yield psutil.Process(int(process.name))


def _has_gone(process: psutil.Process) -> bool:
    """Tell whether a process has ended, or is about to: one that got SIGKILL takes a moment on a busy machine."""
    folder = Path(f"/proc/{process.pid}")
    try:
        status = dict(line.split(":\t", 1) for line in (folder / "status").read_text().splitlines())
        flags = int((folder / "stat").read_text().rpartition(")")[2].split()[6])
    except OSError:
        return True
    pending = int(status["SigPnd"], 16) | int(status["ShdPnd"], 16)
    return status["State"][0] in "ZX" or bool(pending >> (signal.SIGKILL - 1) & 1) or bool(flags & _EXITING)


def _named(process: psutil.Process) -> str:
    try:
        return f"{process.pid} {' '.join(process.cmdline())[:200]}"
    except psutil.NoSuchProcess:
        return f"{process.pid}, which has ended since"


def _end(processes: Iterable[psutil.Process]) -> None:
    ended = list(processes)
    for process in ended:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.kill()
    psutil.wait_procs(ended, timeout=30)
