"""Each GPU of a machine is accounted for: what became of it, and by what."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from conftest import Gpudiag
from examples.facts import example_gpu, example_with_gpus
from gpudiag.cause import TRACE, Evidence
from gpudiag.fix import run
from gpudiag.model import codec
from gpudiag.model.diagnosis import Confidence, Diagnosis, RootCause, Stage, Step, StepStatus
from gpudiag.model.facts import (
    ContainerFacts,
    DeviceNodeFacts,
    EnvironmentFacts,
    Facts,
    GpuProcess,
    NvmlDevice,
    NvmlFacts,
    Unknown,
)
from gpudiag.model.fate import Fate, GpuAccount
from gpudiag.model.report import Judged, Row, Skipped
from gpudiag.model.visibility import gpus_in_scope
from gpudiag.probes.discovery import trace
from gpudiag.report import accounts
from gpudiag.run.accounts import account
from reports import passed, report

FIRST, SECOND = "0000:01:00.0", "0000:02:00.0"


def facts(count: int = 2, mask: str | None = None, **families: Any) -> Facts:
    variables = {} if mask is None else {"CUDA_VISIBLE_DEVICES": mask}
    return example_with_gpus(count, environment=EnvironmentFacts(variables), **families)


def second(**fields: Any) -> Facts:
    """Return the facts of two GPUs; the second is as ``fields`` say."""
    devices: tuple[NvmlDevice, ...] = (example_gpu(0), replace(example_gpu(1), **fields))
    return facts(nvml=NvmlFacts(None, "535.104.05", "12.2", devices))


def bus(counted: int, *pci: str, error: str | None = None, **nodes: Any) -> Facts:
    """Return the facts of a machine on whose bus are the GPUs ``pci``, and of which NVML describes the first."""
    known = facts(counted)
    devices = known.nvml_devices
    return replace(
        known,
        nvml=NvmlFacts(error, "535.104.05", "12.2", devices),
        device_nodes=replace(known.device_nodes, pci_gpus=pci, **nodes),
    )


def told(known: Facts, *rows: Row, diagnosis: Diagnosis | None = None) -> dict[str, tuple[str, str]]:
    return {gpu.pci_bus_id: (gpu.fate.value, gpu.why) for gpu in found(known, *rows, diagnosis=diagnosis)}


def found(known: Facts, *rows: Row, diagnosis: Diagnosis | None = None) -> tuple[GpuAccount, ...]:
    return account(Evidence(known, gpus_in_scope(known), rows), diagnosis or Diagnosis())


def listing(*lines: str) -> Row:
    reading = trace.read_log(tuple(f"2026-01-31 12:00:00.000001: {line}" for line in lines), 1, None)
    return Row(TRACE, (), passed(), 0.1, reading=reading)


def verified(*pci: str) -> Row:
    return Row("memory.growth", (), Judged(verified=pci), 0.1)


@pytest.mark.parametrize(
    ("mask", "why"),
    [
        ("0", "by CUDA_VISIBLE_DEVICES='0'"),
        ("0,7,1", "by CUDA_VISIBLE_DEVICES='0,7,1': its list ends at '7', which names no GPU here"),
        ("0,0", "by CUDA_VISIBLE_DEVICES='0,0': it names 0 twice, which hides every GPU"),
        ("", "by CUDA_VISIBLE_DEVICES=''"),
    ],
)
def test_hidden_by_the_mask(mask: str, why: str) -> None:
    assert told(facts(mask=mask))[SECOND] == ("hidden", why)


def test_the_file_that_sets_the_mask_is_named() -> None:
    environment = EnvironmentFacts({"CUDA_VISIBLE_DEVICES": "0"}, {"CUDA_VISIBLE_DEVICES": "/x/sitecustomize.py"})
    known = replace(facts(), environment=environment)
    assert told(known)[SECOND] == ("hidden", "by CUDA_VISIBLE_DEVICES='0', which /x/sitecustomize.py sets")


@pytest.mark.parametrize(
    ("fields", "fate", "why"),
    [
        ({"compute_mode": "prohibited"}, "refused", "by the driver: compute mode prohibited"),
        ({"mig_mode": "enabled"}, "refused", "by the driver: MIG mode is on, and there is no instance"),
        (
            {"compute_mode": "exclusive_process", "processes": (GpuProcess(7, 1),)},
            "refused",
            "by the driver: compute mode exclusive_process, and process 7 uses it",
        ),
        ({"compute_mode": "exclusive_process"}, "not verified", "no probe ran a kernel on it"),
        ({"compute_capability": "3.7"}, "without kernels", "this TensorFlow has no code for compute capability 3.7"),
        ({"compute_capability": "12.0"}, "not verified", "no probe ran a kernel on it"),
    ],
)
def test_in_scope_and_not_usable(fields: dict[str, Any], fate: str, why: str) -> None:
    assert told(second(**fields), verified(FIRST)) == {
        FIRST: ("used", "kernel verified by memory.growth"),
        SECOND: (fate, why),
    }


def test_left_out_by_tensorflow_in_its_own_words() -> None:
    said = (
        "I tensorflow/core/common_runtime/gpu/gpu_device.cc:2432] Ignoring visible gpu device (device: 1, name: x, "
        f"pci bus id: {SECOND}, compute capability: 7.5) with core count: 8. The minimum required count is 40. You can "
        "adjust this requirement with the env var TF_MIN_GPU_MULTIPROCESSOR_COUNT."
    )
    assert told(facts(), listing(said))[SECOND] == ("refused", "by TensorFlow: 8 multiprocessors, it asks for 40")


def test_a_kernel_that_was_verified_says_more_than_a_mode() -> None:
    assert told(second(compute_mode="prohibited"), verified(SECOND))[SECOND][0] == "used"


def test_why_a_gpu_was_not_verified() -> None:
    known = facts()
    uuid = gpus_in_scope(known)[1].uuid
    skipped = Row("memory.growth", (uuid,), Skipped("GPU 1 is used by process 7"), 0.0)
    assert told(known, skipped)[SECOND] == ("not verified", "skipped: GPU 1 is used by process 7")
    cause = RootCause("a", Stage.DRIVER, Confidence.LIKELY, "the driver is old", (), (run("do"),), "")
    diagnosis = Diagnosis((Step(Stage.DRIVER, StepStatus.FAILED),), (cause,))
    assert told(known, diagnosis=diagnosis)[SECOND] == ("not verified", "the driver is old")


@pytest.mark.parametrize(
    ("known", "fate", "why"),
    [
        (bus(1, FIRST, SECOND, bound={SECOND: "vfio-pci"}), "held", "by the kernel driver vfio-pci"),
        (bus(1, FIRST, SECOND, bound={SECOND: "nouveau"}), "held", "by the kernel driver nouveau"),
        (bus(1, FIRST, SECOND), "lost", "NVML does not count it: sudo dmesg | grep -i -e nvrm -e xid"),
        (bus(1, FIRST, SECOND, error="GPU 1: GPU is lost"), "lost", "NVML says: GPU is lost"),
        (
            replace(bus(1, FIRST, SECOND), container=ContainerFacts("docker", (), False, None)),
            "hidden",
            "by the container (docker)",
        ),
        (
            replace(
                bus(1, FIRST, SECOND),
                container=ContainerFacts("docker", (), False, None),
                environment=EnvironmentFacts({"NVIDIA_VISIBLE_DEVICES": "0"}),
            ),
            "hidden",
            "by the container (docker): NVIDIA_VISIBLE_DEVICES='0'",
        ),
        (
            replace(bus(1, FIRST, SECOND), container=ContainerFacts(None, (), False, "17")),
            "hidden",
            "by Slurm: job 17 was not given it",
        ),
        (replace(bus(0, SECOND), nvml=Unknown("no answer within 15 s")), "not known", "no answer within 15 s"),
        (
            bus(0, SECOND, error="Driver/library version mismatch"),
            "not known",
            "NVML says: Driver/library version mismatch",
        ),
    ],
)
def test_on_the_bus_and_not_described_by_nvml(known: Facts, fate: str, why: str) -> None:
    assert told(known)[SECOND] == (fate, why)


def test_a_lost_gpu_among_several_is_counted_once() -> None:
    known = bus(1, FIRST, SECOND, "0000:03:00.0", error="GPU 1: GPU is lost")
    fates = [gpu.fate for gpu in found(known)]
    assert fates == [Fate.NOT_VERIFIED, Fate.LOST, Fate.LOST]
    assert [gpu.nvml for gpu in found(known)] == [0, None, 1]


def test_a_machine_without_the_kernel_module() -> None:
    known = bus(0, SECOND)
    driver = known.driver
    assert not isinstance(driver, Unknown)
    assert told(replace(known, driver=replace(driver, kernel_module=None)))[SECOND] == (
        "lost",
        "NVIDIA's kernel module is not loaded",
    )


def test_gpus_of_other_makers_are_named_and_not_counted() -> None:
    known = bus(1, FIRST, other_gpus={"0000:00:02.0": "Intel"})
    *_, other = found(known, verified(FIRST))
    assert (other.fate, other.maker, other.pci_bus_id) == (Fate.OTHER_MAKER, "Intel", "0000:00:02.0")
    made = replace(report(gpus=gpus_in_scope(known), facts=known), accounts=found(known, verified(FIRST)))
    assert accounts.summary(made) == "1 of 1 GPU verified"
    assert list(accounts.of_each(made)) == [
        ("GPU", "Intel, PCI 0000:00:02.0: of another maker: a TensorFlow for CUDA does not use it")
    ]


def test_nothing_is_known_of_the_bus() -> None:
    known = replace(facts(), device_nodes=Unknown("no answer"))
    assert [gpu.on_bus for gpu in found(known)] == [False, False]
    assert found(replace(known, nvml=Unknown("no answer"))) == ()
    assert found(replace(facts(0), device_nodes=DeviceNodeFacts((), ()))) == ()


def test_the_summary_counts_by_what() -> None:
    known = facts(4, mask="0,1")
    made = replace(report(gpus=gpus_in_scope(known), facts=known), accounts=found(known, verified(FIRST, SECOND)))
    assert accounts.summary(made) == "2 of 4 GPUs verified; 2 hidden by CUDA_VISIBLE_DEVICES='0,1'"
    assert list(accounts.of_each(made)) == [
        (
            "GPU 2,3",
            "NVIDIA A100-SXM4-40GB, PCI 0000:03:00.0 0000:04:00.0: hidden by CUDA_VISIBLE_DEVICES='0,1'",
        )
    ]
    assert accounts.summary(report()) == ""


def test_a_pass_says_how_many_of_how_many(gpudiag: Gpudiag, tmp_path: Path) -> None:
    machine = """
        [[gpu]]
        count = 3
        [files]
        "/sys/bus/pci/devices/0000:07:00.0/vendor" = "0x10de"
        "/sys/bus/pci/devices/0000:07:00.0/class" = "0x030200"
        "/sys/bus/pci/devices/0000:07:00.0/uevent" = "DRIVER=vfio-pci"
        "/sys/bus/pci/devices/0000:00:02.0/vendor" = "0x1002"
        "/sys/bus/pci/devices/0000:00:02.0/class" = "0x030000"
    """
    arguments = ("check", "discovery", *gpudiag.simulated(machine), "-o", "a.json", "-o", "a.xml", "-o", "a.md")
    done = gpudiag(*arguments, CUDA_VISIBLE_DEVICES="2,0")
    assert done.returncode == 0, done.stdout + done.stderr
    counted = "2 of 4 GPUs verified; 1 hidden by CUDA_VISIBLE_DEVICES='2,0'; 1 held by the kernel driver vfio-pci"
    assert "2 of 4 GPUs verified" in done.stdout.splitlines()[-1]
    assert "hidden by CUDA_VISIBLE_DEVICES='2,0'" in done.stdout
    assert all(counted in " ".join((tmp_path / name).read_text().split()) for name in ("a.xml", "a.md"))
    saved = codec.load(tmp_path / "a.json").accounts
    assert saved is not None
    assert [(gpu.pci_bus_id, gpu.fate.value, gpu.nvml, gpu.cuda, gpu.tensorflow) for gpu in saved] == [
        ("0000:01:00.0", "used", 0, 1, "GPU:1"),
        ("0000:02:00.0", "hidden", 1, None, ""),
        ("0000:03:00.0", "used", 2, 0, "GPU:0"),
        ("0000:07:00.0", "held", None, None, ""),
        ("0000:00:02.0", "of another maker", None, None, ""),
    ]
