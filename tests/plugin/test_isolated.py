"""Tests in fresh processes: reported as if they had run here, and what goes wrong in them stays theirs."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from gpudiag.simulator import Machine
from suites import Suite

ILL_BEHAVED = """
    import os, pathlib, signal, subprocess, time
    import pytest

    HERE = os.getpid()
    isolated = pytest.mark.gpudiag_isolated

    @pytest.fixture(scope="module")
    def process():
        return os.getpid()

    @pytest.fixture
    def skipping():
        pytest.skip("not today")

    @pytest.fixture
    def failing_late():
        yield
        assert 0, "too late"

    def test_before(process):
        assert process == HERE
        pathlib.Path("here").write_text(str(HERE))

    @isolated
    def test_passes(process, tmp_path, record_property):
        print("printed here")
        record_property("own", "value")
        (tmp_path / "file").touch()
        assert process == os.getpid() == HERE  # all of it was imported and set up there
        assert pathlib.Path("here").read_text() != str(HERE)

    @isolated
    def test_fails(process):
        print("printed before")
        numbers = [1, 2, 3]
        assert numbers == [1, 2, 4]

    @isolated
    def test_skips():
        pytest.skip("no need")

    @isolated
    def test_skipped_by_fixture(skipping):
        pass

    @isolated
    @pytest.mark.xfail(reason="known", strict=True)
    def test_known():
        assert 0

    @isolated
    @pytest.mark.xfail(reason="known", strict=True)
    def test_known_crash():
        os.kill(os.getpid(), signal.SIGSEGV)

    @isolated
    def test_teardown(failing_late):
        pass

    @isolated
    def test_crashes():
        print("last words")
        os.write(2, b"of its library")
        os.kill(os.getpid(), signal.SIGSEGV)

    @isolated(timeout=10)  # long enough to begin, however busy the machine is
    def test_hangs():
        print("waiting")
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        time.sleep(100)

    @isolated
    def test_leaves():
        os._exit(0)

    @isolated
    def test_floods():
        while True:
            os.write(1, b"flood " * 10000)

    @isolated
    def test_leaves_a_child():
        subprocess.Popen(["sleep", "1234"])._child_created = False  # its own warning is another matter

    @isolated
    def test_leaves_a_daemon():
        subprocess.run(["sh", "-c", "setsid sh -c 'sleep 1235 & sleep 1236' &"], check=True)
        time.sleep(0.2)

    @isolated
    class TestOfAClass:
        @pytest.mark.parametrize("value", ["a", "b::c[d"])
        def test_value(self, value):
            assert value == "a"

    @isolated
    def test_forks():
        if forked := os.fork():
            assert os.waitpid(forked, 0) == (forked, 0)

    @isolated
    def test_kills_its_parent():
        os.kill(os.getppid(), signal.SIGKILL)
        time.sleep(10)

    @isolated
    def test_after_all():
        pass

    def test_after(process):
        assert process == HERE == os.getpid()
