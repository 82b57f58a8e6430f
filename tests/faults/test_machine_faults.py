"""The campaign over the faults of a simulated machine tries every fault and every state that such a machine knows."""

from __future__ import annotations

import argparse
from pathlib import Path

import pytest
from campaigns import machine_faults
from campaigns.machine_faults import BAD, STATE, Case, Records, _right, areas_of, cases, part_of

from gpudiag.model.report import Broken, NoReading
from gpudiag.simulator.faults import CATALOGUE, SONAMES, parse_fault
from gpudiag.simulator.spec import STATES
from reports import CAP_IGNORED, GPUS, passed, report, row

CALLED = {"cuInit": ["discovery", "memory"], "cudnnCreate": ["libraries"], "nvmlDeviceGetName": []}
RIGHT = {"group": "call", "fault": "a", "verdict": "PASS", "by": "", "why": "", "right": "yes", "proof": "x"}
RIGHT |= {"commit": "1234abcd"}
DESCRIBE = {"pcie_generation_max", "pcie_width_max", "power_default", "clock_max", "nvlinks"}
"""States that only describe a card: no value of them is a fault."""


def test_every_fault_library_state_and_call_is_in_the_plan() -> None:
    planned = list(cases(CALLED))
    faults = [parse_fault(text) for case in planned for text in case.faults]
    under_load = {kind.name for kind in CATALOGUE.values() if kind.pace}  # scripts/stress_machines.py has them
    assert {fault.name for fault in faults} == set(CATALOGUE) - under_load - {"nvml_missing"}, "that is a library"
    assert {fault.value for fault in faults if fault.name == "library_missing"} == set(SONAMES)
    assert {fault.rules[0].split(",")[0] for fault in faults if fault.name == "call_fails"} > set(CALLED)
    assert set(STATES) == set(BAD) | DESCRIBE
    assert len({case.name for case in planned}) == len(planned), "each has one record"


@pytest.mark.parametrize(
    ("case", "areas"),
    [
        (Case("call", ("call_fails=cuInit:999@1",)), [["discovery"], ["discovery", "memory"]]),
        (Case("call", ("call_fails=cudnnCreate:1@1",)), [["libraries"]]),
        (Case("call", ("call_fails=nvmlDeviceGetName:999@1",)), [["host", "discovery"]]),
        (Case("machine", ("memory_corrupted@1",)), [["discovery"], []]),
    ],
)
def test_a_fault_meets_the_probes_that_make_the_call_and_a_pass_needs_all_of_them(
    case: Case, areas: list[list[str]]
) -> None:
    assert areas_of(case, CALLED) == areas


def test_a_pass_that_a_program_contradicts_is_counted_as_wrong() -> None:
    page = machine_faults.table([RIGHT, {**RIGHT, "fault": "b|c", "right": "no"}], 3)
    assert "2 of 3 faults: 2 PASS; 1 not as they must be." in page
    assert "Measured at commit 1234abcd." in page
    assert "| `b/c` | PASS |  |  | no: x | 1234abcd |" in page


def test_the_page_names_each_commit_and_can_be_read_back() -> None:
    records = [RIGHT, {**RIGHT, "fault": "b", "group": STATE, "commit": "9999abcd", "proof": ""}]
    page = machine_faults.table(records, 2)
    assert "Measured at commit 1234abcd (1), 9999abcd (1)." in page
    assert list(machine_faults.rows_of(page)) == records


def test_a_broken_check_is_never_right() -> None:
    assert (
        _right(report(row("libraries.xla", Broken(NoReading.NO_RESULT, "no result"), GPUS[0]), gpus=GPUS))["right"]
        == "no"
    )
    busy = report(row("libraries.xla", Broken(NoReading.BUSY, "no result"), GPUS[0]), gpus=GPUS)
    assert _right(busy) == {"right": "no", "proof": "this machine was too busy"}
    failed = report(row("libraries.xla", passed("", CAP_IGNORED), GPUS[0]), gpus=GPUS)
    assert _right(failed) == {"right": "yes"}


def test_what_is_of_another_commit_or_wrong_is_run_again(tmp_path: Path) -> None:
    records = Records(tmp_path / "records")
    for case, verdict in (("a", "yes"), ("b", "no"), ("b", "yes"), ("c", "no")):
        records.keep({"case": case, "commit": "1234abcd", "right": verdict})
    kept = Records(tmp_path / "records")
    assert [kept.has(case, "1234abcd") for case in "abcd"] == [True, True, False, False]
    assert not kept.has("a", "9999abcd")


def test_parts_are_all_of_the_whole() -> None:
    assert (part_of("1/3"), part_of("3/3")) == ((0, 3), (2, 3))
    for text in ("0/3", "4/3", "1", "1/0", "x/y"):
        with pytest.raises(argparse.ArgumentTypeError, match="is no part"):
            part_of(text)
