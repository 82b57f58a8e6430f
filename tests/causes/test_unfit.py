"""A proved cause that makes a GPU in scope unfit: never PASS, in no format, nor kept as the last PASS."""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Callable
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest
from msgspec.structs import replace

from conftest import Gpudiag
from corpus import items
from examples import examples
from examples.facts import example_with_gpus
from gpudiag import causes
from gpudiag.cause import CatalogueCause, Evidence
from gpudiag.comparison import kept
from gpudiag.fix import run
from gpudiag.model import codec
from gpudiag.model.diagnosis import Confidence, RootCause, Stage
from gpudiag.model.facts import GpuState
from gpudiag.model.fate import Fate
from gpudiag.model.report import Report, Verdict, conclude
from gpudiag.model.visibility import gpus_in_scope
from gpudiag.report import FORMATS, render
from gpudiag.run.accounts import account
from gpudiag.run.rejudging import rejudge
from withheld import concluded, green, with_any_one_probe

UNFIT = tuple(known for known in causes.all_of_them() if known.declared.unfit)
CASES = {f"{name}: {example.name}": example.evidence for name, several in examples().items() for example in several}
CORPUS = {str(item): item.evidence for item in items() if item.evidence is not None}
MACHINES = {name: evidence for name, evidence in {**CASES, **CORPUS}.items() if gpus_in_scope(evidence.facts)}
RECORDED = sorted((Path(__file__).parent.parent / "recorded" / "corpus").glob("*.json"))

PASSES: dict[str, Callable[[str], bool]] = {
    "summary": lambda text: text.splitlines()[-1].startswith("PASS"),
    "table": lambda text: re.search("^PASS:", text, re.MULTILINE) is not None,
    "json": lambda text: json.loads(text)["verdict"] == "PASS" or json.loads(text)["exit_code"] == 0,
    "html": lambda text: "<title>PASS" in text,
    "markdown": lambda text: "gpudiag: PASS" in text,
    "junit": lambda text: not list(ET.fromstring(text).iter("failure")),
    "prometheus": lambda text: 'gpudiag_verdict{verdict="PASS"} 1' in text or "gpudiag_exit_status 0" in text,
    "nagios": lambda text: not text.startswith("GPUDIAG CRITICAL"),
    "codequality": lambda text: all(issue["severity"] != "blocker" for issue in json.loads(text)[:1]),
    "github": lambda text: "\n::error title=gpudiag%3A FAIL::" not in text,
}
"""Of each format: whether a text of it says that the machine is fine."""


def declared_and_proved(report: Report) -> list[RootCause]:
    """Return the causes that the report must not pass beside; from the catalogue, not from the fields of the report."""
    scope = {gpu.pci_bus_id for gpu in report.gpus}
    return [
        cause
        for cause in (*report.diagnosis.causes, *report.diagnosis.folded)
        if cause.confidence is Confidence.PROVED and cause.unfit and (not cause.gpus or scope & set(cause.gpus))
    ]


def passing_formats(report: Report) -> list[str]:
    return [name for name in FORMATS if PASSES[name](render(report, name, width=200, color=False))]


def test_no_machine_passes_beside_a_proved_cause_that_makes_a_gpu_unfit() -> None:
    met: set[str] = set()
    for name, evidence in MACHINES.items():
        report = green(concluded(evidence))
        if found := declared_and_proved(report):
            met |= {cause.cause_id for cause in found}
            assert (report.verdict, report.exit_code) == (Verdict.FAIL, 1), name
            assert passing_formats(report) == [], name
    assert len(met) > 20, "the machines of the tests prove most of the causes that are declared unfit"


@pytest.mark.parametrize("file", RECORDED, ids=lambda file: file.stem)
def test_no_recorded_machine_passes_beside_one(file: Path) -> None:
    report = rejudge(codec.load(file))
    for alone in (report, *with_any_one_probe(report)):
        assert not (declared_and_proved(alone) and alone.verdict is Verdict.PASS)


def test_a_healthy_machine_passes_in_every_format() -> None:
    assert passing_formats(healthy()) == list(FORMATS)


def of(known: CatalogueCause, *gpus: str, stage: Stage = Stage.CONFIGURATION) -> RootCause:
    """Return the cause as it would be found, proved, at any stage."""
    return RootCause(
        cause_id=known.id,
        stage=stage,
        confidence=Confidence.PROVED,
        cause=f"it is {known.id}",
        evidence=("seen",),
        fix=(run("fix it"),),
        url="https://example.org",
        unfit=known.declared.unfit,
        gpus=gpus,
    )


def beside(cause: RootCause, *, folded: bool = False) -> Report:
    """Return the report of two healthy GPUs on which everything was verified, with one more cause."""
    diagnosis = replace(healthy().diagnosis, **{"folded" if folded else "causes": (cause,)})
    return conclude(replace(healthy(), diagnosis=diagnosis))


