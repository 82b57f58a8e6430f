"""The first entry of `CUDA_VISIBLE_DEVICES` becomes `GPU:0`, and it is the GPU that does the work.

What it does
    Names the first two GPUs in one order and then, in another process, in the other (`0,1` and `1,0`, by their UUIDs).
    Each time it fills a tensor of 64 MiB and multiplies two matrices on `GPU:0`. Which GPU did it is taken from two
    sources: the PCI bus id in TensorFlow's `Created device` lines, and the GPU whose memory rose by NVML.
Why it matters
    TensorFlow numbers what it sees from 0: `GPU:0` is no fixed GPU but the first entry. Whoever takes it for GPU 0 of
    `nvidia-smi` watches the wrong one, and two programs that share a machine by this variable rely on it.
What a failure means
    `order_ignored`: `GPU:0` is the same GPU in both orders.
    `other_gpu`: a device is another GPU than the list asks for.
    `memory_elsewhere`: the tensor on `GPU:0` took memory of another GPU, or of none.
    `gpu_not_seen`, `wrong_result`: TensorFlow does not use the GPUs that it was given, or not correctly.
What to do
    `export CUDA_VISIBLE_DEVICES=1,0` before the start, with `CUDA_DEVICE_ORDER=PCI_BUS_ID` where the cards differ. In
    Python: `os.environ['CUDA_VISIBLE_DEVICES'] = '1,0'` before the first call that lists or uses devices.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from gpudiag import probe
from gpudiag.hostfacts import Facts
from gpudiag.model import Limits, Severity
from gpudiag.placement import created_devices
from gpudiag.probe import Case, Context, Judgement, Kind, Needs, Scope
from gpudiag.probes.common import (
    GPU_NOT_SEEN,
    MEMORY_ELSEWHERE,
    MIB,
    OTHER_GPU,
    WRONG_RESULT,
    Kernel,
    Work,
    judge_work,
    work,
)
from gpudiag.record import Record

PROBE = probe.Probe(
    needs=Needs(gpus=2, free_bytes=256 * MIB),
    scope=Scope.ALL_GPUS,
    exclusive=True,
    # Without growth the first tensor would take nearly all memory, and other allocators give memory back before it can
    # be measured.
    env={"TF_FORCE_GPU_ALLOW_GROWTH": "true", "TF_GPU_ALLOCATOR": None},
)

ORDER_IGNORED = Kind(
    "order_ignored",
    Severity.FAIL,
    "GPU:0 is {pci_bus_id} whichever of two GPUs CUDA_VISIBLE_DEVICES names first",
    "Name one GPU alone: export CUDA_VISIBLE_DEVICES=GPU-... (see nvidia-smi -L)",
)


class Order(Record):
    """What came of one order."""

    seen: int
    """GPUs that TensorFlow lists."""
    created: dict[str, str]
    """TensorFlow's devices (``GPU:0``) to PCI bus ids, by its log."""
    done: Work | None
    """On ``GPU:0``; None where TensorFlow lists too few GPUs."""


class Reading(probe.Reading):
    """Both orders."""

    given: tuple[str, str]
    """PCI bus ids of the two GPUs."""
    forth: Order
    """Named as in ``given``."""
    back: Order
    """Named in reverse."""

    def figure(self) -> str:
        if self.back.done is None:
            return f"TensorFlow lists {self.back.seen} of 2 GPUs"
        return f"'1,0': GPU:0 is {self.back.done.kernel.pci_bus_id}"


def measure(ctx: Context) -> Reading:
    first, second = ctx.gpus[:2]
    forth, back = (
        ctx.apart(partial(_work, ctx), Order, {"CUDA_VISIBLE_DEVICES": ",".join(uuids)})
        for uuids in ((first.uuid, second.uuid), (second.uuid, first.uuid))
    )
    return Reading((first.pci_bus_id, second.pci_bus_id), forth, back)


def _work(ctx: Context) -> Order:
    config = ctx.tf.config
    seen = len(config.list_physical_devices("GPU"))
    if seen < 2:
        return Order(seen, {}, None)
    config.set_soft_device_placement(False)
    with ctx.placements() as log:
        config.list_logical_devices("GPU")
    created = created_devices(log.lines)
    return Order(seen, created, work(ctx, "/GPU:0", created))


def judge(reading: Reading, facts: Facts, limits: Limits) -> Iterator[Judgement]:
    forth, back = reading.forth, reading.back
    if forth.done is None or back.done is None:
        yield GPU_NOT_SEEN.found(seen=min(forth.seen, back.seen), given=2)
        return
    if forth.created == back.created:
        yield ORDER_IGNORED.found(pci_bus_id=forth.created.get("GPU:0", "(not named)"))
        return
    for order, (first, second) in ((forth, reading.given), (back, reading.given[::-1])):
        if order.done is not None:
            yield from judge_work(order.done, first)
        found = order.created.get("GPU:1", "(not named)")
        if found != second:
            yield OTHER_GPU.found(device="GPU:1", found=found, expected=second)


_FIRST, _SECOND = "0000:3b:00.0", "0000:af:00.0"


def _order(first: str, second: str, *, on: str = "", correct: bool = True) -> Order:
    rose = {bus_id: 64 * MIB if bus_id == (on or first) else 0 for bus_id in (_FIRST, _SECOND)}
    return Order(2, {"GPU:0": first, "GPU:1": second}, Work(Kernel("GPU:0", first, correct), rose))


_FORTH, _BACK = _order(_FIRST, _SECOND), _order(_SECOND, _FIRST)


def _case(
    name: str, *expect: str, forth: Order = _FORTH, back: Order = _BACK, verified: tuple[str, ...] = (_FIRST, _SECOND)
) -> Case:
    return Case(name, expect, Reading((_FIRST, _SECOND), forth, back), verified=verified)


CASES = (
    _case("obeyed"),
    _case("the order ignored", ORDER_IGNORED.name, back=_FORTH, verified=()),
    _case("both exchanged", *[OTHER_GPU.name] * 4, forth=_BACK, back=_FORTH, verified=()),
    _case("one GPU twice", OTHER_GPU.name, back=_order(_SECOND, _SECOND)),
    _case("memory elsewhere", MEMORY_ELSEWHERE.name, back=_order(_SECOND, _FIRST, on=_FIRST), verified=(_FIRST,)),
    _case("a wrong product", WRONG_RESULT.name, back=_order(_SECOND, _FIRST, correct=False), verified=(_FIRST,)),
    _case("one of two", GPU_NOT_SEEN.name, back=Order(1, {}, None), verified=()),
)
