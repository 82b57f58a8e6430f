"""Isolated tests beside other plugins: what belongs to the session is done once, by the session.

Here a plugin does what many do; ``scripts/plugin_matrix.py`` tries those that people use.
"""

from __future__ import annotations

import json
from collections import Counter
from textwrap import dedent

import pytest

from suites import Suite

PLUGIN = """
    import os, pathlib, random
    import pytest
    from _pytest.runner import runtestprotocol

    os.environ.setdefault("OUTSIDE", str(os.getpid()))

    def pytest_addoption(parser):
        parser.addoption("--seed", default="default")
        parser.addoption("--again", type=int, default=0)

    def pytest_configure(config):
        config.addinivalue_line("markers", "flaky: runs again where it fails")
        if config.getoption("seed") == "default":
            config.option.seed = random.randrange(1 << 30)

    def say(line):
        with pathlib.Path("said").open("a") as file:
            file.write(line + "\\n")

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_protocol(item, nextitem):
        for number in range(1 + item.config.getoption("again")):
            item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
            reports = runtestprotocol(item, nextitem=nextitem, log=False)
            if not any(one.failed for one in reports):
                break
        for one in reports:
            item.ihook.pytest_runtest_logreport(report=one)
        return True

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(item, call):
        report = yield
        if call.excinfo is not None and os.environ["OUTSIDE"] == str(os.getpid()):
            say(f"raised {item.name} {report.when} {type(call.excinfo.value).__name__}")
        return report

    def pytest_runtest_logreport(report):
        say(f"report {report.nodeid.partition('::')[2]} {report.when} {report.outcome}")

    def pytest_sessionfinish():
        say("end")

    def pytest_terminal_summary(terminalreporter):
        say("summary")
"""
CONFTEST = """
    import pathlib

    def pytest_runtest_logreport(report):
        with pathlib.Path("conftest").open("a") as file:
            file.write(f"{report.nodeid.partition('::')[2]} {report.when} {report.outcome}\\n")

    def pytest_sessionfinish():
        pathlib.Path("cleaned").touch()
"""
SUITE = """
    import os, pathlib
    import pytest

    def ran(name):
        with pathlib.Path("ran").open("a") as file:
            file.write(name + "\\n")
        return pathlib.Path("ran").read_text().split().count(name)

    def test_seed(pytestconfig):
        pathlib.Path("seed").write_text(str(pytestconfig.getoption("seed")))

    def test_the_second_time():
        assert ran("second") == 2

    @pytest.mark.flaky
    def test_never():
        ran("never")
        raise KeyError("no")

    @pytest.fixture
    def bad():
        ran("bad")
        raise ValueError("bad")

    def test_setup(bad): pass

    @pytest.fixture
    def late():
        yield
        ran("late")
        raise OSError("late")

    def test_teardown(late): pass

    def test_skips():
        pytest.skip("not here")

    @pytest.mark.xfail(raises=KeyError, strict=True)
    def test_known():
        raise KeyError("known")

    @pytest.mark.xfail(raises=KeyError)
    def test_unknown():
        raise ValueError("unknown")

    @pytest.mark.xfail(strict=True)
    def test_unexpected(): pass
"""


@pytest.fixture
def repeating(suite: Suite) -> None:
    suite.write("repeating.py", PLUGIN)
    suite.gpudiag.path.insert(0, str(suite.folder))


def test_what_belongs_to_the_session_is_done_once(suite: Suite, plain: None, repeating: None) -> None:
    came = []
    for marker in ("", "import pytest\npytestmark = pytest.mark.gpudiag_isolated\n"):
        for old in ("said", "conftest", "ran", "seed", "cleaned"):
            (suite.folder / old).unlink(missing_ok=True)
        suite.write("conftest.py", CONFTEST)
        suite.write("test_all.py", dedent(SUITE) + marker)
        ran = suite("-p", "repeating", "--again=2")
        said = (suite.folder / "said").read_text().splitlines()
        told = (suite.folder / "conftest").read_text().splitlines()
        times = Counter((suite.folder / "ran").read_text().split())
        messages = {name: test.message.splitlines()[:1] for name, test in ran.tests.items()}
        came.append((ran.status, ran.outcomes(), messages, said, told, times))
        assert (suite.folder / "cleaned").exists()
    here, isolated = came
    assert isolated == here
    assert here[-1] == {"second": 2, "never": 3, "bad": 3, "late": 3}
    assert "raised test_never call KeyError" in here[3]


