"""Shared by causes: GPUs of one model are compared in everything that is measured, and the odd one is named.

A GPU is odd if it is worse than its twins by more than they differ for honest reasons: clocks and links that fall
while a GPU is idle, cards of one model by several makers, slots that a mainboard has by design, the far processor
socket, and the first GPU of a process, which waits for the libraries to be loaded.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from statistics import median

from gpudiag.cause import Evidence, Rows
from gpudiag.causes.shared.gpu_state import GpusInScope
from gpudiag.fix import Action, Kind, check, configure, fill_in, note, nvidia_smi, run
from gpudiag.model.facts import KernelFacts, NvmlDevice
from gpudiag.probes.discovery import first_op
from gpudiag.probes.libraries import copies


@dataclass(frozen=True)
class Twin:
    """A GPU, and what was measured on it."""

    device: NvmlDevice
    """NVML's report, with the state in which the GPU was while it computed, if it did."""
    in_scope: bool
    firmware: str = ""
    first_s: float | None = None
    """Seconds until its first result; None for the first GPU of a process, which waits for libraries."""
    second_s: float | None = None
    performance_state: int | None = None
    """The performance state right after it computed; None if other GPUs computed for seconds meanwhile."""
    copy_rate: float | None = None
    """GB/s of the slower direction, with pinned memory."""

    @property
    def copy_rate_of_lanes(self) -> float | None:
        """The rate for 16 lanes: that a narrow link copies slowly is said of the link."""
        lanes = self.device.state.pcie_width
        return None if self.copy_rate is None else self.copy_rate * (16 / lanes if lanes else 1)


@dataclass(frozen=True)
class Quantity:
    """A quantity in which twins are compared."""

    value: Callable[[Twin], float | str | None]
    words: str
    """A format string over ``value``."""
    worse: Callable[[float, float, int], bool] | None = None
    """Whether a value is worse than the median of the others, of this many; None if each other value is odd."""
    fix: tuple[Action, ...] = ()
    """Format strings over ``index``."""
    awake: bool = False
    """True if a GPU is odd only if it was awake when NVML was asked."""


@dataclass(frozen=True)
class Difference:
    """A quantity in which one GPU differs from its twins."""

    twin: Twin
    quantity: Quantity
    own: str
    others: str
    count: int
    """How many twins it was compared with."""


class Twins(tuple[tuple[Twin, ...], ...]):
    """The groups of GPUs of one model; those alone of their kind, MIG instances and virtual GPUs are left out."""

    __slots__ = ()

    @classmethod
    def of(cls, evidence: Evidence) -> Twins:
        computed = {device.pci_bus_id: device for device in GpusInScope.of(evidence)}
        kernel = evidence.facts.kernel
        firmware = kernel.firmware if isinstance(kernel, KernelFacts) else {}
        times, rates = dict(_times(evidence)), dict(_rates(evidence))
        groups: dict[tuple[str, str | None], list[Twin]] = defaultdict(list)
        for device in evidence.facts.nvml_devices:
            if device.mig_mode == "enabled" or device.state.virtualization in ("vgpu", "host_vgpu", "host_vsga"):
                continue
            pci = device.pci_bus_id
            twin = Twin(
                computed.get(pci, device),
                in_scope=pci in computed,
                firmware=firmware.get(pci, ""),
                first_s=times.get(pci, (None, None, None))[0],
                second_s=times.get(pci, (None, None, None))[1],
                performance_state=times.get(pci, (None, None, None))[2],
                copy_rate=rates.get(pci),
            )
            groups[device.name, device.compute_capability].append(twin)
        return cls(tuple(group) for group in groups.values() if len(group) > 1)

    def differences(self) -> Iterator[Difference]:
        """Yield each quantity in which one GPU, or few of many, differ from the others of their kind."""
        return (difference for group in self for quantity in QUANTITIES for difference in _odd(group, quantity))


