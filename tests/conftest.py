"""Fixtures: the command line as a user runs it, and machines whose TensorFlow is missing or broken."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

DEADLINE_S = 120


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
                rest = self.folder / f"modules{number}"
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
