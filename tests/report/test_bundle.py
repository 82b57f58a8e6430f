"""Bundles: what is in them, what is left out, and zip files that nobody makes who means well."""

from __future__ import annotations

import contextlib
import io
import json
import re
import stat
import struct
import subprocess
import sys
import zipfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
from click.testing import CliRunner
from markdown_it import MarkdownIt

from gpudiag.cli import cli
from gpudiag.comparison.reports import ComparedReport
from gpudiag.errors import ReportError, UsageError
from gpudiag.model import archive, codec
from gpudiag.model.diagnosis import Bisection, BisectionOutcome, Diagnosis
from gpudiag.model.facts import SystemFacts
from gpudiag.model.reading import SavedReading
from gpudiag.model.report import Broken, NoReading, Report, Row
from gpudiag.report.bundle import packed, pasted
from gpudiag.report.masking import mask
from reports import hostile, passed, report, row, sample

REPORTS = Path(__file__).parents[2] / "reports"
GOOD = codec.load(REPORTS / "simulated-2x16GiB.json")


def contents(of: bytes) -> dict[str, str]:
    with zipfile.ZipFile(io.BytesIO(of)) as bundle:
        assert bundle.testzip() is None
        return {name: bundle.read(name).decode() for name in bundle.namelist()}


def test_a_bundle_has_what_a_bug_report_needs() -> None:
    files = contents(packed(sample()))
    assert codec.decode(files["report.json"], "bundle") == sample()
    assert files["report.txt"].startswith("gpudiag 0.1.0")
    assert files["report.md"].startswith("# gpudiag: FAIL")
    assert json.loads(files["facts.json"])["tensorflow"]
    assert "tensorflow  2.21.0" in files["versions.txt"]
    assert "Segmentation fault" in files["logs/visibility.list_invalid_GPU_0-1.log"]
    assert "NOT MASKED" in files["README.txt"]
    assert [name for name in files if name not in files["README.txt"]] == ["README.txt"]


def test_the_bisection_and_the_log_of_the_program_are_files() -> None:
    bisected = Diagnosis(bisection=Bisection(BisectionOutcome.NOT_THE_ENVIRONMENT, tried=3))
    of = msgspec.structs.replace(sample(), lines=("one", "two"), diagnosis=bisected)
    assert contents(packed(of))["logs/program.log"] == "one\ntwo\n"
    assert json.loads(contents(packed(of))["bisection.json"])["tried"] == 3


def test_the_same_report_gives_the_same_bytes() -> None:
    assert packed(mask(GOOD), GOOD) == packed(mask(GOOD), GOOD)
    with zipfile.ZipFile(io.BytesIO(packed(GOOD))) as bundle:
        assert {member.date_time for member in bundle.infolist()} == {(1980, 1, 1, 0, 0, 0)}
        assert bundle.namelist() == sorted(bundle.namelist())


def test_what_was_masked_is_listed_without_what_it_was() -> None:
    system = GOOD.facts.system
    assert isinstance(system, SystemFacts)
    system = msgspec.structs.replace(system, hostname="kanari-vogel", user="zeisig", home="/home/zeisig")
    of = msgspec.structs.replace(
        sample(),
        facts=msgspec.structs.replace(sample().facts, system=system),
        lines=("/home/zeisig/run.py on kanari-vogel", "zwitscher"),
    )
    files = contents(packed(mask(of), of))
    for text in files.values():
        for word in ("kanari", "zeisig", "zwitscher"):
            assert word not in text
    assert "masked in facts.system: " in files["left-out.txt"]
    assert "masked in lines: " in files["left-out.txt"]
    assert "left-out.txt" in files["README.txt"]
    assert "NOT MASKED" not in files["README.txt"]


@pytest.mark.parametrize("name", ["trace", "diagnosis-library"])
def test_a_bundle_of_a_program_or_of_a_broken_machine_opens(name: str) -> None:
    of = codec.load(REPORTS / f"{name}.json")
    opened = codec.decode(archive.report_in(packed(of), "b", 1 << 24), "b")
    assert (opened.verdict, opened.exit_code, opened.rows) == (of.verdict, of.exit_code, of.rows)


