"""Code that the probes of NVIDIA's libraries share: they compute the same on the CPU and on each GPU and compare the
results."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeVar

from gpudiag import fix, probe
from gpudiag.errors import NotSimulated
from gpudiag.knowledge.placement import short_device
from gpudiag.model.report import Gap
from gpudiag.probe import (
    MIB,
    SEE_THE_CAUSE,
    Context,
    Findings,
    GpuReading,
    Needs,
    Raised,
    ReplicaFaults,
    Verified,
    fail,
    warn,
)
from gpudiag.probes.common import create_devices
from gpudiag.record import Record

NEEDS = Needs(gpus=1, free_bytes=512 * MIB)
"""Device memory that the libraries need beside a few small tensors: handles, workspaces, code of kernels."""

DOUBLE, SINGLE, TF32, HALF, BFLOAT16 = 1e-10, 2e-5, 5e-3, 1e-2, 3e-2
"""The largest allowed difference of a right result, as a fraction of the largest value.

The types round to 2**-53, 2**-24, 2**-11, 2**-11 and 2**-9. The largest error of products of 64 x 64 normal numbers was
7e-16, 3e-7, 4e-4, 4e-4 and 3e-3 (rounded in numpy, 20 draws): there is room for another order of adding and for partial
sums of a short type, and TF32 in place of float32 is noticed."""

COMPUTES = "gpudiag computes: "
"""Prefix of the log line that the child writes before each computation on a GPU, so that one that never returns has a
name."""


def announce(computation: str, device: str) -> None:
    """Write what a GPU is about to compute to the log of the child."""
    print(f"{COMPUTES}{computation} on {device}", file=sys.stderr, flush=True)


def last_announced(lines: Iterable[str]) -> str:
    """Return the last computation that a child announced, such as ``convolution on GPU:0``; "" if there is none."""
    announced = [line.removeprefix(COMPUTES) for line in lines if line.startswith(COMPUTES)]
    return announced[-1] if announced else ""


SLOW_S = 10.0
"""Time limit for the first computation on a GPU, which opens the library: this takes some seconds from a cold disk, and
longer for a convolution on a real GPU, where TensorFlow tries algorithms."""


class LibraryFaults(ReplicaFaults):
    """The findings about a library."""

    failed = fail(
        "{library} on {device}: {what} raised {error}",
        means="The library, or TensorFlow's use of it, does not work on this GPU. The library's status is in the log.",
        do=SEE_THE_CAUSE,
    )
    differs = fail(
        "{library} on {device}: {what} differs from the right result by {error} of its largest value; "
        "rounding is at most {most}",
        means="The library computed something else than the CPU, or not a number.",
        do=probe.trust_no("result of this GPU"),
    )
    elsewhere = fail(
        "{library}: {what} was asked for on {device} and ran on {ran_on}",
        means="A computation ran on another device than it was asked for on.",
        do=probe.BY_HAND,
    )
    slow = warn(
        "{library} on {device}: the first computation ({what}) took {first_s:.1f} s, the next {next_s:.2g} s; "
        "every program waits so long when it first uses {library}",
        means="The first computation of a library takes long: every program waits so long when it first uses it.",
        do=(fix.note("look whether NVIDIA's libraries are on a slow disk or network"), probe.KEEP_KERNELS),
    )


class Check(Record):
    """One computation on one device."""

    name: str
    """The name of the computation, such as ``convolution, float16``."""
    device: str
    """The requested device, such as ``GPU:0``."""
    ran_on: str = ""
    """The device of the result, according to TensorFlow; empty if the computation raised."""
    error: float | None = None
    """The difference of the result as a fraction of the largest value; None if the computation raised or is not finite.
    """
    most: float = 0.0
    """The largest allowed difference."""
    raised: Raised | None = None
    seconds: float = 0.0
    """Seconds until the result was there; 0 in reports of an older gpudiag, which did not measure it."""

    @property
    def is_right(self) -> bool:
        return self.ran_on == self.device and self.error is not None and self.error <= self.most


class LibraryReading(GpuReading, kw_only=True):
    """The computations on each device."""

    made: dict[str, str]
    """PCI bus id of each device (``GPU:0``), from TensorFlow's ``Created device`` lines."""
    checks: tuple[Check, ...]
    unchecked: tuple[str, ...] = ()
    """The computations that were left out, with the reason."""

    def figure(self) -> str:
        names = dict.fromkeys(check.name for check in self.checks)
        wrong = {check.name for check in self.checks if not check.is_right}
        gpus = f"{len(self.made)} GPU{'s' if len(self.made) > 1 else ''}"
        right = f"{len(names) - len(wrong)} of {len(names)} right on {gpus}"
        if not self.unchecked:
            return right
        missing = f"not checked: {', '.join(self.unchecked)}"
        return f"{right}; {missing}" if names else missing

    def gaps(self) -> tuple[Gap, ...]:
        return tuple(map(Gap, self.unchecked))

    def judged(self, library: str) -> Findings:
        """Judge the computations; a device on which all of them are right is verified."""
        for given, (device, found) in zip(self.given, self.made.items(), strict=False):
            if found != given:
                yield ReplicaFaults.other_gpu.found(device=device, found=found or "(not named)", expected=given)
            checks = [check for check in self.checks if check.device == device]
            for check in checks:
                yield from _judged(check, library)
            if checks and checks[0].seconds > SLOW_S:
                first, *others = checks
                next_s = min((other.seconds for other in others), default=first.seconds)
                yield LibraryFaults.slow.found(
                    library=library, device=device, what=first.name, first_s=first.seconds, next_s=next_s
                )
            if found == given and checks and all(check.is_right for check in checks):
                yield Verified(given)


