"""The row of a node after one attempt and after several, and the exit status of a fleet."""

from __future__ import annotations

import pytest
from fleets import answer, healthy, unfit

from gpudiag.fleet.merge import exit_code, groups
from gpudiag.fleet.nodes import NodeTable
from gpudiag.fleet.summary import summarized
from gpudiag.model.fleet import NodeVerdict, NoReport
from gpudiag.model.report import Report
from reports import GPUS, passed, report, row

Outcome = Report | NoReport


def row_after(*attempts: Outcome) -> tuple[NodeVerdict, str, tuple[str, ...]]:
    table = NodeTable(["n1"])
    for number, attempt in enumerate(attempts, 1):
        table.add(answer("n1", attempt, number))
    (row,) = table.rows()
    return row.verdict, row.label, row.attempts


@pytest.mark.parametrize(
    ("attempts", "verdict", "label"),
    [
        ([], NodeVerdict.NO_REPORT, "no answer"),
        ([healthy()], NodeVerdict.PASS, ""),
        ([unfit()], NodeVerdict.FAIL, "mask_hides_all"),
        ([NoReport.LOST], NodeVerdict.NO_REPORT, "lost"),
        ([NoReport.LOST, healthy()], NodeVerdict.PASS, ""),
        ([healthy(), NoReport.LOST], NodeVerdict.PASS, ""),
        ([NoReport.LOST, NoReport.TIMED_OUT], NodeVerdict.NO_REPORT, "timed out"),
        ([unfit(), unfit()], NodeVerdict.FAIL, "mask_hides_all"),
        ([unfit(), healthy()], NodeVerdict.FLAKY, "mask_hides_all"),
        ([healthy(), unfit()], NodeVerdict.FLAKY, "mask_hides_all"),
        ([healthy(), unfit(), NoReport.LOST], NodeVerdict.FLAKY, "mask_hides_all"),
        ([healthy(), unfit(), healthy()], NodeVerdict.FLAKY, "mask_hides_all"),
        ([unfit(), report()], NodeVerdict.FAIL, "mask_hides_all"),
        ([healthy(), NoReport.DUPLICATE], NodeVerdict.NO_REPORT, "duplicate"),
        ([healthy(), NoReport.DUPLICATE, unfit()], NodeVerdict.NO_REPORT, "duplicate"),
    ],
)
def test_the_row_of_a_node_is_that_of_all_its_attempts(
    attempts: list[Outcome], verdict: NodeVerdict, label: str
) -> None:
    found = row_after(*attempts)
    assert found[:2] == (verdict, label)
    assert len(found[2]) == (len(attempts) if len(attempts) > 1 else 0)


def test_every_node_that_was_asked_for_has_a_row_and_one_that_was_not_too() -> None:
    table = NodeTable(["n1", "n2", "n3"])
    table.add(answer("n3", healthy()))
    table.add(answer("stranger", healthy()))
    assert [(row.node, row.verdict.value) for row in table.rows()] == [
        ("n1", "NO REPORT"),
        ("n2", "NO REPORT"),
        ("n3", "PASS"),
        ("stranger", "PASS"),
    ]


def test_groups_are_folded_and_the_worst_stands_first() -> None:
    table = NodeTable([f"n{number}" for number in range(1, 7)])
    for node in ("n1", "n4"):
        table.add(answer(node, healthy()))
    for node in ("n2", "n3"):
        table.add(answer(node, unfit()))
    table.add(answer("n5", NoReport.LOST))
    assert [(group.verdict.value, group.label, group.nodes) for group in groups(table.rows())] == [
        ("FAIL", "mask_hides_all", "n[2-3]"),
        ("NO REPORT", "lost", "n5"),
        ("NO REPORT", "no answer", "n6"),
        ("PASS", "", "n[1,4]"),
    ]


@pytest.mark.parametrize(
    ("counts", "allowed", "expected"),
    [
        ({"PASS": 3}, 0, 0),
        ({"PASS": 3, "FAIL": 1, "BROKEN": 1}, 9, 1),
        ({"PASS": 3, "FLAKY": 1}, 9, 1),
        ({"PASS": 3, "BROKEN": 1, "NO REPORT": 1}, 9, 3),
        ({"PASS": 3, "NOT VERIFIED": 1}, 9, 5),
        ({"PASS": 3, "NO REPORT": 1}, 0, 5),
        ({"PASS": 3, "NO REPORT": 1}, 1, 0),
        ({"PASS": 3, "NO REPORT": 2}, 1, 5),
        ({"NO REPORT": 2}, 2, 5),
        ({}, 0, 5),
    ],
)
def test_a_fleet_passes_only_if_its_nodes_do(counts: dict[str, int], allowed: int, expected: int) -> None:
    assert exit_code({NodeVerdict(name): number for name, number in counts.items()}, allowed) == expected


def test_a_node_that_is_not_verified_says_why() -> None:
    unverified = report(row("placement.log", passed("8 of 8"), *GPUS), gpus=GPUS)
    assert summarized(unverified).headline == "no kernel was verified on GPU 0 and GPU 1"
    assert summarized(report()).headline == "no GPU is in scope, so nothing was verified"
    assert summarized(healthy()).headline == ""
