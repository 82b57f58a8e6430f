"""CUDA counts the GPUs as `nvidia-smi` does, so that an index in `CUDA_VISIBLE_DEVICES` means the GPU it shows.

What it does
    Asks the CUDA driver for all GPUs of the machine, `CUDA_VISIBLE_DEVICES` unset, in three processes: in your
    environment, with `CUDA_DEVICE_ORDER=PCI_BUS_ID`, and with `FASTEST_FIRST`, which is the default. It joins them with
    NVML's by PCI bus id. The GPUs are only counted; none is used.
Why it matters
    `nvidia-smi` counts in PCI order, CUDA the fastest GPU first. With unequal cards an index then means one GPU to you
    and another to TensorFlow: the job runs on the small card, or on one that somebody else uses.
What to do
    `export CUDA_DEVICE_ORDER=PCI_BUS_ID` wherever indices are used, or choose by UUID as `nvidia-smi -L` prints them:
    `export CUDA_VISIBLE_DEVICES=GPU-...`. In Python: `os.environ['CUDA_DEVICE_ORDER'] = 'PCI_BUS_ID'` before the first
    call that lists or uses devices.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from functools import partial

from gpudiag import fix, probe
from gpudiag.model.facts import Facts
from gpudiag.probe import Context, Findings, note, warn
from gpudiag.record import Record

PROBE = probe.Probe(needs=probe.Needs(gpus=1), scope=probe.Scope.ALL_GPUS, quick=True)


class Fault(probe.GpuFaults):
    index_means_another = warn(
        "CUDA_VISIBLE_DEVICES='{value}' has indices, and index {position} is GPU {index} of nvidia-smi ({pci_bus_id})",
        means="CUDA_VISIBLE_DEVICES names an index that is another GPU in nvidia-smi.",
        do=(
            fix.export("CUDA_DEVICE_ORDER", "PCI_BUS_ID"),
            fix.nvidia_smi("UUIDs, which can be listed in place of numbers", "-L"),
        ),
    )
    order_differs = note(
        "CUDA counts otherwise than nvidia-smi: its GPU {position} is GPU {index} of nvidia-smi ({pci_bus_id})",
        means="CUDA numbers the GPUs in another order than nvidia-smi.",
        do=fix.export("CUDA_VISIBLE_DEVICES", "GPU-..", "export CUDA_DEVICE_ORDER=PCI_BUS_ID, or choose by UUID"),
    )
    pci_order_differs = warn(
        "with CUDA_DEVICE_ORDER=PCI_BUS_ID too, CUDA's GPU {position} is GPU {index} of nvidia-smi ({pci_bus_id})",
        means="CUDA numbers the GPUs in another order than nvidia-smi, although CUDA_DEVICE_ORDER=PCI_BUS_ID is set.",
        do=fix.export("CUDA_VISIBLE_DEVICES", "GPU-...", "use no indices here; nvidia-smi -L lists them"),
    )


class CudaOrder(Record):
    """GPUs in the order in which the CUDA driver counts them."""

    pci_bus_ids: tuple[str, ...]


class Reading(probe.Reading):
    """The order of all GPUs of the machine under three environments."""

    given: int
    """How many of the GPUs the probe was given."""
    in_force: CudaOrder
    """The order under the environment of gpudiag's caller."""
    by_pci: CudaOrder
    """The order under ``CUDA_DEVICE_ORDER=PCI_BUS_ID``."""
    by_speed: CudaOrder
    """The order under ``CUDA_DEVICE_ORDER=FASTEST_FIRST``."""

    def figure(self) -> str:
        if not self.in_force.pci_bus_ids:
            return "CUDA shows no GPU"
        if self.by_speed == self.by_pci:
            return "fastest first is PCI order"
        used = "PCI order" if self.in_force == self.by_pci else "fastest first"
        return f"fastest first differs from PCI order; {used} is in effect"


def measure(ctx: Context) -> Reading:
    # Unset, because in a list of UUIDs the order is that of the list. Nothing but counting is done with all GPUs.
    look = partial(_order, ctx)
    every: dict[str, str | None] = {"CUDA_VISIBLE_DEVICES": None}
    by_pci, by_speed = (
        ctx.apart(look, CudaOrder, {**every, "CUDA_DEVICE_ORDER": order}) for order in ("PCI_BUS_ID", "FASTEST_FIRST")
    )
    os.environ.pop("CUDA_VISIBLE_DEVICES", None)
    return Reading(len(ctx.gpus), look(), by_pci, by_speed)


def _order(ctx: Context) -> CudaOrder:
    return CudaOrder(tuple(device.pci_bus_id for device in ctx.cuda_devices()))


def judge(reading: Reading, facts: Facts) -> Findings:
    if not reading.in_force.pci_bus_ids:
        yield Fault.gpu_not_seen.found(seen=0, given=reading.given)
        return
    value = facts.variables.get("CUDA_VISIBLE_DEVICES")
    for figures in _first_moved(reading.in_force, facts):
        if value is None:
            yield Fault.order_differs.found(**figures)
        elif re.search(r"(?:^|,)\s*\+?\d", value):
            yield Fault.index_means_another.found(**figures, value=value)
    for figures in _first_moved(reading.by_pci, facts):
        yield Fault.pci_order_differs.found(**figures)


def _first_moved(order: CudaOrder, facts: Facts) -> Iterator[dict[str, int | str]]:
    """Yield the first GPU whose number in CUDA differs from NVML's, if there is one."""
    by_nvml = {device.pci_bus_id: device.index for device in facts.nvml_devices}
    for position, pci_bus_id in enumerate(order.pci_bus_ids):
        index = by_nvml.get(pci_bus_id, position)
        if index != position:
            yield {"position": position, "index": index, "pci_bus_id": pci_bus_id}
            return
