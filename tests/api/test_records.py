"""The records of the Python interface: shown, saved, loaded and compared. Nothing is started."""

from __future__ import annotations

import copy
import html
import json
import pickle
import re
from pathlib import Path

import pytest

import gpudiag
import notebook
from gpudiag.api import Report
from gpudiag.model import codec
from gpudiag.report import FORMATS, suffix_of
from gpudiag.run.why import explained

REPORTS = Path(__file__).resolve().parents[2] / "reports"


@pytest.fixture(scope="module")
def report() -> gpudiag.Report:
    return gpudiag.load(REPORTS / "diagnosis-library.json")


def test_a_report_is_short_in_a_prompt_and_whole_when_printed(report: gpudiag.Report) -> None:
    assert re.fullmatch(r"<gpudiag\.Report simulated: FAIL, .*libcudnn\.so\.9.*, 2 GPUs, \d+ pass, .*>", repr(report))
    assert len(repr(report)) < 200
    assert str(report).splitlines()[-1].startswith("FAIL · ")
    assert report.verdict == "FAIL"
    assert report.causes[0].fix[0].command
    assert {row.status for row in report.rows} >= {"pass", "fail"}


def test_a_report_on_a_log_says_nothing_of_a_machine() -> None:
    of_log = Report.of(explained(("failed call to cuInit: CUDA_ERROR_NO_DEVICE: no CUDA-capable",), ()))
    assert repr(of_log).startswith("<gpudiag.Report: The log shows what is likely why: CUDA shows the program no GPU")
    last = str(of_log).splitlines()[-1]
    assert last.startswith("1 cause · ")
    assert last.endswith(" · exit 1")


def test_a_report_is_saved_in_every_format_and_loaded_again(report: gpudiag.Report, tmp_path: Path) -> None:
    for format_ in FORMATS:
        suffix = suffix_of(format_)
        path = tmp_path / f"report{suffix or '.other'}"
        report.save(path, format=None if suffix else format_)
        assert path.read_text(encoding="utf-8") == report.render(format_)
    assert gpudiag.load(tmp_path / "report.json") == report
    assert gpudiag.load(str(tmp_path / "report.json")) == report
    assert pickle.loads(pickle.dumps(report)) == report
    assert copy.copy(report).to_json() == report.to_json()
    assert codec.decode(report.to_json(), "text") != report  # a class without these methods


def test_a_masked_report_is_that_of_the_command(tmp_path: Path) -> None:
    secret = "/home/alice/secret-project/bin/python"
    plain = json.loads(gpudiag.load(REPORTS / "healthy.json").to_json())
    plain["command"] = ["gpudiag", "check", "--config", secret]
    (tmp_path / "report.json").write_text(json.dumps(plain))
    report = gpudiag.load(tmp_path / "report.json")
    assert "secret-project" in report.to_json()
    assert "secret-project" not in report.to_json(mask=True)
    report.save(tmp_path / "masked.json", mask=True)
    assert "secret-project" not in (tmp_path / "masked.json").read_text()


def test_a_notebook_shows_the_page_in_a_frame(report: gpudiag.Report) -> None:
    shown = report._repr_html_()
    (source,) = re.findall(r'<iframe [^>]*srcdoc="([^"]*)"', shown)
    assert html.unescape(source) == report.render("html")
    without_frames = re.sub(r"<iframe.*</iframe>", "", shown, flags=re.DOTALL)
    assert "libcudnn.so.9" in without_frames  # what GitHub shows


def test_in_a_notebook_rendering_displays_nothing(report: gpudiag.Report, monkeypatch: pytest.MonkeyPatch) -> None:
    def display(*_: object) -> None:
        raise AssertionError("rich displayed what was only rendered")

    monkeypatch.setattr("rich.console._is_jupyter", lambda: True)
    monkeypatch.setattr("rich.jupyter.display", display)
    assert "FAIL" in report.render("table")


def test_reports_are_compared_in_memory_and_from_files(report: gpudiag.Report, tmp_path: Path) -> None:
    healthy = REPORTS / "healthy.json"
    for old in (healthy, str(healthy), gpudiag.load(healthy)):
        changed = gpudiag.diff(old, report)
        assert {change.subject.value for change in changed.worse} >= {"verdict", "cause"}
    assert repr(changed).startswith("<gpudiag.Comparison: Worse: the verdict")
    assert json.loads(changed.to_json())["new"]["source"] == " ".join(report.command)
    assert repr(gpudiag.diff(report, report)) == "<gpudiag.Comparison: Nothing has changed.>"
    for suffix in (".txt", ".json", ".md", ".html"):
        changed.save(tmp_path / f"diff{suffix}")
        assert (tmp_path / f"diff{suffix}").stat().st_size > 100
    assert "<iframe" in changed._repr_html_()


def test_what_cannot_be_read_or_written_is_an_error_of_gpudiag(report: gpudiag.Report, tmp_path: Path) -> None:
    with pytest.raises(gpudiag.ReportError, match=r"nothing\.json: cannot be read"):
        gpudiag.load(tmp_path / "nothing.json")
    with pytest.raises(gpudiag.UsageError, match=r"write \.txt, \.json"):
        report.save(tmp_path / "report.pdf")
    with pytest.raises(gpudiag.UsageError, match=r"a comparison has no format for this suffix"):
        gpudiag.diff(report, report).save(tmp_path / "diff.prom")
    with pytest.raises(gpudiag.UsageError, match="Did you mean 'summary'"):
        report.render("sumary")
    with pytest.raises(gpudiag.OutputError, match="there is no folder"):
        report.save(tmp_path / "nowhere" / "report.json")


def test_the_sample_is_what_its_script_runs_and_no_cell_failed() -> None:
    sample = json.loads(notebook.SAMPLE.read_text(encoding="utf-8"))
    assert [(cell["cell_type"], "".join(cell["source"])) for cell in sample["cells"]] == notebook.cells()
    kinds = [output["output_type"] for cell in sample["cells"] for output in cell.get("outputs", ())]
    assert "error" not in kinds
    assert set(kinds) == {"execute_result", "stream"}
