"""`TF_FORCE_GPU_ALLOW_GROWTH` overrides the program where it is exactly `true` or `false`, and is ignored otherwise.

What it does
    Sets the variable to `true`, `false`, `True` and `1` in turn, each against the program's own `allow_growth`, opens a
    `tf.compat.v1.Session` and copies one small tensor to a logical device of 128 MiB that is new to the process. NVML
    tells whether the whole 128 MiB were taken or, with growth, about 2 MiB. It keeps what TensorFlow logs about the
    variable. A matrix product is computed and checked on the GPU at the end.
Why it matters
    The variable is read each time TensorFlow makes the pool of a device, below all Python code: it is the only way to
    growth on logical devices, and no getter knows of it. Any other spelling is ignored with an error line that is
    easily lost in the log.
What a failure means
    `not_forced`: `true` or `false` did not decide; the program's setting did.
    `obeyed`: a value that TensorFlow should not understand changed when memory is taken.
    `silent`: a value was ignored, and no error line says so.
    `gpu_not_seen`, `other_gpu`, `wrong_result`: TensorFlow does not use the GPU that it was given, or not correctly.
What to do
    `export TF_FORCE_GPU_ALLOW_GROWTH=true`, in lower case, before the program makes its first tensor.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

from gpudiag import probe
from gpudiag.hostfacts import Facts
from gpudiag.model import Limits, Severity
from gpudiag.placement import created_devices
from gpudiag.probe import Case, Context, Judgement, Kind, MemoryUse, Needs, Scope
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

VARIABLE = "TF_FORCE_GPU_ALLOW_GROWTH"

PROBE = probe.Probe(
    needs=Needs(gpus=1, free_bytes=512 * MIB),
    scope=Scope.ALL_GPUS,
    exclusive=True,
    # The probe sets the first itself; other allocators know no growth (memory.fraction tells).
    env={VARIABLE: None, "TF_GPU_ALLOCATOR": None},
)

NOT_FORCED = Kind(
    "not_forced",
    Severity.FAIL,
    "TF_FORCE_GPU_ALLOW_GROWTH={value} over allow_growth={configured}: the first tensor took {taken_mib:.0f} of "
    "{limit_mib:.0f} MiB, expected {expected}",
    "Set growth in the program: tf.config.experimental.set_memory_growth(gpu, True) for every GPU",
)
OBEYED = Kind(
    "obeyed",
    Severity.NOTE,
    "TF_FORCE_GPU_ALLOW_GROWTH={value} has an effect here: over allow_growth={configured} the first tensor took "
    "{taken_mib:.0f} of {limit_mib:.0f} MiB, expected {expected}",
    "Other releases of TensorFlow ignore this spelling: export TF_FORCE_GPU_ALLOW_GROWTH=true (or false)",
)
SILENT = Kind(
    "silent",
    Severity.WARNING,
    "TF_FORCE_GPU_ALLOW_GROWTH={value} was ignored, and TensorFlow logged no error about it",
    "Spell it exactly: export TF_FORCE_GPU_ALLOW_GROWTH=true (or false)",
)

LIMIT_BYTES = 128 * MIB
# Each value against a program that asks for the opposite of what the value says.
TRIED = (("true", False), ("false", True), ("True", False), ("1", False))


class Attempt(Record):
    """One value of the variable, on a logical device of its own."""

    value: str
    configured: bool
    """The program's ``allow_growth``."""
    before: MemoryUse
    """After the device was made, before the first tensor."""
    first: MemoryUse
    """After a tensor of 16 bytes."""
    logged: tuple[str, ...]
    """TensorFlow's log lines that name the variable."""


class Reading(probe.Reading):
    """What was taken under each value."""

    given: tuple[str, ...]
    """PCI bus ids of the GPUs that the probe was given."""
    seen: int
    """GPUs that TensorFlow lists."""
    attempts: tuple[Attempt, ...] = ()
    kernel: Kernel | None = None

    def figure(self) -> str:
        if not self.attempts:
            return f"TensorFlow lists {self.seen} of {len(self.given)} GPUs"
        rises = (f"{one.value} {taken(one.before, one.first) / MIB:.0f}" for one in self.attempts)
        return f"{', '.join(rises)} MiB"


