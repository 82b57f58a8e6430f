"""Parses the description of a simulated machine: `2`, `4x16GiB`, `2x80GiB:H100,1x16GiB:T4` or a TOML file."""

from __future__ import annotations

import hashlib
import re
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from gpudiag.errors import nearest, sentences
from gpudiag.simulator.errors import SimulatorError, SpecError, with_caret
from gpudiag.simulator.faults import Fault, parse_fault
from gpudiag.simulator.sizes import GIB, MIB, parse_size
from gpudiag.text import counted

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

MAX_GPUS = 64
MAX_MIG_INSTANCES = 7


@dataclass(frozen=True)
class NvmlState:
    """A value that NVML reports about a GPU's health or limits."""

    meaning: str
    high: int = 1
    low: int = -1


STATES: Mapping[str, NvmlState] = {
    "persistence": NvmlState("persistence mode is on"),
    "virtualization": NvmlState("0 none, 1 passed through, 2 vGPU, 3 and 4 a host of vGPUs", 4),
    "licence": NvmlState("1 if a vGPU has its licence"),
    "ecc": NvmlState("ECC is on"),
    "ecc_uncorrected": NvmlState("memory errors that were not corrected", 1 << 40),
    "ecc_corrected": NvmlState("memory errors that were corrected", 1 << 40),
    "retired_pages": NvmlState("pages of memory that were taken out of use", 64),
    "retirement_pending": NvmlState("1 if more pages wait to be taken out of use"),
    "remapped_rows": NvmlState("rows of memory that were replaced by spare ones", 512),
    "remap_pending": NvmlState("1 if more rows wait to be replaced", low=0),
    "remap_failed": NvmlState("1 if no spare row is left", low=0),
    "pcie_generation": NvmlState("generation of the PCI Express link now", 7),
    "pcie_generation_max": NvmlState("highest generation of the link", 7),
    "pcie_width": NvmlState("lanes of the link now", 16),
    "pcie_width_max": NvmlState("most lanes of the link", 16),
    "throttle": NvmlState(
        "why clocks are lowered, bits of nvmlClocksEventReasons: 1 idle, 64 too hot, 128 power", 1 << 12
    ),
    "performance_state": NvmlState("0 is the fastest, 8 and more is idle", 15),
    "power_limit": NvmlState("milliwatts", 1 << 24),
    "power_default": NvmlState("milliwatts, the card's default", 1 << 24),
    "clock": NvmlState("MHz", 1 << 16),
    "clock_max": NvmlState("MHz", 1 << 16),
    "fabric": NvmlState("NVSwitch: 0 none, 1 not started, 2 in progress, 3 completed", 3),
    "fabric_status": NvmlState("error of the fabric; 0: none", 999, 0),
    "nvlinks": NvmlState("links that the card has", 18),
    "nvlinks_active": NvmlState("links that are up", 18, 0),
    "peer": NvmlState("0 if other GPUs may read its memory; otherwise why not, nvmlGpuP2PStatus_t", 6),
    "confidential": NvmlState("confidential computing is on; the first GPU's value counts for the machine"),
    "confidential_ready": NvmlState(
        "1 if the GPUs are ready for confidential computing; the first GPU's value counts for the machine"
    ),
}
"""The values that a GPU can have. Those of a healthy card are in src/gpu_state.inc; -1 is "not supported"."""

COMPUTE_MODES = {"default": 0, "exclusive_thread": 1, "prohibited": 2, "exclusive_process": 3}

GRAMMAR = (
    "Write COUNT[xMEMORY][:PRESET], or several of these with commas between them, for instance\n"
    "  2    4x16GiB    2x80GiB:H100,1x16GiB:T4\n"
    "or the name of a .toml file."
)


@dataclass(frozen=True)
class Preset:
    """A graphics card. Memory is the total of nvidia-smi; speed ranks cards for FASTEST_FIRST."""

    name: str
    memory: int
    compute_capability: tuple[int, int]
    multiprocessors: int
    speed: int


