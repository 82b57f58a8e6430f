"""Reports of schema 1: their lines become actions, and say the same as before."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from gpudiag.errors import ReportError
from gpudiag.fix import Action, Kind, Role, Where
from gpudiag.model import codec
from gpudiag.model.reading import SavedReading
from gpudiag.model.report import Judged, Row
from gpudiag.model.schema_1 import action, advice, upgraded
from gpudiag.report import words
from reports import fix_line, fix_lines, report

SAVED = Path(__file__).parents[1] / "data" / "report-v1.json"


def old(**fields: Any) -> dict[str, Any]:
    saved: dict[str, Any] = json.loads(SAVED.read_text())
    assert saved["schema_version"] == 1
    return saved | fields


def cause(*fix: str, trial: dict[str, Any] | None = None) -> dict[str, Any]:
    return {
        "rule": "mask_hides_all",
        "stage": "cuInit",
        "sure": "proved",
        "cause": "a mask",
        "evidence": ["seen"],
        "fix": list(fix),
        "url": "https://example.org",
        "trial": trial,
    }


@pytest.mark.parametrize(
    ("line", "read"),
    [
        ("unset A B", Action("unset A B", kind=Kind.SET_VARIABLE, change={"A": None, "B": None})),
        (
            "export A='x y'  # or: chooses one",
            Action("export A='x y'", "chooses one", Role.ALTERNATIVE, kind=Kind.SET_VARIABLE, change={"A": "x y"}),
        ),
        ("export A=/x:$A", Action("export A=/x:$A", kind=Kind.SET_VARIABLE)),
        ("export A='x", Action("export A='x", kind=Kind.SET_VARIABLE)),
        ("# look at the log", Action(note="look at the log", role=Role.NOTE)),
        ("nvidia-smi  # on the host", Action("nvidia-smi", "", Role.CHECK, Where.HOST)),
        ("sudo reboot", Action("sudo reboot", kind=Kind.REBOOT)),
        ("pip install 'a<2'", Action("pip install 'a<2'", kind=Kind.INSTALL)),
        ("import os", Action("import os", where=Where.PROGRAM, kind=Kind.EDIT_PROGRAM)),
    ],
)
def test_a_line_is_an_action(line: str, read: Action) -> None:
    assert action(line) == read
    assert fix_line(read) == line.replace("or: ", "")


@pytest.mark.parametrize(
    ("line", "of"),
    [
        ("sudo reboot", Kind.REBOOT),
        ("sudo apt install nvidia-driver-580  # of this distribution; then reboot", Kind.REBOOT),
        ("sudo apt install nvidia-driver-580  # on the host", Kind.CHANGE_DRIVER),
        ("sudo nvidia-smi --gpu-reset -i 0", Kind.RESET_GPU),
        ("sudo rmmod nvidia_uvm && sudo modprobe nvidia_uvm", Kind.RELOAD_DRIVER),
        ("pip uninstall -y tensorflow-metal", Kind.REMOVE),
        ("sudo apt purge libnvidia-compute-535 && sudo apt autoremove", Kind.REMOVE),
        ("kill 4711  # if nobody waits for it", Kind.END_PROCESS),
        ("pip cache purge; conda clean --all  # gives some back", Kind.COMMAND),
        ("sudo dmesg | grep -i -e 'out of memory' -e oom-kill", Kind.NONE),
        ("docker run --rm --gpus all ubuntu nvidia-smi", Kind.START_CONTAINER),
        ("mokutil --sb-state; sudo dmesg | tail", Kind.COMMAND),
        ("sudo systemctl enable --now nvidia-persistenced  # or: the same, also after a reboot", Kind.COMMAND),
        ("export CUDA_VISIBLE_DEVICES=0", Kind.SET_VARIABLE),
    ],
)
def test_what_a_line_does_is_known(line: str, of: Kind) -> None:
    assert action(line).kind is of


def test_the_line_that_was_tried_has_its_change() -> None:
    trial = {"change": {"A": None}, "outcome": "works", "detail": "", "line": "unset A  # it hides"}
    saved = upgraded(old(diagnosis={"causes": [cause("look", "unset A  # it hides", trial=trial)]}))
    (read,) = codec.decode(json.dumps(saved), "saved").diagnosis.causes
    assert fix_lines(read) == ("look", "unset A  # it hides")
    assert read.trial is not None
    assert [action.change for action in read.fix] == [None, read.trial.change]
    assert words.Line("tried", "the command above, here: works") in words.cause(read)


@pytest.mark.parametrize(
    ("text", "named"),
    [("Do this, or that.", ""), ("See the cause a_b: unset X", "a_b"), ("", "")],
)
def test_an_advice_is_a_fix(text: str, named: str) -> None:
    found = {"kind": "k", "severity": "warning", "message": "m", "advice": text}
    row = {
        "probe": "host.gpus",
        "devices": [],
        "outcome": {"outcome": "judged", "findings": [found]},
        "duration_s": 0.0,
    }
    saved = old(rows=[*old()["rows"], row])
    last = codec.decode(json.dumps(saved), "saved").rows[-1].findings[0]
    assert (words.advice(last), last.cause) == (text, named)


def test_what_was_accepted_keeps_its_advice() -> None:
    accepted = {"reason": "it is slow: known", "until": "2030-01-01", "severity": "fail", "advice": "Mend it."}
    said = "Accepted until 2030-01-01 by a b.toml: it is slow: known"
    found = {"kind": "k", "severity": "note", "message": "m", "advice": said, "accepted": accepted}
    row = {
        "probe": "host.gpus",
        "devices": [],
        "outcome": {"outcome": "judged", "findings": [found]},
        "duration_s": 0.0,
    }
    last = codec.decode(json.dumps(old(rows=[*old()["rows"], row])), "saved").rows[-1].findings[0]
    assert words.advice(last) == said
    assert last.fix == advice("Mend it.")


@pytest.mark.parametrize(
    "fields",
    [
        {"rows": 5},
        {"rows": [5]},
        {"rows": [{"outcome": {"findings": [{"advice": 5}]}}]},
        {"diagnosis": []},
        {"diagnosis": {"causes": [{"fix": "unset A"}]}},
        {"diagnosis": {"bisection": 5}},
        {"diagnosis": {"causes": [cause("a", trial={"change": 5, "line": 5})]}},
    ],
)
def test_a_malformed_report_of_schema_1_is_refused(fields: dict[str, Any]) -> None:
    with pytest.raises(ReportError, match="malformed"):
        codec.decode(json.dumps(old(**fields)), "saved")


def test_a_saved_report_is_written_as_today() -> None:
    read = codec.load(SAVED)
    assert codec.decode(codec.encode(read), "again") == read


@pytest.mark.parametrize(
    ("reading", "expected"),
    [
        ({"pci_bus_id": "0000:01:00.0", "pool": None}, {"given": ["0000:01:00.0"], "seen": 0, "pool": None}),
        (
            {"replicas": {"given": ["a", "b"], "devices": {}}, "seen": 2},
            {"given": ["a", "b"], "devices": {}, "seen": 2},
        ),
        ({"given": ["a", "b"], "seen": True}, {"given": ["a", "b"], "seen": 2}),
        ({"given": 1, "run": {"seen": 1}}, {"given": [""], "run": {"seen": 1}, "seen": 1}),
        ({"given": ["a"], "seen": 1, "operation_raised": "x"}, {"given": ["a"], "seen": 1, "operation_raised": "x"}),
    ],
)
def test_the_reading_of_a_gpu_probe_is_upgraded_where_the_report_is_read(
    reading: dict[str, Any], expected: dict[str, Any]
) -> None:
    plain = json.loads(codec.encode(report(Row("memory.growth", ("GPU-1",), Judged(), 0.0, SavedReading(reading)))))
    assert codec.decode(json.dumps(plain), "of today").rows[0].reading == SavedReading(reading)
    plain["schema_version"] = 1
    assert codec.decode(json.dumps(plain), "of schema 1").rows[0].reading == SavedReading(expected)
    plain["rows"][0]["devices"] = []
    assert codec.decode(json.dumps(plain), "on the host").rows[0].reading == SavedReading(reading)
