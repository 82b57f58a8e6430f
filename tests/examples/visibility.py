"""Examples of causes: masks, Slurm and MIG."""

from __future__ import annotations

import msgspec

from examples import Example
from examples.facts import example, example_gpu, example_with_gpus
from gpudiag.cause import Evidence
from gpudiag.causes.shared.visibility import MASK, OF_SLURM
from gpudiag.model.facts import ContainerFacts, CudaFacts, EnvironmentFacts, NvmlFacts
from gpudiag.model.report import Limits


def _masked(gpus: int, value: str, *lines: str, job: str | None = None, **variables: str) -> Evidence:
    facts = example_with_gpus(
        gpus,
        environment=EnvironmentFacts({MASK: value, **variables}),
        container=ContainerFacts(None, (), False, job),
    )
    return Evidence(facts, lines=lines)


def _kept(error: str | None = None, **variables: str) -> Evidence:
    nvml = NvmlFacts(error, "535.104.05", "12.2", ())
    job = ContainerFacts(None, (), False, "17")
    return Evidence(example_with_gpus(2, nvml=nvml, container=job, environment=EnvironmentFacts(variables)))


def _unmasked(gpus: int, *lines: str, **variables: str) -> Evidence:
    return Evidence(example_with_gpus(gpus, environment=EnvironmentFacts(variables)), lines=lines)


def _mig(*instances: int, **variables: str) -> Evidence:
    """Return evidence on A100s in MIG mode with so many instances each; -1: one that is not in that mode."""
    devices = tuple(
        msgspec.structs.replace(
            example_gpu(index),
            mig_mode="disabled" if count < 0 else "enabled",
            mig_uuids=tuple(f"MIG-{index}{number}" for number in range(count)),
        )
        for index, count in enumerate(instances)
    )
    nvml = NvmlFacts(None, "535.104.05", "12.2", devices)
    return Evidence(example_with_gpus(len(devices), nvml=nvml, environment=EnvironmentFacts(variables)))


def _created(*gpus: int) -> tuple[str, ...]:
    return tuple(
        f"I0000 00:00:1795263720.405886   18648 gpu_device.cc:2043] Created device /job:localhost/replica:0/task:0/"
        f"device:GPU:{number} with 38500 MB memory:  -> device: {number}, name: NVIDIA A100-SXM4-40GB, "
        f"pci bus id: {example_gpu(gpu).pci_bus_id}, compute capability: 8.0"
        for number, gpu in enumerate(gpus)
    )


_INVALID = "'visible_device_list' listed an invalid Device id '7' but visible device count is 2"
_UNSATISFIED = "Could not satisfy device specification '/job:localhost/replica:0/task:0/device:GPU:5'."
_RANK_LINE = "    tf.config.set_visible_devices(gpus[hvd.local_rank()], 'GPU')"
_OUT_OF_RANGE = "IndexError: list index out of range"


def _unequal(mask: str, *shown: int, **variables: str) -> Evidence:
    """Return evidence on two cards of which the second is faster; CUDA shows those with the numbers ``shown``."""
    devices = (example_gpu(0), msgspec.structs.replace(example_gpu(1), name="NVIDIA H100"))
    return Evidence(
        example_with_gpus(
            2,
            nvml=NvmlFacts(None, "535.104.05", "12.2", devices),
            environment=EnvironmentFacts({MASK: mask, **variables}),
            cuda=CudaFacts(mask, tuple(devices[number].uuid for number in shown)),
        )
    )


def _required(evidence: Evidence, number: int) -> Evidence:
    """Return ``evidence`` of a run with ``--require-gpus``."""
    return Evidence(evidence.facts, evidence.gpus, limits=Limits(require_gpus=number))


