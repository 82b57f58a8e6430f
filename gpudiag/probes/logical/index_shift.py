"""With the first GPU split in three, TensorFlow calls the second one `GPU:3` and not `GPU:1`.

What it does
    Splits the first GPU into three logical devices and gives every other GPU one. On each logical device it multiplies
    matrices. Which GPU is behind a number is taken from the PCI bus id in TensorFlow's `Created device` line, and where
    each product ran from the placement log.
Why it matters
    TensorFlow numbers logical devices, GPU after GPU. Code that says `GPU:1` and means the second card computes on the
    first one as soon as that is split: without an error, and with the second card idle.
What a failure means
    `wrong_count`: TensorFlow made another number of logical devices than it was asked for.
    `other_number`: a number does not stand for the GPU that it should stand for.
    `ran_elsewhere`: a product did not run on the logical device it was put on.
    `gpu_not_seen`, `wrong_result`: TensorFlow does not use the GPUs that it was given, or not correctly.
What to do
    Write no number into the source: `tf.config.list_logical_devices("GPU")` names the devices. Which card one is on:
    `[d.physical_device_desc for d in tensorflow.python.client.device_lib.list_local_devices()]`.
"""

from __future__ import annotations

from collections.abc import Iterator

from gpudiag import probe
from gpudiag.hostfacts import Facts
from gpudiag.model import Limits, Severity
from gpudiag.placement import created_devices, devices_of, short_device
from gpudiag.probe import Case, Context, Judgement, Kind, Needs, Scope
from gpudiag.probes.common import GPU_NOT_SEEN, MATRIX, WRONG_RESULT, Kernel, is_square, judge_kernel
from gpudiag.record import Record

PROBE = probe.Probe(needs=Needs(gpus=2), scope=Scope.ALL_GPUS)

WRONG_COUNT = Kind(
    "wrong_count",
    Severity.FAIL,
    "TensorFlow made {count} logical GPUs, {wanted} were asked for",
    "Configure before TensorFlow initialises: tf.config.set_logical_device_configuration(gpu, [...]) "
    "as the first call after the import",
)
OTHER_NUMBER = Kind(
    "other_number",
    Severity.FAIL,
    "{device} is on the GPU {found}, it should be on {expected}",
    'Go by tf.config.list_logical_devices("GPU") and the PCI bus ids in the `Created device` lines of the log, '
    "not by numbers.",
)
RAN_ELSEWHERE = Kind(
    "ran_elsewhere",
    Severity.FAIL,
    "MatMul was put on {device}, the placement log says {logged}",
    "Switch soft placement off to get an error instead: tf.config.set_soft_device_placement(False)",
)

PARTS = 3
# Growth is forced on, so that this may run beside other programs: of each limit only some MiB are taken.
LIMIT_MIB = 64


class Numbered(Record):
    """One logical device and the product computed on it."""

    kernel: Kernel
    """With the device that was asked for."""
    logged: tuple[str, ...]
    """Devices on which the placement log shows the product."""


class Reading(probe.Reading):
    """Which GPU each number stands for."""

    given: tuple[str, ...]
    """PCI bus ids of the GPUs that the probe was given, in the order of ``CUDA_VISIBLE_DEVICES``."""
    seen: int
    """GPUs that TensorFlow lists."""
    devices: tuple[Numbered, ...] = ()
    """In the order of TensorFlow's numbers; empty where TensorFlow lists too few GPUs."""

    def figure(self) -> str:
        if not self.devices:
            return f"TensorFlow lists {self.seen} of {len(self.given)} GPUs"
        second = [one.kernel.device for one in self.devices if one.kernel.pci_bus_id == self.given[1]]
        return f"GPU 0 in {PARTS}: the next GPU is {', '.join(second) or 'not there'}"


