"""What counts as worse, what stands first, and what ``gpudiag diff`` prints and returns."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from msgspec.structs import replace

from conftest import Gpudiag
from examples.facts import example_with_gpus
from gpudiag.comparison.reports import ComparedReport, compare
from gpudiag.fix import run
from gpudiag.knowledge.codes import meanings
from gpudiag.model import codec
from gpudiag.model.change import ChangeSubject, ReportComparison
from gpudiag.model.diagnosis import Confidence, Diagnosis, RootCause, Stage, Step, StepStatus
from gpudiag.model.facts import (
    DeviceNodeFacts,
    Distribution,
    DriverFacts,
    EnvironmentFacts,
    Facts,
    Library,
    LibraryFacts,
    TensorflowFacts,
)
from gpudiag.model.report import Broken, Judged, NoReading, Report, Skipped, World, conclude
from gpudiag.probe import GpuFaults
from gpudiag.report import changes, comparison
from gpudiag.report.masking import mask
from reports import CAP_IGNORED, GPUS, MISSPELT, OVERRIDDEN, passed, report, row, sample

SKIPPED = Skipped("no GPU")
BROKEN = Broken(NoReading.SIGNAL, "SIGSEGV")
ROOT = Path(__file__).parents[2]


def compared(old: Report, new: Report) -> ReportComparison:
    return compare(ComparedReport(old, "old.json"), ComparedReport(new, "new.json"))


def one(outcome: Judged | Skipped | Broken) -> Report:
    return report(row("memory.growth", outcome, GPUS[0]), gpus=GPUS[:1])


def diagnosed(*rules: str, stage: Stage = Stage.LIBRARIES, facts: Facts | None = None) -> Report:
    causes = tuple(
        RootCause(rule, stage, Confidence.LIKELY, f"{rule} is so", (), (run("do it"),), "") for rule in rules
    )
    made = report(gpus=GPUS, facts=facts)
    return replace(made, diagnosis=Diagnosis((Step(stage, StepStatus.FAILED),), causes))


@pytest.mark.parametrize(
    ("old", "new", "worse"),
    [
        (passed(), passed(), False),
        (passed(), passed("", OVERRIDDEN), False),
        (passed(), SKIPPED, True),
        (SKIPPED, passed(), False),
        (passed(), passed("", MISSPELT), True),
        (passed("", MISSPELT), SKIPPED, False),
        (passed("", MISSPELT), BROKEN, True),
        (BROKEN, passed("", CAP_IGNORED), True),
        (passed("", CAP_IGNORED), BROKEN, False),
        (passed("", CAP_IGNORED), passed(), False),
        (passed("", MISSPELT), passed("", MISSPELT, OVERRIDDEN), False),
        (passed("", CAP_IGNORED), passed("", CAP_IGNORED, MISSPELT), True),
        (passed("", CAP_IGNORED), passed("", replace(CAP_IGNORED, message="took 2049 MiB")), False),
    ],
)
def test_outcomes_and_findings(
    old: Judged | Skipped | Broken,
    new: Judged | Skipped | Broken,
    worse: bool,
) -> None:
    rows = [change for change in compared(one(old), one(new)).worse if change.subject is not ChangeSubject.VERDICT]
    assert bool(rows) is worse


def test_verdicts_have_the_order_of_the_exit_statuses() -> None:
    good = report(row("memory.growth", passed(on=GPUS), *GPUS), gpus=GPUS)
    reports = [good, one(SKIPPED), one(BROKEN), one(passed("", CAP_IGNORED))]
    for number, old in enumerate(reports):
        worse = [ChangeSubject.VERDICT in {change.subject for change in compared(old, new).worse} for new in reports]
        assert worse == [later > number for later in range(4)]


def test_a_probe_that_was_not_run_is_not_worse() -> None:
    found = compared(report(row("memory.growth", passed())), report())
    assert [(change.name, change.old, change.new) for change in found.changes] == [("memory.growth", "pass", None)]
    assert found.worse == ()


def test_a_probe_that_was_skipped_for_lack_of_gpus_is_the_one_that_runs_on_them() -> None:
    without = report(row("memory.growth", Skipped("no GPU")), row("libraries.xla", Skipped("no GPU")))
    both = (row("memory.growth", passed("2 MiB"), gpu) for gpu in GPUS)
    with_gpus = report(*both, row("libraries.xla", Skipped("real GPUs only"), *GPUS), gpus=GPUS)
    for old, new in ((without, with_gpus), (with_gpus, without)):
        changes = [change for change in compared(old, new).changes if change.subject is ChangeSubject.OUTCOME]
        assert [change.name for change in changes] == ["memory.growth GPU 0", "memory.growth GPU 1"]
        expected = ("skipped", "pass") if old is without else ("pass", "skipped")
        assert {(change.old, change.new, change.worse) for change in changes} == {(*expected, False)}


def test_a_gpu_that_left_the_scope_is_worse_and_one_that_was_moved_is_not() -> None:
    found = compared(report(gpus=GPUS), report(gpus=GPUS[:1], facts=example_with_gpus(2)))
    assert [change.name for change in found.worse] == ["NVIDIA A100-SXM4-40GB, PCI 0000:02:00.0"]
    moved = (GPUS[0], replace(GPUS[1], pci_bus_id="0000:81:00.0"))
    facts = example_with_gpus(2)
    assert compared(report(gpus=GPUS, facts=facts), report(gpus=moved, facts=facts)).worse == ()


def test_causes_come_and_go_by_their_name() -> None:
    found = compared(diagnosed("a", "b", "b"), diagnosed("b", "c"))
    came_and_gone = [
        (change.name, change.new is not None) for change in found.changes if change.subject is ChangeSubject.CAUSE
    ]
    assert came_and_gone == [("c", True), ("a", False), ("b", False)]
    assert [change.name for change in found.worse] == ["c"]


@pytest.mark.parametrize(
    ("stage", "first"),
    [
        (Stage.DRIVER, "driver"),
        (Stage.LIBRARIES, "LD_LIBRARY_PATH"),
        (Stage.DEVICE_COUNT, "CUDA_VISIBLE_DEVICES"),
        (Stage.CONFIGURATION, "TF_GPU_ALLOCATOR"),
        (Stage.PACKAGE, "PYTHONPATH"),
    ],
)
def test_what_can_explain_the_failing_stage_comes_first(stage: Stage, first: str) -> None:
    variables = ("CUDA_VISIBLE_DEVICES", "LD_LIBRARY_PATH", "PYTHONPATH", "TF_GPU_ALLOCATOR")
    new = example_with_gpus(
        2,
        environment=EnvironmentFacts(dict.fromkeys(variables, "x")),
        driver=DriverFacts("550.54", None, None, "12.4"),
    )
    found = compared(report(gpus=GPUS), diagnosed("a", stage=stage, facts=new))
    assert found.facts[0].name == first


def test_the_head_says_a_new_driver_once_and_no_more_than_fits() -> None:
    new = example_with_gpus(
        2,
        driver=DriverFacts("550.54", "/usr/lib/x86_64-linux-gnu/libcuda.so.550.54", None, "12.4"),
        environment=EnvironmentFacts({f"TF_{number}": "1" for number in range(9)}),
    )
    heading, lines = changes.in_head(compared(report(gpus=GPUS), report(gpus=GPUS, facts=new)))
    assert heading == "Since old.json (less than a minute ago), this has changed:"
    assert lines[:2] == ["driver 535.104.05 -> 550.54", "CUDA of the driver 12.2 -> 12.4"]
    assert not any("libcuda" in line for line in lines)
    assert len(lines) == changes.MOST_IN_HEAD + 1
    assert lines[-1].startswith("and 5 more changes")


@pytest.mark.parametrize(
    ("started", "age"),
    [
        ("2026-01-31T11:59:30+00:00", "less than a minute ago"),
        ("2026-01-31T11:15:00+00:00", "45 minutes ago"),
        ("2026-01-31T07:00:00Z", "5 hours ago"),
        ("2026-01-29T11:00:00+00:00", "2 days ago"),
        ("2026-02-01T12:00:00+00:00", "made later, 2026-02-01 12:00:00 UTC"),
        ("2026-01-31", "2026-01-31"),
    ],
)
def test_the_head_says_how_old_the_other_report_is(started: str, age: str) -> None:
    heading, lines = changes.in_head(compared(replace(report(), started_at=started), report()))
    assert (heading, lines) == (f"Since old.json ({age}), nothing that gpudiag looks at has changed", [])


def test_a_report_is_the_same_as_itself_masked() -> None:
    saved = codec.load(ROOT / "reports" / "simulated-2x16GiB.json")
    home = example_with_gpus(2, environment=EnvironmentFacts({"LD_LIBRARY_PATH": "/home/someone/x:/opt/secret/lib"}))
    for made in (saved, report(row("memory.growth", passed(), *GPUS), gpus=GPUS, facts=home)):
        masked = mask(made)
        assert compared(made, masked).changes == compared(masked, made).changes == ()


def test_reports_of_the_first_schema_can_be_compared() -> None:
    first = ComparedReport.load(ROOT / "tests" / "data" / "report-v1.json")
    assert compare(first, first).changes == ()
    compare(first, ComparedReport.load(ROOT / "reports" / "cpu-only.json"))


def test_real_and_simulated_are_told_apart() -> None:
    found = compared(report(), report(world=World(simulated=True, spec="2")))
    assert [(change.name, change.old, change.new) for change in found.facts] == [("machine", "real", "simulated 2")]


# --- the command ----------------------------------------------------------------------------------------------------


@pytest.fixture
def files(tmp_path: Path) -> tuple[str, str]:
    old = report(row("memory.growth", passed(on=GPUS), *GPUS), gpus=GPUS)
    facts = example_with_gpus(2, driver=DriverFacts("550.54", None, None, "12.4"))
    new = conclude(replace(report(row("memory.growth", passed("", CAP_IGNORED), *GPUS), gpus=GPUS), facts=facts))
    for name, made in (("old", old), ("new", new)):
        (tmp_path / f"{name}.json").write_text(codec.encode(made))
    return "old.json", "new.json"


def test_the_command_prints_what_changed(gpudiag: Gpudiag, files: tuple[str, str], tmp_path: Path) -> None:
    done = gpudiag("diff", *files, "-o", "a.md", "-o", "a.json", "-o", "a.html")
    written = "".join(f"gpudiag: comparison written to a.{suffix}\n" for suffix in ("md", "json", "html"))
    assert (done.returncode, done.stderr) == (1, written)
    assert all(len(line) <= 80 for line in done.stdout.splitlines())
    assert "worse  verdict PASS -> FAIL" in done.stdout
    assert "worse  pass -> fail: memory.growth GPU 0-1" in done.stdout
    assert "driver 535.104.05 -> 550.54" in done.stdout
    assert done.stdout.endswith("\nWorse: the verdict, 1 outcome, 1 new finding.\n")
    assert (tmp_path / "a.md").read_text().startswith("# Worse: the verdict, 1 outcome, 1 new finding.")
    assert (
        "<title>Worse: the verdict, 1 outcome, 1 new finding · gpudiag diff</title>"
        in (tmp_path / "a.html").read_text()
    )
    found = json.loads((tmp_path / "a.json").read_text())
    assert [change["name"] for change in found["changes"] if change["worse"]] == [
        "verdict",
        "memory.growth GPU 0-1",
        "memory.growth GPU 0-1: cap_ignored",
    ]


def test_nothing_worse_is_exit_status_0(gpudiag: Gpudiag, files: tuple[str, str]) -> None:
    back = gpudiag("diff", *reversed(files))
    assert (back.returncode, back.stdout.splitlines()[-1]) == (0, "Nothing got worse.")
    same = gpudiag("diff", files[0], files[0])
    assert (same.returncode, same.stdout.splitlines()[-1]) == (0, "Nothing has changed.")


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (None, "old.json: cannot be read: No such file or directory"),
        ("{", "old.json: not JSON, or cut short"),
        ('{"schema_version": 3, "gpudiag_version": "9.0"}', "schema version 3; this gpudiag reads versions 1 and 2"),
    ],
)
def test_what_is_no_report_is_refused(
    content: str | None, said: str, gpudiag: Gpudiag, files: tuple[str, str], tmp_path: Path
) -> None:
    (tmp_path / "old.json").unlink()
    if content is not None:
        (tmp_path / "old.json").write_text(content)
    done = gpudiag("diff", *files)
    assert (done.returncode, done.stdout) == (2, "")
    assert said in done.stderr


def test_a_comparison_is_not_junit(gpudiag: Gpudiag, files: tuple[str, str]) -> None:
    done = gpudiag("diff", *files, "-o", "a.xml")
    assert done.returncode == 2
    assert "write .txt, .json, .md or .html" in done.stderr


def test_every_format_is_rendered() -> None:
    found = compared(sample(), report())
    for format_ in comparison.FORMATS:
        assert comparison.render(found, format_, width=80, color=False).endswith("\n")


@pytest.mark.parametrize("format_", comparison.FORMATS)
def test_a_code_that_came_with_a_change_has_its_meaning(format_: str) -> None:
    finding = GpuFaults.operation_failed.found(error="the call failed: CUDA_ERROR_ECC_UNCORRECTABLE")
    text = comparison.render(compared(one(passed()), one(passed("", finding))), format_, width=80, color=False)
    assert "CUDA_ERROR_ECC_UNCORRECTABLE" in text.replace("\\", "")
    assert "the GPU, its memory, its power or its connection has failed" in " ".join(text.split())
    assert meanings(text.replace("\\", "")) == {}


def test_what_changed_alike_is_one_line_and_so_is_much_of_one_thing() -> None:
    def moved(folder: str, library: Library) -> Report:
        names = ("keras", "numpy", "h5py")
        known = example_with_gpus(2).tensorflow
        assert isinstance(known, TensorflowFacts)
        facts = example_with_gpus(
            2,
            tensorflow=replace(known, companions=tuple(Distribution(name, "1.0", folder) for name in names)),
            libraries=LibraryFacts(None, (), (), (library,), (), ()),
            device_nodes=DeviceNodeFacts((), (), network=("eth0",) if folder == "/a" else (), groups=("video",)),
        )
        return report(gpus=GPUS, facts=facts)

    missing = Library("libcudnn.so.9", None, "", None, None, None, None, "cannot open", {}, ())
    there = Library(
        "libcudnn.so.9", "/l/libcudnn.so.9", "RUNPATH", "/l/f", "libcudnn.so.9", "9.3.0", None, None, {}, ()
    )
    text = comparison.render(compared(moved("/a", missing), moved("/b", there)), "table", width=200, color=False)
    lines = [line.strip() for line in text.splitlines()]
    assert "keras location, numpy location, h5py location /a -> /b" in lines
    assert "libcudnn.so.9 version: new (9.3.0); also: path, source, file, own soname, error" in lines
    assert "network eth0: gone" in lines
