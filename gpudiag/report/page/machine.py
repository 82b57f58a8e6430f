"""The machine on the page: its GPUs on their buses, their memory, and which GPUs reach each other. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from gpudiag.knowledge.placement import created_devices
from gpudiag.model.facts import NvmlDevice, Unknown
from gpudiag.model.report import Report
from gpudiag.probes.common import ceilings_mib
from gpudiag.report import accounts
from gpudiag.report.page import pictures
from gpudiag.report.page.room import MOST_ITEMS
from gpudiag.text import counted, one_line

_DEEPEST = 12
"""The most PCI bridges shown above a GPU."""


@dataclass(frozen=True)
class Share:
    """A part of a GPU's memory, in percent."""

    x: float
    width: float
    kind: str
    text: str


@dataclass(frozen=True)
class GpuBox:
    """A GPU in the picture of the machine."""

    name: str
    title: str
    pci: str
    facts: tuple[tuple[str, str], ...]
    shares: tuple[Share, ...]
    memory: str
    holders: tuple[str, ...]
    devices: tuple[str, ...]


@dataclass(frozen=True)
class Bus:
    """A part of the PCI tree: the devices directly on it, and the parts below it."""

    name: str
    boxes: tuple[GpuBox, ...]
    below: tuple[Bus, ...] = ()


def buses(report: Report) -> tuple[Bus, ...]:
    """Return the GPUs by PCI domain; empty if none are known."""
    made, sizes = _devices_made(report)
    boxes: dict[str, list[tuple[str, GpuBox]]] = {}
    for device in report.facts.nvml_devices:
        logical = tuple(
            f"{name} {sizes[name]:,} MiB" if name in sizes else name
            for name, bus_id in made.items()
            if bus_id == device.pci_bus_id
        )
        box = GpuBox(
            name=f"GPU {device.index}",
            title=one_line(device.name)[:120],
            pci=one_line(device.pci_bus_id)[:40],
            facts=tuple(_state(report, device)),
            shares=tuple(_shares(device)),
            memory=_memory(device),
            holders=tuple(_holders(device)),
            devices=logical,
        )
        boxes.setdefault(box.pci[:4], []).append((box.pci, box))
    nodes = report.facts.device_nodes
    if not isinstance(nodes, Unknown):
        pci_bus_ids = {device.pci_bus_id for device in report.facts.nvml_devices}
        others = {**dict.fromkeys(nodes.pci_gpus, "NVIDIA"), **nodes.other_gpus}
        for bus_id, maker in others.items():
            if bus_id not in pci_bus_ids:
                driver = nodes.bound.get(bus_id, "")
                facts = (("driver", one_line(driver)[:40]),) if driver else ()
                title = f"{one_line(maker)[:40]}, not reported by NVML" if maker == "NVIDIA" else one_line(maker)[:40]
                box = GpuBox("GPU", title, one_line(bus_id)[:40], facts, (), "", (), ())
                boxes.setdefault(box.pci[:4], []).append((box.pci, box))
    above = {} if isinstance(nodes, Unknown) else nodes.bridges
    return tuple(
        _tree(f"PCI domain {domain}", [(_above(above, bus_id), box) for bus_id, box in sorted(found, key=_first)])
        for domain, found in sorted(boxes.items())
    )


def _first(pair: tuple[str, GpuBox]) -> str:
    return pair[0]


def _above(bridges: dict[str, tuple[str, ...]], bus_id: str) -> tuple[str, ...]:
    return tuple(one_line(bridge)[:40] for bridge in bridges.get(bus_id, ())[:_DEEPEST])


def _tree(name: str, found: list[tuple[tuple[str, ...], GpuBox]]) -> Bus:
    """Return the tree below ``name``: a bridge is shown if several GPUs, but not all, are behind it."""
    groups: dict[str, list[tuple[tuple[str, ...], GpuBox]]] = {}
    for bridges, box in found:
        groups.setdefault(bridges[0] if bridges else "", []).append((bridges[1:], box))
    if len(groups) == 1 and "" not in groups:
        return _tree(name, next(iter(groups.values())))
    alone = [box for bridge, same in groups.items() for _, box in same if not bridge or len(same) == 1]
    below = [_tree(f"behind {bridge}", same) for bridge, same in groups.items() if bridge and len(same) > 1]
    return Bus(name, tuple(alone), tuple(below))


