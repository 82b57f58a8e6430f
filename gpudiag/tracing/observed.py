"""What a process saw of its GPUs: the cards that the driver shows it, the devices that TensorFlow made, the memory
taken. Pure: from its notes, and from what NVML said of the machine.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from gpudiag.model.program import Booked
from gpudiag.tracing.notes import Note, Notes

_MOST_OF_IT = 0.9
"""Share of a limit that TensorFlow takes at once, if it does not grow: it asks for all, and then for a tenth less."""
_LITTLE = 0.25
"""Share of a limit that tensors need at most where memory that was taken says something of growth."""


@dataclass(frozen=True)
class Card:
    """A GPU as the driver shows it to the process."""

    pci: str
    uuid: str
    multiprocessors: int
    total: int
    is_open: bool
    """TensorFlow, or something else in the process, computes there."""
    free: int | None
    """When TensorFlow had made its devices there, before it took memory; None: it made none, or that is not known."""


@dataclass(frozen=True)
class Grown:
    """What the memory of a device shows of growth."""

    device: str
    grows: bool | None
    """None: it shows neither."""
    why: str


class Observed:
    """What a process saw of its GPUs."""

    def __init__(self, notes: Notes, pid: int, machine: Sequence[Booked] = ()) -> None:
        self.notes = notes
        self.pid = pid
        self.machine = {card.pci: card for card in machine if card.pci}
        self.made = made(notes)
        listed = notes.first("listed")
        self._listed: Note = listed if "cards" in listed else self.made

    @cached_property
    def cards(self) -> tuple[Card, ...] | None:
        """The GPUs in the order of the driver; None if TensorFlow did not load it."""
        return None if self._listed.get("cards") is None else self.cards_at(self.made)

    def cards_at(self, made: Note) -> tuple[Card, ...]:
        """Return the GPUs in the order of the driver, as they were when the devices of a note were made."""
        listed, is_new = self._listed.get("cards") or (), made.get("new", True)
        free = [card[4] for card in made.get("cards") or ()]
        free += [None] * (len(listed) - len(free))
        return tuple(
            Card(_pci(pci), _uuid(uuid), multiprocessors, total, left is not None, left if is_new else None)
            for (pci, uuid, multiprocessors, total, _), left in zip(listed, free, strict=False)
        )

    @cached_property
    def physical(self) -> tuple[str, ...] | None:
        """The GPUs that TensorFlow lists, such as ``/physical_device:GPU:0``; None if it was not asked."""
        names = self.notes.first("listed").get("devices") or self.made.get("physical")
        return None if names is None else tuple(name for name in names if ":GPU:" in name)

    @cached_property
    def devices(self) -> dict[str, int]:
        """The devices that TensorFlow made for the process, each with its limit in bytes."""
        return devices_of(self.made)

    @property
    def gpus(self) -> list[str]:
        return gpus_of(self.devices)

    @property
    def capabilities(self) -> tuple[tuple[int, ...], ...]:
        """The compute capabilities of the GPUs that TensorFlow lists; empty if they are not known."""
        return tuple(tuple(gpu[2]) for gpu in self.made.get("gpus", ()) if len(gpu) > 2 and gpu[2])

    @property
    def options(self) -> dict[str, Any]:
        """The options with which the devices were made."""
        return dict(self.made.get("options", {}))

    @cached_property
    def layout(self) -> dict[str, int]:
        """Each GPU device to the number of its card in :attr:`cards`; empty if that is not known."""
        return layout(self.options, self.gpus, self.cards or ())

    def on_card(self, ordinal: int) -> list[str]:
        """Return the devices on a card."""
        return [name for name, number in self.layout.items() if number == ordinal]

    def card_of_physical(self, name: str) -> int | None:
        """Return the number of the card of a ``/physical_device:GPU:0``; None if TensorFlow left out some of them."""
        if self.physical is None or self.cards is None or len(self.physical) != len(self.cards):
            return None
        return self.physical.index(name) if name in self.physical else None

    @cached_property
    def samples(self) -> tuple[tuple[dict[str, int], list[int | None]], ...]:
        """The most that tensors held on each device until then, and what each card had free."""
        found = []
        in_graphs: dict[str, int] = {}
        for note in self.notes.of("graph", "memory"):
            if note["k"] == "graph":
                in_graphs.update({name: 1 for name in note["devices"] if name.startswith("GPU:")})
            elif note.get("free"):
                held = {name: peak for name, _, peak in note["held"]} or dict(in_graphs)
                found.append((held, list(note["free"])))
        return tuple(found)

    def growth(self, names: Sequence[str]) -> Iterator[Grown]:
        """Yield for each of the devices whether TensorFlow took memory as it needed it, or all at once."""
        for name in names:
            ordinal = self.layout.get(name)
            if ordinal is None or self.cards is None:
                yield Grown(name, None, f"which card {name} is, is not known")
            else:
                yield self._grown(name, self.cards[ordinal], ordinal)

    def taken(self, name: str) -> int | None:
        """Return what was taken of its card after something was allocated on a device; None if that is not known."""
        ordinal = self.layout.get(name)
        if ordinal is None or self.cards is None or (before := self.cards[ordinal].free) is None:
            return None
        known = self._free_after(name, ordinal)
        return before - min(known) if known else None

    def _free_after(self, name: str, ordinal: int) -> list[int]:
        """Return the free memory of a card in each sample in which something was allocated on this device of it."""
        after = [free[ordinal] for held, free in self.samples if held.get(name) and ordinal < len(free)]
        return [free for free in after if free is not None]

    def _grown(self, name: str, card: Card, ordinal: int) -> Grown:
        limit = min(self.devices[name], card.total)
        peak = max((held.get(name, 0) for held, _ in self.samples), default=0)
        known = self._free_after(name, ordinal)
        if not known:
            return Grown(name, None, f"nothing was seen to be allocated on {name}")
        used = card.total - max(known)
        if used < limit:
            return Grown(name, True, f"{mib(used)} of its card in use, and {name} may take {mib(limit)}")
        own = dict(self.machine[card.pci].processes).get(self.pid) if card.pci in self.machine else None
        taken = own if own is not None else card.free - min(known) if card.free is not None else 0
        if taken >= _MOST_OF_IT * limit and peak <= _LITTLE * limit:
            return Grown(name, False, f"{mib(taken)} were taken of its card, for tensors of {mib(peak)}")
        return Grown(name, None, f"the memory in use on the card of {name} shows neither growth nor none")


def made(notes: Notes) -> Note:
    """Return the note of the devices that TensorFlow made, for eager operations or for a session."""
    return notes.first("initialised") or next((as_made(note) for note in notes.of("setting") if "devices" in note), {})


def as_made(session: Note) -> Note:
    """Return the note of a session in the form of a note of the eager context."""
    return {"options": session["value"], **session}


def devices_of(note: Note) -> dict[str, int]:
    """Return the devices of this process, each with its limit in bytes; of a cluster, others are listed, too."""
    return {name: limit for name, limit in note.get("devices", ()) if not name.startswith(("XLA", "/job:"))}


def gpus_of(devices: dict[str, int]) -> list[str]:
    return [name for name in devices if name.startswith("GPU:")]


def layout(options: dict[str, Any], gpus: Sequence[str], cards: Sequence[Card]) -> dict[str, int]:
    """Return for each GPU device the number of its card, by the options with which it was made.

    Empty if they are not as many as these options make, or if TensorFlow has nothing open on one of those cards.
    """
    listed = str(options.get("visible_device_list") or "")
    chosen = [int(entry) for entry in listed.split(",") if entry.strip().isdecimal()] or list(range(len(cards)))
    parts = options.get("virtual_devices") or [[] for _ in chosen]
    ordinals = [number for number, limits in zip(chosen, parts, strict=False) for _ in limits or [0]]
    wanted = dict(options.get("device_count", {})).get("GPU")
    if wanted is not None and not any(parts):
        ordinals = ordinals[:wanted]
    if len(ordinals) != len(gpus) or any(number >= len(cards) or not cards[number].is_open for number in ordinals):
        return {}
    return {f"GPU:{number}": ordinal for number, ordinal in enumerate(ordinals)}


def mib(number: float) -> str:
    return f"{number / (1 << 20):,.0f} MiB"


def _pci(text: str) -> str:
    """Return a PCI bus id as NVML's is written, if it has another number of digits."""
    domain, _, rest = text.lower().partition(":")
    try:
        return f"{int(domain, 16):04x}:{rest}"
    except ValueError:
        return text


def _uuid(digits: str) -> str:
    return "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))
