"""Machines from public threads: the driver, its kernel modules, the cards, and limits of the system."""

from __future__ import annotations

from corpus import Item
from corpus.containers import machine

_HIDDEN = '"/proc/driver" = false\n"/dev/nvidiactl" = false\n"/dev/nvidia-uvm" = false\n"/dev/nvidia0" = false'
_ARCH = 'ID=cachyos\\nID_LIKE=arch\\nNAME=\\"CachyOS Linux\\"\\nPRETTY_NAME=\\"CachyOS\\"\\n'
_KERNEL = "6.12.9-2-cachyos"
_LEGACY = "\\n".join(
    f"3,{number},5140950,-;NVRM: {text}"
    for number, text in enumerate(
        (
            "The NVIDIA Tesla K80 GPU installed in this system is",
            " supported through the NVIDIA 470.xx Legacy drivers. Please",
            " visit http://www.nvidia.com/object/unix.html for more",
            " information.  The 560.35.05 NVIDIA driver will ignore",
            " this GPU.  Continuing probe...",
            "No NVIDIA GPU found.",
        )
    )
)
_LIMITS = "Limit                     Soft Limit           Hard Limit           Units     \\n" + "\\n".join(
    (
        "Max cpu time              unlimited            unlimited            seconds   ",
        "Max address space         10737418240          unlimited            bytes     ",
        "Max locked memory         8388608              8388608              bytes     ",
    )
)
_FIRST_IS_FULL = """
[[gpu]]
memory = "12GiB"
taken = "12GiB"
taken_by = 4711
[[gpu]]
memory = "12GiB"
taken = "100MiB"
taken_by = 4711
"""
_ONE_FULL = r"""
[[gpu]]
name = "NVIDIA GeForce RTX 3060"
memory = "12GiB"
taken = "12GiB"
taken_by = 4711

[files]
"/proc/4711/status" = "Name:\tpython3\nState:\tS (sleeping)\nPPid:\t4700\nUid:\t1000\t1000\t1000\t1000\n"
"/proc/4711/cmdline" = "python3\u0000-m\u0000ipykernel_launcher\u0000"
"""

ITEMS = (
    Item(
        151,
        "after suspend: cuInit says unknown error",
        rule="driver_shows_no_gpu",
        fix="gpudiag explain driver_shows_no_gpu has it",
        machine="1",
        faults=("cuinit=999",),
        source="https://github.com/gbionics/jaxsim/issues/50",
        settled="nvidia_uvm does not work any more after suspend: unload and load it",
    ),
    Item(
        152,
        "HMM of the open kernel module: cuInit says not initialized",
        rule="hmm_stops_cuda",
        fix="uvm_disable_hmm=1",
        machine='driver_version = "570.158.01"\n'
        + machine(
            '"/proc/driver/nvidia/version" = "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  570.158.01  '
            'Release Build  (dvs-builder)\\n"',
            '"/proc/sys/kernel/osrelease" = "5.14.0-570.23.1.el9_6.x86_64"',
            '"/etc/os-release" = "ID=rocky\\nID_LIKE=\\"rhel centos fedora\\"\\nPRETTY_NAME=\\"Rocky Linux 9.6\\"\\n"',
            gpu='name = "NVIDIA RTX 6000 Ada Generation"\ncompute_capability = "8.9"',
        ),
        faults=("cuinit=3",),
        source="https://github.com/NVIDIA/open-gpu-kernel-modules/issues/901",
        settled="HMM of nvidia_uvm breaks CUDA on this kernel: options nvidia_uvm uvm_disable_hmm=1",
    ),
    Item(
        153,
        "works after it ran once as root",
        rule="uvm_missing",
        fix="nvidia-modprobe",
        machine=machine('"/dev/nvidia-uvm" = false'),
        faults=("cuinit=999",),
        source="https://github.com/tensorflow/tensorflow/issues/23935",
        settled="/dev/nvidia-uvm is made by root only: nvidia-modprobe",
    ),
    Item(
        154,
        "an LXC container that was started before nvidia-uvm was loaded",
        rule="library_without_devices",
        fix="sudo nvidia-modprobe -u -c=0  # on the host",
        machine=machine('"/run/systemd/container" = "lxc"', '"/dev/nvidia-uvm" = false'),
        faults=("cuinit=999",),
        source="https://github.com/tensorflow/tensorflow/issues/53341",
        settled="the host had no /dev/nvidia-uvm when the container started: load it there, start the container again",
    ),
    Item(
        155,
        "Arch: the module is not built for the kernel that runs",
        rule="module_not_built",
        fix="sudo pacman -S nvidia-dkms linux-cachyos-headers",
        machine=machine(
            _HIDDEN,
            f'"/etc/os-release" = "{_ARCH}"',
            f'"/proc/sys/kernel/osrelease" = "{_KERNEL}"',
            f'"/lib/modules/{_KERNEL}/modules.dep" = "kernel/fs/ext4/ext4.ko.zst: kernel/lib/crc16.ko.zst\\n"',
        ),
        faults=("cuinit=100", "nvml_init=9"),
        source="https://github.com/CachyOS/linux-cachyos/issues/118",
        settled="no module for this kernel: install nvidia-dkms (again), by pacman",
    ),
    Item(
        158,
        "the card needs a legacy driver",
        rule="gpu_needs_legacy_driver",
        fix="470",
        machine=machine(_HIDDEN, f'"/dev/kmsg" = "{_LEGACY}"', gpu='name = "Tesla K80"\ncompute_capability = "3.7"'),
        faults=("cuinit=100", "nvml_init=9"),
        source="https://github.com/omacom/omarchy/pull/4314",
        settled="the installed driver does not support the card any more: install the legacy driver that it names",
    ),
    Item(
        160,
        "another process has all memory of the first GPU",
        rule="memory_held_by_others",
        fix="export CUDA_VISIBLE_DEVICES=",
        machine=_FIRST_IS_FULL,
        faults=("context_creation=2@0",),
        source="https://github.com/tensorflow/tensorflow/issues/7983",
        settled="the first GPU is full: use the other one by CUDA_VISIBLE_DEVICES",
    ),
    Item(
        161,
        "an idle notebook holds the memory",
        rule="memory_held_by_others",
        fix="in Jupyter: Kernel, Shut Down Kernel",
        machine=_ONE_FULL,
        faults=("context_creation=2",),
        source="https://github.com/endernewton/tf-faster-rcnn/issues/7",
        settled="a notebook that nobody uses holds the memory: end it",
    ),
    Item(
        162,
        "ulimit -v is less than CUDA reserves",
        rule="address_space_limited",
        fix="ulimit -v unlimited",
        machine=machine(f'"/proc/self/limits" = "{_LIMITS}"'),
        faults=("cuinit=2",),
        source="https://github.com/tensorflow/tensorflow/issues/37449",
        settled="the limit of the address space is less than is reserved: lift it",
    ),
    Item(
        165,
        "the card is older than the wheel's kernels",
        rule="gpu_older_than_wheel",
        fix="earlier TensorFlow",
        machine='[[gpu]]\nname = "NVIDIA GeForce GTX TITAN X"\ncompute_capability = "5.2"\n',
        source="https://github.com/tensorflow/tensorflow/issues/36853",
        settled="the wheel has no code for capability 5.2: an older release, or a build of one's own",
    ),
)
