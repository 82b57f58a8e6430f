"""GPUs that are there and hidden, or numbered in another way than was thought: masks, Slurm, MIG."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from gpudiag.diagnosis.rule import Evidence, Match, Rule, RuleCase
from gpudiag.hostfacts import (
    ContainerFacts,
    EnvironmentFacts,
    Facts,
    NvmlDevice,
    NvmlFacts,
    Unknown,
    example,
    example_gpu,
    example_with_gpus,
)
from gpudiag.knowledge.log import (
    DEVICE_CREATED,
    DEVICE_NOT_SATISFIED,
    INDEX_NOT_VISIBLE,
    LOCAL_RANK,
    MASK_PRINTED,
    NO_DEVICE_FOR_SPEC,
    NO_SUCH_ELEMENT,
    SLURM_HIDES,
)
from gpudiag.model import Stage, Sure
from gpudiag.scope import apply_mask, gpus_in_scope, index_is_ambiguous, mask_in_force

MASK = "CUDA_VISIBLE_DEVICES"
OF_SLURM = "NoDevFiles"
"""What Slurm writes into the mask of a job step without GPUs."""

_SLURM_GPUS = ("SLURM_STEP_GPUS", "SLURM_JOB_GPUS", "SLURM_GPUS_ON_NODE", "SLURM_GPUS", "SLURM_GPUS_PER_NODE")
_LOCAL_RANKS = (
    "LOCAL_RANK",
    "HOROVOD_LOCAL_RANK",
    "OMPI_COMM_WORLD_LOCAL_RANK",
    "MV2_COMM_WORLD_LOCAL_RANK",
    "MPI_LOCALRANKID",
    "SLURM_LOCALID",
)


def _slurm_job(facts: Facts) -> str | None:
    return None if isinstance(facts.container, Unknown) else facts.container.slurm_job


def _hidden_by_slurm(facts: Facts) -> bool:
    """Return True where Slurm gave this step no GPU, so that unsetting the mask would take what is others'."""
    given = any(facts.variables.get(name) for name in _SLURM_GPUS)
    value = facts.variables.get(MASK)
    return _slurm_job(facts) is not None and (value == OF_SLURM or (value == "" and not given))


def _mask_hides_all(evidence: Evidence) -> Iterator[Match]:
    value = evidence.facts.variables.get(MASK)
    devices = evidence.facts.nvml_devices
    if value is None or not devices or _hidden_by_slurm(evidence.facts):
        return
    mask = apply_mask(value, devices)
    if mask.devices:
        return
    twice = [f"{mask.twice} names a GPU for the second time: CUDA shows none then"] if mask.twice else []
    valid = f"0 to {len(devices) - 1}" if len(devices) > 1 else "0"
    yield Match(
        evidence=(f"{MASK}={value!r}", *twice, f"NVML reports {len(devices)} GPU(s); valid indices: {valid}"),
        figures={"value": value, "gpus": len(devices), "uuid": devices[0].uuid},
        change={MASK: None},
    )


def _kept_from_the_job(evidence: Evidence) -> bool:
    """Return True where the node has GPUs, and control groups keep them from this job: NVML works, and counts none."""
    nvml, nodes = evidence.facts.nvml, evidence.facts.device_nodes
    if isinstance(nvml, Unknown) or isinstance(nodes, Unknown) or (evidence.trace and evidence.trace.listed):
        return False
    return bool(nodes.pci_gpus) and not nvml.devices and nvml.error in (None, "Insufficient Permissions")


def _slurm_gave_none(evidence: Evidence) -> Iterator[Match]:
    facts = evidence.facts
    job = _slurm_job(facts)
    said = evidence.program.first(SLURM_HIDES)
    in_log = said.line if said is not None else None
    of_job = next((f"{name}={facts.variables[name]}" for name in _SLURM_GPUS if facts.variables.get(name)), None)
    masked = _hidden_by_slurm(facts)
    kept = job is not None and of_job is None and _kept_from_the_job(evidence)
    if not (masked or kept or in_log):
        return
    seen = [
        f"Slurm job {job}, {of_job or 'without SLURM_JOB_GPUS and SLURM_STEP_GPUS'}" if job else None,
        f"{MASK}={facts.variables[MASK]!r}" if masked else None,
        "the node has GPUs, and NVML shows none of them to this job" if kept and not masked else None,
        f"log: {in_log.strip()}" if in_log else None,
    ]
    yield Match(
        evidence=tuple(filter(None, seen)),
        sure=Sure.PROVED if masked else Sure.LIKELY,
        figures={"what": "job step" if of_job else "job", "job": f" {job}" if job else ""},
    )


