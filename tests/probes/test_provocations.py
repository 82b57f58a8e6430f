"""Every probe finds something when it is provoked; see :mod:`provocations`."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import msgspec
import pytest

from conftest import Gpudiag
from gpudiag import catalogue
from gpudiag.cause import Evidence
from gpudiag.model import codec
from gpudiag.model.facts import Facts
from gpudiag.model.reading import SavedReading
from gpudiag.model.report import Judged, Limits, Row
from gpudiag.model.visibility import gpus_in_scope
from gpudiag.probe import NOTHING_BESIDE, Beside
from gpudiag.run import views
from gpudiag.run.diagnosis import diagnose
from provocations import Altered, AlteredFacts, OnMachine, machines, table
from voice import checked, contradictions

RECORDED = Path(__file__).parents[1] / "recorded" / "2x16GiB"
TABLE = table()


@cache
def recorded(name: str) -> Any:
    path = RECORDED / f"{name}.json"
    assert path.exists(), f"{path} is not there: run scripts/record.py {name}"
    return json.loads(path.read_bytes())


def put(reading: Any, path: str, value: Any) -> None:
    """Put ``value`` in the place of what stands at ``path``."""
    last: Any
    *way, last = (int(step) if step.isdigit() else step for step in path.split("."))
    for step in way:
        reading = reading[step]
    if isinstance(reading, list) or last in reading:
        assert reading[last] != value, f"{path} is {value!r} already"
    reading[last] = value


def judged(
    probe: str, change: dict[str, Any], facts: dict[str, Any], beside: Callable[[Any], Beside] | None = None
) -> Judged:
    """Judge the recorded reading, and the recorded facts, with these changes; ``beside`` makes the rest of the run."""
    entry = catalogue.get(probe)
    plain = None if entry.reading is None else SavedReading(copy.deepcopy(recorded(probe)))
    for path, value in change.items():
        put(plain, path, value)
    reading = None if plain is None else entry.decode(plain)
    return views.judge(entry, reading, facts_with(facts), Limits(), beside(reading) if beside else NOTHING_BESIDE)


def facts_with(change: dict[str, Any]) -> Facts:
    """Return the recorded facts with these changes."""
    plain = copy.deepcopy(recorded("facts"))
    for path, value in change.items():
        put(plain, path, value)
    return msgspec.convert(plain, Facts)


def test_every_probe_is_provoked() -> None:
    assert {entry.name for entry in catalogue.entries()} - {provocation.probe for provocation in TABLE} == set()


@pytest.mark.parametrize("altered", [provocation for provocation in TABLE if isinstance(provocation, Altered)], ids=str)
def test_an_altered_reading_is_found_out(altered: Altered) -> None:
    found = judged(altered.probe, altered.change, altered.facts, altered.beside)
    assert {finding.kind for finding in found.findings} == altered.kinds
    assert found.figure
    assert all(finding.message for finding in found.findings)
    if any(not finding.fix for finding in found.findings):  # then a cause has it
        facts = facts_with(altered.facts)
        gpus = gpus_in_scope(facts)
        row = Row(altered.probe, tuple(gpu.uuid for gpu in gpus), found, 0.0)
        assert any(cause.fix for cause in diagnose(Evidence(facts, gpus, (row,))).causes)


@pytest.mark.parametrize("provocation", [entry for entry in TABLE if isinstance(entry, AlteredFacts)], ids=str)
def test_altered_facts_are_found_out(provocation: AlteredFacts) -> None:
    assert judged(provocation.probe, {}, {}).findings == ()
    assert provocation.kind in {finding.kind for finding in judged(provocation.probe, {}, provocation.change).findings}
    facts = facts_with(provocation.change)
    assert contradictions(*checked(Evidence(facts, gpus_in_scope(facts)))) == []


SHOWN = {
    (provocation.probe, kind) for provocation in TABLE if isinstance(provocation, Altered) for kind in provocation.kinds
}
MACHINES = [
    pytest.param(
        wanted,
        id=str(wanted[0]),
        marks=[pytest.mark.slow]
        if all((provocation.probe, provocation.kind) in SHOWN for provocation in wanted)
        else [],
    )
    for wanted in machines()
]
"""Where an altered reading shows all that is found, the machine need not be checked by default."""


@pytest.mark.usefixtures("no_child_left")
@pytest.mark.parametrize("wanted", MACHINES)
def test_a_machine_is_found_out(wanted: tuple[OnMachine, ...], gpudiag: Gpudiag) -> None:
    machine = wanted[0]  # the machine is the same for all
    arguments = [*gpudiag.simulated(machine.machine, machine.faults), *machine.options]
    if machine.prepare is not None:
        machine.prepare(gpudiag)
    probes = dict.fromkeys(provoked.probe for provoked in wanted)
    done = gpudiag("check", *probes, *arguments, "--format", "json", flags=(), **machine.variables)
    assert done.returncode in {0, 1, 3, 5}, done.stderr  # 5: found, and no probe ran a kernel
    report = codec.decode(done.stdout, "standard output")
    assert contradictions(report.rows, report.diagnosis) == []
    rows = report.rows
    found = {(row.probe, finding.kind) for row in rows for finding in row.findings}
    assert {(provoked.probe, provoked.kind) for provoked in wanted} <= found, [row.outcome for row in rows]