def _devices_made(report: Report) -> tuple[dict[str, str], dict[str, int]]:
    """Return the devices that TensorFlow makes by default, from the row that shows the most of them."""
    rows = [row for row in report.rows if row.area == "discovery" and row.log]
    best: tuple[dict[str, str], dict[str, int]] = ({}, {})
    for row in rows:
        made = created_devices(row.log)
        if len(made) > len(best[0]):
            best = made, ceilings_mib(row.log)
    return best


def _state(report: Report, device: NvmlDevice) -> Iterator[tuple[str, str]]:
    """Yield short facts about a GPU's state."""
    account = next((gpu_account for gpu_account in report.accounts or () if gpu_account.uuid == device.uuid), None)
    if account is not None:
        yield "account", accounts.fate(account)[:240]
    if device.compute_capability:
        yield "capability", one_line(device.compute_capability)[:20]
    state = device.state
    if state.pcie_generation is not None and state.pcie_width is not None:
        link, most = (
            f"generation {state.pcie_generation} x{state.pcie_width}",
            f"generation {state.pcie_generation_max} x{state.pcie_width_max}",
        )
        yield "PCIe", link if link == most or state.pcie_width_max is None else f"{link}; it could be {most}"
    if state.nvlinks:
        yield "NVLink", f"{sum(state.nvlinks)} of {len(state.nvlinks)} links active"
    if device.mig_mode == "enabled":
        yield "MIG", f"enabled, {counted(len(device.mig_uuids), 'instance')}"
    if state.ecc is not None:
        errors = f", {state.uncorrected_errors} uncorrected errors" if state.uncorrected_errors else ""
        yield "ECC", f"{'on' if state.ecc else 'off'}{errors}"
    if state.slowed_by:
        yield "slowed by", ", ".join(one_line(reason)[:40] for reason in state.slowed_by[:8])


def _shares(device: NvmlDevice) -> Iterator[Share]:
    total = device.memory_total_bytes
    if total <= 0:
        return
    x = 0.0
    booked = 0
    for process in device.processes[:MOST_ITEMS]:
        held = max(process.used_bytes or 0, 0)
        width = min(100 * held / total, 100 - x)
        if width > 0:
            yield Share(round(x, 2), round(width, 2), "held", f"process {process.pid}: {pictures.size(held)}")
        x, booked = x + width, booked + held
    rest = min(max(device.memory_used_bytes - booked, 0) * 100 / total, 100 - x)
    if rest > 0:
        text = f"not assigned to a process: {pictures.size(device.memory_used_bytes - booked)}"
        yield Share(round(x, 2), round(rest, 2), "other", text)


def _memory(device: NvmlDevice) -> str:
    if not device.memory_total_bytes:
        return "memory not known"
    return (
        f"{pictures.size(device.memory_used_bytes)} of {pictures.size(device.memory_total_bytes)} in use before the run"
    )


def _holders(device: NvmlDevice) -> Iterator[str]:
    for process in device.processes[:MOST_ITEMS]:
        held = "memory not known" if process.used_bytes is None else pictures.size(process.used_bytes)
        holder = process.holder
        who = "" if holder is None else ": ".join(filter(None, (holder.user, holder.command)))
        yield one_line(f"{held}: process {process.pid}{f' ({who})' if who else ''}")[:300]


def peers(report: Report) -> tuple[tuple[str, ...], tuple[tuple[str, tuple[str, ...]], ...]] | None:
    """Return headings and lines of the table of peer access; None if it is unknown or there is one GPU."""
    peers_by_pair = {} if isinstance(report.facts.nvml, Unknown) else report.facts.nvml.peers
    numbers = [device.index for device in report.facts.nvml_devices][:64]
    if not peers_by_pair or len(numbers) < 2:
        return None

    def said(first: int, other: int) -> str:
        if first == other:
            return "self"
        return one_line(peers_by_pair.get(f"{min(first, other)} {max(first, other)}", "not known"))[:80]

    lines = tuple((f"GPU {number}", tuple(said(number, other) for other in numbers)) for number in numbers)
    return tuple(f"GPU {number}" for number in numbers), lines
