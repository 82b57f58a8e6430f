"""Runs isolated tests under other people's pytest plugins and writes ``reports/plugins.md``.

A virtual environment is made outside of the checkout, with gpudiag of this checkout, pytest, pytest-xdist and the
plugins; TensorFlow is not needed. For each plugin a small suite runs four times: its tests in the session's own process
and marked ``gpudiag_isolated``, with and without workers of pytest-xdist, and no other plugin loaded. What counts is
that they come to the same: each phase of each test as it was reported (in what order those of different tests come,
nobody promises), the exit status, and what the plugin printed or wrote. Exit status 1 if something differs that is not
a known limit. ``--environment`` keeps the environment in a folder, and uses it again; words choose among the plugins.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from textwrap import dedent

from tabulate import tabulate

ROOT = Path(__file__).resolve().parent.parent
REPORT = ROOT / "reports" / "plugins.md"
INSTALL_S = 1800
SESSION_S = 300

RECORDER = """
    import json, pathlib

    def pytest_addoption(parser):
        parser.addoption("--record")

    def pytest_configure(config):
        # As somebody writes a reporter who never thought of a second process.
        config.pluginmanager.register(Recorder(config.getoption("record")))

    class Recorder:
        def __init__(self, path):
            self.path = pathlib.Path(path).resolve()

        def pytest_runtest_logreport(self, report):
            if not hasattr(report, "node") and "gw" in __import__("os").environ.get("PYTEST_XDIST_WORKER", ""):
                return  # a worker of pytest-xdist: its controller reports this
            reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else ""
            phase = [report.when, report.outcome, hasattr(report, "wasxfail"), reason]
            with self.path.open("a") as file:
                file.write(json.dumps([report.nodeid, phase]) + "\\n")
"""


@dataclass(frozen=True)
class Ran:
    """One of the four sessions."""

    folder: Path
    status: int
    output: str

    def text(self, name: str) -> str:
        path = self.folder / name
        return path.read_text() if path.exists() else f"no {name}"


@dataclass(frozen=True)
class Result:
    """What of a session is compared."""

    status: int
    phases: list[str]
    more: object
    output: str


@dataclass(frozen=True)
class Trial:
    """What is tried with a plugin."""

    plugin: str
    """The distribution; ``pytest`` for what comes with it."""
    load: tuple[str, ...]
    """Its modules, as ``-p`` takes them."""
    tried: str
    suite: str
    arguments: tuple[str, ...] = ()
    more: Callable[[Ran], object] = lambda _: None
    """What else must be the same."""
    files: tuple[tuple[str, str], ...] = ()
    limit: str = ""
    """What differs and is known to; empty: nothing may."""


def _lines(pattern: str) -> Callable[[Ran], object]:
    return lambda ran: sorted(re.findall(pattern, ran.output, re.MULTILINE))


def _coverage(ran: Ran) -> object:
    files = json.loads(ran.text("coverage.json"))["files"]
    kept = ("executed_lines", "missing_lines", "executed_branches", "missing_branches")
    measured = {name: {key: coverage[key] for key in kept} for name, coverage in files.items()}
    left = sorted(path.name for path in ran.folder.glob(".coverage*"))
    return measured, left, re.findall(r"Required test coverage.*", ran.output)


def _contexts(ran: Ran) -> object:
    files = json.loads(ran.text("coverage.json"))["files"]
    return {name: {line: sorted(by) for line, by in coverage["contexts"].items()} for name, coverage in files.items()}


def _json_report(ran: Ran) -> object:
    content = json.loads(ran.text("report.json"))
    tests = [[test["nodeid"], test["outcome"], test["call"]["outcome"]] for test in content["tests"]]
    return sorted(tests), content["summary"]


def _allure(ran: Ran) -> object:
    results = [json.loads(path.read_text()) for path in (ran.folder / "allure").glob("*-result.json")]
    return sorted([result["name"], result["status"]] for result in results)


def _html(ran: Ran) -> object:
    content = ran.text("report.html").replace("&#34;", '"')
    return sorted(re.findall(r'"testId": "([^"]+)"', content)), sorted(re.findall(r'"result": "([^"]+)"', content))


def _log(ran: Ran) -> object:
    events = [json.loads(line) for line in ran.text("log.json").splitlines()]
    return sorted(
        [event["nodeid"], event["when"], event["outcome"]] for event in events if event["$report_type"] == "TestReport"
    )


def _counts(ran: Ran) -> object:
    return {path.name: len(path.read_text()) for path in sorted(ran.folder.glob("*.ran"))}


PLAIN = """
    import pytest

    def test_passes(): pass

    def test_fails():
        numbers = [1, 2]
        assert numbers == [1, 3]

    def test_skips():
        pytest.skip("not here")

    @pytest.mark.xfail(reason="known", strict=True)
    def test_known():
        assert 0

    @pytest.fixture
    def late():
        yield
        raise RuntimeError("late")

    def test_teardown(late): pass

    @pytest.mark.parametrize("value", ["a", "b::c[d"])
    def test_value(value):
        assert value == "a"
