"""All memory that TensorFlow may take of a GPU can be allocated, keeps what is written to it, and is given back.

What it does
    In a separate process, lets TensorFlow take all that it may take by default, at once, and checks by CUDA's answer in
    the log and by NVML's number whether it got all. Then it fills the memory with random numbers, another pattern for
    each part, computed by the GPU itself, and compares all parts only when all are written: an address that leads to
    the memory of another one is found. After 3 s of writing, or 9 s of reading, the rest is left out. When the process
    has ended, the memory must be free again. A simulated GPU has the computer's memory: 8 MiB are written there, spread
    over all. A GPU whose memory NVML does not report may share the computer's: it is not filled.
Why it matters
    Every other probe takes a few hundred MiB. A GPU that refuses a large allocation, or whose upper memory is faulty,
    passes them all, and fails the first large model.
What to do
    Look for errors of the memory: `nvidia-smi -q -d ECC,ROW_REMAPPER` and `dmesg | grep Xid`. If something else holds
    memory, `nvidia-smi` names it. To use less, `tf.config.set_logical_device_configuration(gpu,
    [tf.config.LogicalDeviceConfiguration(memory_limit=4096)])`.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from functools import partial
from typing import Any

from gpudiag import fix, probe
from gpudiag.knowledge.placement import created_devices
from gpudiag.model.facts import Facts
from gpudiag.model.report import Gap, Limit
from gpudiag.probe import MIB, SEE_THE_CAUSE, SLACK_BYTES, Context, Findings, Kernel, MemoryUse, Raised, fail, mib, warn
from gpudiag.probes.common import MATRIX, ceilings_mib, is_partitioned, without_allocation_retry
from gpudiag.record import Record

PROBE = probe.Probe(
    needs=probe.Needs(gpus=1, known_memory=True),
    scope=probe.Scope.EACH_GPU,
    exclusive=True,
    # With it Empty, which spreads the parts, takes the computer's memory, whatever tf.device says (measured, 2.21).
    env={"TF_EAGER_ENABLE_SMALL_TENSOR_CPU_PINNING": None},
)


class Fault(probe.KernelFaults):
    refused = fail(
        "TensorFlow may take {ceiling_bytes} and CUDA refused {refused_bytes} at once; it gave {allocated_bytes}",
        means="NVML and CUDA report the memory as free, and CUDA does not give it out in one piece.",
        do=(fix.nvidia_smi("see what else holds memory of this GPU"), probe.KERNEL_LOG),
    )
    not_taken = warn(
        "TensorFlow may take {ceiling_bytes}; by NVML the first tensor took {allocated_bytes}",
        means="TensorFlow took less than it may, and CUDA refused nothing: what was not taken was not verified.",
        do="Look for code that sets memory growth at every start of Python: sitecustomize.py",
    )
    corrupted = fail(
        "{wrong_parts} of {read_parts} parts of {part_bytes} came back other than they were written",
        means="The memory of this GPU does not keep what is written to it, or two addresses lead to the same memory.",
        do=fix.check(
            "nvidia-smi -q -d ECC,ROW_REMAPPER; dmesg | grep Xid", "trust no result of this GPU. Look for its errors"
        ),
    )
    raised = fail(
        "with {written_bytes} written, writing or reading its memory raised {error}",
        means="The GPU reported an error while its memory was used.",
        do=SEE_THE_CAUSE,
    )
    not_given_back = warn(
        "{kept_bytes} stay in use after the process that took them has ended",
        means="Memory stays in use after the process that took it has ended.",
        do=fix.run(
            "sudo nvidia-smi --gpu-reset", "if nvidia-smi names no process that holds it", kind=fix.Kind.RESET_GPU
        ),
    )


WRITE_S, READ_S = 3.0, 9.0
PART_BYTES = 128 * MIB
SIMULATED_BYTES, SIMULATED_PART_BYTES = 8 * MIB, 2 * MIB
MOST_SHARE = 1 / 16
"""The largest share of the memory for one part: reading needs room for another two."""
UNSPLIT_BYTES = 128 * MIB
"""TensorFlow's pool gives a tensor a whole free piece if that is larger by less than this (kMaxInternalFragmentation,
2.21)."""
FREED_S = 5.0
"""Time limit for the driver to free the memory of a process that has ended."""
_REFUSED = re.compile(r"failed to allocate .{0,40}\((\d+) bytes\) from device")


class ProcessMemory(Record):
    """A process's use of the memory of a GPU."""

    ceiling_bytes: int
    """The most that TensorFlow may take, by its ``Created device`` line."""
    refused_bytes: int
    """The largest size that CUDA refused, by TensorFlow's log; 0 if it refused none."""
    before: MemoryUse
    """Memory before TensorFlow made its device."""
    made: MemoryUse
    """Memory before the first tensor."""
    first: MemoryUse
    """Memory after the first tensor, for which TensorFlow takes all that it may."""
    part_bytes: int
    planned_bytes: int
    """The bytes planned for writing: all but what reading needs, and fewer on a simulated GPU."""
    written_bytes: int
    read_bytes: int
    """How many of the written bytes were read back and compared."""
    wrong: tuple[int, ...]
    """The numbers of the parts that came back changed."""
    raised: Raised | None
    """The error that writing or reading raised; nothing was compared after it."""
    kernel: Kernel | None
    """A matrix product; None if anything raised."""

    @property
    def allocated_bytes(self) -> int:
        """The bytes that TensorFlow took, at most its ceiling: NVML also counts memory beside the pool."""
        return min(self.first - self.made, self.ceiling_bytes)


