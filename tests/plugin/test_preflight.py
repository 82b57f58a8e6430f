"""The check before the first test, settings, and what the plugin costs where it is not used."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable

import pytest

from gpudiag.knowledge.codes import meanings
from gpudiag.probe import GpuFaults
from gpudiag.pytest_plugin.preflight import _failure
from gpudiag.simulator import Machine
from reports import GPUS, passed, report, row
from suites import Suite

pytestmark = pytest.mark.usefixtures("no_child_left")

NOTHING = "def test_nothing(): ...\n"


@pytest.mark.usefixtures("plain")
def test_a_check_that_fails_ends_the_session_with_its_cause_once_and_before_any_worker(
    suite: Suite, machine: Callable[[str], Machine]
) -> None:
    suite.write("test_nothing.py", NOTHING)
    done = suite("-n", "2", "--gpudiag", **machine("1x8GiB").environment(suite.gpudiag.environment))
    assert done.status == 1, done
    assert done.out.count("(proved; tensorflow_missing)") == 1
    assert "gpudiag: check FAIL" in done.err
    assert "to run the tests anyway, add --gpudiag-warn" in done.err
    assert "created:" not in done.out
    assert done.tests == {}


def test_the_lines_of_a_check_that_fails_explain_their_codes() -> None:
    finding = GpuFaults.operation_failed.found(error="the call failed: CUDNN_STATUS_MAPPING_ERROR")
    lines = _failure(report(row("memory.growth", passed("", finding), GPUS[0]), gpus=GPUS[:1]))
    assert "CUDNN_STATUS_MAPPING_ERROR" in lines[-1]
    assert meanings("\n".join(lines[:-1])).keys() == {"CUDNN_STATUS_MAPPING_ERROR"}
    assert meanings("\n".join(lines)) == {}


@pytest.mark.usefixtures("plain")
def test_with_warn_it_is_said_and_what_is_required_and_lacking_fails_test_by_test(
    suite: Suite, machine: Callable[[str], Machine]
) -> None:
    """On a machine that is simulated for all of the process: nobody asked that its GPUs count."""
    suite.write("test_needs.py", "import pytest\n@pytest.mark.gpudiag_gpus(count=2)\ndef test_two(): ...\n" + NOTHING)
    simulated = machine("2x8GiB").environment(suite.gpudiag.environment)
    done = suite("--gpudiag-require-gpus=2", "--gpudiag-warn", **simulated, CUDA_VISIBLE_DEVICES="1,7")
    assert done.status == 1, done
    assert "gpudiag: the tests run anyway (--gpudiag-warn)" in done.out
    assert "0 real GPUs in scope, 2 required" in done.out
    assert "pytest --gpudiag-simulate=2 --gpudiag-require-gpus=2" in done.out
    assert done.outcomes() == {"test_two": "error", "test_nothing": "passed"}
    reason = "needs 2 GPUs; here: 1 GPU (--gpudiag-require-gpus makes this a failure)"
    assert reason in done.tests["test_two"].message


@pytest.mark.usefixtures("plain")
def test_the_check_expects_of_the_machine_what_the_configuration_file_says(suite: Suite) -> None:
    suite.write("test_nothing.py", NOTHING)
    suite.write(
        "pyproject.toml",
        """
        [tool.pytest.ini_options]
        [tool.gpudiag.expect]
        python = "<3"
        must-pass = ["host.gpus", "memory"]
    """,
    )
    done = suite("--gpudiag", "--gpudiag-warn")
    assert done.outcomes() == {"test_nothing": "passed"}, done
    assert "gpudiag: check FAIL" in done.out
    assert "expect.python" in done.out
    assert "probes not judged: level quick does not run memory." in done.out
    suite.write("other.toml", "pythn = '<3'")
    wrong = suite("--gpudiag-expect=other.toml")
    assert wrong.status == pytest.ExitCode.USAGE_ERROR, wrong
    assert "unknown key 'pythn'. Did you mean 'python'" in wrong.err


@pytest.mark.usefixtures("plain")
def test_a_run_in_which_no_gpu_test_ran_fails(suite: Suite, machine: Callable[[str], Machine]) -> None:
    simulated = machine("1x8GiB").environment(suite.gpudiag.environment)
    arguments = ("--gpudiag-require-gpus=1", "--gpudiag-warn")
    suite.write("test_nothing.py", NOTHING)
    done = suite(*arguments, **simulated)
    assert done.status == 1, done
    assert done.outcomes() == {"test_nothing": "passed"}
    assert "FAILED: no GPU test ran, but --gpudiag-require-gpus=1 requires one" in done.out
    suite.write("test_gpu.py", "import pytest\n@pytest.mark.gpudiag_gpus\ndef test_gpu(): ...\n")
    assert suite(*arguments, **simulated).status == 0


@pytest.mark.usefixtures("simulated")
@pytest.mark.parametrize("where", ["variable", "ini", "addopts"])
def test_simulated_gpus_satisfy_a_requirement_only_where_the_command_line_asks_for_them(
    where: str, suite: Suite
) -> None:
    suite.write("test_nothing.py", NOTHING)
    lines = {"ini": "gpudiag_simulate = 1x8GiB", "addopts": "addopts = --gpudiag-simulate=1x8GiB"}
    suite.write("pytest.ini", f"[pytest]\n{lines.get(where, '')}\n")
    variables = {"GPUDIAG_PYTEST_SIMULATE": "1x8GiB"} if where == "variable" else {}
    done = suite("--gpudiag-require-gpus=1", **variables)
    assert done.status == pytest.ExitCode.USAGE_ERROR, done
    assert "write --gpudiag-simulate on the command line to count simulated GPUs" in done.err


@pytest.mark.parametrize(
    ("arguments", "variables", "words"),
    [
        (("--gpudiag-memory=nix",), {}, "--gpudiag-memory: 'nix' is not a size. Write 16GiB, 512MiB"),
        (("--gpudiag-expect=no.toml",), {}, "--gpudiag-expect: no.toml: there is no such file"),
        (("--gpudiag-require-gpus=-1",), {}, "--gpudiag-require-gpus: '-1' is not a number of GPUs. Write a whole"),
        (("--gpudiag-assign=all",), {}, "--gpudiag-assign: 'all' is not known. Write device, share or none."),
        (("--gpudiag-assign=none", "--gpudiag-memory=2GiB"), {}, "Remove one of the two."),
        (("--gpudiag-simulate=0",), {}, "--gpudiag-simulate: 0 GPUs cannot be simulated"),
        (("--gpudiag-wait=soon",), {}, "--gpudiag-wait: 'soon' is not a number of seconds"),
        ((), {"GPUDIAG_PYTEST": "perhaps"}, "GPUDIAG_PYTEST: 'perhaps' is neither true nor false"),
        ((), {"GPUDIAG_PYTEST_MEMROY": "1"}, "sets no option. Did you mean 'GPUDIAG_PYTEST_MEMORY'?"),
        (("-o", "gpudiag_memory=x"), {}, "gpudiag: -o gpudiag_memory: 'x' is not a size"),
    ],
)
def test_a_setting_that_cannot_be_used_is_named_with_its_cure(
    arguments: tuple[str, ...], variables: dict[str, str], words: str, suite: Suite
) -> None:
    done = suite(*arguments, **variables)
    assert done.status == pytest.ExitCode.USAGE_ERROR
    assert words in done.err, done
    assert "Traceback" not in str(done)


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("gpudiag = perhaps", "'perhaps'. Write true or false."),
        ("gpudiag_require_gpus = two", "'two'. Write a whole number, such as 2."),
        ("gpudiag_require_gpus = -1", "'-1' is not a number of GPUs. Write a whole number, such as 2."),
        ("gpudiag_wait = soon", "'soon'. Write a number of seconds, such as 300."),
        ("gpudiag_wait = nan", "'nan' is not a number of seconds. Write a number of seconds, such as 300."),
        ("gpudiag_memory = x", "'x' is not a size. Write 16GiB"),
        ("gpudiag_expect = no.toml", "no.toml: there is no such file"),
    ],
)
def test_an_ini_key_that_cannot_be_used_is_named_with_its_file(line: str, words: str, suite: Suite) -> None:
    file = suite.write("pytest.ini", f"[pytest]\n{line}\n")
    done = suite()
    assert done.status == pytest.ExitCode.USAGE_ERROR
    assert done.err.startswith(f"ERROR: gpudiag: the ini key {line.partition(' ')[0]} in {file}: "), done
    assert words in done.err


@pytest.mark.skipif(pytest.version_tuple < (9, 0), reason="pytest 9 reads types from TOML")
def test_ini_keys_have_types(suite: Suite) -> None:
    file = suite.write(
        "pytest.toml",
        "[pytest]\ngpudiag = false\ngpudiag_require_gpus = 0\ngpudiag_wait = 2.5\ngpudiag_memory = '4GiB'\n",
    )
    suite.write(
        "test_settings.py",
        """
        from gpudiag.pytest_plugin import settings

        def test_settings(pytestconfig):
            assert settings.of(pytestconfig) == settings.PluginSettings(wait_s=2.5, memory_bytes=4 << 30)
        """,
    )
    assert suite().outcomes() == {"test_settings": "passed"}
    file.write_text("[pytest]\ngpudiag_require_gpus = '2'\n")
    assert f"the ini key gpudiag_require_gpus in {file}: " in suite().err


def test_a_session_that_does_not_use_it_imports_nothing_heavy(suite: Suite) -> None:
    suite.write(
        "test_modules.py",
        """
        import sys

        def test_modules():
            heavy = {"tensorflow", "pynvml", "rich", "msgspec", "psutil", "click", "filelock", "gpudiag.run.runner"}
            assert "gpudiag.pytest_plugin" in sys.modules
            assert heavy & set(sys.modules) == set()
        """,
    )
    done = suite()
    assert done.status == 0, done
    assert "gpudiag:" not in done.out


MARKED = """
    import os
    import pytest

    @pytest.mark.gpudiag_gpus(count=99)
    def test_marked(): ...

    @pytest.mark.gpudiag_isolated(timeout=10)
    def test_isolated():
        assert os.getpid() == int(os.environ["OF_SESSION"])
