"""The values in a report that expectations are compared with."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import combinations
from typing import Any

from gpudiag import catalogue
from gpudiag.model.facts import NvmlDevice, Unknown
from gpudiag.model.health import COPIED
from gpudiag.model.report import Gpu, Report
from gpudiag.probes import listing
from gpudiag.report import load
from gpudiag.report.load import GpuLoad
from gpudiag.simulator.sizes import MIB

Seen = dict[str, Any]
"""The observed values, by GPU, by probe, or with "" for the machine; None if unknown."""


def gpus(report: Report, _: Any = None) -> Seen:
    """Count the GPUs as ``--require-gpus`` does: simulated ones only if the command line requests them."""
    counted = [gpu for gpu in report.gpus if report.limits.count_simulated or not gpu.simulated]
    why = "simulated GPUs count only if --simulate is on the command line"
    return {why if len(counted) < len(report.gpus) else "": len(counted)}


def label(gpu: Gpu) -> str:
    return f"GPU {gpu.index}"


def _of_each(report: Report, look: Callable[[Gpu, NvmlDevice], Any]) -> Seen:
    """Return the result of ``look`` for each GPU in scope; None if NVML does not describe the GPU."""
    devices = {device.pci_bus_id: device for device in report.facts.nvml_devices}
    return {
        label(gpu): look(gpu, devices[gpu.pci_bus_id]) if gpu.pci_bus_id in devices else None for gpu in report.gpus
    }


def models(report: Report, _: Any = None) -> Seen:
    return {label(gpu): gpu.name for gpu in report.gpus}


def _memory(gpu: Gpu, device: NvmlDevice) -> tuple[int, int]:
    """Return the total and used bytes of memory, of the MIG instance if the mask chose one."""
    if gpu.uuid in device.mig_uuids and len(device.mig_memory_bytes) == len(device.mig_uuids):
        return device.mig_memory_bytes[device.mig_uuids.index(gpu.uuid)]
    return device.memory_total_bytes, device.memory_used_bytes


def memory_total(report: Report, _: Any = None) -> Seen:
    return _of_each(report, lambda gpu, device: _memory(gpu, device)[0] or None)


def memory_free(report: Report, _: Any = None) -> Seen:
    def free(gpu: Gpu, device: NvmlDevice) -> int | None:
        total, used = _memory(gpu, device)
        return total - used if total else None

    return _of_each(report, free)


def driver(report: Report, _: Any = None) -> Seen:
    nvml, driver = report.facts.nvml, report.facts.driver
    version = None if isinstance(nvml, Unknown) else nvml.driver_version
    if version is None and not isinstance(driver, Unknown):
        version = driver.kernel_module
    return {"": version}


def cuda(report: Report, _: Any = None) -> Seen:
    nvml, driver = report.facts.nvml, report.facts.driver
    version = None if isinstance(driver, Unknown) else driver.cuda_version
    if version is None and not isinstance(nvml, Unknown):
        version = nvml.cuda_version
    return {"": version}


def tensorflow(report: Report, _: Any = None) -> Seen:
    tensorflow_facts = report.facts.tensorflow
    if isinstance(tensorflow_facts, Unknown) or not tensorflow_facts.distributions:
        return {"": None}
    return {distribution.name: distribution.version for distribution in tensorflow_facts.distributions}


def python(report: Report, _: Any = None) -> Seen:
    system = report.facts.system
    return {"": None if isinstance(system, Unknown) else system.python}


def capability(report: Report, _: Any = None) -> Seen:
    return _of_each(report, lambda _, device: device.compute_capability)


def mig(report: Report, _: Any = None) -> Seen:
    def layout(_: Gpu, device: NvmlDevice) -> Any:
        if device.mig_mode != "enabled":
            return "disabled"  # or a GPU that has no MIG
        if len(device.mig_memory_bytes) != len(device.mig_uuids):
            return None
        return tuple(total // MIB for total, _ in device.mig_memory_bytes)

    return _of_each(report, layout)


def peers(report: Report, _: Any = None) -> Seen:
    peers_by_pair = {} if isinstance(report.facts.nvml, Unknown) else report.facts.nvml.peers
    pairs = combinations(sorted(gpu.index for gpu in report.gpus), 2)
    return {f"GPU {a} and GPU {b}": peers_by_pair.get(f"{a} {b}", peers_by_pair.get(f"{b} {a}")) for a, b in pairs}


def generation(report: Report, _: Any = None) -> Seen:
    def generation(_: Gpu, device: NvmlDevice) -> int | None:
        state = device.state
        return state.pcie_generation if state.is_working else state.pcie_generation_max or state.pcie_generation

    return _of_each(report, generation)


def width(report: Report, _: Any = None) -> Seen:
    return _of_each(report, lambda _, device: device.state.pcie_width)


def passing(report: Report, patterns: Iterable[str]) -> Seen:
    from gpudiag.report import words

    seen: Seen = {}
    left_out = set(beyond_level(report, patterns))
    for pattern in patterns:
        chosen = set(listing.chosen([pattern])) - left_out
        rows = [row for row in report.rows if row.probe in chosen]
        seen |= {words.label(report, row): row.status for row in rows} or dict.fromkeys(
            [pattern] if chosen else [], "no row"
        )
    return seen


def beyond_level(report: Report, patterns: Iterable[str]) -> tuple[str, ...]:
    """Return the chosen probes that the caller's level does not run.

    A level that gpudiag chose by itself leaves out nothing that is expected: nobody has agreed to that.
    """
    if report.level.name != "quick" or report.level.reason:
        return ()
    return tuple(entry.name for entry in catalogue.select(tuple(patterns)) if not entry.probe.quick)


def seconds(report: Report, _: Any = None) -> Seen:
    return {"": report.duration_s}


def no_load(report: Report) -> str:
    """Return why a run says nothing about rates under load; "" for one of level stress, or of its probe."""
    measured = any(row.probe == load.GPUS for row in report.rows) or report.level.name == "stress"
    return "" if measured else "only --level stress measures rates under load"


def no_load_rates(report: Report) -> str:
    """Return why a run says nothing about the rates of real GPUs under load; "" if it does."""
    if any(gpu.simulated for gpu in report.gpus):
        return "the rates of simulated GPUs say nothing of a real one"
    return no_load(report)


def no_shares(report: Report) -> str:
    """Return why the GPUs of a run cannot be compared with each other; "" if they can."""
    if len({gpu.name for gpu in report.gpus}) == len(report.gpus):
        return "no two GPUs of one model are here"
    return no_load(report) or load.about_host(report)


def load_rates(report: Report, _: Any = None, *, rate: Callable[[GpuLoad], float | None]) -> Seen:
    return {label(gpu): None for gpu in report.gpus} | {label(one.gpu): rate(one) for one in load.gpus(report)}


def teraflops(one: GpuLoad, *, work: str) -> float | None:
    return one.rates[work].value / 1e12 if work in one.rates else None


def to_device(one: GpuLoad) -> float | None:
    rate = one.rates.get(COPIED[0])
    return None if rate is None else rate.value / 1e9


def to_host(one: GpuLoad) -> float | None:
    """Return the rate from the GPU to the host: the copy there and back takes the time of both ways."""
    there, both = (one.rates.get(work) for work in COPIED)
    if there is None or both is None:
        return None
    seconds = 2 / both.value - 1 / there.value
    return 1e-9 / seconds if seconds > 0 else None


def shares(report: Report, _: Any = None) -> Seen:
    """Return the rate of each GPU by the median of the others of its model; GPUs that are alone have none."""
    several = [gpu for gpu in report.gpus if sum(other.name == gpu.name for other in report.gpus) > 1]
    found = {label(one.gpu): one.share() for one in load.gpus(report)}
    return {label(gpu): found.get(label(gpu)) for gpu in several}
