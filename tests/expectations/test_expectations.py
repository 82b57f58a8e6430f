"""What a deployment expects: what is met, what is not, what is accepted, and files that cannot be meant."""

from __future__ import annotations

from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import Any

import msgspec
import pytest
from click.testing import CliRunner

from gpudiag import catalogue, configuration
from gpudiag import report as formats
from gpudiag.cli import cli
from gpudiag.errors import UsageError
from gpudiag.expectations import file, judging, writing
from gpudiag.expectations.keys import KEYS
from gpudiag.fix import note
from gpudiag.model import codec
from gpudiag.model.expectations import Expectations
from gpudiag.model.facts import NvmlFacts, Unknown
from gpudiag.model.report import Finding, Judged, Level, Limits, Report, Row, Severity, Verdict, World, conclude
from gpudiag.report import words
from reports import GPUS, MISSPELT, passed, report, row

REPORTS = Path(__file__).parents[2] / "reports"
GOOD = codec.load(REPORTS / "simulated-2x16GiB.json")
"""Two GPUs of 16 GiB, compute capability 8.0, driver 560.35.05; all probes passed in 172 s."""
DAY = date(2026, 6, 1)

WAIVER = {"finding": "host.environment.misspelt", "reason": "a leftover, OPS-1", "until": date(2026, 12, 31)}


def read(**table: Any) -> Expectations:
    return file.read({name.replace("_", "-"): value for name, value in table.items()}, "expected.toml")


def judged(of: Report, on: date = DAY, **table: Any) -> Report:
    """Return the report, judged; it is one that can be saved and loaded."""
    done = judging.judged(of, read(**table), on)
    assert codec.decode(codec.encode(done), "report") == done
    return done


def statuses(of: Report) -> dict[str, str]:
    return {row.name: row.status for row in of.rows if row.area == "expect"}


def with_devices(**changes: Any) -> Report:
    """Return the good report with this changed of its second GPU as NVML describes it."""
    nvml = GOOD.facts.nvml
    assert isinstance(nvml, NvmlFacts)
    first, second = nvml.devices
    second = msgspec.structs.replace(second, **changes)
    nvml = msgspec.structs.replace(nvml, devices=(first, second))
    return msgspec.structs.replace(GOOD, facts=msgspec.structs.replace(GOOD.facts, nvml=nvml))


def with_nvml(**changes: Any) -> Report:
    nvml = msgspec.structs.replace(GOOD.facts.nvml, **changes)
    return msgspec.structs.replace(GOOD, facts=msgspec.structs.replace(GOOD.facts, nvml=nvml))


MET: dict[str, Any] = {
    "gpus": 2,
    "models": ["Tesla*", "Simulated*"],
    "memory-total": "16GiB",
    "memory-free": "15.5GiB",
    "driver": ">=550,<570",
    "cuda": ">=12.4",
    "tensorflow": "==2.21.*",
    "python": ">=3.10",
    "compute-capability": ">=8.0",
    "mig": "disabled",
    "peer-access": True,
    "pcie-generation": 4,
    "pcie-width": 16,
    "must-pass": ["memory"],
    "time-budget": 200,
}
UNMET: dict[str, tuple[Any, str]] = {
    "gpus": (">=3", "2; expected: >=3"),
    "models": (["NVIDIA H200"], "Simulated GPU (GPU 0, GPU 1); expected: NVIDIA H200"),
    "memory-total": ("16385MiB", "16384 MiB (GPU 0, GPU 1); expected: at least 16385MiB"),
    "memory-free": ("16.5GiB", "16384 MiB (GPU 0, GPU 1); expected: at least 16.5GiB"),
    "driver": (">=570", "560.35.05; expected: >=570"),
    "cuda": (">=12.8", "12.6; expected: >=12.8"),
    "tensorflow": ("<2.21", "2.21.0 (tensorflow); expected: <2.21"),
    "python": (">=3.99", "expected: >=3.99"),
    "compute-capability": (">=9.0", "8.0 (GPU 0, GPU 1); expected: >=9.0"),
    "mig": (["9728MiB"], "disabled (GPU 0, GPU 1); expected: 9728MiB"),
    "pcie-generation": (5, "4 (GPU 0, GPU 1); expected: at least 5"),
    "pcie-width": (32, "16 (GPU 0, GPU 1); expected: at least 32"),
    "time-budget": (50.5, "52.6 s; expected: at most 50.5 s"),
}


