"""The probes of discovery and of masks where TensorFlow has no GPU: they must never pass there."""

from __future__ import annotations

import pytest

from far_side import ABSENT, Children, judge, kinds
from gpudiag.knowledge.cuda_code import code_for

BUILT = ("sm_60", "sm_70", "sm_80", "sm_89", "compute_90")


@pytest.mark.parametrize(
    ("probe", "expected"),
    [
        ("discovery.device_details", "gpu_not_seen"),
        ("discovery.device_order", "gpu_not_seen"),
        ("discovery.first_op", "gpu_not_seen"),
        ("discovery.logical_devices", "gpu_not_seen"),
        ("discovery.physical_devices", "fewer_listed"),
        ("visibility.mask", "gpu_not_seen"),
        ("visibility.mask_too_late", "gpu_not_seen"),
        ("visibility.set_visible_devices", "gpu_not_seen"),
    ],
)
def test_not_passed_without_a_gpu(probe: str, expected: str, tensorflow: Children) -> None:
    judged = judge(probe, tensorflow.measure(probe, ABSENT))
    assert expected in kinds(judged)
    assert judged.verified == ()
    assert judged.figure


def test_not_passed_without_two_gpus(tensorflow: Children) -> None:
    judged = judge("visibility.mask_order", tensorflow.measure("visibility.mask_order", ABSENT, ABSENT))
    assert kinds(judged) == ["gpu_not_seen"]


@pytest.mark.parametrize(
    ("capability", "built", "machine_code", "ptx"),
    [
        ("6.1", BUILT, True, False),
        ("7.5", BUILT, True, False),
        ("8.6", BUILT, True, False),
        ("9.0", BUILT, True, True),
        ("10.0", BUILT, False, True),
        ("12.0", BUILT, False, True),
        ("5.2", BUILT, False, False),
        ("9.0", ("sm_90a",), True, False),
        ("10.0", ("sm_90a", "compute_90a"), False, False),
        ("10.3", ("sm_100",), True, False),
        ("8.0", ("sm_86",), False, False),
        ("8.0", ("a text nobody knows",), False, False),
    ],
)
def test_which_code_runs_on_a_gpu(capability: str, built: tuple[str, ...], machine_code: bool, ptx: bool) -> None:
    assert code_for(capability, built) == (machine_code, ptx)
