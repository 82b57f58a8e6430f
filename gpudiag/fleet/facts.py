"""The facts and figures of a report that may set nodes apart.

Facts are found by one walk over the records, so that a new one is there without a change here. Left out is what differs
in every run or on every machine (host names, UUIDs, PCI addresses, numbers of processes, times), what shows a fault
without being its reason (errors, damaged files), and what follows from another fact.
"""

from __future__ import annotations

import re
import statistics
import zlib
from collections.abc import Iterator, Mapping
from functools import lru_cache
from itertools import islice
from typing import Any

import msgspec

from gpudiag.model.fact_names import NAMES, PASSING_VARIABLES, lasting_fields, without_temporary
from gpudiag.model.facts import (
    DeviceNode,
    Distribution,
    Facts,
    Library,
    ModuleSetting,
    NvmlDevice,
    Requirement,
    Unknown,
)
from gpudiag.model.fleet import FactKind
from gpudiag.model.report import Report
from gpudiag.report import load
from gpudiag.report.masking import is_masked
from gpudiag.text import one_line

PRINCIPAL = (
    "rack",
    "driver",
    "kernel",
    "BIOS",
    "model of the machine",
    "GPU",
    "GPUs",
    "image of the container",
    "operating system",
    "video BIOS",
    "GSP firmware",
    "package tensorflow",
    "libcudnn.so.9",
    "CUDA of the driver",
    "Python",
    "container",
    "gpudiag",
)
"""The facts that people look at first, and that a fleet should agree in."""

_NAMES = {
    **NAMES,
    "system.cpus": "processors",
    "system.memory_bytes": "memory of the machine",
    "system.root": "runs as root",
    "system.wsl": "WSL",
    "system.python_environment.tool": "tool of the environment",
    "tensorflow.build.cuda": "TensorFlow is built with CUDA",
    "tensorflow.build.cuda_version": "CUDA of TensorFlow",
    "tensorflow.build.cudnn_version": "cuDNN of TensorFlow",
    "driver.modules": "kernel modules",
    "driver.rebuilt": "driver of the next start",
    "driver.preloaded": "preloaded for every program",
    "nvml.devices.name": "GPU",
    "nvml.devices.memory_total_bytes": "memory of a GPU",
    "nvml.devices.mig_mode": "MIG",
    "nvml.devices.state.ecc": "ECC",
    "nvml.devices.state.pcie_width": "PCIe width",
    "nvml.devices.state.pcie_width_max": "PCIe width at most",
    "nvml.devices.state.pcie_generation_max": "PCIe generation at most",
    "nvml.devices.state.power_limit_watts": "power limit in W",
    "nvml.devices.state.power_default_watts": "power limit by default in W",
    "nvml.devices.state.clock_max_mhz": "clock at most in MHz",
    "nvml.devices.state.temperature_max": "temperature at most in °C",
    "nvml.devices.state.fabric": "NVSwitch fabric",
    "nvml.devices.state.nvlinks": "NVLinks active",
    "nvml.peers": "GPUs reach each other",
    "device_nodes.nodes.mode": "mode of device files",
    "device_nodes.nodes.group": "group of device files",
    "device_nodes.iommu_groups": "IOMMU",
    "device_nodes.bound": "kernel driver of GPUs",
    "device_nodes.models": "PCI number of GPUs",
    "device_nodes.other_gpus": "other GPUs",
    "container.kubernetes": "Kubernetes",
    "container.limits": "limit",
    "container.shm_bytes": "shared memory",
    "container.memlock_bytes": "memory that may be locked",
    "tried.mps.share": "share by MPS",
    "kernel.parameters": "driver's parameter",
    "kernel.settings": "options of kernel modules",
    "kernel.firmware": "GSP firmware",
    "kernel.video_bios": "video BIOS",
}
"""Names of facts by their places, without keys; for others the words of the field, as in a comparison."""

