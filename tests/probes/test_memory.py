"""What the memory probes rest on: TensorFlow's log, and memory that others change."""

from __future__ import annotations

import pytest

from gpudiag.errors import Disturbed
from gpudiag.probe import MIB, MemoryUse, refuse_disturbance
from gpudiag.probes.common import ceilings_mib

CREATED = (
    "I0000 00:00:1795261969.855715   16035 gpu_device.cc:2043] Created device /job:localhost/replica:0/task:0/"
    "device:GPU:{number} with {mb} MB memory:  -> device: 0, name: NVIDIA A100, pci bus id: 0000:01:00.0, "
    "compute capability: 8.0"
)


def test_ceilings_are_read_from_the_log() -> None:
    lines = [CREATED.format(number=number, mb=mb) for number, mb in ((0, 64), (1, 14448))]
    assert ceilings_mib(["Created device", *lines]) == {"GPU:0": 64, "GPU:1": 14448}


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
