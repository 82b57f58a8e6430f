"""A selection without discovery is explained all the same, and many rows of one fault are one."""

from __future__ import annotations

import re
from pathlib import Path

from conftest import Gpudiag
from gpudiag.model import codec
from gpudiag.model.report import Broken, NoReading, Report
from gpudiag.report import render
from gpudiag.report.formats import markdown
from reports import GPUS, passed, report, row

CONTEXTS = "discovery.logical_devices"
TRACE = "discovery.trace"


def checked(gpudiag: Gpudiag, *arguments: str, **variables: str) -> tuple[Report, str]:
    done = gpudiag("check", *arguments, "-o", "a.json", flags=(), **variables)
    return codec.load(Path(gpudiag.folder, "a.json")), done.stdout


def test_what_fails_is_explained_though_discovery_was_not_selected(gpudiag: Gpudiag) -> None:
    found, text = checked(gpudiag, "memory.growth", "--simulate", "2", "--fault", "cuinit=803")
    assert [row.probe for row in found.rows] == ["memory.growth", "memory.growth", TRACE, CONTEXTS]
    assert [cause.cause_id for cause in found.diagnosis.causes] == ["library_and_module_differ"]
    assert f"{TRACE} and {CONTEXTS} ran too, because memory.growth GPU 0 failed" in " ".join(text.split())


def test_what_passes_is_not(gpudiag: Gpudiag) -> None:
    found, _ = checked(gpudiag, "memory.growth", "--simulate", "1")
    assert [row.probe for row in found.rows] == ["memory.growth"]
    assert found.notes == ()


def test_a_mask_that_is_cut_is_in_the_head_with_its_fix(gpudiag: Gpudiag) -> None:
    found, text = checked(gpudiag, "host.environment", "--simulate", "4", CUDA_VISIBLE_DEVICES="0,7,1")
    assert [cause.cause_id for cause in found.diagnosis.causes] == ["mask_entries_ignored"]
    assert re.search(r"fix     export CUDA_VISIBLE_DEVICES=0,1\n +name indices from 0 to 3", text)
    assert "shows 1 of 4 GPUs; ignored entries: 7, 1" in " ".join(text.split())


def test_fewer_gpus_than_required_are_in_the_head(gpudiag: Gpudiag) -> None:
    arguments = ("host.gpus", "--simulate", "4", "--require-gpus", "4")
    found, _ = checked(gpudiag, *arguments, CUDA_VISIBLE_DEVICES="0,1")
    assert [cause.cause_id for cause in found.diagnosis.causes] == ["fewer_gpus_than_required"]
    assert found.diagnosis.causes[0].fix[0].command.startswith("unset CUDA_VISIBLE_DEVICES")


def test_many_rows_that_broke_in_the_same_way_are_one() -> None:
    crash = Broken(NoReading.SIGNAL, "SIGSEGV")
    names = [f"memory.probe_{number}" for number in range(37)]
    made = report(*(row(name, crash, *GPUS, log=(f"last words of {name}",)) for name in names), gpus=GPUS)
    text = render(made, "table", width=80, color=False)
    assert "BROKEN   37 probes broke in the same way: signal: SIGSEGV" in text
    assert text.count("SIGSEGV") == text.count("last words") == 1
    assert all(name in text for name in names)
    assert render(made, "table", width=80, color=False, verbose=True).count("SIGSEGV") == len(names)
    findings = markdown.render(made, verbose=False).partition("## Findings")[2]
    assert findings.count("SIGSEGV") == 1
    assert "37 probes broke in the same way" in findings


def test_two_faults_are_not_one() -> None:
    rows = [row(f"memory.a{number}", Broken(NoReading.SIGNAL, "SIGSEGV")) for number in range(3)]
    rows += [row(f"memory.b{number}", Broken(NoReading.TIMEOUT, "60 s")) for number in range(3)]
    text = render(report(*rows, row("memory.c", passed())), "table", width=80, color=False)
    assert text.count("3 probes broke in the same way") == 2
