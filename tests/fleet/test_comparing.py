"""Two runs of a fleet: verdicts, facts and rates before and after."""

from __future__ import annotations

import random
from array import array
from collections.abc import Container, Mapping

import msgspec
import pytest
from fleets import answer, healthy, unfit

from gpudiag.fleet.comparing import changes, fact_changes, figure_changes, notes
from gpudiag.fleet.facts import COUNTS, TEMPERATURE
from gpudiag.fleet.nodes import NodeTable
from gpudiag.model.fleet import Answer, FactChange, FactKind, FigureChange, NoReport, Summary
from gpudiag.model.report import Report, Verdict
from reports import report

Figures = dict[str, tuple[float | None, ...]]


def table_of(
    facts: Mapping[str, dict[str, str]],
    figures: Mapping[str, Figures] | None = None,
    simulated: Container[str] = (),
) -> NodeTable:
    table = NodeTable()
    for node, of_node in facts.items():
        measured = {} if figures is None else figures[node]
        gpus = ("X",) * max(map(len, measured.values()), default=0)
        summary = Summary("0.1.0", "", 1.0, "stress", Verdict.PASS, "", facts=of_node, gpus=gpus, figures=measured)
        table.add(Answer(node, summary=msgspec.structs.replace(summary, simulated=node in simulated)))
    return table


def rates(figures: Mapping[str, Figures]) -> NodeTable:
    return table_of({node: {} for node in figures}, figures)


def noisy(number: int, factor: float, figure: str = "float16 product", seed: int = 1) -> dict[str, Figures]:
    """Return nodes of which each has its own rate, times a factor and a noise of 1 %."""
    own, noise = random.Random(7), random.Random(seed)
    return {
        f"n{node}": {figure: tuple(own.gauss(100, 8) * factor * noise.gauss(1, 0.01) for _ in range(4))}
        for node in range(number)
    }


@pytest.mark.parametrize(
    ("before", "after", "words", "worse"),
    [
        (healthy(), unfit(), ("PASS", "FAIL mask_hides_all"), True),
        (unfit(), healthy(), ("FAIL mask_hides_all", "PASS"), False),
        (unfit(), unfit("other_cause"), ("FAIL mask_hides_all", "FAIL other_cause"), True),
        (healthy(), NoReport.LOST, ("PASS", "NO REPORT lost"), True),
        (NoReport.LOST, NoReport.TIMED_OUT, ("NO REPORT lost", "NO REPORT timed out"), False),
        (NoReport.LOST, healthy(), ("NO REPORT lost", "PASS"), False),
        (NoReport.LOST, report(), ("NO REPORT lost", "NOT VERIFIED"), False),
    ],
)
def test_a_node_of_which_less_is_good_or_known_got_worse(
    before: Report | NoReport, after: Report | NoReport, words: tuple[str, str], worse: bool
) -> None:
    old, new = NodeTable(["n1"]), NodeTable(["n1"])
    old.add(answer("n1", before))
    new.add(answer("n1", after))
    (found,) = changes(old, new)
    assert (found.old, found.new, found.worse, found.nodes) == (*words, worse, "n1")
    assert changes(old, old) == changes(new, new) == ()


def test_nodes_that_only_one_run_asked_are_named() -> None:
    old, new = (table_of({node: {} for node in nodes}) for nodes in (("n1", "n2"), ("n2", "n3")))
    assert {(one.old, one.new, one.nodes) for one in changes(old, new)} == {
        ("PASS", "not asked", "n1"),
        ("not asked", "PASS", "n3"),
    }


def test_noise_is_no_change_and_a_loss_of_three_percent_on_all_gpus_is() -> None:
    (same,) = figure_changes(rates(noisy(50, 1.0)), rates(noisy(50, 1.0, seed=2)))
    assert not same.counts
    assert not same.worse
    assert same.error < 0.002
    (slower,) = figure_changes(rates(noisy(50, 1.0)), rates(noisy(50, 0.97, seed=2)))
    assert (slower.counts, slower.worse, slower.number) == (True, True, 200)
    assert slower.change == pytest.approx(-0.03, abs=0.003)
    (faster,) = figure_changes(rates(noisy(50, 1.0)), rates(noisy(50, 1.1, seed=2)))
    assert (faster.counts, faster.worse) == (True, False)


