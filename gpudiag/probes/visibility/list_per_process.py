"""Processes at the same time may each have their own `visible_device_list`.

What it does
    Two processes, alive at the same time, each open a `tf.compat.v1.Session`: one with `visible_device_list="0"`, the
    other with `1`. Each computes a matrix product on its `GPU:0` and fills a tensor of 64 MiB there. Which GPU that is
    is taken from two sources: the PCI bus id in TensorFlow's `Created device` line, and the GPU whose memory rose by
    NVML.
Why it matters
    Within a process a second list is refused (visibility.list_session_conflict). Workers that each pick a GPU by list
    are the common way around it, and if the list of one has no effect two workers share a GPU while another is idle.
What to do
    Start each worker as a separate process, not by `fork` after TensorFlow listed a GPU, and set its list in its
    first session: `GPUOptions(visible_device_list=str(rank))`. Better, let it see no other GPU:
    `os.environ["CUDA_VISIBLE_DEVICES"] = str(rank)` before TensorFlow lists GPUs.
"""

from __future__ import annotations

import msgspec

from gpudiag import probe
from gpudiag.knowledge.variables import FORCE_GROWTH
from gpudiag.probe import FILLED_BYTES, MIB, Context, FewerListed, Findings, Work
from gpudiag.probes.common import GraphProgram, rises

PROBE = probe.Probe(
    needs=probe.Needs(gpus=2, free_bytes=256 * MIB),
    scope=probe.Scope.ALL_GPUS,
    exclusive=True,
    # The list is under test. Without growth the session would take nearly all memory of its GPU.
    env={FORCE_GROWTH: "true"},
)


class Fault(probe.WorkFaults):
    """The findings of this probe."""


class Reading(probe.GpuReading):
    """The work of each process."""

    processes: tuple[Work, Work]
    """The work of the process with the list ``0``, and of the process with the list ``1``."""

    def figure(self) -> str:
        return ", ".join(f"'{number}' is {work.kernel.pci_bus_id}" for number, work in enumerate(self.processes))


def measure(ctx: Context) -> Reading:
    return Reading(_worker(ctx, 0))


def peer(ctx: Context) -> None:
    _worker(ctx, 1)


def _worker(ctx: Context, number: int) -> tuple[Work, Work]:
    """Return the work of this process under the list ``number``, and the work of the other process."""
    seen = len(ctx.tf.config.list_physical_devices("GPU"))
    seen = min(seen, ctx.peer.meet("listed", seen))
    if seen < len(ctx.gpus):
        raise FewerListed(seen)
    program = GraphProgram(ctx)
    with program.session(ctx.tf.compat.v1.GPUOptions(visible_device_list=str(number))):
        kernel = program.multiply()
        ctx.peer.meet("computed")
        # One after the other: what rises meanwhile is this process's own.
        if number == 1:
            ctx.peer.meet("filled 0")
        own = Work(kernel, rises(ctx, lambda: program.fill(FILLED_BYTES)))
        if number == 0:
            ctx.peer.meet("filled 0")
        others = msgspec.convert(ctx.peer.meet("filled 1", msgspec.to_builtins(own)), Work)
    return own, others


def judge(reading: Reading) -> Findings:
    for work, expected in zip(reading.processes, reading.given, strict=False):
        yield from work.verified_on(expected)