_FIELDS_LEFT_OUT = {
    "system": "hostname user home sudo executable",
    "system.python_environment": "command project tools notebook of_gpudiag has_pip",
    "tensorflow": (
        "module_path ranges required_by_others altered overwritten in_working_directory unreadable half_removed "
        "path_provenance damaged outside without_init elsewhere plugins"
    ),
    "tensorflow.build": "compute_capabilities",
    "driver": "libcuda_path libcuda_error module_file kernel_log unfinished wsl_library preload_error",
    "nvml": "error",
    "nvml.devices": "index uuid pci_bus_id mig_uuids memory_error",
    "nvml.devices.state": (
        "uncorrected_errors corrected_errors retired_pages retirement_pending remapped_rows remap_pending "
        "remap_failed slowed_by performance_state clock_mhz temperature pcie_generation fabric_error"
    ),
    "device_nodes.nodes": "path readable writable group_id owner major minor nodev",
    "device_nodes": "pci_gpus network groups without_memory_region asleep bridges majors",
    "environment": "set_by_python keras_backend_from provenance",
    "container": "evidence control_group sandbox_name infiniband",
    "container.limits": "place is_hard",
    "libraries": (
        "opener runpath search_path libdevice libdevice_elsewhere corrected incomplete plugins_lack damaged "
        "configured walked closed"
    ),
    "": "cuda calls",
    "tried": "opened written connected",
    "tried.mps": "failure known_by why_not",
    "kernel": "log log_source log_refused excluded built_for build_error",
}
"""By the place of their record."""
LEFT_OUT = frozenset(
    f"{place}.{field}".lstrip(".") for place, fields in _FIELDS_LEFT_OUT.items() for field in fields.split()
)
"""The places of fields that are no facts of a fleet."""
_OF_DEVICES = frozenset(
    {
        "nvml.peers",
        "device_nodes.iommu_groups",
        "device_nodes.bound",
        "device_nodes.models",
        "device_nodes.other_gpus",
        "tried.mps.memory",
        "kernel.firmware",
        "kernel.video_bios",
    }
)
"""Dictionaries whose keys are devices: only their values are facts of a fleet."""
_KEYED = frozenset({"environment.variables", "kernel.parameters"})
"""Dictionaries whose keys are the names of facts."""
_UNNAMED = (NvmlDevice, DeviceNode)
"""Records of devices: the facts of a node are the different values of all of them."""
_PACKAGES = (Distribution, Requirement)

_OF_A_JOB = re.compile(
    r"SLURM_(?:JOB_ID|JOBID|LOCALID|PROCID|STEP_.*)|SLURMD_NODENAME|.*_RANK(?:ID)?|RAY_.*|TMP|TMPDIR|TEST_TMPDIR|TF_CONFIG"
)
"""Variables that differ from job to job or from task to task."""
_OF_A_DEVICE = re.compile(
    r"(?:GPU|MIG)-[0-9a-f]{8}-[0-9a-f-]{20,}|\b[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]\b", re.IGNORECASE
)
_VARIABLE = re.compile(r"[A-Z][A-Z0-9]*_[A-Z0-9_]*")
_PACKAGE = "package "
_KINDS = [None, FactKind.PACKAGE, FactKind.VARIABLE]
"""In the order of the facts of a node."""
_LONGEST = 80
"""The most characters of a value that are kept, so that a summary has about 3 kB."""
_MOST_CACHED = 4096
_MOST = 250
"""The most facts of a node, so that a report that somebody made up does not fill the memory."""

CLOCK, TEMPERATURE = "clock under load in MHz", "temperature under load in °C"
WIDTH, GENERATION = "PCIe width", "PCIe generation"
COUNTS = {
    "corrected_errors": "ECC errors corrected",
    "uncorrected_errors": "ECC errors uncorrected",
    "remapped_rows": "rows remapped",
    "retired_pages": "pages retired",
    "pcie_replays": "PCIe replays",
    "nvlink_errors": "NVLink errors",
}
"""What a GPU counts: the fields of NVML's records, and the names of the figures."""
_LIMITS = {
    "pcie_width": WIDTH,
    "power_limit_watts": "power limit in W",
    "clock_max_mhz": "clock at most in MHz",
}
_MOST_WORKS = 40
"""The most kinds of work of a GPU; a run has eight."""
_NOISY = 0.05
"""A rate whose relative standard error is larger is not kept: it says nothing about a difference of 10 %."""


def facts_of(report: Report) -> dict[str, str]:
    """Return facts by their names for people; nothing that differs in every run or on every machine."""
    values: dict[str, dict[str, None]] = {"gpudiag": {report.gpudiag_version: None}}
    for family in Facts.__struct_fields__:
        if family not in LEFT_OUT:
            for name, value in _walk(family, "", getattr(report.facts, family)):
                values.setdefault(name, {})[value] = None
    devices = report.facts.nvml_devices
    if devices:
        values["GPUs"] = {str(len(devices)): None}
    if not isinstance(report.facts.container, Unknown):
        values.setdefault("container", {"none": None})
    if "driver" not in values and (driver := values.pop("driver by NVML", None)):
        values["driver"] = driver
    names = sorted(values, key=order)[:_MOST]
    hosts = _hosts(report.facts)
    texts = {name: ", ".join(sorted(values[name]) if len(values[name]) > 1 else values[name]) for name in names}
    return {
        name: _without_host(_lasting(text), hosts)
        for name, text in texts.items()
        if not is_masked(f"{name} {text}")  # a placeholder stands for something else in every report
    }


