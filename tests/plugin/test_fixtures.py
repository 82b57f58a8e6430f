"""The fixtures: devices, facts, placements, memory, simulated machines; in workers and in fresh processes."""

from __future__ import annotations

import re

import pytest

from gpudiag.pytest_plugin.fixtures import MemoryPeak
from suites import Suite

SUITE = """
    import os, subprocess, sys
    import pytest
    import tensorflow as tf

    def product(device):
        with tf.device(device):
            return tf.matmul(tf.ones((512, 512)), tf.ones((512, 512)))

    def gpus(factor):
        return factor * len(tf.config.list_physical_devices("GPU"))

    def test_devices(gpudiag_devices, gpudiag_facts):
        assert [one.index for one in gpudiag_devices] == [0, 1]
        assert [one.uuid for one in gpudiag_facts.nvml.devices] == [one.uuid for one in gpudiag_devices]

    def test_placement(gpudiag_placement):
        with gpudiag_placement() as placement:
            product("GPU:1")
        assert placement.ops("MatMul").on("GPU:1")
        assert placement.ops("MatMul").on("/device:GPU:1")
        placement.assert_no_cpu_fallback()
        with pytest.raises(AssertionError, match=r"MatMul on GPU:0: it was MatMul( x2)? on GPU:1"):
            placement.ops("MatMul").on("GPU:0")
        with pytest.raises(AssertionError, match="Conv2D on GPU:0: no Conv2D ran"):
            placement.ops("Conv2D").on("GPU:0")

    def test_fallback(gpudiag_placement):
        with gpudiag_placement() as placement:
            product("CPU:0")
        with pytest.raises(AssertionError) as caught:
            placement.assert_no_cpu_fallback(allow="Fill")
        assert str(caught.value) == "ran on the CPU: MatMul on CPU:0 (GPUs: GPU:0, GPU:1)"
        placement.assert_no_cpu_fallback(allow=["Fill", "MatMul"])

    def test_fallback_in_a_function(gpudiag_placement):
        with gpudiag_placement() as placement:
            with tf.device("GPU:0"):
                tf.function(lambda: tf.matmul(tf.ones((2, 2), tf.int32), tf.ones((2, 2), tf.int32)))()
        with pytest.raises(AssertionError, match="ran on the CPU: .*MatMul on CPU:0"):
            placement.assert_no_cpu_fallback()

    def test_memory(gpudiag_memory):
        with gpudiag_memory("GPU:0") as memory:
            product("GPU:0")
        assert 3 << 20 <= memory.peak_bytes < 8 << 20  # cuBLAS may have its workspace, too
        memory.assert_peak_below("2GiB")
        memory.assert_peak_below(8 << 20)
        with pytest.raises(AssertionError, match=r"peak of [34] MiB on GPU:0, .* held before; the limit is 2 MiB"):
            memory.assert_peak_below("2MiB")

    @pytest.mark.gpudiag_isolated
    def test_isolated(gpudiag_memory, gpudiag_placement, gpudiag_devices):
        with gpudiag_placement() as placement, gpudiag_memory() as memory:
            product("GPU:0")
        assert placement.ops("MatMul").on("GPU:0")
        assert memory.peak_bytes >= 3 << 20
        assert len(gpudiag_devices) == 2

    @pytest.mark.gpudiag_isolated
    def test_too_late(request):
        tf.ones(3)  # the devices are made, and pytest did not know that the log would be asked for
        with pytest.raises(RuntimeError, match=r"@pytest.mark.gpudiag_isolated, or import TensorFlow in"):
            with request.getfixturevalue("gpudiag_placement")():
                tf.ones(3) + 1

    def test_simulated(gpudiag_simulated):
        machine = gpudiag_simulated("3x2GiB")
        assert machine.run(gpus, 2) == 6
        seen = "from gpudiag.hardware import nvml; print(len(nvml.gather().devices))"
        path = {"PYTHONPATH": os.pathsep.join(sys.path)}
        command = [sys.executable, "-c", seen]
        ran = subprocess.run(command, env={**machine.environment, **path}, capture_output=True, text=True)
        assert ran.stdout.strip() == "3", ran.stderr
"""


