"""`tf.config.set_visible_devices` keeps TensorFlow off the other GPUs, as long as the device type is given with it.

What it does
    Calls `set_visible_devices(gpus[-1], 'GPU')`, fills a tensor of 64 MiB and multiplies two matrices on what is then
    `GPU:0`, and tries `GPU:1`. NVML tells the memory in use on every GPU before and after. In two processes of their
    own it hands over all GPUs in reverse order, and the last GPU without the type.
Why it matters
    It is the way to choose GPUs from within a program. A GPU that is hidden only in name is used all the same; an order
    that does not count puts work on the wrong GPU; and without the type the CPU is hidden, too, and nothing works.
What a failure means
    `hidden_used`: memory was taken on a GPU that was hidden.
    `hidden_reachable`: an operation on a device number that should not exist was carried out.
    `other_gpu`, `memory_elsewhere`: `GPU:0` is not the GPU that was chosen, or its memory was taken elsewhere.
    `order_kept`: the order of the list counts in this TensorFlow; in 2.21 it does not.
    `cpu_kept`: without the type this TensorFlow keeps the CPU visible; in 2.21 it hides it.
    `other_error`: without the type TensorFlow fails, with another error than the one known.
    `gpu_not_seen`, `wrong_result`: TensorFlow does not use the GPUs that it was given, or not correctly.
What to do
    `tf.config.set_visible_devices(gpus[1], 'GPU')` right after the import, with the type. To reorder GPUs, `export
    CUDA_VISIBLE_DEVICES=1,0` before the start. In v1: `tf.compat.v1.GPUOptions(visible_device_list='1')`.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from gpudiag import probe
from gpudiag.hostfacts import Facts
from gpudiag.model import Limits, Severity
from gpudiag.placement import created_devices
from gpudiag.probe import Case, Context, Judgement, Kind, Needs, Raised, Scope
from gpudiag.probes.common import (
    GPU_NOT_SEEN,
    MEMORY_ELSEWHERE,
    MIB,
    OTHER_GPU,
    SLACK_BYTES,
    WRONG_RESULT,
    Kernel,
    Work,
    judge_work,
    refuse_disturbance,
    taken,
    work,
)
from gpudiag.record import Record

PROBE = probe.Probe(
    needs=Needs(gpus=1, free_bytes=256 * MIB),
    scope=Scope.ALL_GPUS,
    exclusive=True,
    # Without growth the first tensor would take nearly all memory, and other allocators give memory back before it can
    # be measured.
    env={"TF_FORCE_GPU_ALLOW_GROWTH": "true", "TF_GPU_ALLOCATOR": None},
)

HIDDEN_USED = Kind(
    "hidden_used",
    Severity.FAIL,
    "{taken_mib:.0f} MiB were taken on {pci_bus_id}, which set_visible_devices had hidden",
    "Hide it from the whole program: export CUDA_VISIBLE_DEVICES=GPU-... (see nvidia-smi -L)",
)
HIDDEN_REACHABLE = Kind(
    "hidden_reachable",
    Severity.FAIL,
    "with one GPU visible and soft placement off, an operation on GPU:1 was carried out on {device}",
    "Hide GPUs from the whole program: export CUDA_VISIBLE_DEVICES=GPU-... (see nvidia-smi -L)",
)
ORDER_KEPT = Kind(
    "order_kept",
    Severity.NOTE,
    "set_visible_devices with the GPUs in reverse made GPU:0 the GPU {pci_bus_id}; TensorFlow 2.21 ignores the order",
    "For an order that counts in every release: export CUDA_VISIBLE_DEVICES=1,0 before the start.",
)
CPU_KEPT = Kind(
    "cpu_kept",
    Severity.NOTE,
    "set_visible_devices without the device type left the CPU visible; TensorFlow 2.21 hides it and fails",
    "Give the type all the same: tf.config.set_visible_devices(gpus[0], 'GPU')",
)
OTHER_ERROR = Kind(
    "other_error",
    Severity.WARNING,
    "set_visible_devices without the device type ended in {error}, not in NotFoundError",
    "Give the type: tf.config.set_visible_devices(gpus[0], 'GPU')",
)


class Created(Record):
    """TensorFlow's devices."""

    bus_ids: dict[str, str]
    """Name (``GPU:0``) to PCI bus id, by TensorFlow's log."""
    raised: Raised | None
    """What creating the devices raised."""


class Chosen(Record):
    """What came of choosing the last GPU."""

    done: Work
    """On ``GPU:0``."""
    rose: dict[str, int]
    """By how many bytes the memory of each GPU (PCI bus id) rose in all, contexts included."""
    beyond: str
    """The device on which an operation for ``GPU:1`` was carried out; empty where it was refused."""


class Reading(probe.Reading):
    """What was visible, and what was used."""

    given: tuple[str, ...]
    """PCI bus ids of the GPUs that the probe was given, in the order of ``CUDA_VISIBLE_DEVICES``."""
    seen: int
    """GPUs that TensorFlow lists."""
    reordered: Created | None
    """With all GPUs in reverse order."""
    untyped: Created | None
    """With the last GPU, the type left out."""
    chosen: Chosen | None
    """None, as those above, where TensorFlow lists too few GPUs."""

    def figure(self) -> str:
        if self.chosen is None:
            return f"TensorFlow lists {self.seen} of {len(self.given)} GPUs"
        touched = sum(rise > SLACK_BYTES for rise in self.chosen.rose.values())
        return f"1 of {len(self.given)} chosen, {touched} used"


