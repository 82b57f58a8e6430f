"""A run of level stress in every format: two recorded runs of three simulated GPUs with a pace, one healthy, and one in
which GPU 1 overheats and GPU 2 is 1.3 times as slow."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import msgspec
import pytest

from gpudiag.model import codec
from gpudiag.model.health import HealthCounters
from gpudiag.model.reading import SavedReading, plain_reading
from gpudiag.model.report import Report, Row
from gpudiag.report import load, render

RECORDED = Path(__file__).parents[1] / "recorded" / "load"
HEALTHY, FAULTY = (codec.load(RECORDED / f"{name}.json") for name in ("healthy", "faulty"))


def as_real(report: Report) -> Report:
    """Return the report as if its GPUs were real: the names of the model say so."""
    return codec.decode(codec.encode(report).replace("Simulated GPU", "NVIDIA GPU"), "test")


def noted(row: Row) -> dict[str, Any]:
    """Return the reading of a row as JSON."""
    return dict(plain_reading(row.reading) or {})


def found_in(pattern: str, text: str) -> str:
    """Return what the first group of ``pattern`` finds in ``text``."""
    match = re.search(pattern, text)
    assert match is not None
    return match[1]


def rendered(report: Report, format_: str, *, verbose: bool = False) -> str:
    return render(report, format_, width=80, color=False, verbose=verbose)


def test_each_gpu_has_a_line_below_the_findings() -> None:
    screen = rendered(FAULTY, "summary")
    findings, lines = screen.index("slower than the median"), screen.index("of median")
    assert findings < lines
    assert all(len(line) <= 80 for line in screen.splitlines())
    table = screen[lines:].splitlines()
    hot, slow = next(line for line in table if " 1  " in line[:8]), next(line for line in table if " 2  " in line[:8])
    assert "83 °C" in hot
    assert "705-1410" in hot
    assert "right" in slow
    assert int(found_in(r"(\d+) %", slow)) < 80


@pytest.mark.parametrize("format_", ["table", "summary", "markdown"])
def test_kinds_of_work_are_shares_of_simulated_gpus_and_rates_of_real_ones(format_: str) -> None:
    simulated, real = (rendered(one, format_, verbose=True) for one in (HEALTHY, as_real(HEALTHY)))
    assert "bfloat16" in simulated
    assert "in percent of the median" in simulated
    assert re.search(r"slowest of [1-6] links", simulated)
    assert not re.search(r"FLOP|GB/s", simulated)
    assert "TFLOP/s" in real
    assert "GB/s" in real


def test_columns_without_room_are_left_out() -> None:
    cells = load.overview(load.gpus(as_real(FAULTY)), 60)
    assert cells[0][:3] == ["GPU", "results", "of median"]
    assert all(sum(2 + len(cell) for cell in line) - 2 <= 60 for line in cells)


def test_metrics_have_rates_of_real_gpus_alone() -> None:
    simulated, real = (rendered(one, "prometheus") for one in (FAULTY, as_real(FAULTY)))
    rate = r'(?m)^gpudiag_load_flops_per_second\{gpu="2",.*work="float16 product"\} (\S+)$'
    assert not re.search(rate, simulated)
    assert float(found_in(rate, real)) == load.gpus(FAULTY)[2].rates["float16 product"].value
    assert re.search(r'^gpudiag_load_temperature_max_celsius\{gpu="1",.*\} 83$', simulated, re.MULTILINE)
    assert re.search(r'^gpudiag_load_throttled_seconds\{gpu="1",.*reason="hot"\} [1-9]', simulated, re.MULTILINE)
    assert re.search(r'^gpudiag_load_to_median_ratio\{gpu="2",.*kind="computing"\} 0\.7', simulated, re.MULTILINE)
    series = [line.rpartition(" ")[0] for line in simulated.splitlines() if not line.startswith("#")]
    assert len(series) == len(set(series))


def test_counters_that_rose_are_shown() -> None:
    first, *others = FAULTY.health
    rose = msgspec.structs.replace(first, before=HealthCounters(pcie_replays=2), after=HealthCounters(pcie_replays=9))
    counted = msgspec.structs.replace(FAULTY, health=(rose, *others))
    assert "7 PCIe replays" in rendered(counted, "summary")
    assert 'counter="pcie_replays"} 7' in rendered(counted, "prometheus")


def test_junit_says_what_each_gpu_did() -> None:
    assert "hottest: 83 °C, throttled: 1 s" in rendered(FAULTY, "junit")


@pytest.mark.parametrize("format_", ["summary", "table", "markdown", "prometheus", "junit", "html", "json"])
def test_odd_readings_break_no_format(format_: str) -> None:
    def odd(row_number: int) -> SavedReading:
        plain = noted(FAULTY.rows[row_number])
        if row_number == 0:
            plain["slices"] = "none"
        elif row_number == 1:
            plain["slices"] = [{**part, "rate": -1.0, "seconds": 0.0} for part in plain["slices"]]
        elif row_number == 2:
            plain["load_began_s"] = 1e300
        else:
            plain["made"] = {"GPU:0": 7}
        return SavedReading(plain)

    rows = tuple(msgspec.structs.replace(row, reading=odd(number)) for number, row in enumerate(FAULTY.rows))
    assert rendered(msgspec.structs.replace(FAULTY, rows=rows), format_, verbose=True)
