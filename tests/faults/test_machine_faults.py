"""The campaign over the faults of a simulated machine tries every fault and every state that such a machine knows."""

from __future__ import annotations

import pytest
from campaigns import machine_faults
from campaigns.machine_faults import BAD, Case, areas_of, cases

from gpudiag.simulator.faults import CATALOGUE, SONAMES, parse_fault
from gpudiag.simulator.spec import STATES

CALLED = {"cuInit": ["discovery", "memory"], "cudnnCreate": ["libraries"], "nvmlDeviceGetName": []}
DESCRIBE = {"pcie_generation_max", "pcie_width_max", "power_default", "clock_max", "nvlinks"}
"""States that only describe a card: no value of them is a fault."""


def test_every_fault_library_state_and_call_is_in_the_plan() -> None:
    planned = list(cases(CALLED))
    faults = [parse_fault(text) for case in planned for text in case.faults]
    assert {fault.name for fault in faults} == set(CATALOGUE) - {"nvml_missing"}, "that is a library"
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
    right = {"case": "a", "group": "call", "fault": "a", "verdict": "PASS", "why": "", "right": "yes", "proof": "x"}
    page = machine_faults.table([right, {**right, "fault": "b|c", "right": "no"}], 3)
    assert "2 of 3 faults: 2 PASS; 1 not as they must be." in page
    assert "| `b/c` | PASS |  |  | no: x |" in page
