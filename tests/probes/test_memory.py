"""The memory probes where TensorFlow has no GPU, and memory that others change."""

from __future__ import annotations

import pytest

from far_side import ABSENT, Children, judge, kinds
from gpudiag.errors import Disturbed
from gpudiag.probe import MIB, MemoryUse, refuse_disturbance
from gpudiag.probes.common import ceilings_mib


@pytest.mark.parametrize(
    "probe",
    [
        "memory.default_takes_all",
        "memory.fraction",
        "memory.fraction_above_one",
        "memory.growth",
        "memory.growth_forced",
        "memory.growth_lost",
        "memory.growth_with_fraction",
    ],
)
def test_not_passed_without_a_gpu(probe: str, tensorflow: Children) -> None:
    judged = judge(probe, tensorflow.measure(probe, ABSENT))
    assert kinds(judged) == ["gpu_not_seen"]
    assert judged.verified == ()
    assert judged.figure == "TensorFlow lists 0 of 1 GPUs"


@pytest.mark.parametrize("probe", ["memory.growth_mismatch", "memory.idle_gpu_taken"])
def test_not_passed_without_two_gpus(probe: str, tensorflow: Children) -> None:
    judged = judge(probe, tensorflow.measure(probe, ABSENT, ABSENT))
    assert kinds(judged) == ["gpu_not_seen"]
    assert judged.verified == ()
    assert judged.figure == "TensorFlow lists 0 of 2 GPUs"


def test_the_ceiling_is_read_from_what_tensorflow_says() -> None:
    line = "I gpu_device.cc] Created device /job:localhost/replica:0/task:0/device:GPU:1 with 14448 MB memory:  -> "
    assert ceilings_mib([line, "Created device CPU:0"]) == {"GPU:1": 14448}


def use(used_mib: int, own_mib: int | None) -> MemoryUse:
    return MemoryUse(used_mib * MIB, None if own_mib is None else own_mib * MIB)


def test_memory_taken_is_the_difference_of_the_device() -> None:
    assert use(1256, None) - use(1000, None) == 256 * MIB


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (use(1000, 400), use(1256, 656)),
        (use(1000, 400), use(1258, 656)),
        (use(1000, None), use(1900, None)),
        (use(1000, 400), use(1256, None)),
    ],
    ids=["all of it ours", "a little of it theirs", "not known whose", "not known any more whose"],
)
def test_memory_that_only_this_process_took(before: MemoryUse, after: MemoryUse) -> None:
    refuse_disturbance(before, before, after)


@pytest.mark.parametrize(
    ("before", "after", "mib"),
    [
        (use(1000, 400), use(1756, 656), "500"),
        (use(1000, 400), use(756, 656), "-500"),
        (use(1000, None), use(700, None), "-300"),
    ],
    ids=["another took", "another gave back", "fell"],
)
def test_memory_that_another_process_changed(before: MemoryUse, after: MemoryUse, mib: str) -> None:
    with pytest.raises(Disturbed, match=f"by {mib} MiB"):
        refuse_disturbance(before, before, after)
