"""What is reported of each test, leaks, and the sample project."""

from __future__ import annotations

import os
import re
import shutil
import signal
from pathlib import Path

import pytest

from suites import Suite

pytestmark = pytest.mark.usefixtures("simulated")

SAMPLE = Path(__file__).parent.parent / "samples" / "gpu_suite"


RECORDED = Path(__file__).parents[2] / "reports" / "pytest-sample.txt"
"""What the README shows: of ``pytest -n 4 --gpudiag --gpudiag-simulate=2x8GiB`` in a terminal of 80 columns."""


def lasting(output: str) -> set[str]:
    """Return what is the same in every run of the sample project: what it ran on, and the tests of the summary."""
    lines = [line for line in output.splitlines() if line.startswith("gpudiag: ")]
    ran_on = {re.sub(r" \(.*\)|(?<=tensorflow )[\d.]+", "", line) for line in lines}
    return ran_on | set(re.findall(r"^GPU \d.* (test_\S+)$", output, re.MULTILINE))


@pytest.mark.slow  # what each of its tests needs, and gets, is shown by a suite of its own
@pytest.mark.usefixtures("no_child_left")
def test_the_sample_project_runs_in_four_workers_on_two_gpus(suite: Suite) -> None:
    for path in SAMPLE.iterdir():
        if path.is_file():
            shutil.copy(path, suite.folder)
    done = suite("-n", "4", "--gpudiag", "--gpudiag-simulate=2x8GiB", "-W", "default")
    assert done.status == 0, done
    assert "gpudiag: check PASS" in done.out
    assert "gpudiag: 4 workers share 2 GPUs, 3496 MiB of memory each" in done.out
    skipped = {name for name, outcome in done.outcomes().items() if outcome == "skipped"}
    assert skipped == {"test_four_gpus"}
    assert set(done.outcomes().values()) == {"passed", "skipped"}
    assert lasting(done.out) == lasting(RECORDED.read_text()), "record it anew, and run scripts/docs.py"

    alone = [test for name, test in done.tests.items() if "two_gpus" not in name and "large" not in name]
    assert {test.properties["gpudiag_device"] for test in alone if test.properties} == {"GPU 0", "GPU 1"}
    large = done.tests["test_large_tensors_fit"].properties
    assert large["gpudiag_device"] == "GPU 0, GPU 1"
    assert int(large["gpudiag_peak_bytes"]) >= 1 << 30
    assert done.tests["test_two_logical_devices"].properties["gpudiag_cpu_fallbacks"] == "0"
    assert done.tests["test_the_worker_was_given_its_devices_before_this_module_was_imported"].properties == {}
    assert re.search(r"^GPU 0, GPU 1 +1\d* [GM]iB +test_distribution.py::test_large", done.out, re.MULTILINE), done


def test_the_codes_in_what_failed_tests_show_are_explained_once(suite: Suite) -> None:
    suite.write(
        "test_codes.py",
        """
        import pytest

        @pytest.mark.parametrize("code", ["CUDA_ERROR_ECC_UNCORRECTABLE"] * 2 + ["ncclRemoteError"])
        def test_code(code):
            raise RuntimeError(f"the call failed: {code}")
        """,
    )
    done = suite("--gpudiag-simulate=1x8GiB", "--tb=line")
    assert done.status == 1, done
    section = done.out.partition(" GPUs (gpudiag) ")[2]
    assert (
        section.count("CUDA_ERROR_ECC_UNCORRECTABLE: the GPU, its memory, its power or its connection has failed") == 1
    ), done
    assert "ncclRemoteError: " in section


@pytest.mark.parametrize("workers", [("-n", "1"), ("-p", "no:xdist")], ids=str)
def test_a_process_that_still_holds_memory_is_named_with_its_test(workers: tuple[str, ...], suite: Suite) -> None:
    suite.write(
        "test_leak.py",
        """
        import pathlib, subprocess, sys

        HOLDING = '''
        import ctypes, time
        cuda = ctypes.CDLL("libcuda.so.1")
        assert cuda.cuInit(0) == 0
        assert cuda.cuDevicePrimaryCtxRetain(ctypes.byref(ctypes.c_void_p()), 0) == 0
        print("held", flush=True)
        time.sleep(60)
        '''

        def test_leaks():
            source = "\\n".join(line.strip() for line in HOLDING.splitlines())
            command = [sys.executable, "-c", source]
            process = subprocess.Popen(command, stdout=-1, stderr=subprocess.DEVNULL, start_new_session=True)
            pathlib.Path("pid").write_text(str(process.pid))
            assert process.stdout.readline() == b"held\\n"
            process.stdout.close()
            process.returncode = 0  # forgotten

        def test_leaks_nothing(): ...
        """,
    )
    try:
        done = suite(*workers, "--gpudiag-simulate=2x8GiB")
        pid = (suite.folder / "pid").read_text()
        assert done.status == 0, done
        assert f"LEAK: GPU 0: 400 MiB still held by process {pid}" in done.out, done
        assert "which test_leak.py::test_leaks started" in done.out
    finally:
        os.kill(int((suite.folder / "pid").read_text()), signal.SIGKILL)
