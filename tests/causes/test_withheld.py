"""PASS never stands beside what is known against it, whichever probes were chosen; a mask can leave that out."""

from __future__ import annotations

from itertools import combinations

import pytest
from msgspec.structs import replace

from conftest import Gpudiag
from corpus import items
from examples import examples
from examples.facts import example_with_gpus
from gpudiag.cause import Evidence
from gpudiag.model import codec
from gpudiag.model.facts import ContainerFacts, DeviceNodeFacts, EnvironmentFacts, Facts, NvmlFacts
from gpudiag.model.report import Judged, Verdict
from gpudiag.model.visibility import gpus_in_scope
from gpudiag.report import FORMATS, render
from withheld import concluded, contradicts, green, replace_rows

CASES = {f"{name}: {example.name}": example.evidence for name, several in examples().items() for example in several}
CORPUS = {str(item): item.evidence for item in items() if item.evidence is not None}
MACHINES = {name: evidence for name, evidence in {**CASES, **CORPUS}.items() if gpus_in_scope(evidence.facts)}


def test_pass_never_stands_beside_a_cause_whichever_probe_was_chosen() -> None:
    passes = withheld = 0
    for name, evidence in MACHINES.items():
        for probe in dict.fromkeys(["", *(row.probe for row in evidence.rows)]):
            chosen = replace_rows(evidence, tuple(row for row in evidence.rows if row.probe == probe))
            report = green(concluded(chosen))
            assert not contradicts(report), name
            passes += report.verdict is Verdict.PASS
            withheld += report.verdict is Verdict.NOT_VERIFIED
    assert passes > 100, "and it is not withheld without a reason"
    assert withheld > 100


def machine(gpus: int, lost: tuple[int, ...] = (), mask: str | None = None, **families: object) -> Facts:
    """Return the facts of a machine of which NVML cannot describe the GPUs ``lost``."""
    facts = example_with_gpus(gpus)
    error = "; ".join(f"GPU {index}: GPU is lost" for index in lost) or None
    devices = tuple(device for device in facts.nvml_devices if device.index not in lost)
    variables = {} if mask is None else {"CUDA_VISIBLE_DEVICES": mask}
    return replace(
        facts,
        nvml=NvmlFacts(error, "535.104.05", "12.2", devices),
        environment=EnvironmentFacts(variables),
        **families,
    )


def verdict(facts: Facts) -> Verdict:
    return concluded(Evidence(facts)).verdict


@pytest.mark.parametrize("gpus", [2, 3])
def test_a_lost_gpu_withholds_a_pass_unless_the_mask_leaves_it_out(gpus: int) -> None:
    for lost in range(gpus):
        assert verdict(machine(gpus, (lost,))) is Verdict.FAIL
        for size in range(1, gpus + 1):
            for chosen in combinations(range(gpus), size):
                reached = verdict(machine(gpus, (lost,), ",".join(map(str, chosen))))
                if lost in chosen:
                    assert reached is Verdict.FAIL, (lost, chosen)
                elif max(chosen) < lost:  # CUDA numbers those behind it otherwise
                    assert reached is Verdict.PASS, (lost, chosen)
    uuids = [device.uuid for device in example_with_gpus(gpus).nvml_devices]
    for lost in range(gpus):
        others = [uuid for index, uuid in enumerate(uuids) if index != lost]
        assert verdict(machine(gpus, (lost,), ",".join(others))) is Verdict.PASS
        assert verdict(machine(gpus, (lost,), ",".join(uuids))) is Verdict.FAIL, "its UUID is not known"
        assert verdict(machine(gpus, (lost,), f"{others[0]},-1")) is Verdict.PASS


NODES = example_with_gpus(2).device_nodes
assert isinstance(NODES, DeviceNodeFacts)
FIRST, SECOND = NODES.pci_gpus
DOCKER = ContainerFacts("docker", ("/.dockerenv",), False, None)
SLURM = ContainerFacts(None, (), False, "7")


@pytest.mark.parametrize(
    ("bound", "mask", "container", "expected"),
    [
        ({}, None, None, Verdict.NOT_VERIFIED),
        ({FIRST: "nvidia", SECOND: "nvidia"}, None, None, Verdict.NOT_VERIFIED),
        ({FIRST: "nvidia"}, "0,1", None, Verdict.NOT_VERIFIED),
        ({FIRST: "nvidia"}, "0", None, Verdict.PASS),
        ({SECOND: "vfio-pci"}, None, None, Verdict.PASS),
        ({SECOND: "nouveau"}, None, None, Verdict.PASS),
        ({SECOND: "nvidia"}, None, DOCKER, Verdict.PASS),
        ({SECOND: "nvidia"}, None, SLURM, Verdict.PASS),
    ],
)
def test_a_gpu_on_the_bus_that_nvml_does_not_count_is_missing_unless_somebody_else_has_it(
    bound: dict[str, str], mask: str | None, container: ContainerFacts | None, expected: Verdict
) -> None:
    facts = machine(1, mask=mask, device_nodes=replace(NODES, bound=bound))
    assert verdict(facts if container is None else replace(facts, container=container)) is expected


def test_one_that_nvml_counts_and_cannot_describe_is_told_once() -> None:
    report = concluded(Evidence(machine(2, (1,), device_nodes=NODES)))
    assert report.withheld is not None
    assert [reason for reason in report.withheld if "PCI bus" in reason] == []
    more = replace(NODES, pci_gpus=(FIRST, SECOND, "0000:09:00.0"))
    other = concluded(Evidence(machine(2, (1,), device_nodes=more)))
    assert other.withheld is not None
    assert any(SECOND in reason and "0000:09:00.0" in reason for reason in other.withheld)


@pytest.mark.parametrize("format_", FORMATS)
def test_every_format_gives_the_reason(format_: str) -> None:
    text = render(concluded(Evidence(machine(2, (1,)))), format_, width=300, color=False)
    assert "FAIL" in text
    assert "GPU 1 does not answer: it, its power or its connection has failed" in text


def test_saved_reports_that_name_a_cause_do_not_pass(gpudiag: Gpudiag) -> None:
    """The machine of the finding: one probe chosen, which verifies the GPU that is left."""
    lost = gpudiag.simulated("2", ("call_fails=nvmlDeviceGetHandleByIndex_v2:15@1",))
    arguments = ("check", "discovery.logical_devices", *lost, "--format", "json")
    done = gpudiag(*arguments)
    assert done.returncode == 1, done.stderr
    report = codec.decode(done.stdout, "standard output")
    assert report.verdict is Verdict.FAIL
    assert [row.status for row in report.rows] == ["pass"]
    assert "gpu_lost" in [cause.cause_id for cause in (*report.diagnosis.causes, *report.diagnosis.folded)]
    done = gpudiag(*arguments, CUDA_VISIBLE_DEVICES="0")
    assert done.returncode == 0, done.stderr
    report = codec.decode(done.stdout, "standard output")
    assert (report.verdict, report.withheld, report.diagnosis.causes) == (Verdict.PASS, (), ())


def test_what_was_verified_counts_without_a_reason() -> None:
    report = concluded(Evidence(example_with_gpus(2)))
    assert isinstance(report.rows[0].outcome, Judged)
    assert (report.verdict, report.exit_code, report.withheld) == (Verdict.PASS, 0, ())
