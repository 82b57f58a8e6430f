"""What sets nodes with a cause apart: the test, the choice of facts, and that nothing is invented."""

from __future__ import annotations

import random
from fractions import Fraction
from itertools import product
from math import comb, sqrt

import pytest
from fleets import answer
from msgspec.structs import replace

from fleet_scale import PLANTED, Fleet
from gpudiag.fleet.nodes import MOST_VALUES, NodeTable, bits
from gpudiag.fleet.separation import fisher, phi, separations
from gpudiag.model.diagnosis import Confidence
from gpudiag.model.fleet import Answer, CauseSummary, FactKind, NoReport, Separation, Summary
from gpudiag.model.report import Verdict


def node(name: str, facts: dict[str, str], *causes: str) -> Answer:
    summary = Summary(
        "0.1.0",
        "2026-11-28T12:00:00+00:00",
        1.0,
        "quick",
        Verdict.FAIL if causes else Verdict.PASS,
        "",
        causes=tuple(CauseSummary(cause, cause, Confidence.PROVED, unfit=True) for cause in causes),
        facts=facts,
    )
    return Answer(name, summary=summary)


def table_of(answers: list[Answer], racks: dict[str, str] | None = None) -> NodeTable:
    table = NodeTable([answer.node for answer in answers], racks)
    for one in answers:
        table.add(one)
    return table


def of_fleet(fleet: Fleet) -> tuple[Separation, ...]:
    table = NodeTable(racks=fleet.racks())
    for one in fleet.answers():
        table.add(one)
    return separations(table)


@pytest.mark.parametrize(
    ("bad_with", "with_facts", "bad", "size", "expected"),
    [  # scipy.stats.fisher_exact(alternative="greater"), SciPy 1.17.1
        (3, 3, 3, 1000, 6.018042090186378e-09),
        (29, 32, 50, 10000, 3.0563723800827897e-68),
        (2, 5, 5, 10, 0.8968253968253967),
        (90, 100, 140, 10000, 1.0890830758227435e-170),
        (5, 50, 100, 1000, 0.5730845672762301),
        (6, 50, 100, 1000, 0.383364343607304),
        (17, 32, 34, 10000, 4.64640703827419e-36),
        (3, 40, 12, 60, 0.9998921262758712),
        (468, 511, 477, 10000, 0.0),
    ],
)
def test_fishers_test_agrees_with_scipy(bad_with: int, with_facts: int, bad: int, size: int, expected: float) -> None:
    assert fisher(bad_with, with_facts, bad, size) == pytest.approx(expected, rel=2e-10)


def test_fishers_test_is_the_share_of_all_draws() -> None:
    for size in (1, 2, 5, 9):
        for bad, with_facts in product(range(size + 1), repeat=2):
            draws = [comb(bad, k) * comb(size - bad, with_facts - k) for k in range(min(bad, with_facts) + 1)]
            for bad_with in range(len(draws)):
                exact = Fraction(sum(draws[bad_with:]), comb(size, with_facts))
                assert fisher(bad_with, with_facts, bad, size) == pytest.approx(float(exact), abs=1e-12)


def test_phi_is_the_correlation_of_having_the_fact_and_being_bad() -> None:
    chance = random.Random(1)
    for _ in range(100):
        have, bad = ([chance.random() < 0.4 for _ in range(30)] for _ in range(2))
        means = sum(have) / 30, sum(bad) / 30
        covariance = sum((a - means[0]) * (b - means[1]) for a, b in zip(have, bad, strict=True)) / 30
        spread = sqrt(means[0] * (1 - means[0]) * means[1] * (1 - means[1]))
        both = sum(a and b for a, b in zip(have, bad, strict=True))
        assert phi(both, sum(have), sum(bad), 30) == pytest.approx(covariance / spread)


def test_bits_are_those_of_the_numbers() -> None:
    assert bits([0, 3, 3, 17], 20) == 1 | 1 << 3 | 1 << 17


@pytest.mark.parametrize("seed", range(3))
def test_what_was_planted_is_found_and_nothing_else(seed: int) -> None:
    found = of_fleet(Fleet(2000, seed=seed))
    assert {one.label: set(one.facts) for one in found} == {label: set(facts) for label, facts in PLANTED.items()}
    for one in found:
        assert one.p < 1e-9
        assert one.bad_with <= min(one.bad, one.with_facts)


@pytest.mark.parametrize("seed", range(12))
def test_nodes_that_fail_at_random_have_nothing_in_common(seed: int) -> None:
    assert of_fleet(Fleet(300, seed=seed, is_healthy=True)) == ()


def test_facts_of_the_same_nodes_are_one_and_the_best_known_names_it() -> None:
    answers = [
        node(f"n{number}", {"package x": "2" if number < 10 else "1", "driver": "b" if number < 10 else "a"})
        for number in range(10, 60)
    ]
    answers += [node(f"n{number}", {"package x": "2", "driver": "b"}, "broken") for number in range(10)]
    (found,) = separations(table_of(answers))
    assert (found.label, found.facts, found.same) == ("broken", (("driver", "b"),), ("package x 2",))
    assert (found.bad_with, found.with_facts, found.bad, found.others, found.phi) == (10, 10, 10, 50, 1.0)


