"""The GPUs themselves: compute mode, size, generation, numbering."""

from __future__ import annotations

from msgspec.structs import replace

from conftest import Gpudiag
from corpus import Item
from examples.machines import NO_DEVICE, example_evidence, example_facts, example_nodes
from gpudiag.model.facts import NvmlFacts


def _not_in_the_group() -> Item:
    nodes = example_nodes("/dev/nvidia-uvm", "/dev/nvidia0", "/dev/nvidiactl", mode="crw-rw----", group="render")
    facts = example_facts(
        device_nodes=replace(nodes, groups=("someone", "users")),
        nvml=NvmlFacts("Insufficient Permissions", None, None, ()),
    )
    return Item(
        25,
        "device files of a group",
        rule="user_not_in_device_group",
        fix="sudo usermod -aG render someone",
        evidence=example_evidence(facts, cuinit=NO_DEVICE),
        why_not_built="a file of another group than the tester's own can be made by root alone",
    )


def _with_cudnn(gpudiag: Gpudiag) -> None:
    metadata = gpudiag.folder / "site-packages" / "nvidia_cudnn_cu12-9.28.0.42.dist-info" / "METADATA"
    metadata.parent.mkdir(parents=True)
    metadata.write_text("Metadata-Version: 2.1\nName: nvidia-cudnn-cu12\nVersion: 9.28.0.42\n")
    gpudiag.path.insert(0, str(metadata.parent.parent))


def _asks_for_gpu_1(gpudiag: Gpudiag) -> None:
    line = "InvalidArgumentError: /job:localhost/replica:0/task:0/device:GPU:1 unknown device. [Op:MatMul]"
    (gpudiag.folder / "app.log").write_text(f"Traceback (most recent call last):\n{line}\n")


_INTEL = """
[files]
"/sys/bus/pci/devices/0000:00:02.0/vendor" = "0x8086"
"/sys/bus/pci/devices/0000:00:02.0/class" = "0x030000"
[[gpu]]
name = "NVIDIA GeForce RTX 4060 Laptop GPU"
"""

ITEMS = (
    _not_in_the_group(),
    Item(
        30,
        "exclusive compute mode, and another process is on the GPU",
        rule="gpu_held_exclusively",
        fix="nvidia-smi -i 0 -c 0",
        machine='[[gpu]]\ncompute_mode = "exclusive_process"\ntaken = "1GiB"\ntaken_by = 4194304\n[[gpu]]\n',
        faults=("context_creation=46@0",),  # the simulated driver does not look at who has taken memory
        tried="works",
    ),
    Item(
        30,
        "compute mode prohibited",
        rule="compute_mode_prohibited",
        fix="nvidia-smi -i 1 -c 0",
        machine='[[gpu]]\n[[gpu]]\ncompute_mode = "prohibited"\n',
        tried="works",
    ),
    Item(
        30,
        "busy or unavailable in mode default",
        rule="gpu_unavailable",
        fix="dmesg",
        machine="1",
        faults=("context_creation=46",),
    ),
    Item(
        32,
        "an integrated GPU counted by CUDA_VISIBLE_DEVICES",
        rule="another_makers_gpu_counted",
        fix="export CUDA_VISIBLE_DEVICES=0",
        machine=_INTEL,
        variables={"CUDA_VISIBLE_DEVICES": "1"},
        tried="works",
    ),
    Item(
        32,
        "an integrated GPU counted by /GPU:1",
        rule="another_makers_gpu_counted",
        fix="tf.device('/GPU:0')",
        machine=_INTEL,
        prepare=_asks_for_gpu_1,
        options=("host", "discovery", "--log", "app.log"),
    ),
    Item(
        50,
        "small second GPU left out",
        rule="too_few_multiprocessors",
        fix="export TF_MIN_GPU_MULTIPROCESSOR_COUNT=4",
        machine='[[gpu]]\n[[gpu]]\nname = "T400"\nmemory = "4GiB"\nmultiprocessors = 4\n',
        tried="works",
    ),
    Item(
        68,
        "Blackwell with a wheel that has no code for it",
        rule="gpu_newer_than_wheel",
        fix="nvcr.io/nvidia/tensorflow",
        machine='[[gpu]]\nname = "NVIDIA GeForce RTX 5090"\ncompute_capability = "12.0"\n',
    ),
    Item(
        70,
        "Pascal with a cuDNN that dropped it",
        rule="cudnn_dropped_gpu",
        fix="pip install 'nvidia-cudnn-cu12>=9.3,<9.11'",
        machine='cudnn_version = "9.28.0"\n[[gpu]]\nname = "NVIDIA GeForce GTX 1080"\ncompute_capability = "6.1"\n',
        prepare=_with_cudnn,
    ),
)
