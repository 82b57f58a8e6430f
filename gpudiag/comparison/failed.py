"""Chooses what ``gpudiag check --failed`` runs: the probes that have not passed since they failed.

Each report that is kept has the failures of earlier runs that it did not run again (``Report.earlier``), so that a run
of a few probes makes no failure forgotten.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime, timezone
from typing import NamedTuple

import msgspec

from gpudiag.errors import UsageError
from gpudiag.model.expectations import AREA as EXPECT
from gpudiag.model.report import Report, Row, Severity
from gpudiag.probes import listing
from gpudiag.report.changes import ago
from gpudiag.run.why import PROBES as FOR_DIAGNOSIS
from gpudiag.text import counted

_PASSED = ("pass", "note")


class Selection(NamedTuple):
    """The probes of a run with ``--failed``, and a note for its report that says why they were chosen."""

    names: tuple[str, ...]
    note: str


def not_passed(report: Report, failing: Iterable[Severity] = ()) -> dict[str, str]:
    """Return the probes that did not pass in a run, or in one before and not since, each with its status then.

    A run that ended with status 0 has passed, whatever it skipped or warned of, unless a warning is one of ``failing``.
    """
    severities = {finding.severity for row in report.rows for finding in row.findings}
    passed = report.exit_code == 0 and severities.isdisjoint(failing)
    rows = () if passed else sorted(report.rows, key=lambda row: row.status != "skipped")  # what failed on a GPU counts
    statuses = {row.probe: row.status for row in rows if row.status not in _PASSED}
    return {probe: status for probe, status in statuses.items() if not probe.startswith(f"{EXPECT}.")} | (
        report.earlier or {}
    )


def with_earlier(report: Report, previous: Report) -> Report:
    """Return ``report`` with the probes that did not pass in ``previous``, and of which it says nothing new.

    They did not run again, or not on each GPU on which they did not pass and which the machine still has, or were
    skipped after they had failed. One that was skipped twice does not apply here.
    """
    named = {row.probe for row in report.rows}
    tried = _gpus(row for row in report.rows if row.status != "skipped")
    failed = _gpus(row for row in previous.rows if row.status not in (*_PASSED, "skipped"))
    there = {uuid for device in report.facts.nvml_devices for uuid in (device.uuid, *device.mig_uuids)}
    earlier, gpus = {}, {}
    for probe, status in not_passed(previous).items():
        left = {*failed.get(probe, ()), *previous.earlier_gpus.get(probe, ())} - tried.get(probe, set())
        left &= there or left
        if probe not in named or (status != "skipped" and (probe not in tried or left)):
            earlier[probe], gpus[probe] = status, tuple(sorted(left))
    return msgspec.structs.replace(report, earlier=earlier, earlier_gpus=gpus)


def _gpus(rows: Iterable[Row]) -> dict[str, set[str]]:
    """Return the UUIDs of the GPUs of each probe."""
    gpus: dict[str, set[str]] = {}
    for row in rows:
        gpus.setdefault(row.probe, set()).update(row.devices)
    return gpus


def select(last: Report, selected: Sequence[str], failing: Iterable[Severity], also: Sequence[str]) -> Selection:
    """Return the ``selected`` probes that have not passed since the run ``last``, and what a PASS needs beside them.

    These are the probes that the diagnosis needs, one of which verifies a kernel on each GPU, and those that ``also``
    chooses. Raises :class:`UsageError` if nothing failed.
    """
    run = f"the last run ({ago(last.started_at, datetime.now(timezone.utc))}, {last.verdict.value})"
    statuses = not_passed(last, failing)
    names = [name for name in statuses if name in selected]
    if not statuses and last.exit_code == 0:
        raise UsageError(f"nothing failed in {run}. Without --failed all probes run.")
    if statuses and not names and len(selected) < len(listing.names()):
        raise UsageError(f"no selected probe failed in {run}. These did not pass: {', '.join(statuses)}")
    gone = [name for name in statuses if name not in listing.names()]
    lost = f"; {', '.join(gone)} is not a probe of this gpudiag, but of {last.gpudiag_version}" if gone else ""
    note = f"--failed: {counted(len(names), 'probe')} without a pass since {run}, and what the diagnosis needs{lost}"
    chosen = {*names, *listing.chosen((*FOR_DIAGNOSIS, *also))}
    return Selection(tuple(name for name in listing.names() if name in chosen), note)
