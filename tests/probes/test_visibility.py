"""The visibility probes where TensorFlow has no GPU: they must never pass there."""

from __future__ import annotations

import pytest

from far_side import ABSENT, Children, judge, kinds


@pytest.mark.parametrize(
    "probe",
    [
        "visibility.graph_import_on_device",
        "visibility.graphs_on_devices",
        "visibility.list_invalid",
        "visibility.list_remap",
        "visibility.list_session_conflict",
    ],
)
def test_not_passed_without_a_gpu(probe: str, tensorflow: Children) -> None:
    judged = judge(probe, tensorflow.measure(probe, ABSENT))
    assert kinds(judged) == ["gpu_not_seen"]
    assert judged.verified == ()
    assert judged.figure == "TensorFlow lists 0 of 1 GPUs"
