"""Containers and orchestration."""

from __future__ import annotations

from corpus import Item

_HIDDEN = """
"/dev/nvidiactl" = false
"/dev/nvidia-uvm" = false
"/dev/nvidia0" = false
"""
_DOCKER = '"/.dockerenv" = ""'
_NO_DRIVER = ("library_missing=libcuda.so.1", "nvml_missing")
_POD = {"KUBERNETES_SERVICE_HOST": "10.96.0.1"}
NO_GPU_AT_ALL = '"/sys/bus/pci/devices/0000:01:00.0/vendor" = "0x8086"\n"/proc/driver/nvidia/version" = false'


def machine(*files: str, gpus: int = 1, gpu: str = "") -> str:
    """Return the TOML of a machine with such files and GPUs."""
    return "\n".join(["[[gpu]]", f"count = {gpus}", 'memory = "16GiB"', gpu, "[files]", *files])


ITEMS = (
    Item(
        34,
        "Docker without --gpus, on a host that has some",
        rule="container_without_gpu",
        fix="docker run --gpus all",
        machine=machine(_DOCKER, _HIDDEN),
        faults=_NO_DRIVER,
    ),
    Item(
        34,
        "Docker without --gpus, a driver in the image",
        rule="container_without_gpu",
        fix="install no driver in the image",
        machine=machine(_DOCKER, _HIDDEN),
        faults=("cuinit=100", "nvml_init=9"),
    ),
    Item(
        34,
        "Podman without --device",
        rule="container_without_gpu",
        fix="podman run --device nvidia.com/gpu=all",
        machine=machine('"/run/.containerenv" = ""', _HIDDEN),
        faults=_NO_DRIVER,
    ),
    Item(
        34,
        "an image for GPUs, where no GPU can be seen",
        rule="container_without_gpu",
        fix="docker run --gpus all",
        machine=machine(_DOCKER, _HIDDEN, NO_GPU_AT_ALL),
        faults=_NO_DRIVER,
        variables={"NVIDIA_VISIBLE_DEVICES": "all"},
    ),
    Item(
        36,
        "pod without a limit, NVIDIA_VISIBLE_DEVICES=void",
        rule="pod_without_gpu",
        fix="resources: {limits: {nvidia.com/gpu: 1}}",
        machine=machine(_HIDDEN),
        faults=_NO_DRIVER,
        variables={**_POD, "NVIDIA_VISIBLE_DEVICES": "void"},
    ),
    Item(
        36,
        "NVIDIA_VISIBLE_DEVICES=none: libraries, and no device",
        rule="pod_without_gpu",
        fix="resources: {limits: {nvidia.com/gpu: 1}}",
        machine=machine(_HIDDEN),
        faults=("cuinit=100", "nvml_init=9"),
        variables={**_POD, "NVIDIA_VISIBLE_DEVICES": "none"},
    ),
    Item(
        36,
        "the same on a node without a GPU or CUDA",
        rule="pod_without_gpu",
        fix="runtimeClassName: nvidia",
        machine=machine(_HIDDEN, NO_GPU_AT_ALL),
        faults=("library_missing=libcudart.so.12", *_NO_DRIVER),
        variables={**_POD, "NVIDIA_VISIBLE_DEVICES": "void"},
    ),
    Item(
        37,
        "pod without a GPU request sees all GPUs of the node",
        rule="pod_sees_every_gpu",
        fix="resources: {limits: {nvidia.com/gpu: 1}}",
        machine=machine(gpus=4, gpu='taken = "8GiB"\ntaken_by = 4711'),
        variables={**_POD, "NVIDIA_VISIBLE_DEVICES": "all"},
    ),
    Item(
        40,
        "devices mounted by hand, libraries not",
        rule="devices_without_library",
        fix="docker run --gpus all",
        machine=machine(_DOCKER),
        faults=_NO_DRIVER,
    ),
    Item(
        40,
        "Apptainer without --nv",
        rule="devices_without_library",
        fix="apptainer exec --nv",
        machine=machine(),
        faults=_NO_DRIVER,
        variables={"APPTAINER_CONTAINER": "/images/tensorflow.sif"},
    ),
    Item(
        40,
        "NVIDIA_DRIVER_CAPABILITIES without compute",
        rule="devices_without_library",
        fix="NVIDIA_DRIVER_CAPABILITIES=compute,utility",
        machine=machine(_DOCKER),
        faults=("library_missing=libcuda.so.1",),
        variables={"NVIDIA_DRIVER_CAPABILITIES": "utility"},
    ),
    Item(
        40,
        "libraries, and not every device",
        rule="library_without_devices",
        fix="--device /dev/nvidia-uvm",
        machine=machine(_DOCKER, '"/dev/nvidia-uvm" = false'),
        faults=("cuinit=999",),
    ),
)
