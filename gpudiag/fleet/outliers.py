"""Finds figures that are far from those of other GPUs of the same model.

The deviation is measured by the median and the median absolute deviation (MAD), which a few odd GPUs do not change. Two
groups of GPUs are no outliers, and nobody can say which of them is right. How far healthy GPUs are away grows with
their number, and so does the limit.
"""

from __future__ import annotations

import math
import statistics
from array import array
from collections.abc import Iterator, Sequence

from gpudiag.fleet.facts import COUNTS
from gpudiag.fleet.nodes import NodeTable
from gpudiag.model.fleet import Outlier

LEAST_NODES = 8
LEAST_PART = 0.10
"""A figure that is less far away is no outlier, as a part of the median: as :data:`gpudiag.probes.under_load.FLOOR`."""
MOST_PART = 0.25
"""Where a larger part of the GPUs is far away, these are a group of their own."""
MOST = 1000
"""The most outliers of a report."""
_ABOVE = 2.0
"""By how much the limit is above the largest z score that a healthy fleet is expected to have: of 3.2 million normal
values in 200 fleets (reports/fleet.md) none was an outlier; with 1.5, one was."""
_OF_MAD = 1.4826
"""By which the MAD of a normal distribution is multiplied to get its standard deviation."""
_LEAST_SPREAD = 0.05 / 3
"""The least standard deviation, as a part of the median."""
_OF_COUNT = 1.0
"""The least standard deviation of a count on its scale: a factor of two."""


def outliers(table: NodeTable) -> tuple[tuple[Outlier, ...], tuple[str, ...]]:
    """Return GPUs with figures that are far from those of other GPUs of their model, the farthest first, and a sentence
    for each figure in which so many are that none is called odd.

    A GPU that is odd in several figures is there once. At least 8 nodes with the model are needed.
    """
    by_gpu: dict[tuple[int, int], list[Outlier]] = {}
    groups = []
    for (model, figure), (numbers, indices, values) in table.figures.items():
        if len(set(numbers)) < LEAST_NODES:
            continue
        odd = list(_odd(figure, values))
        if len(odd) > MOST_PART * len(values):
            groups.append(
                f"{figure} of {model}: {len(odd):,} of {len(values):,} GPUs are far from the median, too many to call "
                "them odd"
            )
            continue
        for place, z, median in odd:
            gpu = numbers[place], indices[place]
            outlier = Outlier(
                table.names[gpu[0]], gpu[1], model, figure, values[place], median, round(z, 1), len(values)
            )
            by_gpu.setdefault(gpu, []).append(outlier)
    odd_gpus = [_together(sorted(of_gpu, key=lambda outlier: -abs(outlier.z))) for of_gpu in by_gpu.values()]
    return tuple(sorted(odd_gpus, key=lambda outlier: (-abs(outlier.z), outlier.node, outlier.gpu))[:MOST]), tuple(
        groups
    )


def _together(of_gpu: Sequence[Outlier]) -> Outlier:
    """Return the first outlier of a GPU, with the names of its other figures that are odd."""
    first, *others = of_gpu
    return Outlier(
        first.node,
        first.gpu,
        first.model,
        first.figure,
        first.value,
        first.median,
        first.z,
        first.number,
        tuple(other.figure for other in others),
    )


def _odd(figure: str, values: array[float]) -> Iterator[tuple[int, float, float]]:
    """Yield the place of each outlier with its modified z score and the median."""
    is_count = figure in COUNTS.values()
    scaled = [math.log2(1 + max(0.0, value)) for value in values] if is_count else list(values)
    middle = statistics.median(scaled)
    spread = max(
        _OF_MAD * statistics.median(abs(value - middle) for value in scaled),
        _OF_COUNT if is_count else _LEAST_SPREAD * abs(middle),
    )
    if spread <= 0:  # the median is 0, and that of the others cannot be said to be far
        return
    limit = max(3.5, math.sqrt(2 * math.log(len(values))) + _ABOVE)
    for place, value in enumerate(scaled):
        z = (value - middle) / spread
        if abs(z) > limit and (is_count or abs(value - middle) >= LEAST_PART * abs(middle)):
            yield place, z, 2**middle - 1 if is_count else middle
