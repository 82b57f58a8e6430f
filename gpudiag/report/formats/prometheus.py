"""Metrics in the text format of Prometheus (0.0.4), for the textfile collector of the node exporter.

Names follow OpenMetrics: a prefix, base units (seconds, bytes), ``_info`` for metrics that carry labels, and for a
value out of a few a series each, of which one is 1. Every name is in :data:`METRICS`, from which the manual is made.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Generic, TypeVar

import msgspec

from gpudiag.knowledge.codes import explained
from gpudiag.model.expectations import AREA as EXPECT
from gpudiag.model.report import STATUSES, Report, Verdict
from gpudiag.report import load
from gpudiag.text import one_line

SUFFIX = ".prom"

Sample = tuple[dict[str, str], float]
"""Labels and a value."""

Subject = TypeVar("Subject")
"""What has samples: a report, or that of a fleet."""


@dataclass(frozen=True)
class Metric(Generic[Subject]):
    """A gauge, and its samples in a report."""

    name: str
    help: str
    samples: Callable[[Subject], Iterator[Sample]]
    labels: tuple[str, ...] = ()


def render(report: Report, **_: object) -> str:
    """Return the metrics; a metric without samples in the report is left out."""
    return written(METRICS, report)


def written(metrics: Sequence[Metric[Subject]], report: Subject) -> str:
    """Return metrics of a report in the text format."""
    return "".join(line for metric in metrics for line in _lines(metric, report))


def _lines(metric: Metric[Subject], report: Subject) -> Iterator[str]:
    for number, (labels, value) in enumerate(metric.samples(report)):
        if not number:
            yield f"# HELP {metric.name} {_escaped(metric.help)}\n# TYPE {metric.name} gauge\n"
        pairs = ",".join(
            f'{name}="{_escaped(text, quoted=True)}"' for name, text in zip(metric.labels, labels.values(), strict=True)
        )
        yield f"{metric.name}{f'{{{pairs}}}' if pairs else ''} {_number(value)}\n"


def _escaped(text: str, *, quoted: bool = False) -> str:
    escaped = one_line(text).replace("\\", "\\\\")
    return escaped.replace('"', '\\"') if quoted else escaped


def _number(value: float) -> str:
    return str(int(value)) if float(value).is_integer() else repr(value)  # inf and NaN are none


def _one(value: Callable[[Report], float]) -> Callable[[Report], Iterator[Sample]]:
    return lambda report: iter([({}, value(report))])


def _of_machine(samples: Callable[[Report], Iterator[Sample]]) -> Callable[[Report], Iterator[Sample]]:
    """Return ``samples`` only for reports about a machine: one about a program or a log says nothing about GPUs."""

    def found(report: Report) -> Iterator[Sample]:
        if report.program is None and not report.is_log_alone:
            yield from samples(report)

    return found


def _verdicts(report: Report) -> Iterator[Sample]:
    for verdict in Verdict:
        yield {"verdict": verdict.value}, float(report.verdict is verdict)


def _rows(report: Report) -> Iterator[Sample]:
    for status in STATUSES:
        yield {"outcome": status}, report.counts.get(status, 0)


def _findings(report: Report) -> Iterator[Sample]:
    for severity, number in report.severities.items():
        yield {"severity": severity.value}, number


def _gpu_info(report: Report) -> Iterator[Sample]:
    for gpu in report.gpus:
        yield {"gpu": str(gpu.index), "name": gpu.name, "uuid": gpu.uuid, "pci_bus_id": gpu.pci_bus_id}, 1


def _gpu_verified(report: Report) -> Iterator[Sample]:
    for gpu in report.gpus:
        yield {"gpu": str(gpu.index), "uuid": gpu.uuid}, float(gpu not in report.unverified)


def _gpu_fit(report: Report) -> Iterator[Sample]:
    unfit = report.unfit
    for gpu in report.gpus:
        is_fit = not any(not cause.gpus or gpu.pci_bus_id in cause.gpus for cause in unfit)
        yield {"gpu": str(gpu.index), "uuid": gpu.uuid}, float(is_fit)


def _gpu_memory(report: Report, *, used: bool) -> Iterator[Sample]:
    devices = {device.pci_bus_id: device for device in report.facts.nvml_devices}
    for gpu in report.gpus:
        device = devices.get(gpu.pci_bus_id)
        if device is not None and device.memory_total_bytes:
            value = device.memory_used_bytes if used else device.memory_total_bytes
            yield {"gpu": str(gpu.index), "uuid": gpu.uuid}, value


def _probes(report: Report) -> Iterator[Sample]:
    for (probe, device), (status, _) in _rows_once(report).items():
        yield {"probe": probe, "device": device, "outcome": status}, 1


def _probe_seconds(report: Report) -> Iterator[Sample]:
    for (probe, device), (_, seconds) in _rows_once(report).items():
        yield {"probe": probe, "device": device}, seconds


def _rows_once(report: Report) -> dict[tuple[str, str], tuple[str, float]]:
    """Return one row for each probe name, because a series must not occur twice."""
    return {
        (one_line(row.probe), report.device_label(row)): (row.status, row.duration_s)
        for row in report.rows
        if row.area != EXPECT
    }


def _causes(report: Report) -> Iterator[Sample]:
    causes = report.diagnosis.all_causes
    for name, stage, sure in dict.fromkeys(
        (cause.cause_id, cause.stage.value, cause.confidence.value) for cause in causes
    ):
        yield {"cause": name, "stage": stage, "confidence": sure}, 1


def _withheld(report: Report) -> Iterator[Sample]:
    for reason in dict.fromkeys(map(one_line, report.withheld or ())):
        yield {"reason": explained(reason)}, 1


def _left_out(report: Report) -> Iterator[Sample]:
    for pattern in dict.fromkeys(map(one_line, report.skip)):
        yield {"pattern": pattern}, 1


def _failed(report: Report) -> Iterator[Sample]:
    for part, why in dict.fromkeys(
        (one_line(failure.part), one_line(failure.why)) for failure in report.diagnosis.failed
    ):
        yield {"part": part, "reason": explained(why)}, 1


def _expectations(report: Report) -> Iterator[Sample]:
    for row in {row.name: row for row in report.rows if row.area == EXPECT}.values():
        yield {"expectation": row.name}, float(row.status in ("pass", "note"))


def _accepted(report: Report) -> Iterator[Sample]:
    for name, until in {
        f"{row.probe}.{finding.kind}": finding.accepted.until
        for row in report.rows
        for finding in row.findings
        if finding.accepted
    }.items():
        last = datetime(until.year, until.month, until.day, tzinfo=timezone.utc)
        yield {"finding": name}, last.timestamp() + 24 * 3600


def _ended(report: Report) -> Iterator[Sample]:
    """Yield the end time of the run; the start time of a loaded report is in ISO 8601."""
    with contextlib.suppress(msgspec.ValidationError):
        started = msgspec.convert(report.started_at, datetime)
        start = started if started.tzinfo else started.replace(tzinfo=timezone.utc)
        yield {}, round(start.timestamp() + report.duration_s, 3)


def _load(values: Callable[[load.GpuLoad], Iterator[Sample]]) -> Callable[[Report], Iterator[Sample]]:
    """Return the samples of each GPU that was under load."""

    def samples(report: Report) -> Iterator[Sample]:
        for one in load.gpus(report):
            by_labels = {tuple(labels.items()): value for labels, value in values(one)}
            for labels, value in by_labels.items():
                yield {"gpu": str(one.gpu.index), "uuid": one.gpu.uuid, **dict(labels)}, value

    return samples


def _load_rates(unit: str) -> Callable[[Report], Iterator[Sample]]:
    """Return the rates of one unit: not of simulated GPUs, whose rates are those of the host."""
    return _load(
        lambda one: (
            ({"work": one_line(work)}, rate.value)
            for work, rate in one.rates.items()
            if load.unit(work) == unit and not one.gpu.simulated
        )
    )


def _load_shares(one: load.GpuLoad) -> Iterator[Sample]:
    for kind in ("computing", "copies"):
        if (share := one.share(copies=kind == "copies")) is not None:
            yield {"kind": kind}, round(share, 4)


_GPU = ("gpu", "uuid")

METRICS: tuple[Metric[Report], ...] = (
    Metric(
        "gpudiag_info",
        "The gpudiag that made the report",
        lambda report: iter([({"version": report.gpudiag_version, "level": report.level.name}, 1)]),
        ("version", "level"),
    ),
    Metric("gpudiag_exit_status", "Exit status of the run", _one(lambda report: report.exit_code)),
    Metric("gpudiag_run_duration_seconds", "How long the run took", _one(lambda report: report.duration_s)),
    Metric("gpudiag_run_end_timestamp_seconds", "When the run ended, Unix time", _ended),
    Metric("gpudiag_simulated", "1 if the GPUs are simulated", _one(lambda report: report.world.simulated)),
    Metric("gpudiag_verdict", "1 for the verdict of the run", _of_machine(_verdicts), ("verdict",)),
    Metric("gpudiag_gpus_in_scope", "GPUs in scope", _of_machine(_one(lambda report: len(report.gpus)))),
    Metric(
        "gpudiag_gpus_verified",
        "GPUs in scope on which a kernel was verified",
        _of_machine(_one(lambda report: len(report.gpus) - len(report.unverified))),
    ),
    Metric("gpudiag_rows", "Rows of the report by outcome", _of_machine(_rows), ("outcome",)),
    Metric("gpudiag_findings", "Findings by severity", _of_machine(_findings), ("severity",)),
    Metric("gpudiag_cause_info", "A cause that the diagnosis names", _causes, ("cause", "stage", "confidence")),
    Metric("gpudiag_withheld_info", "Why the run cannot be PASS, whatever its probes say", _withheld, ("reason",)),
    Metric("gpudiag_left_out_info", "What --skip left out of the run", _left_out, ("pattern",)),
    Metric("gpudiag_diagnosis_failed_info", "A part of gpudiag's diagnosis that broke", _failed, ("part", "reason")),
    Metric("gpudiag_gpu_info", "A GPU in scope, by NVML", _gpu_info, ("gpu", "name", "uuid", "pci_bus_id")),
    Metric("gpudiag_gpu_verified", "1 if a kernel was verified on the GPU", _gpu_verified, _GPU),
    Metric("gpudiag_gpu_fit", "0 if a proved cause says that the GPU must not be relied on", _gpu_fit, _GPU),
    Metric(
        "gpudiag_gpu_memory_total_bytes",
        "Memory of the GPU, by NVML",
        lambda report: _gpu_memory(report, used=False),
        _GPU,
    ),
    Metric(
        "gpudiag_gpu_memory_used_bytes",
        "Memory of the GPU that was in use before the run, by NVML",
        lambda report: _gpu_memory(report, used=True),
        _GPU,
    ),
    Metric("gpudiag_probe_outcome", "1 for the outcome of the probe", _probes, ("probe", "device", "outcome")),
    Metric("gpudiag_probe_duration_seconds", "How long the probe took", _probe_seconds, ("probe", "device")),
    Metric(
        "gpudiag_load_results",
        "Results that the GPU computed under load, and that were compared",
        _load(lambda one: iter([({}, one.reading.results)])),
        _GPU,
    ),
    Metric(
        "gpudiag_load_wrong_elements",
        "Wrong elements in these results",
        _load(lambda one: iter([({}, one.reading.wrong)])),
        _GPU,
    ),
    Metric(
        "gpudiag_load_flops_per_second",
        "Floating-point operations in a second under load; not of simulated GPUs",
        _load_rates(load.FLOPS),
        (*_GPU, "work"),
    ),
    Metric(
        "gpudiag_load_bytes_per_second",
        "Bytes of memory or of copies in a second under load; not of simulated GPUs",
        _load_rates(load.BYTES),
        (*_GPU, "work"),
    ),
    Metric(
        "gpudiag_load_to_median_ratio",
        "Rate of the GPU by the median of the other GPUs of its model",
        _load(_load_shares),
        (*_GPU, "kind"),
    ),
    Metric(
        "gpudiag_load_temperature_max_celsius",
        "Highest temperature under load, by NVML",
        _load(lambda one: iter([] if one.hottest is None else [({}, one.hottest)])),
        _GPU,
    ),
    Metric(
        "gpudiag_load_throttled_seconds",
        "Time under load with lowered clocks, by NVML's reason",
        _load(lambda one: (({"reason": one_line(reason)}, seconds) for reason, seconds in one.throttled_s().items())),
        (*_GPU, "reason"),
    ),
    Metric(
        "gpudiag_load_counter_increase",
        "By how much a counter of NVML rose under load",
        _load(lambda one: (({"counter": counter}, rose) for counter, rose in one.rose.items())),
        (*_GPU, "counter"),
    ),
    Metric("gpudiag_expectation_met", "1 if the expectation is met, or accepted", _expectations, ("expectation",)),
    Metric(
        "gpudiag_acceptance_end_timestamp_seconds",
        "When the finding is no longer accepted, Unix time",
        _accepted,
        ("finding",),
    ),
)
"""Every metric, in the order in which they are written."""