"""
OUTCOMES = {
    "test_before": "passed",
    "test_passes": "passed",
    "test_fails": "failure",
    "test_skips": "skipped",
    "test_skipped_by_fixture": "skipped",
    "test_known": "skipped",
    "test_known_crash": "skipped",
    "test_teardown": "error",
    "test_crashes": "failure",
    "test_hangs": "failure",
    "test_leaves": "failure",
    "test_floods": "failure",
    "test_leaves_a_child": "error",
    "test_leaves_a_daemon": "error",
    "test_value[a]": "passed",
    "test_value[b::c[d]": "failure",
    "test_forks": "passed",
    "test_kills_its_parent": "failure",
    "test_after_all": "passed",
    "test_after": "passed",
}


@pytest.mark.parametrize(
    "arguments",
    [pytest.param((), marks=pytest.mark.slow, id="alone"), pytest.param(("-n2", "--dist=loadscope"), id="xdist")],
)
def test_what_goes_wrong_stays_with_its_test(
    suite: Suite, plain: None, no_child_left: None, arguments: tuple[str, ...]
) -> None:
    suite.write("test_all.py", ILL_BEHAVED)
    ran = suite(*arguments)
    assert ran.outcomes() == OUTCOMES, str(ran)
    tests = {name: test.message for name, test in ran.tests.items()}
    assert "assert [1, 2, 3] == [1, 2, 4]" in tests["test_fails"]
    assert "At index 2 diff: 3 != 4" in tests["test_fails"]
    assert "no need" in tests["test_skips"]
    assert "not today" in tests["test_skipped_by_fixture"]
    assert "too late" in tests["test_teardown"]
    assert "killed by SIGSEGV" in tests["test_crashes"]
    assert "no result within 10 s" in tests["test_hangs"]
    assert "exited with status 0 without a result" in tests["test_leaves"]
    assert "wrote more than 64 MiB" in tests["test_floods"]
    assert "left 1 process running, now killed: sleep 1234" in tests["test_leaves_a_child"]
    assert "running, now killed" in tests["test_leaves_a_daemon"]
    assert "the fork server died" in tests["test_kills_its_parent"]
    assert ran.tests["test_passes"].properties == {"own": "value"}
    assert "last words" in ran.out
    assert "of its library" in ran.out
    assert "in test_crashes" in ran.out  # the stack that faulthandler wrote
    assert "waiting" in ran.out
    durations = {name: test.seconds for name, test in ran.tests.items()}
    assert durations["test_hangs"] >= 10
    assert durations["test_leaves_a_daemon"] >= 0.2


def test_a_flood_is_ended_however_long_the_name_of_the_temporary_folder_is(suite: Suite, plain: None) -> None:
    """What pytest captures lies in files, which the session outside can only watch if they are handed over."""
    folder = suite.folder / ("a" * 100)
    folder.mkdir()
    suite.write("test_all.py", ILL_BEHAVED)
    ran = suite("-k", "test_floods", TMPDIR=str(folder))
    assert "wrote more than 64 MiB" in ran.tests["test_floods"].message, str(ran)


def test_output_that_is_not_captured_is_printed_here(suite: Suite, plain: None) -> None:
    suite.write("test_all.py", ILL_BEHAVED)
    some = ("test_before", "test_passes", "test_crashes", "test_floods", "test_after")
    ran = suite("-s", "-k", " or ".join(some))
    assert ran.outcomes() == {name: OUTCOMES[name] for name in (*some, "test_after_all")}, str(ran)
    assert "printed here" in ran.out
    assert "of its library" in ran.out + ran.err


MISCELLANEOUS = """
    import asyncio, unittest, warnings
    import pytest

    pytestmark = pytest.mark.gpudiag_isolated

    async def test_async():
        await asyncio.sleep(0)

    class TestOfUnittest(unittest.TestCase):
        def setUp(self):
            self.value = 1

        def test_method(self):
            assert self.value == 1

        @unittest.skip("never")
        def test_skipped(self):
            pass

    def test_exits():
        raise SystemExit(3)

    def test_warns():
        warnings.warn("beware")

    def test_slow(capsys):
        print("seen")
        assert capsys.readouterr().out == "seen\\n"
