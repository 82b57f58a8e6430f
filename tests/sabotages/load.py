"""A TensorFlow whose GPUs compute, copy or add wrong after a while: what only a load shows."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

from sabotages import found_as
from sabotages.tools import module, wrap


def _wrong_from(owner: Any, name: str, first: int) -> None:
    """Let a function of TensorFlow return something else from its ``first`` call on."""
    calls = itertools.count(1)

    def around(original: Callable[..., Any], *given: Any, **named: Any) -> Any:
        result = original(*given, **named)
        return result + module("tensorflow").cast(1, result.dtype) if next(calls) >= first else result

    wrap(owner, name, around)


@found_as(load__gpus="wrong")
def products_become_wrong() -> None:
    _wrong_from(module("tensorflow"), "matmul", 60)


@found_as(load__links="wrong")
def copies_are_wrong() -> None:
    _wrong_from(module("tensorflow"), "identity", 20)


@found_as(load__all_reduce="wrong")
def sums_are_wrong() -> None:
    context = module("tensorflow.python.distribute.distribute_lib").ReplicaContextBase

    def around(original: Callable[..., Any], *given: Any, **named: Any) -> Any:
        return original(*given, **named) + 1.0

    wrap(context, "all_reduce", around)
