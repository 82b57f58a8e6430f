"""The comparison of two reports, and what counts as worse.

Worse is, from the older report to the newer one:

- a verdict further down in :data:`VERDICTS`;
- a GPU that is no longer in scope;
- a cause that the diagnosis did not find before;
- an outcome of the same probe on the same GPU further down in :data:`OUTCOMES`;
- a finding of severity warning or fail that the same probe did not make on the same GPU;
- a GPU that is slower under load, by the rule by which it is compared with others (:mod:`gpudiag.comparison.rates`).

A change of the facts is not worse by itself, nor is a probe that did not run in one of the two.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, TypeAlias

import msgspec

from gpudiag.comparison import facts
from gpudiag.model import codec
from gpudiag.model.change import Change, ChangeSubject, ReportComparison, Side
from gpudiag.model.diagnosis import RootCause, Stage
from gpudiag.model.report import Gpu, Report, Row, Severity, Verdict
from gpudiag.record import Record

VERDICTS = (Verdict.PASS, Verdict.NOT_VERIFIED, Verdict.BROKEN, Verdict.FAIL)
"""The verdicts from best to worst: the order of the exit statuses, reversed."""

OUTCOMES = {"pass": 0, "note": 0, "skipped": 1, "interrupted": 1, "warning": 2, "broken": 3, "fail": 4}
"""The outcomes from best to worst: a skipped probe that passed before shows less, and one that warns now shows a
fault."""

_WORSENING = (Severity.WARNING, Severity.FAIL)

_VARIABLE = "environment.variables["
_PYTHON = ("tensorflow.", "system.python", "system.executable", "system.prefix", f"{_VARIABLE}PYTHON")
_DRIVER = ("driver.", "nvml.", "system.kernel", "libraries.libraries[libcuda.so", "device_nodes.", "container.")
_LIBRARIES = ("libraries.", f"{_VARIABLE}LD_", f"{_VARIABLE}CUDA_HOME", f"{_VARIABLE}CUDA_PATH", "tensorflow.")
_MASK = (f"{_VARIABLE}CUDA_", f"{_VARIABLE}NVIDIA_", "nvml.devices", "container.")
_SETTINGS = (f"{_VARIABLE}TF_", f"{_VARIABLE}XLA_", f"{_VARIABLE}CUDA_")

_Places: TypeAlias = dict[tuple[str, ...], tuple[str, Row]]
"""The rows of a report with their names, by probe and GPUs."""

EXPLAINS: dict[Stage | None, tuple[str, ...]] = {
    Stage.PACKAGE: _PYTHON,
    Stage.BUILD: ("tensorflow.", *_PYTHON),
    Stage.RUNTIME_LIBRARY: (*_LIBRARIES, *_PYTHON),
    Stage.DRIVER_LIBRARY: (f"{_VARIABLE}LD_", *_DRIVER),
    Stage.DRIVER: (*_DRIVER, *_MASK, f"{_VARIABLE}LD_"),
    Stage.NVML: _DRIVER,
    Stage.DEVICE_COUNT: (*_MASK, *_DRIVER),
    Stage.LIBRARIES: _LIBRARIES,
    Stage.DEVICE_FILTER: (*_SETTINGS, *_MASK, "tensorflow.build"),
    Stage.CONTEXT: ("nvml.devices", *_DRIVER, *_SETTINGS),
    Stage.MEMORY: ("nvml.devices", *_SETTINGS),
    Stage.FIRST_OP: (*_LIBRARIES, *_SETTINGS, *_DRIVER),
    Stage.CONFIGURATION: (*_SETTINGS, *_MASK),
    Stage.PROGRAM: (),
    None: (*_DRIVER, *_MASK, *_SETTINGS, *_LIBRARIES, *_PYTHON),
}
"""Prefixes of facts that can explain why a stage fails, the likeliest first; None: no stage failed."""


class ComparedReport(Record):
    """A report, and the JSON of its facts; None for a report that was not loaded from a file."""

    report: Report
    source: str
    plain: Any = None

    @classmethod
    def load(cls, path: Path) -> ComparedReport:
        """Return the report at ``path``; raises :class:`gpudiag.errors.ReportError`, as ``codec.load`` does."""
        content = codec.content_of(path)
        return cls(codec.decode(content, str(path)), str(path), msgspec.json.decode(content)["facts"])


def compare(old: ComparedReport, new: ComparedReport) -> ReportComparison:
    """Return what changed, each subject in the order of :class:`ChangeSubject`."""
    a, b = old.report, new.report
    found = [
        *_verdict(a, b),
        *_scope(a, b),
        *_causes(a, b),
        *_rows(a, b),
        *_rates(a, b, old.source),
        *_ranked([*facts.changes(a.facts, b.facts, old.plain, new.plain), *_machine(a, b)], b.diagnosis.broken_at),
    ]
    return ReportComparison(_side(old), _side(new), tuple(found))


def _rates(old: Report, new: Report, source: str) -> Iterator[Change]:
    if old.has_load and new.has_load:
        from gpudiag.comparison import rates

        yield from rates.changes(old, new, source)


def _side(known: ComparedReport) -> Side:
    report = known.report
    return Side(known.source, report.started_at, report.verdict.value, report.gpudiag_version)


def _verdict(old: Report, new: Report) -> Iterator[Change]:
    if old.verdict is not new.verdict:
        worse = VERDICTS.index(new.verdict) > VERDICTS.index(old.verdict)
        yield Change(ChangeSubject.VERDICT, "verdict", old.verdict.value, new.verdict.value, worse)


def _scope(old: Report, new: Report) -> Iterator[Change]:
    """Yield the GPUs that came into scope or left it; a replaced card in the same slot is a change of the facts."""
    before, after = ({gpu.pci_bus_id: gpu for gpu in report.gpus} for report in (old, new))
    same_card = {gpu.uuid for gpu in old.gpus} & {gpu.uuid for gpu in new.gpus}
    for pci in before:
        if pci not in after and before[pci].uuid not in same_card:
            yield Change(ChangeSubject.GPU, _gpu(before[pci]), "in scope", None, worse=True)
    for pci in after:
        if pci not in before and after[pci].uuid not in same_card:
            yield Change(ChangeSubject.GPU, _gpu(after[pci]), None, "in scope")


def _gpu(gpu: Gpu) -> str:
    return f"{gpu.name}, PCI {gpu.pci_bus_id}"


def _causes(old: Report, new: Report) -> Iterator[Change]:
    before, after = ([*report.diagnosis.causes, *report.diagnosis.folded] for report in (old, new))
    for cause in _beyond(after, before):
        yield Change(ChangeSubject.CAUSE, cause.cause_id, None, cause.cause, worse=True)
    for cause in _beyond(before, after):
        yield Change(ChangeSubject.CAUSE, cause.cause_id, cause.cause, None)


def _beyond(causes: Iterable[RootCause], others: Iterable[RootCause]) -> Iterator[RootCause]:
    """Yield the causes that ``others`` lacks or has less often; their figures may differ."""
    left = Counter(other.cause_id for other in others)
    for cause in causes:
        if left[cause.cause_id] == 0:
            yield cause
        left[cause.cause_id] = max(0, left[cause.cause_id] - 1)


def _rows(old: Report, new: Report) -> Iterator[Change]:
    before, after = _by_place(old), _by_place(new)
    for place, (label, row) in before.items():
        if place not in after and not _is_of_gpus(place, row, after):
            other = _skipped_everywhere(after, row.probe)
            if row.status != other:
                yield Change(ChangeSubject.OUTCOME, label, row.status, other)
    for place, (label, row) in after.items():
        if place in before:
            earlier = before[place][1]
            if OUTCOMES[earlier.status] != OUTCOMES[row.status]:
                worse = OUTCOMES[row.status] > OUTCOMES[earlier.status]
                yield Change(ChangeSubject.OUTCOME, label, earlier.status, row.status, worse)
            yield from _findings(label, earlier, row)
        elif not _is_of_gpus(place, row, before):
            other = _skipped_everywhere(before, row.probe)
            if row.status != other:
                yield Change(ChangeSubject.OUTCOME, label, other, row.status)


def _is_of_gpus(place: tuple[str, ...], row: Row, others: _Places) -> bool:
    """Return whether a row was skipped for lack of GPUs and the other report has rows of its probe on GPUs."""
    return row.status == "skipped" and len(place) == 1 and any(other[0] == row.probe for other in others)


def _skipped_everywhere(places: _Places, probe: str) -> str | None:
    """Return ``skipped`` if a report skipped a probe as a whole, on no GPU; None otherwise."""
    place = places.get((probe,))
    return "skipped" if place and place[1].status == "skipped" else None


def _findings(label: str, old: Row, new: Row) -> Iterator[Change]:
    before, after = ({finding.kind: finding for finding in row.findings} for row in (old, new))
    for kind, finding in after.items():
        if kind not in before:
            yield Change(
                ChangeSubject.FINDING, f"{label}: {kind}", None, finding.message, finding.severity in _WORSENING
            )
    for kind, finding in before.items():
        if kind not in after:
            yield Change(ChangeSubject.FINDING, f"{label}: {kind}", finding.message, None)


def _by_place(report: Report) -> _Places:
    """Return each row by its probe and the PCI bus ids of its GPUs, which stay where UUIDs are masked."""
    slots = {gpu.uuid: gpu.pci_bus_id for gpu in report.gpus}
    return {
        (row.probe, *sorted(slots.get(uuid, uuid) for uuid in row.devices)): (
            " ".join([row.probe, *([report.device_label(row)] if row.devices else [])]),
            row,
        )
        for row in report.rows
    }


def _machine(old: Report, new: Report) -> Iterator[Change]:
    machines = [f"simulated {report.world.spec}" if report.world.simulated else "real" for report in (old, new)]
    if machines[0] != machines[1]:
        yield Change(ChangeSubject.FACT, "machine", machines[0], machines[1], path="world")


def _ranked(changes: Iterable[Change], stage: Stage | None) -> list[Change]:
    """Return the changed facts, those first that can explain why ``stage`` fails."""
    return sorted(changes, key=lambda change: _rank(change, stage))


def _rank(change: Change, stage: Stage | None) -> int:
    everything = (*EXPLAINS[stage], *EXPLAINS[None])
    places = (number for number, place in enumerate(everything) if change.path.startswith(place))
    return next(places, len(everything))
