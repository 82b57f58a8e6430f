"""What provokes the probes of the area host."""

from __future__ import annotations

from typing import Any

from provocations import Altered, AlteredFacts, OnMachine

UNKNOWN = {"family": "unknown", "reason": "no answer within 15 s"}
SITE = "/opt/venv/lib/python3.11/site-packages"
MODULE = f"{SITE}/tensorflow/__init__.py"


def _distribution(name: str) -> dict[str, Any]:
    return {"name": name, "version": "2.21.0", "location": SITE}


DRIVER: tuple[OnMachine | AlteredFacts, ...] = (
    OnMachine("host.driver", "no_libcuda", faults=("library_missing=libcuda.so.1",)),
    OnMachine("host.driver", "libcuda_failed", faults=("call_fails=cuDriverGetVersion:34",)),
    OnMachine("host.driver", "no_nvml", faults=("nvml_missing",)),
    AlteredFacts(
        "host.driver",
        "gpus_not_told",
        {
            "nvml.error": "NVML Shared Library Not Found",
            "tensorflow.distributions.0.version": "2.20.0",
            "nvml.devices": [],
        },
    ),
    OnMachine("host.driver", "version_mismatch", faults=("nvml_init=18",)),
    OnMachine("host.driver", "nvml_failed", faults=("nvml_init=999",)),
    OnMachine("host.driver", "nvml_failed", faults=("device_lost_after=1@1",)),
    OnMachine(
        "host.driver",
        "left_out",
        faults=("call_fails=nvmlDeviceGetHandleByIndex_v2:15@1",),
        variables={"CUDA_VISIBLE_DEVICES": "0"},
    ),
    AlteredFacts(
        "host.driver", "call_slow", {"calls": {"family": "calls", "calls": [{"name": "cuInit", "seconds": 25.0}]}}
    ),
    AlteredFacts(
        "host.driver", "call_hangs", {"calls": {"family": "calls", "calls": [{"name": "cuInit", "seconds": None}]}}
    ),
    AlteredFacts(
        "host.driver", "not_counted", {"device_nodes.pci_gpus": ["0000:01:00.0", "0000:02:00.0", "0000:03:00.0"]}
    ),
    AlteredFacts(
        "host.driver",
        "held",
        {
            "device_nodes.pci_gpus": ["0000:01:00.0", "0000:02:00.0", "0000:03:00.0"],
            "device_nodes.bound": {"0000:03:00.0": "vfio-pci"},
        },
    ),
    OnMachine("host.driver", "old_driver", faults=("driver_too_old=11.4",)),
    # A simulated machine has a kernel module and device files that its user may open, and it is no container.
    AlteredFacts(
        "host.driver",
        "no_module",
        {
            "driver.kernel_module": None,
            "device_nodes.nodes": [],
            "nvml.error": "Driver Not Loaded",
            "nvml.devices": [],
            "container": UNKNOWN,
        },
    ),
    AlteredFacts(
        "host.driver", "not_given", {"container.runtime": "podman", "device_nodes.nodes": [], "nvml.devices": []}
    ),
    AlteredFacts(
        "host.driver",
        "no_access",
        {
            "nvml.error": "Insufficient Permissions",
            "nvml.devices": [],
            "device_nodes.nodes": [
                {"path": "/dev/nvidiactl", "mode": "crw-rw----", "readable": False, "writable": False}
            ],
        },
    ),
    *(AlteredFacts("host.driver", "not_gathered", {family: UNKNOWN}) for family in ("driver", "nvml", "device_nodes")),
)

ENVIRONMENT: tuple[OnMachine | AlteredFacts, ...] = (
    OnMachine("host.environment", "all_hidden", variables={"CUDA_VISIBLE_DEVICES": "-1"}),
    OnMachine("host.environment", "all_hidden", variables={"CUDA_VISIBLE_DEVICES": "0,0"}),
    OnMachine("host.environment", "entries_ignored", variables={"CUDA_VISIBLE_DEVICES": "1,7,0"}),
    OnMachine("host.environment", "entry_cut", variables={"CUDA_VISIBLE_DEVICES": "0-1"}),
    OnMachine(
        "host.environment",
        "ambiguous_index",
        "1x80GiB:H100,1x16GiB:T4",
        faults=("cuinit",),
        variables={"CUDA_VISIBLE_DEVICES": "0"},
    ),
    OnMachine(  # the driver leaves one out of those that the mask names
        "host.environment",
        "index_not_known",
        "1x80GiB:H100,1x16GiB:T4",
        faults=("call_fails=cuDeviceGetUuid_v2:101@1",),
        variables={"CUDA_VISIBLE_DEVICES": "0,1"},
    ),
    OnMachine("host.environment", "growth_value", variables={"TF_FORCE_GPU_ALLOW_GROWTH": "1"}),
    OnMachine("host.environment", "allocator_value", variables={"TF_GPU_ALLOCATOR": "cuda_malloc_Async"}),
    OnMachine("host.environment", "value_ignored", variables={"CUDA_DEVICE_ORDER": "PCI_BUSID"}),
    OnMachine("host.environment", "threads_refused", variables={"TF_GPU_THREAD_MODE": "private"}),
    OnMachine("host.environment", "cluster_unreadable", variables={"TF_CONFIG": "{not json"}),
    OnMachine("host.environment", "misspelt", variables={"CUDA_VISIBLE_DEVCIES": "0"}),
    OnMachine("host.environment", "misspelt", variables={"TF_GPU_ALLOW_GROWTH": "true"}),
    OnMachine("host.environment", "log_hidden", variables={"TF_CPP_MIN_LOG_LEVEL": "3"}),
    AlteredFacts("host.environment", "not_gathered", {"environment": UNKNOWN}),
)

GPUS: tuple[OnMachine | AlteredFacts, ...] = (
    OnMachine("host.gpus", "too_few", options=("--require-gpus", "3")),
    OnMachine("host.gpus", "too_few", variables={"CUDA_VISIBLE_DEVICES": "1"}, options=("--require-gpus", "2")),
    OnMachine("host.gpus", "not_known", faults=("nvml_init=999",)),
    AlteredFacts("host.gpus", "not_known", {"nvml": UNKNOWN}),
)

# What is installed is read from the files of the environment that runs the tests.
TENSORFLOW: tuple[OnMachine | AlteredFacts, ...] = (
    AlteredFacts("host.tensorflow", "missing", {"tensorflow.module_path": None, "tensorflow.distributions": []}),
    AlteredFacts("host.tensorflow", "damaged", {"tensorflow.module_path": None}),
    AlteredFacts(
        "host.tensorflow",
        "several",
        {
            "tensorflow.module_path": MODULE,
            "tensorflow.distributions": [_distribution("tensorflow"), _distribution("tensorflow-cpu")],
        },
    ),
    AlteredFacts("host.tensorflow", "no_cuda", {"tensorflow.build.cuda": False}),
    AlteredFacts("host.tensorflow", "build_unknown", {"tensorflow.build": None}),
    AlteredFacts("host.tensorflow", "old_version", {"tensorflow.distributions.0.version": "2.17.1"}),
    AlteredFacts("host.tensorflow", "untested_version", {"tensorflow.distributions.0.version": "2.22.0"}),
    AlteredFacts("host.tensorflow", "unsupported_python", {"system.python": "3.14.0"}),
    AlteredFacts("host.tensorflow", "not_gathered", {"tensorflow": UNKNOWN}),
)

PROVOCATIONS: tuple[OnMachine | Altered | AlteredFacts, ...] = (*DRIVER, *ENVIRONMENT, *GPUS, *TENSORFLOW)