def _mask_set_too_late(evidence: Evidence) -> Iterator[Match]:
    facts = evidence.facts
    used = list(dict.fromkeys(event["pci"].lower() for event in evidence.program.all(DEVICE_CREATED)))
    told = [event["value"] for event in evidence.program.all(MASK_PRINTED)]
    value = told[-1] if told else facts.variables.get(MASK)
    if value is None or not used:
        return
    meant = msgspec.structs.replace(facts, environment=EnvironmentFacts({**facts.variables, MASK: value}))
    indices = {device.pci_bus_id: device.index for device in facts.nvml_devices}
    visible = [gpu.pci_bus_id for gpu in gpus_in_scope(meant)]
    beyond = [pci for pci in used if pci in indices and pci not in visible]
    if beyond and not index_is_ambiguous(meant):
        yield Match(
            evidence=(
                f"{MASK}={value!r}, {'as the log says' if told else 'in the environment'}",
                f"the log has devices on GPU {', '.join(str(indices[pci]) for pci in used if pci in indices)}",
            ),
            sure=Sure.LIKELY if told else Sure.POSSIBLE,
            figures={"value": value, "beyond": ", ".join(str(indices[pci]) for pci in beyond)},
        )


def _renumbered(evidence: Evidence) -> Iterator[Match]:
    gpus = len(gpus_in_scope(evidence.facts))
    for asked in evidence.program.all(INDEX_NOT_VISIBLE, DEVICE_NOT_SATISFIED, NO_DEVICE_FOR_SPEC):
        number = asked["number"]
        if not number or 0 < gpus <= int(number):  # where no GPU is seen, that is the cause, and not the number
            yield Match(
                evidence=(f"log: {asked.text}", f"{MASK}={evidence.facts.variables.get(MASK, '(not set)')}"),
                figures={"asked": number or asked["asked"], "table": _table(evidence.facts)},
            )
            return


def _table(facts: Facts) -> str:
    """Return which GPU each of TensorFlow's names is."""
    names = [f"/GPU:{number} is GPU {gpu.index}" for number, gpu in enumerate(gpus_in_scope(facts))]
    return f"{', '.join(names)} of nvidia-smi" if names else "no GPU is visible here"


def _local_rank(evidence: Evidence) -> Iterator[Match]:
    facts = evidence.facts
    gpus = len(gpus_in_scope(facts))
    name, rank = next(
        ((name, int(value)) for name in _LOCAL_RANKS if (value := facts.variables.get(name, "")).isdecimal()), ("", 0)
    )
    fell = evidence.program.all(LOCAL_RANK, NO_SUCH_ELEMENT)
    failed = len({event.message for event in fell}) == 2
    # A launcher that gives each process a GPU of its own masks it: then one is visible, and the rank is no index.
    own = gpus == 1 and MASK in facts.variables
    counted = gpus and rank >= gpus and not own and name != "SLURM_LOCALID"  # Slurm counts tasks of every kind
    if counted or (failed and gpus):
        yield Match(
            evidence=tuple(
                filter(
                    None,
                    [
                        f"{name}={rank}" if name else None,
                        f"{gpus} GPU(s) visible, {MASK}={facts.variables.get(MASK, '(not set)')}",
                        f"log: {fell[-1].line.strip()}" if failed else None,
                    ],
                )
            ),
            sure=Sure.LIKELY if failed else Sure.POSSIBLE,
            figures={"gpus": gpus, "rank": f"local rank {rank}" if name else "the local rank", "table": _table(facts)},
        )


def _in_scope(evidence: Evidence) -> list[NvmlDevice]:
    chosen = {gpu.pci_bus_id for gpu in gpus_in_scope(evidence.facts)}
    return [device for device in evidence.facts.nvml_devices if device.pci_bus_id in chosen]


