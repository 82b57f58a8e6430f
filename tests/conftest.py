"""Fixtures: the command line as a user runs it, machines whose TensorFlow is missing or broken, processes left over."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import psutil
import pytest

from gpudiag.examined import ACTIVE
from gpudiag.hardware.waiting import children
from gpudiag.isolate import linux
from gpudiag.simulator import SimulatorMissing, library_directory

DEADLINE_S = 400

collect_ignore = ["samples"]
"""Suites of their own, which tests run with other options."""

_EXITING = 0x4
"""PF_EXITING of Linux, among the flags of /proc/PID/stat."""
_REPORTS = pytest.StashKey[list[pytest.TestReport]]()

for _number in (signal.SIGINT, signal.SIGHUP, signal.SIGQUIT):
    # A job in the background of a shell, or of nohup, ignores them, and so would what the tests start, and send them
    # to. What is handled here, by whatever function, is not ignored there.
    if signal.getsignal(_number) is signal.SIG_IGN:
        signal.signal(_number, lambda *_: None)


STARTING_FIXTURES = {"gpudiag", "suite", "server", "tensorflow"}
STARTING_FOLDERS = {"faults", "isolate", "plugin", "simulator"}
"""Tests that use these fixtures or are in these folders start programs, most of them with TensorFlow; others have the
marker themselves."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--until",
        type=int,
        metavar="TIME",
        help="begin no test after this time (seconds since 1970), and take the tests in an order that depends on it: "
        "what one run does not reach, another does",
    )


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


@pytest.hookimpl(tryfirst=True)  # before ``-m`` chooses
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Begin with the tests that have files of their own, which run programs: a long one begun last would end alone."""
    for item in items:
        if STARTING_FIXTURES & {*getattr(item, "fixturenames", ())} or item.path.parent.name in STARTING_FOLDERS:
            item.add_marker("starts")
    items.sort(key=lambda item: "tmp_path_factory" not in getattr(item, "fixturenames", ()))
    if (until := config.getoption("until")) is not None:
        random.Random(until).shuffle(items)


def pytest_runtest_setup(item: pytest.Item) -> None:
    until = item.config.getoption("until")
    if until is not None and time.time() > until:
        pytest.skip("not reached in time")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    item.stash.setdefault(_REPORTS, []).append(report)
    return report


def clean(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the environment in which tests run ``gpudiag``, but for what they set themselves."""
    foreign = ("GPUDIAG_", "TF_", "CUDA_", "PYTEST_", "PYTHON", *ACTIVE)
    return {name: value for name, value in environment.items() if not name.startswith(foreign)}


def modules() -> list[str]:
    """Return the folders in which the tests find modules, each once: pytest names some twice in its workers."""
    return list(dict.fromkeys(entry for entry in sys.path if entry))


class Gpudiag:
    """Runs ``gpudiag`` as a user does, in a folder of its own and with a clean environment."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
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
        """Return how ``gpudiag`` is started: the installed command, where the test changes nothing of its modules."""
        installed = Path(sys.executable).with_name("gpudiag")
        changed = flags or self.libraries is not None or self.sabotages or self.path != modules()
        if changed or not installed.exists():
            return self.interpreter(*arguments, flags=flags)
        return [str(installed), *arguments]

    def interpreter(self, *arguments: str, flags: tuple[str, ...] = ()) -> list[str]:
        """Return how ``gpudiag`` is started by an interpreter with these flags, and with the modules of the test."""
        boot = f"import sys; sys.path[:] = {self.path!r}; "
        if self.libraries is not None:
            boot += "import pathlib; from gpudiag.simulator import machine; "
            boot += f"machine.library_directory = lambda: pathlib.Path({str(self.libraries)!r}); "
        if self.sabotages:
            boot += f"import sabotages; sabotages.install({self.sabotages!r}); "
        boot += "from gpudiag.cli import main; main()"
        return [sys.executable, *flags, "-c", boot, *arguments]

    def start(self, *arguments: str, flags: tuple[str, ...] = (), **variables: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            self.command(*arguments, flags=flags),
            cwd=self.folder,
            env={**self.environment, "TMPDIR": str(self.temporary), **variables},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def __call__(
        self, *arguments: str, flags: tuple[str, ...] = (), **variables: str
    ) -> subprocess.CompletedProcess[str]:
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
                for path in Path(entry).iterdir():
                    if not path.name.startswith(package):
                        (rest / path.name).symlink_to(path)
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
            for path in (own / folder).iterdir():
                if folder / path.name not in folders:
                    (site / folder / path.name).symlink_to(path)
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


@pytest.fixture
def gpudiag(tmp_path: Path) -> Gpudiag:
    return Gpudiag(tmp_path)


@pytest.fixture(scope="session")
def tensorflow() -> Iterator[Any]:
    """Children of a process that has imported TensorFlow, once for all tests of this worker."""
    from far_side import children as importing  # here: it imports what needs the probes, and most tests need neither

    with importing() as started:
        yield started


@pytest.fixture
def wait_until() -> Callable[[Callable[[], bool]], None]:
    def wait(happened: Callable[[], bool]) -> None:
        until = time.monotonic() + DEADLINE_S
        while not happened():
            assert time.monotonic() < until, f"it did not happen within {DEADLINE_S} s"
            time.sleep(0.02)

    return wait


@pytest.fixture(autouse=True)
def _ends_what_it_started(request: pytest.FixtureRequest) -> Iterator[None]:
    """End what a test that fails has started: the tests after it have to do with it otherwise."""
    before = linux.children()
    yield
    if any(report.failed for report in request.node.stash.get(_REPORTS, [])):
        started = [child for child in psutil.Process().children() if child.pid not in before]
        grandchildren = [each for process in started for each in process.children(recursive=True)]
        _end([*started, *grandchildren, *_marked(request.node.funcargs.get("tmp_path"))])


@pytest.fixture
def no_child_left(tmp_path: Path) -> Iterator[None]:
    """Fail where a test leaves a process behind that it, or one of its children, started; and end that process."""
    before = _running(tmp_path)
    yield
    left = {process: _named(process) for process in _running(tmp_path) - before}
    _end(left)
    if left:
        pytest.fail(f"left behind: {'; '.join(left.values())}", pytrace=False)


def _running(folder: Path) -> set[psutil.Process]:
    """Return the descendants of this process, and whatever else a test with this folder of its own has started."""
    started = {*_descendants(os.getpid()), *_marked(folder)}
    return {process for process in started if not _has_gone(process)}


def _descendants(pid: int) -> Iterator[psutil.Process]:
    """Yield the processes below one. Each knows its children; psutil asks every process for its parent."""
    for child in children(pid):
        with contextlib.suppress(psutil.NoSuchProcess):
            yield psutil.Process(child)
        yield from _descendants(child)


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