"""


def test_every_kind_of_test_is_reported_as_pytest_does(suite: Suite, plain: None) -> None:
    """Also async ones: those that no plug-in runs fail or are skipped as they do without the marker."""
    suite.write("test_all.py", MISCELLANEOUS)
    isolated = suite()
    suite.write("test_all.py", MISCELLANEOUS.replace("pytestmark = ", "unused = "))
    here = suite()
    assert isolated.outcomes() == here.outcomes()
    assert isolated.outcomes()["test_slow"] == "passed", str(isolated)
    for name, test in isolated.tests.items():
        assert test.message.splitlines()[:1] == here.tests[name].message.splitlines()[:1]


def test_warnings_are_told(suite: Suite, plain: None) -> None:
    suite.write("test_all.py", MISCELLANEOUS)
    ran = suite("-k", "warns", "-W", "default")
    assert "UserWarning: beware" in ran.out


def test_without_tensorflow(suite: Suite, plain: None) -> None:
    suite.write(
        "test_all.py",
        """
        import importlib.util, os
        import pytest

        HERE = os.getpid()

        @pytest.mark.gpudiag_isolated
        def test_one():
            assert importlib.util.find_spec("tensorflow") is None

        @pytest.mark.gpudiag_isolated
        def test_two():
            os.abort()
        """,
    )
    ran = suite()
    assert ran.outcomes() == {"test_one": "passed", "test_two": "failure"}, str(ran)
    assert "SIGABRT" in ran.tests["test_two"].message


def test_no_tensorflow_is_named_where_there_is_none(suite: Suite, plain: None) -> None:
    suite.write("conftest.py", "import sys\nsys.executable = '/bin/false'\n")
    suite.write("test_all.py", "import pytest\n\n@pytest.mark.gpudiag_isolated\ndef test_one(): pass\n")
    ran = suite()
    assert ran.outcomes() == {"test_one": "error"}, str(ran)
    assert "status 1" in ran.tests["test_one"].message
    assert "tensorflow" not in ran.tests["test_one"].message


BAD = {
    "timeout=0": "gpudiag_isolated: timeout=0 is not a number of seconds above 0",
    "timeout='long'": "gpudiag_isolated: timeout='long' is not a number",
    "30": "gpudiag_isolated: takes no argument but timeout, such as timeout=60, but was given 30",
    "seconds=3": "was given seconds=3",
}


def test_a_bad_marker_is_an_error_of_collection(suite: Suite) -> None:
    for number, arguments in enumerate(BAD):
        suite.write(
            f"test_bad{number}.py",
            f"""
            import pytest

            @pytest.mark.gpudiag_isolated({arguments})
            def test_one():
                pass
            """,
        )
    ran = suite()
    assert ran.status == pytest.ExitCode.INTERRUPTED
    for number, said in enumerate(BAD.values()):
        line = next(line for line in ran.out.splitlines() if line.startswith(f"test_bad{number}.py::test_one: @pytest"))
        assert said in line, ran


def test_a_test_that_is_not_there_the_second_time(suite: Suite, plain: None) -> None:
    suite.write(
        "test_all.py",
        """
        import pathlib
        import pytest

        if not pathlib.Path("seen").exists():
            pathlib.Path("seen").touch()

            @pytest.mark.gpudiag_isolated
            def test_one():
                pass
        """,
    )
    ran = suite()
    assert ran.outcomes() == {"test_one": "error"}, str(ran)
    assert "it did not run to its end in its separate process" in ran.tests["test_one"].message
    assert "test_all.py::test_one" in ran.tests["test_one"].message


def test_options_and_environment_are_those_of_the_session(suite: Suite, plain: None) -> None:
    suite.write(
        "conftest.py",
        """
        import os
        import pytest

        os.environ["OF_CONFTEST"] = "set"

        def pytest_addoption(parser):
            parser.addoption("--own")

        @pytest.fixture
        def own(pytestconfig):
            return pytestconfig.getoption("--own")
        """,
    )
    suite.write("pytest.ini", "[pytest]\nmarkers = one\n")
    suite.write(
        "test_all.py",
        """
        import os
        import pytest

        def test_that_changes_the_environment():
            os.environ.update(LEFT_BEHIND="set", GIVEN="changed")

        @pytest.mark.one
        @pytest.mark.gpudiag_isolated
        def test_one(own, tmp_path, request):
            assert own == "given"
            assert os.environ["OF_CONFTEST"] == "set"
            assert "LEFT_BEHIND" not in os.environ
            assert os.environ["GIVEN"] == "set"
            assert request.config.rootpath == request.config.invocation_params.dir
            (tmp_path / "kept").touch()

        def test_tmp_path_is_not_swept_away(tmp_path):
            assert len(list(tmp_path.parent.parent.rglob("kept"))) == 1
        """,
    )
    for arguments in ((), ("-n1", "--maxfail=1")):
        temporary = suite.folder / f"temporary{len(arguments)}"
        ran = suite("--own=given", f"--basetemp={temporary}", *arguments, GIVEN="set")
        assert set(ran.outcomes().values()) == {"passed"}, str(ran)
        assert len(ran.outcomes()) == 3


def test_fixtures_of_the_module_end_when_an_isolated_test_is_its_last(suite: Suite, plain: None) -> None:
    suite.write(
        "test_a.py",
        """
        import pytest

        @pytest.fixture(scope="module", autouse=True)
        def closing():
            yield
            assert 0, "closed late"

        def test_here():
            pass

        @pytest.mark.gpudiag_isolated
        def test_there():
            pass
        """,
    )
    suite.write("test_b.py", "def test_next(): pass")
    ran = suite()
    assert ran.outcomes() == {"test_here": "passed", "test_there": "error", "test_next": "passed"}, str(ran)
    assert "closed late" in ran.tests["test_there"].message


GPU = """
    import pytest
    import tensorflow as tf

    EARLY = tf.constant([1.0, 2.0])  # TensorFlow's devices exist from here on, in the worker

    def product(device):
        with tf.device(device):
            return tf.matmul(tf.ones((8, 8)), tf.ones((8, 8)))

    def test_gpu_here():
        assert product("GPU:0").device.endswith("GPU:0")

    @pytest.mark.gpudiag_isolated
    def test_gpu_in_a_fresh_process():
        assert float(EARLY[1]) == 2.0
        assert product("GPU:0").device.endswith("GPU:0")

    def test_placement(gpudiag_placement):
        with gpudiag_placement() as placement:
            product("GPU:0")
        placement.assert_no_cpu_fallback()
