"""An invalid `visible_device_list` is refused with an error that names the bad entry.

What it does
    Opens a `tf.compat.v1.Session` with each of four invalid lists (an id that no GPU has, a negative id, a word, a
    duplicate) and records the exception's type and text. A session with the valid list `0` then computes a matrix
    product on the GPU, and its result and PCI bus id are checked. It does the same in eager mode, as far as one process
    has one list there: an id that no GPU has, and in a second process the list `-1`.
Why it matters
    A program configured for another machine must stop, and not run on the wrong GPU or on the CPU. Without any GPU
    TensorFlow does not even read the list and accepts every one of these: only a machine with a GPU can show it.
    Eager mode raises another error, at the first call that lists GPUs: whoever catches it has all GPUs from then on.
    And `-1` is no error: a session skips it and has no GPU left, eager mode counts from the end and takes the last GPU.
What a failure means
    `accepted`: an invalid list was accepted, so a mistake in it goes unnoticed.
    `other_type`: an exception, and not the one that programs catch: `tf.errors.InvalidArgumentError` of a session,
    `ValueError` in eager mode.
    `other_text`: the right exception, whose text does not name the fault; a release of TensorFlow that words it anew.
    `not_skipped`: a session with the list `-1` has a GPU.
    `gpu_not_seen`, `other_gpu`, `wrong_result`: TensorFlow does not use the GPU that it was given, or not correctly.
What to do
    Count from 0 within the GPUs that `CUDA_VISIBLE_DEVICES` leaves visible: with `CUDA_VISIBLE_DEVICES=2,3` the valid
    ids are 0 and 1. For a session without a GPU: `tf.compat.v1.ConfigProto(device_count={"GPU": 0})`. In eager mode:
    `tf.config.set_visible_devices([], "GPU")`.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import msgspec

from gpudiag import probe
from gpudiag.hostfacts import Facts
from gpudiag.model import Limits, Severity
from gpudiag.placement import created_devices, short_device
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
    "{mode}: visible_device_list={visible_device_list!r} was accepted with {count} GPUs",
    "Compare the GPUs that TensorFlow lists with the list before use: tf.config.list_physical_devices('GPU')",
)
OTHER_TYPE = Kind(
    "other_type",
    Severity.FAIL,
    "{mode}: visible_device_list={visible_device_list!r}: {error} (expected {expected})",
    "Programs that catch {expected} miss this error: look up its text.",
)
OTHER_TEXT = Kind(
    "other_text",
    Severity.WARNING,
    "{mode}: visible_device_list={visible_device_list!r}: the error does not say {words!r}: {error}",
    "Do not match on the text of this error; tell gpudiag's authors of this release of TensorFlow.",
)
NOT_SKIPPED = Kind(
    "not_skipped",
    Severity.WARNING,
    "a session with visible_device_list='-1' has {devices}, it should have no GPU",
    "For a session without a GPU: tf.compat.v1.ConfigProto(device_count={{'GPU': 0}})",
)

# TensorFlow's words of the fault (2.21: ParseVisibleDeviceList and ParsePlatformDeviceIdString).
INVALID = {
    "100": "invalid Device id '100'",
    "-2": "invalid Device id '-2'",
    "0,abc": "Could not parse entry in 'visible_device_list': 'abc'",
    "0,0": "duplicate entry",
}
EAGER_INVALID = {"100": "Invalid visible device index: 100"}  # one, because a process can be configured once
# No device in 2.21's ParseVisibleDeviceList, which skips it; an index of a Python list in eager mode.
MINUS_ONE = "-1"


class Reading(probe.Reading):
    """What each invalid list raised, and what the others computed."""

    given: tuple[str, ...]
    """PCI bus ids of the GPUs that the probe was given."""
    seen: int
    """GPUs that TensorFlow lists."""
    raised: dict[str, Raised | None]
    """Invalid list to what it raised."""
    kernel: Kernel | None
    """Computed under the valid list; None where TensorFlow lists too few GPUs."""
    eager: dict[str, Raised | None] = {}
    """The same in eager mode."""
    minus_one: tuple[str, ...] = ()
    """GPU devices of a session with the list ``-1``; none, too, where it was refused."""
    last: Kernel | None = None
    """Computed in eager mode under the list ``-1``, in another process; None where it was refused."""

    def figure(self) -> str:
        if self.kernel is None:
            return f"TensorFlow lists {self.seen} of {len(self.given)} GPUs"
        refused = sum(one is not None for one in (*self.raised.values(), *self.eager.values()))
        return f"{refused} of {len(self.raised) + len(self.eager)} invalid lists refused"


def measure(ctx: Context) -> Reading:
    tf, v1 = ctx.tf, ctx.tf.compat.v1
    given = tuple(gpu.pci_bus_id for gpu in ctx.gpus)
    eager = {invalid: _list_in_eager_mode(ctx, invalid) for invalid in EAGER_INVALID}
    seen = len(tf.config.list_physical_devices("GPU"))  # the list is forgotten once it has raised
    if seen < len(given):
        return Reading(given, seen, {}, None)
    last = msgspec.convert(ctx.peer.meet("last"), Kernel | None)

    def session(visible_device_list: str) -> Any:
        options = v1.GPUOptions(visible_device_list=visible_device_list, allow_growth=True)
        return v1.Session(config=v1.ConfigProto(gpu_options=options))

    def list_devices() -> None:
        with session(MINUS_ONE) as running:
            names.extend(short_device(one.name) for one in running.list_devices() if one.device_type == "GPU")

    names: list[str] = []
    with tf.Graph().as_default():
        raised = {invalid: ctx.attempt(partial(session, invalid)) for invalid in INVALID}
        ctx.attempt(list_devices)
        with tf.device("/GPU:0"):
            matrix = v1.placeholder(tf.float32, [2, 2])
            product = tf.matmul(matrix, matrix)
        with session("0") as running:
            correct = is_square(running.run(product, {matrix: MATRIX}))
    device = short_device(product.device)
    kernel = Kernel(device, ctx.pci_bus_ids().get(device, ""), correct)
    return Reading(given, seen, raised, kernel, eager, tuple(names), last)


def peer(ctx: Context) -> None:
    tf = ctx.tf
    kernel = None
    refused = _list_in_eager_mode(ctx, MINUS_ONE)
    if refused is None and len(tf.config.list_physical_devices("GPU")) == len(ctx.gpus):
        tf.config.set_soft_device_placement(False)
        with ctx.placements() as log:
            tf.config.list_logical_devices("GPU")
        with tf.device("GPU:0"):
            product = tf.matmul(MATRIX, MATRIX)
        device = short_device(product.device)
        kernel = Kernel(device, created_devices(log.lines).get(device, ""), is_square(product))
    ctx.peer.meet("last", msgspec.to_builtins(kernel))


def _list_in_eager_mode(ctx: Context, visible_device_list: str) -> Raised | None:
    """Configure eager mode and return what listing the GPUs raised; a process can do this once."""
    v1 = ctx.tf.compat.v1
    v1.disable_eager_execution()
    options = v1.GPUOptions(visible_device_list=visible_device_list)
    v1.enable_eager_execution(config=v1.ConfigProto(gpu_options=options))
    return ctx.attempt(lambda: ctx.tf.config.list_physical_devices("GPU"))


def judge(reading: Reading, facts: Facts, limits: Limits) -> Iterator[Judgement]:
    if reading.kernel is None:
        yield GPU_NOT_SEEN.found(seen=reading.seen, given=len(reading.given))
        return
    attempts = [
        *(("session", invalid, raised, "InvalidArgumentError", INVALID) for invalid, raised in reading.raised.items()),
        *(("eager mode", invalid, raised, "ValueError", EAGER_INVALID) for invalid, raised in reading.eager.items()),
    ]
    for mode, invalid, raised, expected, texts in attempts:
        about = {"mode": mode, "visible_device_list": invalid}
        if raised is None:
            yield ACCEPTED.found(**about, count=reading.seen)
        elif raised.type != expected:
            yield OTHER_TYPE.found(**about, expected=expected, error=raised.brief)
        elif texts[invalid] not in raised.message:
            yield OTHER_TEXT.found(**about, words=texts[invalid], error=raised.brief)
    if reading.minus_one:
        yield NOT_SKIPPED.found(devices=", ".join(reading.minus_one))
    yield from judge_kernel(reading.kernel, reading.given[0])
    if reading.last is not None:
        yield from judge_kernel(reading.last, reading.given[-1])


_PCI = "0000:3b:00.0"
_KERNEL = Kernel("GPU:0", _PCI, True)
_REFUSED = Raised(
    "InvalidArgumentError", "'visible_device_list' listed an invalid Device id '100' but visible device count is 1"
)


_EAGER = Raised("ValueError", "Invalid visible device index: 100")


def _case(
    name: str,
    *expect: str,
    raised: Raised | None = _REFUSED,
    kernel: Kernel = _KERNEL,
    eager: Raised | None = _EAGER,
    minus_one: tuple[str, ...] = (),
    last: Kernel | None = _KERNEL,
) -> Case:
    verified = (_PCI,) if _KERNEL in {kernel, last} else ()
    return Case(
        name, expect, Reading((_PCI,), 1, {"100": raised}, kernel, {"100": eager}, minus_one, last), verified=verified
    )


CASES = (
    _case("refused"),
    _case("accepted", ACCEPTED.name, raised=None),
    _case("another type", OTHER_TYPE.name, raised=Raised("ValueError", "Invalid visible device index: 100")),
    _case("another text", OTHER_TEXT.name, raised=Raised("InvalidArgumentError", "no such GPU")),
    _case("accepted in eager mode", ACCEPTED.name, eager=None),
    _case("another type in eager mode", OTHER_TYPE.name, eager=_REFUSED),
    _case("another text in eager mode", OTHER_TEXT.name, eager=Raised("ValueError", "no such GPU")),
    _case("-1 refused in eager mode", last=None),
    _case("-1 is a GPU of a session", NOT_SKIPPED.name, minus_one=("GPU:0",)),
    _case("-1 is another GPU than the last", OTHER_GPU.name, last=Kernel("GPU:0", "0000:af:00.0", True)),
    _case("another GPU", OTHER_GPU.name, kernel=Kernel("GPU:0", "0000:af:00.0", True)),
    _case("a wrong product", WRONG_RESULT.name, kernel=Kernel("GPU:0", _PCI, False)),
    Case("TensorFlow without GPU", (GPU_NOT_SEEN.name,), Reading((_PCI,), 0, {}, None)),
)