# Compute capabilities: CUDA C++ Programming Guide, table of GPUs. Multiprocessors: NVIDIA's
# architecture whitepapers. Speed: TFLOPS of dense float32, rounded.
PRESETS: Mapping[str, Preset] = {
    "T4": Preset("Tesla T4", 15360 * MIB, (7, 5), 40, 8),
    "V100": Preset("Tesla V100-SXM2-16GB", 16384 * MIB, (7, 0), 80, 16),
    "A10": Preset("NVIDIA A10", 23028 * MIB, (8, 6), 72, 31),
    "L4": Preset("NVIDIA L4", 23034 * MIB, (8, 9), 58, 30),
    "A100-40": Preset("NVIDIA A100-SXM4-40GB", 40960 * MIB, (8, 0), 108, 19),
    "A100-80": Preset("NVIDIA A100-SXM4-80GB", 81920 * MIB, (8, 0), 108, 19),
    "H100": Preset("NVIDIA H100 80GB HBM3", 81559 * MIB, (9, 0), 132, 67),
    "H200": Preset("NVIDIA H200", 143771 * MIB, (9, 0), 132, 67),
    "B200": Preset("NVIDIA B200", 183359 * MIB, (10, 0), 148, 75),
    "RTX3090": Preset("NVIDIA GeForce RTX 3090", 24576 * MIB, (8, 6), 82, 36),
    "RTX4090": Preset("NVIDIA GeForce RTX 4090", 24564 * MIB, (8, 9), 128, 83),
}
# Without a preset: no card in particular, of a compute capability that TensorFlow's wheels have
# kernels for.
GENERIC = Preset("GPU", 16 * GIB, (8, 0), 108, 19)


@dataclass(frozen=True)
class SimulatedGpu:
    """One simulated GPU. Sizes are in bytes."""

    name: str = f"Simulated {GENERIC.name}"
    memory: int = GENERIC.memory
    compute_capability: tuple[int, int] = GENERIC.compute_capability
    multiprocessors: int = GENERIC.multiprocessors
    speed: int = GENERIC.speed
    pci_bus_id: str = ""  # "0000:01:00.0"; empty: given by place
    uuid: str = ""  # empty: derived from the place
    compute_mode: str = "default"
    mig: int = 0  # MIG instances; 0: MIG mode is off
    context_overhead: int = 400 * MIB  # what a context costs before the first allocation
    taken: int = 0  # memory that another process holds
    taken_by: int = 1  # and its process id
    numa_node: int = 0
    kernel_us: int = 0  # how long a product takes; 0: as long as the host
    copy_mb_s: int = 0  # MB that a copy moves in a second; 0: as fast as the host
    noise: int = 0  # of these times, in thousandths
    noise_seed: int = 1
    memory_pools: bool = True  # whether TF_GPU_ALLOCATOR=cuda_malloc_async can work
    state: tuple[tuple[str, int], ...] = ()  # of STATES, what differs from a healthy card

    @property
    def mig_uuids(self) -> tuple[str, ...]:
        return tuple(_uuid("MIG", f"{self.uuid}/{number}") for number in range(self.mig))

    @property
    def pci_key(self) -> tuple[int, int, int]:
        domain, bus, slot = re.split("[:.]", self.pci_bus_id)[:3]
        return int(domain, 16), int(bus, 16), int(slot, 16)


@dataclass(frozen=True)
class MachineSpec:
    """A simulated machine. Its GPUs are in PCI order, as NVML counts them."""

    gpus: tuple[SimulatedGpu, ...]
    driver_version: str = "560.35.05"
    cuda_version: str = "12.6"  # of the driver
    cudnn_version: str = "9.3.0"
    faults: tuple[Fault, ...] = ()
    files: tuple[tuple[str, str | None], ...] = ()  # absolute path and content; None: removed
    modes: tuple[tuple[str, int], ...] = ()  # permissions of files by absolute path
    text: str = field(default="", compare=False)  # as the user wrote it

    @property
    def memory(self) -> int:
        return sum(gpu.memory for gpu in self.gpus)

    def summary(self) -> str:
        """A summary such as `2 simulated GPUs (Simulated Tesla T4, 15.0 GiB; ...)`."""
        kinds: dict[str, int] = {}
        for gpu in self.gpus:
            kind = f"{gpu.name}, {gpu.memory / GIB:.1f} GiB"
            kinds[kind] = kinds.get(kind, 0) + 1
        parts = [f"{count}x {kind}" if len(kinds) > 1 else kind for kind, count in kinds.items()]
        return f"{counted(len(self.gpus), 'simulated GPU')} ({'; '.join(parts)})"