EXAMPLES: dict[str, tuple[Example, ...]] = {
    "mask_entry_cut": (
        Example("a range", _masked(4, "0-3")),
        Example("a list", _masked(4, "0,3"), fires=False),
    ),
    "mask_entries_ignored": (
        Example("an index that is none", _masked(4, "0,7,1")),
        Example("a UUID of another machine", _masked(4, f"0,{example_gpu(9).uuid},1")),
        Example("all valid", _masked(4, "0,1"), fires=False),
        Example("ended on purpose", _masked(4, "0,-1"), fires=False),
        Example("nothing is left: another cause", _masked(4, "7,0"), fires=False),
        Example("no mask", _unmasked(4), fires=False),
    ),
    "gpus_in_another_order": (
        Example("the faster one first", _unequal("0", 1)),
        Example("both, in the other order", _unequal("0,1", 1, 0)),
        Example("in PCI order", _unequal("0", 0), fires=False),
        Example("CUDA was not asked", _unequal("0"), fires=False),
        Example("the order is set", _unequal("0", 1, CUDA_DEVICE_ORDER="PCI_BUS_ID"), fires=False),
        Example("equal cards", _masked(2, "0"), fires=False),
    ),
    "device_order_names_gpus": (
        Example("a number", _unmasked(2, CUDA_DEVICE_ORDER="1")),
        Example("a list", _unmasked(4, CUDA_DEVICE_ORDER="2,3")),
        Example("an order", _unmasked(2, CUDA_DEVICE_ORDER="PCI_BUS_ID"), fires=False),
        Example("another word", _unmasked(2, CUDA_DEVICE_ORDER="pci"), fires=False),
        Example("masked, too", _masked(2, "1", CUDA_DEVICE_ORDER="1"), fires=False),
        Example("nothing to choose", _unmasked(1, CUDA_DEVICE_ORDER="0"), fires=False),
    ),
    "fewer_gpus_than_required": (
        Example("by the mask", _required(_masked(4, "0,1"), 4)),
        Example("of a Slurm job", _required(_masked(4, "0,1", job="17"), 4)),
        Example("no more are there", _required(_unmasked(2), 4)),
        Example("as many as required", _required(_masked(4, "0,1"), 2), fires=False),
        Example("none is required", _masked(4, "0,1"), fires=False),
    ),
    "mask_hides_all": (
        Example("-1", _masked(2, "-1")),
        Example("empty", _masked(1, "")),
        Example("an index too high", _masked(2, "5")),
        Example("in quotes, of a file for docker --env-file", _masked(2, '"0"')),
        Example("the rank, where each process has its own GPU", _masked(1, "2", job="17", SLURM_LOCALID="2")),
        Example("the rank, and more ranks than GPUs", _masked(4, "5", LOCAL_RANK="5", LOCAL_WORLD_SIZE="8")),
        Example("the UUID of another machine's GPU", _masked(2, "GPU-99999999-0000-4000-8000-000000000000")),
        Example("one of two", _masked(2, "1"), fires=False),
        Example("not set", Evidence(example_with_gpus(2)), fires=False),
        Example(
            "no GPU to hide",
            Evidence(example_with_gpus(0, environment=EnvironmentFacts({MASK: "-1"}))),
            fires=False,
        ),
        Example("set by Slurm", _masked(2, OF_SLURM, job="17"), fires=False),
    ),
    "slurm_gave_no_gpu": (
        Example("NoDevFiles", _masked(2, OF_SLURM, job="17")),
        Example("empty", _masked(2, "", job="17")),
        Example("a step of a job with GPUs", _masked(2, OF_SLURM, job="17", SLURM_JOB_GPUS="0,1")),
        Example("in a log", _unmasked(2, "ValueError: invalid literal for int() with base 10: 'NoDevFiles'")),
        Example("devices kept from the job", _kept()),
        Example("devices, and NVML says why not", _kept("Driver Not Loaded"), fires=False),
        Example("kept, but the job has GPUs", _kept(SLURM_JOB_GPUS="0"), fires=False),
        Example("no Slurm job", _masked(2, OF_SLURM), fires=False),
        Example("given one", _masked(2, "1", job="17", SLURM_JOB_GPUS="1"), fires=False),
        Example("a user's own empty mask", _masked(2, "", job="17", SLURM_JOB_GPUS="0,1"), fires=False),
        Example("a whole node", _masked(2, "0,1", job="17"), fires=False),
    ),
    "mask_set_too_late": (
        Example("said in the log", _unmasked(2, "CUDA_VISIBLE_DEVICES=1", *_created(0, 1))),
        Example("as Python writes it", _unmasked(2, "os.environ['CUDA_VISIBLE_DEVICES'] = '-1'", *_created(0))),
        Example("in a dictionary", _unmasked(2, "{'CUDA_VISIBLE_DEVICES': '1', 'lr': 0.1}", *_created(0, 1))),
        Example("empty", _unmasked(2, "CUDA_VISIBLE_DEVICES=''", *_created(0, 1))),
        Example("in the environment", _masked(2, "1", *_created(0, 1))),
        Example("it had effect", _unmasked(2, "CUDA_VISIBLE_DEVICES=1", *_created(1)), fires=False),
        Example("two were meant", _unmasked(2, "CUDA_VISIBLE_DEVICES: 1,0", *_created(1, 0)), fires=False),
        Example("no mask", _unmasked(2, *_created(0, 1)), fires=False),
        Example("no value", _unmasked(2, "CUDA_VISIBLE_DEVICES: None", *_created(0, 1)), fires=False),
        Example("a list", _unmasked(2, "CUDA_VISIBLE_DEVICES: [0,1]", *_created(0, 1)), fires=False),
        Example("no device created", _unmasked(2, "CUDA_VISIBLE_DEVICES=1"), fires=False),
    ),
    "gpus_renumbered": (
        Example("an index too high", _masked(4, "2,3", _INVALID)),
        Example("the same, older", _masked(4, "2,3", _INVALID.replace("Device", "GPU"))),
        Example("no number", _unmasked(2, "Could not parse entry in 'visible_device_list': 'GPU-0'.")),
        Example("placement", _unmasked(2, _UNSATISFIED)),
        Example("a number that there is", _unmasked(6, _UNSATISFIED), fires=False),
        Example("in a function", _unmasked(2, "Unable to find any devices for spec /device:GPU:7 [Op:f]")),
        Example("no GPU at all", Evidence(example(), lines=(_UNSATISFIED,)), fires=False),
        Example(
            "no GPU at all, in a function",
            Evidence(example(), lines=("Unable to find any devices for spec /device:GPU:0 [Op:f]",)),
            fires=False,
        ),
        Example("nothing in the log", _masked(4, "2,3", "Epoch 1/10"), fires=False),
    ),
    "local_rank_beyond_gpus": (
        Example("more processes than GPUs", _unmasked(2, OMPI_COMM_WORLD_LOCAL_RANK="2")),
        Example("the log shows it", _masked(4, "3", _RANK_LINE, _OUT_OF_RANGE, SLURM_LOCALID="3")),
        Example("an index", _unmasked(2, LOCAL_RANK="1"), fires=False),
        Example("a GPU for each process", _masked(4, "3", LOCAL_RANK="3"), fires=False),
        Example("tasks of Slurm", _unmasked(2, SLURM_LOCALID="5"), fires=False),
        Example("another list", _masked(4, "3", _OUT_OF_RANGE, SLURM_LOCALID="3"), fires=False),
        Example("the line alone", _masked(4, "3", _RANK_LINE, SLURM_LOCALID="3"), fires=False),
        Example("no GPU", Evidence(example(environment=EnvironmentFacts({"LOCAL_RANK": "1"}))), fires=False),
    ),
    "mig_without_instance": (
        Example("none created", _mig(0)),
        Example("beside a whole one", _mig(0, -1)),
        Example("two instances", _mig(2), fires=False),
        Example("not in MIG mode", _mig(-1), fires=False),
    ),
    "one_mig_instance_per_process": (
        Example("two in the mask", _mig(2, CUDA_VISIBLE_DEVICES="MIG-00,MIG-01")),
        Example("two in the container", _mig(2, NVIDIA_VISIBLE_DEVICES="MIG-00,MIG-01")),
        Example("one of two", _mig(2, CUDA_VISIBLE_DEVICES="MIG-01"), fires=False),
        Example("two GPUs with instances", _mig(1, 1)),
        Example("not chosen", _mig(2), fires=False),
        Example("two GPUs", _masked(2, f"{example_gpu(0).uuid},{example_gpu(1).uuid}"), fires=False),
        Example("beside a whole one", _mig(1, 1, -1), fires=False),
    ),
    "mig_beside_whole_gpus": (
        Example("a GPU with instances first", _mig(2, -1)),
        Example("a whole one first", _mig(-1, 2)),
        Example("both in the mask", _mig(2, -1, CUDA_VISIBLE_DEVICES="1,MIG-01")),
        Example("the whole one chosen", _mig(2, -1, CUDA_VISIBLE_DEVICES="1"), fires=False),
        Example("an instance chosen", _mig(2, -1, CUDA_VISIBLE_DEVICES="MIG-01"), fires=False),
        Example("all in MIG mode", _mig(2, 1), fires=False),
        Example("none in MIG mode", _mig(-1, -1), fires=False),
    ),
}