def test_a_variable_that_is_not_set_sets_nodes_apart_and_a_driver_that_is_not_known_does_not() -> None:
    answers = [node(f"good{number}", {"driver": "a", "NCCL_IB_HCA": "mlx5", "GPU": "X"}) for number in range(40)]
    answers += [node(f"bad{number}", {"GPU": "X"}, "broken") for number in range(10)]
    (found,) = separations(table_of(answers))
    assert found.facts == (("NCCL_IB_HCA", "(none seen)"),)
    assert found.same == ()


def test_causes_of_the_same_nodes_are_one_separation() -> None:
    answers = [node(f"good{number}", {"driver": "a"}) for number in range(40)]
    answers += [node(f"bad{number}", {"driver": "b"}, "first", "two") for number in range(10)]
    (found,) = separations(table_of(answers))
    assert (found.label, found.same_labels) == ("first", ("two",))


def test_a_fact_that_fits_nearly_as_well_is_named_beside_the_best() -> None:
    answers = [node(f"good{number}", {"driver": "a", "kernel": "1"}) for number in range(96)]
    answers += [node(f"near{number}", {"driver": "a", "kernel": "2"}) for number in range(2)]
    answers += [node(f"bad{number}", {"driver": "b", "kernel": "2"}, "broken") for number in range(20)]
    (found,) = separations(table_of(answers))
    assert found.facts == (("driver", "b"),)
    assert [(near.fact, near.value, near.bad_with, near.with_fact) for near in found.near] == [("kernel", "2", 20, 22)]


def test_after_the_best_fact_the_rest_is_asked_again() -> None:
    answers = [node(f"good{number}", {"driver": "a", "kernel": "1"}) for number in range(200)]
    answers += [node(f"a{number}", {"driver": "b", "kernel": "1"}, "broken") for number in range(20)]
    answers += [node(f"b{number}", {"driver": "a", "kernel": "2"}, "broken") for number in range(10)]
    found = separations(table_of(answers))
    assert [(one.facts, one.bad_with, one.bad, one.others) for one in found] == [
        ((("kernel", "2"),), 10, 30, 200),
        ((("driver", "b"),), 20, 30, 200),
    ]


def test_counts_are_of_all_nodes_and_not_of_those_that_an_earlier_separation_leaves() -> None:
    answers = [node(f"good{number}", {"driver": "a", "kernel": "1"}) for number in range(200)]
    answers += [node(f"a{number}", {"driver": "b", "kernel": "1"}, "broken") for number in range(20)]
    answers += [node(f"c{number}", {"driver": "b", "kernel": "2"}, "broken") for number in range(5)]
    answers += [node(f"b{number}", {"driver": "a", "kernel": "2"}, "broken") for number in range(10)]
    counts = {one.facts[0]: (one.bad_with, one.with_facts, one.bad) for one in separations(table_of(answers))}
    assert counts == {("driver", "b"): (25, 25, 35), ("kernel", "2"): (15, 15, 35)}


def test_a_node_of_which_the_variables_are_not_known_does_not_lack_one() -> None:
    def unread(one: Answer) -> Answer:
        assert one.summary is not None
        return replace(one, summary=replace(one.summary, unread=(FactKind.VARIABLE,)))

    answers = [node(f"good{number}", {"driver": "a", "NCCL_IB_HCA": "mlx5"}) for number in range(40)]
    bad = [node(f"bad{number}", {"driver": "a"}, "broken") for number in range(10)]
    assert separations(table_of([*answers, *map(unread, bad)])) == ()
    assert [one.facts for one in separations(table_of([*answers, *bad]))] == [(("NCCL_IB_HCA", "(none seen)"),)]


def test_two_bad_nodes_and_a_fleet_that_is_bad_as_a_whole_have_nothing_that_sets_them_apart() -> None:
    good = [node(f"good{number}", {"driver": "a"}) for number in range(40)]
    bad = [node(f"bad{number}", {"driver": "b"}, "broken") for number in range(40)]
    assert separations(table_of([*good, *bad[:2]])) == ()
    assert separations(table_of(bad)) == ()
    assert separations(table_of([])) == ()


def test_nodes_without_a_report_are_asked_for_their_racks() -> None:
    names = [f"n{number}" for number in range(200)]
    racks = {name: f"r{number // 20}" for number, name in enumerate(names)}
    answers = [
        answer(name, NoReport.UNREACHABLE) if racks[name] == "r4" else node(name, {"driver": "a"}) for name in names
    ]
    (found,) = separations(table_of(answers, racks))
    assert (found.label, found.facts, found.bad_with, found.others) == ("unreachable", (("rack", "r4"),), 20, 180)
    assert separations(table_of(answers)) == ()


def test_a_flaky_node_counts_among_those_with_its_cause() -> None:
    answers = [node(f"good{number}", {"driver": "a"}) for number in range(40)]
    flaky = [node(f"bad{number}", {"driver": "b"}, "broken") for number in range(10)]
    again = [node(one.node, {"driver": "b"}) for one in flaky]
    (found,) = separations(table_of([*answers, *flaky, *again]))
    assert (found.bad_with, found.with_facts) == (10, 10)


def test_a_fact_that_tells_each_node_from_the_others_is_forgotten() -> None:
    table = table_of([node(f"n{number}", {"serial": str(number), "driver": "a"}) for number in range(MOST_VALUES + 2)])
    assert set(table.facts) == {("driver", "a")}
