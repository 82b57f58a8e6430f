"""Lists of nodes to names and back."""

from __future__ import annotations

import random

import pytest

from gpudiag.errors import UsageError
from gpudiag.fleet.names import expand, fold, hostlist, is_name


def test_lists_are_expanded_in_order_and_each_name_once() -> None:
    assert expand(("node[008-011],login", "node9", "r[1-2]n[1-2]", "login")) == (
        *("login", "node008", "node009", "node010", "node011"),
        *("node9", "r1n1", "r1n2", "r2n1", "r2n2"),
    )


@pytest.mark.parametrize(
    "word",
    ["n[1-", "n[a-b]", "-oProxyCommand=x", "n1;reboot", "../n1", "a/b", "n 1", "n$(x)", "n\n1", "n`x`", ".hidden"],
)
def test_what_is_no_name_of_a_node_is_refused_before_it_becomes_an_argument(word: str) -> None:
    with pytest.raises(UsageError) as refused:
        expand((word,))
    assert "such as node[1-3],login" in str(refused.value) or "cannot be the name of a node" in str(refused.value)
    assert "\n" not in str(refused.value)


def test_a_list_without_a_name_is_refused() -> None:
    with pytest.raises(UsageError, match="names no node"):
        expand(("n1", ""))


@pytest.mark.parametrize("word", ["n[1-90000000]", "n[1-300]r[1-900]", "a[1-150000],b[1-150000]", "n[90000000-1]"])
def test_more_names_than_a_check_can_have_are_refused_before_they_are_expanded(word: str) -> None:
    with pytest.raises(UsageError, match="more than 200,000 nodes"):
        expand((word,))
    with pytest.raises(UsageError, match="more than 200,000 nodes"):
        expand(("n[1-100001]", "m[1-100000]"))


def test_names_are_folded_and_what_is_none_stays_readable() -> None:
    assert fold(["node017", "node101", "node102"]) == "node[017,101-102]"
    assert fold(["n2", "n1", "n2"]) == "n[1-2]"
    assert fold(["n1", "n1 (copy)\x1b[31m"]) == "n1,n1 (copy)"
    assert fold([]) == ""
    names = [f"gpu{number:05}" for number in range(10_000)]
    assert fold(names) == "gpu[00000-09999]"
    assert expand((fold(names),)) == tuple(names)


@pytest.mark.parametrize(
    ("names", "folded", "for_slurm"),
    [
        (["r1n1", "r1n2", "r2n1", "r2n2", "r3n1"], "r[1-2]n[1-2],r3n1", "r1n[1-2],r2n[1-2],r3n1"),
        (["10.0.0.7", "10.0.0.8", "10.0.1.7", "10.0.1.8"], "10.0.[0-1].[7-8]", "10.0.0.[7-8],10.0.1.[7-8]"),
        (["n1.c2.org", "n2.c2.org", "login"], "login,n[1-2].c2.org", "login,n1.c2.org,n2.c2.org"),
        (["n08", "n09", "n10", "n1", "n2"], "n[1-2,08-10]", "n[1-2,08-10]"),
    ],
)
def test_the_last_two_numbers_of_names_are_folded_and_for_slurm_the_last(
    names: list[str], folded: str, for_slurm: str
) -> None:
    assert (fold(names), hostlist(names)) == (folded, for_slurm)


@pytest.mark.parametrize("seed", range(20))
def test_clustershell_reads_what_is_folded(seed: int) -> None:
    chance = random.Random(seed)
    parts = ["n", "r", "-", "1", "2", "0", "9", "10", "x."]
    words = {"".join(chance.choices(parts, k=chance.randint(1, 6))) for _ in range(200)}
    names = sorted(filter(is_name, words))
    assert sorted(expand((fold(names),))) == names
    assert sorted(expand((hostlist(names),))) == names


@pytest.mark.parametrize("name", ["n1", "node-7.rack_2.example.org", "10.0.0.7", "_x"])
def test_usual_names_are_names(name: str) -> None:
    assert is_name(name)
    assert expand((name,)) == (name,)
