"""The table of a fleet: what stands above the prompt."""

from __future__ import annotations

import msgspec
import pytest
from merged_fleets import failed, hostile_fleet, merged_fleet, missing, passed, small_fleet
from rich.cells import cell_len

from gpudiag.model.fleet import FleetReport, NoReport
from gpudiag.report.fleet import render
from gpudiag.text import one_line

SCREEN = 23
"""Lines of a terminal of 24 above the prompt."""


def lines(report: FleetReport, width: int = 80) -> list[str]:
    return render(report, "table", width=width, color=False).splitlines()


def test_the_last_lines_are_what_to_act_on() -> None:
    shown = lines(msgspec.structs.replace(small_fleet(), together=None))
    screen = "\n".join(shown[-SCREEN:])
    assert shown[-1] == "10 nodes · 4 FAIL · 1 NOT VERIFIED · 2 NO REPORT · 3 PASS · exit 1"
    assert "FAIL          3  n[4,6-7]  mask_hides_all" in screen
    assert "have in common: driver 535.10" in screen
    assert "unset CUDA_VISIBLE_DEVICES" in screen
    assert "n10: ssh: connect to host n10 port 22: Connection refused" in screen
    # the largest group that fails is the last
    groups = [line for line in shown if line.startswith(("PASS ", "NO REPORT ", "NOT VERIFIED ", "FAIL "))]
    assert [line.split("  ")[0].strip() for line in groups] == [
        *("PASS", "NO REPORT", "NO REPORT", "NOT VERIFIED", "FAIL", "FAIL"),
    ]


def test_a_flaky_node_says_what_it_had_one_after_the_other() -> None:
    flaky = [answer for node in ("n1", "n2") for answer in (failed(node), passed(node))]
    text = "\n".join(lines(merged_fleet(*flaky)))
    assert "FLAKY  2  n[1-2]  mask_hides_all\n          FAIL, then PASS: the mask hides all GPUs" in text
    text = "\n".join(lines(merged_fleet(*flaky, passed("n3"), failed("n3"))))
    assert "FAIL, then PASS on 2 of 3: the mask hides all GPUs" in text


def test_it_has_drift_odd_figures_and_changes() -> None:
    text = "\n".join(lines(small_fleet(), 200))
    assert "driver  550.54 on 3 nodes\n    535.10 on 3: n[4,6-7]" in text
    assert "n2 GPU 3: float16 product 412 TFLOP/s, median 610 TFLOP/s (-32 %)" in text
    assert "n3 GPU 0: PCIe lanes 8, median of 48 GPUs 16 (-50 %); odd too: memory" in text
    assert "n1 GPU 1: memory 50 % of the median of 48 GPUs" in text  # a rate of a simulated GPU is its host's
    assert "driver 545.23 -> 550.54 on 3 of 4 nodes; with it kernel 6.1 -> 6.2\n    still 545.23 on 1: n9" in text
    assert "float16 product 612 TFLOP/s -> 590 TFLOP/s, -3.6 % ± 0.4 % of 64 GPUs" in text
    assert "    Ask for a wheel.\n      on 1 node" in text
    assert "worse  3  PASS -> FAIL mask_hides_all: n[4,6-7]" in text
    assert "3 of 3 have in common: driver 535.10 (1 of 5 others have it); the same nodes have image v7 and" in text


@pytest.mark.parametrize("width", [20, 40, 80, 200])
@pytest.mark.parametrize("report", [small_fleet(), hostile_fleet()], ids=["small", "hostile"])
def test_no_line_is_wider_than_the_terminal(report: FleetReport, width: int) -> None:
    commands = {one_line(text.text) for asked in report.actions for text in asked.texts}
    too_wide = [line for line in lines(report, width) if cell_len(line) > width and line.strip() not in commands]
    assert too_wide == []


def test_long_lists_of_nodes_are_cut_between_names_and_their_number_stays() -> None:
    bad = [failed(f"node{number:05}") for number in range(1, 4001, 2)]
    good = [passed(f"node{number:05}") for number in range(2, 4001, 2)]
    shown = lines(merged_fleet(*bad, *good))
    assert len(shown) < SCREEN
    [first] = [at for at, line in enumerate(shown) if line.startswith("FAIL")]
    assert shown[first].startswith("FAIL  2,000  node[00001,00003,")
    assert ", ..." in shown[first + 1]
    assert "mask_hides_all" in " ".join(shown[first : first + 3])


def test_ten_thousand_causes_are_a_few_lines() -> None:
    shown = lines(merged_fleet(*(failed(f"n{number}", f"cause_{number}") for number in range(2000))))
    assert len(shown) < 60
    assert "1,988 nodes for 1,988 other reasons" in "\n".join(shown)
    assert shown[-1] == "2,000 nodes · 2,000 FAIL · exit 1"


def test_nodes_with_the_same_last_line_share_it() -> None:
    same = [missing(f"n{number}", NoReport.REFUSED, "Permission denied (publickey).") for number in range(1, 9)]
    other = [missing(f"n{number}", NoReport.REFUSED, f"line {number}") for number in range(9, 14)]
    text = "\n".join(lines(merged_fleet(*same, *other)))
    assert "n1 and 7 more: Permission denied (publickey)." in text
    assert "and 3 other last lines" in text


def test_simulated_nodes_are_named_so() -> None:
    report = msgspec.structs.replace(small_fleet(), simulated=3)
    assert "SIMULATED GPUs on 3 nodes" in "\n".join(lines(report))


def test_an_empty_fleet_and_one_without_faults() -> None:
    assert lines(merged_fleet())[-1] == "0 nodes · exit 5"
    shown = lines(merged_fleet(passed("n1"), passed("n2")))
    assert shown[-3:] == ["PASS  2  n[1-2]", "", "2 nodes · 2 PASS · exit 0"]


def test_colours_are_gone_without_color() -> None:
    assert "\x1b" not in render(small_fleet(), "table", width=80, color=False)
    assert "\x1b[1;31m" in render(small_fleet(), "table", width=80, color=True)
