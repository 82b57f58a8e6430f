"""Files of reports, read by one process or by several."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest
from fleets import healthy, unfit

from gpudiag.fleet import sources
from gpudiag.model.codec import encoded
from gpudiag.model.fleet import Answer, NoReport

pytestmark = pytest.mark.starts


def folder_of(path: Path, number: int) -> Path:
    """Return a folder of reports, of which one is broken and one twice there."""
    path.mkdir()
    good, bad = encoded(healthy()), encoded(unfit())
    for node in range(number):
        (path / f"n{node}.json").write_bytes(bad if node % 10 == 0 else good)
    (path / "n7.json").write_text("{")
    (path / "again").mkdir()
    (path / "again/n8.json").write_bytes(good)
    return path


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
