"""With the first GPU split in three, TensorFlow calls the second one `GPU:3` and not `GPU:1`.

What it does
    Splits the first GPU into three logical devices and gives every other GPU one. On each logical device it multiplies
    matrices. Which GPU is behind a number is taken from the PCI bus id in TensorFlow's `Created device` line, and where
    each product ran from the placement log.
Why it matters
    TensorFlow numbers logical devices, GPU after GPU. Code that says `GPU:1` and means the second card computes on the
    first one as soon as that is split: without an error, and with the second card idle.
What to do
    Write no number into the source: `tf.config.list_logical_devices("GPU")` names the devices. Which card one is on:
    `[d.physical_device_desc for d in tensorflow.python.client.device_lib.list_local_devices()]`.
"""

from __future__ import annotations

from gpudiag import fix, probe
from gpudiag.knowledge.placement import devices_of
from gpudiag.probe import Context, Findings, Kernel, fail
from gpudiag.probes.common import MATRIX, create_devices, is_square
from gpudiag.record import Record

PROBE = probe.Probe(needs=probe.Needs(gpus=2), scope=probe.Scope.ALL_GPUS, sampled=True)


class Fault(probe.GpuFaults):
    wrong_count = fail(
        "TensorFlow made {count} logical GPUs, {wanted} were asked for",
        means="TensorFlow made another number of logical GPUs than was asked for.",
        do=fix.edit("tf.config.set_logical_device_configuration(gpu, [...])", "the first call after the import"),
    )
    other_number = fail(
        "{device} is on the GPU {found}, it should be on {expected}",
        means="A logical GPU is on another GPU than the order of the split says.",
        do='Go by tf.config.list_logical_devices("GPU") and the PCI bus ids in the `Created device` lines of the log, '
        "not by numbers.",
    )
    ran_elsewhere = fail(
        "MatMul was put on {device}, the placement log says {logged}",
        means="The placement log names another device than tf.device.",
        do=fix.edit("tf.config.set_soft_device_placement(False)", "switch soft placement off to get an error instead"),
    )


PARTS = 3
# Growth is forced on, so that this may run beside other programs: of each limit only some MiB are taken.
LIMIT_MIB = 64


class Numbered(Record):
    """A logical device, and the product computed on it."""

    kernel: Kernel
    """The product, and the device that it ran on."""
    logged: tuple[str, ...]
    """Devices on which the placement log shows the product."""


class Reading(probe.GpuReading):
    """The GPU behind each device number."""

    devices: tuple[Numbered, ...]
    """The logical devices, in the order of TensorFlow's numbers."""

    def figure(self) -> str:
        second = [numbered.kernel.device for numbered in self.devices if numbered.kernel.pci_bus_id == self.given[1]]
        return f"GPU 0 in {PARTS}: the next GPU is {', '.join(second) or 'not there'}"


def measure(ctx: Context) -> Reading:
    tf = ctx.tf
    tf.debugging.set_log_device_placement(True)
    for number, device in enumerate(ctx.list_gpus()):
        limit = tf.config.LogicalDeviceConfiguration(memory_limit=LIMIT_MIB)
        tf.config.set_logical_device_configuration(device, [limit] * (PARTS if number == 0 else 1))
    tf.config.set_soft_device_placement(False)
    devices = []
    for name, pci_bus_id in create_devices(ctx).items():
        with ctx.placements() as log, tf.device(name):
            matrix = tf.constant(MATRIX)
            product = tf.matmul(matrix, matrix)
        kernel = Kernel(name, pci_bus_id, is_square(product))
        devices.append(Numbered(kernel, devices_of("MatMul", log.placements)))
    return Reading(tuple(devices))


def judge(reading: Reading) -> Findings:
    expected = (reading.given[0],) * PARTS + reading.given[1:]
    if len(reading.devices) != len(expected):
        yield Fault.wrong_count.found(count=len(reading.devices), wanted=len(expected))
        return
    for device, pci_bus_id in zip(reading.devices, expected, strict=True):
        kernel = device.kernel
        if kernel.pci_bus_id != pci_bus_id:
            found = kernel.pci_bus_id or "(not named)"
            yield Fault.other_number.found(device=kernel.device, found=found, expected=pci_bus_id)
        elif device.logged != (kernel.device,):
            yield Fault.ran_elsewhere.found(device=kernel.device, logged=", ".join(device.logged) or "nothing")
        else:
            yield from kernel.verified_on(pci_bus_id)
