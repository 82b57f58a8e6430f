"""Reports as JSON: what is written is read back, and nothing else is read."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema
import msgspec
import pytest
from msgspec.structs import replace

from examples.facts import example_with_gpus
from gpudiag import catalogue, causes
from gpudiag.cli import describe
from gpudiag.cli.explain import explain
from gpudiag.comparison.reports import ComparedReport, compare
from gpudiag.errors import ReportError, UsageError
from gpudiag.fix import run
from gpudiag.model import codec, renamed
from gpudiag.model.diagnosis import Confidence, Diagnosis, RootCause, Stage
from gpudiag.model.facts import NvmlFacts
from gpudiag.model.report import Report, Verdict
from gpudiag.report import masking, render
from reports import GPUS, passed, report, row, sample

Plain = dict[str, Any]
REPORTS = Path(__file__).resolve().parents[2] / "reports"


def test_what_is_written_is_read_back() -> None:
    for written in (sample(), report()):
        assert codec.decode(codec.encode(written), "test") == written


@pytest.mark.parametrize("name", renamed.CAUSES)
def test_a_saved_cause_has_the_name_of_today(name: str) -> None:
    found = RootCause(name, Stage.DRIVER, Confidence.PROVED, "said", ("seen",), (run("do"),), "https://a.b")
    saved = replace(report(), diagnosis=Diagnosis(causes=(found,), folded=(found,)))
    loaded = codec.decode(codec.encode(saved), "test").diagnosis
    today = replace(found, cause_id=renamed.CAUSES[name])
    assert (loaded.causes, loaded.folded) == ((today,), (today,))


@pytest.mark.parametrize("name", sorted(renamed.REMOVED))
def test_a_saved_report_shows_a_cause_that_is_not_looked_for_any_more(name: str) -> None:
    cause = RootCause(name, Stage.PACKAGE, Confidence.LIKELY, "it is said", ("seen",), (run("do"),), "https://a.b")
    saved = codec.decode(codec.encode(replace(report(), diagnosis=Diagnosis(causes=(cause,)))), "test")
    assert causes.get(name) is None
    for format_ in ("table", "json", "markdown", "html", "github"):
        assert "it is said" in render(saved, format_, width=100, color=False), format_
    compared = compare(ComparedReport(saved, "old.json"), ComparedReport(report(), "new.json"))
    assert "it is said" in str(compared.changes)
    with pytest.raises(UsageError, match="earlier version"):
        explain.main([name], standalone_mode=False)


def test_the_text_is_for_people_and_tools_alike() -> None:
    text = codec.encode(sample())
    assert json.loads(text)["verdict"] == "FAIL"
    assert text.startswith('{\n  "schema_version": 2,\n')
    assert text.endswith("}\n")


@pytest.mark.parametrize("file", sorted(REPORTS.glob("*.json")), ids=lambda path: path.stem)
def test_a_report_of_today_is_read_straight_as_it_is_step_by_step(file: Path) -> None:
    content = file.read_bytes()
    straight = codec._of_today(content)
    if straight is None:
        with pytest.raises(ReportError, match="not a gpudiag report"):
            codec._of_any_version(content, str(file))
    else:
        assert straight == codec._of_any_version(content, str(file))


def plain() -> Plain:
    decoded: Plain = json.loads(codec.encode(sample()))
    return decoded


def edited(edit: Callable[[Plain], object]) -> str:
    report_ = plain()
    edit(report_)
    return json.dumps(report_)


def not_a_number(report_: Plain) -> None:
    report_["duration_s"] = float("nan")


WHOLE = codec.encode(sample())


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("", "not JSON, or cut short"),
        (WHOLE[: len(WHOLE) // 2], "not JSON, or cut short"),
        (WHOLE[:-3], "not JSON, or cut short"),
        (WHOLE + "}", "not JSON, or cut short"),
        (b"\xff\xfe\x00", "not JSON, or cut short"),
        (b'{"schema_version": "\xff"}', "not JSON, or cut short"),
        ("[" * 100_000, "not JSON, or cut short"),
        (edited(not_a_number), "not JSON, or cut short"),
        (WHOLE.replace("4.25", "Infinity"), "not JSON, or cut short"),
        ("[]", "not a gpudiag report"),
        ("7", "not a gpudiag report"),
        ('{"tests": 3}', "not a gpudiag report"),
        (edited(lambda it: it.update(schema_version=3)), "schema version 3; this gpudiag reads versions 1 and 2"),
        (edited(lambda it: it.update(schema_version=0)), r"gpudiag that wrote it \(0\.1\.0\)"),
        (edited(lambda it: it.update(schema_version="1")), "schema version '1'"),
        (edited(lambda it: it.update(extra=1)), "unknown field `extra`"),
        (edited(lambda it: it["rows"][0].update(extra=1)), r"unknown field `extra` - at `\$\.rows\[0\]`"),
        (edited(lambda it: it["rows"][0]["outcome"].update(reason="")), r"unknown field `reason`"),
        (edited(lambda it: it["facts"]["system"].update(shoe_size=46)), "unknown field `shoe_size`"),
        (edited(lambda it: it.pop("rows")), "missing required field `rows`"),
        (edited(lambda it: it.update(duration_s="4")), "Expected `float`, got `str`"),
        (edited(lambda it: it["gpus"][0].update(index="0")), "Expected `int`, got `str`"),
        (edited(lambda it: it.update(verdict="GREEN")), "Invalid enum value 'GREEN'"),
        (edited(lambda it: it["rows"][0]["outcome"].update(outcome="done")), "Invalid value 'done'"),
        (edited(lambda it: it["facts"]["nvml"].update(family="driver")), r"\$\.facts\.nvml"),
        (edited(lambda it: it.update(started_at="yesterday")), "is not a time in ISO 8601"),
        (edited(lambda it: it.update(duration_s=-1)), r"a negative duration - at `\$\.duration_s`"),
        (edited(lambda it: it["rows"][1].update(duration_s=-0.5)), r"a negative duration - at `\$\.rows\[1\]"),
        (edited(lambda it: it.update(signal=0)), "no signal has the number 0"),
        (edited(lambda it: it.update(signal=65)), "no signal has the number 65"),
        (edited(lambda it: it.update(verdict="PASS", exit_code=0)), r"says PASS \(exit 0\), but its rows say FAIL"),
        (edited(lambda it: it.update(exit_code=0)), r"says FAIL \(exit 0\), but its rows say FAIL \(exit 1\)"),
        (edited(lambda it: it["rows"].clear()), "but its rows say NOT VERIFIED"),
    ],
)
def test_what_is_no_report_is_refused(text: str | bytes, fault: str) -> None:
    with pytest.raises(ReportError, match=fault) as refused:
        codec.decode(text, "report.json")
    assert str(refused.value).startswith("report.json: ")


def nested(levels: int) -> Plain:
    reading: Plain = {}
    for _ in range(levels):
        reading = {"in": [reading]}
    return reading


def test_a_reading_is_no_deeper_than_what_works_on_it_can_go(tmp_path: Path) -> None:
    saved = tmp_path / "deep.json"
    saved.write_text(edited(lambda it: it["rows"][3].update(reading=nested(45))))
    loaded = codec.load(saved)
    masking.mask(loaded)
    describe.in_report(describe.explained(catalogue.get(loaded.rows[3].probe)), loaded, 80)
    saved.write_text(edited(lambda it: it["rows"][3].update(reading=nested(350))))
    with pytest.raises(ReportError, match="more than 100 levels"):
        codec.load(saved)


def test_a_small_file_takes_no_large_memory() -> None:
    text = edited(lambda it: it["rows"][3].update(reading={"in": "HERE"}))
    for values, most in (("[]", 1 << 20), ("1", 1 << 23)):
        with pytest.raises(ReportError, match="it holds too many values"):
            codec.decode(text.replace('"HERE"', f"[{','.join([values] * (most + 1))}]"), "many.json")
    log = ",[{" * 200_000
    assert codec.decode(edited(lambda it: it.update(lines=[log])), "log.json").lines == (log,)


@pytest.mark.parametrize("withheld", [True, False])
def test_a_verdict_that_an_older_gpudiag_reached_by_the_rows_is_brought_up_to_date(withheld: bool) -> None:
    facts, first = example_with_gpus(2 if withheld else 1), GPUS[:1]
    if withheld:
        facts = replace(facts, nvml=NvmlFacts("GPU 1: GPU is lost", None, None, facts.nvml_devices[:1]))
    now = report(row("discovery.logical_devices", passed(on=first)), gpus=first, facts=facts)
    saved = json.loads(codec.encode(now))
    del saved["withheld"]
    loaded = codec.decode(json.dumps({**saved, "verdict": "PASS", "exit_code": 0}), "old.json")
    assert loaded == now
    assert loaded.verdict is (Verdict.NOT_VERIFIED if withheld else Verdict.PASS)
    assert codec.decode(codec.encode(loaded), "again.json") == loaded
    with pytest.raises(ReportError, match="the file was edited"):
        codec.decode(json.dumps({**saved, "verdict": "FAIL", "exit_code": 1}), "edited.json")
    verdict, status = ("PASS", 0) if withheld else ("NOT VERIFIED", 5)
    with pytest.raises(ReportError, match="the file was edited"):
        codec.decode(json.dumps({**saved, "withheld": [], "verdict": verdict, "exit_code": status}), "edited.json")


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(ReportError, match=r"none\.json: cannot be read: No such file"):
        codec.load(tmp_path / "none.json")
    with pytest.raises(ReportError, match="cannot be read: it is not a regular file"):
        codec.load(tmp_path)
    with pytest.raises(ReportError, match="it is not a regular file"):
        codec.load(Path("/dev/zero"))
    large = tmp_path / "large.json"
    with large.open("wb") as sparse:
        sparse.truncate((64 << 20) + 1)
    with pytest.raises(ReportError, match=r"large\.json: not a report of gpudiag: it is larger than 64 MiB"):
        codec.load(large)
    binary = tmp_path / "core"
    binary.write_bytes(bytes(range(256)))
    with pytest.raises(ReportError, match="core: not JSON"):
        codec.load(binary)


def test_a_saved_report_loads(tmp_path: Path) -> None:
    saved = tmp_path / "report.json"
    saved.write_text(codec.encode(sample()))
    assert codec.load(saved) == sample()


VALIDATOR = jsonschema.Draft202012Validator(codec.schema())


def test_the_schema_holds_for_a_report() -> None:
    schema = json.loads(codec.schema_text())
    jsonschema.Draft202012Validator.check_schema(schema)
    VALIDATOR.validate(plain())
    assert schema["$schema"] == jsonschema.Draft202012Validator.META_SCHEMA["$id"]


def test_the_schema_is_that_of_one_version() -> None:
    with pytest.raises(jsonschema.ValidationError, match="2 was expected"):
        VALIDATOR.validate({**plain(), "schema_version": 3})


@pytest.mark.parametrize(
    "edit",
    [
        lambda it: it.update(extra=1),
        lambda it: it.update(duration_s="4"),
        lambda it: it.pop("rows"),
        lambda it: it.update(verdict="GREEN"),
        lambda it: it["rows"][0]["outcome"].update(outcome="done"),
        lambda it: it["rows"][0]["outcome"].update(extra=1),
        lambda it: it["facts"]["nvml"]["devices"][0].pop("uuid"),
    ],
)
def test_the_schema_refuses_what_the_decoder_refuses(edit: Callable[[Plain], object]) -> None:
    broken = plain()
    edit(broken)
    with pytest.raises(jsonschema.ValidationError):
        VALIDATOR.validate(broken)
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert(broken, Report)


def test_threads_read_their_first_reports_at_the_same_time() -> None:
    """With msgspec 0.22 such a process ended by SIGSEGV."""
    program = """
import sys, threading
from pathlib import Path
from gpudiag.model import codec
sys.setswitchinterval(1e-5)
start, content = threading.Barrier(3), Path(sys.argv[1]).read_bytes()
def read():
    start.wait()
    verdict = codec.decode(content, "report").verdict.value
    sys.stdout.write(f"{verdict}\\n")  # print() writes the end of a line by itself, and another thread may come between
threads = [threading.Thread(target=read) for _ in range(3)]
for thread in threads: thread.start()
for thread in threads: thread.join()
"""
    saved = Path(__file__).resolve().parents[2] / "reports" / "healthy.json"
    done = subprocess.run([sys.executable, "-c", program, str(saved)], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout.split()) == (0, ["PASS"] * 3)
