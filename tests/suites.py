"""A suite of tests of its own, run by pytest and the plugin in a process of its own."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.metadata import entry_points
from pathlib import Path
from textwrap import dedent
from xml.etree import ElementTree

from conftest import DEADLINE_S, Gpudiag

INSTALLED = any(entry_point.name == "gpudiag" for entry_point in entry_points(group="pytest11"))
BOOT = "import sys; sys.path[:] = {path!r}; import pytest; sys.exit(pytest.main())"

# record_property warns of the family that is pytest's default.
# pytest 9.2 wants to rewrite the loader of an editable installation, which Python has imported before.
EDITABLE = "ignore:Module already imported so cannot be rewritten; _editable_:pytest.PytestAssertRewriteWarning"
OPTIONS = ("-p", "no:cacheprovider", "-W", "error", "-W", EDITABLE, "-o", "junit_family=xunit1")


@dataclass(frozen=True)
class Test:
    """One test, as the JUnit file has it."""

    __test__ = False  # pytest would collect it

    outcome: str
    """``passed``, ``failure``, ``error`` or ``skipped``."""
    message: str
    properties: dict[str, str]
    seconds: float


@dataclass(frozen=True, repr=False)
class Session:
    """What a run of pytest came to."""

    status: int
    out: str
    err: str
    tests: dict[str, Test] = field(default_factory=dict)

    def __repr__(self) -> str:
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
        self.plugin = True
        """False: the plugin is not loaded where it is not installed."""

    def write(self, name: str, source: str) -> Path:
        path = self.folder / name
        path.write_text(dedent(source))
        return path

    def command(self, *arguments: str) -> list[str]:
        boot = BOOT.format(path=self.gpudiag.path)
        return [sys.executable, "-c", boot, *self._words(*arguments)]

    def _words(self, *arguments: str) -> list[str]:
        plugins = ["-p", "gpudiag.pytest_plugin"] if self.plugin and not INSTALLED else []
        return [*plugins, *OPTIONS, *arguments]

    def start(self, *arguments: str, **variables: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            self.command(*arguments),
            cwd=self.folder,
            env=self._environment(variables),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def _environment(self, variables: Mapping[str, str]) -> dict[str, str]:
        return {**self.gpudiag.environment, "TMPDIR": str(self.gpudiag.temporary), **variables}

    def __call__(self, *arguments: str, **variables: str) -> Session:
        """Run a session to its end."""
        junit = self.gpudiag.folder / "junit.xml"
        junit.unlink(missing_ok=True)
        with self.start(f"--junitxml={junit}", *arguments, **variables) as process:
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
        properties = {entry.attrib["name"]: entry.attrib["value"] for entry in case.iter("property")}
        outcome = "passed" if result is None else result.tag
        message = "" if result is None else result.attrib.get("message", "") + (result.text or "")
        found[case.attrib["name"]] = Test(outcome, message, properties, float(case.attrib["time"]))
    return found