def _odd(group: tuple[Twin, ...], quantity: Quantity) -> Iterator[Difference]:
    known = [(twin, value) for twin in group if (value := quantity.value(twin)) is not None]
    for twin, value in known:
        others = [other for candidate, other in known if candidate is not twin]
        if not twin.in_scope or not others or (quantity.awake and not twin.device.state.is_working):
            continue
        if quantity.worse is None:
            if len(others) < 2 or value in others or len(set(others)) > 1:
                continue
            usual: float | str = others[0]
        else:
            numbers = [float(other) for other in others]
            usual = median(numbers)
            # Two of seven GPUs or fewer are no odd ones, but a machine with two kinds of slots.
            as_bad = sum(quantity.worse(other, usual, len(others)) for other in numbers)
            if not quantity.worse(float(value), usual, len(others)) or 6 * as_bad >= len(others):
                continue
        words = quantity.words
        yield Difference(twin, quantity, words.format(value=value), words.format(value=usual), len(others))


def _times(evidence: Evidence) -> Iterator[tuple[str, tuple[float | None, float, int | None]]]:
    for reading in Rows(evidence.rows).readings("discovery.first_op", first_op.Reading):
        since_s = 0.0
        for number, operation in reversed(list(enumerate(reading.operations))):
            pci = operation.kernel.pci_bus_id
            first_s = operation.first_s if number and not reading.compiled else None
            state = reading.states.get(pci)
            fresh = state is not None and since_s < _STILL_AWAKE_S
            yield pci, (first_s, operation.second_s, state.performance_state if fresh and state else None)
            since_s += operation.first_s + operation.second_s


_STILL_AWAKE_S = 2.0
"""Seconds for which a GPU keeps its clocks after it has computed; a few more, and many cards lower them."""


def _rates(evidence: Evidence) -> Iterator[tuple[str, float]]:
    for reading in Rows(evidence.rows).readings("libraries.copies", copies.Reading):
        rates: dict[str, list[float]] = defaultdict(list)
        for copy in reading.copies:
            if copies.PINNED in (copy.source, copy.target) and copy.seconds and copy.is_right:
                rates[copy.target if copy.source == copies.PINNED else copy.source].append(copy.rate)
        yield from ((reading.made[device], min(several)) for device, several in rates.items() if device in reading.made)


def _working(of_state: Callable[[Twin], float | str | None]) -> Callable[[Twin], float | str | None]:
    """Return a value that counts only if the GPU was awake when NVML was asked."""
    return lambda twin: of_state(twin) if twin.device.state.is_working else None


def _on_off(value: bool | None) -> str | None:
    return None if value is None else "on" if value else "off"


def _power(twin: Twin) -> float | None:
    """Return the power limit in percent of the card's own: cards of one model by several makers have different ones."""
    limit, sold = twin.device.state.power_limit_watts, twin.device.state.power_default_watts
    return round(100 * limit / sold) if limit and sold else None


def _chosen(twin: Twin) -> str | None:
    slowed = twin.device.state.slowed_by
    return None if slowed is None else "set by an administrator" if "chosen_clocks" in slowed else "not limited"


def _links(twin: Twin) -> int | None:
    """Return the active NVLinks; none at all is a card without a bridge, beside two that have one."""
    return sum(twin.device.state.nvlinks or ()) or None


def _firmware(twin: Twin) -> str | None:
    """Return whether the driver runs the GPU by its system processor; "" is not known."""
    return f"{'without' if twin.firmware == 'N/A' else 'with'} GSP firmware" if twin.firmware else None


