"""What provokes the probes of the area visibility."""

from __future__ import annotations

from provocations import Altered, OnMachine

# TensorFlow drops a GPU of so few multiprocessors beside one of many.
UNEQUAL = """
[[gpu]]
memory = "16GiB"

[[gpu]]
memory = "16GiB"
multiprocessors = 4
"""
# How the recorded machine names its GPUs.
FIRST, SECOND = "0000:01:00.0", "0000:02:00.0"
ON_SECOND, NOWHERE = {FIRST: 0, SECOND: 64 << 20}, {FIRST: 0, SECOND: 0}
REFUSED_OTHERWISE = {"type": "InternalError", "message": "CUDA error"}

_EACH = [
    "visibility.graph_import_on_device",
    "visibility.graphs_on_devices",
    "visibility.list_invalid",
    "visibility.list_per_process",
    "visibility.list_remap",
    "visibility.list_session_conflict",
]
_PEERED = {"visibility.list_invalid", "visibility.list_per_process"}

PROVOCATIONS: tuple[OnMachine | Altered, ...] = (
    *(OnMachine(probe, "wrong_result", faults=("memory_corrupted=1",)) for probe in _EACH),
    *(OnMachine(probe, "gpu_not_seen", machine=UNEQUAL) for probe in _EACH if probe in _PEERED),
    *(Altered(probe, "gpu_not_seen", {"seen": 1}) for probe in _EACH if probe not in _PEERED),
    OnMachine("visibility.list_remap", "one_gpu", machine="1x16GiB"),
    # Which GPU a device is, and what a session refuses, is TensorFlow's own logic.
    Altered("visibility.list_remap", "other_gpu", {"devices.0.kernel.pci_bus_id": FIRST}),
    Altered("visibility.list_remap", "memory_elsewhere", {"devices.1.rose": ON_SECOND}),
    Altered("visibility.list_remap", "wrong_result", {"devices.1.kernel.correct": False}),
    Altered("visibility.list_invalid", "accepted", {"raised": {"100": None}}),
    Altered("visibility.list_invalid", "accepted", {"raised.-2": None}),
    Altered("visibility.list_invalid", "accepted", {"eager": {"100": None}}),
    Altered("visibility.list_invalid", "other_type", {"raised.0,abc.type": "ValueError"}),
    Altered("visibility.list_invalid", "other_type", {"eager": {"100": REFUSED_OTHERWISE}}),
    Altered("visibility.list_invalid", "other_text", {"raised.0,0.message": "no such GPU"}),
    Altered(
        "visibility.list_invalid", "other_text", {"eager": {"100": {"type": "ValueError", "message": "no such GPU"}}}
    ),
    Altered("visibility.list_invalid", "not_skipped", {"minus_one": ["GPU:0"]}),
    Altered("visibility.list_invalid", "other_gpu", {"kernel.pci_bus_id": SECOND}),
    Altered("visibility.list_invalid", "other_gpu", {"last.pci_bus_id": FIRST}),
    Altered("visibility.list_invalid", "wrong_result", {"last.correct": False}),
    Altered("visibility.list_session_conflict", "accepted", {"conflicts.beside": None}),
    Altered("visibility.list_session_conflict", "accepted", {"conflicts.after": None}),
    Altered("visibility.list_session_conflict", "other_type", {"conflicts.beside": REFUSED_OTHERWISE}),
    Altered("visibility.list_session_conflict", "other_text", {"conflicts.after.message": "GPU:0 is mapped already"}),
    Altered(
        "visibility.list_session_conflict",
        "growth_changed",
        {"later.first": {"used_bytes": 1 << 30, "own_bytes": None}},
    ),
    Altered("visibility.list_session_conflict", "growth_ignored", {"first_bytes": 128 << 20}),
    Altered("visibility.list_session_conflict", "limit_changed", {"later.beyond": None}),
    Altered("visibility.list_session_conflict", "other_error", {"later.beyond": REFUSED_OTHERWISE}),
    Altered("visibility.list_session_conflict", "other_gpu", {"kernel.pci_bus_id": SECOND}),
    Altered("visibility.list_session_conflict", "wrong_result", {"kernel.correct": False}),
    Altered("visibility.list_per_process", "other_gpu", {"processes.1.kernel.pci_bus_id": FIRST}),
    Altered("visibility.list_per_process", "memory_elsewhere", {"processes.0.rose": ON_SECOND}),
    Altered("visibility.list_per_process", "memory_elsewhere", {"processes.1.rose": NOWHERE}),
    Altered("visibility.list_per_process", "wrong_result", {"processes.0.kernel.correct": False}),
    Altered("visibility.graphs_on_devices", "other_device", {"graphs.1.kernel.device": "GPU:0"}),
    Altered("visibility.graphs_on_devices", "other_gpu", {"graphs.1.kernel.pci_bus_id": FIRST}),
    Altered("visibility.graphs_on_devices", "memory_elsewhere", {"graphs.1.rose": NOWHERE}),
    Altered("visibility.graphs_on_devices", "wrong_result", {"graphs.0.kernel.correct": False}),
    Altered("visibility.graph_import_on_device", "other_device", {"copies.1.kernel.device": "GPU:0"}),
    Altered("visibility.graph_import_on_device", "node_overruled", {"named.device": "GPU:1"}),
    Altered("visibility.graph_import_on_device", "other_gpu", {"copies.1.kernel.pci_bus_id": FIRST}),
    Altered("visibility.graph_import_on_device", "memory_elsewhere", {"copies.1.rose": NOWHERE}),
    Altered("visibility.graph_import_on_device", "wrong_result", {"named.correct": False}),
)