def parse_spec(text: str) -> MachineSpec:
    """Return the machine that `text` describes; raises SpecError with the mistake and the allowed forms."""
    if text.strip().endswith(".toml"):
        return read_toml(Path(text.strip()))
    gpus: list[SimulatedGpu] = []
    column = 0
    for part in text.split(","):
        gpus += _parse_part(text, part, column)
        if len(gpus) > MAX_GPUS:
            raise _error(text, column, f"{len(gpus)} GPUs are too many", f"Write 1 to {MAX_GPUS} GPUs.")
        column += len(part) + 1
    return MachineSpec(gpus=_placed(gpus), text=text)


_PART = re.compile(r"\s*(?P<count>-?\d+)(?:x(?P<memory>[^:\s]*))?(?::(?P<preset>[^\s]*))?\s*", re.IGNORECASE)


def _error(text: str, column: int, fault: str, fix: str = GRAMMAR) -> SpecError:
    return SpecError(with_caret(text, column, fault, fix))


def _parse_part(text: str, part: str, column: int) -> list[SimulatedGpu]:
    match = _PART.match(part)
    if not match:
        blanks = len(part) - len(part.lstrip())
        raise _error(text, column + blanks, "a number of GPUs is missing")
    if match.end() != len(part):
        raise _error(text, column + match.end(), f"{part[match.end() :]!r} is not understood")
    count = int(match["count"])
    if not 1 <= count <= MAX_GPUS:
        place = column + match.start("count")
        raise _error(text, place, f"{count} GPUs cannot be simulated", f"Write 1 to {MAX_GPUS} GPUs.")
    gpu = SimulatedGpu()
    if match["preset"] is not None:
        try:
            gpu = _from_preset(match["preset"])
        except SpecError as error:
            fault, _, fix = str(error).partition(". ")
            raise _error(text, column + match.start("preset"), fault, fix) from None
    if match["memory"] is not None:
        try:
            gpu = replace(gpu, memory=parse_size(match["memory"]))
        except SpecError as error:
            fault, _, fix = str(error).partition(". ")
            raise _error(text, column + match.start("memory"), fault, fix) from None
    return [gpu] * count


def _from_preset(name: str) -> SimulatedGpu:
    by_name = {known.lower(): known for known in PRESETS}
    known = by_name.get(re.sub(r"[\s_]", "", name.lower()))
    if known is None:
        raise SpecError(f"no preset is called {name!r}. {nearest(name, PRESETS)}")
    preset = PRESETS[known]
    return SimulatedGpu(
        name=f"Simulated {preset.name}",
        memory=preset.memory,
        compute_capability=preset.compute_capability,
        multiprocessors=preset.multiprocessors,
        speed=preset.speed,
    )


def _uuid(kind: str, seed: str) -> str:
    digest = hashlib.sha256(f"gpudiag simulated {kind} {seed}".encode()).hexdigest()
    return "-".join((kind, digest[:8], digest[8:12], digest[12:16], digest[16:20], digest[20:32]))


def _placed(gpus: list[SimulatedGpu]) -> tuple[SimulatedGpu, ...]:
    """Return the GPUs with their own PCI bus ids and UUIDs, in PCI order."""
    used = {gpu.pci_bus_id for gpu in gpus if gpu.pci_bus_id}
    free = (place for bus in range(1, 256) if (place := f"0000:{bus:02x}:00.0") not in used)
    placed = []
    for number, gpu in enumerate(gpus):
        place = gpu.pci_bus_id or next(free)
        placed.append(replace(gpu, pci_bus_id=place, uuid=gpu.uuid or _uuid("GPU", f"{number}")))
    return tuple(sorted(placed, key=lambda gpu: gpu.pci_key))


