"""Machines that nobody had foreseen are named in the head, and healthy ones that are odd are left alone."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from conftest import Gpudiag
from examples import Example, examples
from examples.facts import example_gpu
from examples.machines import DOCKER, example_facts
from examples.senses import (
    FULL,
    HELD,
    JOB,
    MPS,
    MPS_GONE,
    NO_GPU,
    SLURM,
    WORKS,
    Seen,
    bus,
    card,
    devices,
    driver,
    opened,
    variables,
    written,
)
from gpudiag.cause import Evidence
from gpudiag.causes.shared.holding import instead
from gpudiag.fix import Action, Kind
from gpudiag.model import codec
from gpudiag.model.facts import (
    ContainerFacts,
    EnvironmentFacts,
    Facts,
    GpuProcess,
    GpuState,
    NvmlFacts,
    PathAttempt,
    ProcessIdentity,
    TensorflowFacts,
    TriedFacts,
    Unknown,
)
from gpudiag.model.report import Judged, Row
from gpudiag.probe import Kernel
from gpudiag.probes.discovery import first_op
from gpudiag.run import rejudging
from gpudiag.run.diagnosis import diagnose
from reports import fix_line

MET = [
    pytest.param(cause, example, id=f"{cause}: {example.name}")
    for cause, several in examples().items()
    for example in several
    if example.fires and example.name.startswith("as in http")
]


@pytest.mark.parametrize(("cause", "machine"), MET)
def test_the_cause_is_in_the_head_alone(cause: str, machine: Example) -> None:
    """With the causes that were known before: none of them comes first, and none says another thing beside it."""
    found = diagnose(machine.evidence)
    assert [root_cause.cause_id for root_cause in found.causes if root_cause.cause_id != FOLLOWS.get(cause)][:1] == [
        cause
    ]
    assert found.failed == ()
    beside = {root_cause.cause_id for root_cause in (*found.causes, *found.folded)} - {cause}
    assert beside <= {"gpu_lost", FOLLOWS.get(cause)}, beside
    assert "gpu_lost" not in [root_cause.cause_id for root_cause in found.causes if root_cause.confidence == "possible"]


BUSY = "Failed to create context: CUDA_ERROR_DEVICE_UNAVAILABLE: CUDA-capable device(s) is/are busy or unavailable"
ROOMLESS = {
    "ENOSPC": written("temporary files", "/scratch", "ENOSPC", 0),
    "EDQUOT": written("temporary files", "/scratch", "EDQUOT"),
    "EFBIG": written("temporary files", "/scratch", "EFBIG"),
    "EROFS": written("temporary files", "/scratch", "EROFS"),
    "1 MiB left": written("temporary files", "/scratch", None, 1 << 20),
}


@pytest.mark.parametrize("words", [BUSY, "CUDA_ERROR_UNKNOWN: unknown error", "CUDA_ERROR_OPERATING_SYSTEM: OS call"])
@pytest.mark.parametrize("room", ROOMLESS)
def test_a_folder_without_room_comes_before_what_the_driver_may_lack(room: str, words: str) -> None:
    """Nobody is to reset a GPU or to reboot before there is room for temporary files."""
    found = diagnose(Seen(raised=words).on(tried=ROOMLESS[room]))
    assert found.causes[0].cause_id == "temporary_folder_not_writable"
    assert not any(action.kind.can_harm for cause in (*found.causes, *found.folded) for action in cause.fix)


def test_a_proved_cause_of_the_driver_comes_before_a_folder_without_room() -> None:
    prohibited = devices(replace(card(), compute_mode="prohibited"))
    found = diagnose(Seen(raised=BUSY).on(tried=ROOMLESS["ENOSPC"], nvml=prohibited))
    assert [cause.cause_id for cause in found.causes][:2] == [
        "compute_mode_prohibited",
        "temporary_folder_not_writable",
    ]


def test_they_are_enough() -> None:
    assert len(MET) >= 22
    assert len({cause.values[0] for cause in MET}) >= 21


FOLLOWS = {"cuda_cache_not_kept": "gpu_newer_than_wheel"}
"""What comes before a cause, because it follows from it."""

LAPTOP = card("NVIDIA GeForce RTX 4070 Laptop GPU", persistence=False, ecc=None, pcie_width=8, pcie_width_max=8)
IDLE = card("NVIDIA GeForce RTX 3090", pcie_generation=1, performance_state=8, slowed_by=("idle",), clock_mhz=210)
STUDIO = card(
    "NVIDIA GeForce RTX 4090", ecc=None, uncorrected_errors=None, power_limit_watts=250, power_default_watts=450
)
OLD = card("Tesla V100-SXM2-16GB", retired_pages=12, retirement_pending=False, remapped_rows=None)
BRIDGED = card("NVIDIA A100 80GB PCIe", nvlinks=(True,) * 12)
NO_BRIDGE = card("NVIDIA A100 80GB PCIe", nvlinks=(False,) * 12)
BOXED = card("NVIDIA GeForce RTX 3080", pcie_width=4, pcie_generation=3)
CONFIDENTIAL = {"confidential": True, "confidential_ready": True}
ALL = {
    "SLURM_JOB_GPUS": "0-3",
    "SLURM_STEP_GPUS": "0,1,2,3",
    "SLURM_GPUS_ON_NODE": "4",
    "CUDA_VISIBLE_DEVICES": "0,1,2,3",
}
SHARED = TriedFacts(
    opened=(PathAttempt("/dev/nvidia0"), PathAttempt("/dev/nvidia1", "EPERM"), PathAttempt("/dev/nvidiactl"))
)
STALE = TriedFacts(connected=(PathAttempt("/run/nvidia-persistenced/socket", "ECONNREFUSED"),))

ODD: dict[str, tuple[int, dict[str, Any]]] = {
    "a notebook without persistence, eight lanes by design": (1, {"nvml": devices(LAPTOP)}),
    "an idle card, its link and clocks lowered": (1, {"nvml": devices(IDLE)}),
    "no ECC, and less power by choice": (1, {"nvml": devices(STUDIO)}),
    "an old card that was repaired": (1, {"nvml": devices(OLD)}),
    "two cards with a bridge, one without": (3, {"nvml": devices(BRIDGED, BRIDGED, NO_BRIDGE)}),
    "a card in a box of its own": (1, {"nvml": devices(BOXED)}),
    "a vGPU with its licence": (1, {"nvml": devices(card("GRID A100-8C", virtualization="vgpu", licensed=True))}),
    "a vGPU whose driver says nothing of licences": (
        1,
        {"nvml": devices(card("GRID A100-8Q", virtualization="vgpu", licensed=None))},
    ),
    "confidential computing, ready": (1, {"nvml": devices(card("NVIDIA H100 PCIe"), **CONFIDENTIAL)}),
    "a fabric that was never set up, and is not needed": (
        1,
        {"nvml": devices(card("NVIDIA H100 NVL", fabric="not_started"))},
    ),
    "peer copies that the chipset does not support": (
        2,
        {"nvml": devices(STUDIO, STUDIO, peers={"0 1": "not supported"})},
    ),
    "a job of Slurm's with all GPUs": (4, {"container": JOB, "environment": variables(**SLURM, **ALL)}),
    "a job whose other GPUs are kept away by control groups": (
        1,
        {
            "container": JOB,
            "environment": variables(**SLURM, CUDA_VISIBLE_DEVICES="0", SLURM_JOB_GPUS="3"),
            "tried": SHARED,
        },
    ),
    "four ranks on a node with four GPUs": (
        4,
        {"environment": variables(OMPI_COMM_WORLD_LOCAL_SIZE="4", OMPI_COMM_WORLD_LOCAL_RANK="3")},
    ),
    "workers of xdist that share one GPU on purpose": (
        1,
        {
            "environment": variables(
                PYTEST_XDIST_WORKER="gw1", PYTEST_XDIST_WORKER_COUNT="4", TF_FORCE_GPU_ALLOW_GROWTH="true"
            )
        },
    ),
    "a worker of Dask, whose mask is rotated": (4, {"environment": variables(CUDA_VISIBLE_DEVICES="2,3,0,1")}),
    "a persistence daemon that was stopped": (1, {"tried": STALE}),
    "an MPS daemon that is gone, and that CUDA does without": (1, {"tried": MPS_GONE}),
    "a cache that cannot be written, and that nothing needs": (
        1,
        {"tried": written("CUDA cache", "/root/.nv/ComputeCache", "EROFS")},
    ),
    "a home on a read-only disk": (1, {"tried": written("home", "/home/someone", "EROFS")}),
    "Xid of a program's own fault, days ago": (
        1,
        {"driver": driver(kernel_log=("NVRM: Xid (PCI:0000:01:00): 31, pid=77, name=python, Ch 00000008",))},
    ),
    "a GPU asleep": (1, {"device_nodes": bus("0x2820", asleep=("0000:01:00.0",))}),
}


@pytest.mark.parametrize("name", ODD)
def test_odd_and_healthy(name: str) -> None:
    count, families = ODD[name]
    found = diagnose(WORKS.on(count, **families))
    assert [cause.cause for cause in (*found.causes, *found.folded)] == []
    assert found.failed == ()


def held(process: GpuProcess | None, container: ContainerFacts | None = None) -> Evidence:
    """Return the evidence of a machine whose only GPU is full."""
    taken = replace(card(), memory_used_bytes=39 << 30, processes=(process,) if process else ())
    families: dict[str, Any] = {} if container is None else {"container": container}
    return Seen(raised=FULL).on(nvml=devices(taken), **families)


def test_who_holds_the_memory_is_said() -> None:
    (cause,) = diagnose(held(HELD)).causes
    assert cause.cause_id == "memory_held_by_others"
    shown = "process 4711 (of someone, python train.py ..., since 2026-11-20 08:00 UTC, whose parent has ended) holds"
    assert any(shown in line for line in cause.evidence), cause.evidence
    assert fix_line(cause.fix[0]).startswith("kill 4711  #")


def test_a_process_that_somebody_waits_for_is_not_to_be_killed() -> None:
    assert HELD.holder is not None
    process = replace(HELD, holder=replace(HELD.holder, parent_gone=False))
    (cause,) = diagnose(held(process)).causes
    assert fix_line(cause.fix[0]).startswith("ps -o pid,user,etime,args -p 4711")


def test_another_driver_is_no_fix_where_a_card_of_the_same_model_works() -> None:
    log = "NVRM: GPU 0000:09:00.0: RmInitAdapter failed! (0x22:0x56:884)"
    four = example_facts(4).nvml_devices
    addresses = (*(device.pci_bus_id for device in four), "0000:09:00.0")

    def actions(model: str) -> tuple[Action, ...]:
        models = {**dict.fromkeys(addresses, "0x20b5"), "0000:09:00.0": model}
        nodes = replace(example_facts(4).device_nodes, pci_gpus=addresses, models=models)
        nvml = replace(devices(*four), devices=four)
        seen = WORKS.on(4, nvml=nvml, device_nodes=nodes, driver=driver(kernel_log=(log,)))
        return next(cause.fix for cause in diagnose(seen).causes if cause.cause_id == "gpu_refused_by_driver")

    beside_brothers, alone = actions("0x20b5"), actions("0x2204")
    assert beside_brothers[0].command == f"export CUDA_VISIBLE_DEVICES={','.join(gpu.uuid for gpu in four)}"
    assert beside_brothers[1].kind is Kind.REPLACE_HARDWARE
    assert not any(action.kind is Kind.CHANGE_DRIVER for action in beside_brothers)
    assert any(action.kind is Kind.CHANGE_DRIVER for action in alone)


KINDS: dict[str, tuple[dict[str, Any], str, str]] = {
    # what /proc shows, words of the cause, words of the first fix
    "a rank": (
        {"rank": "OMPI_COMM_WORLD_RANK=1", "run": "SLURM_JOB_ID"},
        "it is rank 1 of the same run",
        "each process",
    ),
    "a worker": (
        {"rank": "PYTEST_XDIST_WORKER=gw1", "run": "PYTEST_XDIST_TESTRUNUID"},
        "it is worker gw1 of the same pytest run",
        "each process",
    ),
    "a zombie": (
        {"state": "Z", "parent": 100, "parent_command": "python run.py"},
        "its parent, process 100 (python run.py), has not noticed",
        "kill 100",
    ),
    "gone": ({"state": "X"}, "it does not exist any more", "fuser -v"),
    "stuck": ({"state": "D"}, "it waits in the kernel", "dmesg"),
    "stopped": ({"state": "T"}, "it is stopped, as by Ctrl-Z", "fg"),
    "the program itself": ({"is_ancestor": True}, "it has started this program", "start this program before"),
    "a notebook": ({"command": "python -m ipykernel_launcher ..."}, "a notebook's kernel", "Shut Down Kernel"),
    "Spyder": ({"command": "python -m spyder_kernels.console ..."}, "a console of Spyder", "Restart kernel"),
    "a job of LSF": ({"same_job": "LSB_JOBID=17"}, "process of the same job (LSB_JOBID=17)", "each process"),
    "Ray": ({"command": "ray::BaseWorker", "same_job": "RAY_JOB_ID=1"}, "a worker of Ray, of the same", "num_gpus=1"),
    "another user": ({"user": "bob", "of_another_user": True}, "process 4711 (of bob, python train.py", "ask bob"),
    "a notebook of another user": (
        {"user": "bob", "of_another_user": True, "command": "python -m ipykernel_launcher ..."},
        "a notebook's kernel",
        "ask bob: in Jupyter: Kernel, Shut Down Kernel",
    ),
    "a desktop": ({"command": "gnome-shell"}, "it draws the screen", "another GPU"),
    "MPS": ({"command": "nvidia-cuda-mps-server"}, "the server of MPS", "nvidia-cuda-mps-control"),
}
HARMLESS = (
    "a job of LSF",
    "Ray",
    "another user",
    "a desktop",
    "a rank",
    "a worker",
    "gone",
    "stuck",
    "the program itself",
    "a notebook",
    "MPS",
)


@pytest.mark.parametrize("kind", KINDS)
def test_each_kind_of_holder_has_a_fix_of_its_own(kind: str) -> None:
    changes, words, fix = KINDS[kind]
    holder = ProcessIdentity(**{"user": "someone", "command": "python train.py", "parent_gone": False, **changes})
    (cause, *_) = diagnose(held(replace(HELD, holder=holder))).causes
    assert cause.cause_id == "memory_held_by_others"
    assert words in cause.cause
    assert fix in fix_line(cause.fix[0])
    if kind in HARMLESS:
        assert not any(action.kind.can_harm for action in cause.fix)


def test_no_gpu_of_another_job_or_rank_is_offered() -> None:
    """Of three GPUs the first is full; who is given which decides what is offered."""
    nvml = example_facts(3).nvml
    assert isinstance(nvml, NvmlFacts)
    full, second, third = nvml.devices
    machine = example_facts(3)
    assert not isinstance(machine.environment, Unknown)
    assert not isinstance(machine.system, Unknown)
    torque = ContainerFacts(None, (), kubernetes=False, slurm_job=None, job_gpus=(0, 2))

    def offered(facts: Facts, **variables: str) -> str:
        environment = replace(machine.environment, variables=variables)
        action = instead(replace(facts, environment=environment), (full,), "")
        return "" if action is None else action.command

    assert offered(machine) == f"export CUDA_VISIBLE_DEVICES={second.uuid},{third.uuid}"
    assert offered(replace(machine, container=torque)) == f"export CUDA_VISIBLE_DEVICES={third.uuid}"
    own = "os.environ['CUDA_VISIBLE_DEVICES'] = os.environ['OMPI_COMM_WORLD_LOCAL_RANK']"
    assert offered(machine, OMPI_COMM_WORLD_LOCAL_RANK="2") == own
    assert offered(machine, OMPI_COMM_WORLD_LOCAL_RANK="0") == ""
    assert offered(replace(machine, system=replace(machine.system, started_by=("LSF",)))) == ""


def test_a_desktop_is_not_to_be_ended() -> None:
    (cause,) = diagnose(held(replace(HELD, computes=False, holder=ProcessIdentity(command="Xorg ...")))).causes
    assert "it draws the screen" in cause.cause
    assert not any("end that" in action.note or action.kind.can_harm for action in cause.fix)


@pytest.mark.parametrize(
    ("process", "look"),
    [
        (None, "nvidia-smi  # on the host: a container cannot see which process holds the memory"),
        (GpuProcess(4711, 39 << 30), "ps -o pid,user,etime,args -p 4711  # on the host: its number is the host's"),
    ],
)
def test_who_is_outside_a_container_cannot_be_seen_inside(process: GpuProcess | None, look: str) -> None:
    (cause,) = diagnose(held(process, DOCKER)).causes
    assert fix_line(cause.fix[0]) == look
    assert not any("GROWTH" in action.command or action.kind.can_harm for action in cause.fix)


def of_user(**changes: object) -> GpuProcess:
    holder = ProcessIdentity(user="someone", command="python train.py", parent_gone=False)
    return replace(HELD, holder=replace(holder, **changes))


def test_a_process_of_ones_own_is_looked_at_and_ended_and_growth_needs_room() -> None:
    (cause,) = diagnose(held(of_user())).causes
    assert [action.command for action in cause.fix] == ["ps -o pid,user,etime,args -p 4711", "kill 4711"]
    (cause,) = diagnose(held(replace(HELD, holder=None))).causes
    assert not any(action.kind.can_harm for action in cause.fix)
    room = replace(card(), memory_used_bytes=30 << 30, processes=(of_user(),))
    (cause,) = diagnose(Seen(raised=FULL).on(nvml=devices(room))).causes
    assert "export TF_FORCE_GPU_ALLOW_GROWTH=true" in [action.command for action in cause.fix]


def test_in_a_job_another_users_process_is_left_to_it_and_another_node_taken() -> None:
    slurm = ContainerFacts(None, (), kubernetes=False, slurm_job="17")
    environment = EnvironmentFacts({"SLURM_JOB_ID": "17", "SLURMD_NODENAME": "gpu07"})
    full = replace(card(), memory_used_bytes=39 << 30, processes=(of_user(user="bob", of_another_user=True),))
    seen = Seen(raised=FULL).on(nvml=devices(full), container=slurm, environment=environment)
    (cause,) = diagnose(seen).causes
    first, second, *_ = cause.fix
    assert (first.command, first.note) == ("sbatch --exclude=gpu07 SCRIPT", "takes another node")
    assert second.note == "ask bob: end process 4711, which is not yours"
    full = replace(full, processes=(of_user(),))  # one's own is ended here
    (cause,) = diagnose(Seen(raised=FULL).on(nvml=devices(full), container=slurm, environment=environment)).causes
    assert not any("sbatch" in action.command for action in cause.fix)


@pytest.mark.parametrize(
    ("variables", "expression"),
    [
        ({"LOCAL_RANK": "1"}, "os.environ['LOCAL_RANK']"),
        (
            {"LOCAL_RANK": "1", "CUDA_VISIBLE_DEVICES": "0,2"},
            "os.environ['CUDA_VISIBLE_DEVICES'].split(',')[int(os.environ['LOCAL_RANK']) % 2]",
        ),
        ({"LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "6"}, "str(int(os.environ['LOCAL_RANK']) % 3)"),
    ],
)
def test_each_rank_gets_a_gpu_of_its_own_in_the_programs_words(variables: dict[str, str], expression: str) -> None:
    """Rank 0 is on every GPU: no other one is free, and each process has to choose its own."""
    rank = of_user(rank="RANK=0", run="SLURM_JOB_ID")
    three = example_facts(3).nvml_devices
    gpus = [replace(gpu, memory_used_bytes=gpu.memory_total_bytes - 1, processes=(rank,)) for gpu in three]
    seen = Seen(raised=FULL).on(3, nvml=devices(*gpus), environment=EnvironmentFacts(variables))
    (cause, *_) = diagnose(seen).causes
    assert cause.fix[0].command == f"os.environ['CUDA_VISIBLE_DEVICES'] = {expression}"
    assert not any(action.kind.can_harm for action in cause.fix)


def test_a_rank_of_a_run_that_is_not_this_one_is_not_ended() -> None:
    """The run ends with it, and whoever started this process may not know."""
    rank = of_user(rank="OMPI_COMM_WORLD_RANK=0")
    (gpu,) = example_facts(1).nvml_devices
    full = replace(gpu, memory_used_bytes=gpu.memory_total_bytes - 1, processes=(rank,))
    (cause, *_) = diagnose(Seen(raised=FULL).on(1, nvml=devices(full))).causes
    assert "a run of several (OMPI_COMM_WORLD_RANK=0)" in cause.cause
    assert not any(action.kind.can_harm for action in cause.fix)


def test_a_folder_of_mps_that_is_none_is_unset_and_not_removed() -> None:
    gone = TriedFacts(connected=(PathAttempt("0/control", "ENOENT"),))
    seen = Seen(cuinit=MPS).on(tried=gone, environment=variables(CUDA_MPS_PIPE_DIRECTORY="0"))
    (cause, *_) = diagnose(seen).causes
    assert (cause.cause_id, cause.fix[0].command) == ("mps_daemon_does_not_answer", "unset CUDA_MPS_PIPE_DIRECTORY")
    assert not any(action.kind is Kind.REMOVE for action in cause.fix)


def test_the_kernels_log_is_evidence_where_a_gpu_is_lost() -> None:
    xid = "NVRM: Xid (PCI:0000:01:00): 79, GPU has fallen off the bus."
    lost = NvmlFacts("GPU 0: GPU is lost", "535.104.05", "12.2", ())
    found = diagnose(NO_GPU.on(nvml=lost, driver=driver(kernel_log=(xid,))))
    assert found.causes[0].cause_id == "gpu_lost"
    assert f"kernel log: {xid}" in found.causes[0].evidence
    assert "Xid 79: the GPU does not answer any more: it has fallen off the PCIe bus" in found.causes[0].cause
    assert found.causes[0].fix[0].command == "sudo reboot"
    unreadable = diagnose(NO_GPU.on(nvml=lost))
    assert fix_line(unreadable.causes[0].fix[0]) == "sudo dmesg | grep -i xid  # shows which fault it is"


def test_a_refused_gpu_says_what_was_tried_and_what_the_kernel_says() -> None:
    log = "NVRM: GPU 0000:01:00.0: RmInitAdapter failed! (0x22:0x56:884)"
    nvml = NvmlFacts(None, "535.104.05", "12.2", ())
    found = diagnose(NO_GPU.on(nvml=nvml, driver=driver(kernel_log=(log,)), tried=opened(gpu="EIO")))
    assert found.causes[0].cause_id == "gpu_refused_by_driver"
    assert "open /dev/nvidia0: EIO (the driver answers with an error)" in found.causes[0].evidence
    assert f"kernel log: {log}" in found.causes[0].evidence


def test_facts_of_an_older_report_are_not_known() -> None:
    """A device without a state, a family that was not gathered: nothing is said of them."""
    assert example_gpu().state.is_working is False
    assert diagnose(Evidence(example_facts(2))).causes == ()


def test_what_is_seen_while_the_gpu_computes_comes_before_what_was_seen_before() -> None:
    """An idle GPU lowers its link; the probe that computes reads it again. Of a MIG instance little is known."""
    idle = WORKS.on(nvml=devices(replace(IDLE, state=replace(IDLE.state, remap_pending=True))))
    pci = idle.facts.nvml_devices[0].pci_bus_id

    def computing(**state: Any) -> set[str]:
        kernel = Kernel("GPU:0", pci, True)
        operation = first_op.RepeatedOperation(kernel, 0.1, 0.001)
        reading = first_op.Reading(0.1, 0.1, (operation,), (), 0.1, {pci: GpuState(**state)}, given=(pci,))
        row = Row("discovery.first_op", (), Judged(), 0.0, reading)
        evidence = Evidence(idle.facts, idle.gpus, (*idle.rows, row))
        return {cause.cause_id for cause in diagnose(evidence).causes}

    awake = {"performance_state": 2, "slowed_by": (), "pcie_generation_max": 4, "pcie_width_max": 16}
    assert computing(pcie_generation=4, pcie_width=16, **awake) == {"memory_repair_pending"}
    assert computing(pcie_generation=4, pcie_width=1, **awake) == {"memory_repair_pending", "narrow_pcie_link"}
    assert computing() == {"memory_repair_pending"}


def test_who_asks_for_a_package_out_of_range_is_said() -> None:
    evidence = examples()["package_out_of_range"][0].evidence
    installed = evidence.facts.tensorflow
    assert isinstance(installed, TensorflowFacts)
    pinned = replace(installed, required_by_others={"nvidia-cudnn-cu12": {"torch": "==8.9.2.26"}})
    found = diagnose(Evidence(replace(evidence.facts, tensorflow=pinned)))
    cause = next(root_cause for root_cause in found.causes if root_cause.cause_id == "package_out_of_range")
    assert "torch asks for nvidia-cudnn-cu12==8.9.2.26" in cause.evidence


MACHINES = {
    "device_files_kept_by_control_group": """