@functools.cache
def healthy() -> Report:
    report = concluded(Evidence(example_with_gpus(2)))
    assert report.verdict is Verdict.PASS
    return report


@pytest.mark.parametrize("known", UNFIT, ids=lambda known: known.id)
@pytest.mark.parametrize("folded", [False, True])
def test_every_cause_that_is_declared_unfit_forbids_a_pass_at_every_stage(
    known: CatalogueCause, folded: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    for stage in Stage:
        report = beside(of(known, stage=stage), folded=folded)
        assert (report.verdict, report.exit_code) == (Verdict.FAIL, 1)
        kept.with_changes(report)
        assert list(tmp_path.rglob("last-pass-*")) == [], "it is not kept as the last PASS"
    assert passing_formats(report) == []
    assert known.id in render(report, "table", width=300, color=False).splitlines()[-1], "the last line says why"
    assert codec.decode(codec.encode(report), "saved").verdict is Verdict.FAIL


@pytest.mark.parametrize("known", UNFIT[:1], ids=lambda known: known.id)
def test_a_cause_about_other_gpus_or_that_is_not_proved_forbids_nothing(known: CatalogueCause) -> None:
    first, second = (gpu.pci_bus_id for gpu in beside(of(known)).gpus)
    assert beside(of(known, second)).verdict is Verdict.FAIL
    assert beside(of(known, second.upper())).verdict is Verdict.FAIL
    assert beside(of(known, "0000:99:00.0")).verdict is Verdict.PASS
    assert beside(of(known, "0000:99:00.0", first)).verdict is Verdict.FAIL
    assert beside(replace(of(known), confidence=Confidence.LIKELY)).verdict is Verdict.PASS
    assert beside(replace(of(known), unfit=False)).verdict is Verdict.PASS


FAULTY = GpuState(ecc=True, remap_failed=True, remap_pending=True)


def with_faulty_memory(mask: str | None) -> Evidence:
    """Return two GPUs, of which the memory of the second is to be replaced; its context works."""
    facts = example_with_gpus(2)
    first, second = facts.nvml_devices
    nvml = replace(facts.nvml, devices=(first, replace(second, state=FAULTY)))
    variables = {} if mask is None else {"CUDA_VISIBLE_DEVICES": mask}
    environment = replace(facts.environment, variables=variables)
    return Evidence(replace(facts, nvml=nvml, environment=environment))


@pytest.mark.parametrize(("mask", "verdict"), [(None, "FAIL"), ("1", "FAIL"), ("1,0", "FAIL"), ("0", "PASS")])
def test_memory_that_has_to_be_replaced_fails_if_the_mask_shows_the_gpu(mask: str | None, verdict: str) -> None:
    evidence = with_faulty_memory(mask)
    report = concluded(evidence)
    assert report.verdict.value == verdict
    (second,) = (gpu for gpu in account(Evidence(report.facts, report.gpus, report.rows), report.diagnosis) if gpu.nvml)
    assert second.fate is (Fate.UNFIT if verdict == "FAIL" else Fate.HIDDEN)


def test_the_check_says_which_gpu_is_unfit(gpudiag: Gpudiag, tmp_path: Path) -> None:
    """The machine of the finding, end to end; the GPU that is left alone passes."""
    spec = tmp_path / "machine.toml"
    spec.write_text("[[gpu]]\n[[gpu]]\nstate = {ecc = 1, ecc_uncorrected = 7, remap_failed = 1, remap_pending = 1}\n")
    arguments = ("check", "discovery.logical_devices", "--simulate", str(spec))
    done = gpudiag(*arguments)
    assert done.returncode == 1, done.stdout + done.stderr
    text = re.sub(r"\s+", " ", done.stdout)
    assert "1 of 2 GPUs verified" in text
    assert "(proved, memory_repair_pending)" in text.rpartition("Not fit for use:")[2]
    done = gpudiag(*arguments, CUDA_VISIBLE_DEVICES="0")
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_gpu_whose_memory_nvml_cannot_tell_is_a_cause_and_breaks_no_probe(gpudiag: Gpudiag) -> None:
    lost = gpudiag.simulated("2", ("call_fails=nvmlDeviceGetMemoryInfo:999@1",))
    done = gpudiag("check", "discovery.logical_devices", "memory.growth", *lost, "--format", "json")
    assert done.returncode == 1, done.stderr
    report = codec.decode(done.stdout, "standard output")
    (cause,) = report.diagnosis.causes
    assert (cause.cause_id, cause.gpus) == ("gpu_memory_not_reported", (report.gpus[1].pci_bus_id,))
    assert cause.cause.endswith("the memory of GPU 1: Unknown Error, NVML_ERROR_UNKNOWN"), "NVML's words"
    assert {(row.probe, report.device_label(row)): row.status for row in report.rows} == {
        ("discovery.logical_devices", "GPU 0-1"): "pass",
        ("memory.growth", "GPU 0"): "pass",
        ("memory.growth", "GPU 1"): "skipped",
    }