def test_what_a_machine_is_is_met() -> None:
    done = judged(GOOD, **MET)
    assert done.verdict is Verdict.PASS
    assert statuses(done) == {key.name: "pass" for key in KEYS if not key.not_judged(GOOD)}


@pytest.mark.parametrize("key", UNMET)
def test_what_it_is_not_fails_with_what_was_seen_and_what_to_do(key: str) -> None:
    value, said = UNMET[key]
    done = judged(GOOD, **{key: value})
    assert (done.verdict, done.exit_code) == (Verdict.FAIL, 1)
    (found,) = done.rows[-1].findings
    assert (found.kind, found.severity) == ("not_met", Severity.FAIL)
    assert said in found.message
    assert "expected.toml" in words.advice(found)
    assert f"correct {key} in" in words.advice(found)


@pytest.mark.parametrize(
    ("of", "key", "value", "said"),
    [
        (with_devices(compute_capability="7.5"), "compute-capability", ">=8.0", "7.5 (GPU 1); expected"),
        (with_devices(memory_used_bytes=1 << 30), "memory-free", "16GiB", "15360 MiB (GPU 1); expected"),
        (with_nvml(peers={"0 1": "chipset not supported"}), "peer-access", True, "chipset not supported (GPU 0 and"),
        (
            with_devices(mig_mode="enabled", mig_uuids=("MIG-a", "MIG-b"), mig_memory_bytes=((1 << 30, 0),) * 2),
            "mig",
            ["1GiB", "2GiB"],
            "1024 MiB, 1024 MiB (GPU 1)",
        ),
    ],
)
def test_the_gpu_that_is_not_as_expected_is_named(of: Report, key: str, value: Any, said: str) -> None:
    assert said in judged(of, **{key: value}).rows[-1].findings[0].message


def test_a_mig_layout_is_the_sizes_of_its_instances() -> None:
    instances: dict[str, Any] = {"mig_mode": "enabled", "mig_uuids": ("MIG-a", "MIG-b")}
    of = with_devices(**instances, mig_memory_bytes=((1 << 30, 0), (2 << 30, 0)))
    alone = msgspec.structs.replace(of, gpus=of.gpus[1:])
    assert statuses(judged(alone, mig=["2GiB", "1GiB"])) == {"mig": "pass"}


def test_what_is_not_known_is_never_green() -> None:
    facts = msgspec.structs.replace(GOOD.facts, nvml=Unknown("no answer"), driver=Unknown("no answer"))
    done = judged(msgspec.structs.replace(GOOD, facts=facts), driver=">=1", memory_free="1GiB", peer_access=True)
    assert statuses(done) == dict.fromkeys(("driver", "memory-free", "peer-access"), "fail")
    assert {found.kind for row in done.rows for found in row.findings} == {"not_known"}
    nobody = judged(msgspec.structs.replace(GOOD, gpus=()), models=["*"])
    assert statuses(nobody) == {"models": "fail"}


def test_simulated_gpus_count_as_for_require_gpus() -> None:
    uncounted = msgspec.structs.replace(GOOD, limits=Limits())
    assert statuses(judged(uncounted, gpus=2)) == {"gpus": "fail"}


def test_a_skipped_or_missing_probe_has_not_passed() -> None:
    few = msgspec.structs.replace(GOOD, rows=GOOD.rows[:3])
    done = judged(few, must_pass=["memory", few.rows[0].probe])
    assert "no row (memory); expected" in done.rows[-1].findings[0].message