def test_a_large_report_is_cut_and_says_so() -> None:
    lines = tuple(f"{number} {'x' * 3000}" for number in range(3000))
    large = Row("memory.growth", (), passed("large"), 1.0, reading=SavedReading(values=list(range(30_000))), log=lines)
    files = contents(packed(report(large, row("memory.bfc", passed("small")))))
    kept = codec.decode(files["report.json"], "bundle")
    assert (len(kept.rows[0].log), kept.rows[0].reading) == (2000, None)
    assert kept.rows[0].log[-1].startswith("2999 ")
    assert "1 large reading" in files["left-out.txt"]
    assert sum(map(len, files.values())) < 8 << 20


def test_hostile_texts_become_harmless_files() -> None:
    files = contents(packed(hostile()))
    for name, text in files.items():
        assert name.isascii()
        assert ".." not in name
        assert "\x1b" not in text
    assert archive.report_in(packed(hostile()), "b", 1 << 20)


LOG = tuple(map(str, range(9000)))
LARGE = report(*(Row(f"memory.p{n}", (), Broken(NoReading.NO_RESULT, "died"), 1.0, log=LOG) for n in range(40)))


@pytest.mark.parametrize(
    "of", [*(codec.load(REPORTS / f"{name}.json") for name in ("trace", "eight-gpus")), sample(), hostile(), LARGE]
)
def test_a_text_for_an_issue_is_blocks_of_text_and_folds_alone(of: Report) -> None:
    text = pasted(of)
    assert len(text) <= 60_000
    kinds = Counter(token.type for token in MarkdownIt().parse(text))
    assert kinds.keys() == {"fence", "html_block"}
    assert kinds["html_block"] == 2 * (kinds["fence"] - 1)
    folds = [token.content for token in MarkdownIt().parse(text) if token.type == "html_block"]
    assert all(re.fullmatch(r"<details><summary>[\w ./-]+</summary>\n|</details>\n", fold) for fold in folds)


def test_a_text_for_an_issue_keeps_the_end_of_each_log_and_says_how_much_is_left_out() -> None:
    text = pasted(LARGE)
    assert text.count("\n8999\n```") == text.count("<summary>logs/") == 20
    assert "20 logs of 40: the report as JSON has them" in text
    first = re.search(r"logs/.*?\[(\d+) lines left out: .*?\]\n(\d+)\n", text, re.DOTALL)
    assert first is not None
    assert first[1] == first[2]


