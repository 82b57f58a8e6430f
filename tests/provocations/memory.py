"""What provokes the probes of the area memory that share a GPU, limit it or fill it."""

from __future__ import annotations

from provocations import Altered, OnMachine

EXCLUSIVE = """
[[gpu]]
compute_mode = "exclusive_process"
"""

WITHOUT_POOLS = """
[[gpu]]
memory_pools = false
"""

PROVOCATIONS: tuple[OnMachine | Altered, ...] = (
    OnMachine("memory.limit", "not_at_once", faults=("allocation_above=48MiB@0",)),
    OnMachine("memory.limit", "no_limit", variables={"TF_GPU_ALLOCATOR": "cuda_malloc_async"}),
    OnMachine("memory.limit", "overridden", variables={"TF_FORCE_GPU_ALLOW_GROWTH": "true"}),
    OnMachine("memory.limit", "wrong_result", faults=("memory_corrupted=1@1",)),
    OnMachine("memory.limit", "gpu_not_seen", faults=("library_missing=libcudnn.so.9",)),
    Altered("memory.limit", "limit_ignored", {"devices.1.exceeded": None}),
    Altered("memory.limit", "limit_ignored", {"devices.0.last.used_bytes": 3 << 30}),
    Altered("memory.limit", "other_error", {"devices.0.exceeded.type": "InternalError"}),
    Altered("memory.limit", "not_survived", {"devices.0.within": {"type": "InternalError", "message": "CUDA error"}}),
    Altered("memory.limit", "other_gpu", {"devices.0.kernel.pci_bus_id": "0000:02:00.0"}),
    OnMachine("memory.limits_overcommitted", "wrong_result", faults=("memory_corrupted=1@0",)),
    OnMachine("memory.limits_overcommitted", "gpu_not_seen", faults=("library_missing=libcudnn.so.9",)),
    Altered("memory.limits_overcommitted", "refused", {"refused": {"type": "InvalidArgumentError", "message": "no"}}),
    Altered("memory.limits_overcommitted", "lowered", {"parts.1.ceiling_mib": 8000}),
    Altered("memory.limits_overcommitted", "no_failure", {"exceeded": None}),
    Altered("memory.limits_overcommitted", "other_error", {"exceeded.type": "InternalError"}),
    Altered(
        "memory.limits_overcommitted", "not_survived", {"parts.0.failed": {"type": "InternalError", "message": "no"}}
    ),
    Altered("memory.limits_overcommitted", "other_gpu", {"parts.1.kernel.pci_bus_id": "0000:02:00.0"}),
    OnMachine("memory.shared_gpu", "exclusive", machine=EXCLUSIVE),
    OnMachine("memory.shared_gpu", "not_held", faults=("allocation_above=48MiB@0",)),
    OnMachine("memory.shared_gpu", "wrong_result", faults=("memory_corrupted=1@1",)),
    OnMachine("memory.shared_gpu", "gpu_not_seen", faults=("library_missing=libcudnn.so.9",)),
    Altered("memory.shared_gpu", "more_than_free", {"default.ceiling_mib": 16000}),
    Altered("memory.shared_gpu", "less_than_free", {"default.ours.used_bytes": 0}),
    Altered("memory.shared_gpu", "fraction_of_free", {"fraction.ceiling_mib": 15000}),
    Altered("memory.shared_gpu", "not_shareable", {"fraction.failed": {"type": "InternalError", "message": "busy"}}),
    Altered("memory.shared_gpu", "not_held", {"default.held.used_bytes": 0}),
    Altered("memory.shared_gpu", "not_held", {"holder": {"type": "InternalError", "message": "no"}, "default": None}),
    Altered("memory.shared_gpu", "other_gpu", {"fraction.kernel.pci_bus_id": "0000:01:00.0"}),
    OnMachine("memory.allocator", "no_memory_pools", machine=WITHOUT_POOLS),
    OnMachine("memory.allocator", "aborts", machine=WITHOUT_POOLS, variables={"TF_GPU_ALLOCATOR": "cuda_malloc_async"}),
    OnMachine("memory.allocator", "failed", faults=("allocation_above=48MiB@0",)),
    OnMachine("memory.allocator", "wrong_result", faults=("memory_corrupted=1@0",)),
    OnMachine("memory.allocator", "gpu_not_seen", faults=("library_missing=libcudnn.so.9",)),
    Altered("memory.allocator", "ignored", {"right.first.used_bytes": 4 << 30}),
    Altered("memory.allocator", "not_named", {"right.named": False}),
    Altered("memory.allocator", "typo_noticed", {"misspelt.named": True}),
    Altered("memory.allocator", "failed", {"right.failed": {"type": "InternalError", "message": "no"}}),
    Altered("memory.allocator", "other_gpu", {"right.kernel.pci_bus_id": "0000:02:00.0"}),
    OnMachine("memory.several_models", "did_not_fit", faults=("allocation_above=48MiB@1",)),
    OnMachine("memory.several_models", "wrong_result", faults=("memory_corrupted=1@1",)),
    OnMachine("memory.several_models", "gpu_not_seen", faults=("library_missing=libcudnn.so.9",)),
    Altered("memory.several_models", "did_not_fit", {"models.2.failed": {"type": "InternalError", "message": "no"}}),
    Altered("memory.several_models", "elsewhere", {"models.1.rose": {"0000:01:00.0": 64 << 20, "0000:02:00.0": 0}}),
    Altered("memory.several_models", "over_plan", {"models.0.rose": {"0000:01:00.0": 1 << 30, "0000:02:00.0": 0}}),
    Altered("memory.several_models", "other_gpu", {"models.1.kernel.pci_bus_id": "0000:01:00.0"}),
)