"""
CONFIGURING = """
    import pytest
    import tensorflow as tf

    @pytest.mark.gpudiag_isolated
    @pytest.mark.parametrize("parts", [2, 3])
    def test_configured_anew(parts):
        gpu = tf.config.list_physical_devices("GPU")[0]
        limits = [tf.config.LogicalDeviceConfiguration(memory_limit=64)] * parts
        tf.config.set_logical_device_configuration(gpu, limits)
        with tf.device(f"GPU:{parts - 1}"):
            assert tf.ones(3).device.endswith(f"GPU:{parts - 1}")
"""


@pytest.mark.slow
def test_after_a_gpu_test_in_the_same_worker(suite: Suite, machine: Callable[[str], Machine]) -> None:
    """A single worker, so that it is the same; without workers it is shown with the fixtures.

    In the same session: never is a log of placements that is switched off taken for one without fallbacks.
    """
    suite.gpudiag.environment = machine("1x8GiB").environment(suite.gpudiag.environment)
    suite.write("test_gpu.py", GPU)
    suite.write("test_logical.py", CONFIGURING)
    ran = suite("-n1", TF_FORCE_GPU_ALLOW_GROWTH="true", TF_CPP_MIN_LOG_LEVEL="3")
    outcomes = ran.outcomes()
    assert outcomes.pop("test_placement") == "failure"
    assert "TF_CPP_MIN_LOG_LEVEL=3 hides" in ran.tests["test_placement"].message
    assert set(outcomes.values()) == {"passed"}, str(ran)
    assert len(outcomes) == 4


CALLING = """
    import os
    import pytest

    class Refused(Exception):
        def __init__(self, one, two):
            super().__init__(f"{one} {two}")

    def add(one, two=0):
        print("adding")
        return one + two, os.getpid()

    def refuse():
        raise ValueError("not that")

    def refuse_oddly():
        raise Refused(1, 2)

    def crash():
        os.abort()

    def skip():
        pytest.skip("not there")

    def test_skip(gpudiag_run_isolated):
        with pytest.raises(pytest.skip.Exception, match="not there"):
            gpudiag_run_isolated(skip)

    def test_value(gpudiag_run_isolated, capsys):
        value, process = gpudiag_run_isolated(add, 1, two=2)
        assert value == 3
        assert process != os.getpid()
        assert "adding" in capsys.readouterr().out

    def test_error(gpudiag_run_isolated):
        with pytest.raises(ValueError, match="not that") as caught:
            gpudiag_run_isolated(refuse)
        assert "in refuse" in str(caught.value.__cause__)

    def test_odd_error(gpudiag_run_isolated):
        with pytest.raises(RuntimeError, match="Refused: 1 2"):
            gpudiag_run_isolated(refuse_oddly)

    def test_crash(gpudiag_run_isolated):
        with pytest.raises(ChildProcessError, match="SIGABRT"):
            gpudiag_run_isolated(crash)

    def test_local(gpudiag_run_isolated):
        with pytest.raises(TypeError, match="top level"):
            gpudiag_run_isolated(lambda: 1)
"""


def test_functions_in_fresh_processes(suite: Suite, plain: None) -> None:
    suite.write("test_all.py", CALLING)
    ran = suite()
    assert set(ran.outcomes().values()) == {"passed"}, str(ran)
    assert len(ran.outcomes()) == 6
