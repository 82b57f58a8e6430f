"""TensorFlow's placement lines as records.

Two forms are read, by their text and never by line number or time stamp (``facts`` of TensorFlow 2.18-2.21):

* eager: ``Executing op MatMul in device /job:localhost/replica:0/task:0/device:GPU:1``
* placer (graphs and functions): ``NAME: (MatMul): /job:localhost/replica:0/task:0/device:GPU:1``

The second is printed to stdout by a session and, in TensorFlow's log, behind ``placer.cc:NN] ``: the same text.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable

from gpudiag.record import Record

_DEVICE = r"(?P<device>/job:\S+?/device:[A-Za-z_]+:\d+)"
_EAGER = re.compile(rf"Executing op (?P<op>\w+) in device {_DEVICE}")
_GRAPH = re.compile(rf"(?:^|\] )(?P<name>[A-Za-z0-9.][\w.>/\-]*): \((?P<op>\w+)\): {_DEVICE}\s*$")
_LOGGED = re.compile(r"Executing op \S+ in device /job:|(?:^|\] )\S+: \(\w+\): /job:\S+\s*$")
_CREATED = re.compile(rf"Created device {_DEVICE} with .{{0,300}}pci bus id: ")
_PCI = re.compile(r"pci bus id: ([0-9A-Fa-f:.]+)")
_LOCAL = "/job:localhost/replica:0/task:0/device:"


class Placement(Record):
    """Where an operation ran, as TensorFlow logged it."""

    op: str
    """Operation type, such as ``MatMul``."""
    device: str
    """``GPU:0`` for a device of this process, the full name for one of another job or task."""
    name: str = ""
    """Node name in a graph or function; empty for an eager operation."""
    count: int = 1
    """How many times an eager operation ran there; 1 for a node of a graph, which TensorFlow places once but logs
    twice."""


def has_gpu(devices: str) -> bool:
    """Return whether a list of devices names a GPU of TensorFlow's own; ``XLA_GPU`` (1.9 to 2.3) does not count."""
    return re.search(r"(?<!XLA_)GPU", devices.upper()) is not None


def short_device(name: str) -> str:
    """Return ``GPU:0`` for ``/job:localhost/replica:0/task:0/device:GPU:0``; other names are returned unchanged."""
    return name.removeprefix(_LOCAL) if name.startswith(_LOCAL) else name.removeprefix("/device:")


def parse_placements(lines: Iterable[str]) -> tuple[Placement, ...]:
    """Return the placements in ``lines`` of TensorFlow's log, in order of appearance; eager ones are counted."""
    seen: Counter[tuple[str, str, str]] = Counter()
    for line in lines:
        match = _EAGER.search(line) or _GRAPH.search(line)
        if match:
            found = match.groupdict()
            seen[found["op"], short_device(found["device"]), found.get("name", "")] += 1
    return tuple(Placement(op, device, name, 1 if name else count) for (op, device, name), count in seen.items())


def without_placements(text: str) -> str:
    """Return a log without the lines in which TensorFlow says where it ran or placed an operation."""
    return "".join(line for line in text.splitlines(keepends=True) if not _LOGGED.search(line))


def pci_bus_id(description: str) -> str | None:
    """Return the PCI bus id in TensorFlow's description of a GPU (``device: 0, name: ..., pci bus id: ...``)."""
    found = _PCI.search(description)
    return found[1].lower() if found else None


def created_devices(lines: Iterable[str]) -> dict[str, str]:
    """Map each GPU device that TensorFlow says it created (``GPU:0``) to the PCI bus id of the GPU behind it.

    The line, at default verbosity: ``Created device /job:.../device:GPU:0 with 39424 MB memory:  -> device: 0, name:
    NAME, pci bus id: 0000:00:04.0, compute capability: 8.0``.
    """
    created: dict[str, str] = {}
    for line in lines:
        match = _CREATED.search(line)
        bus_id = pci_bus_id(line)
        if match and bus_id:
            created[short_device(match["device"])] = bus_id
    return created


def devices_of(op: str, placements: Iterable[Placement]) -> tuple[str, ...]:
    """Return the devices on which operations of type ``op`` were placed, each once.

    oneDNN's replacement of an operation counts as that operation: TensorFlow on x86-64 executes an eager ``MatMul`` as
    ``_MklMatMul``.
    """
    return tuple(dict.fromkeys(placement.device for placement in placements if placement.op.removeprefix("_Mkl") == op))
