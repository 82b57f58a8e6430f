"""Machines from public threads: variables hide GPUs, choose others than was meant, or end TensorFlow."""

from __future__ import annotations

from corpus import Item
from corpus.containers import machine

_SLOW_FIRST = """
[[gpu]]
name = "NVIDIA GeForce GT 1030"
compute_capability = "5.2"
multiprocessors = 3
memory = "2GiB"
speed = 1
[[gpu]]
name = "NVIDIA GeForce RTX 3080"
compute_capability = "8.6"
multiprocessors = 68
memory = "10GiB"
speed = 30
"""
_WORKER_OF_RAY = {"RAY_JOB_ID": "01000000", "RAY_RAYLET_PID": "4711", "RAY_NODE_ID": "ab" * 28}

ITEMS = (
    Item(
        131,
        "Ray gave the worker no GPU",
        rule="ray_gave_no_gpu",
        fix="num_gpus",
        machine="2",
        variables={"CUDA_VISIBLE_DEVICES": "", **_WORKER_OF_RAY},
        source="https://github.com/ray-project/ray/issues/3362",
        settled="Ray hides all GPUs from a worker that asked for none: ask for them (num_gpus, resources_per_trial)",
    ),
    Item(
        132,
        "CUDA_VISIBLE-DEVICES in the place of CUDA_VISIBLE_DEVICES",
        rule="variable_misspelt",
        fix="export CUDA_VISIBLE_DEVICES=1",
        machine="2",
        variables={"CUDA_VISIBLE-DEVICES": "1"},
        source="https://github.com/yahoo/TensorFlowOnSpark/issues/64",
        settled="the variable's name is misspelt, and every GPU is used: correct it",
    ),
    Item(
        133,
        "CUDA_DEVICE_ORDER=1 in the place of CUDA_VISIBLE_DEVICES=1",
        rule="device_order_names_gpus",
        fix="CUDA_VISIBLE_DEVICES=1",
        machine="2",
        variables={"CUDA_DEVICE_ORDER": "1"},
        source="https://github.com/tensorflow/tensorflow/issues/25152",
        settled="CUDA_DEVICE_ORDER chooses an order, not GPUs: CUDA_VISIBLE_DEVICES was meant",
    ),
    Item(
        134,
        "GPU 1 of nvidia-smi is GPU 0 of CUDA",
        rule="gpus_in_another_order",
        fix="CUDA_DEVICE_ORDER=PCI_BUS_ID",
        machine=_SLOW_FIRST,
        variables={"CUDA_VISIBLE_DEVICES": "1"},
        source="https://github.com/NVIDIA/nvidia-docker/issues/262",
        settled="CUDA counts the fastest GPU first, and the mask chooses the old one: CUDA_DEVICE_ORDER=PCI_BUS_ID",
    ),
    Item(
        135,
        "CUDA_VISIBLE_DEVICES is empty",
        rule="mask_hides_all",
        fix="unset CUDA_VISIBLE_DEVICES",
        machine="8x8GiB",
        variables={"CUDA_VISIBLE_DEVICES": ""},
        source="https://github.com/tensorflow/tensorflow/issues/22816",
        settled="an empty list hides every GPU: unset the variable",
        tried="works",
    ),
    Item(
        136,
        "a program overwrites the GPUs that Slurm gave",
        rule="mask_outside_the_allocation",
        fix="CUDA_VISIBLE_DEVICES=GPU-",
        machine="8x8GiB",
        variables={
            "SLURM_JOB_ID": "7",
            "SLURM_JOB_GPUS": "4,5,6,7",
            "SLURM_STEP_GPUS": "4,5,6,7",
            "SLURM_GPUS_ON_NODE": "4",
            "CUDA_VISIBLE_DEVICES": "0,1,2,3",
        },
        source="https://github.com/IsoNet-cryoET/IsoNet2/issues/28",
        settled="the mask names GPUs that the job was not given: leave what Slurm set",
    ),
    Item(
        137,
        "XLA_FLAGS has a flag that this TensorFlow does not know",
        rule="flags_refused",
        fix="unset XLA_FLAGS",
        machine="1",
        variables={"XLA_FLAGS": "--xla_gpu_enable_triton_softmax_fusion=false"},
        source="https://github.com/google-research/proteinfer/issues/87",
        settled="a flag of another release ends TensorFlow: take it out of XLA_FLAGS",
    ),
    Item(
        138,
        "TF_XLA_FLAGS has a flag that is none of its own",
        rule="flags_refused",
        fix="unset TF_XLA_FLAGS",
        machine="1",
        variables={"TF_XLA_FLAGS": "--tf_xla_force_host_platform_device_count=8"},
        source="https://github.com/tensorflow/tensorflow/issues/76717",
        settled="an unknown flag ends TensorFlow: take it out of TF_XLA_FLAGS",
    ),
    Item(
        140,
        "the mask is the UUID of a MIG instance of another time",
        rule="mask_hides_all",
        fix="unset CUDA_VISIBLE_DEVICES",
        machine=machine(gpu='preset = "A100-40"\nmig = 2'),
        variables={"CUDA_VISIBLE_DEVICES": "MIG-849e08aa-b1bd-5744-babc-e89e41b926b4"},
        source="https://github.com/MouseLand/cellpose/issues/909",
        settled="no GPU has that UUID: name one that nvidia-smi -L lists",
    ),
)