@lru_cache(_MOST_CACHED)
def order(name: str) -> tuple[int, str]:
    """Return the key by which facts are sorted: those that people look at first, then others, packages, variables."""
    if name in PRINCIPAL:
        return PRINCIPAL.index(name), name
    return len(PRINCIPAL) + _KINDS.index(kind_of(name)), name


@lru_cache(_MOST_CACHED)
def kind_of(name: str) -> FactKind | None:
    """Return the kind of a fact by whose absence a node differs from others: a package or a variable; None for others.

    Facts of the driver or of a GPU are absent where these fail, which sets nothing apart.
    """
    if name.startswith(_PACKAGE):
        return FactKind.PACKAGE
    return FactKind.VARIABLE if _VARIABLE.fullmatch(name) else None


def unread_in(report: Report, kept: Mapping[str, str]) -> tuple[FactKind, ...]:
    """Return the kinds of facts that a report did not read, or of which not all are among those that were kept."""
    facts = report.facts
    if len(kept) >= _MOST or is_masked(msgspec.json.encode(facts).decode()):
        return tuple(FactKind)
    unread = []
    if isinstance(facts.tensorflow, Unknown) or isinstance(facts.driver, Unknown):
        unread.append(FactKind.PACKAGE)
    if isinstance(facts.environment, Unknown):
        unread.append(FactKind.VARIABLE)
    return tuple(unread)


def _walk(path: str, label: str, value: Any) -> Iterator[tuple[str, str]]:
    """Yield each fact below a place: ``path`` without the keys, and the ``label`` of the key that contains it."""
    if value is None or isinstance(value, Unknown):
        return
    if isinstance(value, msgspec.Struct):
        for field, inner in _fields(type(value), path):
            yield from _walk(inner, label, getattr(value, field))
    elif isinstance(value, dict):
        for key, item in value.items():
            if path == "environment.variables" and _is_of_a_job(key):
                continue
            if path == "driver.packages":
                yield _PACKAGE + key, str(item)
            else:
                yield from _walk(path, label if path in _OF_DEVICES else _label(path, label, key), item)
    elif isinstance(value, tuple) and value and isinstance(value[0], msgspec.Struct):
        for item in value:
            yield from _of_item(path, item)
    elif text := _text(path, value):
        yield _name(path, label), text


def _of_item(path: str, item: Any) -> Iterator[tuple[str, str]]:
    """Yield the facts of a record in a list: a package, a library, a limit, a device."""
    if isinstance(item, _PACKAGES):
        if item.version:
            yield _PACKAGE + item.name, item.version
    elif isinstance(item, Library):
        if item.path:
            yield item.soname, item.version or item.digest or "found"
            if item.source:
                yield "libraries are found by", item.source
    elif isinstance(item, ModuleSetting):
        yield _NAMES["kernel.settings"], item.text
    elif isinstance(item, _UNNAMED):
        yield from _walk(path, "", item)
    else:
        (key, _), *fields = _fields(item.__class__, path)
        label = _label(path, "", str(getattr(item, key)))
        for field, inner in fields:
            yield from _walk(inner, label, getattr(item, field))


@lru_cache(_MOST_CACHED)
def _fields(kind: type, path: str) -> tuple[tuple[str, str], ...]:
    """Return the fields of a record that are walked, each with its path."""
    inner = [(field, f"{path}.{field}") for field in lasting_fields(kind)]
    return tuple((field, place) for field, place in inner if place not in LEFT_OUT)


@lru_cache(_MOST_CACHED)
def _is_of_a_job(variable: str) -> bool:
    return bool(PASSING_VARIABLES.fullmatch(variable) or _OF_A_JOB.fullmatch(variable))


@lru_cache(_MOST_CACHED)
def _label(path: str, label: str, key: str) -> str:
    words = _NAMES.get(path, path.rpartition(".")[2].replace("_", " "))
    return f"{label or words} {key}".strip()


