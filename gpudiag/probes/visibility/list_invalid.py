"""An invalid `visible_device_list` is refused with an error that names the bad entry.

What it does
    Opens a `tf.compat.v1.Session` with each of four invalid lists (an id that no GPU has, a negative id, a word, a
    duplicate) and records the exception's type and text. A session with the valid list `0` then computes a matrix
    product on the GPU, and its result and PCI bus id are checked. It does the same in eager mode, where a process can
    have only one list: an id that no GPU has, and in a second process the list `-1`.
Why it matters
    A program configured for another machine must stop, and not run on the wrong GPU or on the CPU. Without any GPU
    TensorFlow does not even read the list and accepts every one of these: only a machine with a GPU can show it. Eager
    mode raises another error, at the first call that lists GPUs: anyone who catches it has all GPUs from then on. And
    `-1` is not an error: a session skips it and has no GPU left, eager mode counts from the end and takes the last GPU.
What to do
    Count from 0 within the GPUs that `CUDA_VISIBLE_DEVICES` leaves visible: with `CUDA_VISIBLE_DEVICES=2,3` the valid
    ids are 0 and 1. For a session without a GPU: `tf.compat.v1.ConfigProto(device_count={"GPU": 0})`. In eager mode:
    `tf.config.set_visible_devices([], "GPU")`.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import msgspec

from gpudiag import fix, probe
from gpudiag.knowledge.placement import created_devices, short_device
from gpudiag.probe import Context, Findings, Kernel, Raised, fail, warn
from gpudiag.probes.common import MATRIX, is_square

PROBE = probe.Probe(needs=probe.Needs(gpus=1), scope=probe.Scope.ALL_GPUS)


class Fault(probe.KernelFaults):
    accepted = fail(
        "{mode}: visible_device_list={visible_device_list!r} was accepted with {count} GPUs",
        means="An invalid list was accepted, so a mistake in it goes unnoticed.",
        do=fix.edit(
            "tf.config.list_physical_devices('GPU')", "compare the GPUs that TensorFlow lists with the list before use"
        ),
    )
    other_type = fail(
        "{mode}: visible_device_list={visible_device_list!r}: {error} (expected {expected})",
        means="An invalid visible_device_list raised another type of error than in TensorFlow 2.18 to 2.21.",
        do="Programs that catch {expected} miss this error: look up its text.",
    )
    other_text = warn(
        "{mode}: visible_device_list={visible_device_list!r}: the error does not say {words!r}: {error}",
        means="The error for an invalid visible_device_list does not say what is wrong with it.",
        do="Do not match on the text of this error; report to gpudiag this release of TensorFlow.",
    )
    not_skipped = warn(
        "a session with visible_device_list='-1' has {devices}, it should have no GPU",
        means="A session with visible_device_list='-1' has a GPU, and should have none.",
        do=fix.edit("tf.compat.v1.ConfigProto(device_count={{'GPU': 0}})", "for a session without a GPU"),
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


class Reading(probe.GpuReading):
    """The error of each invalid list, and the results under the valid ones."""

    raised: dict[str, Raised | None]
    """The error of each invalid list."""
    kernel: Kernel
    """A product computed under the valid list."""
    eager: dict[str, Raised | None] = {}
    """The error of each list in eager mode."""
    minus_one: tuple[str, ...] = ()
    """GPU devices of a session with the list ``-1``; none also if the list was refused."""
    last: Kernel | None = None
    """A product computed in eager mode under the list ``-1``, in another process; None if the list was refused."""

    def figure(self) -> str:
        refused = sum(raised is not None for raised in (*self.raised.values(), *self.eager.values()))
        return f"{refused} of {len(self.raised) + len(self.eager)} invalid lists refused"


def measure(ctx: Context) -> Reading:
    tf, v1 = ctx.tf, ctx.tf.compat.v1
    eager = {invalid: _list_in_eager_mode(ctx, invalid) for invalid in EAGER_INVALID}
    ctx.list_gpus()  # the list is forgotten once it has raised
    last = msgspec.convert(ctx.peer.meet("last"), Kernel | None)

    def session(visible_device_list: str) -> Any:
        options = v1.GPUOptions(visible_device_list=visible_device_list, allow_growth=True)
        return v1.Session(config=v1.ConfigProto(gpu_options=options))

    def list_devices() -> None:
        with session(MINUS_ONE) as running:
            names.extend(short_device(device.name) for device in running.list_devices() if device.device_type == "GPU")

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
    return Reading(raised, kernel, eager, tuple(names), last)


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
    """Configure eager mode and return the error of listing the GPUs; a process can do this only once."""
    v1 = ctx.tf.compat.v1
    v1.disable_eager_execution()
    options = v1.GPUOptions(visible_device_list=visible_device_list)
    v1.enable_eager_execution(config=v1.ConfigProto(gpu_options=options))
    return ctx.attempt(lambda: ctx.tf.config.list_physical_devices("GPU"))


def judge(reading: Reading) -> Findings:
    attempts = [
        *(("session", invalid, raised, "InvalidArgumentError", INVALID) for invalid, raised in reading.raised.items()),
        *(("eager mode", invalid, raised, "ValueError", EAGER_INVALID) for invalid, raised in reading.eager.items()),
    ]
    for mode, invalid, raised, expected, texts in attempts:
        about = {"mode": mode, "visible_device_list": invalid}
        if raised is None:
            yield Fault.accepted.found(**about, count=reading.seen)
        elif raised.type != expected:
            yield Fault.other_type.found(**about, expected=expected, error=raised.brief)
        elif texts[invalid] not in raised.message:
            yield Fault.other_text.found(**about, words=texts[invalid], error=raised.brief)
    if reading.minus_one:
        yield Fault.not_skipped.found(devices=", ".join(reading.minus_one))
    yield from reading.kernel.verified_on(reading.given[0])
    if reading.last is not None:
        yield from reading.last.verified_on(reading.given[-1])
