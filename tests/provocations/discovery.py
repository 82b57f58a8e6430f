"""What provokes the probes of the area discovery."""

from __future__ import annotations

from provocations import Altered, OnMachine

UNEQUAL = "1x16GiB:T4,1x80GiB:H100"
FOUR_MULTIPROCESSORS = """
[[gpu]]
[[gpu]]
multiprocessors = 4
"""
BLACKWELL, MAXWELL = (f'[[gpu]]\ncompute_capability = "{capability}"\n' for capability in ("12.0", "5.0"))

PROVOCATIONS: tuple[OnMachine | Altered, ...] = (
    OnMachine("discovery.device_details", "ptx_only", BLACKWELL),
    OnMachine("discovery.device_details", "too_old", MAXWELL),
    OnMachine("discovery.device_details", "gpu_not_seen", faults=("library_missing=libcufft.so.11",)),
    # The simulated driver and NVML take it from one place.
    Altered("discovery.device_details", "capability_differs", {"devices.1.compute_capability": "8.6"}),
    Altered("discovery.device_details", "capability_differs", {"devices.1.compute_capability": ""}),
    Altered("discovery.device_details", "ptx_only", {"compiled": ["8.0"]}),
    OnMachine("discovery.device_order", "order_differs", UNEQUAL),
    OnMachine(
        "discovery.device_order",
        "order_differs",
        UNEQUAL,
        variables={"CUDA_DEVICE_ORDER": "FASTEST_FIRST"},
    ),
    OnMachine("discovery.device_order", "index_means_another", UNEQUAL, variables={"CUDA_VISIBLE_DEVICES": "0,1"}),
    OnMachine("discovery.device_order", "gpu_not_seen", faults=("cuinit=802",)),
    Altered(
        "discovery.device_order",
        "pci_order_differs",
        {"by_pci.pci_bus_ids": ["0000:02:00.0", "0000:01:00.0"]},
    ),
    OnMachine("discovery.first_op", "slow_driver", "1x16GiB", faults=("slow_call=cuInit:1.6",)),
    OnMachine("discovery.first_op", "slow_context", "1x16GiB", faults=("slow_call=cuDevicePrimaryCtxRetain:10.1",)),
    OnMachine("discovery.first_op", "slow_first", "1x16GiB", faults=("slow_call=cuMemAlloc_v2:10.1",)),
    OnMachine("discovery.first_op", "slow_second", "1x16GiB", faults=("slow_call=cuMemcpyDtoHAsync_v2:1.1",)),
    OnMachine("discovery.first_op", "compiled", BLACKWELL),
    OnMachine("discovery.first_op", "wrong_result", "1x16GiB", faults=("memory_corrupted",)),
    OnMachine("discovery.first_op", "gpu_not_seen", faults=("cuinit=802",)),
    Altered("discovery.first_op", "other_gpu", {"operations.1.kernel.pci_bus_id": "0000:01:00.0"}),
    OnMachine("discovery.logical_devices", "creation_failed", faults=("context_creation=46@1",)),
    OnMachine("discovery.logical_devices", "product_failed", faults=("call_fails=cuMemcpyHtoDAsync_v2:700",)),
    OnMachine("discovery.logical_devices", "wrong_result", faults=("memory_corrupted",)),
    OnMachine("discovery.logical_devices", "gpu_not_seen", FOUR_MULTIPROCESSORS),
    Altered("discovery.logical_devices", "other_gpu", {"products.GPU:0.kernel.pci_bus_id": "0000:02:00.0"}),
    OnMachine("discovery.physical_devices", "fewer_listed", faults=("cuinit=802",)),
    OnMachine("discovery.physical_devices", "listing_raised", faults=("call_fails=cuDeviceGet:999",)),
    OnMachine("discovery.physical_devices", "cudnn_too_old", faults=("cudnn_version=9.1.0",)),
    Altered("discovery.physical_devices", "numbered_otherwise", {"devices.0.cuda_ordinal": 1}),
    Altered("discovery.physical_devices", "numbered_otherwise", {"devices.1.tensorflow": "GPU:0"}),
    Altered("discovery.physical_devices", "uuid_differs", {"devices.1.cuda_uuid": ""}),
)