def measure(ctx: Context) -> Reading:
    tf = ctx.tf
    given = tuple(gpu.pci_bus_id for gpu in ctx.gpus)
    tf.debugging.set_log_device_placement(True)
    physical = tf.config.list_physical_devices("GPU")
    if len(physical) < len(given):
        return Reading(given, len(physical))
    for number, device in enumerate(physical):
        limit = tf.config.LogicalDeviceConfiguration(memory_limit=LIMIT_MIB)
        tf.config.set_logical_device_configuration(device, [limit] * (PARTS if number == 0 else 1))
    tf.config.set_soft_device_placement(False)
    with ctx.placements() as log:
        logical = [short_device(device.name) for device in tf.config.list_logical_devices("GPU")]
    created = created_devices(log.lines)
    devices = []
    for name in logical:
        with ctx.placements() as log, tf.device(name):
            matrix = tf.constant(MATRIX)
            product = tf.matmul(matrix, matrix)
        kernel = Kernel(name, created.get(name, ""), is_square(product))
        devices.append(Numbered(kernel, devices_of("MatMul", log.placements)))
    return Reading(given, len(physical), tuple(devices))


def judge(reading: Reading, facts: Facts, limits: Limits) -> Iterator[Judgement]:
    if reading.seen < len(reading.given):
        yield GPU_NOT_SEEN.found(seen=reading.seen, given=len(reading.given))
        return
    expected = (reading.given[0],) * PARTS + reading.given[1:]
    if len(reading.devices) != len(expected):
        yield WRONG_COUNT.found(count=len(reading.devices), wanted=len(expected))
        return
    for one, pci_bus_id in zip(reading.devices, expected, strict=True):
        kernel = one.kernel
        if kernel.pci_bus_id != pci_bus_id:
            found = kernel.pci_bus_id or "(not named)"
            yield OTHER_NUMBER.found(device=kernel.device, found=found, expected=pci_bus_id)
        elif one.logged != (kernel.device,):
            yield RAN_ELSEWHERE.found(device=kernel.device, logged=", ".join(one.logged) or "nothing")
        else:
            yield from judge_kernel(kernel, pci_bus_id)


_FIRST, _SECOND = "0000:3b:00.0", "0000:af:00.0"


def _case(
    name: str,
    *expect: str,
    on: tuple[str, ...] = (_FIRST, _FIRST, _FIRST, _SECOND),
    last_logged: tuple[str, ...] = ("GPU:3",),
    last_correct: bool = True,
    verified: tuple[str, ...] = (_FIRST, _SECOND),
) -> Case:
    devices = [Numbered(Kernel(f"GPU:{n}", bus_id, True), (f"GPU:{n}",)) for n, bus_id in enumerate(on[:-1])]
    devices.append(Numbered(Kernel(f"GPU:{len(devices)}", on[-1], last_correct), last_logged))
    return Case(name, expect, Reading((_FIRST, _SECOND), 2, tuple(devices)), verified=verified)


CASES = (
    _case("the second GPU is GPU:3"),
    _case("the split was ignored", WRONG_COUNT.name, on=(_FIRST, _SECOND), last_logged=("GPU:1",), verified=()),
    _case(
        "the second GPU is GPU:1",
        OTHER_NUMBER.name,
        OTHER_NUMBER.name,
        on=(_FIRST, _SECOND, _FIRST, _FIRST),
        verified=(_FIRST,),
    ),
    _case("a device without a PCI bus id", OTHER_NUMBER.name, on=(_FIRST, _FIRST, _FIRST, ""), verified=(_FIRST,)),
    _case("ran on the first", RAN_ELSEWHERE.name, last_logged=("GPU:0",), verified=(_FIRST,)),
    _case("not in the log", RAN_ELSEWHERE.name, last_logged=(), verified=(_FIRST,)),
    _case("a wrong product", WRONG_RESULT.name, last_correct=False, verified=(_FIRST,)),
    Case("TensorFlow lists one of two", (GPU_NOT_SEEN.name,), Reading((_FIRST, _SECOND), 1)),
)
