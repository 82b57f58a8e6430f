"""The family ``device_nodes`` on a tree of files made by the test."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from gpudiag.facts import device_nodes
from gpudiag.model.facts import DeviceNodeFacts


def put(root: Path, path: str, text: str = "") -> Path:
    file = root / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
    return file


def put_pci(root: Path, address: str, vendor: str, kind: str) -> None:
    put(root, f"sys/bus/pci/devices/{address}/vendor", f"{vendor}\n")
    put(root, f"sys/bus/pci/devices/{address}/class", f"{kind}\n")


def test_nothing_there(tmp_path: Path) -> None:
    assert device_nodes.gather(tmp_path) == DeviceNodeFacts((), ())


def test_nodes_of_nvidia_and_wsl_alone(tmp_path: Path) -> None:
    for name in ("nvidia0", "nvidiactl", "nvidia-uvm", "nvidia-caps/nvidia-cap1", "dxg", "null", "dri/card0"):
        put(tmp_path, f"dev/{name}")
    paths = [node.path for node in device_nodes.gather(tmp_path).nodes]
    assert paths == ["/dev/dxg", "/dev/nvidia-uvm", "/dev/nvidia0", "/dev/nvidiactl"]


def test_permissions(tmp_path: Path) -> None:
    put(tmp_path, "dev/nvidia0").chmod(0o666)
    (node,) = device_nodes.gather(tmp_path).nodes
    assert (node.mode, node.readable, node.writable) == ("-rw-rw-rw-", True, True)


def test_permissions_that_are_lacking(tmp_path: Path) -> None:
    put(tmp_path, "dev/nvidia0").chmod(0o664)
    facts = device_nodes.gather(tmp_path)
    (node,) = facts.nodes
    assert (node.mode, node.readable, node.writable) == ("-rw-rw-r--", True, False)
    assert node.group
    assert facts.groups == ()  # on a faked machine this process is a stranger


@pytest.mark.skipif(os.geteuid() == 0, reason="root may open every file")
def test_permissions_on_this_machine(tmp_path: Path) -> None:
    file = put(tmp_path, "nvidia0")
    file.chmod(0o400)
    may = [device_nodes._may(file, file.stat(), what, Path("/")) for what in (os.R_OK, os.W_OK)]
    assert may == [True, False]


@pytest.mark.skipif(not hasattr(os, "getgroups"), reason="no groups here")
def test_groups_on_this_machine() -> None:
    assert device_nodes.gather().groups


def test_drivers_of_the_gpus_and_gpus_of_other_makers(tmp_path: Path) -> None:
    put_pci(tmp_path, "0000:01:00.0", "0x10de", "0x030000")
    put_pci(tmp_path, "0000:02:00.0", "0x10de", "0x030200")
    put_pci(tmp_path, "0000:00:02.0", "0x8086", "0x030000")
    put_pci(tmp_path, "0000:05:00.0", "0x1a03", "0x030000")  # of a server's management controller
    put(tmp_path, "sys/bus/pci/devices/0000:01:00.0/uevent", "DRIVER=nouveau\nPCI_CLASS=30000\n")
    put(tmp_path, "sys/bus/pci/devices/0000:02:00.0/uevent", "PCI_CLASS=30200\n")
    facts = device_nodes.gather(tmp_path)
    assert facts.bound == {"0000:01:00.0": "nouveau"}
    assert facts.other_gpus == {"0000:00:02.0": "Intel"}


def test_display_controllers_of_nvidia_alone(tmp_path: Path) -> None:
    put_pci(tmp_path, "0000:3b:00.0", "0x10de", "0x030200")  # 3D controller
    put_pci(tmp_path, "0000:01:00.0", "0x10de", "0x030000")  # VGA
    put_pci(tmp_path, "0000:01:00.1", "0x10de", "0x040300")  # its sound device
    put_pci(tmp_path, "0000:00:02.0", "0x8086", "0x030000")  # another maker's
    (tmp_path / "sys/bus/pci/devices/0000:00:03.0").mkdir()  # a device that tells nothing
    assert device_nodes.gather(tmp_path).pci_gpus == ("0000:01:00.0", "0000:3b:00.0")


def test_what_lies_between_gpus(tmp_path: Path) -> None:
    for address, kind in (("0000:3b:00.0", "0x030200"), ("0000:01:00.0", "0x030000")):
        put_pci(tmp_path, address, "0x10de", kind)
    put(tmp_path, "sys/bus/pci/devices/0000:3b:00.0/iommu_group/type", "DMA-FQ\n")
    put(tmp_path, "sys/class/iommu/dmar0/uevent")
    put(tmp_path, "sys/class/net/eth0/uevent")
    put(tmp_path, "proc/cmdline", "root=/dev/sda1 intel_iommu=on quiet iommu=nopt\n")
    facts = device_nodes.gather(tmp_path)
    assert facts.iommu_groups == {"0000:3b:00.0": "DMA-FQ"}
    assert (facts.iommus, facts.network) == (("dmar0",), ("eth0",))
    assert facts.iommu_options == ("intel_iommu=on", "iommu=nopt")


def test_what_the_pci_bus_says_of_a_gpu_that_does_not_start(tmp_path: Path) -> None:
    region = "0x00000000fb000000 0x00000000fbffffff 0x0000000000040200\n"
    files = {
        "0000:01:00.0": {"device": "0x2b85\n", "resource": region * 2, "power_state": "D0\n"},
        "0000:02:00.0": {"device": "0x1db5\n", "resource": region + "0x0000000000000000 0x0000000000000000 0x0\n"},
        "0000:03:00.0": {"device": "0x1db5\n", "power_state": "D3cold\n"},
    }
    for name, texts in files.items():
        device = tmp_path / "sys/bus/pci/devices" / name
        device.mkdir(parents=True)
        for file, text in {"vendor": "0x10de\n", "class": "0x030200\n", **texts}.items():
            (device / file).write_text(text)
    found = device_nodes.gather(tmp_path)
    assert found.models == {"0000:01:00.0": "0x2b85", "0000:02:00.0": "0x1db5", "0000:03:00.0": "0x1db5"}
    assert found.without_memory_region == ("0000:02:00.0",)
    assert found.asleep == ("0000:03:00.0",)


def test_the_bridges_above_a_gpu(tmp_path: Path) -> None:
    put_pci(tmp_path, "0000:01:00.0", "0x10de", "0x030200")  # of a machine whose bus is not known
    real = tmp_path / "sys/devices/pci0000:16/0000:16:01.0/0000:17:00.0/0000:18:00.0"
    put(real, "vendor", "0x10de\n")
    put(real, "class", "0x030200\n")
    (tmp_path / "sys/bus/pci/devices/0000:18:00.0").symlink_to(real)
    assert device_nodes.gather(tmp_path).bridges == {"0000:18:00.0": ("0000:16:01.0", "0000:17:00.0")}