def test_a_level_that_the_caller_chose_limits_what_is_judged() -> None:
    quick = msgspec.structs.replace(GOOD, level=Level("quick"))
    done = judged(quick, must_pass=["memory", GOOD.rows[0].probe])
    assert statuses(done) == {"must-pass": "note"}
    assert done.verdict is GOOD.verdict
    (note,) = done.rows[-1].findings
    assert note.figures["left_out"] == sum(not entry.probe.quick for entry in catalogue.select(["memory"]))
    assert "level quick does not run memory." in note.message
    nothing = judged(quick, must_pass=["memory.growth"])
    assert (statuses(nothing), words.figure(nothing.rows[-1])) == (
        {"must-pass": "note"},
        "1 probe not judged: level quick does not run memory.growth",
    )
    missing = judged(msgspec.structs.replace(quick, rows=()), must_pass=["discovery.trace", "memory.growth"])
    assert statuses(missing) == {"must-pass": "fail"}
    # Nobody has agreed to the level that gpudiag chose by itself.
    chosen = msgspec.structs.replace(GOOD, rows=GOOD.rows[:1], level=Level("quick", "GPU 0 is used by process 7"))
    assert statuses(judged(chosen, must_pass=["memory.growth"])) == {"must-pass": "fail"}


def test_an_accepted_finding_is_a_note_until_its_day() -> None:
    found = report(row("host.environment", passed("", MISSPELT)), row("memory.growth", passed(on=GPUS)), gpus=GPUS)
    strict = msgspec.structs.replace(found, limits=Limits(strict=True))
    accepted = judged(strict, accept=[WAIVER])
    assert (conclude(strict).verdict, accepted.verdict) == (Verdict.FAIL, Verdict.PASS)
    (finding,) = accepted.rows[0].findings
    assert finding.severity is Severity.NOTE
    assert finding.accepted is not None
    assert (finding.accepted.severity, finding.accepted.until) == (Severity.WARNING, date(2026, 12, 31))
    for format_ in set(formats.FORMATS) - {"prometheus"}:  # it has the day as a number
        shown = formats.render(accepted, format_, width=200, color=False)
        assert "until 2026-12-31" in shown.replace("&#45;", "-") or '"until": "2026-12-31"' in shown, format_
    assert judged(strict, on=date(2026, 12, 31), accept=[WAIVER]).verdict is Verdict.PASS
    late = judged(accepted, on=date(2027, 1, 1), accept=[WAIVER])
    assert late.rows[0].findings == (MISSPELT,), "as it was found"
    assert late.verdict is Verdict.FAIL
    assert [finding.kind for finding in late.rows[-1].findings] == ["expired"]


def test_a_waiver_verifies_nothing_and_one_that_matches_nothing_is_named() -> None:
    unverified = report(row("host.environment", passed("", MISSPELT)), gpus=GPUS)
    done = judged(unverified, accept=[WAIVER, WAIVER | {"finding": "host.driver.call_slow"}])
    assert done.verdict is Verdict.NOT_VERIFIED
    assert [finding.kind for finding in done.rows[-1].findings] == ["unused"]
    assert "1 of 2 waivers in use" in done.rows[-1].outcome.figure  # type: ignore[union-attr]


def test_an_expectation_itself_can_be_waived() -> None:
    done = judged(GOOD, driver=">=570", accept=[WAIVER | {"finding": "expect.driver.not_met"}])
    assert done.verdict is Verdict.PASS
    assert statuses(done) == {"driver": "note", "accept": "pass"}


def test_judging_by_other_expectations_leaves_nothing_of_the_first() -> None:
    again = judged(judged(GOOD, driver=">=570"), gpus=2)
    assert statuses(again) == {"gpus": "pass"}


