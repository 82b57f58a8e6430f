"""What the rows of the host say, beyond which kinds they show (that is in ``examples.hosts``)."""

from __future__ import annotations

import pytest

from examples.facts import example, example_with_gpus
from gpudiag import catalogue
from gpudiag.catalogue import Entry
from gpudiag.causes.device_count import fewer_gpus_than_required
from gpudiag.knowledge.variables import CONTEXT, SETTINGS
from gpudiag.model.facts import DriverFacts, EnvironmentFacts, Facts, NvmlFacts, Unknown
from gpudiag.model.report import Broken, Finding, Limits, Row, Skipped
from gpudiag.run import judgement, views


def judge(probe: str, facts: Facts, limits: Limits = Limits()) -> tuple[Finding, ...]:  # noqa: B008  (immutable)
    return views.judge(catalogue.get(probe), None, facts, limits).findings


def figure(probe: str, facts: Facts) -> str:
    return views.judge(catalogue.get(probe), None, facts, Limits()).figure


def test_figures_of_a_machine_without_a_gpu() -> None:
    assert figure("host.driver", example()) == "no NVIDIA driver"
    assert figure("host.gpus", example()) == "no GPU"
    assert figure("host.tensorflow", example()) == "tensorflow 2.21.0, CUDA 12.5.1"
    assert figure("host.environment", example()) == "0 variables set"


def test_figures_of_a_machine_with_gpus() -> None:
    facts = example_with_gpus(2, environment=EnvironmentFacts({"CUDA_VISIBLE_DEVICES": "1"}))
    assert figure("host.driver", facts) == "driver 535.104.05, CUDA 12.2"
    assert figure("host.gpus", facts) == "1 of 2 GPUs in scope: NVIDIA A100-SXM4-40GB"
    assert figure("host.environment", facts) == "1 variable set"


def test_a_family_that_gave_no_answer_is_a_figure_of_its_own() -> None:
    gone = Unknown("no answer within 10 s")
    facts = example(tensorflow=gone, driver=gone, nvml=gone, environment=gone)
    for probe in ("host.driver", "host.gpus", "host.tensorflow", "host.environment"):
        assert figure(probe, facts) == "not known"


def test_too_few_gpus_says_where_they_were_looked_for() -> None:
    hidden = example_with_gpus(1, environment=EnvironmentFacts({"CUDA_VISIBLE_DEVICES": "-1"}))
    (finding,) = judge("host.gpus", hidden, Limits(require_gpus=3))
    assert finding.message == "0 GPUs in scope, 3 required"
    assert looked_for(hidden, 3) == [
        "PCI bus: 0000:01:00.0",
        "/proc/driver/nvidia: 535.104.05",
        "/dev/nvidia*: /dev/nvidiactl /dev/nvidia-uvm /dev/nvidia0",
        "NVML: 1 GPU",
        "CUDA_VISIBLE_DEVICES: '-1'",
    ]
    assert looked_for(example(), 1) == [
        "PCI bus: no NVIDIA GPU",
        "/proc/driver/nvidia: not there",
        "/dev/nvidia*: none",
        "NVML: 0 GPUs, NVML Shared Library Not Found",
        "CUDA_VISIBLE_DEVICES: not set",
    ]


def looked_for(facts: Facts, required: int) -> list[str]:
    (match,) = fewer_gpus_than_required.find(facts, Limits(require_gpus=required))
    return list(match.evidence[:5])


def test_a_misspelling_names_the_setting_that_was_meant() -> None:
    meant = {
        "CUDA_VISIBLE_DEVCIES": "CUDA_VISIBLE_DEVICES",
        "CUDA_VISBLE_DEVICES": "CUDA_VISIBLE_DEVICES",
        "TF_FORCE_GPU_ALLOW_GROWHT": "TF_FORCE_GPU_ALLOW_GROWTH",
        "TF_CPP_MIN_VLOG_LEVEL": "TF_CPP_MAX_VLOG_LEVEL",
        "TF_GPU_MEMORY_ALLOW_GROWTH": "TF_FORCE_GPU_ALLOW_GROWTH",
    }
    findings = judge("host.environment", example(environment=EnvironmentFacts(dict.fromkeys(meant, "(set)"))))
    assert {finding.figures["name"]: finding.figures["known"] for finding in findings} == meant


def test_no_known_name_is_taken_for_a_misspelling() -> None:
    values = dict.fromkeys(SETTINGS | CONTEXT, "true")
    facts = example(environment=EnvironmentFacts(values))
    assert [found for found in judge("host.environment", facts) if found.kind == "misspelt"] == []


def test_the_words_of_nvml_reach_the_finding() -> None:
    facts = example_with_gpus(nvml=NvmlFacts("Insufficient Permissions", None, None, ()))
    (finding,) = judge("host.driver", facts)
    assert finding.message == "NVML answers: Insufficient Permissions"


def test_a_mismatch_names_both_versions() -> None:
    facts = example_with_gpus(
        driver=DriverFacts("535.104.05", "/usr/lib/x86_64-linux-gnu/libcuda.so.550.54.14", None, "12.4"),
        nvml=NvmlFacts("RM has detected an NVML/RM version mismatch.", None, None, ()),
    )
    (finding,) = judge("host.driver", facts)
    assert (finding.figures["module"], finding.figures["library"]) == ("535.104.05", "550.54.14")


@pytest.mark.parametrize(
    "entry", [entry for entry in catalogue.entries() if entry.reading is None], ids=lambda entry: entry.name
)
def test_without_its_facts_a_probe_is_never_green(entry: Entry) -> None:
    assert entry.probe.families
    row = Row(entry.name, (), Skipped(""), 0.0)
    for family in entry.probe.families:
        machine = example_with_gpus(2, **{family: Unknown("no answer within 15 s")})
        assert judgement.judged(row, entry, machine, Limits()).status != "pass"
        ours = example_with_gpus(2, **{family: Unknown("gpudiag could not start a process", ours=True)})
        outcome = judgement.judged(row, entry, ours, Limits(require_gpus=3)).outcome
        assert isinstance(outcome, Broken), "gpudiag's own breakage is no verdict on the machine"
        assert "gpudiag could not start a process" in outcome.detail
