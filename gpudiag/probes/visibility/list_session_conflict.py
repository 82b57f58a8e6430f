"""The GPU options of the first session hold for the whole process: another `visible_device_list` is refused.

What it does
    Opens a `tf.compat.v1.Session` on `visible_device_list="0"` that grows up to 128 MiB, and another with the list `1`:
    once beside the first, once after it was closed. Beside the first it also opens one with the list `0` that asks for
    256 MiB at once: NVML reports what a tensor of 16 bytes takes in either, and a tensor of 192 MiB shows whose limit
    holds. A matrix product in the first session checks that the others did not disturb it. A single GPU shows the
    memory options alone.
Why it matters
    TensorFlow maps GPUs to its numbers, and makes the memory pool of each, once in a process. Another mapping is an
    error; a different fraction, growth or limit is ignored silently, so that a library that opens a session first
    decides for your program.
What to do
    Make one `config = tf.compat.v1.ConfigProto(...)` and give it to every session of the process. For several GPUs name
    devices within the graphs (visibility.graphs_on_devices), or start a process for each (visibility.list_per_process).
"""

from __future__ import annotations

from contextlib import ExitStack, closing
from functools import partial
from typing import Any

from gpudiag import fix, probe
from gpudiag.knowledge.placement import created_devices
from gpudiag.probe import MIB, SLACK_BYTES, Context, Findings, Kernel, MemoryUse, Raised, fail, warn
from gpudiag.probes.common import MATRIX, LimitFaults, is_square, rises
from gpudiag.record import Record

PROBE = probe.Probe(
    needs=probe.Needs(gpus=1, free_bytes=384 * MIB),
    scope=probe.Scope.ALL_GPUS,
    exclusive=True,
)


class Fault(probe.KernelFaults):
    accepted = fail(
        "a session with visible_device_list='1' was opened {when} one with '0': GPU:0 is two GPUs in one process",
        means="Sessions with visible_device_list '0' and '1' were opened in one process: GPU:0 is two GPUs.",
        do=fix.edit(
            "with tf.device('/device:GPU:1'):",
            "give every session of the process the same list, and name devices within graphs",
        ),
    )
    other_type = fail(
        "visible_device_list='1' {when} one with '0': {error} (expected AlreadyExistsError)",
        means="A second session with another visible_device_list raised another error than AlreadyExistsError.",
        do="Programs that catch tf.errors.AlreadyExistsError miss this error: look up its text.",
    )
    other_text = warn(
        "visible_device_list='1' {when} one with '0': the error does not say {words!r}: {error}",
        means="The error for a second session with another visible_device_list does not say what is wrong.",
        do="Do not match on the text of this error; report to gpudiag this release of TensorFlow.",
    )
    growth_ignored = fail(
        "a tensor of 16 bytes in the first session, which grows, took {taken_bytes}",
        means="The options of the first session do not hold either. With growth it takes about 2 MiB.",
        do=fix.export("TF_FORCE_GPU_ALLOW_GROWTH", "true", "force it"),
    )
    growth_changed = fail(
        "a tensor of 16 bytes in a second session without growth took {taken_bytes}, though the first session grows",
        means="The second session's growth option was obeyed: one tensor took its whole limit.",
        do=fix.edit("tf.compat.v1.Session(config=config)", "give every session of the process the same options"),
    )
    limit_changed = fail(
        "a second session made a tensor of {beyond_bytes}, the first session's limit is {limit_bytes}",
        means="A second session made a tensor larger than the limit of the first session.",
        do=fix.edit("tf.compat.v1.Session(config=config)", "give every session of the process the same options"),
    )
    other_error = LimitFaults.other_error


LIMIT_BYTES, LATER_LIMIT_BYTES = 128 * MIB, 256 * MIB
"""The memory limits that the first and the second session request."""
BEYOND_BYTES = 192 * MIB
"""A size within the second session's limit, but above the first's."""
# TensorFlow 2.18-2.21, TfDeviceIdManager.
WORDS = "is being mapped to multiple devices"


class Later(Record):
    """A second session with other memory options."""

    before: MemoryUse
    first: MemoryUse
    """Memory after a tensor of 16 bytes."""
    beyond: Raised | None
    """The error of a tensor of :data:`BEYOND_BYTES`."""


