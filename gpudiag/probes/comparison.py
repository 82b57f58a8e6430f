"""What the probes of NVIDIA's libraries share: the same computation on the CPU and on each GPU, and how they differ."""

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
"""What the libraries take for themselves beside a few small tensors: handles, workspaces, the code of their kernels."""

DOUBLE, SINGLE, TF32, HALF, BFLOAT16 = 1e-10, 2e-5, 5e-3, 1e-2, 3e-2
"""The most by which a right result may differ, as a part of the largest value.

The types round to 2**-53, 2**-24, 2**-11, 2**-11 and 2**-9. The largest error of products of 64 x 64 normal numbers was
7e-16, 3e-7, 4e-4, 4e-4 and 3e-3 (rounded in numpy, 20 draws): there is room for another order of adding and for partial
sums of a short type, and TF32 in place of float32 is noticed."""

COMPUTES = "gpudiag computes: "
"""Begins a line of the child's log for each computation on a GPU: of one that never returns the name is known."""


def last_announced(lines: Iterable[str]) -> str:
    """Return what a child was to compute last, such as ``convolution on GPU:0``; "" if it has announced none."""
    announced = [line.removeprefix(COMPUTES) for line in lines if line.startswith(COMPUTES)]
    return announced[-1] if announced else ""


SLOW_S = 10.0
"""Of the first computation on a GPU, which opens the library: some seconds from a cold disk, and for a convolution some
more on a real GPU, whose algorithms TensorFlow tries."""


class LibraryFaults(ReplicaFaults):
    """What can be found of a library."""

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
        do=probe.BY_HAND,
    )
    slow = warn(
        "{library} on {device}: the first computation ({what}) took {first_s:.1f} s, the next {next_s:.2g} s; "
        "every program waits so long when it first uses {library}",
        do=(fix.note("look whether NVIDIA's libraries are on a slow disk or network"), probe.KEEP_KERNELS),
    )


class Check(Record):
    """One computation on one device."""

    name: str
    """Such as ``convolution, float16``."""
    device: str
    """Where it was asked for, such as ``GPU:0``."""
    ran_on: str = ""
    """Where TensorFlow says that the result is; empty if it raised."""
    error: float | None = None
    """By how much the result differs, as a part of the largest value; None: it raised, or is not finite."""
    most: float = 0.0
    """By how much it may differ."""
    raised: Raised | None = None
    seconds: float = 0.0
    """Until the result was there; 0: an older gpudiag did not measure it."""

    @property
    def is_right(self) -> bool:
        return self.ran_on == self.device and self.error is not None and self.error <= self.most


class LibraryReading(GpuReading, kw_only=True):
    """What was computed on each device."""

    made: dict[str, str]
    """Device (``GPU:0``) to PCI bus id by TensorFlow's ``Created device`` line."""
    checks: tuple[Check, ...]
    unchecked: tuple[str, ...] = ()
    """What was left out, and why."""

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
        """Judge it; a device on which everything is right has been verified."""
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
        error = "more than any number" if check.error is None else f"{check.error:.2g}"
        yield LibraryFaults.differs.found(**figures, error=error, most=f"{check.most:.2g}")


@dataclass(frozen=True)
class Computation:
    """Something to compute on a device, and how near to the right result it must come."""

    name: str
    compute: Callable[..., Any]
    """Takes the inputs as tensors of one type and returns a tensor, whatever the type."""
    inputs: tuple[Any, ...] = ()
    """Arrays of float64."""
    type: str = "float32"
    """Of the inputs on the GPU."""
    most: float = SINGLE
    reference: str = "float64"
    """In which type the CPU computes the right result, of inputs that were rounded to ``type``."""
    twice: bool = False
    """True: the right result is that of the same device, computed before."""


def compare(ctx: Context, reading: type[R], computations: Iterable[Computation], unchecked: tuple[str, ...] = ()) -> R:
    """Run each computation on the CPU and on every GPU.

    A device on which one raised is left alone: TensorFlow's next call there may never return.
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
    """A computation, and the right result."""

    def __init__(self, ctx: Context, computation: Computation) -> None:
        self._ctx, self._asked = ctx, computation
        self.name = computation.name
        self.limit = ""
        """Why it is left out on every GPU: simulated ones lack something that it needs."""

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
        print(f"{COMPUTES}{asked.name} on {device}", file=sys.stderr, flush=True)
        began = time.perf_counter()
        raised = self._ctx.attempt(lambda: results.append(self._computed(device)))
        seconds = time.perf_counter() - began
        if raised is not None:
            return Check(asked.name, device, most=asked.most, raised=raised, seconds=seconds)
        where, *values = results[0]
        error = difference(values[-1], values[0] if right is None else right)
        return Check(asked.name, device, where, error, asked.most, seconds=seconds)

    def _computed(self, device: str) -> tuple[Any, ...]:
        """Return where the result is and its values, two of them if it is computed twice."""
        made = [self._on(device, self._asked.type) for _ in range(1 + self._asked.twice)]
        return (short_device(made[0].device), *(tensor.numpy() for tensor in made))


def difference(found: Any, right: Any) -> float | None:
    """Return the largest difference of two arrays as a part of the largest value; None if ``found`` is not finite."""
    import numpy

    wide = "complex128" if numpy.iscomplexobj(right) else "float64"
    found, right = numpy.asarray(found).astype(wide), numpy.asarray(right).astype(wide)
    if found.shape != right.shape or not numpy.isfinite(found).all():
        return None
    largest = float(numpy.abs(right).max(initial=0.0)) or 1.0
    return float(numpy.abs(found - right).max(initial=0.0)) / largest


def normal(*shape: int, seed: int = 0) -> Any:
    """Return numbers of the normal distribution, the same each time."""
    import numpy

    return numpy.random.default_rng(seed).standard_normal(shape)


def unless_simulated(ctx: Context, what: str) -> tuple[str, ...]:
    """Return why ``what`` is left out: simulated GPUs cannot do it; empty on real ones."""
    return (f"{what} (simulated GPUs)",) if any(gpu.simulated for gpu in ctx.gpus) else ()
