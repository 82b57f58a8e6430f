"""Every probe notices a TensorFlow, or a driver, that does not do what the probe says; see :mod:`sabotages`."""

from __future__ import annotations

import pytest

from conftest import Gpudiag
from gpudiag import catalogue
from gpudiag.model import codec
from gpudiag.model.report import Broken
from sabotages import Sabotage, rounds, table

WITHOUT = {"libraries.xla": "simulated GPUs cannot run what XLA compiled, and it is skipped on them"}
"""Probes that no sabotage reaches here, and why."""


FOR = ("--for", "8")
"""For how long the probes of level stress run."""


def test_every_probe_that_measures_is_sabotaged() -> None:
    measuring = {entry.name for entry in catalogue.entries() if entry.reading is not None}
    assert measuring - {sabotage.probe for sabotage in table()} == WITHOUT.keys()


def test_the_findings_are_those_of_the_probes() -> None:
    known = {entry.name: {kind.name for kind in entry.kinds} for entry in catalogue.entries()}
    assert [str(sabotage) for sabotage in table() if sabotage.finds not in known[sabotage.probe]] == []


ROUNDS = [
    pytest.param(
        together,
        id=f"{len(together)} probes on {together[0].machine}",
        marks=[pytest.mark.slow] if sum(other[0].machine == together[0].machine for other in rounds()[:number]) else [],
    )
    for number, together in enumerate(rounds())
]
"""The first of each machine has a sabotage of each probe."""


@pytest.mark.usefixtures("no_child_left")
@pytest.mark.parametrize("sabotages", ROUNDS)
def test_a_sabotage_is_noticed(sabotages: tuple[Sabotage, ...], gpudiag: Gpudiag) -> None:
    gpudiag.sabotages = {sabotage.probe: sabotage.alteration for sabotage in sabotages}
    time = FOR if any(sabotage.probe.startswith("load.") for sabotage in sabotages) else ()
    done = gpudiag("check", *gpudiag.sabotages, *gpudiag.simulated(sabotages[0].machine), *time, "--format", "json")
    report = codec.decode(done.stdout, "standard output")
    missed = {}
    for sabotage in sabotages:
        rows = [row for row in report.rows if row.probe == sabotage.probe]
        kinds = [finding.kind for row in rows for finding in row.findings]
        if sabotage.finds not in kinds or any(isinstance(row.outcome, Broken) for row in rows):
            missed[str(sabotage)] = kinds or [str(row.outcome) for row in rows]
    assert missed == {}