faults = ["cuinit=100", "nvml_init=999"]
[files]
"/.dockerenv" = ""
"/dev/nvidiactl" = "EPERM"
"/dev/nvidia-uvm" = "EPERM"
[[gpu]]
""",
    "confidential_gpus_not_ready": """
faults = ["cuinit=802"]
[[gpu]]
preset = "H100"
state = {confidential = 1, confidential_ready = 0}
""",
    "kernel_module_of_wrong_kind": """
faults = ["cuinit=100", "nvml_init=9"]
[files]
"/proc/driver/nvidia/version" = "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  560.35.05  Release Build"
"/sys/bus/pci/devices/0000:01:00.0/device" = "0x1db5"
"/dev/kmsg" = "3,340,5140950,-;NVRM: installed in this system is not supported by open\\n3,341,514,-;NVRM: nvidia.ko"
[[gpu]]
preset = "V100"
""",
    "narrow_pcie_link": """
[[gpu]]
state = {pcie_width = 1}
""",
}


@pytest.mark.usefixtures("no_child_left")
@pytest.mark.parametrize("cause", MACHINES)
def test_end_to_end(cause: str, gpudiag: Gpudiag) -> None:
    done = gpudiag("check", *gpudiag.simulated(MACHINES[cause]), "host", "discovery", "--format", "json")
    report = codec.decode(done.stdout, "standard output")
    assert [root_cause.cause_id for root_cause in report.diagnosis.causes] == [cause]
    assert report.diagnosis.failed == ()
    assert rejudging.rejudge(report).diagnosis == report.diagnosis
