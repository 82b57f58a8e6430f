"""Files of reports, read by one process or by several."""

from __future__ import annotations

import os
import sys
import threading
from io import BytesIO
from pathlib import Path
from types import SimpleNamespace

import pytest
from fleets import answer, framed, healthy, unfit
from msgspec import to_builtins
from msgspec.structs import replace

from examples.facts import example_gpu, example_with_gpus
from gpudiag.errors import ReportError, UsageError
from gpudiag.fleet import sources
from gpudiag.fleet.nodes import NodeTable
from gpudiag.fleet.sources import Source
from gpudiag.fleet.summary import summarized
from gpudiag.model import frame
from gpudiag.model.codec import encoded
from gpudiag.model.facts import NvmlFacts
from gpudiag.model.fleet import Answer, NodeVerdict, NoReport
from gpudiag.model.report import conclude

pytestmark = pytest.mark.starts


def folder_of(path: Path, number: int) -> Path:
    """Return a folder of reports, of which one is broken and one twice there."""
    path.mkdir()
    good, bad = encoded(healthy()), encoded(unfit())
    for node in range(number):
        (path / f"n{node}.json").write_bytes(bad if node % 10 == 0 else good)
    (path / "n7.json").write_text("{")
    (path / "again").mkdir()
    (path / "again/n8.json").write_bytes(bad)
    return path


def of_lines(monkeypatch: pytest.MonkeyPatch, text: str) -> list[Answer]:
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=BytesIO(text.encode())))
    return read(Path("-"))


@pytest.mark.parametrize("before", ["n7: ", "n7:", "n7 ", "n7 : ", "  n7: a banner: ", "n7: FAIL mask_hides_all: "])
def test_the_name_of_a_node_stands_before_its_line(before: str, monkeypatch: pytest.MonkeyPatch) -> None:
    text = f"n8: a log that names gpudiag-report 1 of 2\nmotd\n{before}{framed(healthy())}"
    (found,) = of_lines(monkeypatch, text)
    assert (found.node, found.reason) == ("n7", None)


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        (framed(healthy()), "has no name of a node before it"),
        (f"-x: {framed(healthy())}", "has no name of a node before it"),
        ("", "has no report"),
        ("n7: gpudiag-report 1 of them was lost\n", "has no report"),
    ],
)
def test_lines_of_which_nothing_can_be_merged_are_refused(
    text: str, fault: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(ReportError, match=f"standard input: .*{fault}"):
        of_lines(monkeypatch, text)


def test_a_made_up_report_costs_its_own_row_alone(tmp_path: Path) -> None:
    (tmp_path / "good.json").write_bytes(encoded(healthy()))
    device = example_gpu(0)
    facts = example_with_gpus(2, nvml=NvmlFacts(None, "535", "12.2", (device,)))
    content = encoded(conclude(replace(healthy(), facts=facts)))
    number = f'"memory_total_bytes":{device.memory_total_bytes}'.encode()
    assert number in content
    (tmp_path / "huge.json").write_bytes(content.replace(number, b'"memory_total_bytes":1' + 400 * b"0"))
    found = {answer.node: answer for answer in read(tmp_path)}
    assert {node: answer.reason for node, answer in found.items()} == {
        "good": None,
        "huge": NoReport.NOT_A_REPORT,
    }
    assert found["huge"].last_line.startswith("gpudiag fails on this report: OverflowError: ")


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("indices", [-1]),
        ("indices", [1 << 40]),
        ("figures", {"memory": [1e300]}),
        ("facts", {f"fact {number}": "x" * 80 for number in range(2000)}),
    ],
)
def test_a_made_up_summary_costs_its_own_row_alone(field: str, value: object, monkeypatch: pytest.MonkeyPatch) -> None:
    summary = to_builtins(summarized(healthy())) | {field: value}
    lines = [frame.framed(encoded(one), frame.SUMMARY) for one in (summary, summarized(healthy()))]
    bad, good = of_lines(monkeypatch, "".join(f"n{number}: {line}" for number, line in enumerate(lines)))
    assert (bad.node, bad.reason) == ("n0", NoReport.OTHER_VERSION)
    assert "its summary " in bad.last_line
    assert (good.node, good.reason) == ("n1", None)


def test_what_nobody_knows_of_a_node_with_two_reports_is_forgotten() -> None:
    once = answer("n1", unfit())
    twice = Answer("n1", 1, NoReport.DUPLICATE, "two different reports are called n1")
    table = NodeTable.of(Source([answer("n0", healthy()), once, twice], (), "here"))
    assert [row.verdict for row in table.rows()] == [NodeVerdict.PASS, NodeVerdict.NO_REPORT]
    assert 1 not in {number for numbers in table.facts.values() for number in numbers}
    assert not any(table.labels.values())


def several_processors(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let files be read by two processes, also in a worker of xdist, which has threads."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1})
    monkeypatch.setattr(threading, "active_count", lambda: 1)


def read(path: Path) -> list[Answer]:
    return list(sources.read((path,)).answers)


def test_several_processes_read_what_one_reads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = folder_of(tmp_path / "reports", 250)
    monkeypatch.setattr(sources, "_FILES_OF_A_WORKER", 1 << 30)
    alone = read(folder)
    monkeypatch.setattr(sources, "_FILES_OF_A_WORKER", 100)
    several_processors(monkeypatch)
    assert read(folder) == alone
    assert len(alone) == 251
    reasons = {answer.node: answer.reason for answer in alone if answer.reason}
    assert reasons == {"n7": NoReport.NOT_A_REPORT, "n8": NoReport.DUPLICATE}


def test_a_process_that_is_killed_costs_no_report(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = folder_of(tmp_path / "reports", 250)
    several_processors(monkeypatch)
    alone, collector = sources._of_file, os.getpid()

    def is_killed(path: Path) -> Answer:
        if path.name == "n120.json" and os.getpid() != collector:
            os.kill(os.getpid(), 9)
        return alone(path)

    monkeypatch.setattr(sources, "_of_file", is_killed)
    found = read(folder)
    assert len(found) == 251
    assert len({answer.node for answer in found}) == 250


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("r1: n[1-3]\nr2: n[3-5]\n", "line 2 puts n3 into a second rack; the first is r1"),
        ("r1 n1\n", "line 1 is not 'RACK: NODES'"),
    ],
)
def test_a_file_of_racks_that_says_two_things_is_refused(text: str, fault: str, tmp_path: Path) -> None:
    (tmp_path / "racks").write_text("# racks\n\n" + text)
    with pytest.raises(UsageError, match=fault.replace("line 2", "line 4").replace("line 1", "line 3")):
        sources.racks_in(tmp_path / "racks")


def test_the_same_report_given_twice_is_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "n1.json").write_bytes(encoded(healthy()))
    assert [answer.reason for answer in read(tmp_path)] == [None]
    (tmp_path / "b/n1.json").write_bytes(encoded(unfit()))
    assert [answer.reason for answer in read(tmp_path)] == [None, NoReport.DUPLICATE]
    line = f"n1: {framed(healthy())}"
    assert [answer.reason for answer in of_lines(monkeypatch, line + line)] == [None]
