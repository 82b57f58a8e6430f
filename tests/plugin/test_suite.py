"""The catalogue as a pytest suite."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest

from gpudiag.simulator import Machine
from suites import Suite

SOME = "memory.growth_mismatch or memory.fraction or placement.log or host.driver"
ITEMS = {
    "host.driver",
    "memory.fraction[GPU 0]",
    "memory.fraction[GPU 1]",
    "memory.fraction_above_one",
    "memory.growth_mismatch",
    "placement.log",
}


def test_an_item_for_each_probe_and_device(suite: Suite, simulated: None) -> None:
    """Also in workers that were given one device each: the items are the same in all of them."""
    given = ("-n2", "--gpudiag-simulate=2x8GiB", "--gpudiag-assign=device", "--gpudiag-require-gpus=2")
    ran = suite("--pyargs", "gpudiag.suite", *given, "-k", f"verdict or {SOME}")
    assert ran.outcomes() == dict.fromkeys(ITEMS | {"verdict"}, "passed"), str(ran)
    assert ran.status == 0, ran  # GPU tests ran
    devices = {name: test.properties.get("gpudiag_device") for name, test in ran.tests.items()}
    assert devices["memory.fraction[GPU 1]"] == "GPU 1"
    assert devices["memory.growth_mismatch"] == "GPU 0-1"
    assert devices["host.driver"] is None
    assert re.search(r"^GPU 1\b.*memory\.fraction\[GPU 1\]$", ran.out, re.MULTILINE), ran


def test_what_a_probe_finds_is_its_items_failure(suite: Suite, machine: Callable[[str], Machine]) -> None:
    environment = machine("1x8GiB").environment(suite.gpudiag.environment, ["memory_corrupted"])
    suite.gpudiag.environment = environment
    ran = suite("--pyargs", "gpudiag.suite", "-k", "first_op or verdict or placement.log")
    outcomes = ran.outcomes()
    assert outcomes["verdict"] == "failure", str(ran)
    assert outcomes["placement.log"] == "passed"
    assert [name for name, outcome in outcomes.items() if name.startswith("discovery") and outcome == "failure"], str(
        ran
    )
    assert "conftest.py" not in ran.tests["verdict"].message


@pytest.mark.slow
def test_a_machine_without_a_gpu_is_not_green(suite: Suite) -> None:
    ran = suite("--pyargs", "gpudiag.suite", "-k", "host.driver or memory.growth or verdict", CUDA_VISIBLE_DEVICES="-1")
    outcomes = ran.outcomes()
    assert outcomes["host.driver"] == "passed", str(ran)
    assert outcomes["memory.growth"] == "skipped"
    assert outcomes["verdict"] == "failure"
    assert "NOT VERIFIED" in ran.tests["verdict"].message
    assert "deselect this item: -k 'not verdict'" in ran.tests["verdict"].message


def test_the_verdict_knows_how_many_gpus_are_required(suite: Suite, plain: None) -> None:
    required = ("--gpudiag-require-gpus=9", "--gpudiag-warn")
    ran = suite("--pyargs", "gpudiag.suite", "-k", "host.driver or verdict", *required)
    assert ran.outcomes() == {"host.driver": "passed", "verdict": "failure"}, str(ran)
    assert "FAIL: " in ran.tests["verdict"].message
    assert "0 GPUs in scope, 9 required" in ran.tests["verdict"].message