R = TypeVar("R", bound=LibraryReading)


def _judged(check: Check, library: str) -> Findings:
    figures = {"library": library, "device": check.device, "what": check.name}
    if check.raised is not None:
        yield LibraryFaults.failed.found(**figures, error=check.raised.brief)
    elif check.ran_on != check.device:
        yield LibraryFaults.elsewhere.found(**figures, ran_on=check.ran_on or "an unknown device")
    elif not check.is_right:
        error = "an infinite part (inf or NaN)" if check.error is None else f"{check.error:.2g}"
        yield LibraryFaults.differs.found(**figures, error=error, most=f"{check.most:.2g}")


@dataclass(frozen=True)
class Computation:
    """A computation for each device, and the accuracy that its result must have."""

    name: str
    compute: Callable[..., Any]
    """A function that takes the inputs as tensors of one type and returns a tensor of any type."""
    inputs: tuple[Any, ...] = ()
    """The inputs as arrays of float64."""
    type: str = "float32"
    """The type of the inputs on the GPU."""
    most: float = SINGLE
    reference: str = "float64"
    """The type in which the CPU computes the reference result, from inputs rounded to ``type``."""
    twice: bool = False
    """True if the reference is an earlier result of the same device."""


def compare(ctx: Context, reading: type[R], computations: Iterable[Computation], unchecked: tuple[str, ...] = ()) -> R:
    """Run each computation on the CPU and on every GPU.

    After an error a device is not used again: TensorFlow's next call there may never return.
    """
    ctx.list_gpus()
    ctx.tf.config.set_soft_device_placement(False)
    made = create_devices(ctx)
    ran = [_Run(ctx, computation) for computation in computations]
    checks = tuple(check for device in made for check in _until_one_raises(device, ran))
    lacking = tuple(f"{run.name} ({run.limit})" for run in ran if run.limit)
    return reading(made=made, checks=checks, unchecked=(*unchecked, *lacking))


def _until_one_raises(device: str, ran: Sequence[_Run]) -> Iterable[Check]:
    for run in ran:
        if run.limit:
            continue
        try:
            check = run.check(device)
        except NotSimulated as limit:
            run.limit = str(limit)
            continue
        yield check
        if check.raised is not None:
            return


class _Run:
    """A computation, and its reference result."""

    def __init__(self, ctx: Context, computation: Computation) -> None:
        self._ctx, self._asked = ctx, computation
        self.name = computation.name
        self.limit = ""
        """Why the computation is left out on every GPU: simulated GPUs lack a function that it needs."""

    @cached_property
    def _right(self) -> Any:
        tf = self._ctx.tf
        with tf.device("CPU:0"):
            return self._on("CPU:0", self._asked.reference).numpy()

    def _on(self, device: str, type_name: str) -> Any:
        tf, asked = self._ctx.tf, self._asked
        with tf.device("CPU:0"):
            inputs = [tf.cast(tf.cast(tf.constant(array), asked.type), type_name) for array in asked.inputs]
        with tf.device(device):
            return asked.compute(*(tf.identity(tensor) for tensor in inputs))

    def check(self, device: str) -> Check:
        asked, results = self._asked, list[Any]()
        right = None if asked.twice else self._right
        announce(asked.name, device)
        began = time.perf_counter()
        raised = self._ctx.attempt(lambda: results.append(self._computed(device)))
        seconds = time.perf_counter() - began
        if raised is not None:
            return Check(asked.name, device, most=asked.most, raised=raised, seconds=seconds)
        where, *values = results[0]
        error = difference(values[-1], values[0] if right is None else right)
        return Check(asked.name, device, where, error, asked.most, seconds=seconds)

    def _computed(self, device: str) -> tuple[Any, ...]:
        """Return the device of the result and its values; two results if it is computed twice."""
        made = [self._on(device, self._asked.type) for _ in range(1 + self._asked.twice)]
        return (short_device(made[0].device), *(tensor.numpy() for tensor in made))


def difference(found: Any, right: Any) -> float | None:
    """Return the largest difference of two arrays as a fraction of the largest value; None if ``found`` is not
    finite."""
    import numpy

    wide = "complex128" if numpy.iscomplexobj(right) else "float64"
    found, right = numpy.asarray(found).astype(wide), numpy.asarray(right).astype(wide)
    if found.shape != right.shape or not numpy.isfinite(found).all():
        return None
    largest = float(numpy.abs(right).max(initial=0.0)) or 1.0
    return float(numpy.abs(found - right).max(initial=0.0)) / largest


def normal(*shape: int, seed: int = 0) -> Any:
    """Return normally distributed numbers, the same ones on each call."""
    import numpy

    return numpy.random.default_rng(seed).standard_normal(shape)


def unless_simulated(ctx: Context, what: str) -> tuple[str, ...]:
    """Return why ``what`` is left out on simulated GPUs, which cannot do it; empty on real GPUs."""
    return (f"{what} (simulated GPUs)",) if any(gpu.simulated for gpu in ctx.gpus) else ()