_LINK = (
    nvidia_smi(
        options="--query-gpu=index,pcie.link.gen.current,pcie.link.width.current,pcie.link.width.max --format=csv"
    ),
    note(
        "switch off, and put GPU {index} into another slot; clean its contacts, and replace a riser or cable",
        kind=Kind.REPLACE_HARDWARE,
    ),
)
_SLOW = (
    nvidia_smi("run it again while a program computes on all GPUs", "-q -d PERFORMANCE,POWER -i {index}"),
    check("sudo dmesg | grep -i -e nvrm -e xid -e AER", "shows errors of the GPU and of its link"),
)
QUANTITIES: tuple[Quantity, ...] = (
    Quantity(
        _links,
        "{value:.0f} NVLinks are active",
        lambda value, usual, _: value < usual,
        (
            nvidia_smi("shows which links are down; nvidia-smi nvlink -e shows their errors", "nvlink -s -i {index}"),
            run(
                "sudo nvidia-smi --gpu-reset",
                "resets all GPUs together, if no program uses them; or reboot",
                kind=Kind.RESET_GPU,
            ),
            note("have the bridge or card reseated or replaced if the links stay down", kind=Kind.REPLACE_HARDWARE),
        ),
    ),
    Quantity(
        # Two lanes or fewer are a cause of their own; eight beside sixteen are usual on mainboards with few slots.
        lambda twin: width if (width := twin.device.state.pcie_width or 0) > 2 else None,
        "PCI Express x{value:.0f}",
        lambda value, usual, count: value <= usual * (0.5 if count >= 5 else 0.25),
        _LINK,
        awake=True,
    ),
    Quantity(
        _working(lambda twin: twin.device.state.pcie_generation),
        "PCI Express generation {value:.0f}",
        lambda value, usual, count: 1 < value <= usual - (1 if count >= 3 else 2),
        _LINK,
    ),
    Quantity(
        lambda twin: twin.copy_rate_of_lanes,
        "copies at {value:.1f} GB/s for 16 lanes",
        lambda value, usual, count: value < usual * (0.4 if count >= 2 else 0.2),
        _LINK,
    ),
    Quantity(
        _power,
        "a power limit of {value:.0f} % of the card's own",
        lambda value, usual, count: value <= usual * (0.9 if count >= 2 else 0.6),
        (
            nvidia_smi("shows the limit and the card's own", "-q -d POWER -i {index}"),
            configure("sudo nvidia-smi -i {index} -pl {sold}", "sets the card's original limit in watts"),
        ),
    ),
    Quantity(
        _working(_chosen),
        "clocks {value}",
        fix=(configure("sudo nvidia-smi -i {index} -rgc && sudo nvidia-smi -i {index} -rac", "resets its clocks"),),
    ),
    Quantity(
        lambda twin: twin.performance_state,
        "performance state P{value:.0f} right after it computed",
        lambda value, usual, count: count >= 2 and value >= 8 and usual <= 2,
        (
            nvidia_smi("shows what keeps its clocks low", "-q -d PERFORMANCE,CLOCK -i {index}"),
            configure("sudo nvidia-smi -i {index} -pm 1 && sudo nvidia-smi -i {index} -rac", "resets its clocks"),
        ),
    ),
    Quantity(
        lambda twin: twin.first_s,
        "first result after {value:.1f} s",
        lambda value, usual, count: count >= 2 and value > 5 * usual and value > usual + 2,
        _SLOW,
    ),
    Quantity(
        lambda twin: twin.second_s,
        "second result after {value:.3f} s",
        lambda value, usual, count: count >= 2 and value > 10 * usual and value > usual + 0.5,
        _SLOW,
    ),
    Quantity(
        lambda twin: twin.device.state.corrected_errors,
        "{value:.0f} corrected memory errors",
        lambda value, usual, count: count >= 2 and value >= 1000 and value > 100 * (usual + 1),
        (nvidia_smi("if the number grows, have the GPU replaced", "-q -d ECC,ROW_REMAPPER -i {index}"),),
    ),
    Quantity(
        lambda twin: _on_off(twin.device.state.ecc),
        "ECC {value}",
        fix=(configure("sudo nvidia-smi -i {index} -e {usual}", "takes effect after a reset of the GPU"),),
    ),
    Quantity(
        lambda twin: twin.device.compute_mode,
        "compute mode {value}",
        fix=(configure("sudo nvidia-smi -i {index} -c {usual}"),),
    ),
    Quantity(
        lambda twin: _on_off(twin.device.state.persistence),
        "persistence mode {value}",
        fix=(configure("sudo nvidia-smi -i {index} -pm {usual}"),),
    ),
    Quantity(
        _firmware,
        "driven {value}",
        fix=(check("cat /proc/driver/nvidia/gpus/*/information", "shows GPU Firmware: reboot if one lacks it"),),
    ),
)
"""The quantities, those that slow a program most first."""
_NVIDIA_SMI = {
    "on": "1",
    "off": "0",
    "default": "0",
    "exclusive_thread": "1",
    "prohibited": "2",
    "exclusive_process": "3",
}


def fix_of(difference: Difference) -> tuple[Action, ...]:
    """Return how the odd GPU is made like its twins, or what is to be looked at."""
    device = difference.twin.device
    usual = difference.others.rpartition(" ")[2]
    figures = {
        "index": device.index,
        "sold": device.state.power_default_watts,
        "usual": _NVIDIA_SMI.get(usual, usual),
    }
    return tuple(fill_in(action, figures) for action in difference.quantity.fix)
