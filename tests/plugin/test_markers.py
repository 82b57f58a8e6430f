"""``gpudiag_gpus``: bad arguments, what a machine lacks, and who is failed for it."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from gpudiag.pytest_plugin.assign import Need
from gpudiag.pytest_plugin.gpus import Device
from gpudiag.simulator import Machine
from suites import Suite

pytestmark = pytest.mark.usefixtures("no_child_left")

SMALL = Device("GPU-0", 0, "A GPU", 8 << 30, 8 << 30, (7, 5))
LARGE = Device("GPU-1", 1, "A GPU", 80 << 30, 80 << 30, (9, 0))
MIG = Device("MIG-2", 2, "A GPU", 0, 0, (9, 0))

NEEDS = """
    import pytest

    @pytest.mark.gpudiag_gpus
    def test_one(): ...

    @pytest.mark.gpudiag_gpus(count=3)
    def test_three(): ...

    @pytest.mark.gpudiag_gpus(memory="40GiB")
    def test_large(): ...

    @pytest.mark.gpudiag_gpus(capability=(9, 0))
    def test_new(): ...

    @pytest.mark.gpudiag_gpus(count=3)
    class TestAll:
        def test_as_the_class(self): ...

        @pytest.mark.gpudiag_gpus(count=2)
        def test_as_the_function(self): ...

    @pytest.mark.parametrize("number", [1, pytest.param(9, marks=pytest.mark.gpudiag_gpus(count=9))])
    def test_parametrised(number): ...