"""
RERUN = """
    import pathlib
    import pytest

    def ran(name):
        with pathlib.Path(f"{name}.ran").open("a") as file:
            file.write("x")
        return len(pathlib.Path(f"{name}.ran").read_text())

    def test_the_second_time():
        assert ran("second") == 2

    def test_never():
        ran("never")
        assert 0

    @pytest.mark.flaky(MARKER)
    def test_marked():
        ran("marked")
        assert 0

    def test_always():
        ran("always")

    @pytest.fixture
    def bad():
        ran("setup")
        raise ValueError("bad")

    def test_setup(bad): pass

    @pytest.fixture
    def late():
        yield
        ran("teardown")
        raise ValueError("late")

    def test_teardown(late): pass
"""
TRIALS = (
    Trial(
        "pytest",
        (),
        "passes, fails, skips, xfail, teardown, parameters",
        PLAIN,
    ),
    Trial(
        "pytest",
        (),
        "unittest: setUpClass, addCleanup, subTest, expectedFailure, skips",
        """
        import unittest

        class TestOld(unittest.TestCase):
            @classmethod
            def setUpClass(cls):
                cls.one = 1
                cls.addClassCleanup(setattr, cls, "one", 0)

            @classmethod
            def tearDownClass(cls):
                assert cls.one == 1

            def setUp(self):
                self.two = 2
                self.addCleanup(self.check, self.two)

            def check(self, value):
                assert value == 2

            def test_passes(self):
                self.assertEqual(self.one + self.two, 3)

            def test_fails(self):
                self.assertEqual(1, 2)

            @unittest.expectedFailure
            def test_known(self):
                self.assertEqual(1, 2)

            @unittest.expectedFailure
            def test_unexpected(self):
                pass

            @unittest.skip("not here")
            def test_skipped(self):
                pass

            def test_skips(self):
                self.skipTest("not now")

            def test_parts(self):
                for number in range(3):
                    with self.subTest(number=number):
                        self.assertNotEqual(number, 1)

            def test_bad_cleanup(self):
                self.addCleanup(self.fail, "late")

        class TestBadClass(unittest.TestCase):
            @classmethod
            def setUpClass(cls):
                raise RuntimeError("no class")

            def test_never(self):
                pass

        @unittest.skip("whole class")
        class TestSkipped(unittest.TestCase):
            def test_never(self):
                pass

        class TestAsync(unittest.IsolatedAsyncioTestCase):
            async def test_async(self):
                self.assertTrue(True)
        """,
    ),
    Trial(
        "pytest",
        (),
        "the fixture subtests",
        """
        def test_parts(subtests):
            for number in range(3):
                with subtests.test("part", number=number):
                    assert number != 1

        def test_all_pass(subtests):
            with subtests.test("part"):
                pass
        """,
    ),
    Trial(
        "pytest",
        (),
        "--junitxml, --log-file, warnings, properties, captured output",
        """
        import logging, sys, warnings

        def test_property(record_property):
            record_property("name", "value")

        def test_log():
            logging.getLogger("a").warning("logged")
            print("printed")
            print("to stderr", file=sys.stderr)
            warnings.warn("beware")
            assert 0
        """,
        ("--junitxml=junit.xml", "-o", "junit_family=xunit1", "--log-file=log", "--log-file-format=%(message)s", "-rA"),
        lambda ran: (
            sorted(re.findall("<property [^>]*>|<failure [^>]*>", ran.text("junit.xml"))),
            sorted(ran.text("log").splitlines()),
            _lines(r"^-+ Captured .*|^printed|^to stderr|UserWarning: .*|^(?:PASSED|FAILED).*")(ran),
        ),
    ),
    Trial(
        "pytest",
        (),
        "--setup-show, --log-cli-level, record_testsuite_property",
        """
        import logging

        def test_shown(tmp_path, record_testsuite_property):
            record_testsuite_property("name", "value")
            logging.getLogger("a").info("live")
        """,
        ("--setup-show", "--log-cli-level=INFO", "--junitxml=junit.xml"),
        lambda ran: (_lines(r"SETUP .*tmp_path |^INFO +a.*")(ran), "property" in ran.text("junit.xml")),
        limit="what is printed or recorded while the test runs is not, as in a worker of pytest-xdist",
    ),
    Trial(
        "pytest-rerunfailures",
        ("pytest_rerunfailures",),
        "--reruns 2, the marker flaky; how often each test ran",
        RERUN.replace("MARKER", "reruns=1"),
        ("--reruns=2",),
        _counts,
    ),
    Trial(
        "pytest-rerunfailures",
        ("pytest_rerunfailures",),
        "--reruns 2 --only-rerun=ValueError",
        RERUN.replace("MARKER", "reruns=1"),
        ("--reruns=2", "--only-rerun=ValueError"),
        _counts,
    ),
    Trial(
        "pytest-randomly",
        ("pytest_randomly",),
        "the seed in a test is the one that is printed, and the next number too",
        """
        import random

        def test_seed(pytestconfig, record_property):
            print("seed", pytestconfig.getoption("randomly_seed"), "number", random.Random(1).random())
            assert random.random() == random.Random(pytestconfig.getoption("randomly_seed")).random()

        def test_other():
            assert random.random() != random.random()
        """,
        ("-rP",),
        lambda ran: len(set(re.findall(r"seed[= ](\d+)", ran.output))),
    ),
    Trial(
        "pytest-randomly",
        ("pytest_randomly",),
        "-p randomly_seed=7: the same numbers",
        """
        import random

        def test_number():
            print("number", random.random())

        def test_second():
            print("number", random.random())
        """,
        ("-rP", "-p", "pytest_randomly", "--randomly-seed=7"),
        _lines(r"^number .*"),
    ),
    Trial(
        "pytest-timeout",
        ("pytest_timeout",),
        "--timeout=2, the marker timeout: fails in its call, with the line that was running",
        """
        import time
        import pytest

        def test_waits():
            time.sleep(50)  # here

        @pytest.mark.timeout(1)
        def test_marked():
            time.sleep(50)  # here

        @pytest.fixture
        def slow():
            time.sleep(50)  # here

        def test_setup(slow): pass

        def test_passes(): pass
        """,
        ("--timeout=2",),
        _lines(r"^E +Failed: Timeout.*|^> +time.sleep.*"),
    ),
    Trial(
        "pytest-asyncio",
        ("pytest_asyncio.plugin",),
        "async tests and fixtures",
        """
        import asyncio
        import pytest, pytest_asyncio

        @pytest_asyncio.fixture
        async def value():
            await asyncio.sleep(0)
            yield 1
            await asyncio.sleep(0)

        @pytest.mark.asyncio
        async def test_passes(value):
            assert value == 1

        @pytest.mark.asyncio
        async def test_fails(value):
            assert value == 2

        @pytest.mark.asyncio(loop_scope="module")
        async def test_of_the_module():
            assert asyncio.get_running_loop()
        """,
    ),
    Trial(
        "pytest-cov",
        ("pytest_cov",),
        "--cov --cov-branch --cov-fail-under: lines, branches, files that are left",
        """
        import product
        import pytest

        def test_one():
            assert product.of(1) == "one"

        def test_two():
            assert product.of(2) == "two"

        def test_fails():
            assert product.of(3) == "four"
        """,
        ("--cov=product", "--cov-branch", "--cov-report=json", "--cov-report=term", "--cov-fail-under=99"),
        _coverage,
        files=(
            (
                "product.py",
                """
                def of(number):
                    if number == 1:
                        return "one"
                    if number == 2:
                        return "two"
                    if number == 3:
                        return "three"
                    return "many"
                """,
            ),
        ),
    ),
    Trial(
        "pytest-cov",
        ("pytest_cov",),
        "--cov-context=test",
        """
        import product

        def test_one():
            assert product.of(1) == "one"

        def test_two():
            assert product.of(2) == "two"
        """,
        ("--cov=product", "--cov-report=json", "--cov-context=test"),
        _contexts,
        files=(
            (".coveragerc", "[json]\nshow_contexts = true\n"),
            ("product.py", 'def of(number):\n    if number == 1:\n        return "one"\n    return "two"\n'),
        ),
    ),
    Trial(
        "pytest-benchmark",
        ("pytest_benchmark.plugin",),
        "the fixture benchmark",
        """
        def test_measured(benchmark):
            assert benchmark(sum, [1, 2]) == 3

        def test_fails(benchmark):
            assert benchmark.pedantic(sum, ([1, 2],)) == 4

        def test_without(): pass
        """,
    ),
    Trial(
        "pytest-benchmark",
        ("pytest_benchmark.plugin",),
        "its table",
        """
        def test_measured(benchmark):
            assert benchmark(sum, [1, 2]) == 3
        """,
        (),
        lambda ran: bool(re.search("^Name.*Min", ran.output, re.MULTILINE)),
        limit="what is measured in an isolated test is not in the table, nor in --benchmark-json",
    ),
    Trial(
        "pytest-sugar",
        ("pytest_sugar",),
        "--force-sugar: its results",
        PLAIN,
        ("--force-sugar",),
        _lines(r"^ +(?:\d+ [a-z]+|- .*:\d+ .*)$"),
    ),
    Trial(
        "pytest-instafail",
        ("pytest_instafail",),
        "--instafail: each failure once",
        PLAIN,
        ("--instafail",),
        _lines(r"^_+ .*(?:test_).* _+$"),
    ),
    Trial(
        "hypothesis",
        ("_hypothesis_pytestplugin",),
        "given, a failing example, --hypothesis-seed, statistics, the database",
        """
        from hypothesis import given, settings, strategies as st

        @given(st.integers())
        @settings(max_examples=20)
        def test_holds(number):
            assert number + 0 == number

        @given(st.integers())
        @settings(max_examples=200)
        def test_fails(number):
            assert number < 100
        """,
        ("--hypothesis-seed=3", "--hypothesis-show-statistics"),
        lambda ran: (
            _lines(r"Falsifying example.*|^E +number=.*|^ +- during (?:generate|shrink) phase")(ran),
            (ran.folder / ".hypothesis" / "examples").is_dir(),
        ),
    ),
    Trial(
        "pytest-subtests",
        ("pytest_subtests",),
        "its fixture",
        """
        def test_parts(subtests):
            for number in range(3):
                with subtests.test("part", number=number):
                    assert number != 1
        """,
    ),
    Trial(
        "allure-pytest",
        ("allure_pytest.plugin",),
        "--alluredir --clean-alluredir: a result for each test, written once",
        PLAIN,
        ("--alluredir=allure", "--clean-alluredir"),
        _allure,
    ),
    Trial(
        "allure-pytest",
        ("allure_pytest.plugin",),
        "steps and attachments",
        """
        import allure

        def test_steps():
            with allure.step("one"):
                allure.attach("text", "name")
        """,
        ("--alluredir=allure",),
        lambda ran: ['"one"' in path.read_text() for path in (ran.folder / "allure").glob("*-result.json")],
        limit="steps and attachments of an isolated test are not in its result",
    ),
    Trial(
        "pytest-json-report",
        ("pytest_jsonreport.plugin", "pytest_metadata.plugin"),
        "--json-report: one record for each test",
        "def test_passes(): pass\n\ndef test_fails(): assert 0\n",
        ("--json-report", "--json-report-file=report.json"),
        _json_report,
    ),
    Trial(
        "pytest-html",
        ("pytest_html.plugin", "pytest_html.fixtures", "pytest_metadata.plugin"),
        "--html: one row for each test",
        PLAIN,
        ("--html=report.html", "--self-contained-html"),
        _html,
    ),
    Trial("pytest-reportlog", ("pytest_reportlog.plugin",), "--report-log", PLAIN, ("--report-log=log.json",), _log),
    Trial(
        "pytest-repeat",
        ("pytest_repeat",),
        "--count=3; how often each test ran",
        RERUN.replace("@pytest.mark.flaky(MARKER)", "@pytest.mark.repeat(2)"),
        ("--count=3",),
        _counts,
    ),
    Trial(
        "pytest-retry",
        ("pytest_retry.retry_plugin",),
        "--retries 2, the marker flaky; how often each test ran",
        RERUN.replace("MARKER", "retries=1"),
        ("--retries=2",),
        _counts,
    ),
    Trial(
        "flaky",
        ("flaky.flaky_pytest_plugin",),
        "--force-flaky --max-runs=3; how often each test ran",
        RERUN.replace("MARKER", "max_runs=2"),
        ("--force-flaky", "--max-runs=3"),
        _counts,
    ),
    Trial(
        "pytest-mock",
        ("pytest_mock",),
        "the fixture mocker",
        """
        import os

        def test_replaced(mocker):
            mocker.patch("os.getcwd", return_value="here")
            assert os.getcwd() == "here"

        def test_back():
            assert os.getcwd() != "here"
        """,
    ),
    Trial(
        "pytest-socket",
        ("pytest_socket",),
        "--disable-socket, the fixture socket_enabled",
        """
        import socket
        import pytest

        def test_refused():
            socket.socket()

        def test_allowed(socket_enabled):
            socket.socket().close()

        def test_none(): pass
        """,
        ("--disable-socket",),
    ),
    Trial(
        "pytest-dependency",
        ("pytest_dependency",),
        "the marker dependency",
        """
        import pytest

        @pytest.mark.dependency()
        def test_passes(): pass

        @pytest.mark.dependency()
        def test_fails(): assert False

        @pytest.mark.dependency(depends=["test_passes"])
        def test_runs(): pass

        @pytest.mark.dependency(depends=["test_fails"])
        def test_is_skipped(): pass
        """,
    ),
)
PLUGINS = tuple(dict.fromkeys(trial.plugin for trial in TRIALS))
WAYS = {"here": (), "isolated": (), "here, -n 2": ("-n2",), "isolated, -n 2": ("-n2",)}


def main() -> int:
    """Measure, write the table, and return 1 if something differs that should not."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("words", nargs="*", help="only plugins whose name holds one of these; then nothing is written")
    parser.add_argument("--environment", type=Path, help="keep the environment in this folder, and use it again")
    options = parser.parse_args()
    trials = [trial for trial in TRIALS if not options.words or any(word in trial.plugin for word in options.words)]
    kept = None if options.environment is None else nullcontext(str(options.environment.resolve()))
    rows, wrong = [], 0
    with kept or tempfile.TemporaryDirectory(prefix="gpudiag-plugins-") as folder:
        python, versions = environment(Path(folder))
        for trial in trials:
            found = list(differences(trial, python))
            outcome = "; ".join(found) or "the same four times"
            wrong += bool(found) != bool(trial.limit)
            if found and trial.limit:
                outcome = f"**known limit**: {trial.limit}"
            elif trial.limit:
                outcome = f"a limit is said, and there is none: {trial.limit}"
            print(f"{trial.plugin} {versions[trial.plugin]}: {trial.tried}: {outcome}", flush=True)
            rows.append([trial.plugin, versions[trial.plugin], trial.tried, outcome.replace("|", "\\|")])
    if not options.words:
        REPORT.write_text(markdown(rows, versions))
    return 1 if wrong else 0


