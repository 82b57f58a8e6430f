"""Lists what a run did not verify: rows without a result, parts that rows left out, probes that did not run or do not
exist."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from gpudiag import catalogue
from gpudiag.knowledge.abilities import ABILITIES, MEMORY
from gpudiag.model.report import Broken, Gap, Interrupted, Judged, Report, Row, Skipped
from gpudiag.probe import MOST_SAMPLED
from gpudiag.probes import listing
from gpudiag.text import counted

_BY_PROBE = {ability.probe: ability.what for ability in ABILITIES if ability.probe}


def with_gaps(report: Report) -> Report:
    """Return ``report`` with its gaps; a report without GPUs or rows gets none."""
    known = report.gpus and report.rows
    return msgspec.structs.replace(report, not_verified=tuple(_gaps(report)) if known else None)


def _gaps(report: Report) -> Iterator[Gap]:
    rows: dict[Gap, Row] = {}
    for row in report.rows:
        for gap in _of_row(report, row):
            devices = rows[gap].devices if gap in rows else ()
            rows[gap] = msgspec.structs.replace(row, devices=(*devices, *row.devices))
    for gap, row in rows.items():
        everywhere = {gpu.uuid for gpu in report.gpus} <= {*row.devices}
        yield msgspec.structs.replace(gap, where="" if everywhere else report.device_label(row))
    yield from _of_samples(report)
    yield from _of_absent_probes(report)
    yield from (Gap(ability.what, "no probe runs it") for ability in ABILITIES if not ability.probe)


def _of_row(report: Report, row: Row) -> Iterator[Gap]:
    """Yield the parts that a row did not verify; equal gaps of several GPUs become one."""
    match row.outcome:
        case Judged(gaps=gaps):
            yield from (msgspec.structs.replace(gap, probe=row.probe) for gap in gaps)
        case Skipped(reason=why) | Interrupted(detail=why):
            yield Gap(_name(report, row.probe), why, probe=row.probe)
        case Broken(cause=cause, detail=detail):
            yield Gap(_name(report, row.probe), f"{cause.value}: {detail}", probe=row.probe)


def _of_samples(report: Report) -> Iterator[Gap]:
    """Yield the probes that ran on a sample of the GPUs; probes that left out the same GPUs are one gap."""
    names: dict[tuple[str, ...], list[str]] = {}
    sampled = {entry.name for entry in catalogue.entries() if entry.probe.sampled}
    for probe in dict.fromkeys(row.probe for row in report.rows if row.probe in sampled):
        gpu_uuids = {uuid for row in report.rows if row.probe == probe for uuid in row.devices}
        left_out = tuple(gpu.uuid for gpu in report.gpus if gpu.uuid not in gpu_uuids)
        if gpu_uuids and left_out:
            names.setdefault(left_out, []).append(probe)
    for left_out, probes in names.items():
        row = next(row for row in report.rows if row.probe == probes[0])
        where = report.device_label(msgspec.structs.replace(row, devices=left_out))
        yield Gap(", ".join(probes), f"with more than {MOST_SAMPLED} GPUs, only a sample of them runs it", where)


def _of_absent_probes(report: Report) -> Iterator[Gap]:
    """Yield what absent probes would verify: a probe with a description by itself, the others together by area."""
    ran = {row.probe for row in report.rows}
    areas: dict[tuple[str, str], list[str]] = {}
    for entry in catalogue.entries():
        if entry.name in ran:
            continue
        if listing.matches(entry.name, report.skip):
            why = "left out by --skip"
        elif entry.probe.stress and report.level.name != "stress":
            why = "only at --level stress"
        else:
            why = "level quick" if report.level.name == "quick" and not entry.probe.quick else "not selected"
        if entry.name in _BY_PROBE:
            yield Gap(_name(report, entry.name), why, probe=entry.name)
        else:
            areas.setdefault((entry.area, why), []).append(entry.name)
    for (area, why), names in areas.items():
        yield Gap(f"{counted(len(names), 'other probe')} of {area}", why)


def _name(report: Report, probe: str) -> str:
    """Return the description of what a probe verifies, or else its name."""
    return _memory(report) if probe == MEMORY else _BY_PROBE.get(probe, probe)


def _memory(report: Report) -> str:
    """Return the memory that no probe has used: everything above the highest requirement of a probe that ran."""
    ran = {row.probe for row in report.rows if isinstance(row.outcome, Judged)}
    most = max((entry.probe.needs.free_bytes for entry in catalogue.entries() if entry.name in ran), default=0)
    return f"memory above {most >> 20} MiB" if most else "memory"