def _mig_without_instance(evidence: Evidence) -> Iterator[Match]:
    devices = _in_scope(evidence)
    empty = [device for device in devices if device.mig_mode == "enabled" and not device.mig_uuids]
    listed = evidence.trace.listed if evidence.trace else len(devices) - len(empty)
    if empty and listed < len(devices):
        yield Match(
            evidence=tuple(f"GPU {device.index}: MIG mode enabled, no instance" for device in empty),
            figures={"empty": ", ".join(str(device.index) for device in empty), "gpu": empty[0].index},
            stage=Stage.DRIVER if not listed else Stage.DEVICE_FILTER,
        )


def _several_instances(evidence: Evidence) -> Iterator[Match]:
    variables = evidence.facts.variables
    masks = [
        [entry.strip() for entry in variables.get(name, "").split(",")] for name in (MASK, "NVIDIA_VISIBLE_DEVICES")
    ]
    masks = [[entry for entry in mask if entry.startswith("MIG-")] for mask in masks]
    whole, instances = _units(evidence)
    chosen = next((mask for mask in masks if len(mask) > 1), instances)
    listed = evidence.trace.listed if evidence.trace else 1
    if len(chosen) > 1 and listed == 1 and not whole:
        yield Match(
            evidence=(f"to be seen: {' '.join(chosen)}", f"TensorFlow lists {listed} GPU"),
            figures={"instances": len(chosen), "first": chosen[0]},
        )


def _whole_and_instances(evidence: Evidence) -> Iterator[Match]:
    whole, instances = _units(evidence)
    if whole and instances:
        value = evidence.facts.variables.get(MASK)
        seen = [f"TensorFlow lists {evidence.trace.listed} GPU(s)"] if evidence.trace else []
        devices = evidence.facts.nvml_devices
        modes = (f"GPU {device.index}: MIG {len(device.mig_uuids) or 'off'}" for device in devices)
        yield Match(
            evidence=(f"{MASK}={value!r}" if value is not None else f"{MASK} is not set", ", ".join(modes), *seen),
            figures={"whole": ",".join(whole), "instance": instances[0]},
        )


def _units(evidence: Evidence) -> tuple[list[str], list[str]]:
    """Return the whole GPUs and the MIG instances that the mask names, whether CUDA shows them together or not."""
    mask = mask_in_force(evidence.facts)
    named = (*mask.uuids, *mask.beside)
    return [uuid for uuid in named if uuid.startswith("GPU-")], [uuid for uuid in named if uuid.startswith("MIG-")]


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


_PROGRAMMING_GUIDE = "https://docs.nvidia.com/cuda/cuda-c-programming-guide/#cuda-environment-variables"
_INVALID = "'visible_device_list' listed an invalid Device id '7' but visible device count is 2"
_UNSATISFIED = "Could not satisfy device specification '/job:localhost/replica:0/task:0/device:GPU:5'."
_RANK_LINE = "    tf.config.set_visible_devices(gpus[hvd.local_rank()], 'GPU')"
_OUT_OF_RANGE = "IndexError: list index out of range"
_MIG_GUIDE = "https://docs.nvidia.com/datacenter/tesla/mig-user-guide/"

