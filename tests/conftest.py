"""Fixtures: the command line as a user runs it, and machines whose TensorFlow is missing or broken."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

DEADLINE_S = 400

collect_ignore = ["samples"]
"""Suites of their own, which tests run with other options."""


class Gpudiag:
    """Runs ``gpudiag`` in a folder of its own, on this interpreter's modules, with a clean environment."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.temporary = folder / "tmp"
        self.temporary.mkdir()
        self.path = [entry for entry in sys.path if entry]
        self.environment = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("GPUDIAG_", "TF_", "CUDA_", "PYTEST_", "PYTHON"))
        }

    def command(self, *arguments: str, flags: tuple[str, ...] = ()) -> list[str]:
        boot = f"import sys; sys.path[:] = {self.path!r}; from gpudiag.cli import main; main()"
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
        with self.start(*arguments, flags=flags, **variables) as process:
            try:
                out, err = process.communicate(timeout=DEADLINE_S)
            except subprocess.TimeoutExpired:
                process.kill()
                raise
        return subprocess.CompletedProcess(process.args, process.returncode, out, err)

    def simulated(self, machine: str, faults: tuple[str, ...] = ()) -> list[str]:
        """Return the arguments of ``check`` for a simulated machine; skips the test where none can be made.

        ``machine`` is a specification, or TOML where it holds a line break; "" for the machine that runs the test.
        """
        from gpudiag import simulator

        if not machine:
            return []
        try:
            simulator.library_directory()
        except simulator.SimulatorMissing as missing:
            pytest.skip(str(missing))
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
        """Let ``change`` alter a copy of the simulated machines' libraries, which is used instead."""
        import gpudiag
        from gpudiag import simulator

        source = Path(gpudiag.__file__).parent
        copy = self.folder / "checkout" / source.name
        shutil.copytree(source, copy, ignore=shutil.ignore_patterns("__pycache__", "lib", "src"))
        shutil.copytree(simulator.library_directory(), copy / "simulator" / "lib")
        change(copy / "simulator" / "lib")
        self.path.insert(0, str(copy.parent))
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


@pytest.fixture
def wait_until() -> Callable[[Callable[[], bool]], None]:
    def wait(happened: Callable[[], bool]) -> None:
        until = time.monotonic() + 30
        while not happened():
            assert time.monotonic() < until, "it did not happen within 30 s"
            time.sleep(0.02)

    return wait


@pytest.fixture
def no_child_left() -> Iterator[None]:
    """Fail where a test leaves a process behind that it, or one of its children, started."""
    before = _running()
    yield
    assert _running() <= before


def _running() -> set[int]:
    found = psutil.Process().children(recursive=True)
    return {process.pid for process in found if process.is_running() and process.status() != psutil.STATUS_ZOMBIE}
