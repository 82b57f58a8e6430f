"""The GPU options of the first session hold for the whole process: another `visible_device_list` is refused.

What it does
    Opens a `tf.compat.v1.Session` on `visible_device_list="0"` that grows up to 128 MiB, and another with the list `1`:
    once beside the first, once after it was closed. Beside it, too, one with the list `0` that asks for 256 MiB at
    once: NVML tells what a tensor of 16 bytes takes in it, and a tensor of 192 MiB shows whose limit holds. A matrix
    product in the first session checks that the others did it no harm. A single GPU shows the memory options alone.
Why it matters
    TensorFlow maps GPUs to its numbers, and makes the memory pool of each, once in a process. Another mapping is an
    error; a different fraction, growth or limit is ignored without a word, so that a library that opens a session first
    decides for your program.
What a failure means
    `accepted`: a session with another list was opened, so `GPU:0` is two GPUs in one process.
    `other_type`: an exception, and not the `tf.errors.AlreadyExistsError` that programs catch.
    `other_text`: the right exception in other words; a release of TensorFlow that words it anew.
    `growth_changed`: the second session's growth option was obeyed: one tensor took its whole limit.
    `limit_changed`: the second session took more than the first one's limit.
    `other_error`: exceeding the limit raised something else than `tf.errors.ResourceExhaustedError`.
    `gpu_not_seen`, `other_gpu`, `wrong_result`: TensorFlow does not use the GPU that it was given, or not correctly.
What to do
    Make one `config = tf.compat.v1.ConfigProto(...)` and give it to every session of the process. For several GPUs name
    devices within the graphs (visibility.graphs_on_devices), or start a process for each (visibility.list_per_process).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, closing
from functools import partial
from typing import Any

from gpudiag import probe
from gpudiag.hostfacts import Facts
from gpudiag.model import Limits, Severity
from gpudiag.placement import created_devices
from gpudiag.probe import Case, Context, Judgement, Kind, MemoryUse, Needs, Raised, Scope
from gpudiag.probes.common import (
    GPU_NOT_SEEN,
    MATRIX,
    MIB,
    OTHER_GPU,
    SLACK_BYTES,
    WRONG_RESULT,
    Kernel,
    is_square,
    judge_kernel,
    refuse_disturbance,
    taken,
)
from gpudiag.record import Record

PROBE = probe.Probe(
    needs=Needs(gpus=1, free_bytes=384 * MIB),
    scope=Scope.ALL_GPUS,
    exclusive=True,
    # Both would overrule what the sessions ask for (memory.growth and memory.fraction tell).
    env={"TF_FORCE_GPU_ALLOW_GROWTH": None, "TF_GPU_ALLOCATOR": None},
)

ACCEPTED = Kind(
    "accepted",
    Severity.FAIL,
    "a session with visible_device_list='1' was opened {when} one with '0': GPU:0 is two GPUs in one process",
    "Give every session of the process the same list, and name devices within graphs: with tf.device('/device:GPU:1'):",
)
OTHER_TYPE = Kind(
    "other_type",
    Severity.FAIL,
    "visible_device_list='1' {when} one with '0': {error} (expected AlreadyExistsError)",
    "Programs that catch tf.errors.AlreadyExistsError miss this error: look up its text.",
)
OTHER_TEXT = Kind(
    "other_text",
    Severity.WARNING,
    "visible_device_list='1' {when} one with '0': the error does not say {words!r}: {error}",
    "Do not match on the text of this error; tell gpudiag's authors of this release of TensorFlow.",
)
GROWTH_CHANGED = Kind(
    "growth_changed",
    Severity.FAIL,
    "a tensor of 16 bytes in a second session without growth took {taken_mib:.0f} MiB, though the first session grows",
    "Give every session of the process the same options: tf.compat.v1.Session(config=config)",
)
LIMIT_CHANGED = Kind(
    "limit_changed",
    Severity.FAIL,
    "a second session made a tensor of {beyond_mib:.0f} MiB, the first session's limit is {limit_mib:.0f} MiB",
    "Give every session of the process the same options: tf.compat.v1.Session(config=config)",
)
OTHER_ERROR = Kind(
    "other_error",
    Severity.FAIL,
    "a tensor of {beyond_mib:.0f} MiB above the limit of {limit_mib:.0f} MiB raised {error}",
    "Programs that catch tf.errors.ResourceExhaustedError miss this error: look up its text.",
)

LIMIT_BYTES, LATER_LIMIT_BYTES = 128 * MIB, 256 * MIB
"""What the first and the second session ask for."""
BEYOND_BYTES = 192 * MIB
"""Within the second limit, not within the first."""
# TensorFlow 2.18-2.21, TfDeviceIdManager.
WORDS = "is being mapped to multiple devices"


class Later(Record):
    """What a second session with other memory options did."""

    before: MemoryUse
    first: MemoryUse
    """After a tensor of 16 bytes."""
    beyond: Raised | None
    """What a tensor of :data:`BEYOND_BYTES` raised."""


class Reading(probe.Reading):
    """What later sessions could change."""

    given: tuple[str, ...]
    """PCI bus ids of the GPUs that the probe was given."""
    seen: int
    """GPUs that TensorFlow lists."""
    conflicts: dict[str, Raised | None]
    """When a session with another list was opened, such as ``beside``, to what it raised; empty with a single GPU."""
    later: Later | None = None
    """None where TensorFlow lists too few GPUs."""
    kernel: Kernel | None = None
    """Computed in the first session, after the others."""

    def figure(self) -> str:
        if self.later is None:
            return f"TensorFlow lists {self.seen} of {len(self.given)} GPUs"
        memory = "later limit " + ("obeyed" if self.later.beyond is None else "ignored")
        if not self.conflicts:
            return f"{memory} (one GPU)"
        refused = sum(raised is not None for raised in self.conflicts.values())
        return f"{refused} of {len(self.conflicts)} lists refused, {memory}"


def measure(ctx: Context) -> Reading:
    tf, v1 = ctx.tf, ctx.tf.compat.v1
    given = tuple(gpu.pci_bus_id for gpu in ctx.gpus)
    seen = len(tf.config.list_physical_devices("GPU"))
    if seen < len(given):
        return Reading(given, seen, {})
    gpu = ctx.gpus[0]
    with tf.Graph().as_default() as graph, tf.device("/device:GPU:0"):
        matrix, elements = v1.placeholder(tf.float32, [2, 2]), v1.placeholder(tf.int32, [1])
        product, tensor = tf.matmul(matrix, matrix), tf.fill(elements, 1.0)[0]

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
        first.run(tensor, {elements: [4]})
        if len(given) > 1:
            conflicts["beside"] = other_list()
        second = sessions.enter_context(closing(session("0", LATER_LIMIT_BYTES, growth=False)))
        before = ctx.memory(gpu)
        second.run(tensor, {elements: [4]})
        after = ctx.memory(gpu)
        refuse_disturbance(before, after)
        beyond = ctx.attempt(partial(second.run, tensor, {elements: [BEYOND_BYTES // 4]}))
        # Last: the matrix library takes memory of its own.
        correct = is_square(first.run(product, {matrix: MATRIX}))
    if len(given) > 1:
        conflicts["after"] = other_list()
    kernel = Kernel("GPU:0", created_devices(log.lines).get("GPU:0", ""), correct)
    return Reading(given, seen, conflicts, Later(before, after, beyond), kernel)


def judge(reading: Reading, facts: Facts, limits: Limits) -> Iterator[Judgement]:
    later, kernel = reading.later, reading.kernel
    if reading.seen < len(reading.given) or later is None or kernel is None:
        yield GPU_NOT_SEEN.found(seen=reading.seen, given=len(reading.given))
        return
    for when, raised in reading.conflicts.items():
        if raised is None:
            yield ACCEPTED.found(when=when)
        elif raised.type != "AlreadyExistsError":
            yield OTHER_TYPE.found(when=when, error=raised.brief)
        elif WORDS not in raised.message:
            yield OTHER_TEXT.found(when=when, words=WORDS, error=raised.brief)
    rise = taken(later.before, later.first)
    figures = {"beyond_mib": BEYOND_BYTES / MIB, "limit_mib": LIMIT_BYTES / MIB}
    if rise > SLACK_BYTES:
        yield GROWTH_CHANGED.found(taken_mib=rise / MIB)
    if later.beyond is None:
        yield LIMIT_CHANGED.found(**figures)
    elif later.beyond.type != "ResourceExhaustedError":
        yield OTHER_ERROR.found(**figures, error=later.beyond.brief)
    yield from judge_kernel(kernel, reading.given[0])


_FIRST, _SECOND = "0000:3b:00.0", "0000:af:00.0"
_REFUSED = Raised(
    "AlreadyExistsError",
    "TensorFlow device (GPU:0) is being mapped to multiple devices (1 now, and 0 previously), which is not supported.",
)
_OOM = Raised("ResourceExhaustedError", "OOM when allocating tensor with shape[50331648] and type float")
_KERNEL = Kernel("GPU:0", _FIRST, True)


def _later(mib: int = 0, beyond: Raised | None = _OOM) -> Later:
    return Later(MemoryUse(450 * MIB, None), MemoryUse((450 + mib) * MIB, None), beyond)


def _case(
    name: str,
    *expect: str,
    beside: Raised | None = _REFUSED,
    after: Raised | None = _REFUSED,
    later: Later = _later(),  # noqa: B008  # immutable
    kernel: Kernel = _KERNEL,
) -> Case:
    reading = Reading((_FIRST, _SECOND), 2, {"beside": beside, "after": after}, later, kernel)
    return Case(name, expect, reading, verified=(_FIRST,) if kernel == _KERNEL else ())


CASES = (
    _case("the first session decides"),
    Case("one GPU", (), Reading((_FIRST,), 1, {}, _later(), _KERNEL), verified=(_FIRST,)),
    _case("accepted once the first is closed", ACCEPTED.name, after=None),
    _case("another type", OTHER_TYPE.name, beside=Raised("InvalidArgumentError", "GPU:0 is mapped already")),
    _case("another text", OTHER_TEXT.name, beside=Raised("AlreadyExistsError", "GPU:0 is mapped already")),
    _case("all at once", GROWTH_CHANGED.name, later=_later(254)),
    _case("beyond the limit", LIMIT_CHANGED.name, later=_later(beyond=None)),
    _case("an unknown error", OTHER_ERROR.name, later=_later(beyond=Raised("InternalError", "CUDA error"))),
    _case("another GPU", OTHER_GPU.name, kernel=Kernel("GPU:0", _SECOND, True)),
    _case("a wrong product", WRONG_RESULT.name, kernel=Kernel("GPU:0", _FIRST, False)),
    Case("TensorFlow lists one of two", (GPU_NOT_SEEN.name,), Reading((_FIRST, _SECOND), 1, {})),
)