# ---- TOML ----

_MACHINE_KEYS = {"driver_version", "cuda_version", "cudnn_version", "faults", "files", "gpu"}


def read_toml(path: Path) -> MachineSpec:
    """Read a machine from a TOML file: [[gpu]] tables, and the machine's versions and faults above them."""
    try:
        table = tomllib.loads(path.read_text())
    except OSError as error:
        raise SpecError(f"{path} cannot be read: {error.strerror}.") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise SpecError(f"{path} is not TOML: {error}.") from None
    try:
        return _machine_from(table, str(path))
    except SimulatorError as error:
        raise type(error)(f"{path}: {error}") from None


def _refuse_unknown(table: Mapping[str, Any], known: set[str], where: str) -> None:
    for key in table:
        if key not in known:
            raise SpecError(sentences(f"unknown key {key!r} {where}.", nearest(key, known)))


def _machine_from(table: Mapping[str, Any], text: str) -> MachineSpec:
    _refuse_unknown(table, _MACHINE_KEYS, "at the top")
    entries = table.get("gpu", [])
    if not isinstance(entries, list) or not entries:
        raise SpecError(f"there is no [[gpu]] table. Write 1 to {MAX_GPUS} GPUs.")
    gpus: list[SimulatedGpu] = []
    for number, entry in enumerate(entries, 1):
        gpus += _gpus_from(entry, f"in [[gpu]] number {number}")
    if len(gpus) > MAX_GPUS:
        raise SpecError(f"{len(gpus)} GPUs are too many. Write 1 to {MAX_GPUS} GPUs.")
    for what in ("pci_bus_id", "uuid"):
        given = [getattr(gpu, what).lower() for gpu in gpus if getattr(gpu, what)]
        twice = sorted({value for value in given if given.count(value) > 1})
        if twice:
            raise SpecError(f"two GPUs have the same {what}, {twice[0]}. Give each its own.")
    faults = table.get("faults", [])
    if not isinstance(faults, list) or not all(isinstance(fault, str) for fault in faults):
        raise SpecError('faults must be a list of strings, for instance faults = ["cuinit=802"].')
    files = table.get("files", {})
    if not isinstance(files, dict) or not all(map(_is_file, files.items())):
        raise SpecError(
            '[files] maps absolute paths to their content, to false or to permissions: "/.dockerenv" = "", '
            '"/dev/nvidia-uvm" = false, "/dev/nvidia0" = { mode = "660" }.'
        )
    versions = {
        key: _text(table[key], pattern, key, example)
        for key, pattern, example in (
            ("driver_version", r"\d+(\.\d+){1,2}", "560.35.05"),
            ("cuda_version", r"\d+\.\d+", "12.6"),
            ("cudnn_version", r"\d+\.\d+\.\d+", "9.3.0"),
        )
        if key in table
    }
    parsed = tuple(parse_fault(fault) for fault in faults)
    modes = tuple((path, int(content["mode"], 8)) for path, content in files.items() if isinstance(content, dict))
    kept = tuple(
        (path, content if isinstance(content, str) else "" if isinstance(content, dict) else None)
        for path, content in files.items()
    )
    return MachineSpec(gpus=_placed(gpus), faults=parsed, files=kept, modes=modes, text=text, **versions)


def _is_file(entry: tuple[str, object]) -> bool:
    path, content = entry
    inside = path.startswith("/") and ".." not in Path(path).parts and path != "/"
    mode = content.get("mode") if isinstance(content, dict) and len(content) == 1 else None
    permissions = isinstance(mode, str) and re.fullmatch("[0-7]{3}", mode) is not None
    return inside and (content is False or isinstance(content, str) or permissions)


def _text(value: object, pattern: str, key: str, example: str) -> str:
    if not isinstance(value, str) or not re.fullmatch(pattern, value, re.IGNORECASE):
        raise SpecError(f"{key} = {value!r} is not understood. Write for instance {key} = {example!r}.")
    return value