def test_a_text_for_an_issue_is_masked_and_goes_to_standard_output_alone(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "gpudiag", "bundle", "--paste", "--", "host.environment", "-q"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    assert next(token.type for token in MarkdownIt().parse(done.stdout)) == "fence"
    assert sys.executable not in done.stdout
    assert "masked" in done.stderr
    assert "written to" not in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_a_bundle_of_a_check_shows_its_screen(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "gpudiag", "bundle", "-o", "b.zip", "--", "host.environment"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    assert re.search(r"^NOT VERIFIED · 1 passed ", done.stdout, re.MULTILINE), done.stdout
    assert done.stderr.rstrip().endswith("To open it: gpudiag show b.zip")
    assert codec.load(tmp_path / "b.zip").rows[0].probe == "host.environment"


def test_every_command_that_reads_a_report_reads_a_bundle(tmp_path: Path) -> None:
    file = tmp_path / "b.zip"
    runner = CliRunner()
    saved = str(REPORTS / "simulated-2x16GiB.json")
    assert runner.invoke(cli, ["bundle", "--from", saved, "-o", str(file)], standalone_mode=False).return_value == 0
    shown = runner.invoke(cli, ["show", str(file)], standalone_mode=False)
    assert shown.stdout == runner.invoke(cli, ["show", saved], standalone_mode=False).stdout
    assert ComparedReport.load(file).report == mask(GOOD)
    assert ComparedReport.load(file).plain["nvml"]["driver_version"] == "560.35.05"


def test_options_of_a_run_that_does_not_happen_are_refused() -> None:
    done = CliRunner().invoke(cli, ["bundle", "--from", "r.json", "--", "--level", "quick"], standalone_mode=False)
    assert isinstance(done.exception, UsageError)
    assert "--level quick" in str(done.exception)


def zipped(*members: tuple[str | zipfile.ZipInfo, bytes], compression: int = zipfile.ZIP_DEFLATED) -> bytes:
    written = io.BytesIO()
    with zipfile.ZipFile(written, "w", compression) as bundle:
        for name, content in members:
            bundle.writestr(name, content)
    return written.getvalue()


def link() -> zipfile.ZipInfo:
    member = zipfile.ZipInfo("report.json")
    member.external_attr = (stat.S_IFLNK | 0o777) << 16
    return member


def with_field(content: bytes, at: int, value: int, form: str, header: bytes = b"PK\x01\x02") -> bytes:
    """Return a zip file with a field of the first header of a kind changed."""
    place = content.index(header) + at
    return content[:place] + struct.pack(form, value) + content[place + struct.calcsize(form) :]


REPORT = ("report.json", codec.encode(report()).encode())
WHOLE = zipped(REPORT)
BAD: dict[str, tuple[Callable[[], bytes], str]] = {
    "a path upwards": (lambda: zipped(REPORT, ("logs/../../x", b"")), "leads out of a folder"),
    "an absolute path": (lambda: zipped(REPORT, ("/etc/x", b"")), "leads out of a folder"),
    "a path of Windows": (lambda: zipped(REPORT, ("..\\x", b"")), "leads out of a folder"),
    "a drive": (lambda: zipped(REPORT, ("C:/x", b"")), "leads out of a folder"),
    "a link": (lambda: zipped((link(), b"/etc/passwd")), "is a link"),
    "encrypted": (lambda: with_field(WHOLE, 8, 1, "<H"), "is encrypted"),
    "another compression": (lambda: zipped(REPORT, compression=zipfile.ZIP_LZMA), "compressed in a way"),
    "claims too much": (lambda: with_field(WHOLE, 24, 0xFFFFFFF0, "<L"), "unpacks to more than 256 MiB"),
    "a report too large": (lambda: with_field(WHOLE, 24, 65 << 20, "<L"), "its report is larger than 64 MiB"),
    "claims too little": (lambda: with_field(WHOLE, 24, 10, "<L"), "damaged or cut short"),
    "too many files": (
        lambda: with_field(WHOLE, 10, 2000, "<H", b"PK\x05\x06"),
        "more than 1000 files",
    ),
    "a large directory": (lambda: with_field(WHOLE, 12, 1 << 30, "<L", b"PK\x05\x06"), "more than 1000 files"),
    "cut in half": (lambda: WHOLE[: len(WHOLE) // 2], "its end is missing"),
    "its middle is gone": (lambda: WHOLE[:60] + WHOLE[200:], "damaged or cut short"),
    "no report": (lambda: zipped(("x", b"")), "it has 0 report.json"),
    "empty": (zipped, "it has 0 report.json"),
    "not a report": (lambda: zipped(("report.json", b"[1]")), "JSON, but not a gpudiag report"),
}


@pytest.mark.parametrize("name", BAD)
def test_a_bad_zip_file_is_refused_and_nothing_is_written(name: str, tmp_path: Path) -> None:
    make, said = BAD[name]
    file = tmp_path / "b.zip"
    file.write_bytes(make())
    with pytest.raises(ReportError) as refused:
        codec.load(file)
    assert str(refused.value).startswith(f"{file}: ")
    assert said in str(refused.value)
    assert list(tmp_path.iterdir()) == [file]


@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_two_reports_in_one_bundle_are_refused() -> None:
    with pytest.raises(ReportError, match=r"it has 2 report\.json"):
        archive.report_in(zipped(REPORT, REPORT), "b.zip", 1 << 20)


def test_no_damage_of_one_byte_ends_in_anything_but_a_sentence() -> None:
    for at in range(0, len(WHOLE), 7):
        damaged = WHOLE[:at] + bytes([WHOLE[at] ^ 0xFF]) + WHOLE[at + 1 :]
        with contextlib.suppress(ReportError):
            codec.decode(archive.report_in(damaged, "b.zip", 1 << 20), "b.zip")