@pytest.mark.parametrize(
    ("table", "said"),
    [
        ({"drivr": ">=550"}, "unknown key 'drivr'. Did you mean 'driver'?"),
        ({"driver": 550}, 'in quotes, such as ">=550" or ">=2.19,<2.22"; it is 550.'),
        ({"driver": "550"}, 'driver = "550" cannot be met: it is not a range of versions. Write a range'),
        ({"driver": ">=1," * 100}, "it has more than 200 letters"),
        ({"driver": ""}, 'driver = "" cannot be met: it is empty'),
        ({"driver": ">=560,<550"}, 'driver = ">=560,<550" cannot be met: no version is in this range'),
        ({"driver": ">550,<=550"}, "no version is in this range"),
        ({"tensorflow": "==2.20.*,!=2.20.*"}, "no version is in this range"),
        ({"tensorflow": "===2.20"}, "=== compares letters"),
        ({"gpus": 0}, "gpus = 0 cannot be met: a machine has 1 to"),
        ({"gpus": True}, 'or a range in quotes, such as ">=4"; it is true.'),
        ({"gpus": "<1"}, "no number of GPUs is in this range"),
        ({"memory-free": "79"}, "'79' has no unit"),
        ({"memory-free": "lots"}, "'lots' is not a size"),
        ({"memory-free": 79}, "'memory-free' must be an amount of memory in quotes"),
        ({"models": "H200"}, "'models' must be a list of names"),
        ({"models": []}, "models = [] cannot be met: it is empty"),
        ({"models": [1]}, "it is [1]"),
        ({"mig": "on"}, 'mig = "on" cannot be met'),
        ({"peer-access": False}, "peer-access = false cannot be met: false expects nothing"),
        ({"pcie-width": 64}, "it is not between 1 and 32"),
        ({"must-pass": ["memroy"]}, "Did you mean 'memory'"),
        ({"time-budget": 0}, "it is not above 0"),
        ({"time-budget": float("inf")}, "it is not above 0"),
        ({"tflops-float16": 600}, 'must be bounds in quotes, such as ">=600": >=, >, <= or <, and a number in TFLOP/s'),
        ({"tflops-float16": ">=600GB/s"}, "'600GB/s' is not a number in TFLOP/s"),
        ({"tflops-float61": ">=600"}, "Did you mean 'tflops-float16' or"),
        ({"host-to-device": "20GB/s"}, "'20GB/s' does not begin with >=, >, <= or <"),
        ({"host-to-device": ">=20"}, "'20' is not in GB/s"),
        ({"host-to-device": ">=20GiB/s"}, "'20GiB/s' is not in GB/s"),
        ({"host-to-device": ">=20GB/s,<=10GB/s"}, "no number is within these bounds"),
        ({"slowest-to-median": ">=95%"}, "'95%' is not a number without a unit"),
        ({"slowest-to-median": ">=nan"}, "'nan' is not a number without a unit"),
        ({"accept": "all"}, "'accept' must be tables: write [[accept]]; it is \"all\"."),
        ({"accept": [{**WAIVER, "untill": 1}]}, "accept 1: unknown key 'untill'. Did you mean 'until'?"),
        ({"accept": [{**WAIVER, "reason": " "}]}, "accept 1: 'reason' must be a sentence"),
        ({"accept": [{"finding": "host.driver.call_slow", "reason": "x"}]}, "'until' must be a date without quotes"),
        ({"accept": [{**WAIVER, "until": "2027-01-31"}]}, 'it is "2027-01-31"'),
        ({"accept": [{**WAIVER, "finding": "host.driver.call_slo"}]}, "Did you mean 'host.driver.call_slow'"),
        ({}, "expects nothing. Write a key, such as gpus = 4"),
    ],
)  # fmt: skip
def test_a_bad_file_is_refused_with_key_value_and_what_to_write(table: dict[str, Any], said: str) -> None:
    with pytest.raises(UsageError) as refused:
        file.read(table, "expected.toml")
    assert str(refused.value).startswith("expected.toml: ")
    assert said in str(refused.value)


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("e.toml", "gpus = ", "e.toml: not TOML"),
        ("e.toml", "gpsu = 4", "Did you mean 'gpus'?"),
        ("gpudiag.toml", "strict = true", "gpudiag.toml: has no table [expect]"),
        ("pyproject.toml", "[tool.gpudiag]\nexpect = 4", "'expect' must be a table: [tool.gpudiag.expect]"),
    ],
)  # fmt: skip
def test_the_command_line_refuses_it_before_anything_runs(name: str, content: str, said: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text(content)
    done = CliRunner().invoke(cli, ["show", str(REPORTS / "cpu-only.json"), "--expect", str(tmp_path / name)])
    assert isinstance(done.exception, UsageError)
    assert said in str(done.exception)
    assert done.stdout == ""


def test_a_table_of_the_configuration_file_is_read(tmp_path: Path) -> None:
    project = tmp_path / "pyproject.toml"
    project.write_text('[tool.gpudiag]\nstrict = true\n[tool.gpudiag.expect]\ndriver = ">=1"\n')
    assert configuration.expectations(project, named=False) == {"driver": ">=1"}
    project.write_text("[tool.other]\n")
    assert configuration.expectations(project, named=False) is None


def test_what_is_written_from_a_good_machine_is_met_by_it_and_has_every_key(tmp_path: Path) -> None:
    written = tmp_path / "expected.toml"
    written.write_text(writing.from_report(GOOD, "good.json"))
    assert written.read_text().isascii()
    table = configuration.expectations(written, named=True)
    assert table is not None
    assert list(table) == [key.name for key in KEYS if not key.not_judged(GOOD)]
    assert judging.judged(GOOD, file.read(table, "e"), DAY).verdict is Verdict.PASS


def test_warnings_of_a_good_machine_are_written_as_waivers_to_fill_in() -> None:
    warned = report(row("host.environment", passed("", MISSPELT)), row("memory.growth", passed(on=GPUS)), gpus=GPUS)
    text = writing.from_report(warned, "good.json")
    assert '# finding = "host.environment.misspelt"' in text
    assert 'must-pass = [\n    "memory.growth",\n]' in text


@pytest.mark.parametrize("name", ["cpu-only", "diagnosis-mask", "trace"])
def test_nothing_is_written_from_a_machine_without_a_pass(name: str) -> None:
    with pytest.raises(UsageError, match=r"good.json: .*gpudiag check -o report.json"):
        writing.from_report(codec.load(REPORTS / f"{name}.json"), "good.json")


def test_a_hostile_name_is_written_as_a_text(tmp_path: Path) -> None:
    name = 'H"200\n]\x7f\u202e'
    gpus = tuple(msgspec.structs.replace(gpu, name=name) for gpu in GOOD.gpus)
    (tmp_path / "e.toml").write_text(writing.from_report(msgspec.structs.replace(GOOD, gpus=gpus), "r"))
    table = configuration.expectations(tmp_path / "e.toml", named=True)
    assert table is not None
    assert table["models"] == [name]


def test_show_ends_as_a_gate_does_if_it_is_one(tmp_path: Path) -> None:
    (tmp_path / "e.toml").write_text("gpus = 3\n")
    saved = str(REPORTS / "simulated-2x16GiB.json")
    runner = CliRunner()
    assert runner.invoke(cli, ["show", saved], standalone_mode=False).return_value == 0
    done = runner.invoke(cli, ["show", saved, "--expect", str(tmp_path / "e.toml")], standalone_mode=False)
    assert done.return_value == 1
    assert "gpudiag check expect" not in done.stdout, "no such probe can be run"


def test_a_report_of_a_program_has_no_machine() -> None:
    with pytest.raises(UsageError, match="not about a machine"):
        judging.judged(codec.load(REPORTS / "trace.json"), read(gpus=1), DAY)


def test_accepting_changes_one_finding_and_no_other() -> None:
    other = Finding("other", Severity.FAIL, "other", (note("do"),))
    of = report(row("host.environment", passed("", MISSPELT, other)), world=World(simulated=False))
    (first, *_) = judged(of, accept=[WAIVER]).rows
    assert isinstance(first, Row)
    assert isinstance(first.outcome, Judged)
    assert [finding.accepted is not None for finding in first.findings] == [True, False]
    assert first.status == "fail"


def test_a_bug_in_an_expectation_breaks_its_own_row(monkeypatch: pytest.MonkeyPatch) -> None:
    (key,) = [known for known in KEYS if known.name == "driver"]

    def fails(*_: Any) -> Any:
        raise RuntimeError("a bug")

    monkeypatch.setattr(judging, "KEYS", (replace(key, seen=fails), *(known for known in KEYS if known is not key)))
    done = judged(GOOD, driver=">=1", gpus=2)
    assert statuses(done) == {"driver": "broken", "gpus": "pass"}
    assert done.verdict is Verdict.BROKEN


@pytest.mark.parametrize("key", [*(key.name for key in KEYS), "accept"])
def test_explain_knows_every_row(key: str) -> None:
    done = CliRunner().invoke(cli, ["explain", f"expect.{key}"], standalone_mode=False)
    assert done.stdout.startswith(f"expect.{key}: ")
    refused = CliRunner().invoke(cli, ["explain", f"expect.{key}x"], standalone_mode=False).exception
    assert isinstance(refused, UsageError)
