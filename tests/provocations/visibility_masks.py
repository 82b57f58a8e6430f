"""What provokes the probes of the area visibility that choose GPUs by a mask."""

from __future__ import annotations

from provocations import Altered, OnMachine

FOUR_MULTIPROCESSORS = """
[[gpu]]
[[gpu]]
multiprocessors = 4
"""
FIRST, SECOND = "0000:01:00.0", "0000:02:00.0"

# The simulated driver knows one way to read CUDA_VISIBLE_DEVICES, and TensorFlow's own logic is what it is: those of
# their faults that no machine has are put into a reading.
PROVOCATIONS: tuple[OnMachine | Altered, ...] = (
    OnMachine("visibility.mask", "gpu_not_seen", FOUR_MULTIPROCESSORS),
    OnMachine("visibility.mask", "gpu_not_seen", faults=("library_missing=libcufft.so.11",)),
    Altered("visibility.mask", "wrong_gpus", {"values.one index.shown.pci_bus_ids": [SECOND]}),
    Altered("visibility.mask", "wrong_gpus", {"values.indices.shown.pci_bus_ids": [FIRST, SECOND]}),
    Altered("visibility.mask", "wrong_gpus", {"values.UUIDs.shown.pci_bus_ids": [FIRST, SECOND]}),
    Altered("visibility.mask", "wrong_gpus", {"values.invalid.shown.pci_bus_ids": []}),
    Altered("visibility.mask", "list_not_cut", {"values.invalid.shown.pci_bus_ids": [FIRST, SECOND]}),
    Altered("visibility.mask", "not_hidden", {"values.-1.shown.pci_bus_ids": [FIRST]}),
    Altered("visibility.mask", "not_hidden", {"values.empty.shown.pci_bus_ids": [FIRST, SECOND]}),
    Altered("visibility.mask", "tensorflow_differs", {"values.-1.shown.listed": 2}),
    OnMachine("visibility.mask_order", "wrong_result", faults=("memory_corrupted",)),
    OnMachine("visibility.mask_order", "gpu_not_seen", FOUR_MULTIPROCESSORS),
    Altered("visibility.mask_order", "order_ignored", {"back.created": {"GPU:0": FIRST, "GPU:1": SECOND}}),
    Altered("visibility.mask_order", "other_gpu", {"back.created.GPU:1": SECOND}),
    Altered("visibility.mask_order", "other_gpu", {"back.done.kernel.pci_bus_id": FIRST}),
    Altered("visibility.mask_order", "memory_elsewhere", {"back.done.rose": {FIRST: 64 << 20, SECOND: 0}}),
    OnMachine("visibility.mask_too_late", "wrong_result", faults=("memory_corrupted",)),
    OnMachine("visibility.mask_too_late", "gpu_not_seen", faults=("cuinit=802",)),
    Altered("visibility.mask_too_late", "early_ignored", {"early.pci_bus_ids": [FIRST, SECOND]}),
    Altered("visibility.mask_too_late", "early_ignored", {"early.listed": 2}),
    Altered("visibility.mask_too_late", "late_obeyed", {"late.done.kernel.pci_bus_id": SECOND}),
    Altered("visibility.mask_too_late", "late_obeyed", {"late.after": 1, "late.done": None}),
    Altered("visibility.mask_too_late", "memory_elsewhere", {"late.done.rose": {FIRST: 0, SECOND: 64 << 20}}),
    OnMachine("visibility.set_visible_devices", "wrong_result", faults=("memory_corrupted",)),
    OnMachine("visibility.set_visible_devices", "gpu_not_seen", FOUR_MULTIPROCESSORS),
    Altered("visibility.set_visible_devices", "other_gpu", {"chosen.done.kernel.pci_bus_id": FIRST}),
    Altered("visibility.set_visible_devices", "memory_elsewhere", {"chosen.done.rose": {FIRST: 64 << 20, SECOND: 0}}),
    Altered("visibility.set_visible_devices", "hidden_used", {"chosen.rose": {FIRST: 400 << 20, SECOND: 64 << 20}}),
    Altered("visibility.set_visible_devices", "hidden_reachable", {"chosen.beyond": "GPU:1"}),
    Altered("visibility.set_visible_devices", "order_kept", {"reordered.bus_ids.GPU:0": SECOND}),
    Altered("visibility.set_visible_devices", "cpu_kept", {"untyped.raised": None}),
    Altered("visibility.set_visible_devices", "other_error", {"untyped.raised.type": "RuntimeError"}),
)
