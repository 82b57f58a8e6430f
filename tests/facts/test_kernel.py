"""The log of the kernel, the settings of its modules, and what NVIDIA's module says of each GPU."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from gpudiag.facts.kernel import gather, relevant
from gpudiag.model.facts import ModuleSetting

_RECORDS = """\
6,338,5140800,-;usb 1-1: new high-speed USB device
3,337,5140850,-;NVRM: Xid (PCI:0000:01:00): 31, pid=77, name=python, Ch 00000008
6,336,5140860,-;nvidia-nvlink: Nvlink Core is being initialized, major device number 239
4,339,5140900,-;NVRM: loading NVIDIA UNIX Open Kernel Module for x86_64  570.158.01  Release Build
 SUBSYSTEM=pci
3,340,5140950,-;NVRM: Xid (PCI:0000:01:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.
3,341,5140960,-;NVRM: The NVIDIA GPU 0000:b3:00.0\\x0aNVRM: (PCI ID: 10de:26b5) installed in this system has\
\\x0aNVRM: fallen off the bus and is not responding to commands.
"""
_LINES = (
    "NVRM: Xid (PCI:0000:01:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.",
    "NVRM: The NVIDIA GPU 0000:b3:00.0 (PCI ID: 10de:26b5) installed in this system has fallen off the bus and is not "
    "responding to commands.",
)


def _write(root: Path, **files: str) -> None:
    for name, text in files.items():
        path = root / name.replace("__", "/").replace("_dot_", ".")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def _gpu(root: Path, address: str) -> None:
    folder = root / "sys/bus/pci/devices" / address
    folder.mkdir(parents=True)
    (folder / "vendor").write_text("0x10de\n")
    (folder / "class").write_text("0x030000\n")


def test_a_message_of_several_lines_is_one_and_what_an_earlier_start_said_is_left_out(tmp_path: Path) -> None:
    _write(tmp_path, dev__kmsg=_RECORDS)
    facts = gather(tmp_path)
    assert facts.log == _LINES
    assert facts.log_source == "/dev/kmsg"


def test_a_log_that_may_not_be_read_is_not_an_empty_one(tmp_path: Path) -> None:
    assert gather(tmp_path).log is None
    (tmp_path / "dev/kmsg").mkdir(parents=True)
    facts = gather(tmp_path)
    assert facts.log is None
    assert facts.log_refused.startswith("/dev/kmsg: E")


@pytest.mark.parametrize(
    "text",
    [
        "Nov 20 10:00:01 h kernel: [    5.1] NVRM: old\nNov 20 11:00:01 h kernel: [    0.0] Linux version 6.1.0\n"
        "Nov 20 11:00:03 h kernel: [    2.5] NVRM: The NVIDIA GPU 0000:b3:00.0#012NVRM: installed in this system has\n",
        "[    2.513141] NVRM: The NVIDIA GPU 0000:b3:00.0\n               NVRM: installed in this system has\n",
    ],
    ids=["rsyslog", "dmesg"],
)
def test_a_file_of_syslog_is_read_since_the_last_boot_if_nothing_else_may_be(tmp_path: Path, text: str) -> None:
    _write(tmp_path, var__log__kern_dot_log=text)
    facts = gather(tmp_path)
    assert facts.log == ("NVRM: The NVIDIA GPU 0000:b3:00.0 installed in this system has",)
    assert facts.log_source == "/var/log/kern.log"


def test_a_message_that_is_repeated_is_kept_once_for_each_gpu() -> None:
    lines = [f"NVRM: GPU 0000:0{gpu}:00.0: RmInitAdapter failed! (0x62:0x40:{n})" for n in range(90) for gpu in (1, 2)]
    assert relevant(["nouveau 0000:03:00.0: probe failed", *lines]) == (
        "nouveau 0000:03:00.0: probe failed",
        *lines[-2:],
    )


def test_a_failure_of_the_bus_counts_if_it_names_a_gpu_of_nvidia() -> None:
    failed = "pci 0000:17:00.0: BAR 1 [mem size 0x1000000000 64bit pref]: can't assign; no space"
    assert relevant([failed, failed.replace("17", "18")], frozenset({"0000:17:00.0"})) == (failed,)


_ORDINARY = """\
nvidia: loading out-of-tree module taints kernel.
nvidia: module license 'NVIDIA' taints kernel.
nvidia: module verification failed: signature and/or required key missing - tainting kernel
nvidia-nvlink: Nvlink Core is being initialized, major device number 234
nvidia 0000:01:00.0: vgaarb: VGA decodes changed: olddecodes=io+mem,decodes=none:owns=io+mem
nvidia 0000:01:00.0: enabling device (0000 -> 0002)
NVRM: loading NVIDIA UNIX x86_64 Kernel Module  535.183.01  Sun May 12 19:39:15 UTC 2024
nvidia-modeset: Loading NVIDIA Kernel Mode Setting Driver for UNIX platforms  535.183.01
nvidia_uvm: module uses symbols nvUvmInterfaceDisableAccessCntr from proprietary module nvidia, inheriting taint.
nvidia-uvm: Loaded the UVM driver, major device number 510.
nvidia-gpu 0000:01:00.3: i2c timeout error e0000000
[drm] [nvidia-drm] [GPU ID 0x00000100] Loading driver
"""


def test_an_ordinary_start_leaves_at_most_a_notice() -> None:
    kept = relevant(_ORDINARY.splitlines())
    assert [line for line in kept if "module uses symbols" not in line] == []


def test_rules_of_udev_that_take_the_gpu_off_the_bus_are_settings(tmp_path: Path) -> None:
    removes = 'ACTION=="add", SUBSYSTEM=="pci", ATTR{vendor}=="0x10de", ATTR{class}=="%s", ATTR{remove}="1"'
    rules = (removes % "0x0c0330", f"# {removes % '0x03[0-9]*'}", removes % "0x03[0-9]*")  # USB, a comment, the GPU
    folder = tmp_path / "usr/lib/udev/rules.d"
    folder.mkdir(parents=True)
    (tmp_path / "lib").symlink_to("usr/lib")
    (folder / "50-remove-nvidia.rules").write_text("\n".join(rules))
    (folder / "60-others.rules").write_text(rules[2])
    bbswitch = tmp_path / "proc/acpi/bbswitch"
    bbswitch.parent.mkdir(parents=True)
    bbswitch.write_text("0000:01:00.0 OFF\n")
    assert gather(tmp_path).settings == (
        ModuleSetting("/usr/lib/udev/rules.d/50-remove-nvidia.rules:3", rules[2]),
        ModuleSetting("/proc/acpi/bbswitch", "0000:01:00.0 OFF"),
    )
    bbswitch.write_text("0000:01:00.0 ON\n")
    assert len(gather(tmp_path).settings) == 1


def test_settings_are_those_in_force_with_the_place_where_they_are_written(tmp_path: Path) -> None:
    _write(
        tmp_path,
        etc__modprobe_dot_d__a_dot_conf="# nothing\nblacklist nouveau\n  install nvidia-drm /bin/false\n",
        lib__modprobe_dot_d__a_dot_conf="blacklist nvidia\n",
        usr__lib__modprobe_dot_d__b_dot_conf="alias   nvidia off\nblacklist nvidia-340\nblacklist pcspkr\n",
        proc__cmdline="root=/dev/sda1 quiet vfio-pci.ids=10de:2204 module_blacklist=nvidia\n",
        etc__driverctl_dot_d__placeholder="",
    )
    _gpu(tmp_path, "0000:02:00.0")
    (tmp_path / "sys/bus/pci/devices/0000:02:00.0/driver_override").write_text("vfio-pci\n")
    assert gather(tmp_path).settings == (
        ModuleSetting("/etc/modprobe.d/a.conf:2", "blacklist nouveau"),
        ModuleSetting("/etc/modprobe.d/a.conf:3", "install nvidia-drm /bin/false"),
        ModuleSetting("/usr/lib/modprobe.d/b.conf:1", "alias nvidia off"),
        ModuleSetting("/proc/cmdline", "vfio-pci.ids=10de:2204"),
        ModuleSetting("/proc/cmdline", "module_blacklist=nvidia"),
        ModuleSetting("/sys/bus/pci/devices/0000:02:00.0/driver_override", "vfio-pci"),
    )


def test_what_the_module_says_of_each_gpu(tmp_path: Path) -> None:
    folder = tmp_path / "proc/driver/nvidia/gpus/0000:02:00.0"
    folder.mkdir(parents=True)
    (folder / "information").write_text(
        "Model: \t\t NVIDIA H100\nVideo BIOS: \t 96.00.74\nGPU Firmware: \t N/A\nGPU Excluded:\t Yes\n"
    )
    _write(tmp_path, proc__driver__nvidia__params='EnableGpuFirmware: 18\nExcludedGpus: "GPU-1"\nGpuBlacklist: ""\n')
    facts = gather(tmp_path)
    assert facts.excluded == ("0000:02:00.0",)
    assert facts.firmware == {"0000:02:00.0": "N/A"}
    assert facts.video_bios == {"0000:02:00.0": "96.00.74"}
    assert facts.parameters == {"EnableGpuFirmware": "18", "ExcludedGpus": "GPU-1"}


_GATHER = """
import msgspec, sys
from gpudiag.facts.kernel import gather
sys.stdout.buffer.write(msgspec.json.encode(gather()))
"""


@pytest.mark.skipif(sys.platform != "linux" or os.geteuid() != 0, reason="writes to the kernel's log")
@pytest.mark.parametrize("hidden", [False, True], ids=["/dev/kmsg", "no /dev/kmsg"])
def test_the_real_log_is_read_with_and_without_its_device_file(*, hidden: bool) -> None:
    """Without the file, as in a container, the system call ``syslog(2)`` answers."""
    mark = f"nouveau 0000:ff:1f.7: a test of gpudiag, process {os.getpid()}, failed with error -2"
    try:
        Path("/dev/kmsg").write_text(f"{mark}\n")
    except OSError:
        pytest.skip("the kernel's log may not be written here")
    command = [sys.executable, "-c", _GATHER]
    if hidden:
        if shutil.which("unshare") is None:
            pytest.skip("no unshare")
        script = 'mount -t tmpfs none /dev 2>/dev/null || exit 77; exec "$@"'
        command = ["unshare", "--mount", "sh", "-c", script, "sh", *command]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode == 77:
        pytest.skip("no mount namespace")
    facts = json.loads(done.stdout)
    assert mark in facts["log"]
    assert facts["log_source"] == ("syslog(2)" if hidden else "/dev/kmsg")
