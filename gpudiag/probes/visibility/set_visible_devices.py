"""`tf.config.set_visible_devices` keeps TensorFlow off the other GPUs, as long as the device type is given with it.

What it does
    Calls `set_visible_devices(gpus[-1], 'GPU')`, fills a tensor of 64 MiB and multiplies two matrices on what is then
    `GPU:0`, and tries `GPU:1`. NVML reports the memory in use on every GPU before and after. In two separate processes
    it passes all GPUs in reverse order, and the last GPU without the type.
Why it matters
    It is the way to choose GPUs from within a program. A GPU that is hidden only in name is used all the same; an order
    that does not count puts work on the wrong GPU; and without the type the CPU is hidden, too, and nothing works.
What to do
    `tf.config.set_visible_devices(gpus[1], 'GPU')` right after the import, with the type. To reorder GPUs, `export
    CUDA_VISIBLE_DEVICES=1,0` before the start. In v1: `tf.compat.v1.GPUOptions(visible_device_list='1')`.
"""

from __future__ import annotations

from functools import partial

from gpudiag import fix, probe
from gpudiag.knowledge.placement import created_devices
from gpudiag.knowledge.variables import FORCE_GROWTH
from gpudiag.probe import MIB, SLACK_BYTES, Context, Findings, Raised, Work, fail, note, warn
from gpudiag.probes.common import create_devices, rises, work
from gpudiag.record import Record

PROBE = probe.Probe(
    needs=probe.Needs(gpus=1, free_bytes=256 * MIB),
    scope=probe.Scope.ALL_GPUS,
    exclusive=True,
    # Without growth the first tensor would take nearly all memory.
    env={FORCE_GROWTH: "true"},
)


class Fault(probe.WorkFaults):
    hidden_used = fail(
        "{taken_bytes} were taken on {pci_bus_id}, which set_visible_devices had hidden",
        means="TensorFlow took memory on a GPU that set_visible_devices had hidden.",
        do=fix.export("CUDA_VISIBLE_DEVICES", "GPU-...", "hide it from the whole program; nvidia-smi -L lists them"),
    )
    hidden_reachable = fail(
        "with one GPU visible and soft placement off, an operation on GPU:1 was carried out on {device}",
        means="With one GPU visible and soft placement off, an operation on GPU:1 was carried out.",
        do=fix.export("CUDA_VISIBLE_DEVICES", "GPU-...", "hide GPUs from the whole program; nvidia-smi -L lists them"),
    )
    order_kept = note(
        "set_visible_devices with the GPUs in reverse made GPU:0 the GPU {pci_bus_id}; TensorFlow 2.21 ignores order",
        means="set_visible_devices with the GPUs in reverse changed their numbers; TensorFlow 2.21 ignores the order.",
        do=fix.export("CUDA_VISIBLE_DEVICES", "1,0", "before the start: an order that counts in every release"),
    )
    cpu_kept = note(
        "set_visible_devices without the device type left the CPU visible; TensorFlow 2.21 hides it and fails",
        do=fix.edit("tf.config.set_visible_devices(gpus[0], 'GPU')", "always give the type"),
    )
    other_error = warn(
        "set_visible_devices without the device type ended in {error}, not in NotFoundError",
        means="set_visible_devices without the device type ended in another error than NotFoundError.",
        do=fix.edit("tf.config.set_visible_devices(gpus[0], 'GPU')", "give the type"),
    )


class Created(Record):
    """The devices that TensorFlow created."""

    bus_ids: dict[str, str]
    """PCI bus ids by device name (``GPU:0``), from TensorFlow's log."""
    raised: Raised | None
    """The error of creating the devices."""


class Chosen(Record):
    """The effect of choosing the last GPU."""

    done: Work
    """The work on ``GPU:0``."""
    rose: dict[str, int]
    """The total increase of memory in bytes on each GPU (PCI bus id), contexts included."""
    beyond: str
    """The device that executed an operation placed on ``GPU:1``; empty if it was refused."""


class Reading(probe.GpuReading):
    """The GPUs that were visible, and those that were used."""

    reordered: Created
    """The devices made with all GPUs in reverse order."""
    untyped: Created
    """The devices made with the last GPU and no type."""
    chosen: Chosen

    def figure(self) -> str:
        touched = sum(rise > SLACK_BYTES for rise in self.chosen.rose.values())
        return f"1 of {len(self.given)} chosen, {touched} used"


def measure(ctx: Context) -> Reading:
    reordered = ctx.apart(partial(_create, ctx, slice(None, None, -1), "GPU"), Created, {})
    untyped = ctx.apart(partial(_create, ctx, slice(-1, None), None), Created, {})
    ctx.list_gpus()
    return Reading(reordered, untyped, _choose(ctx))


def _create(ctx: Context, chosen: slice, device_type: str | None) -> Created:
    config = ctx.tf.config
    gpus = config.list_physical_devices("GPU")[chosen]
    raised = ctx.attempt(lambda: config.set_visible_devices(gpus, device_type))
    with ctx.placements() as log:
        raised = raised or ctx.attempt(lambda: config.list_logical_devices("GPU"))
    return Created(created_devices(log.lines), raised)


def _choose(ctx: Context) -> Chosen:
    tf = ctx.tf
    done: list[Work] = []
    beyond: list[str] = []

    def compute() -> None:
        with tf.device("/GPU:1"):
            beyond.append(tf.zeros([1]).device)

    def choose() -> None:
        tf.config.set_visible_devices(tf.config.list_physical_devices("GPU")[-1], "GPU")
        tf.config.set_soft_device_placement(False)
        done.append(work(ctx, "/GPU:0", create_devices(ctx)))
        ctx.attempt(compute)

    rose = rises(ctx, choose)
    return Chosen(done[0], rose, "".join(beyond))


def judge(reading: Reading) -> Findings:
    chosen, reordered, untyped = reading.chosen, reading.reordered, reading.untyped
    *hidden, visible = reading.given
    yield from chosen.done.verified_on(visible)
    for pci_bus_id in hidden:
        if chosen.rose[pci_bus_id] > SLACK_BYTES:
            yield Fault.hidden_used.found(taken_bytes=chosen.rose[pci_bus_id], pci_bus_id=pci_bus_id)
    if chosen.beyond:
        yield Fault.hidden_reachable.found(device=chosen.beyond)
    if hidden and reordered.bus_ids.get("GPU:0") == visible:
        yield Fault.order_kept.found(pci_bus_id=visible)
    if untyped.raised is None:
        yield Fault.cpu_kept.found()
    elif untyped.raised.type != "NotFoundError":
        yield Fault.other_error.found(error=untyped.raised.brief)
