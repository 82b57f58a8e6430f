"""A run of level stress in every format: two recorded runs of three simulated GPUs with a pace, one healthy, and one in
which GPU 1 overheats and GPU 2 is 1.3 times as slow."""

from __future__ import annotations

import itertools
import re
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

from gpudiag.model import codec
from gpudiag.model.health import HealthCounters
from gpudiag.model.reading import SavedReading, plain_reading
from gpudiag.model.report import Judged, Report, Row
from gpudiag.report import load, render
from gpudiag.report.masking import mask
from gpudiag.report.page import load_charts
from gpudiag.run.rejudging import rejudge

REPORTS = Path(__file__).parents[2] / "reports"
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


def changed(report: Report, probe: str, **fields: Any) -> Report:
    """Return the report with these fields in the readings of a probe."""
    rows = tuple(
        msgspec.structs.replace(row, reading=SavedReading({**noted(row), **fields})) if row.probe == probe else row
        for row in report.rows
    )
    return msgspec.structs.replace(report, rows=rows)


def drawn_rates(chart: load_charts.LoadChart) -> list[float]:
    """Return the relative rates that a chart shows."""
    panel = chart.panels[0]
    return [(1 - int(y) / 1000) / (1 - panel.y / 100) for y in re.findall(r"M\d+ (\d+)H", panel.path)]


def rendered(report: Report, format_: str, *, verbose: bool = False) -> str:
    return render(report, format_, width=80, color=False, verbose=verbose)


def test_each_gpu_has_a_line_below_the_findings() -> None:
    screen = rendered(FAULTY, "summary")
    findings, lines = screen.index("slower than the median"), screen.index("of median")
    assert findings < lines
    assert all(len(line) <= 80 for line in screen.splitlines())
    table = screen[lines:].splitlines()
    hot, slow = next(line for line in table if " 1  " in line[:8]), next(line for line in table if " 2  " in line[:8])
    assert "84 °C" in hot
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
    assert cells[0] == ["GPU", "results", "of\nmedian", "float16\nTFLOP/s", "to GPU\nGB/s", "hottest", "throttled"]
    assert all(sum(2 + max(map(len, cell.splitlines() or [""])) for cell in line) - 2 <= 60 for line in cells)
    assert load.overview(load.gpus(as_real(FAULTY)), 40)[0] == ["GPU", "results", "of\nmedian", "hottest", "throttled"]
    assert "clock MHz" in load.overview(load.gpus(as_real(FAULTY)))[0]


def test_metrics_have_rates_of_real_gpus_alone() -> None:
    simulated, real = (rendered(one, "prometheus") for one in (FAULTY, as_real(FAULTY)))
    rate = r'(?m)^gpudiag_load_flops_per_second\{gpu="2",.*work="float16 product"\} (\S+)$'
    assert not re.search(rate, simulated)
    assert float(found_in(rate, real)) == load.gpus(FAULTY)[2].rates["float16 product"].value
    assert re.search(r'^gpudiag_load_temperature_max_celsius\{gpu="1",.*\} 84$', simulated, re.MULTILINE)
    assert re.search(r'^gpudiag_load_throttled_seconds\{gpu="1",.*reason="hot"\} [1-9]', simulated, re.MULTILINE)
    assert re.search(r'^gpudiag_load_to_median_ratio\{gpu="2",.*kind="computing"\} 0\.7', simulated, re.MULTILINE)
    series = [line.rpartition(" ")[0] for line in simulated.splitlines() if not line.startswith("#")]
    assert len(series) == len(set(series))


