"""The facts and figures of a report that may set nodes apart."""

from __future__ import annotations

from gpudiag.model.facts import Unknown
from gpudiag.model.report import Report
from gpudiag.report import load


def facts_of(report: Report) -> dict[str, str]:
    """Return facts by their names for people; nothing that differs in every run or on every machine."""
    facts: dict[str, str] = {}
    if not isinstance(report.facts.system, Unknown):
        facts |= {"kernel": report.facts.system.kernel, "Python": report.facts.system.python}
    if not isinstance(report.facts.nvml, Unknown) and report.facts.nvml.driver_version:
        facts["driver"] = report.facts.nvml.driver_version
    return facts


def figures_of(report: Report) -> dict[str, tuple[float | None, ...]]:
    """Return for each GPU in scope what was measured under load."""
    by_gpu = {one.gpu.uuid: one for one in load.gpus(report)}
    names = dict.fromkeys(work for one in by_gpu.values() for work in one.rates)
    return {
        work: tuple(
            by_gpu[gpu.uuid].rates[work].value if gpu.uuid in by_gpu and work in by_gpu[gpu.uuid].rates else None
            for gpu in report.gpus
        )
        for work in names
    }
