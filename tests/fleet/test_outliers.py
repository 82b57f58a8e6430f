"""Figures that are far from those of other GPUs of the same model, and those that are not."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest
from msgspec.structs import replace

from gpudiag.fleet.facts import COUNTS
from gpudiag.fleet.nodes import NodeTable
from gpudiag.fleet.outliers import LEAST_NODES, MOST, outliers
from gpudiag.model.fleet import Answer, Outlier, Summary
from gpudiag.model.report import Verdict

CORRECTED = COUNTS["corrected_errors"]


def table_of(figure: str, values: Sequence[float | None], *, gpus: int = 1, model: str = "X") -> NodeTable:
    """Return the table of nodes with these values, ``gpus`` of them on a node."""
    table = NodeTable()
    for number in range(len(values) // gpus):
        summary = Summary(
            "0.1.0",
            "2026-11-28T12:00:00+00:00",
            1.0,
            "stress",
            Verdict.PASS,
            "",
            gpus=(model,) * gpus,
            figures={figure: tuple(values[number * gpus : number * gpus + gpus])},
        )
        table.add(Answer(f"n{number}", summary=summary))
    return table


def odd(table: NodeTable) -> tuple[Outlier, ...]:
    return outliers(table)[0]


@pytest.mark.parametrize("number", [16, 100, 1000, 10_000])
def test_no_healthy_gpu_is_an_outlier_and_each_slow_one_is(number: int) -> None:
    chance = random.Random(number)
    for _ in range(100_000 // number // 4):
        values = [chance.gauss(100, 2) for _ in range(number)]
        assert odd(table_of("float16 product", values)) == ()
        values[3], values[7] = 55.0, 80.0
        found = odd(table_of("float16 product", values))
        assert [(one.node, one.value) for one in found] == [("n3", 55.0), ("n7", 80.0)]
        assert all(one.z < -3.5 and one.number == number for one in found)


def test_a_link_that_is_half_as_wide_as_all_others_is_odd() -> None:
    (found,) = odd(table_of("PCIe width", [16.0] * 99 + [8.0]))
    assert (found.node, found.gpu, found.value, found.median) == ("n99", 0, 8.0, 16.0)


def test_two_halves_of_a_fleet_are_not_odd() -> None:
    assert odd(table_of("power limit in W", [400.0, 700.0] * 50)) == ()


@pytest.mark.parametrize(("far", "number"), [(25, 25), (26, 0), (45, 0)])
def test_more_than_a_quarter_of_all_gpus_are_a_group_and_not_odd(far: int, number: int) -> None:
    found, groups = outliers(table_of("power limit in W", [400.0] * (100 - far) + [700.0] * far))
    assert len(found) == number
    text = f"power limit in W of X: {far} of 100 GPUs are far from the median, too many to call them odd"
    assert groups == (() if number else (text,))


def test_a_gpu_is_named_by_its_index() -> None:
    table = NodeTable()
    for number in range(9):
        summary = Summary("0", "", 1.0, "stress", Verdict.PASS, "", gpus=("X", "X"), indices=(3, 6))
        values = (100.0, 50.0 if number == 4 else 100.0)
        table.add(Answer(f"n{number}", summary=replace(summary, figures={"memory": values})))
    (found,) = odd(table)
    assert (found.node, found.gpu) == ("n4", 6)


def test_what_differs_by_less_than_a_tenth_is_not_odd() -> None:
    assert odd(table_of("power limit in W", [400.0] * 99 + [364.0])) == ()
    assert len(odd(table_of("power limit in W", [400.0] * 99 + [350.0]))) == 1


def test_a_few_errors_are_not_odd_and_many_are() -> None:
    assert odd(table_of(CORRECTED, [0.0] * 90 + [1.0, 2.0, 5.0, 9.0, 12.0] * 2)) == ()
    (found,) = odd(table_of(CORRECTED, [0.0] * 99 + [4000.0]))
    assert (found.value, found.median) == (4000.0, 0.0)


def test_seven_nodes_are_too_few_however_many_gpus_they_have() -> None:
    values = [100.0] * 56
    values[5] = 20.0
    assert odd(table_of("memory", values, gpus=8)) == ()
    assert LEAST_NODES == 8
    (found,) = odd(table_of("memory", [*values, *[100.0] * 8], gpus=8))
    assert (found.node, found.gpu) == ("n0", 5)


def test_models_are_not_compared_with_each_other() -> None:
    table = table_of("memory", [100.0] * 20, model="X")
    for number in range(20, 30):
        summary = Summary("0", "", 1.0, "stress", Verdict.PASS, "", gpus=("Y",), figures={"memory": (30.0,)})
        table.add(Answer(f"n{number}", summary=summary))
    assert odd(table) == ()


def test_a_gpu_that_is_odd_in_several_figures_is_there_once() -> None:
    table = NodeTable()
    for number in range(20):
        factor = 0.5 if number == 4 else 1.0
        figures: dict[str, tuple[float | None, ...]] = {"float16 product": (100.0 * factor,), "copy": (None,)}
        figures["memory"] = (100.0 * (0.5 + factor / 2),)
        summary = Summary("0", "", 1.0, "stress", Verdict.PASS, "", gpus=("X",), figures=figures)
        table.add(Answer(f"n{number}", summary=summary))
    (found,) = odd(table)
    assert (found.node, found.figure, found.also) == ("n4", "float16 product", ("memory",))


def test_a_figure_that_is_nothing_everywhere_has_no_outlier_and_the_list_has_an_end() -> None:
    assert odd(table_of("memory", [0.0] * 30)) == ()
    assert odd(table_of("memory", [0.0] * 29 + [5.0])) == ()
    assert len(odd(table_of(CORRECTED, [0.0] * 9000 + [9000.0] * (MOST + 9)))) == MOST