@pytest.mark.starts
@pytest.mark.parametrize("format_", ["summary", "table", "markdown", "junit"])
def test_a_report_without_a_load_imports_nothing_of_it(format_: str) -> None:
    saved = next(path for path in REPORTS.glob("*.json") if not codec.load(path).has_load)
    code = (
        "import pathlib, sys; from gpudiag.model import codec; from gpudiag.report import render; "
        f"render(codec.load(pathlib.Path({str(saved)!r})), {format_!r}, width=80, color=False); "
        "print([name for name in sys.modules if 'gpudiag' in name and 'load' in name])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_counters_that_rose_are_shown() -> None:
    first, *others = FAULTY.health
    rose = msgspec.structs.replace(first, before=HealthCounters(pcie_replays=2), after=HealthCounters(pcie_replays=9))
    counted = msgspec.structs.replace(FAULTY, health=(rose, *others))
    assert "7 PCIe replays" in rendered(counted, "summary")
    assert 'counter="pcie_replays"} 7' in rendered(counted, "prometheus")


def test_junit_says_what_each_gpu_did() -> None:
    assert "hottest: 84 °C, throttled: 4 s" in rendered(FAULTY, "junit")


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
            plain["slices"] = [{**part, "rate": 1.7e308, "waited": 0.2} for part in plain["slices"]]
        else:
            plain["made"] = {"GPU:0": 7}
        return SavedReading(plain)

    rows = tuple(msgspec.structs.replace(row, reading=odd(number)) for number, row in enumerate(FAULTY.rows))
    assert rendered(msgspec.structs.replace(FAULTY, rows=rows), format_, verbose=True)


def test_the_page_has_a_chart_of_each_gpu_with_the_time_in_which_it_was_throttled() -> None:
    charts = load_charts.charts(FAULTY)
    assert [chart.title for chart in charts] == ["GPU 0", "GPU 1", "GPU 2"]
    assert [bool(chart.throttled) for chart in charts] == [False, True, False]
    for chart in charts:
        assert [panel.name for panel in chart.panels] == ["rate", "clock", "temperature", "power"]
        assert all(panel.path.startswith("M") for panel in chart.panels)
        (alone,) = chart.alone
        gpus_began, links_began = (next(it.x for it in chart.phases if it.text == name) for name in ("gpus", "links"))
        assert gpus_began <= alone.x < links_began
    turns = [chart.alone[0].x for chart in charts]
    assert turns == sorted(set(turns)), "each has its turn"
    (hot,) = [chart for chart in charts if chart.throttled]
    clock = next(panel for panel in hot.panels if panel.name == "clock")
    lowest = max(int(y) for y in re.findall(r"[ML]\d+ (\d+)", clock.path))
    assert lowest > 10 * clock.y * 1.5, "half of the clock is drawn lower"
    page = rendered(FAULTY, "html")
    assert page.count('class="throttled"') - 1 == len(hot.throttled) * len(hot.panels), "and one in the legend"
    assert page.index("slower than the median of 2 other GPUs") < page.index("Over the time")


def test_rates_are_drawn_by_the_fastest_of_the_model() -> None:
    whole, _, slow = (statistics.median(drawn_rates(chart)) for chart in load_charts.charts(FAULTY))
    assert whole > 0.9
    assert slow == pytest.approx(whole / 1.3, rel=0.1)


def test_a_lone_gpu_that_is_throttled_nearly_always_is_drawn_below_its_own_best() -> None:
    one = noted(FAULTY.rows[1])["slices"][0]
    slices = [{**one, "began_s": 0.5 * at, "rate": 1e9 if at < 20 else 5e8} for at in range(120)]
    lone = msgspec.structs.replace(changed(FAULTY, load.GPUS, slices=slices), gpus=FAULTY.gpus[:1])
    (chart,) = load_charts.charts(lone)
    assert statistics.median(drawn_rates(chart)) == pytest.approx(0.5, abs=0.01)


def test_each_kind_of_work_is_drawn_of_more_slices_than_there_is_room_for() -> None:
    one = noted(FAULTY.rows[1])["slices"][0]
    slices = [
        {**one, "began_s": 0.5 * at, "work": f"work {at % 8}", "rate": 5e8 if at % 8 == 1 and at > 1000 else 1e9}
        for at in range(2400)
    ]
    rates = drawn_rates(load_charts.charts(changed(FAULTY, load.GPUS, slices=slices))[0])
    assert len(rates) < 500
    assert sum(rate < 0.6 for rate in rates) / len(rates) == pytest.approx(1400 / 2400 / 8, rel=0.2)


def test_what_was_wrong_while_a_gpu_was_prepared_is_no_turn_of_it() -> None:
    slices = noted(FAULTY.rows[3])["slices"]
    early = {**slices[0], "began_s": -0.2, "seconds": 0.2, "wrong": 1, "alone": True}
    before, after = (
        load_charts.charts(changed(FAULTY, load.GPUS, slices=parts))[0] for parts in (slices, [early, *slices])
    )
    assert after.alone == before.alone
    assert after.panels[0].marks.count("M") == 1


def test_a_masked_report_shows_the_same() -> None:
    masked = mask(FAULTY)
    assert FAULTY.gpus[1].uuid not in codec.encode(masked)
    assert load_charts.charts(masked) == load_charts.charts(FAULTY)
    assert load.overview(load.gpus(masked)) == load.overview(load.gpus(FAULTY))
    assert load_charts.heat_map(masked) == load_charts.heat_map(FAULTY)


def test_wrong_results_are_marked_on_the_chart() -> None:
    first, *others = FAULTY.rows
    assert first.probe == "load.all_reduce"
    row = others[0]
    slices = [{**part, "wrong": 3 * (number == 20)} for number, part in enumerate(noted(row)["slices"])]
    wrong = msgspec.structs.replace(row, reading=SavedReading({**noted(row), "slices": slices}))
    chart = load_charts.charts(msgspec.structs.replace(FAULTY, rows=(first, wrong, *others[1:])))[0]
    assert chart.panels[0].marks.count("M") == 1
    assert "3 wrong elements" in chart.text


def test_a_host_that_was_never_quiet_is_said() -> None:
    starved = rejudge(codec.decode(re.sub(r'"waited": [\d.]+', '"waited": 0.4', codec.encode(HEALTHY)), "starved"))
    assert "processes waited for a processor 40 % of the time" in rendered(starved, "summary")
    gaps = [row.outcome.gaps for row in starved.rows if row.probe == load.GPUS and isinstance(row.outcome, Judged)]
    assert len(gaps) == 3
    assert all("the host was busy" in gap.why for (gap,) in gaps)


def test_links_are_a_heat_map_and_of_many_gpus_a_list() -> None:
    known = load.links(HEALTHY)
    assert {(link.source.index, link.target.index) for link in known} == {*itertools.permutations(range(3), 2)}
    headings, lines = load_charts.heat_map(HEALTHY) or ((), ())
    assert headings == ("to GPU 0", "to GPU 1", "to GPU 2")
    assert [[cell is None for cell in cells] for _, cells in lines] == [
        [source == target for target in range(3)] for source in range(3)
    ]
    many = tuple(msgspec.structs.replace(HEALTHY.gpus[0], index=number, pci_bus_id=str(number)) for number in range(20))
    made = {f"GPU:{number}": str(number) for number in range(20)}
    row = next(row for row in HEALTHY.rows if row.probe == load.LINKS)
    slices = [
        {**noted(row)["slices"][0], "work": f"copy GPU:{source} to GPU:{target}", "rate": 1e9 / (source + 1) ** 2}
        for source, target in itertools.permutations(range(20), 2)
    ]
    large = msgspec.structs.replace(
        HEALTHY,
        gpus=many,
        rows=(msgspec.structs.replace(row, reading=SavedReading({**noted(row), "made": made, "slices": slices})),),
    )
    _, listed = load_charts.heat_map(large) or ((), ())
    assert listed[0][0].startswith("GPU 19 to")
    heats = [cells[0].heat for _, cells in listed if cells[0] is not None]
    assert heats[0] == 0
    assert heats == sorted(heats)