@pytest.mark.parametrize("seed", range(30))
def test_no_change_is_invented(seed: int) -> None:
    number = random.Random(seed).choice([3, 5, 20])
    old, new = (rates(noisy(number, 1.0, seed=1000 * run + seed)) for run in (1, 2))
    (found,) = figure_changes(old, new)
    assert not found.counts


def test_a_few_slow_gpus_do_not_make_the_fleet_slower() -> None:
    after = noisy(20, 1.0, seed=2)
    for node in ("n0", "n1"):
        after[node] = {"float16 product": (10.0,) * 4}
    (found,) = figure_changes(rates(noisy(20, 1.0)), rates(after))
    assert not found.counts


def test_warmer_gpus_are_worse_and_errors_are_not_compared() -> None:
    warm: dict[str, Figures] = {f"n{node}": {TEMPERATURE: (60.0,)} for node in range(9)}
    hot: dict[str, Figures] = {f"n{node}": {TEMPERATURE: (75.0,)} for node in range(9)}
    (found,) = figure_changes(rates(warm), rates(hot))
    assert found == FigureChange("X", TEMPERATURE, 60.0, 75.0, 0.25, 0.0, 9, True, True)
    errors = COUNTS["corrected_errors"]
    assert figure_changes(rates(noisy(9, 1.0, errors)), rates(noisy(9, 9.0, errors))) == ()


def test_an_upgrade_names_the_nodes_that_were_left_behind() -> None:
    before = {f"n{node}": {"driver": "a", "package x": "1", "kernel": "1"} for node in range(10)}
    after = {name: facts | {"driver": "b", "package x": "2"} for name, facts in before.items()}
    after |= {"n3": before["n3"], "n8": before["n8"]}
    assert fact_changes(table_of(before), table_of(after)) == (
        FactChange("driver", "a", "b", 8, 10, "n[3,8]", 2, ("package x 1 -> 2",)),
    )
    assert fact_changes(table_of(before), table_of(before)) == ()


def test_a_variable_that_was_set_everywhere_is_a_change_and_a_driver_that_nobody_knew_before_is_not() -> None:
    before: dict[str, dict[str, str]] = {f"n{node}": {"NCCL_DEBUG": "x"} if node == 9 else {} for node in range(10)}
    after = {name: {"NCCL_DEBUG": "INFO", "driver": "a"} for name in before}
    (found,) = [one for one in fact_changes(table_of(before), table_of(after)) if one.number > 1]
    assert (found.fact, found.old, found.new, found.number) == ("NCCL_DEBUG", "(none seen)", "INFO", 9)


def test_a_simulated_node_is_not_compared_with_a_real_one() -> None:
    figures = noisy(9, 1.0)
    old: dict[str, dict[str, str]] = {node: {"driver": "a"} for node in figures}
    new = {node: {"driver": "b", "LD_LIBRARY_PATH": "/sim"} for node in figures}
    real = table_of(old, figures)
    some = table_of(new, noisy(9, 0.5), simulated=("n1", "n2"))
    assert {change.number for change in fact_changes(real, some)} == {7}
    assert [change.number for change in figure_changes(real, some)] == [28]
    assert [*notes(real, some)] == ["2 nodes simulated in only one run: their facts and figures are not compared"]
    every = table_of(new, noisy(9, 0.5), simulated=figures)
    assert fact_changes(real, every) == ()
    assert figure_changes(every, real) == ()
    assert [change.number for change in figure_changes(every, every)] == [36]
    assert [*notes(every, every)] == [*notes(real, real)] == []


def test_what_changed_on_one_node_alone_is_no_change_of_the_fleet() -> None:
    before = {f"n{node}": {"driver": "a"} for node in range(10)}
    assert fact_changes(table_of(before), table_of(before | {"n1": {"driver": "b"}})) == ()


def test_a_variable_that_is_set_since_is_a_change_unless_it_was_not_read_before() -> None:
    old, new = {f"n{node}": {"driver": "a"} for node in range(9)}, {}
    new = {node: {**facts, "NCCL_DEBUG": "INFO"} for node, facts in old.items()}
    (found,) = fact_changes(table_of(old), table_of(new))
    assert found == FactChange("NCCL_DEBUG", "(none seen)", "INFO", 9, 9, "", 0)
    unread = table_of(old)
    unread.unread[FactKind.VARIABLE] = array("I", range(9))
    assert fact_changes(unread, table_of(new)) == ()
