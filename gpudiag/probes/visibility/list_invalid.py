"""An invalid `visible_device_list` is refused with an error that names the bad entry.

What it does
    Opens a `tf.compat.v1.Session` with each of four invalid lists (an id that no GPU has, a negative id, a word, a
    duplicate) and records the exception's type and text. A session with the valid list `0` then computes a matrix
    product on the GPU, and its result and PCI bus id are checked.
Why it matters
    A program configured for another machine must stop, and not run on the wrong GPU or on the CPU. Without any GPU
    TensorFlow does not even read the list and accepts every one of these: only a machine with a GPU can show it.
What a failure means
    `accepted`: an invalid list made a session, so a mistake in it goes unnoticed.
    `other_type`: an exception, and not the `tf.errors.InvalidArgumentError` that programs catch.
    `other_text`: the right exception, whose text does not name the fault; a release of TensorFlow that words it anew.
    `gpu_not_seen`, `other_gpu`, `wrong_result`: TensorFlow does not use the GPU that it was given, or not correctly.
What to do
    Count from 0 within the GPUs that `CUDA_VISIBLE_DEVICES` leaves visible: with `CUDA_VISIBLE_DEVICES=2,3` the valid
    ids are 0 and 1.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

from gpudiag import probe
from gpudiag.hostfacts import Facts
from gpudiag.model import Limits, Severity
from gpudiag.placement import short_device
from gpudiag.probe import Case, Context, Judgement, Kind, Needs, Raised, Scope
from gpudiag.probes.common import (
    GPU_NOT_SEEN,
    MATRIX,
    OTHER_GPU,
    WRONG_RESULT,
    Kernel,
    is_square,
    judge_kernel,
)

PROBE = probe.Probe(needs=Needs(gpus=1), scope=Scope.ALL_GPUS)

ACCEPTED = Kind(
    "accepted",
    Severity.FAIL,
    "visible_device_list={visible_device_list!r} was accepted with {count} GPUs",
    "Compare the GPUs that TensorFlow lists with the list before use: tf.config.list_physical_devices('GPU')",
)
OTHER_TYPE = Kind(
    "other_type",
    Severity.FAIL,
    "visible_device_list={visible_device_list!r}: {error} (expected InvalidArgumentError)",
    "Programs that catch tf.errors.InvalidArgumentError miss this error: look up its text.",
)
OTHER_TEXT = Kind(
    "other_text",
    Severity.WARNING,
    "visible_device_list={visible_device_list!r}: the error does not say {words!r}: {error}",
    "Do not match on the text of this error; tell gpudiag's authors of this release of TensorFlow.",
)

# TensorFlow's words of the fault (2.21: ParseVisibleDeviceList and ParsePlatformDeviceIdString).
INVALID = {
    "100": "invalid Device id '100'",
    "-2": "invalid Device id '-2'",
    "0,abc": "Could not parse entry in 'visible_device_list': 'abc'",
    "0,0": "duplicate entry",
}


class Reading(probe.Reading):
    """What each invalid list raised, and what the valid one computed."""

    given: tuple[str, ...]
    """PCI bus ids of the GPUs that the probe was given."""
    seen: int
    """GPUs that TensorFlow lists."""
    raised: dict[str, Raised | None]
    """Invalid list to what it raised."""
    kernel: Kernel | None
    """Computed under the valid list; None where TensorFlow lists too few GPUs."""

    def figure(self) -> str:
        if self.kernel is None:
            return f"TensorFlow lists {self.seen} of {len(self.given)} GPUs"
        return f"{sum(one is not None for one in self.raised.values())} of {len(INVALID)} invalid lists refused"


def measure(ctx: Context) -> Reading:
    tf, v1 = ctx.tf, ctx.tf.compat.v1
    given = tuple(gpu.pci_bus_id for gpu in ctx.gpus)
    seen = len(tf.config.list_physical_devices("GPU"))
    if seen < len(given):
        return Reading(given, seen, {}, None)

    def session(visible_device_list: str) -> Any:
        options = v1.GPUOptions(visible_device_list=visible_device_list, allow_growth=True)
        return v1.Session(config=v1.ConfigProto(gpu_options=options))

    with tf.Graph().as_default():
        raised = {invalid: ctx.attempt(partial(session, invalid)) for invalid in INVALID}
        with tf.device("/GPU:0"):
            matrix = v1.placeholder(tf.float32, [2, 2])
            product = tf.matmul(matrix, matrix)
        with session("0") as running:
            correct = is_square(running.run(product, {matrix: MATRIX}))
    device = short_device(product.device)
    return Reading(given, seen, raised, Kernel(device, ctx.pci_bus_ids().get(device, ""), correct))


def judge(reading: Reading, facts: Facts, limits: Limits) -> Iterator[Judgement]:
    if reading.kernel is None:
        yield GPU_NOT_SEEN.found(seen=reading.seen, given=len(reading.given))
        return
    for invalid, raised in reading.raised.items():
        if raised is None:
            yield ACCEPTED.found(visible_device_list=invalid, count=reading.seen)
        elif raised.type != "InvalidArgumentError":
            yield OTHER_TYPE.found(visible_device_list=invalid, error=raised.brief)
        elif INVALID[invalid] not in raised.message:
            yield OTHER_TEXT.found(visible_device_list=invalid, words=INVALID[invalid], error=raised.brief)
    yield from judge_kernel(reading.kernel, reading.given[0])


_PCI = "0000:3b:00.0"
_KERNEL = Kernel("GPU:0", _PCI, True)
_REFUSED = Raised(
    "InvalidArgumentError", "'visible_device_list' listed an invalid Device id '100' but visible device count is 1"
)


def _case(name: str, *expect: str, raised: Raised | None = _REFUSED, kernel: Kernel = _KERNEL) -> Case:
    verified = (_PCI,) if kernel == _KERNEL else ()
    return Case(name, expect, Reading((_PCI,), 1, {"100": raised}, kernel), verified=verified)


CASES = (
    _case("refused"),
    _case("accepted", ACCEPTED.name, raised=None),
    _case("another type", OTHER_TYPE.name, raised=Raised("ValueError", "Invalid visible device index: 100")),
    _case("another text", OTHER_TEXT.name, raised=Raised("InvalidArgumentError", "no such GPU")),
    _case("another GPU", OTHER_GPU.name, kernel=Kernel("GPU:0", "0000:af:00.0", True)),
    _case("a wrong product", WRONG_RESULT.name, kernel=Kernel("GPU:0", _PCI, False)),
    Case("TensorFlow without GPU", (GPU_NOT_SEEN.name,), Reading((_PCI,), 0, {}, None)),
)