"""
OF_SESSION = "import os\nos.environ.setdefault('OF_SESSION', str(os.getpid()))\n"
OWN_MARKERS = """
    [pytest]
    markers =
        gpudiag_gpus: of gpudiag
        gpudiag_isolated: of gpudiag
"""


def test_without_the_plugin_its_markers_say_nothing(suite: Suite, plain: None) -> None:
    """And are unknown to pytest, unless the project makes them known itself."""
    suite.plugin = False
    suite.write("conftest.py", OF_SESSION)
    suite.write("test_marked.py", MARKED)
    without = ("-p", "no:gpudiag")
    warned = suite(*without, "-W", "default")
    assert warned.outcomes() == {"test_marked": "passed", "test_isolated": "passed"}, warned
    assert "PytestUnknownMarkWarning: Unknown pytest.mark.gpudiag_gpus" in warned.out
    strict = suite(*without, "-W", "default", "--strict-markers")
    assert strict.status == pytest.ExitCode.INTERRUPTED
    assert "'gpudiag_gpus' not found in `markers` configuration option" in strict.out, strict
    suite.write("pytest.ini", OWN_MARKERS)
    own = suite(*without, "--strict-markers")
    assert own.outcomes() == warned.outcomes(), own
    suite.plugin = True
    with_it = suite("--strict-markers", CUDA_VISIBLE_DEVICES="-1")
    assert with_it.outcomes() == {"test_marked": "skipped", "test_isolated": "failure"}, with_it


def test_without_xdist(suite: Suite, machine: Callable[[str], Machine], plain: None) -> None:
    suite.gpudiag.without("xdist")
    suite.write("conftest.py", OF_SESSION)
    suite.write("test_marked.py", MARKED)
    loaded = ("-p", "gpudiag.pytest_plugin")
    simulated = machine("1x8GiB").environment(suite.gpudiag.environment)
    done = suite(*loaded, "--gpudiag-assign=device", **simulated, PYTEST_DISABLE_PLUGIN_AUTOLOAD="1")
    assert done.outcomes() == {"test_marked": "skipped", "test_isolated": "failure"}, done
    assert "needs 99 GPUs; here: 1 GPU" in done.tests["test_marked"].message


@pytest.mark.parametrize("arguments", [("--help",), ("--version",), ("--markers",), ("--collect-only",)])
def test_what_runs_no_test_checks_nothing(arguments: tuple[str, ...], suite: Suite) -> None:
    suite.write("test_nothing.py", NOTHING)
    done = suite("--gpudiag", "--gpudiag-require-gpus=99", *arguments)
    assert done.status == 0, done
    assert "gpudiag: " not in done.out


@pytest.mark.usefixtures("plain")
def test_without_tensorflow_the_check_says_so_and_the_marker_works(suite: Suite) -> None:
    suite.write("test_needs.py", "import pytest\n@pytest.mark.gpudiag_gpus\ndef test_one(): ...\n" + NOTHING)
    done = suite(CUDA_VISIBLE_DEVICES="-1")
    assert done.outcomes() == {"test_one": "skipped", "test_nothing": "passed"}, done
    checked = suite("--gpudiag", "--gpudiag-simulate=1x8GiB")
    assert checked.status == pytest.ExitCode.USAGE_ERROR
    assert "TensorFlow is not installed in this Python" in checked.err


@pytest.mark.skipif(sys.platform != "linux", reason="GPUs are simulated on Linux")
@pytest.mark.usefixtures("simulated")
def test_a_process_on_a_simulated_machine_has_simulated_gpus_whoever_asks(suite: Suite) -> None:
    suite.write("test_nothing.py", NOTHING)
    outer = suite.gpudiag.command("simulate", "1x8GiB", "--", *suite.command("--gpudiag-assign=device"))
    done = subprocess.run(
        outer, cwd=suite.folder, env=suite.gpudiag.environment, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done
    assert "gpudiag: SIMULATED GPUs; 1 x Simulated GPU, 8 GiB" in done.stdout
