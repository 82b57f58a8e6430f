"""GPUs that are there and hidden, or numbered in another way than was thought."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from conftest import Gpudiag
from corpus import Item
from corpus.containers import machine
from gpudiag.simulator.spec import parse_spec

_LOG = ("--log", "app.log", "host", "discovery")
_MIG = 'preset = "A100-40"\nmig = 2'
_INSTANCES = replace(parse_spec("1").gpus[0], mig=2).mig_uuids


def log(*lines: str) -> Callable[[Gpudiag], None]:
    """Return what writes the log of a user's program with these lines."""

    def write(gpudiag: Gpudiag) -> None:
        (gpudiag.folder / "app.log").write_text("".join(f"{line}\n" for line in lines))

    return write


def created(*gpus: int) -> tuple[str, ...]:
    """Return the lines with which TensorFlow says that it uses these GPUs of a simulated machine."""
    return tuple(
        f"I0000 00:00:1795263720.405886   18648 gpu_device.cc:2043] Created device /job:localhost/replica:0/task:0/"
        f"device:GPU:{number} with 14000 MB memory:  -> device: {number}, name: Simulated GPU, "
        f"pci bus id: 0000:{gpu + 1:02x}:00.0, compute capability: 8.0"
        for number, gpu in enumerate(gpus)
    )


ITEMS = (
    Item(
        41,
        "CUDA_VISIBLE_DEVICES hides everything",
        rule="mask_hides_all",
        fix="unset CUDA_VISIBLE_DEVICES",
        machine="2x16GiB",
        variables={"CUDA_VISIBLE_DEVICES": "7"},
        tried="works",
    ),
    Item(
        44,
        "variable set in Python too late",
        rule="mask_set_too_late",
        fix="CUDA_VISIBLE_DEVICES=1 python program.py",
        machine="2x16GiB",
        options=_LOG,
        prepare=log("os.environ['CUDA_VISIBLE_DEVICES'] = '1'", *created(0, 1)),
    ),
    Item(
        45,
        "renumbering: visible_device_list='7' after masking",
        rule="gpus_renumbered",
        fix="/GPU:0 is GPU 2, /GPU:1 is GPU 3 of nvidia-smi",
        machine="4x4GiB",
        variables={"CUDA_VISIBLE_DEVICES": "2,3"},
        options=_LOG,
        prepare=log(
            "tensorflow.python.framework.errors_impl.InvalidArgumentError: 'visible_device_list' listed an invalid "
            "Device id '7' but visible device count is 2"
        ),
    ),
    Item(
        45,
        "Horovod: more processes than GPUs",
        rule="local_rank_beyond_gpus",
        fix="horovodrun -np 2",
        machine="2x16GiB",
        variables={"OMPI_COMM_WORLD_LOCAL_RANK": "2"},
    ),
    Item(
        46,
        "Slurm job without --gres",
        rule="slurm_gave_no_gpu",
        fix="--gres=gpu:1",
        machine="2x16GiB",
        variables={"CUDA_VISIBLE_DEVICES": "NoDevFiles", "SLURM_JOB_ID": "17"},
    ),
    Item(
        46,
        "Slurm step without GPUs in a job that has some",
        rule="slurm_gave_no_gpu",
        fix="srun --gres=gpu:1",
        machine="2x16GiB",
        variables={"CUDA_VISIBLE_DEVICES": "NoDevFiles", "SLURM_JOB_ID": "17", "SLURM_JOB_GPUS": "0,1"},
    ),
    Item(
        48,
        "MIG: two instances for one process",
        rule="one_mig_instance_per_process",
        fix="CUDA_VISIBLE_DEVICES=MIG-",
        machine=machine(gpu=_MIG),
        variables={"CUDA_VISIBLE_DEVICES": ",".join(_INSTANCES)},
    ),
    Item(
        48,
        "MIG: two GPUs with instances",
        rule="one_mig_instance_per_process",
        fix="CUDA_VISIBLE_DEVICES=MIG-",
        machine=machine(gpus=2, gpu=_MIG),
    ),
    Item(
        48,
        "MIG enabled, none created",
        rule="mig_without_instance",
        fix="nvidia-smi mig -i 0",
        machine=machine(gpu=_MIG),
        faults=("call_fails=nvmlDeviceGetMaxMigDeviceCount:3", "cuinit=100"),
    ),
)