def environment(folder: Path) -> tuple[Path, dict[str, str]]:
    """Make the environment if it is not there yet; return its interpreter and what is installed."""
    python = folder / "bin" / "python"
    if not python.exists():
        _run([sys.executable, "-m", "venv", str(folder)])
    _run([str(python), "-m", "pip", "install", "-q", "pytest-xdist", "pytest-metadata", *PLUGINS, str(ROOT)])
    listed = json.loads(_run([str(python), "-m", "pip", "list", "--format=json"]))
    return python, {package["name"]: package["version"] for package in listed}


def _run(command: Sequence[str]) -> str:
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, timeout=INSTALL_S, text=True).stdout


def differences(trial: Trial, python: Path) -> Iterator[str]:
    """Say which way of running the suite comes to something else than running it in the session's own process."""
    runs = {name: session(trial, python, arguments, isolated=name.startswith("i")) for name, arguments in WAYS.items()}
    for first, second in (("here", "isolated"), ("here, -n 2", "isolated, -n 2")):
        ours, other = runs[first], runs[second]
        if ours.status not in (0, 1) or not ours.phases:
            yield f"{first}: no test ran: {ours.output[-1000:]}"
            continue
        if ours.status != other.status:
            yield f"{second}: exit status {other.status}, not {ours.status}: {other.output[-1000:]}"
        if ours.phases != other.phases:
            reported, lacking = _minus(other.phases, ours.phases), _minus(ours.phases, other.phases)
            yield f"{second}: reported {', '.join(reported)} and not {', '.join(lacking)}"
        if ours.more in ([], {}, ()):
            yield f"{first}: nothing is there to be compared: {ours.output[-1000:]}"
        if ours.more != other.more:
            yield f"{second}: {other.more!r}, not {ours.more!r}"


