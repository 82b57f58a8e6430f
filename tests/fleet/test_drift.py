"""Facts in which some nodes differ from the majority: what is shown, in which order, and what is noise."""

from __future__ import annotations

from collections.abc import Mapping

from gpudiag.fleet.drift import MOST, drift
from gpudiag.fleet.merge import merged
from gpudiag.fleet.nodes import NodeTable, numbers_of
from gpudiag.fleet.sources import Source
from gpudiag.model.fleet import Answer, Drift, FactKind, Summary
from gpudiag.model.report import Verdict


def drift_of(*facts: Mapping[str, str], unread: tuple[int, ...] = ()) -> tuple[Drift, ...]:
    """Return the drift of nodes n0, n1 ... with these facts; of those that are ``unread``, no variable was read."""
    table = NodeTable()
    for number, of_node in enumerate(facts):
        kinds = (FactKind.VARIABLE,) if number in unread else ()
        summary = Summary("0.1.0", "", 1.0, "quick", Verdict.PASS, "", facts=dict(of_node), unread=kinds)
        table.add(Answer(f"n{number}", summary=summary))
    return drift(table)


def test_only_a_node_whose_variables_were_read_lacks_one() -> None:
    facts = [{"driver": "a", "NCCL_DEBUG": "INFO"}] * 8 + [{"driver": "a"}] * 2
    assert drift_of(*facts) == (Drift("NCCL_DEBUG", "INFO", 8, (("(none seen)", "n[8-9]", 2),)),)
    assert drift_of(*facts, unread=(9,)) == (Drift("NCCL_DEBUG", "INFO", 8, (("(none seen)", "n8", 1),)),)
    assert drift_of(*facts, unread=(8, 9)) == ()


def test_a_fleet_that_agrees_has_no_drift() -> None:
    assert drift_of(*[{"driver": "a", "kernel": "1"}] * 9) == ()
    assert drift_of() == ()


def test_the_nodes_that_differ_from_the_majority_are_named() -> None:
    facts = [{"driver": "a"}] * 6 + [{"driver": "b"}] * 2 + [{"driver": "c"}]
    assert drift_of(*facts) == (Drift("driver", "a", 6, (("c", "n8", 1), ("b", "n[6-7]", 2))),)


def test_facts_in_which_the_same_nodes_differ_are_one() -> None:
    facts = [{"driver": "a", "package x": "1", "kernel": "1"}] * 8
    facts += [{"driver": "b", "package x": "2", "kernel": "1"}] * 2
    (found,) = drift_of(*facts)
    assert (found.fact, found.same) == ("driver", ("package x",))


def test_half_a_fleet_is_shown_for_what_a_fleet_should_agree_in_alone() -> None:
    halves = [{"driver": "a", "package x": "1"}] * 5 + [{"driver": "b", "package x": "1"}] * 5
    assert [(one.fact, one.number) for one in drift_of(*halves)] == [("driver", 5)]
    assert drift_of(*[{"memory of the machine": size} for size in ("500 GiB", "1,000 GiB") * 5]) == ()


def test_a_fact_of_which_each_node_has_its_own_value_is_left_out() -> None:
    facts = [{"serial": str(number), "driver": str(number)} for number in range(20)]
    assert drift_of(*facts) == ()


def test_nodes_of_different_gpus_are_compared_only_if_their_majorities_agree() -> None:
    of_x, of_y = {"GPU": "X", "driver": "a", "BIOS": "1"}, {"GPU": "Y", "driver": "b", "BIOS": "1"}
    facts = [of_x] * 8 + [of_y] * 8 + [of_x | {"driver": "b"}, of_y | {"BIOS": "2"}]
    found = {one.fact: one for one in drift_of(*facts)}
    assert set(found) == {"driver", "BIOS"}
    assert (found["driver"].among, found["driver"].others) == ("X", (("b", "n16", 1),))
    assert (found["BIOS"].among, found["BIOS"].others) == ("", (("2", "n17", 1),))


def test_a_variable_or_a_package_that_some_nodes_lack_drifts_and_a_driver_that_is_not_known_does_not() -> None:
    whole = {"driver": "a", "package x": "1", "NCCL_DEBUG": "INFO"}
    found = drift_of(*[whole] * 8, {"driver": "a", "NCCL_DEBUG": "INFO"}, {"package x": "1"})
    assert [(one.fact, one.majority, one.others) for one in found] == [
        ("package x", "1", (("(none seen)", "n8", 1),)),
        ("NCCL_DEBUG", "INFO", (("(none seen)", "n9", 1),)),
    ]


def test_what_people_look_at_first_comes_first_and_few_nodes_before_many() -> None:
    same = {"driver": "a", "kernel": "1", "package x": "1", "package y": "1"}
    facts = [same] * 12 + [same | {"package x": "2"}] * 2 + [same | {"package y": "2"}, same | {"kernel": "2"}]
    assert [one.fact for one in drift_of(*facts)] == ["kernel", "package y", "package x"]


def test_many_values_are_put_together_and_the_list_has_an_end() -> None:
    (found,) = drift_of(*[{"package x": "1"}] * 80, *[{"package x": str(number)} for number in range(2, 22)])
    assert [count for _, _, count in found.others] == [1] * 7 + [13]
    assert found.others[-1][0] == "13 other values"
    wide = {f"package p{number}": "1" for number in range(MOST + 20)}
    facts = [wide] * 200 + [wide | {f"package p{number}": "2"} for number in range(MOST + 20)]
    assert len(drift_of(*facts)) == MOST


def test_the_numbers_of_bits() -> None:
    assert list(numbers_of(1 | 1 << 7 | 1 << 8 | 1 << 300)) == [0, 7, 8, 300]
    assert list(numbers_of(0)) == []


def test_a_list_that_is_cut_is_said_to_be() -> None:
    wide = {f"package p{number}": "1" for number in range(MOST + 20)}
    facts = [wide] * 200 + [wide | {f"package p{number}": "2"} for number in range(MOST + 20)]
    answers = [
        Answer(f"n{number}", summary=Summary("0.1.0", "", 1.0, "quick", Verdict.PASS, "", facts=dict(of_node)))
        for number, of_node in enumerate(facts)
    ]
    report = merged(Source(answers, (), "a test"))
    assert report.notes == (f"{MOST} facts in which nodes differ are listed; there may be more",)
    assert merged(Source(answers[:9], (), "a test")).notes == ()
