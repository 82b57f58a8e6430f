"""Machines from public threads: containers, pods and WSL that do not pass the GPU on."""

from __future__ import annotations

from corpus import Item
from corpus.containers import machine

_DENIED = '"/dev/nvidiactl" = "EPERM"\n"/dev/nvidia-uvm" = "EPERM"\n"/dev/nvidia0" = "EPERM"'
_REFUSED = '"/dev/nvidiactl" = "EACCES"\n"/dev/nvidia-uvm" = "EACCES"\n"/dev/nvidia0" = "EACCES"'
_HIDDEN = '"/dev/nvidiactl" = false\n"/dev/nvidia-uvm" = false\n"/dev/nvidia0" = false'
_DOCKER = '"/.dockerenv" = ""'
_PODMAN = '"/run/.containerenv" = "engine=\\"podman-4.9.4\\"\\nrootless=1\\n"'
_NO_LIBRARIES = ("library_missing=cuda", "nvml_missing")
_WSL = (
    '"/proc/driver" = false\n"/sys/bus/pci" = false\n"/dev/dxg" = ""',
    '"/dev/nvidiactl" = false\n"/dev/nvidia-uvm" = false\n"/dev/nvidia0" = false',
    '"/proc/sys/kernel/osrelease" = "5.15.153.1-microsoft-standard-WSL2"',
    '"/usr/lib/wsl/lib/libcuda.so.1" = ""',
)

ITEMS = (
    Item(
        171,
        "a pod loses its GPU after systemctl daemon-reload",
        rule="device_files_kept_by_control_group",
        fix="kubectl delete pod",
        machine=machine(_DENIED),
        faults=("cuinit=100", "nvml_init=999"),
        variables={"KUBERNETES_SERVICE_HOST": "10.96.0.1", "NVIDIA_VISIBLE_DEVICES": "GPU-0"},
        source="https://github.com/NVIDIA/nvidia-container-toolkit/issues/48",
        settled="the device control group was written anew without the GPU: start the container again",
    ),
    Item(
        172,
        "no-cgroups = true under Docker",
        rule="device_files_kept_by_control_group",
        fix="no-cgroups",
        machine=machine(_DOCKER, _DENIED),
        faults=("cuinit=100", "nvml_init=999"),
        variables={"NVIDIA_VISIBLE_DEVICES": "all", "NVIDIA_DRIVER_CAPABILITIES": "compute,utility"},
        source="https://github.com/NVIDIA/nvidia-container-toolkit/issues/381",
        settled="the toolkit does not allow the devices in the control group: no-cgroups = false in its configuration",
    ),
    Item(
        173,
        "SELinux keeps the device files from a rootless container",
        rule="device_files_kept_by_security_module",
        fix="label=disable",
        machine=machine(_PODMAN, _REFUSED, '"/sys/fs/selinux/enforce" = "1"'),
        faults=("cuinit=100", "nvml_init=4"),
        source="https://github.com/redhat-et/triton-dev-containers/issues/61",
        settled="SELinux refuses the devices: --security-opt label=disable",
    ),
    Item(
        174,
        "the node's default runtime is not NVIDIA's",
        rule="pod_runtime_without_gpu",
        fix="runtimeClassName: nvidia",
        machine=machine(_HIDDEN),
        faults=_NO_LIBRARIES,
        variables={
            "KUBERNETES_SERVICE_HOST": "10.96.0.1",
            "NVIDIA_VISIBLE_DEVICES": "GPU-fef8089b-4820-abfc-e83e-94318197576e",
        },
        source="https://github.com/NVIDIA/gpu-operator/issues/346",
        settled="the pod was given a GPU, and runs under runc: runtimeClassName: nvidia, or make it the default",
    ),
    Item(
        175,
        "an image without NVIDIA_DRIVER_CAPABILITIES: utility only",
        rule="devices_without_library",
        fix="NVIDIA_DRIVER_CAPABILITIES=compute,utility",
        machine=machine(_DOCKER, '"/dev/nvidia-uvm" = false'),
        faults=("library_missing=cuda",),
        variables={"NVIDIA_VISIBLE_DEVICES": "0"},
        source="https://github.com/NVIDIA/nvidia-docker/issues/997",
        settled="without the variable the toolkit passes utility alone: set it to compute,utility",
    ),
    Item(
        176,
        "the CDI specification was written before nvidia-uvm was loaded",
        rule="library_without_devices",
        fix="nvidia-ctk cdi generate",
        machine=machine(_PODMAN, '"/dev/nvidia-uvm" = false'),
        faults=("cuinit=999",),
        source="https://github.com/NVIDIA/nvidia-container-toolkit/issues/50",
        settled="the specification lacks /dev/nvidia-uvm: load it on the host and write the specification again",
    ),
    Item(
        181,
        "WSL: a Linux driver from a .run file",
        rule="linux_driver_in_wsl",
        fix="nvidia-uninstall",
        machine=machine(
            *_WSL,
            '"/usr/bin/nvidia-uninstall" = ""',
            '"/usr/lib/x86_64-linux-gnu/libcuda.so.1" = ""',
            '"/usr/lib/x86_64-linux-gnu/libcuda.so.560.35.05" = ""',
        ),
        faults=("cuinit=100", "nvml_init=9"),
        source="https://github.com/NVIDIA/cuml/issues/6218",
        settled="a driver for Linux is installed in WSL: remove it, Windows' driver is the one",
    ),
)