class Reading(probe.GpuReading):
    """The memory that was allocated, written and read back."""

    simulated: bool
    use: ProcessMemory
    after: MemoryUse
    """Memory after the process ended."""

    def figure(self) -> str:
        use = self.use
        allocated = f"{_gib(use.allocated_bytes)} of {_gib(use.ceiling_bytes)} GiB allocated"
        return f"{allocated}, {size(use.read_bytes)} written and read back{self._bound()}"

    def _bound(self) -> str:
        return " (simulated: the computer's memory)" if self.simulated else ""

    def gaps(self) -> tuple[Gap, ...]:
        rest = self.use.ceiling_bytes - self.use.read_bytes
        why = "of a simulated GPU, which has the computer's memory" if self.simulated else self._why_not_all()
        return (Gap(f"{_gib(rest)} of {_gib(self.use.ceiling_bytes)} GiB of memory", why),) if rest > 0 else ()

    def _why_not_all(self) -> str:
        use = self.use
        if use.written_bytes < use.planned_bytes:
            return f"{WRITE_S:g} s of writing had passed"
        if use.read_bytes < use.written_bytes and not use.raised:
            return f"{READ_S:g} s of reading had passed"
        return "the comparison itself takes memory"

    def limits(self) -> tuple[Limit, ...]:
        return (self.use.made.plus("all that TensorFlow may take", self.use.ceiling_bytes),)


def _gib(number: int) -> str:
    return f"{number / (1 << 30):.1f}"


def size(number: int) -> str:
    """Return a number of bytes in GiB, or in MiB if it is less than one."""
    return f"{_gib(number)} GiB" if number >= 1 << 30 else mib(number)


def measure(ctx: Context) -> Reading:
    gpu = ctx.gpus[0]
    use = ctx.apart(partial(_use, ctx), ProcessMemory, {})
    until = time.monotonic() + FREED_S
    while (after := ctx.memory(gpu)) - use.before > SLACK_BYTES and time.monotonic() < until:
        time.sleep(0.05)
    return Reading(gpu.simulated, use, after)


