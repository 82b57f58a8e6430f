"""The first entry of `CUDA_VISIBLE_DEVICES` becomes `GPU:0`, and it is the GPU that does the work.

What it does
    Names the first two GPUs in one order and then, in another process, in the other (`0,1` and `1,0`, by their UUIDs).
    Each time it fills a tensor of 64 MiB and multiplies two matrices on `GPU:0`. Which GPU did it is taken from two
    sources: the PCI bus id in TensorFlow's `Created device` lines, and the GPU whose memory rose by NVML.
Why it matters
    TensorFlow numbers what it sees from 0: `GPU:0` is not a fixed GPU but the first entry. Anyone who takes it for GPU
    0 of `nvidia-smi` watches the wrong one, and two programs that share a machine by this variable rely on it.
What to do
    `export CUDA_VISIBLE_DEVICES=1,0` before the start, with `CUDA_DEVICE_ORDER=PCI_BUS_ID` if the cards differ. In
    Python: `os.environ['CUDA_VISIBLE_DEVICES'] = '1,0'` before the first call that lists or uses devices.
"""

from __future__ import annotations

from functools import partial

from gpudiag import fix, probe
from gpudiag.knowledge.variables import FORCE_GROWTH
from gpudiag.probe import MIB, Context, Findings, Work, fail
from gpudiag.probes.common import create_devices, work
from gpudiag.record import Record

PROBE = probe.Probe(
    needs=probe.Needs(gpus=2, free_bytes=256 * MIB),
    scope=probe.Scope.ALL_GPUS,
    exclusive=True,
    # Without growth the first tensor would take nearly all memory.
    env={FORCE_GROWTH: "true"},
)


class Fault(probe.WorkFaults):
    order_ignored = fail(
        "the order in CUDA_VISIBLE_DEVICES is ignored: GPU:0 is always {pci_bus_id}",
        means="The order in CUDA_VISIBLE_DEVICES is ignored: GPU:0 is always the same GPU.",
        do=fix.export("CUDA_VISIBLE_DEVICES", "GPU-...", "name one GPU alone; nvidia-smi -L lists them"),
    )


class MaskedGpus(Record):
    """The GPUs under one order of the mask."""

    seen: int
    """The number of GPUs that TensorFlow lists."""
    created: dict[str, str]
    """PCI bus ids of TensorFlow's devices (``GPU:0``), by its log."""
    done: Work
    """The work on ``GPU:0``."""


class Reading(probe.GpuReading):
    """The GPUs under both orders."""

    forth: MaskedGpus
    """The GPUs named in the order of ``given``."""
    back: MaskedGpus
    """The GPUs named in reverse order."""

    def figure(self) -> str:
        return f"'1,0': GPU:0 is {self.back.done.kernel.pci_bus_id}"


def measure(ctx: Context) -> Reading:
    first, second = ctx.gpus[:2]
    forth, back = (
        ctx.apart(partial(_work, ctx), MaskedGpus, {"CUDA_VISIBLE_DEVICES": ",".join(uuids)})
        for uuids in ((first.uuid, second.uuid), (second.uuid, first.uuid))
    )
    return Reading(forth, back)


def _work(ctx: Context) -> MaskedGpus:
    seen = len(ctx.list_gpus(given=2))
    ctx.tf.config.set_soft_device_placement(False)
    created = create_devices(ctx)
    return MaskedGpus(seen, created, work(ctx, "/GPU:0", created))


def judge(reading: Reading) -> Findings:
    forth, back = reading.forth, reading.back
    if forth.created == back.created:
        yield Fault.order_ignored.found(pci_bus_id=forth.created.get("GPU:0", "(not named)"))
        return
    for order, (first, second) in ((forth, reading.given[:2]), (back, reading.given[1::-1])):
        yield from order.done.verified_on(first)
        found = order.created.get("GPU:1", "(not named)")
        if found != second:
            yield Fault.other_gpu.found(device="GPU:1", found=found, expected=second)
