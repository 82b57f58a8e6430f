"""TensorFlow creates a device on every GPU, and a matrix product on each comes out right.

What it does
    Lets TensorFlow create its devices (`tf.config.list_logical_devices('GPU')`) with memory growth, and multiplies two
    small matrices on each of them, soft placement off. The GPU behind a device is known by its PCI bus id. If that
    fails, the CUDA driver itself is asked for a context on each GPU, to find out which one fails.
Why it matters
    Listing a GPU proves little: contexts, memory and kernels are first touched when the device is created and used. A
    busy or failing GPU, or a driver too old for the CUDA runtime, is listed and then fails.
What to do
    "busy or unavailable": another process holds a GPU in exclusive mode, see `nvidia-smi -q -d COMPUTE`. "out of
    memory": another process holds its memory, see `nvidia-smi`. "driver version is insufficient": the driver is older
    than the CUDA that TensorFlow was built with; install a newer one.
"""

from __future__ import annotations

from functools import partial

from gpudiag import fix, probe
from gpudiag.knowledge.placement import short_device
from gpudiag.model.facts import Facts
from gpudiag.probe import Context, Findings, Kernel, Raised, fail
from gpudiag.probes.common import MATRIX, attempt_context, is_square
from gpudiag.record import Record

PROBE = probe.Probe(needs=probe.Needs(gpus=1), scope=probe.Scope.ALL_GPUS, quick=True)


class Fault(probe.KernelFaults):
    creation_failed = fail(
        "TensorFlow cannot create its devices (GPUs: {given}): {raised}{refused}",
        means="TensorFlow lists the GPUs but cannot create its devices on them.",
        do=(fix.nvidia_smi("look for other processes and the compute mode"), probe.KERNEL_LOG),
    )
    product_failed = fail(
        "a matrix product on {device} raised {raised}",
        means="A matrix product on a GPU raised an error.",
        do=probe.LOOK,
    )


class Product(Record):
    """The result of a matrix product on one device."""

    kernel: Kernel | None
    """The computed product; None if it raised."""
    raised: Raised | None


class Reading(probe.Reading):
    """The devices that TensorFlow created."""

    given: tuple[str, ...]
    """PCI bus ids of the GPUs that the probe was given, in the order of ``CUDA_VISIBLE_DEVICES``."""
    raised: Raised | None
    """The error that creating the devices raised."""
    products: dict[str, Product]
    """The products, by TensorFlow's name of the device, such as ``GPU:0``."""
    refused: dict[str, str] = {}
    """If creating the devices raised: the PCI bus id of each GPU on which the CUDA driver refuses a context, with its
    error."""

    def figure(self) -> str:
        right = sum(product.kernel is not None and product.kernel.correct for product in self.products.values())
        return f"{right} of {len(self.given)} compute right"


def measure(ctx: Context) -> Reading:
    tf = ctx.tf
    given = tuple(gpu.pci_bus_id for gpu in ctx.gpus)
    devices: list[str] = []
    raised = attempt_context(
        ctx, lambda: devices.extend(device.name for device in tf.config.list_logical_devices("GPU"))
    )
    if raised is not None:
        # The driver itself, because the next call into TensorFlow may never return (measured, 2.21).
        return Reading(given, raised, {}, ctx.context_refusals())
    tf.config.set_soft_device_placement(False)
    kernels: dict[str, Kernel] = {}

    def multiply(device: str) -> None:
        with tf.device(device):
            product = tf.matmul(MATRIX, MATRIX)
        kernels[device] = Kernel(short_device(product.device), "", is_square(product))

    failures = {device: ctx.attempt(partial(multiply, device)) for device in devices}
    bus_ids = ctx.pci_bus_ids() if failures and not any(failures.values()) else {}
    products = {}
    for device, failure in failures.items():
        kernel = kernels.get(device)
        if kernel is not None:
            kernel = Kernel(kernel.device, bus_ids.get(kernel.device, ""), kernel.correct)
        products[short_device(device)] = Product(kernel, failure)
    return Reading(given, None, products)


def judge(reading: Reading, facts: Facts) -> Findings:
    if reading.raised is not None:
        index = {device.pci_bus_id: device.index for device in facts.nvml_devices}
        refused = [f"; {error} on GPU {index.get(pci, pci)}" for pci, error in reading.refused.items()]
        some = 0 < len(refused) < len(reading.given)
        yield Fault.creation_failed.found(
            given=len(reading.given), raised=reading.raised.brief, refused="".join(refused) if some else ""
        )
        return
    if len(reading.products) < len(reading.given):
        yield Fault.gpu_not_seen.found(seen=len(reading.products), given=len(reading.given))
        return
    failed = {device: product.raised for device, product in reading.products.items() if product.raised is not None}
    for device, raised in failed.items():
        yield Fault.product_failed.found(device=device, raised=raised.brief)
    if not failed:
        for expected, product in zip(reading.given, reading.products.values(), strict=True):
            if product.kernel is not None:
                yield from product.kernel.verified_on(expected)
