"""The probes of limits and of GPUs that are shared, where TensorFlow has no GPU; and what their parsing rests on."""

from __future__ import annotations

import pytest

from far_side import ABSENT, Children, judge, kinds
from gpudiag.probes.common import ceilings_mib

CREATED = (
    "I0000 00:00:1795261969.855715   16035 gpu_device.cc:2043] Created device /job:localhost/replica:0/task:0/"
    "device:GPU:{number} with {mb} MB memory:  -> device: 0, name: NVIDIA A100, pci bus id: 0000:01:00.0, "
    "compute capability: 8.0"
)


@pytest.mark.parametrize("probe", ["memory.limit", "memory.limits_overcommitted", "memory.several_models"])
def test_not_passed_without_a_gpu(probe: str, tensorflow: Children) -> None:
    judged = judge(probe, tensorflow.measure(probe, ABSENT))
    assert kinds(judged) == ["gpu_not_seen"]
    assert judged.verified == ()
    assert judged.figure == "TensorFlow lists 0 of 1 GPUs"


def test_ceilings_are_read_from_the_log() -> None:
    lines = [CREATED.format(number=number, mb=mb) for number, mb in ((0, 64), (1, 14448))]
    assert ceilings_mib(["Created device", *lines]) == {"GPU:0": 64, "GPU:1": 14448}