def measure(ctx: Context) -> Reading:
    given = tuple(gpu.pci_bus_id for gpu in ctx.gpus)
    seen = len(ctx.tf.config.list_physical_devices("GPU"))
    if seen < len(given):
        return Reading(given, seen)
    attempts = []
    for number, (value, configured) in enumerate(TRIED):
        os.environ[VARIABLE] = value
        attempt, kernel = _attempt(ctx, number, value, configured)
        attempts.append(attempt)
    return Reading(given, seen, tuple(attempts), kernel)


def _attempt(ctx: Context, number: int, value: str, configured: bool) -> tuple[Attempt, Kernel]:
    """Make logical device ``number`` of the first GPU: only the pool of a device not made before reads the variable."""
    tf, v1 = ctx.tf, ctx.tf.compat.v1
    options = v1.GPUOptions(allow_growth=configured, visible_device_list="0")
    options.experimental.virtual_devices.add(memory_limit_mb=[LIMIT_BYTES // MIB] * (number + 1))
    device = f"GPU:{number}"
    with tf.Graph().as_default(), tf.device(f"/{device}"):
        matrix = v1.placeholder(tf.float32, [2, 2])
        copied = tf.identity(matrix)
        product = tf.matmul(matrix, matrix)
        with ctx.placements() as log:
            session: Any = v1.Session(config=v1.ConfigProto(gpu_options=options))
        with session:
            before = ctx.memory(ctx.gpus[0])
            session.run(copied, {matrix: MATRIX})
            first = ctx.memory(ctx.gpus[0])
            # Only in the last one: the matrix library takes memory of its own beside the pool.
            correct = number < len(TRIED) - 1 or is_square(session.run(product, {matrix: MATRIX}))
    refuse_disturbance(before, first)
    kernel = Kernel(device, created_devices(log.lines).get(device, ""), correct)
    return Attempt(value, configured, before, first, tuple(line for line in log.lines if VARIABLE in line)), kernel


def judge(reading: Reading, facts: Facts, limits: Limits) -> Iterator[Judgement]:
    if reading.kernel is None:
        yield GPU_NOT_SEEN.found(seen=reading.seen, given=len(reading.given))
        return
    for attempt in reading.attempts:
        known = attempt.value in {"true", "false"}
        grows = attempt.value == "true" if known else attempt.configured
        rise = taken(attempt.before, attempt.first)
        if (rise <= SLACK_BYTES) != grows:
            yield (NOT_FORCED if known else OBEYED).found(
                value=attempt.value,
                configured=attempt.configured,
                taken_mib=rise / MIB,
                limit_mib=LIMIT_BYTES / MIB,
                expected="about 2 MiB" if grows else "all",
            )
        elif not known and not any("could not be parsed" in line for line in attempt.logged):
            yield SILENT.found(value=attempt.value)
    yield from judge_kernel(reading.kernel, reading.given[0])


_PCI = "0000:3b:00.0"
_UNPARSED = (f"The {VARIABLE} environment variable is set but could not be parsed",)


def _case(
    name: str,
    *expect: str,
    mib: tuple[int, int, int, int] = (2, 128, 128, 128),
    logged: tuple[str, ...] = _UNPARSED,
    kernel: Kernel = Kernel("GPU:3", _PCI, True),  # noqa: B008  # immutable
) -> Case:
    attempts = tuple(
        Attempt(value, configured, MemoryUse(450 * MIB, None), MemoryUse((450 + rise) * MIB, None), logged)
        for (value, configured), rise in zip(TRIED, mib, strict=True)
    )
    verified = (_PCI,) if kernel.correct and kernel.pci_bus_id == _PCI else ()
    return Case(name, expect, Reading((_PCI,), 1, attempts, kernel), verified=verified)


CASES = (
    _case("decides"),
    _case("true is ignored", NOT_FORCED.name, mib=(128, 128, 128, 128)),
    _case("false is ignored", NOT_FORCED.name, mib=(2, 2, 128, 128)),
    _case("other spellings are read", OBEYED.name, OBEYED.name, mib=(2, 128, 2, 2)),
    _case("ignored without a word", SILENT.name, SILENT.name, logged=()),
    _case("another GPU", OTHER_GPU.name, kernel=Kernel("GPU:3", "0000:af:00.0", True)),
    _case("a wrong product", WRONG_RESULT.name, kernel=Kernel("GPU:3", _PCI, False)),
    Case("TensorFlow without GPU", (GPU_NOT_SEEN.name,), Reading((_PCI,), 0)),
)
