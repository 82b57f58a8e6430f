"""Every expectation: what it looks at in a report, how that is compared, and what is written from a good machine."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from fnmatch import fnmatchcase
from itertools import combinations
from typing import Any

from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.version import InvalidVersion, Version

from gpudiag.errors import UsageError, nearest
from gpudiag.model.expectations import AREA
from gpudiag.model.facts import NvmlDevice, Unknown
from gpudiag.model.report import Gpu, Judged, Report, Row
from gpudiag.probes import listing
from gpudiag.simulator.sizes import MIB, parse_size

Seen = dict[str, Any]
"""What was seen, by where: a GPU, a probe, or "" for the machine. None: it is not known."""

MOST_GPUS = 1024
_LONGEST = 200
"""Letters of a range; each part of a long one would be compared with each other."""


class Comparison:
    """How a value of a file is checked, and compared with what was seen."""

    types: tuple[type, ...] = (str,)
    wanted = ""
    """What to write, for an error and for the manual."""

    def check(self, value: Any) -> None:
        """Raise ``ValueError`` with the reason if no machine can meet ``value``, or if it means nothing."""

    def is_met(self, value: Any, seen: Any) -> bool:
        raise NotImplementedError

    def text(self, seen: Any) -> str:
        """Return what was seen, for a person."""
        return str(seen)

    def expected(self, value: Any) -> str:
        """Return what is expected, for a person."""
        return ", ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)


class Range(Comparison):
    """A range of versions, as pip writes them."""

    wanted = 'a range of versions in quotes, such as ">=550" or ">=2.19,<2.22"'

    def check(self, value: Any) -> None:
        if not value.strip():
            raise ValueError("it is empty")
        if not _is_possible(_range(value)):
            raise ValueError("no version is in this range")

    def is_met(self, value: Any, seen: Any) -> bool:
        try:
            return _range(value).contains(Version(str(seen)), prereleases=True)
        except InvalidVersion:
            return False


class Number(Range):
    """A number, or a range of numbers."""

    types = (int, str)
    wanted = 'a whole number above 0, such as 4, or a range in quotes, such as ">=4"'

    def check(self, value: Any) -> None:
        if isinstance(value, str):
            super().check(value)
            if not any(_range(value).contains(str(number)) for number in range(1, MOST_GPUS)):
                raise ValueError("no number of GPUs is in this range")
        elif not 0 < value < MOST_GPUS:
            raise ValueError(f"a machine has 1 to {MOST_GPUS - 1} GPUs")

    def is_met(self, value: Any, seen: Any) -> bool:
        return super().is_met(value, seen) if isinstance(value, str) else bool(seen == value)


class Size(Comparison):
    """At least so many bytes."""

    wanted = 'an amount of memory in quotes, such as "79GiB" or "9728MiB"'

    def check(self, value: Any) -> None:
        _bytes(value)

    def is_met(self, value: Any, seen: Any) -> bool:
        return bool(seen >= _bytes(value))

    def text(self, seen: Any) -> str:
        return f"{seen // MIB} MiB"

    def expected(self, value: Any) -> str:
        return f"at least {value}"


class Least(Comparison):
    """At least a number."""

    types = (int,)

    def __init__(self, most: int, wanted: str) -> None:
        self.most = most
        self.wanted = wanted

    def check(self, value: Any) -> None:
        if not 0 < value <= self.most:
            raise ValueError(f"it is not between 1 and {self.most}")

    def is_met(self, value: Any, seen: Any) -> bool:
        return bool(seen >= value)

    def expected(self, value: Any) -> str:
        return f"at least {value}"


class Most(Comparison):
    """At most so many seconds."""

    types = (int, float)
    wanted = "a number of seconds above 0, such as 120"

    def check(self, value: Any) -> None:
        if not (math.isfinite(value) and value > 0):
            raise ValueError("it is not above 0")

    def is_met(self, value: Any, seen: Any) -> bool:
        return bool(seen <= value)

    def text(self, seen: Any) -> str:
        return f"{seen:.1f} s"

    def expected(self, value: Any) -> str:
        return f"at most {value:g} s"


class Names(Comparison):
    """One of these names; ``*`` stands for any letters."""

    types = (tuple,)
    wanted = 'a list of names in quotes, such as ["NVIDIA H200*"]; * stands for any letters'

    def check(self, value: Any) -> None:
        if not value or not all(one.strip() for one in value):
            raise ValueError("it is empty")

    def is_met(self, value: Any, seen: Any) -> bool:
        return any(fnmatchcase(seen, pattern) for pattern in value)

    def expected(self, value: Any) -> str:
        return " or ".join(value)


class Passing(Comparison):
    """Rows that pass, at most with notes."""

    types = (tuple,)
    wanted = 'a list of areas, probes or globs in quotes, such as ["discovery", "memory.growth"]'

    def check(self, value: Any) -> None:
        if not value:
            raise ValueError("it is empty")
        try:
            listing.chosen(value)
        except UsageError as error:
            raise ValueError(str(error)) from None

    def is_met(self, value: Any, seen: Any) -> bool:
        return seen in ("pass", "note")

    def expected(self, value: Any) -> str:
        return f"a pass of {super().expected(value)}"


class Yes(Comparison):
    """True, the only value that asks for something."""

    types = (bool,)
    wanted = "true; leave the key out if it is not needed"

    def check(self, value: Any) -> None:
        if not value:
            raise ValueError("false expects nothing")

    def is_met(self, value: Any, seen: Any) -> bool:
        return bool(seen == "ok")

    def expected(self, value: Any) -> str:
        return "ok"


class Mig(Comparison):
    """Without MIG, or with instances of these sizes."""

    types = (str, tuple)
    wanted = '"disabled", or the memory of the MIG instances of each GPU, such as ["9728MiB", "9728MiB"]'

    def check(self, value: Any) -> None:
        if isinstance(value, str):
            if value != "disabled":
                raise ValueError("it is neither 'disabled' nor a list")
        elif not value:
            raise ValueError("it is empty")
        else:
            for one in value:
                _bytes(one)

    def is_met(self, value: Any, seen: Any) -> bool:
        if isinstance(value, str):
            return bool(seen == value)
        return not isinstance(seen, str) and sorted(seen) == sorted(_bytes(one) // MIB for one in value)

    def text(self, seen: Any) -> str:
        return seen if isinstance(seen, str) else ", ".join(f"{one} MiB" for one in seen) or "no instance"


@dataclass(frozen=True)
class Key:
    """An expectation."""

    name: str
    """Its key in a file."""
    comparison: Comparison
    what: str
    """What it asks for, in a sentence for the manual and for files that are written."""
    seen: Callable[[Report, Any], Seen]
    advice: str
    written: Callable[[Report], str]
    """Returns the value that a good machine meets, as TOML; "" if the report does not know it."""

    @property
    def field(self) -> str:
        """Its name in :class:`gpudiag.model.expectations.Expectations`."""
        return self.name.replace("-", "_")


# --- what is seen


def _gpus(report: Report, _: Any = None) -> Seen:
    """Count what ``--require-gpus`` counts: simulated GPUs only if they were asked for on the command line."""
    counted = [gpu for gpu in report.gpus if report.limits.count_simulated or not gpu.simulated]
    why = "simulated GPUs count only if --simulate is on the command line"
    return {why if len(counted) < len(report.gpus) else "": len(counted)}


def label(gpu: Gpu) -> str:
    return f"GPU {gpu.index}"


def _of_each(report: Report, look: Callable[[Gpu, NvmlDevice], Any]) -> Seen:
    """Return what ``look`` finds for each GPU in scope; None if NVML does not describe it."""
    devices = {device.pci_bus_id: device for device in report.facts.nvml_devices}
    return {
        label(gpu): look(gpu, devices[gpu.pci_bus_id]) if gpu.pci_bus_id in devices else None for gpu in report.gpus
    }


def _models(report: Report, _: Any = None) -> Seen:
    return {label(gpu): gpu.name for gpu in report.gpus}


def _memory(gpu: Gpu, device: NvmlDevice) -> tuple[int, int]:
    """Return the bytes of memory, in all and used; of a MIG instance, if the mask chose one."""
    if gpu.uuid in device.mig_uuids and len(device.mig_memory_bytes) == len(device.mig_uuids):
        return device.mig_memory_bytes[device.mig_uuids.index(gpu.uuid)]
    return device.memory_total_bytes, device.memory_used_bytes


def _memory_total(report: Report, _: Any = None) -> Seen:
    return _of_each(report, lambda gpu, device: _memory(gpu, device)[0] or None)


def _memory_free(report: Report, _: Any = None) -> Seen:
    def free(gpu: Gpu, device: NvmlDevice) -> int | None:
        total, used = _memory(gpu, device)
        return total - used if total else None

    return _of_each(report, free)


def _driver(report: Report, _: Any = None) -> Seen:
    nvml, driver = report.facts.nvml, report.facts.driver
    version = None if isinstance(nvml, Unknown) else nvml.driver_version
    if version is None and not isinstance(driver, Unknown):
        version = driver.kernel_module
    return {"": version}


def _cuda(report: Report, _: Any = None) -> Seen:
    nvml, driver = report.facts.nvml, report.facts.driver
    version = None if isinstance(driver, Unknown) else driver.cuda_version
    if version is None and not isinstance(nvml, Unknown):
        version = nvml.cuda_version
    return {"": version}


def _tensorflow(report: Report, _: Any = None) -> Seen:
    known = report.facts.tensorflow
    if isinstance(known, Unknown) or not known.distributions:
        return {"": None}
    return {one.name: one.version for one in known.distributions}


def _python(report: Report, _: Any = None) -> Seen:
    system = report.facts.system
    return {"": None if isinstance(system, Unknown) else system.python}


def _capability(report: Report, _: Any = None) -> Seen:
    return _of_each(report, lambda _, device: device.compute_capability)


def _mig(report: Report, _: Any = None) -> Seen:
    def layout(_: Gpu, device: NvmlDevice) -> Any:
        if device.mig_mode != "enabled":
            return "disabled"  # or a GPU that has no MIG
        if len(device.mig_memory_bytes) != len(device.mig_uuids):
            return None
        return tuple(total // MIB for total, _ in device.mig_memory_bytes)

    return _of_each(report, layout)


def _peers(report: Report, _: Any = None) -> Seen:
    known = {} if isinstance(report.facts.nvml, Unknown) else report.facts.nvml.peers
    pairs = combinations(sorted(gpu.index for gpu in report.gpus), 2)
    return {f"GPU {a} and GPU {b}": known.get(f"{a} {b}", known.get(f"{b} {a}")) for a, b in pairs}


def _generation(report: Report, _: Any = None) -> Seen:
    def generation(_: Gpu, device: NvmlDevice) -> int | None:
        state = device.state
        return state.pcie_generation if state.is_working else state.pcie_generation_max or state.pcie_generation

    return _of_each(report, generation)


def _width(report: Report, _: Any = None) -> Seen:
    return _of_each(report, lambda _, device: device.state.pcie_width)


def _passing(report: Report, patterns: Iterable[str]) -> Seen:
    from gpudiag.report import words

    found: Seen = {}
    for pattern in patterns:
        chosen = set(listing.chosen([pattern]))
        rows = [row for row in report.rows if row.probe in chosen]
        found |= {words.label(report, row): row.status for row in rows} or {pattern: "no row"}
    return found


def _seconds(report: Report, _: Any = None) -> Seen:
    return {"": report.duration_s}


# --- what is written from a good machine


def _quoted(text: str) -> str:
    """Return a text in TOML: a JSON string in ASCII is one."""
    import json

    return json.dumps(text)


def _listed(texts: Iterable[str]) -> str:
    return f"[{', '.join(map(_quoted, texts))}]"


def _from(text: str | None) -> str:
    return _quoted(f">={text}") if text and _is_version(text) else ""


def _least(values: Iterable[Any]) -> Any:
    known = list(values)
    return None if not known or None in known else min(known)


def _written_size(seen: Seen) -> str:
    least = _least(seen.values())
    return "" if least is None else _quoted(f"{least // MIB}MiB")


def _written_least(seen: Seen) -> str:
    least = _least(seen.values())
    return "" if least is None else str(least)


def _written_tensorflow(report: Report) -> str:
    versions = [one for one in _tensorflow(report).values() if one and _is_version(one)]
    return _quoted(f"=={'.'.join(map(str, Version(versions[0]).release[:2]))}.*") if versions else ""


def _written_capability(report: Report) -> str:
    values = [one for one in _capability(report).values() if one and _is_version(one)]
    return _from(min(values, key=Version)) if values else ""


def _written_mig(report: Report) -> str:
    layouts = set(_mig(report).values())
    if len(layouts) != 1 or (layout := layouts.pop()) is None:
        return ""
    return _quoted(layout) if isinstance(layout, str) else _listed(f"{one}MiB" for one in layout)


def _written_peers(report: Report) -> str:
    return "true" if (seen := set(_peers(report).values())) and seen == {"ok"} else ""


def _written_passing(report: Report) -> str:
    """Return the areas of which each row passed, and of the others the probes."""
    patterns: list[str] = []
    for area, rows in report.areas.items():
        if area == AREA:
            continue
        if all(_passed(row) for row in rows) and {row.probe for row in rows} == set(listing.chosen([area])):
            patterns.append(area)
        else:
            names = dict.fromkeys(row.probe for row in rows)
            patterns += [name for name in names if all(_passed(row) for row in rows if row.probe == name)]
    return f"[\n{''.join(f'    {_quoted(one)},{chr(10)}' for one in patterns)}]" if patterns else ""


def _passed(row: Row) -> bool:
    return isinstance(row.outcome, Judged) and row.status in ("pass", "note")


def _is_version(text: str) -> bool:
    try:
        Version(text)
    except InvalidVersion:
        return False
    return True


def _bytes(text: str) -> int:
    if re.fullmatch(r"[\d.]+", text.strip()):
        raise ValueError(f"{text!r} has no unit; write such as 16GiB or 512MiB")
    try:
        return parse_size(text)
    except UsageError as error:
        raise ValueError(str(error)) from None


def _range(text: str) -> SpecifierSet:
    if len(text) > _LONGEST:
        raise ValueError(f"it has more than {_LONGEST} letters")
    try:
        found = SpecifierSet(text)
    except InvalidSpecifier:
        raise ValueError("it is not a range of versions") from None
    if any(one.operator == "===" for one in found):
        raise ValueError("=== compares letters, not versions; write ==")
    return found


def _is_possible(versions: SpecifierSet) -> bool:
    """Return whether a version is in the range: its ends are tried, and what is just above each, and 0."""
    ends = [Version(one.version.removesuffix(".*")) for one in versions]
    release = [".".join(map(str, (*end.release, 0, 0, 0, 1))) for end in ends]
    tried = ["0", *map(str, ends), *(f"{end.epoch}!{text}" for end, text in zip(ends, release, strict=True))]
    return any(versions.contains(text, prereleases=True) for text in tried)


_RANGE = Range()
_DRIVER_ADVICE = "Install a driver of this range on the host, or correct {key} in {file}."
_CARD_ADVICE = "This is not the machine that is expected: choose another, or correct {key} in {file}."

KEYS = (
    Key(
        "gpus",
        Number(),
        "how many GPUs are in scope",
        _gpus,
        "See host.gpus, and the GPUs at the top of the report; or correct {key} in {file}.",
        lambda report: str(len(report.gpus)) if report.gpus else "",
    ),
    Key(
        "models",
        Names(),
        "each GPU in scope is one of these",
        _models,
        _CARD_ADVICE,
        lambda report: _listed(dict.fromkeys(gpu.name for gpu in report.gpus)) if report.gpus else "",
    ),
    Key(
        "memory-total",
        Size(),
        "each GPU in scope has at least this much memory",
        _memory_total,
        _CARD_ADVICE,
        lambda report: _written_size(_memory_total(report)),
    ),
    Key(
        "memory-free",
        Size(),
        "each GPU in scope has at least this much memory that no process uses",
        _memory_free,
        "End what uses the memory (nvidia-smi lists the processes), or correct {key} in {file}.",
        lambda report: _written_size(_memory_free(report)),
    ),
    Key(
        "driver",
        _RANGE,
        "versions of NVIDIA's driver",
        _driver,
        _DRIVER_ADVICE,
        lambda report: _from(_driver(report)[""]),
    ),
    Key(
        "cuda",
        _RANGE,
        "the newest version of CUDA that the driver supports",
        _cuda,
        _DRIVER_ADVICE,
        lambda report: _from(_cuda(report)[""]),
    ),
    Key(
        "tensorflow",
        _RANGE,
        "versions of TensorFlow",
        _tensorflow,
        "pip install 'tensorflow{value}', or correct {key} in {file}.",
        _written_tensorflow,
    ),
    Key(
        "python",
        _RANGE,
        "versions of Python",
        _python,
        "Use a Python of this range, or correct {key} in {file}.",
        lambda report: _from(_python(report)[""]),
    ),
    Key(
        "compute-capability",
        _RANGE,
        "the compute capability of each GPU in scope",
        _capability,
        _CARD_ADVICE,
        _written_capability,
    ),
    Key(
        "mig",
        Mig(),
        "the MIG layout of each GPU in scope",
        _mig,
        "Create the instances that are expected, or correct {key} in {file}. nvidia-smi mig -lgi lists what is there.",
        _written_mig,
    ),
    Key(
        "peer-access",
        Yes(),
        "each GPU in scope can read the memory of each other one",
        _peers,
        "See host.collectives, or remove {key} from {file}. nvidia-smi topo -p2p r shows each pair.",
        _written_peers,
    ),
    Key(
        "pcie-generation",
        Least(9, "a whole number, such as 4"),
        "the PCI Express generation of each GPU in scope, at least; of an idle one, which lowers it, what it can be",
        _generation,
        "Put the GPU into another slot, see the firmware's setting of that slot, or correct {key} in {file}.",
        lambda report: _written_least(_generation(report)),
    ),
    Key(
        "pcie-width",
        Least(32, "a whole number of lanes, such as 16"),
        "the PCI Express lanes of each GPU in scope, at least",
        _width,
        "Put the GPU into a slot with more lanes, without a riser, or correct {key} in {file}.",
        lambda report: _written_least(_width(report)),
    ),
    Key(
        "must-pass",
        Passing(),
        "probes that must pass, at most with notes; skipped is not passed",
        _passing,
        "Fix what these rows name, and run what has no row; or correct {key} in {file}.",
        _written_passing,
    ),
    Key(
        "time-budget",
        Most(),
        "seconds that the run may take",
        _seconds,
        "Run fewer probes (--level quick, SELECT), or correct {key} in {file}.",
        lambda report: str(max(10, 10 * math.ceil(report.duration_s / 5))),
    ),
)


def explanation(name: str) -> str:
    """Return what a row of an expectation, such as ``expect.driver``, is about; raises :class:`UsageError`."""
    known = {f"{AREA}.{key.name}": key for key in KEYS}
    if name == f"{AREA}.accept":
        return f"{name}: which findings are accepted, why and until when. See: gpudiag docs expectations\n"
    if name not in known:
        raise UsageError(f"No expectation is called {name!r}. {nearest(name, known)}")
    key = known[name]
    advice = key.advice.format(key=key.name, file="the file", value=f"<{key.field}>")
    return (
        f"{name}: {key.what}\n\n    {key.name} = {key.comparison.wanted}\n\n{advice}\n\n"
        "All of them: gpudiag docs expectations\n"
    )