def test_fixtures(suite: Suite, simulated: None, no_child_left: None) -> None:
    suite.write("test_all.py", SUITE)
    ran = suite("--gpudiag-simulate=2x8GiB", "--gpudiag-assign=none", TF_FORCE_GPU_ALLOW_GROWTH="true")
    assert set(ran.outcomes().values()) == {"passed"}, str(ran)
    assert len(ran.outcomes()) == 8
    properties = {name: test.properties for name, test in ran.tests.items()}
    assert properties["test_fallback"]["gpudiag_cpu_fallbacks"] == "3"
    assert properties["test_placement"]["gpudiag_cpu_fallbacks"] == "0"
    for name in ("test_memory", "test_isolated"):
        assert int(properties[name]["gpudiag_peak_bytes"]) >= 3 << 20
        assert properties[name]["gpudiag_device"] == "GPU 0"
    assert properties["test_isolated"]["gpudiag_cpu_fallbacks"] == "0"
    assert re.search(r"^GPU 0\b.* \d+ MiB .*test_all\.py::test_memory$", ran.out, re.MULTILINE), ran
    assert re.search(r" 3 +test_all\.py::test_fallback$", ran.out, re.MULTILINE), ran


def test_a_failure_shows_the_users_line_and_no_log_of_placements(suite: Suite, simulated: None) -> None:
    suite.write(
        "test_all.py",
        """
        import pytest
        import tensorflow as tf

        def on_the_cpu(gpudiag_placement):
            print("own words")
            with gpudiag_placement() as placement, tf.device("CPU:0"):
                tf.function(lambda x: tf.nn.relu(x) * 2)(tf.ones(4))
            tf.ones(3) + 1  # logged too, until the process ends
            return placement

        def test_fallback(gpudiag_placement):
            on_the_cpu(gpudiag_placement).assert_no_cpu_fallback()  # here 1

        @pytest.mark.gpudiag_isolated(timeout=120)
        def test_device(gpudiag_placement):
            on_the_cpu(gpudiag_placement).ops("Relu").on("GPU:0")  # here 2

        def test_memory(gpudiag_memory):
            with gpudiag_memory("GPU:0") as memory:
                tf.ones((512, 512)) + 1
            memory.assert_peak_below("1MiB")  # here 3
        """,
    )
    ran = suite("--gpudiag-simulate=1x8GiB", "-o", "junit_logging=all")
    assert set(ran.outcomes().values()) == {"failure"}, ran
    for number in (1, 2, 3):
        assert re.search(rf"^>.*# here {number}\n(?: +\^+\n)?E +AssertionError: ", ran.out, re.MULTILINE), ran
    assert "fixtures.py" not in ran.out
    assert ran.out.count("\nown words\n") == 2, ran
    assert "Created device" in ran.out  # the rest of TensorFlow's log
    for name in ("junit.xml", "out"):
        text = ran.out if name == "out" else (suite.gpudiag.folder / name).read_text()
        assert [line for line in text.splitlines() if "/job:" in line and "Created device" not in line] == []


def test_a_simulated_machine_has_new_interpreters(suite: Suite, simulated: None, no_child_left: None) -> None:
    """The loader looks where LD_LIBRARY_PATH led when the process began."""
    suite.write(
        "test_all.py",
        """
        import ctypes, pathlib

        def driver():
            ctypes.CDLL("libcuda.so.1")
            maps = pathlib.Path("/proc/self/maps").read_text()
            return {line.split()[-1] for line in maps.splitlines() if "libcuda.so" in line}

        def test_driver(gpudiag_simulated):
            (library,) = gpudiag_simulated("1x2GiB").run(driver)
            assert pathlib.Path(library).with_name("libgpudiag_cuda.so").exists()
        """,
    )
    ran = suite()
    assert ran.outcomes() == {"test_driver": "passed"}, str(ran)


@pytest.mark.parametrize("limit", ["2 elephants", -1, ""])
def test_a_limit_that_is_none(limit: str | int) -> None:
    with pytest.raises((ValueError, AssertionError)):
        MemoryPeak("GPU:0").assert_peak_below(limit)
