"""Several GPUs and several workers."""

from __future__ import annotations

import json

from corpus import Item
from corpus.containers import NO_GPU_AT_ALL, machine
from corpus.visibility import log

_LOG = ("--log", "app.log", "host", "discovery")
_UNHANDLED = "InternalError: NCCL: unhandled system error. Set NCCL_DEBUG=WARN for detail."
_CLUSTER = {"worker": ["a.example:2222", "b.example:2222"]}
_NO_DEVICES = '"/dev/nvidiactl" = false\n"/dev/nvidia-uvm" = false\n"/dev/nvidia0" = false'

ITEMS = (
    Item(
        71,
        "NCCL: unhandled system error, 64 MiB of /dev/shm",
        rule="nccl_small_shared_memory",
        fix="--shm-size=1g --ulimit memlock=-1",
        machine=machine(
            '"/.dockerenv" = ""',
            '"/proc/self/mountinfo" = "25 24 0:23 / /dev/shm rw - tmpfs shm rw,size=65536k"',
            gpus=2,
        ),
        options=_LOG,
        prepare=log(_UNHANDLED),
    ),
    Item(
        71,
        "NCCL: unhandled system error, InfiniBand without memlock",
        rule="nccl_low_memory_lock",
        fix="ulimit -l unlimited",
        machine=machine(
            '"/dev/infiniband/uverbs0" = ""',
            '"/proc/self/limits" = "Max locked memory         65536                65536                bytes"',
            gpus=2,
        ),
        options=_LOG,
        prepare=log(_UNHANDLED),
    ),
    Item(
        71,
        "NCCL: the wrong interface",
        rule="nccl_no_interface",
        fix="unset NCCL_SOCKET_IFNAME",
        machine=machine('"/sys/class/net/eth0/uevent" = ""', gpus=2),
        variables={"NCCL_SOCKET_IFNAME": "ib0"},
    ),
    Item(
        72,
        "MirroredStrategy hangs: IOMMU",
        rule="iommu_between_gpus",
        fix="NCCL_P2P_DISABLE=1",
        machine=machine(
            *(f'"/sys/bus/pci/devices/0000:0{bus}:00.0/iommu_group/type" = "DMA-FQ"' for bus in (1, 2)),
            '"/sys/class/iommu/dmar0/uevent" = ""',
            gpus=2,
        ),
        options=_LOG,
        prepare=log(
            "Epoch 1/10",
            "INFO:tensorflow:Collective all_reduce tensors: 6 all_reduces, num_devices = 2, group_size = 2, "
            "implementation = CommunicationImplementation.NCCL, num_packs = 1",
        ),
    ),
    Item(
        74,
        "one worker of a cluster has no GPU: on that worker",
        rule="cluster_worker_without_gpu",
        fix="gpudiag check --require-gpus 1",
        machine=machine(_NO_DEVICES, NO_GPU_AT_ALL),
        faults=("library_missing=libcuda.so.1", "nvml_missing"),
        variables={"TF_CONFIG": json.dumps({"cluster": _CLUSTER, "task": {"type": "worker", "index": 1}})},
    ),
    Item(
        74,
        "one worker of a cluster has no GPU: by its log",
        rule="cluster_worker_without_gpu",
        fix="gpudiag check --require-gpus 1",
        machine="1x16GiB",
        variables={"TF_CONFIG": json.dumps({"cluster": _CLUSTER, "task": {"type": "worker", "index": 0}})},
        options=_LOG,
        prepare=log(
            "E0000 00:00:1795263721.1 18644 utils.cc:181] NOT_FOUND: TensorFlow device GPU:0 was not registered"
        ),
    ),
)
