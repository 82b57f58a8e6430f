"""Expectations of rates under load, on two recorded runs of simulated GPUs: one healthy, and one in which GPU 1
overheats and GPU 2 is 1.3 times as slow."""

from __future__ import annotations

import re
from datetime import date
from pathlib import Path
from typing import Any

import msgspec
import pytest

from gpudiag.expectations import file, judging, writing
from gpudiag.model import codec
from gpudiag.model.health import COPIED
from gpudiag.model.report import Level, Report, Row
from gpudiag.report import load

RECORDED = Path(__file__).parents[1] / "recorded" / "load"
HEALTHY, FAULTY = (codec.load(RECORDED / f"{name}.json") for name in ("healthy", "faulty"))


def changed(report: Report, *, waited: str = "null", model: str = "NVIDIA GPU") -> Report:
    """Return the report with this part of each slice in which the process waited, on GPUs of this model; "null": the
    kernel did not count it."""
    text = re.sub(r'"waited": [\d.]+', f'"waited": {waited}', codec.encode(report))
    return codec.decode(text.replace("Simulated GPU", model), "test")


REAL = changed(FAULTY)
"""The faulty run as if its GPUs were real."""


def expectation(report: Report, key: str, value: Any) -> Row:
    return judging.judged(report, file.read({key: value}, "expected.toml"), date(2026, 6, 1)).rows[-1]


@pytest.mark.parametrize("key", ["tflops-float16", "host-to-device", "device-to-host"])
def test_rates_of_simulated_gpus_are_not_judged(key: str) -> None:
    row = expectation(FAULTY, key, ">=20GB/s" if "to" in key else ">=600")
    assert row.status == "note"
    assert [finding.kind for finding in row.findings] == ["not_judged"]
    assert "simulated" in row.findings[0].message


def test_the_slowest_gpu_is_named_also_of_simulated_ones() -> None:
    assert expectation(HEALTHY, "slowest-to-median", ">=0.95").status == "pass"
    row = expectation(FAULTY, "slowest-to-median", ">=0.95")
    assert row.status == "fail"
    assert "(GPU 2); expected: >=0.95" in row.findings[0].message
    assert "GPU 0" not in row.findings[0].message


def test_a_rate_is_compared_in_its_unit() -> None:
    slow = load.gpus(REAL)[2]
    there, both = (slow.rates[work].value / 1e9 for work in COPIED)
    back = 1 / (2 / both - 1 / there)
    for key, rate, unit in (("host-to-device", there, "GB/s"), ("device-to-host", back, "GB/s")):
        assert expectation(REAL, key, f">={rate * 0.99:.9f}{unit}").status == "pass"
        row = expectation(REAL, key, f">={rate * 1.01:.9f}{unit}")
        assert row.status == "fail"
        assert "(GPU 2)" in row.findings[0].message
        assert "GPU 0" not in row.findings[0].message
    product = slow.rates["float16 product"].value / 1e12
    assert expectation(REAL, "tflops-float16", f">={product * 0.99:.12f}").status == "pass"
    assert expectation(REAL, "tflops-float16", f">={product * 0.99:.12f} TFLOP/s, <1").status == "pass"
    assert expectation(REAL, "tflops-float16", f">={product * 1.01:.12f}").status == "fail"


def test_without_a_load_nothing_is_judged_but_what_should_have_been_measured_is_missed() -> None:
    without = msgspec.structs.replace(REAL, rows=(), level=Level("full"))
    assert "only --level stress measures" in expectation(without, "tflops-float16", ">=600").findings[0].message
    lost = msgspec.structs.replace(REAL, rows=())
    assert expectation(lost, "tflops-float16", ">=600").status == "fail"
    alone = msgspec.structs.replace(REAL, gpus=REAL.gpus[:1])
    assert "no two GPUs of one model" in expectation(alone, "slowest-to-median", ">=0.95").findings[0].message


def test_a_busy_host_judges_no_shares() -> None:
    for waited in ("0.2", "0.4"):
        row = expectation(changed(FAULTY, waited=waited, model="Simulated GPU"), "slowest-to-median", ">=0.95")
        assert row.status == "note"
        assert "the host was busy" in row.findings[0].message


def test_a_good_machine_is_written_with_a_tenth_to_spare() -> None:
    real = changed(HEALTHY)
    lines = writing.from_report(real, "good.json").splitlines()
    (share,) = [line for line in lines if line.startswith("slowest-to-median")]
    assert share in {'slowest-to-median = ">=0.88"', 'slowest-to-median = ">=0.89"', 'slowest-to-median = ">=0.9"'}
    (copies,) = [line for line in lines if line.startswith("host-to-device")]
    assert copies.endswith('GB/s"')
    assert expectation(real, "host-to-device", copies.split('"')[1]).status == "pass"
    assert not any(line.startswith("tflops") for line in writing.from_report(HEALTHY, "good.json").splitlines())
