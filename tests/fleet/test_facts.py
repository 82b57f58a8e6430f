"""The facts and figures of a report that a fleet keeps: what is there, under which name, and what is left out."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import get_type_hints

import msgspec
import pytest
from fleets import healthy
from msgspec.structs import replace

from examples.facts import example_gpu, example_with_gpus
from gpudiag.fleet.facts import (
    COUNTS,
    GENERATION,
    LEFT_OUT,
    PRINCIPAL,
    TEMPERATURE,
    facts_of,
    figures_of,
    kind_of,
    order,
    unread_in,
)
from gpudiag.fleet.summary import summarized
from gpudiag.model import codec
from gpudiag.model.facts import (
    ContainerFacts,
    Distribution,
    DriverFacts,
    EnvironmentFacts,
    Facts,
    GpuState,
    KernelFacts,
    Limit,
    ModuleSetting,
    NvmlFacts,
    SystemFacts,
    TensorflowFacts,
    Unknown,
)
from gpudiag.model.fleet import FactKind
from gpudiag.model.report import Report
from gpudiag.report.masking import mask
from reports import GPUS

ROOT = Path(__file__).resolve().parents[2]


def facts_with(**families: object) -> dict[str, str]:
    return facts_of(report_with(**families))


def report_with(**families: object) -> Report:
    return replace(healthy(), facts=example_with_gpus(2, **families))  # type: ignore[arg-type]


def system(**fields: object) -> SystemFacts:
    known = example_with_gpus().system
    assert isinstance(known, SystemFacts)
    return replace(known, **fields)


def gpus_with(*states: GpuState) -> NvmlFacts:
    devices = tuple(replace(example_gpu(index), state=state) for index, state in enumerate(states))
    return NvmlFacts(None, "535.104.05", "12.2", devices)


def test_what_people_ask_for_first_has_their_names() -> None:
    facts = facts_with(
        system=system(bios="2.4 08/01/2025", product="Maker Model 1"),
        container=ContainerFacts("docker", (), False, None, image="registry/train:7"),
        kernel=KernelFacts(video_bios={"0000:01:00.0": "92.00.45"}, firmware={"0000:01:00.0": "535.104.05"}),
        tensorflow=TensorflowFacts(None, (Distribution("tensorflow", "2.21.0", "/site"),), None, ()),
    )
    known = {
        "driver": "535.104.05",
        "kernel": "6.1.0",
        "BIOS": "2.4 08/01/2025",
        "model of the machine": "Maker Model 1",
        "GPU": "NVIDIA A100-SXM4-40GB",
        "GPUs": "2",
        "image of the container": "registry/train:7",
        "operating system": "Debian GNU/Linux 12 (bookworm)",
        "video BIOS": "92.00.45",
        "GSP firmware": "535.104.05",
        "package tensorflow": "2.21.0",
        "CUDA of the driver": "12.2",
        "Python": "3.11.7",
        "container": "docker",
    }
    assert {name: facts[name] for name in known} == known
    assert set(PRINCIPAL) - {"rack", "libcudnn.so.9"} <= set(facts)
    assert list(facts)[: len(known)] == [name for name in PRINCIPAL if name in known]


def test_two_machines_that_are_built_alike_have_the_same_facts() -> None:
    def machine(number: int) -> Report:
        chance = random.Random(number)
        host = f"node{number:03}"
        devices = tuple(
            replace(
                example_gpu(index),
                uuid=f"GPU-{chance.getrandbits(32):08x}-1111-2222-3333-{chance.getrandbits(48):012x}",
                pci_bus_id=f"0000:{chance.randrange(256):02x}:00.0",
                memory_used_bytes=chance.randrange(1 << 30),
            )
            for index in range(2)
        )
        variables = {
            "TMPDIR": f"/tmp/job.{number}",
            "SLURM_JOB_ID": str(number),
            "SLURM_PROCID": str(number),
            "SLURMD_NODENAME": host,
            "GPUDIAG_SIM_MACHINE": f"/tmp/gpudiag-sim-{number}",
            "OMPI_COMM_WORLD_LOCAL_RANK": str(number),
            "CUDA_VISIBLE_DEVICES": devices[0].uuid,
            "LD_LIBRARY_PATH": f"/scratch/{host}/lib:/tmp/gpudiag-sim-{number}abc/lib",
        }
        return report_with(
            system=system(hostname=f"{host}.cluster", memory_bytes=(500 << 30) + chance.randrange(1 << 29)),
            nvml=NvmlFacts(None, "535.104.05", "12.2", devices),
            environment=EnvironmentFacts(variables),
            container=ContainerFacts(
                None,
                (),
                False,
                str(number),
                control_group=f"/slurm/job_{number}",
                limits=(Limit("Max processes", 2_000_000 + number, "/proc/self/limits"),),
            ),
        )

    first, two = facts_of(machine(7)), facts_of(machine(912))
    assert first == two
    assert first["CUDA_VISIBLE_DEVICES"] == "<device>"
    assert first["LD_LIBRARY_PATH"] == "/scratch/<host>/lib:/tmp/<temporary>/lib"
    assert first["memory of the machine"] == "500 GiB"
    assert first["limit Max processes"] == "2,000,000"
    assert not {"host", "user", "TMPDIR", "SLURM_JOB_ID"} & set(first)


def test_signs_of_a_fault_are_no_facts() -> None:
    broken = DriverFacts("535.104.05", None, "libcuda.so.1: cannot open shared object file", None)
    facts = facts_with(driver=broken, nvml=NvmlFacts("Driver/library version mismatch", None, None, ()))
    assert not [value for value in facts.values() if "mismatch" in value or "cannot open" in value]
    assert "GPU" not in facts
    assert "GPUs" not in facts


def test_a_node_outside_of_a_container_says_so() -> None:
    assert facts_with()["container"] == "none"
    assert "container" not in facts_with(container=Unknown("timed out"))


def test_gpus_that_differ_show_both_values_and_what_is_unknown_none() -> None:
    facts = facts_with(nvml=gpus_with(GpuState(pcie_width=16, ecc=True), GpuState(pcie_width=8, ecc=None)))
    assert (facts["PCIe width"], facts["ECC"]) == ("16, 8", "yes")
    assert "persistence" not in facts


def test_keys_name_parameters_variables_limits_and_packages() -> None:
    facts = facts_with(
        kernel=KernelFacts(
            parameters={"EnableMSI": "1"},
            settings=(ModuleSetting("/etc/modprobe.d/a.conf:3", "options nvidia NVreg_OpenRmEnableUnsupportedGpus=1"),),
        ),
        environment=EnvironmentFacts({"NCCL_DEBUG": "INFO"}),
        container=ContainerFacts("docker", (), False, None, limits=(Limit("pids.max", 64, "/sys"),)),
        driver=DriverFacts("535.104.05", None, None, "12.2", packages={"nvidia-driver-535": "535.104.05-1"}),
    )
    assert facts["driver's parameter EnableMSI"] == "1"
    assert facts["options of kernel modules"] == "options nvidia NVreg_OpenRmEnableUnsupportedGpus=1"
    assert facts["NCCL_DEBUG"] == "INFO"
    assert facts["limit pids.max"] == "64"
    assert facts["package nvidia-driver-535"] == "535.104.05-1"


def test_a_family_that_is_unknown_gives_nothing() -> None:
    unknown = Unknown("timed out")
    families = dict.fromkeys(Facts.__struct_fields__, unknown)
    assert set(facts_of(replace(healthy(), facts=Facts(**families)))) == {"gpudiag"}


def test_long_values_that_differ_at_the_end_stay_different() -> None:
    values = [
        facts_with(environment=EnvironmentFacts({"LD_LIBRARY_PATH": "/opt/library:" * 40 + end}))["LD_LIBRARY_PATH"]
        for end in ("a", "b")
    ]
    assert values[0] != values[1]
    assert all(len(value) <= 80 for value in values)


def test_the_facts_of_a_report_that_somebody_made_up_have_an_end() -> None:
    variables = {f"TF_{number}": "\x1b[31m\n" + "x" * 10_000 for number in range(5000)}
    facts = facts_with(environment=EnvironmentFacts(variables))
    assert len(facts) == 250
    assert all(len(name) <= 80 and len(value) <= 80 and "\x1b" not in value for name, value in facts.items())
    assert "driver" in facts


@pytest.mark.parametrize("name", ["eight-gpus", "healthy", "diagnosis-library", "simulated-2x16GiB"])
def test_a_recorded_report_has_about_80_facts_in_3_kilobytes(name: str) -> None:
    report = codec.load(ROOT / f"reports/{name}.json")
    assert 50 <= len(facts_of(report)) <= 120
    assert len(msgspec.json.encode(summarized(report))) < 4500


@pytest.mark.parametrize(
    "file", sorted((ROOT / "tests/recorded/corpus").glob("*.json"))[::8], ids=lambda path: path.stem
)
def test_every_recorded_machine_has_a_summary(file: Path) -> None:
    report = codec.load(file)
    summary = summarized(report)
    assert summary.verdict is report.verdict
    assert msgspec.json.decode(msgspec.json.encode(summary), type=type(summary)) == summary


def places(kind: type, place: str = "") -> Iterator[str]:
    """Yield the place of each field of a record and of the records in it."""
    for field, hint in get_type_hints(kind).items():
        yield place + field
        hints = [hint]
        for inner in hints:
            hints += getattr(inner, "__args__", ())
            if isinstance(inner, type) and issubclass(inner, msgspec.Struct):
                yield from places(inner, f"{place}{field}.")


def test_what_is_left_out_is_there_to_be_left_out() -> None:
    assert LEFT_OUT - set(places(Facts)) == frozenset()


def test_figures_are_those_of_each_gpu_in_scope() -> None:
    working = GpuState(
        pcie_width=16, pcie_generation=4, performance_state=0, slowed_by=(), corrected_errors=7, power_limit_watts=400
    )
    idle = GpuState(pcie_width=8, pcie_generation=1, performance_state=8, slowed_by=("idle",))
    report = report_with(nvml=gpus_with(working, idle))
    assert len(report.gpus) == len(GPUS) == 2
    assert figures_of(report) == {
        "PCIe width": (16, 8),
        "power limit in W": (400, None),
        COUNTS["corrected_errors"]: (7, None),
        GENERATION: (4, None),
    }


def test_a_run_under_load_has_rates_and_temperatures() -> None:
    file = next((ROOT / "tests/recorded/load").glob("*.json"), None)
    assert file is not None
    report = codec.load(file)
    figures = figures_of(report)
    assert "float16 product" in figures
    assert all(len(values) == len(report.gpus) for values in figures.values())
    assert TEMPERATURE in figures


def test_the_order_is_that_of_interest() -> None:
    names = ["NCCL_DEBUG", "package numpy", "ECC", "kernel", "driver"]
    assert sorted(names, key=order) == ["driver", "kernel", "ECC", "package numpy", "NCCL_DEBUG"]
    assert [kind_of(name) for name in names] == [FactKind.VARIABLE, FactKind.PACKAGE, None, None, None]
    assert kind_of("BIOS") is None


def test_kinds_of_facts_that_were_not_read_are_named() -> None:
    def unread(**families: object) -> tuple[FactKind, ...]:
        return summarized(report_with(**families)).unread

    assert unread() == ()
    assert unread(environment=Unknown("timed out")) == (FactKind.VARIABLE,)
    assert unread(tensorflow=Unknown("timed out")) == (FactKind.PACKAGE,)
    many = EnvironmentFacts({f"NCCL_{number}": "1" for number in range(300)})
    assert unread(environment=many) == (FactKind.PACKAGE, FactKind.VARIABLE)
    assert unread_in(report_with(), {}) == ()


def test_of_a_masked_report_only_what_the_mask_left_is_a_fact() -> None:
    variables = EnvironmentFacts({"XLA_FLAGS": "--xla_dump_to=/srv/quaxolotl/" + "x" * 90, "NCCL_DEBUG": "INFO"})
    report = report_with(environment=variables)
    assert {"XLA_FLAGS", "NCCL_DEBUG"} <= facts_of(report).keys()
    summary = summarized(mask(report))
    assert summary.facts["NCCL_DEBUG"] == "INFO"
    assert "XLA_FLAGS" not in summary.facts
    assert summary.unread == (FactKind.PACKAGE, FactKind.VARIABLE)