RULES = (
    Rule(
        id="mask_hides_all",
        stage=Stage.DRIVER,
        cause="CUDA_VISIBLE_DEVICES={value!r} hides every one of the {gpus} GPU(s) of this machine",
        why="""
        The CUDA driver, not TensorFlow, reads this variable, and ends the list at the first entry that names no GPU. An
        empty value, -1, an index that does not exist, a word: each leaves nothing, and cuInit then answers "no
        CUDA-capable device is detected", as if there were none. It is often left in a .env file, a notebook, a CI
        configuration, or set by a scheduler that gave the job no GPU.
        """,
        fix=("unset CUDA_VISIBLE_DEVICES", "export CUDA_VISIBLE_DEVICES={uuid}  # or: chooses one"),
        url=_PROGRAMMING_GUIDE,
        find=_mask_hides_all,
        cases=(
            RuleCase("-1", _masked(2, "-1")),
            RuleCase("empty", _masked(1, "")),
            RuleCase("an index too high", _masked(2, "5")),
            RuleCase("one of two", _masked(2, "1"), fires=False),
            RuleCase("not set", Evidence(example_with_gpus(2)), fires=False),
            RuleCase(
                "no GPU to hide",
                Evidence(example_with_gpus(0, environment=EnvironmentFacts({MASK: "-1"}))),
                fires=False,
            ),
            RuleCase("set by Slurm", _masked(2, OF_SLURM, job="17"), fires=False),
        ),
    ),
    Rule(
        id="slurm_gave_no_gpu",
        stage=Stage.DRIVER,
        cause="Slurm gave no GPU to this {what}{job}",
        why="""
        Slurm gives a job the GPUs that it asks for, and a step (srun) those that the step asks for. To the others it
        writes CUDA_VISIBLE_DEVICES=NoDevFiles, or an empty value, or keeps the devices from them by control groups.
        cuInit then answers "no CUDA-capable device is detected" on a node full of GPUs, and programs that parse the
        value fail with "invalid literal for int() with base 10: 'NoDevFiles'". Unsetting the variable would take a GPU
        that was given to another job.
        """,
        fix=(
            "sbatch --gres=gpu:1 ...   # or in the script: #SBATCH --gres=gpu:1",
            "srun --gres=gpu:1 ...   # a step whose job has GPUs may have to ask again",
            "scontrol show job $SLURM_JOB_ID | grep -i tres   # what the job was given",
        ),
        url="https://slurm.schedmd.com/gres.html",
        find=_slurm_gave_none,
        cases=(
            RuleCase("NoDevFiles", _masked(2, OF_SLURM, job="17")),
            RuleCase("empty", _masked(2, "", job="17")),
            RuleCase("a step of a job with GPUs", _masked(2, OF_SLURM, job="17", SLURM_JOB_GPUS="0,1")),
            RuleCase("in a log", _unmasked(2, "ValueError: invalid literal for int() with base 10: 'NoDevFiles'")),
            RuleCase("devices kept from the job", _kept()),
            RuleCase("devices, and NVML says why not", _kept("Driver Not Loaded"), fires=False),
            RuleCase("kept, but the job has GPUs", _kept(SLURM_JOB_GPUS="0"), fires=False),
            RuleCase("no Slurm job", _masked(2, OF_SLURM), fires=False),
            RuleCase("given one", _masked(2, "1", job="17", SLURM_JOB_GPUS="1"), fires=False),
            RuleCase("a user's own empty mask", _masked(2, "", job="17", SLURM_JOB_GPUS="0,1"), fires=False),
            RuleCase("a whole node", _masked(2, "0,1", job="17"), fires=False),
        ),
    ),
    Rule(
        id="mask_set_too_late",
        stage=Stage.CONFIGURATION,
        cause="the program uses GPU {beyond}, which CUDA_VISIBLE_DEVICES={value!r} was to hide: it was set too late",
        why="""
        The CUDA driver reads the variable once, when it is initialised (cuInit). An assignment to os.environ after that
        changes nothing, and nothing is said. "import tensorflow" does not initialise it yet; the first listing of
        devices or operation does, and so do other packages (torch, cupy, jax, DALI) as soon as they look for a GPU.
        """,
        fix=(
            "CUDA_VISIBLE_DEVICES={value} python program.py",
            "import os; os.environ['CUDA_VISIBLE_DEVICES'] = {value!r}  # or: first lines of the program",
            "# or after the import: tf.config.set_visible_devices(...), before any other call of TensorFlow",
        ),
        url=_PROGRAMMING_GUIDE,
        find=_mask_set_too_late,
        cases=(
            RuleCase("said in the log", _unmasked(2, "CUDA_VISIBLE_DEVICES=1", *_created(0, 1))),
            RuleCase("as Python writes it", _unmasked(2, "os.environ['CUDA_VISIBLE_DEVICES'] = '-1'", *_created(0))),
            RuleCase("in a dictionary", _unmasked(2, "{'CUDA_VISIBLE_DEVICES': '1', 'lr': 0.1}", *_created(0, 1))),
            RuleCase("empty", _unmasked(2, "CUDA_VISIBLE_DEVICES=''", *_created(0, 1))),
            RuleCase("in the environment", _masked(2, "1", *_created(0, 1))),
            RuleCase("it had effect", _unmasked(2, "CUDA_VISIBLE_DEVICES=1", *_created(1)), fires=False),
            RuleCase("two were meant", _unmasked(2, "CUDA_VISIBLE_DEVICES: 1,0", *_created(1, 0)), fires=False),
            RuleCase("no mask", _unmasked(2, *_created(0, 1)), fires=False),
            RuleCase("no value", _unmasked(2, "CUDA_VISIBLE_DEVICES: None", *_created(0, 1)), fires=False),
            RuleCase("a list", _unmasked(2, "CUDA_VISIBLE_DEVICES: [0,1]", *_created(0, 1)), fires=False),
            RuleCase("no device created", _unmasked(2, "CUDA_VISIBLE_DEVICES=1"), fires=False),
        ),
    ),
    Rule(
        id="gpus_renumbered",
        stage=Stage.CONFIGURATION,
        cause="the program asks for GPU {asked!r}, which is none of TensorFlow's numbers: {table}",
        why="""
        TensorFlow counts the GPUs that CUDA shows it, from 0 and in the order of CUDA_VISIBLE_DEVICES: with
        CUDA_VISIBLE_DEVICES=2,3 there are /GPU:0 and /GPU:1, and no /GPU:2. visible_device_list and /GPU:N take these
        numbers, no UUIDs and not those of nvidia-smi. Without soft placement a number too high is refused; with it, the
        operation runs on GPU:0, and it seems that the setting is ignored.
        """,
        fix=("# {table}", "# or by UUID, outside the program: CUDA_VISIBLE_DEVICES=GPU-...; then use /GPU:0"),
        url="https://www.tensorflow.org/guide/gpu",
        find=_renumbered,
        cases=(
            RuleCase("an index too high", _masked(4, "2,3", _INVALID)),
            RuleCase("the same, older", _masked(4, "2,3", _INVALID.replace("Device", "GPU"))),
            RuleCase("no number", _unmasked(2, "Could not parse entry in 'visible_device_list': 'GPU-0'.")),
            RuleCase("placement", _unmasked(2, _UNSATISFIED)),
            RuleCase("a number that there is", _unmasked(6, _UNSATISFIED), fires=False),
            RuleCase("in a function", _unmasked(2, "Unable to find any devices for spec /device:GPU:7 [Op:f]")),
            RuleCase("no GPU at all", Evidence(example(), lines=(_UNSATISFIED,)), fires=False),
            RuleCase(
                "no GPU at all, in a function",
                Evidence(example(), lines=("Unable to find any devices for spec /device:GPU:0 [Op:f]",)),
                fires=False,
            ),
            RuleCase("nothing in the log", _masked(4, "2,3", "Epoch 1/10"), fires=False),
        ),
    ),
    Rule(
        id="local_rank_beyond_gpus",
        stage=Stage.CONFIGURATION,
        cause="the program takes {rank} for the number of a GPU, and {gpus} GPU(s) are visible",
        why="""
        Horovod, torchrun and mpirun start several processes on a machine and number them: the local rank. Programs take
        it as the index of their GPU. Where more processes are started than GPUs are visible, or where the launcher
        already gave each process a GPU of its own, which is then GPU:0 for each of them, that index does not exist:
        "IndexError: list index out of range", or an invalid visible_device_list.
        """,
        fix=(
            "horovodrun -np {gpus} ...  # as many processes on each machine as GPUs are visible",
            "# where each process sees a GPU of its own: gpus[0] instead of gpus[hvd.local_rank()]",
            "# {table}",
        ),
        url="https://horovod.readthedocs.io/en/stable/tensorflow.html",
        find=_local_rank,
        cases=(
            RuleCase("more processes than GPUs", _unmasked(2, OMPI_COMM_WORLD_LOCAL_RANK="2")),
            RuleCase("the log shows it", _masked(4, "3", _RANK_LINE, _OUT_OF_RANGE, SLURM_LOCALID="3")),
            RuleCase("an index", _unmasked(2, LOCAL_RANK="1"), fires=False),
            RuleCase("a GPU for each process", _masked(4, "3", LOCAL_RANK="3"), fires=False),
            RuleCase("tasks of Slurm", _unmasked(2, SLURM_LOCALID="5"), fires=False),
            RuleCase("another list", _masked(4, "3", _OUT_OF_RANGE, SLURM_LOCALID="3"), fires=False),
            RuleCase("the line alone", _masked(4, "3", _RANK_LINE, SLURM_LOCALID="3"), fires=False),
            RuleCase("no GPU", Evidence(example(environment=EnvironmentFacts({"LOCAL_RANK": "1"}))), fires=False),
        ),
    ),
    Rule(
        id="mig_without_instance",
        stage=Stage.DRIVER,
        cause="MIG mode is on for GPU {empty}, and no instance was created there: CUDA shows nothing of it",
        why="""
        In MIG mode a GPU computes only through its instances. With the mode on and none created, nvidia-smi lists the
        GPU, and CUDA does not: cuInit answers "no CUDA-capable device is detected", or the GPU is lacking in
        TensorFlow's list. Instances are lost at each reboot, the mode is kept.
        """,
        fix=(
            "sudo nvidia-smi mig -i {gpu} -lgip   # which instances are possible",
            "sudo nvidia-smi mig -i {gpu} -cgi 9,9 -C   # create instances of that profile",
            "sudo nvidia-smi -i {gpu} -mig 0  # or: uses it whole",
        ),
        url=_MIG_GUIDE,
        find=_mig_without_instance,
        cases=(
            RuleCase("none created", _mig(0)),
            RuleCase("beside a whole one", _mig(0, -1)),
            RuleCase("two instances", _mig(2), fires=False),
            RuleCase("not in MIG mode", _mig(-1), fires=False),
        ),
    ),
    Rule(
        id="one_mig_instance_per_process",
        stage=Stage.CONFIGURATION,
        cause="{instances} MIG instances are given, and CUDA shows a process only one of them, {first}",
        why="""
        CUDA enumerates a single MIG instance in a process, however many CUDA_VISIBLE_DEVICES or the container names. So
        TensorFlow lists one GPU, the rest stays idle, and MirroredStrategy has one replica.
        """,
        fix=(
            "CUDA_VISIBLE_DEVICES={first} python program.py  # a process for each instance",
            "sudo nvidia-smi -mig 0  # or the whole GPU, for one program over all of the memory",
        ),
        url=_MIG_GUIDE,
        find=_several_instances,
        cases=(
            RuleCase("two in the mask", _mig(2, CUDA_VISIBLE_DEVICES="MIG-00,MIG-01")),
            RuleCase("two in the container", _mig(2, NVIDIA_VISIBLE_DEVICES="MIG-00,MIG-01")),
            RuleCase("one of two", _mig(2, CUDA_VISIBLE_DEVICES="MIG-01"), fires=False),
            RuleCase("two GPUs with instances", _mig(1, 1)),
            RuleCase("not chosen", _mig(2), fires=False),
            RuleCase("two GPUs", _masked(2, f"{example_gpu(0).uuid},{example_gpu(1).uuid}"), fires=False),
            RuleCase("beside a whole one", _mig(1, 1, -1), fires=False),
        ),
    ),
    Rule(
        id="mig_beside_whole_gpus",
        stage=Stage.CONFIGURATION,
        cause="some GPUs are in MIG mode and some are not: CUDA shows a process whole GPUs, or one MIG instance alone",
        why="""
        CUDA enumerates a single MIG instance, and no whole GPU beside it, whatever CUDA_VISIBLE_DEVICES names (MIG User
        Guide, CUDA Device Enumeration). So nvidia-smi shows more than TensorFlow lists, on a machine where nothing is
        broken. Which of them a list of both shows is not documented: name one kind.
        """,
        fix=(
            "export CUDA_VISIBLE_DEVICES={whole}   # whole GPUs",
            "export CUDA_VISIBLE_DEVICES={instance}   # or an instance; a process for each",
        ),
        url=_MIG_GUIDE,
        find=_whole_and_instances,
        cases=(
            RuleCase("a GPU with instances first", _mig(2, -1)),
            RuleCase("a whole one first", _mig(-1, 2)),
            RuleCase("both in the mask", _mig(2, -1, CUDA_VISIBLE_DEVICES="1,MIG-01")),
            RuleCase("the whole one chosen", _mig(2, -1, CUDA_VISIBLE_DEVICES="1"), fires=False),
            RuleCase("an instance chosen", _mig(2, -1, CUDA_VISIBLE_DEVICES="MIG-01"), fires=False),
            RuleCase("all in MIG mode", _mig(2, 1), fires=False),
            RuleCase("none in MIG mode", _mig(-1, -1), fires=False),
        ),
    ),
)
