"""Every probe finds something when it is provoked; see :mod:`provocations`."""

from __future__ import annotations

import copy
from functools import cache
from pathlib import Path
from typing import Any

import msgspec
import pytest

from conftest import Gpudiag
from gpudiag import catalogue, codec
from gpudiag.hostfacts import Facts
from gpudiag.model import Report
from provocations import Altered, AlteredFacts, OnMachine, machines, table

RECORDED = Path(__file__).parents[2] / "reports" / "simulated-2x16GiB.json"
TABLE = table()


@cache
def recorded() -> Report:
    return codec.load(RECORDED)


def reading_of(probe: str) -> dict[str, Any]:
    """Return the first reading of ``probe`` in the recorded report; where it is absent, record the report anew."""
    for row in recorded().rows:
        if row.probe == probe and row.reading is not None:
            return copy.deepcopy(row.reading)
    raise AssertionError(f"{RECORDED} holds no reading of {probe}: make it anew, see scripts/docs.py")


def put(reading: Any, path: str, value: Any) -> None:
    """Replace what stands at ``path``, which must be there."""
    *way, last = (int(step) if step.isdigit() else step for step in path.split("."))
    for step in way:
        reading = reading[step]
    assert reading[last] != value, f"{path} is {value!r} already"
    reading[last] = value


def test_every_probe_is_provoked() -> None:
    assert {entry.name for entry in catalogue.entries()} - {one.probe for one in TABLE} == set()


@pytest.mark.parametrize("one", [one for one in TABLE if isinstance(one, Altered)], ids=str)
def test_an_altered_reading_is_found_out(one: Altered) -> None:
    entry = catalogue.get(one.probe)
    reading = reading_of(one.probe)
    facts, limits = recorded().facts, recorded().limits
    assert entry.judge(reading, facts, limits).findings == ()
    for path, value in one.change.items():
        put(reading, path, value)
    assert one.kind in {finding.kind for finding in entry.judge(reading, facts, limits).findings}


@pytest.mark.parametrize("one", [one for one in TABLE if isinstance(one, AlteredFacts)], ids=str)
def test_altered_facts_are_found_out(one: AlteredFacts) -> None:
    entry = catalogue.get(one.probe)
    reading = None if entry.reading is None else reading_of(one.probe)
    facts, limits = recorded().facts, recorded().limits
    assert entry.judge(reading, facts, limits).findings == ()
    plain = msgspec.to_builtins(facts)
    for path, value in one.change.items():
        put(plain, path, value)
    altered = msgspec.convert(plain, Facts)
    assert one.kind in {finding.kind for finding in entry.judge(reading, altered, limits).findings}


@pytest.mark.usefixtures("no_child_left")
@pytest.mark.parametrize("wanted", machines(), ids=lambda wanted: str(wanted[0]))
def test_a_machine_is_found_out(wanted: tuple[OnMachine, ...], gpudiag: Gpudiag) -> None:
    one = wanted[0]  # the machine is the same for all
    arguments = [*gpudiag.simulated(one.machine, one.faults), *one.options]
    if one.prepare is not None:
        one.prepare(gpudiag)
    probes = dict.fromkeys(provoked.probe for provoked in wanted)
    done = gpudiag("check", *probes, *arguments, "--format", "json", flags=(), **one.variables)
    assert done.returncode in {0, 1, 3, 5}, done.stderr  # 5: found, and no probe ran a kernel
    rows = codec.decode(done.stdout, "standard output").rows
    found = {(row.probe, finding.kind) for row in rows for finding in row.findings}
    assert {(provoked.probe, provoked.kind) for provoked in wanted} <= found, [row.outcome for row in rows]