def measure(ctx: Context) -> Reading:
    given = tuple(gpu.pci_bus_id for gpu in ctx.gpus)
    reordered = ctx.apart(partial(_create, ctx, slice(None, None, -1), "GPU"), Created, {})
    untyped = ctx.apart(partial(_create, ctx, slice(-1, None), None), Created, {})
    config = ctx.tf.config
    seen = len(config.list_physical_devices("GPU"))
    if seen < len(given):
        return Reading(given, seen, None, None, None)
    return Reading(given, seen, reordered, untyped, _choose(ctx))


def _create(ctx: Context, chosen: slice, device_type: str | None) -> Created:
    config = ctx.tf.config
    config.set_visible_devices(config.list_physical_devices("GPU")[chosen], device_type)
    with ctx.placements() as log:
        raised = ctx.attempt(lambda: config.list_logical_devices("GPU"))
    return Created(created_devices(log.lines), raised)


def _choose(ctx: Context) -> Chosen:
    tf = ctx.tf
    before = [ctx.memory(gpu) for gpu in ctx.gpus]
    tf.config.set_visible_devices(tf.config.list_physical_devices("GPU")[-1], "GPU")
    tf.config.set_soft_device_placement(False)
    with ctx.placements() as log:
        tf.config.list_logical_devices("GPU")
    done = work(ctx, "/GPU:0", created_devices(log.lines))
    beyond: list[str] = []

    def compute() -> None:
        with tf.device("/GPU:1"):
            beyond.append(tf.zeros([1]).device)

    ctx.attempt(compute)
    after = [ctx.memory(gpu) for gpu in ctx.gpus]
    for earlier, later in zip(before, after, strict=True):
        refuse_disturbance(earlier, later)
    rose = {gpu.pci_bus_id: taken(*both) for gpu, *both in zip(ctx.gpus, before, after, strict=True)}
    return Chosen(done, rose, "".join(beyond))


def judge(reading: Reading, facts: Facts, limits: Limits) -> Iterator[Judgement]:
    chosen, reordered, untyped = reading.chosen, reading.reordered, reading.untyped
    if chosen is None or reordered is None or untyped is None:
        yield GPU_NOT_SEEN.found(seen=reading.seen, given=len(reading.given))
        return
    *hidden, visible = reading.given
    yield from judge_work(chosen.done, visible)
    for pci_bus_id in hidden:
        if chosen.rose[pci_bus_id] > SLACK_BYTES:
            yield HIDDEN_USED.found(taken_mib=chosen.rose[pci_bus_id] / MIB, pci_bus_id=pci_bus_id)
    if chosen.beyond:
        yield HIDDEN_REACHABLE.found(device=chosen.beyond)
    if hidden and reordered.bus_ids.get("GPU:0") == visible:
        yield ORDER_KEPT.found(pci_bus_id=visible)
    if untyped.raised is None:
        yield CPU_KEPT.found()
    elif untyped.raised.type != "NotFoundError":
        yield OTHER_ERROR.found(error=untyped.raised.brief)


_FIRST, _SECOND = "0000:3b:00.0", "0000:af:00.0"
_NO_CPU = Raised("NotFoundError", "No CPU devices are available in this process")
_IN_ORDER = Created({"GPU:0": _FIRST, "GPU:1": _SECOND}, None)
_REVERSED = Created({"GPU:0": _SECOND, "GPU:1": _FIRST}, None)


def _case(
    name: str,
    *expect: str,
    device: str = _SECOND,
    on: str = _SECOND,
    correct: bool = True,
    hidden_mib: int = 0,
    beyond: str = "",
    reordered: Created = _IN_ORDER,
    untyped: Raised | None = _NO_CPU,
    verified: tuple[str, ...] = (_SECOND,),
) -> Case:
    rose = {bus_id: 64 * MIB if bus_id == on else 0 for bus_id in (_FIRST, _SECOND)}
    in_all = {_FIRST: hidden_mib * MIB, _SECOND: 500 * MIB}
    chosen = Chosen(Work(Kernel("GPU:0", device, correct), rose), in_all, beyond)
    return Case(name, expect, Reading((_FIRST, _SECOND), 2, reordered, Created({}, untyped), chosen), verified=verified)


CASES = (
    _case("one of two"),
    Case(
        "one of one",
        (),
        Reading(
            (_FIRST,),
            1,
            Created({"GPU:0": _FIRST}, None),
            Created({}, _NO_CPU),
            Chosen(Work(Kernel("GPU:0", _FIRST, True), {_FIRST: 64 * MIB}), {_FIRST: 500 * MIB}, ""),
        ),
        verified=(_FIRST,),
    ),
    _case("a context on the hidden GPU", HIDDEN_USED.name, hidden_mib=400),
    _case("a second device", HIDDEN_REACHABLE.name, beyond="GPU:1"),
    _case("another GPU", OTHER_GPU.name, device=_FIRST, verified=()),
    _case("memory elsewhere", MEMORY_ELSEWHERE.name, on=_FIRST, verified=()),
    _case("a wrong product", WRONG_RESULT.name, correct=False, verified=()),
    _case("the order counts", ORDER_KEPT.name, reordered=_REVERSED),
    _case("the CPU stays", CPU_KEPT.name, untyped=None),
    _case("another error", OTHER_ERROR.name, untyped=Raised("RuntimeError", "no CPU")),
    Case("TensorFlow lists one", (GPU_NOT_SEEN.name,), Reading((_FIRST, _SECOND), 1, None, None, None)),
)