class Reading(probe.GpuReading):
    """The effect of later sessions."""

    conflicts: dict[str, Raised | None]
    """The error of a session with another list, by when it was opened, such as ``beside``; empty with a single GPU."""
    later: Later
    kernel: Kernel
    """A product computed in the first session, after the others."""
    first_bytes: int = 0
    """The increase of memory in use by a tensor of 16 bytes in the first session."""

    def figure(self) -> str:
        memory = "later limit " + ("obeyed" if self.later.beyond is None else "ignored")
        if not self.conflicts:
            return f"{memory} (one GPU)"
        refused = sum(raised is not None for raised in self.conflicts.values())
        return f"{refused} of {len(self.conflicts)} lists refused, {memory}"


def measure(ctx: Context) -> Reading:
    tf, v1 = ctx.tf, ctx.tf.compat.v1
    ctx.list_gpus()
    gpu = ctx.gpus[0]
    with tf.Graph().as_default() as graph, tf.device("/device:GPU:0"):
        matrix, elements = v1.placeholder(tf.float32, [2, 2]), v1.placeholder(tf.int32, [1])
        copied, product, tensor = tf.identity(matrix), tf.matmul(matrix, matrix), tf.fill(elements, 1.0)[0]

    def session(visible_device_list: str, limit: int, *, growth: bool) -> Any:
        options = v1.GPUOptions(
            visible_device_list=visible_device_list,
            allow_growth=growth,
            per_process_gpu_memory_fraction=limit / gpu.memory_total_bytes,
        )
        options.experimental.disallow_retry_on_allocation_failure = True
        return v1.Session(graph=graph, config=v1.ConfigProto(gpu_options=options))

    def other_list() -> Raised | None:
        return ctx.attempt(lambda: session("1", LIMIT_BYTES, growth=True).close())

    conflicts = {}
    with ExitStack() as sessions:
        with ctx.placements() as log:
            first = sessions.enter_context(closing(session("0", LIMIT_BYTES, growth=True)))
        # A copy: the first kernel takes its own memory beside the pool.
        rose = rises(ctx, lambda: first.run(copied, {matrix: MATRIX}), [gpu])[gpu.pci_bus_id]
        first.run(tensor, {elements: [4]})
        if len(ctx.gpus) > 1:
            conflicts["beside"] = other_list()
        second = sessions.enter_context(closing(session("0", LATER_LIMIT_BYTES, growth=False)))
        with ctx.watch(gpu) as memory:
            before = memory()
            second.run(tensor, {elements: [4]})
            after = memory()
        beyond = ctx.attempt(partial(second.run, tensor, {elements: [BEYOND_BYTES // 4]}))
        # Last: the matrix library takes its own memory.
        correct = is_square(first.run(product, {matrix: MATRIX}))
    if len(ctx.gpus) > 1:
        conflicts["after"] = other_list()
    kernel = Kernel("GPU:0", created_devices(log.lines).get("GPU:0", ""), correct)
    return Reading(conflicts, Later(before, after, beyond), kernel, rose)


def judge(reading: Reading) -> Findings:
    later, kernel = reading.later, reading.kernel
    for when, raised in reading.conflicts.items():
        if raised is None:
            yield Fault.accepted.found(when=when)
        elif raised.type != "AlreadyExistsError":
            yield Fault.other_type.found(when=when, error=raised.brief)
        elif WORDS not in raised.message:
            yield Fault.other_text.found(when=when, words=WORDS, error=raised.brief)
    rise = later.first - later.before
    figures = {"beyond_bytes": BEYOND_BYTES, "limit_bytes": LIMIT_BYTES}
    if reading.first_bytes > SLACK_BYTES:
        yield Fault.growth_ignored.found(taken_bytes=reading.first_bytes)
    if rise > SLACK_BYTES:
        yield Fault.growth_changed.found(taken_bytes=rise)
    if later.beyond is None:
        yield Fault.limit_changed.found(**figures)
    elif later.beyond.type != "ResourceExhaustedError":
        yield Fault.other_error.found(**figures, device="GPU:0", error=later.beyond.brief)
    yield from kernel.verified_on(reading.given[0])