@lru_cache(_MOST_CACHED)
def _name(path: str, label: str) -> str:
    """Return the name of a fact for people."""
    if path == "container.limits.value":
        return label
    named = "" if label else _NAMES.get(path, "")
    words = "" if path in _KEYED and label else path.rpartition(".")[2].replace("_", " ")
    return one_line(named.removesuffix(":") or f"{label} {words}".strip())[:_LONGEST]


def _text(path: str, value: object) -> str:
    """Return a value as a text for people; "" if it says nothing."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int) and (path.endswith("_bytes") or path == "tried.mps.memory"):
        return _size(value)
    if path == "container.limits.value" and isinstance(value, int):
        # The kernel derives some limits from the size of the memory, which differs a little among equal machines.
        return f"{float(f'{value:.2g}'):,.0f}" if value >= 100 else str(value)
    if isinstance(value, tuple):
        return ", ".join(sorted({_text("", item) for item in value}))
    return str(value) if isinstance(value, str | int | float) else ""


def _size(number: int) -> str:
    """Return a size in bytes with two digits: kernels and firmware keep a little more or less of the memory."""
    unit, name = (1 << 30, "GiB") if number >= 1 << 30 else (1 << 20, "MiB")
    return f"{float(f'{number / unit:.2g}'):,g} {name}"


def _hosts(facts: Facts) -> tuple[str, ...]:
    """Return the host's name, the longest form first, if it is long enough to be found in other texts."""
    host = "" if isinstance(facts.system, Unknown) else facts.system.hostname
    return tuple(name for name in dict.fromkeys((host, host.partition(".")[0])) if len(name) > 2)


@lru_cache(_MOST_CACHED)
def _lasting(value: str) -> str:
    """Return a value without what is of one device or of one run, and not longer than is kept."""
    return one_line(_OF_A_DEVICE.sub("<device>", without_temporary(value)))


def _without_host(value: str, hosts: tuple[str, ...]) -> str:
    for host in hosts:
        if host in value:
            value = re.sub(rf"(?<![\w-]){re.escape(host)}(?![\w-])", "<host>", value)
    if len(value) > _LONGEST:
        # Two long values that differ at the end alone must not look equal.
        value = f"{value[: _LONGEST - 12]}... {zlib.crc32(value.encode()):08x}"
    return value


def figures_of(report: Report) -> dict[str, tuple[float | None, ...]]:
    """Return for each GPU in scope what was measured under load, in FLOP/s or bytes per second, and what NVML says.

    NVML's clock, temperature and PCIe generation are those under load: a GPU at rest lowers its clock and its link, and
    its temperature depends on when the last job ended.
    """
    figures: dict[str, list[float | None]] = {}

    def put(name: str, place: int, value: float | None) -> None:
        if value is not None:
            figures.setdefault(name, [None] * len(report.gpus))[place] = value

    loads = {gpu_load.gpu.uuid: gpu_load for gpu_load in load.gpus(report)}
    devices = {device.index: device for device in report.facts.nvml_devices}
    for place, gpu in enumerate(report.gpus):
        if gpu.uuid in loads:
            for name, value in _under_load(loads[gpu.uuid]):
                put(name, place, value)
        if gpu.index in devices:
            state = devices[gpu.index].state
            for field, name in (*_LIMITS.items(), *COUNTS.items()):
                put(name, place, getattr(state, field, None))
            if state.is_working:
                put(GENERATION, place, state.pcie_generation)
    return {name: tuple(values) for name, values in figures.items()}


def _under_load(gpu_load: load.GpuLoad) -> Iterator[tuple[str, float | None]]:
    """Yield what was measured of a GPU under load: rates, the median of its clock, the highest temperature."""
    for work, rate in islice(gpu_load.rates.items(), _MOST_WORKS):
        if rate.error <= _NOISY:
            yield one_line(work)[:_LONGEST], float(f"{rate.value:.5g}")
    samples = [sample for sample in gpu_load.samples if sample.clock_mhz and (sample.busy_percent or 0) >= 50]
    if samples:
        yield CLOCK, statistics.median(sample.clock_mhz or 0 for sample in samples)
    yield TEMPERATURE, gpu_load.hottest
    generations = [sample.pcie_generation for sample in samples if sample.pcie_generation]
    if generations:
        yield GENERATION, max(generations)
    if gpu_load.health is not None:
        for field, name in COUNTS.items():
            yield name, getattr(gpu_load.health.after, field, None)
