"""`TF_FORCE_GPU_ALLOW_GROWTH` overrides the program if it is exactly `true` or `false`, and is ignored otherwise.

What it does
    Sets the variable to `true`, `false`, `True` and `1` in turn, each against the program's own `allow_growth`, opens a
    `tf.compat.v1.Session` and copies one small tensor to a logical device of 128 MiB that is new to the process. NVML
    reports whether the whole 128 MiB were taken or, with growth, about 2 MiB. It keeps what TensorFlow logs about the
    variable. A matrix product is computed and checked on the GPU at the end.
Why it matters
    The variable is read each time TensorFlow makes the pool of a device, below all Python code: it is the only way to
    growth on logical devices, and no getter knows of it. Any other spelling is ignored with an error line that is
    easily lost in the log.
What to do
    `export TF_FORCE_GPU_ALLOW_GROWTH=true`, in lower case, before the program makes its first tensor.
"""

from __future__ import annotations

import os

from gpudiag import fix, probe
from gpudiag.model.report import Limit
from gpudiag.probe import MIB, SLACK_BYTES, Context, Findings, Kernel, MemoryUse, fail, mib, note, warn
from gpudiag.probes.common import GraphProgram
from gpudiag.record import Record

VARIABLE = "TF_FORCE_GPU_ALLOW_GROWTH"

PROBE = probe.Probe(
    needs=probe.Needs(gpus=1, free_bytes=512 * MIB),
    scope=probe.Scope.ALL_GPUS,
    exclusive=True,
)


class Fault(probe.KernelFaults):
    not_forced = fail(
        "TF_FORCE_GPU_ALLOW_GROWTH={value} over allow_growth={configured}: the first tensor took {taken_bytes} of "
        "{limit_bytes}, expected {expected}",
        means="`true` or `false` did not decide; the program's setting did.",
        do=fix.edit("tf.config.experimental.set_memory_growth(gpu, True)", "set growth in the program, for every GPU"),
    )
    obeyed = note(
        "TF_FORCE_GPU_ALLOW_GROWTH={value} has an effect here: over allow_growth={configured} the first tensor took "
        "{taken_bytes} of {limit_bytes}, expected {expected}",
        means="A value that TensorFlow should not understand changed when memory is taken.",
        do=fix.export(
            "TF_FORCE_GPU_ALLOW_GROWTH", "true", "or false; other releases of TensorFlow ignore this spelling"
        ),
    )
    silent = warn(
        "TF_FORCE_GPU_ALLOW_GROWTH={value} was ignored, and TensorFlow logged no error about it",
        means="TensorFlow ignored a value of TF_FORCE_GPU_ALLOW_GROWTH and logged no error about it.",
        do=fix.export("TF_FORCE_GPU_ALLOW_GROWTH", "true", "or false, spelled exactly so"),
    )


LIMIT_BYTES = 128 * MIB
# Each value against a program that asks for the opposite of what the value says.
TRIED = (("true", False), ("false", True), ("True", False), ("1", False))


class ForcedGrowth(Record):
    """One value of the variable, tried on its own logical device."""

    value: str
    configured: bool
    """The program's setting of ``allow_growth``."""
    before: MemoryUse
    """Memory after the device was made, before the first tensor."""
    first: MemoryUse
    """Memory after a tensor of 16 bytes."""
    logged: tuple[str, ...]
    """TensorFlow's log lines that name the variable."""


class Reading(probe.GpuReading):
    """The memory taken under each value."""

    attempts: tuple[ForcedGrowth, ...]
    kernel: Kernel

    def figure(self) -> str:
        rises = (f"{attempt.value} {(attempt.first - attempt.before) / MIB:.0f}" for attempt in self.attempts)
        return f"{', '.join(rises)} MiB"

    def limits(self) -> tuple[Limit, ...]:
        devices = len(self.attempts)
        limit = f"{devices} devices of {mib(LIMIT_BYTES)}"
        return (self.attempts[0].before.plus(limit, devices * LIMIT_BYTES),) if devices else ()


def measure(ctx: Context) -> Reading:
    ctx.list_gpus()
    attempts = []
    for number, (value, configured) in enumerate(TRIED):
        os.environ[VARIABLE] = value
        attempt, kernel = _attempt(ctx, number, value, configured)
        attempts.append(attempt)
    assert kernel is not None
    return Reading(tuple(attempts), kernel)


def _attempt(ctx: Context, number: int, value: str, configured: bool) -> tuple[ForcedGrowth, Kernel | None]:
    """Make logical device ``number`` of the first GPU: the variable is read only when a device's pool is first made."""
    options = ctx.tf.compat.v1.GPUOptions(allow_growth=configured, visible_device_list="0")
    options.experimental.virtual_devices.add(memory_limit_mb=[LIMIT_BYTES // MIB] * (number + 1))
    program = GraphProgram(ctx, f"GPU:{number}")
    with program.session(options), ctx.watch(ctx.gpus[0]) as memory:
        before = memory()
        program.copy()
        first = memory()
        kernel = program.multiply() if number == len(TRIED) - 1 else None
    logged = tuple(line for line in program.lines if VARIABLE in line)
    return ForcedGrowth(value, configured, before, first, logged), kernel


def judge(reading: Reading) -> Findings:
    for attempt in reading.attempts:
        known = attempt.value in {"true", "false"}
        grows = attempt.value == "true" if known else attempt.configured
        rise = attempt.first - attempt.before
        if (rise <= SLACK_BYTES) != grows:
            yield (Fault.not_forced if known else Fault.obeyed).found(
                value=attempt.value,
                configured=attempt.configured,
                taken_bytes=rise,
                limit_bytes=LIMIT_BYTES,
                expected="about 2 MiB" if grows else "all",
            )
        elif not known and not any("could not be parsed" in line for line in attempt.logged):
            yield Fault.silent.found(value=attempt.value)
    yield from reading.kernel.verified_on(reading.given[0])