def _number(value: object, low: int, high: int, key: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        raise SpecError(f"{key} = {value!r} is not possible. Write {low} to {high}.")
    return value


def _within(low: int, high: int) -> Callable[[object, str], int]:
    return lambda value, key: _number(value, low, high, key)


def _name(value: object, key: str) -> str:
    if not isinstance(value, str) or not 0 < len(value) <= 100 or not value.isprintable():
        raise SpecError(f"{key} = {value!r} is not possible. Write 1 to 100 printable characters.")
    return value if value.startswith("Simulated ") else f"Simulated {value}"


def _size(value: object, _: str) -> int:
    return parse_size(str(value))


def _size_or_none(value: object, _: str) -> int:
    return 0 if value in (0, "0") else parse_size(str(value))


def _capability(value: object, key: str) -> tuple[int, int]:
    major, minor = _text(value, r"\d+\.\d", key, "8.0").split(".")
    return int(major), int(minor)


def _bus_id(value: object, key: str) -> str:
    return _text(value, r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]", key, "0000:17:00.0").lower()


def _gpu_uuid(value: object, key: str) -> str:
    return _text(value, r"GPU-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", key, _uuid("GPU", "example"))


def _mode(value: object, key: str) -> str:
    if not isinstance(value, str) or value not in COMPUTE_MODES:
        raise SpecError(f"{key} = {value!r} is not known. Write one of {', '.join(COMPUTE_MODES)}.")
    return value


def _switch(value: object, key: str) -> bool:
    if not isinstance(value, bool):
        raise SpecError(f"{key} = {value!r} is not possible. Write true or false.")
    return value


def _state(value: object, key: str) -> tuple[tuple[str, int], ...]:
    if not isinstance(value, dict):
        raise SpecError(f"{key} = {value!r} is not possible. Write a table, such as {key} = {{ pcie_width = 1 }}.")
    _refuse_unknown(value, set(STATES), f"in {key}")
    return tuple(
        (name, _number(number, STATES[name].low, STATES[name].high, f"{key}.{name}")) for name, number in value.items()
    )


_READERS: Mapping[str, Callable[[object, str], Any]] = {
    "count": _within(1, MAX_GPUS),
    "name": _name,
    "memory": _size,
    "compute_capability": _capability,
    "multiprocessors": _within(1, 1024),
    "speed": _within(1, 1024),
    "pci_bus_id": _bus_id,
    "uuid": _gpu_uuid,
    "compute_mode": _mode,
    "mig": _within(0, MAX_MIG_INSTANCES),
    "context_overhead": _size_or_none,
    "taken": _size_or_none,
    "taken_by": _within(1, 1 << 22),
    "numa_node": _within(-1, 1023),
    "kernel_us": _within(0, 1_000_000),
    "copy_mb_s": _within(0, 1_000_000),
    "noise": _within(0, 300),
    "noise_seed": _within(1, 1 << 20),
    "memory_pools": _switch,
    "state": _state,
}
_GPU_KEYS = {"preset", *_READERS}


def _gpus_from(entry: object, where: str) -> list[SimulatedGpu]:
    if not isinstance(entry, dict):
        raise SpecError(f"{where}: [[gpu]] must be a table.")
    _refuse_unknown(entry, _GPU_KEYS, where)
    gpu = _from_preset(str(entry["preset"])) if "preset" in entry else SimulatedGpu()
    changes = {key: _READERS[key](value, key) for key, value in entry.items() if key != "preset"}
    count = changes.pop("count", 1)
    gpu = replace(gpu, **changes)
    if gpu.mig and gpu.compute_capability < (8, 0):
        raise SpecError(f"mig needs compute capability 8.0 or later, and the GPU {where} has less.")
    if gpu.taken > gpu.memory:
        raise SpecError(f"taken is more than memory {where}.")
    if count > 1 and (gpu.pci_bus_id or gpu.uuid):
        raise SpecError(f"pci_bus_id and uuid belong to one GPU, but count is {count} {where}.")
    return [gpu] * count
