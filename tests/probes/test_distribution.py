"""The distribution probes where TensorFlow has no GPU."""

from __future__ import annotations

import pytest

from far_side import ABSENT, Children, judge, kinds

ON_GPUS = ["collective_matches", "manual_replicas", "mirrored_strategy", "reduction", "towers"]


@pytest.mark.parametrize("probe", [f"distribution.{name}" for name in ON_GPUS])
def test_not_passed_without_a_gpu(probe: str, tensorflow: Children) -> None:
    judged = judge(probe, tensorflow.measure(probe, ABSENT, ABSENT))
    assert kinds(judged) == ["gpu_not_seen"]
    assert judged.verified == ()
    assert judged.figure == "TensorFlow lists 0 of 2 GPUs"


def test_a_strategy_on_gpus_that_are_not_there(tensorflow: Children) -> None:
    judged = judge("distribution.mirrored_without_gpus", tensorflow.measure("distribution.mirrored_without_gpus"))
    assert kinds(judged) == []
    assert judged.figure == "2 replicas on CPU:0; hard: refused"