"""
LACKING = {
    "test_three": "needs 3 GPUs; here: 2 GPUs",
    "test_large": "needs 1 GPU with 40 GiB; here: 2 GPUs (8 GiB, compute capability 8.0)",
    "test_new": "needs 1 GPU of compute capability 9.0; here: 2 GPUs (8 GiB, compute capability 8.0)",
    "test_as_the_class": "needs 3 GPUs; here: 2 GPUs",
    "test_parametrised[9]": "needs 9 GPUs; here: 2 GPUs",
}
RUNNING = ("test_one", "test_as_the_function", "test_parametrised[1]")


@pytest.mark.parametrize(
    ("need", "will_do"),
    [
        (Need(), (SMALL, LARGE, MIG)),
        (Need(memory_bytes=8 << 30), (SMALL, LARGE)),
        (Need(memory_bytes=9 << 30), (LARGE,)),
        (Need(capability=(8, 0)), (LARGE, MIG)),
        (Need(memory_bytes=81 << 30), ()),
        (Need(count=2), (SMALL, LARGE)),
    ],
    ids=str,
)
def test_what_a_need_accepts(need: Need, will_do: tuple[Device, ...]) -> None:
    assert need.of((SMALL, LARGE, MIG)) == will_do


def test_a_limit_counts_instead_of_the_memory() -> None:
    assert Need(memory_bytes=4 << 30).of((LARGE,), limit_bytes=3 << 30) == ()


BAD = {
    "count='two'": "count='two' is not a number of GPUs above 0",
    "count=0": "count=0 is not",
    "count=True": "count=True is not",
    "memory='8 apples'": "memory='8 apples' is not a size, such as '8GiB'",
    "memory=-1": "memory=-1 is not a size",
    "memory=8": "memory=8 is not a size",
    "memory=1.5": "memory=1.5 is not a size",
    "capability=8": "capability=8 is not a compute capability, such as (8, 0)",
    "capability=(8, '0')": "capability=(8, '0') is not",
    "2": "2 is not an argument: write count=, memory= or capability=, by name",
    "gpus=2": "gpus is not an argument: write count=, memory= or capability=, by name",
}


@pytest.mark.usefixtures("plain")
@pytest.mark.parametrize("workers", [(), ("-n", "2")], ids=["alone", "xdist"])
@pytest.mark.parametrize("assign", ["share", "none"])
def test_a_process_uses_one_mig_instance(
    workers: tuple[str, ...], assign: str, suite: Suite, machine: Callable[[str], Machine]
) -> None:
    here = machine("[[gpu]]\nmig = 2\n")
    variables = {name: here.environment()[name] for name in ("LD_LIBRARY_PATH", "GPUDIAG_SIM_MACHINE")}
    suite.write("test_needs.py", NEEDS)
    suite.write("test_part.py", "import pytest\n@pytest.mark.gpudiag_gpus(memory='6GiB')\ndef test_memory(): ...\n")
    done = suite(*workers, f"--gpudiag-assign={assign}", "-k", "one or as_the_function or memory", **variables)
    assert done.outcomes() == {
        "test_one": "passed",
        "test_as_the_function": "skipped",
        "test_memory": "passed",
    }, done
    assert "needs 2 GPUs; here: " in done.tests["test_as_the_function"].message
    assert "a MIG instance, of which a process can use one" in done.tests["test_as_the_function"].message


def test_a_bad_argument_is_an_error_of_collection(suite: Suite) -> None:
    for number, arguments in enumerate(BAD):
        suite.write(
            f"test_bad{number}.py",
            f"""
            import pytest

            class TestBad:
                @pytest.mark.gpudiag_gpus({arguments})
                def test_bad(self): ...
            """,
        )
    done = suite()
    assert done.status == pytest.ExitCode.INTERRUPTED
    for number, words in enumerate(BAD.values()):
        assert f"test_bad{number}.py::TestBad::test_bad: gpudiag_gpus: {words}" in done.out, done
    assert "Traceback" not in str(done)


@pytest.mark.parametrize("arguments", [(), ("-n", "1")], ids=["alone", "xdist"])
def test_a_bad_argument_of_a_marker_that_a_conftest_file_adds_fails_its_test(
    arguments: tuple[str, ...], suite: Suite
) -> None:
    """It is too late for an error of collection, and xdist knows no other that it would show."""
    suite.write(
        "conftest.py",
        """
        import pytest

        def pytest_collection_modifyitems(items):
            for item in items:
                marker = pytest.mark.gpudiag_gpus(count=0) if "gpus" in item.name else pytest.mark.gpudiag_isolated(30)
                if "good" not in item.name:
                    item.add_marker(marker)
        """,
    )
    suite.write("test_bad.py", "def test_gpus(): ...\ndef test_isolated(): ...\ndef test_good(): ...\n")
    done = suite(*arguments)
    assert done.outcomes() == {"test_gpus": "error", "test_isolated": "error", "test_good": "passed"}, done
    assert "gpudiag_gpus: count=0 is not a number of GPUs above 0." in done.tests["test_gpus"].message
    assert "gpudiag_isolated: takes no argument but timeout" in done.tests["test_isolated"].message


def test_a_bad_argument_ends_workers_too(suite: Suite) -> None:
    suite.write("test_bad.py", "import pytest\n@pytest.mark.gpudiag_gpus(count=0)\ndef test_bad(): ...\n")
    done = suite("-n", "1")
    assert done.status == 1
    assert "test_bad.py::test_bad: gpudiag_gpus: count=0 is not a number of GPUs above 0." in done.out, done


@pytest.mark.usefixtures("simulated")
@pytest.mark.parametrize("workers", [("-p", "no:xdist"), ("-n", "2"), ("-n", "1", "--gpudiag-assign=none")], ids=str)
def test_what_a_machine_lacks_is_the_reason_of_a_skip(workers: tuple[str, ...], suite: Suite) -> None:
    suite.write("test_needs.py", NEEDS)
    done = suite(*workers, "--gpudiag-simulate=2x8GiB")
    assert done.status == 0, done
    assert {name: test.message for name, test in done.tests.items() if test.outcome == "skipped"}.keys() == set(LACKING)
    for name, reason in LACKING.items():
        assert reason in done.tests[name].message, name
    assert {done.tests[name].outcome for name in RUNNING} == {"passed"}


def test_without_any_option_the_marker_alone_asks_for_the_gpus(suite: Suite) -> None:
    suite.write("test_needs.py", NEEDS)
    done = suite(CUDA_VISIBLE_DEVICES="-1")
    assert done.status == 0, done
    assert done.tests["test_one"].outcome == "skipped"
    assert "needs 1 GPU: " in done.tests["test_one"].message