def test_options_have_the_values_that_they_have_outside(suite: Suite, plain: None, repeating: None) -> None:
    """Such as a seed that a plugin has drawn, and printed in the header."""
    suite.write(
        "test_all.py",
        """
        import pathlib
        import pytest

        def test_here(pytestconfig):
            pathlib.Path("here").write_text(str(pytestconfig.getoption("seed")))

        @pytest.mark.gpudiag_isolated
        def test_there(pytestconfig):
            assert pathlib.Path("here").read_text() == str(pytestconfig.getoption("seed"))
        """,
    )
    ran = suite("-p", "repeating")
    assert ran.outcomes() == {"test_here": "passed", "test_there": "passed"}, ran


def test_what_plugins_take_from_tests_and_know_of_others(suite: Suite, plain: None) -> None:
    """As pytest-socket, which refuses sockets, and pytest-dependency, by which a test depends on others."""
    suite.write(
        "conftest.py",
        """
        import socket
        import pytest

        passed = set()

        class Refused(socket.socket):
            def __new__(cls, *args, **kwargs):
                raise RuntimeError("no socket for tests")

        def pytest_configure(config):
            config.addinivalue_line("markers", "dependency: runs if the other test has passed")

        def pytest_runtest_setup(item):
            socket.socket = Refused
            marker = item.get_closest_marker("dependency")
            if marker is not None and not passed.issuperset(marker.args):
                pytest.skip("the other test has not passed")

        @pytest.hookimpl(wrapper=True)
        def pytest_runtest_makereport(item, call):
            report = yield
            if report.when == "call" and report.passed:
                passed.add(item.name)
            return report
        """,
    )
    suite.write(
        "test_all.py",
        """
        import socket
        import pytest

        pytestmark = pytest.mark.gpudiag_isolated

        def test_socket():
            with pytest.raises(RuntimeError, match="no socket for tests"):
                socket.socket()

        def test_fails(): assert False

        @pytest.mark.dependency("test_socket")
        def test_after(): pass

        @pytest.mark.dependency("test_fails")
        def test_not_after(): pass
        """,
    )
    came = {"test_socket": "passed", "test_fails": "failure", "test_after": "passed", "test_not_after": "skipped"}
    assert suite().outcomes() == came


def test_the_log_file_holds_what_isolated_tests_log(suite: Suite, plain: None) -> None:
    suite.write(
        "test_all.py",
        """
        import logging, os
        import pytest

        def test_here():
            logging.warning("before")

        @pytest.mark.gpudiag_isolated
        def test_there():
            logging.info("in a process of its own")

        @pytest.mark.gpudiag_isolated
        def test_crashes():
            logging.info("last words")
            os.abort()

        def test_last():
            logging.warning("after")
        """,
    )
    suite("--log-file=log", "--log-file-level=INFO", "--log-file-format=%(message)s")
    logged = ["before", "in a process of its own", "last words", "after"]
    assert (suite.folder / "log").read_text().splitlines() == logged


PRODUCT = """
    def of(number):
        if number == 1:
            return "one"
        return "many"
"""
COVERED = """
    import pytest
    import product

    @pytest.mark.gpudiag_isolated
    @pytest.mark.parametrize(("number", "name"), [(1, "one"), (2, "many")])
    def test_of(number, name):
        assert product.of(number) == name
"""


@pytest.mark.parametrize("arguments", [(), ("-n1",)], ids=["alone", "xdist"])
def test_coverage_of_isolated_tests_is_collected(suite: Suite, plain: None, arguments: tuple[str, ...]) -> None:
    suite.write("product.py", PRODUCT)
    suite.write("test_all.py", COVERED)
    options = ("--cov=product", "--cov-branch", "--cov-report=json", "--cov-fail-under=100")
    ran = suite(*options, *arguments)
    assert ran.status == 0, ran
    measured = json.loads((suite.folder / "coverage.json").read_text())["files"]["product.py"]
    assert measured["missing_lines"] == []
    assert measured["missing_branches"] == []
    assert [path.name for path in suite.folder.glob(".coverage*")] == [".coverage"]


def test_what_isolated_tests_are_forked_from_does_not_measure_itself(suite: Suite, plain: None) -> None:
    """As pytest-cov before version 7, and coverage's own patches, have every new interpreter do."""
    suite.write(
        "test_all.py",
        """
        import os, pathlib
        import pytest

        @pytest.mark.gpudiag_isolated
        def test_there():
            assert os.environ["COV_CORE_SOURCE"] == "product"
            assert b"COV_CORE_SOURCE" not in pathlib.Path(f"/proc/{os.getppid()}/environ").read_bytes()
        """,
    )
    ran = suite(COV_CORE_SOURCE="product")
    assert ran.outcomes() == {"test_there": "passed"}, ran