def _minus(some: list[str], others: list[str]) -> list[str]:
    left = list(some)
    for other in others:
        if other in left:
            left.remove(other)
    return left


def session(trial: Trial, python: Path, arguments: tuple[str, ...], *, isolated: bool) -> Result:
    """Run the suite of a trial once."""
    with tempfile.TemporaryDirectory(prefix="gpudiag-plugin-") as name:
        folder = Path(name) / "suite"
        folder.mkdir()
        for file, source in (("recorder.py", RECORDER), *trial.files):
            (folder / file).write_text(dedent(source))
        marked = "pytestmark = __import__('pytest').mark.gpudiag_isolated\n" if isolated else ""
        (folder / "test_suite.py").write_text(dedent(trial.suite) + "\n" + marked)
        loaded = [
            word for module in ("gpudiag.pytest_plugin", "xdist", "recorder", *trial.load) for word in ("-p", module)
        ]
        command = [str(python), "-m", "pytest", "-p", "no:cacheprovider", "-c", os.devnull, "--rootdir=.", *loaded]
        done = subprocess.run(
            [*command, "--record=record", *trial.arguments, *arguments, "test_suite.py"],
            cwd=folder,
            check=False,
            capture_output=True,
            text=True,
            timeout=SESSION_S,
            env={**_clean(), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTHONPATH": ".", "COLUMNS": "120"},
        )
        ran = Ran(folder, done.returncode, done.stdout + done.stderr)
        phases = sorted(ran.text("record").splitlines())
        return Result(ran.status, phases, trial.more(ran) if ran.status in (0, 1) else None, ran.output)


def _clean() -> dict[str, str]:
    ours = ("GPUDIAG_", "PYTEST_", "PYTHON", "COV", "TF_")
    return {name: value for name, value in os.environ.items() if not name.startswith(ours)}


def markdown(rows: list[list[str]], versions: dict[str, str]) -> str:
    """Return the table."""
    under = ", ".join(f"{name} {versions[name]}" for name in ("pytest", "pytest-xdist"))
    here = f"Python {sys.version.split()[0]}"
    return f"""# Isolated tests under other plugins

Written by `python scripts/plugin_matrix.py`, under {under} and {here}. Each suite ran four times: in the session's own
process and isolated, with and without `-n 2`. The same: every phase of every test was reported alike, the exit status
too, and what else is named.

{tabulate(rows, headers=["plugin", "version", "tried", "isolated"], tablefmt="github", disable_numparse=True)}
"""


if __name__ == "__main__":
    sys.exit(main())
