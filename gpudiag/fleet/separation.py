"""Finds what sets the nodes with a cause apart from the others.

Nodes are taken by cause, because a mixture of causes hides each of them. Of every fact and value it is asked how many
of the nodes that have it have the cause, by Fisher's exact test against all nodes, with Bonferroni's correction. The
test says whether there is something, phi (Matthews' correlation) how well it sets them apart: with 10,000 nodes
everything real has p = 0. The best fact is kept, or a pair that fits better and needs both of its facts; its nodes are
taken away, and the rest is asked again. Sets of nodes are bits of integers: to count the nodes that two of them share
among 100,000 takes microseconds.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations

from gpudiag.fleet.facts import order
from gpudiag.fleet.nodes import MOST_VALUES, NodeTable, bits
from gpudiag.model.fleet import NearFact, NoReport, Separation

LEAST_BAD = 3
"""With fewer nodes that have a cause, nothing sets them apart."""
LEVEL = 0.001
"""The largest corrected p of a separation. At 0.01, 2 of 600 made-up fleets in which nothing sets bad nodes apart had
one, as that level promises."""
GAIN = 0.05
"""By how much phi has to grow for two facts to be taken in place of one."""
NEAR = 0.25
"""How much less phi may be, of a fact that is named beside the best one."""
RACK = "rack"
_CANDIDATES = 40
"""The facts of which pairs are made: those with the largest phi."""
_MOST_NEAR = 3
_MOST_ROUNDS = 5
"""The most separations of a cause."""


@dataclass(frozen=True)
class Split:
    """A set of nodes, and every fact that exactly these nodes have."""

    facts: tuple[tuple[str, str], ...]
    nodes: int
    """The numbers of the nodes, as bits."""


@dataclass(frozen=True)
class Match:
    """How well one split, or two together, fit to the nodes with a cause."""

    splits: tuple[Split, ...]
    nodes: int
    bad_with: int
    with_facts: int
    phi: float
    p: float = 1.0
    """Of Fisher's test, times the number of tests."""

    @property
    def facts(self) -> tuple[tuple[str, str], ...]:
        return tuple(split.facts[0] for split in self.splits)


def separations(table: NodeTable) -> tuple[Separation, ...]:
    """Return what sets the nodes with a cause apart from the others, what does so best first.

    Nodes without a report have no facts; of them it is asked only in which racks they are.
    """
    with_report = bits(table.with_report(), len(table.names))
    ranked: list[Separation] = []
    splits, tests = split_by_facts(table, with_report)
    labels: dict[int, list[str]] = {}  # causes that exactly the same nodes have are one
    for label, numbers in table.labels.items():
        labels.setdefault(bits(numbers, len(table.names)) & with_report, []).append(label)
    for bad, names in labels.items():
        ranked += _of_label(tuple(names), bad, with_report, splits, tests * len(labels))
    everybody = bits(range(len(table.names)), len(table.names))
    racks, tests = split_by_facts(table, everybody, only=RACK)
    missing = list(_missing(table).items()) if racks else []
    for reason, silent in missing:
        bad = bits(silent, len(table.names))
        ranked += _of_label((reason.value,), bad, everybody, racks, tests * len(missing))
    return tuple(sorted(ranked, key=lambda each: (-round(each.phi, 2), -each.bad_with, each.label, each.facts)))


def split_by_facts(table: NodeTable, among: int, only: str = "") -> tuple[list[Split], int]:
    """Return the splits that can set nodes apart, and how many tests they all are.

    A test is each value of each fact that divides the nodes, with that of the nodes that lack a variable or package;
    values that exactly the same nodes have are one. Splits of fewer than three nodes are counted alone.
    """
    facts_of: dict[int, list[tuple[str, str]]] = {}
    for name, values in table.values(among).items():
        if 1 < len(values) <= MOST_VALUES and (not only or name == only):
            for value, nodes in values.items():
                facts_of.setdefault(nodes, []).append((name, value))
    facts_of.pop(among, None)
    splits = [
        Split(tuple(sorted(facts, key=lambda fact: order(fact[0]))), nodes)
        for nodes, facts in facts_of.items()
        if nodes.bit_count() >= LEAST_BAD
    ]
    return splits, max(len(facts_of), 1)


def _missing(table: NodeTable) -> dict[NoReport, list[int]]:
    silent: dict[NoReport, list[int]] = {}
    for number in range(len(table.names)):
        reason = table.row(number).reason
        if reason is not None:
            silent.setdefault(reason, []).append(number)
    return silent


def _of_label(
    labels: tuple[str, ...], bad: int, among: int, splits: Sequence[Split], tests: int
) -> Iterator[Separation]:
    """Yield what sets nodes apart, the best first; each is sought among the nodes that the ones before leave, and its
    counts are of all nodes."""

    def counts(match: Match) -> tuple[int, int]:
        nodes = among
        for split in match.splits:
            nodes &= split.nodes
        return (nodes & bad).bit_count(), nodes.bit_count()

    bad_left, left = bad, among
    for _ in range(_MOST_ROUNDS):
        if bad_left.bit_count() < LEAST_BAD or bad_left == left:
            return
        best, near = best_match(bad_left, left, splits, tests)
        if best is None:
            return
        yield Separation(
            labels[0],
            best.facts,
            *counts(best),
            bad.bit_count(),
            (among & ~bad).bit_count(),
            best.p,
            round(best.phi, 4),
            tuple(f"{name} {value}" for split in best.splits for name, value in split.facts[1:]),
            near=tuple(NearFact(*match.facts[0], *counts(match)) for match in near),
            same_labels=labels[1:],
        )
        bad_left, left = bad_left & ~best.nodes, left & ~best.nodes