def _use(ctx: Context) -> ProcessMemory:
    tf = ctx.tf
    without_allocation_retry(ctx)
    ctx.list_gpus()
    tf.config.set_soft_device_placement(False)
    with ctx.watch(ctx.gpus[0]) as memory:
        before = memory()
        with ctx.placements() as log:
            tf.config.list_logical_devices("GPU")
            made = memory()
            with tf.device("GPU:0"):
                matrix = tf.identity(tf.constant(MATRIX))
            first = memory()
        ceiling = ceilings_mib(log.lines).get("GPU:0", 0) * MIB
        refused = max((int(found[1]) for line in log.lines if (found := _REFUSED.search(line))), default=0)
        with tf.device("GPU:0"):
            pattern = TestPattern(ctx, min(first - made, ceiling))
            raised = ctx.attempt(pattern.write) or ctx.attempt(pattern.compare)
            # Not before: the matrix library takes its own memory beside the pool.
            kernel = None if raised else ctx.verify(tf.matmul(matrix, matrix), created_devices(log.lines))
    part = pattern.part_bytes
    sizes = (part, part * pattern.count, part * len(pattern.parts), part * pattern.compared)
    return ProcessMemory(ceiling, refused, before, made, first, *sizes, tuple(pattern.wrong), raised, kernel)


class TestPattern:
    """Random numbers in parts of a GPU's memory, spread over all of it."""

    def __init__(self, ctx: Context, pool_bytes: int) -> None:
        self._tf = ctx.tf
        simulated = ctx.gpus[0].simulated
        most = SIMULATED_PART_BYTES if simulated else PART_BYTES
        self.part_bytes = max(8, int(min(most, pool_bytes * MOST_SHARE)) // 8 * 8)
        room = pool_bytes - 3 * self.part_bytes
        self.count = max(0, min(room, SIMULATED_BYTES) if simulated else room) // self.part_bytes
        self._gap_bytes = max(0, room - UNSPLIT_BYTES - self.count * self.part_bytes) // max(1, self.count - 1)
        self.parts: list[Any] = []
        self.compared = 0
        self.wrong: list[int] = []

    def _numbers(self, part: int) -> Any:
        return self._tf.raw_ops.StatelessRandomUniformFullInt(
            shape=[self.part_bytes // 8], seed=[part, self.count], dtype=self._tf.int64
        )

    def write(self) -> None:
        """Write the parts until all are written or the time is up."""
        gaps = []  # memory that is given out and not touched
        for part in self._in_time(range(self.count), WRITE_S):
            if part and self._gap_bytes > self.part_bytes:
                shape = [self._gap_bytes // MIB, MIB // 8]  # a dimension has 31 bits
                gaps.append(self._tf.raw_ops.Empty(shape=shape, dtype=self._tf.int64))
            self.parts.append(self._numbers(part))
            self._tf.test.experimental.sync_devices()

    def compare(self) -> None:
        """Compute the numbers again and compare until all are compared or the time is up."""
        tf = self._tf
        for part in self._in_time(range(len(self.parts)), READ_S):
            if not bool(tf.reduce_all(tf.equal(self.parts[part], self._numbers(part)))):
                self.wrong.append(part)
            self.compared += 1

    @staticmethod
    def _in_time(parts: range, seconds: float) -> Iterator[int]:
        until = time.monotonic() + seconds
        for part in parts:
            if time.monotonic() >= until:
                return
            yield part


def judge(reading: Reading, facts: Facts) -> Findings:
    use, gpu = reading.use, reading.given[0]
    figures = {"ceiling_bytes": use.ceiling_bytes, "allocated_bytes": use.allocated_bytes}
    if use.refused_bytes:
        yield Fault.refused.found(**figures, refused_bytes=use.refused_bytes)
    elif use.allocated_bytes < use.ceiling_bytes - SLACK_BYTES and not is_partitioned(facts, gpu):
        yield Fault.not_taken.found(**figures)
    if use.wrong:
        read = use.read_bytes // use.part_bytes
        yield Fault.corrupted.found(wrong_parts=len(use.wrong), read_parts=read, part_bytes=use.part_bytes)
    if use.raised:
        yield Fault.raised.found(written_bytes=use.written_bytes, error=use.raised.brief)
    kept = reading.after - use.before
    if kept > SLACK_BYTES and not is_partitioned(facts, gpu):
        yield Fault.not_given_back.found(kept_bytes=kept)
    if use.kernel and not use.wrong:
        yield from use.kernel.verified_on(gpu)
