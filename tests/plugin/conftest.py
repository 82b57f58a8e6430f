"""Fixtures of the plugin's tests: a suite of tests of its own, run by pytest in a process of its own."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from importlib.metadata import entry_points
from pathlib import Path
from textwrap import dedent
from xml.etree import ElementTree

import pytest

from conftest import DEADLINE_S, Gpudiag
from gpudiag import simulator

INSTALLED = any(one.name == "gpudiag" for one in entry_points(group="pytest11"))
BOOT = "import sys; sys.path[:] = {path!r}; import pytest; sys.exit(pytest.console_main())"


@dataclass(frozen=True)
class Test:
    """One test, as the JUnit file has it."""

    __test__ = False  # pytest would collect it

    outcome: str
    """``passed``, ``failure``, ``error`` or ``skipped``."""
    message: str
    properties: dict[str, str]


@dataclass(frozen=True)
class Session:
    """What a run of pytest came to."""

    status: int
    out: str
    err: str
    tests: dict[str, Test] = field(default_factory=dict)

    def __str__(self) -> str:
        return f"exit status {self.status}\n{self.out}\n{self.err}"

    def outcomes(self) -> dict[str, str]:
        return {name: test.outcome for name, test in self.tests.items()}

    def property(self, name: str) -> list[str]:
        """Return the values of a property, of the tests that have it."""
        return [test.properties[name] for test in self.tests.values() if name in test.properties]


class Suite:
    """A folder with tests, and pytest with the plugin to run them."""

    def __init__(self, gpudiag: Gpudiag) -> None:
        self.gpudiag = gpudiag
        self.folder = gpudiag.folder / "suite"
        self.folder.mkdir()

    def write(self, name: str, source: str) -> Path:
        path = self.folder / name
        path.write_text(dedent(source))
        return path

    def command(self, *arguments: str, plugin: bool = True) -> list[str]:
        plugins = ["-p", "gpudiag.pytest_plugin"] if plugin and not INSTALLED else []
        boot = BOOT.format(path=self.gpudiag.path)
        return [sys.executable, "-c", boot, *plugins, "-p", "no:cacheprovider", "-W", "error", *arguments]

    def start(self, *arguments: str, plugin: bool = True, **variables: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            self.command(*arguments, plugin=plugin),
            cwd=self.folder,
            env={**self.gpudiag.environment, "TMPDIR": str(self.gpudiag.temporary), **variables},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def __call__(self, *arguments: str, plugin: bool = True, **variables: str) -> Session:
        junit = self.gpudiag.folder / "junit.xml"
        junit.unlink(missing_ok=True)
        with self.start(f"--junitxml={junit}", *arguments, plugin=plugin, **variables) as process:
            try:
                out, err = process.communicate(timeout=DEADLINE_S)
            except subprocess.TimeoutExpired:
                process.kill()
                raise
        return Session(process.returncode, out, err, _tests(junit))


def _tests(junit: Path) -> dict[str, Test]:
    if not junit.exists():
        return {}
    found = {}
    for case in ElementTree.parse(junit).iter("testcase"):
        result = next((child for child in case if child.tag in ("failure", "error", "skipped")), None)
        properties = {one.attrib["name"]: one.attrib["value"] for one in case.iter("property")}
        outcome = "passed" if result is None else result.tag
        message = "" if result is None else result.attrib.get("message", "") + (result.text or "")
        found[case.attrib["name"]] = Test(outcome, message, properties)
    return found


@pytest.fixture
def suite(gpudiag: Gpudiag) -> Suite:
    return Suite(gpudiag)


@pytest.fixture
def simulated() -> None:
    """Skip where GPUs cannot be simulated."""
    try:
        simulator.library_directory()
        simulator.require_cuda_wheel()
    except simulator.SimulatorError as missing:
        pytest.skip(str(missing))


@pytest.fixture
def machine(simulated: None, request: pytest.FixtureRequest) -> Callable[[str], simulator.Machine]:
    """Make simulated machines that last as long as the test."""

    def make(spec: str) -> simulator.Machine:
        made = simulator.Machine(spec)
        made.__enter__()
        request.addfinalizer(lambda: made.__exit__(None, None, None))
        return made

    return make
