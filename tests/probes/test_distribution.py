"""The distribution probe of GPUs that are not there."""

from __future__ import annotations

from far_side import Children, judge, kinds


def test_a_strategy_on_gpus_that_are_not_there(tensorflow: Children) -> None:
    judged = judge("distribution.mirrored_without_gpus", tensorflow.measure("distribution.mirrored_without_gpus"))
    assert kinds(judged) == []
    assert judged.figure == "2 replicas on CPU:0; hard: refused"
