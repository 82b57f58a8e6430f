"""What provokes the probes of the area logical."""

from __future__ import annotations

from provocations import Altered, OnMachine

# 80 MiB stay free once the CUDA context, larger than is reckoned with, is there.
ALMOST_FULL = """
[[gpu]]
memory = "16GiB"
taken = "15734MiB"
context_overhead = "570MiB"
"""

_COUNTS = ("tensors", "intact")

PROVOCATIONS: tuple[OnMachine | Altered, ...] = (
    # On the CPU: no simulated machine changes what these measure.
    Altered("logical.after_init", "no_error", {"attempts.0.raised": None}),
    Altered("logical.after_init", "other_error", {"attempts.1.raised.type": "ValueError"}),
    Altered("logical.after_init", "other_error", {"attempts.2.raised.message": "too late"}),
    Altered("logical.after_init", "devices_changed", {"devices": ["CPU:0"]}),
    Altered("logical.after_init", "devices_changed", {"ran_on": ["CPU:0"]}),
    Altered("logical.cpu_split", "wrong_count", {"logical": ["CPU:0"]}),
    Altered("logical.cpu_split", "ran_elsewhere", {"runs.2.logged": ["CPU:0"]}),
    Altered("logical.cpu_split", "ran_elsewhere", {"runs.3.requested": "CPU:1"}),
    Altered("logical.cpu_split", "wrong_result", {"correct": False}),
    OnMachine("logical.gpu_split", "not_at_once", faults=("allocation_above=48MiB@0",)),
    OnMachine("logical.gpu_split", "wrong_result", faults=("memory_corrupted=1@1",)),
    OnMachine("logical.gpu_split", "gpu_not_seen", faults=("library_missing=libcudnn.so.9",)),
    Altered("logical.gpu_split", "wrong_count", {"parts": []}),
    Altered("logical.gpu_split", "other_gpu", {"parts.1.kernel.pci_bus_id": "0000:02:00.0"}),
    Altered("logical.gpu_split", "memory_elsewhere", {"parts.2.rose": {"0000:01:00.0": 128 << 20, "0000:02:00.0": 0}}),
    Altered("logical.gpu_split", "limit_ignored", {"parts.0.rose": {"0000:01:00.0": 1 << 30, "0000:02:00.0": 0}}),
    Altered("logical.gpu_split", "limit_ignored", {"exceeded": None}),
    Altered("logical.gpu_split", "other_error", {"exceeded.type": "InternalError"}),
    OnMachine("logical.index_shift", "wrong_result", faults=("memory_corrupted=1@1",)),
    OnMachine("logical.index_shift", "gpu_not_seen", faults=("library_missing=libcudnn.so.9",)),
    Altered("logical.index_shift", "wrong_count", {"devices": []}),
    Altered("logical.index_shift", "other_number", {"devices.1.kernel.pci_bus_id": "0000:02:00.0"}),
    Altered("logical.index_shift", "ran_elsewhere", {"devices.3.logged": ["GPU:1"]}),
    OnMachine("logical.split_against_growth", "wrong_result", faults=("memory_corrupted=1@0",)),
    OnMachine("logical.split_against_growth", "gpu_not_seen", faults=("library_missing=libcudnn.so.9",)),
    Altered("logical.split_against_growth", "no_error", {"outcome.growth": None}),
    Altered("logical.split_against_growth", "other_error", {"outcome.growth.type": "RuntimeError"}),
    Altered("logical.split_against_growth", "other_error", {"outcome.growth.message": "no"}),
    Altered(
        "logical.split_against_growth", "split_refused", {"outcome.split": {"type": "ValueError", "message": "no"}}
    ),
    Altered("logical.split_against_growth", "growth_kept", {"outcome.first.used_bytes": 402 << 20}),
    Altered("logical.split_against_growth", "other_gpu", {"outcome.kernel.pci_bus_id": "0000:02:00.0"}),
    OnMachine("logical.split_memory", "not_whole", machine=ALMOST_FULL, options=("--disturb",)),
    OnMachine("logical.split_memory", "wrong_result", faults=("memory_corrupted=1@0",)),
    OnMachine("logical.split_memory", "gpu_not_seen", faults=("library_missing=libcudnn.so.9",)),
    Altered("logical.split_memory", "wrong_count", {"parts": []}),
    Altered("logical.split_memory", "limit_ignored", {"full.used_bytes": 2 << 30}),
    Altered("logical.split_memory", "limit_ignored", {"parts.1.ended": None}),
    Altered(
        "logical.split_memory", "limit_ignored", {f"parts.{part}.{count}": 9 for part in "01" for count in _COUNTS}
    ),
    Altered("logical.split_memory", "not_apart", {"parts.1.tensors": 1}),
    Altered("logical.split_memory", "not_apart", {"parts.1.tensors": 0, "full.used_bytes": 464 << 20}),
    Altered("logical.split_memory", "overwritten", {"parts.0.intact": 3}),
    Altered("logical.split_memory", "other_error", {"parts.0.ended.type": "InternalError"}),
    Altered("logical.split_memory", "other_gpu", {"parts.1.kernel.pci_bus_id": "0000:02:00.0"}),
)
