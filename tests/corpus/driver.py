"""The driver, its kernel module and its device files; WSL."""

from __future__ import annotations

import json
from collections.abc import Mapping

from corpus import Item
from examples.machines import MODULE, NO_DEVICE, example_evidence, example_facts, example_nodes
from gpudiag.model.facts import NvmlFacts

_RELEASE = "6.1.0-18-amd64"
_VERSION_535 = "NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.104.05  Sat Aug 19 01:15:15 UTC 2023"
_NO_MODULE: dict[str, object] = {
    "/proc/driver": False,
    "/dev/nvidiactl": False,
    "/dev/nvidia-uvm": False,
    "/dev/nvidia0": False,
}
_KERNEL = {"/proc/sys/kernel/osrelease": _RELEASE}
_BUILT = {f"/lib/modules/{_RELEASE}/modules.dep": "updates/dkms/nvidia.ko: kernel/drivers/video.ko\n"}
_NOT_BUILT = {f"/lib/modules/{_RELEASE}/modules.dep": "kernel/fs/ext4/ext4.ko: kernel/lib/crc16.ko\n"}
_EFI = "/sys/firmware/efi/efivars/SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c"
_UNLOADED = ("cuinit=100", "nvml_init=9")
_GONE = ("library_missing=cuda", "nvml_missing")
_WSL: dict[str, object] = {
    **_NO_MODULE,
    "/sys/bus/pci": False,
    "/dev/dxg": "",
    "/proc/sys/kernel/osrelease": "5.15.153.1-microsoft-standard-WSL2",
    "/usr/lib/wsl/lib/libcuda.so.1": "",
}


def _package(name: str, version: str) -> dict[str, object]:
    status = f"Package: {name}\nStatus: install ok installed\nPriority: optional\nVersion: {version}\n"
    return {"/var/lib/dpkg/status": status}


def _machine(files: Mapping[str, object], gpu: str = "") -> str:
    """Return the TOML of a machine with a GPU and these files; content, False or permissions."""
    lines = [f'"{path}" = {_toml(value)}' for path, value in files.items()]
    return "\n".join(["[files]", *lines, "[[gpu]]", gpu, ""])


def _toml(value: object) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key} = {_toml(inner)}" for key, inner in value.items()) + "}"
    return json.dumps(value)