def best_match(bad: int, among: int, splits: Sequence[Split], tests: int) -> tuple[Match | None, list[Match]]:
    """Return the fact, or pair of facts, that fits best to the bad ones of the nodes ``among``, None if none does, and
    other facts that fit nearly as well."""
    measure = _measure(bad, among)
    singles = [match for split in splits if (match := measure((split,), split.nodes)) is not None]
    singles.sort(key=lambda match: (-match.phi, order(match.facts[0][0])))
    sure = [match for match in map(_with_p(bad, among, tests), singles[:_CANDIDATES]) if match.p <= LEVEL]
    best = sure[0] if sure else None
    pairs = []
    for first, two in combinations(singles[:_CANDIDATES], 2):
        pair = measure(first.splits + two.splits, first.nodes & two.nodes)
        if pair is not None and (best is None or pair.phi >= best.phi + GAIN):
            pairs.append(pair)
    pairs.sort(key=lambda match: -match.phi)
    sure_pairs = map(_with_p(bad, among, tests * max(tests - 1, 1) // 2), pairs[:_CANDIDATES])
    best_pair = next(
        (match for match in sure_pairs if match.p <= LEVEL and _needs_both(match, bad, among, tests)), None
    )
    chosen = best_pair or best
    if chosen is None:
        return None, []
    near = [
        match
        for match in sure
        if match.splits[0] not in chosen.splits and match.phi >= chosen.phi - NEAR and len(chosen.splits) == 1
    ]
    return chosen, near[:_MOST_NEAR]


def _needs_both(pair: Match, bad: int, among: int, tests: int) -> bool:
    """Return whether each fact of a pair sets nodes apart among those that have the other one.

    Of the 80 facts of a rack of 32 nodes, of which 60 % are bad, some fit a little better together with the rack by
    chance: in 5 of 12 fleets of 1,000 nodes one was taken without this question.
    """
    for split in pair.splits:
        nodes = split.nodes & among
        p = fisher(pair.bad_with, pair.with_facts, (nodes & bad).bit_count(), nodes.bit_count())
        if p * tests > LEVEL:
            return False
    return True


def _measure(bad: int, among: int) -> Callable[[tuple[Split, ...], int], Match | None]:
    """Return the function that measures a set of nodes; it gives None where too few bad ones are in it, or no more
    than elsewhere."""
    count, size = bad.bit_count(), among.bit_count()

    def measure(splits: tuple[Split, ...], nodes: int) -> Match | None:
        bad_with = (nodes & bad).bit_count()
        if bad_with < LEAST_BAD:
            return None
        inside = nodes & among
        with_facts = inside.bit_count()
        value = phi(bad_with, with_facts, count, size)
        return Match(splits, inside, bad_with, with_facts, value) if value > 0 else None

    return measure


def _with_p(bad: int, among: int, tests: int) -> Callable[[Match], Match]:
    count, size = bad.bit_count(), among.bit_count()

    def with_p(match: Match) -> Match:
        p = min(1.0, fisher(match.bad_with, match.with_facts, count, size) * tests)
        return Match(match.splits, match.nodes, match.bad_with, match.with_facts, match.phi, p)

    return with_p


def phi(bad_with: int, with_facts: int, bad: int, size: int) -> float:
    """Return Matthews' correlation between having a fact and being bad: 1 if exactly the bad nodes have it."""
    variance = with_facts * (size - with_facts) * bad * (size - bad)
    return (bad_with * size - with_facts * bad) / math.sqrt(variance) if variance else 0.0


def fisher(bad_with: int, with_facts: int, bad: int, size: int) -> float:
    """Return the probability that of ``with_facts`` nodes, drawn from ``size`` of which ``bad`` are bad, at least
    ``bad_with`` are bad: Fisher's exact test, one-sided.

    It is the upper tail of the hypergeometric distribution: the first term by logarithms of the gamma function, each
    further one by its ratio to the term before. 0.0 if it is too small for a float.
    """
    least, most = max(0, with_facts + bad - size), min(with_facts, bad)
    if bad_with <= least:
        return 1.0
    if bad_with > most:
        return 0.0
    if bad_with * size <= with_facts * bad:  # below the mean: the other tail is the smaller sum
        return max(0.0, 1.0 - fisher(with_facts - bad_with + 1, with_facts, size - bad, size))
    first = _choices(bad, bad_with) + _choices(size - bad, with_facts - bad_with) - _choices(size, with_facts)
    total = term = 1.0
    for number in range(bad_with, most):
        term *= (bad - number) * (with_facts - number) / ((number + 1) * (size - bad - with_facts + number + 1))
        total += term
        if term < total * 1e-16:
            break
    return min(1.0, math.exp(first) * total)


def _choices(size: int, number: int) -> float:
    """Return the logarithm of the number of ways to choose ``number`` of ``size``."""
    return math.lgamma(size + 1) - math.lgamma(number + 1) - math.lgamma(size - number + 1)