ITEMS = (
    Item(
        21,
        "no driver installed",
        rule="driver_not_installed",
        fix="nvidia-driver",
        machine=_machine(_NO_MODULE),
        faults=_GONE,
    ),
    Item(
        21,
        "nouveau in use",
        rule="nouveau_in_use",
        fix="blacklist nouveau",
        machine=_machine({**_NO_MODULE, "/proc/modules": "nouveau 2195456 1 - Live 0x0000000000000000\n"}),
        faults=_UNLOADED,
    ),
    Item(
        21,
        "kernel module not built for the running kernel",
        rule="module_not_built",
        fix=f"linux-headers-{_RELEASE}",
        machine=_machine({**_NO_MODULE, **_KERNEL, **_NOT_BUILT}),
        faults=_UNLOADED,
    ),
    Item(
        21,
        "Secure Boot refuses the module",
        rule="module_refused_by_secure_boot",
        fix="mokutil --import",
        machine=_machine({**_NO_MODULE, **_KERNEL, **_BUILT, _EFI: "\6\0\0\0\1"}),
        faults=_UNLOADED,
    ),
    Item(
        21,
        "kernel module not loaded",
        rule="module_not_loaded",
        fix="modprobe nvidia",
        machine=_machine({**_NO_MODULE, **_KERNEL, **_BUILT}),
        faults=_UNLOADED,
    ),
    Item(
        21,
        "the integrated GPU was chosen",
        rule="integrated_gpu_chosen",
        fix="prime-select",
        machine=_machine({**_NO_MODULE, "/etc/prime-discrete": "intel\n"}),
        faults=_UNLOADED,
    ),
    Item(
        21,
        "the GPU is passed to a virtual machine",
        rule="gpu_kept_for_others",
        fix="/sys/bus/pci/drivers/vfio-pci/unbind",
        machine=_machine({**_NO_MODULE, "/sys/bus/pci/devices/0000:01:00.0/uevent": "DRIVER=vfio-pci\n"}),
        faults=_UNLOADED,
    ),
    Item(
        22,
        "upgraded driver, not rebooted: NVML",
        rule="library_and_module_differ",
        fix="sudo reboot",
        machine="1",
        faults=("nvml_init=18",),
    ),
    Item(
        22,
        "upgraded driver, not rebooted: cuInit and two versions",
        rule="library_and_module_differ",
        fix="apt-mark hold libnvidia-compute-560",
        machine=_machine(
            {"/proc/driver/nvidia/version": _VERSION_535, **_package("libnvidia-compute-560", "560.35.05-0ubuntu1")}
        ),
        faults=("cuinit=803",),
    ),
    Item(
        22,
        "driver packages in a container's image",
        rule="driver_in_image",
        fix="apt-get purge -y libnvidia-compute-550",
        machine=_machine({"/.dockerenv": "", **_package("libnvidia-compute-550", "550.54.14-0ubuntu1")}),
        faults=("nvml_init=18", "cuinit=803"),
    ),
    Item(
        23,
        "no device: the mask",
        rule="mask_hides_all",
        fix="unset CUDA_VISIBLE_DEVICES",
        machine="1",
        variables={"CUDA_VISIBLE_DEVICES": "-1"},
        tried="works",
    ),
    Item(
        23,
        "no device: no device files",
        rule="device_files_missing",
        fix="nvidia-modprobe",
        machine=_machine({"/dev/nvidia0": False, "/dev/nvidia-uvm": False}),
        faults=("cuinit=100",),
    ),
    Item(
        23,
        "no device: nvidia-uvm not loaded",
        rule="uvm_missing",
        fix="nvidia-modprobe -u",
        machine=_machine({"/dev/nvidia-uvm": False}),
        faults=("cuinit=999",),
    ),
    Item(
        23,
        "no device: the driver refuses the GPU",
        rule="gpu_refused_by_driver",
        fix="dmesg",
        evidence=example_evidence(
            example_facts(
                device_nodes=example_nodes("/dev/nvidia-uvm", "/dev/nvidia0", "/dev/nvidiactl"),
                nvml=NvmlFacts(None, MODULE, "12.2", ()),
            ),
            cuinit=NO_DEVICE,
        ),
        why_not_built="NVML of a simulated machine reports all of its GPUs",
    ),
    Item(
        23,
        "no device, although NVML reports one",
        rule="driver_shows_no_gpu",
        fix="gpudiag explain driver_shows_no_gpu has it",
        machine="1",
        faults=("cuinit=100",),
    ),
    Item(
        25,
        "device files for root alone",
        rule="device_files_for_root_alone",
        fix="NVreg_DeviceFileMode",
        machine=_machine({"/dev/nvidia0": {"mode": "600"}, "/dev/nvidiactl": {"mode": "600"}}),
        faults=("cuinit=100", "nvml_init=4"),
    ),
    Item(
        26,
        "driver too old",
        rule="driver_too_old",
        fix="525.60",
        machine="1x16GiB",
        faults=("driver_too_old=11.4",),
    ),
    Item(
        28,
        "Fabric Manager not installed",
        rule="fabric_manager_not_running",
        fix="nvidia-fabricmanager-560=560.35.05",
        machine=_machine({"/dev/nvidia-nvswitch0": "", "/dev/nvidia-nvswitchctl": ""}, 'preset = "H100"\ncount = 2'),
        faults=("cuinit=802",),
    ),
    Item(
        28,
        "Fabric Manager stopped",
        rule="fabric_manager_not_running",
        fix="journalctl -u nvidia-fabricmanager",
        machine=_machine({"/dev/nvidia-nvswitch0": "", "/usr/bin/nv-fabricmanager": ""}, 'preset = "A100-80"'),
        faults=("cuinit=802",),
    ),
    Item(
        33,
        "WSL: the driver's folder is not on the path",
        rule="wsl_library_not_on_path",
        fix="/etc/ld.so.conf.d",
        machine=_machine(_WSL),
        faults=_GONE,
        tried="does not help",  # the simulated library is missing wherever it is looked for
    ),
    Item(
        33,
        "WSL: a Linux driver is installed",
        rule="linux_driver_in_wsl",
        fix="apt purge libnvidia-compute-535",
        machine=_machine({**_WSL, **_package("libnvidia-compute-535", "535.104.05-0ubuntu1")}),
        faults=("cuinit=100", "nvml_init=9"),
    ),
    Item(
        33,
        "WSL 1",
        rule="wsl_without_gpu_device",
        fix="--set-version",
        machine=_machine(
            {
                **_WSL,
                "/dev/dxg": False,
                "/usr/lib/wsl/lib/libcuda.so.1": False,
                "/proc/sys/kernel/osrelease": "4.4.0-19041-Microsoft",
                "/mnt/c/Windows/System32/nvidia-smi.exe": "",
            }
        ),
        faults=_GONE,
    ),
    Item(
        33,
        "WSL: Windows's driver does not reach the distribution",
        rule="wsl_driver_folder_gone",
        fix="wsl --update",
        machine=_machine(
            {
                **_WSL,
                "/usr/lib/wsl/lib/libcuda.so.1": False,
                "/usr/lib/wsl/drivers/nvlt.inf_amd64_1/libcuda.so.1.1": "",
            }
        ),
        faults=_GONE,
    ),
)
