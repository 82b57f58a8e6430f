"""``nvidia-smi`` of a simulated machine, which has it first on PATH: a program that reads the simulated NVML.

It has the most used output of NVIDIA's program: the summary, ``-L``, ``-q``, ``--query-gpu``, ``--query-compute-apps``
and ``topo -m``, with the same names and exit statuses. What it does not know is an error that says so; what a simulated
GPU does not have, such as a fan, is ``[N/A]``. It runs by itself, without the package: all that it knows comes
from NVML and /proc.
"""

from __future__ import annotations

import argparse
import re
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from functools import cached_property
from pathlib import Path
from typing import Any, NoReturn

import pynvml

MIB = 1 << 20
NOT_AVAILABLE = "[N/A]"
USAGE_STATUS, NOT_FOUND_STATUS = 2, 6  # as NVIDIA's
COMPUTE_MODES = ("Default", "Exclusive_Thread", "Prohibited", "Exclusive_Process")
INIT_FAILED = {
    pynvml.NVML_ERROR_LIBRARY_NOT_FOUND: "NVIDIA-SMI couldn't find libnvidia-ml.so library in your system. Please make "
    "sure that the NVIDIA Display Driver is properly installed and present in your system.\nPlease also try adding "
    "directory that contains libnvidia-ml.so to your system PATH.",
    pynvml.NVML_ERROR_DRIVER_NOT_LOADED: "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA "
    "driver. Make sure that the latest NVIDIA driver is installed and running.",
    pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH: "Failed to initialize NVML: Driver/library version mismatch",
}


class SmiGpu:
    """A GPU as NVML describes it; an unanswered field is None."""

    def __init__(self, index: int) -> None:
        self.index = index
        self.handle = pynvml.nvmlDeviceGetHandleByIndex(index)

    def ask(self, function: str, *arguments: Any) -> Any:
        """Return the answer of ``nvmlDeviceGet<function>``, or None if the GPU does not support it."""
        return asked(getattr(pynvml, f"nvmlDeviceGet{function}"), self.handle, *arguments)

    @cached_property
    def pci(self) -> str:
        """The PCI bus id, such as ``00000000:01:00.0``."""
        found = self.ask("PciInfo")
        return f"{found.domain:08X}:{found.bus:02X}:{found.device:02X}.0"

    @cached_property
    def memory(self) -> Any:
        return self.ask("MemoryInfo")

    @property
    def reserved(self) -> int | None:
        """Bytes that are neither used nor free."""
        return None if self.memory is None else self.memory.total - self.memory.used - self.memory.free

    @cached_property
    def mig_mode(self) -> bool | None:
        found = self.ask("MigMode")
        return None if found is None else bool(found[0])

    @property
    def instances(self) -> Iterator[tuple[int, str, str]]:
        """Number, name and UUID of each MIG instance."""
        for number in range(self.ask("MaxMigDeviceCount") or 0):
            if (instance := self.ask("MigDeviceHandleByIndex", number)) is None:
                return
            yield (
                number,
                asked(pynvml.nvmlDeviceGetName, instance) or "",
                asked(pynvml.nvmlDeviceGetUUID, instance) or "",
            )

    @property
    def processes(self) -> Iterator[tuple[int, str, int | None]]:
        """Process id, command and bytes of each process with a context."""
        for process in self.ask("ComputeRunningProcesses") or ():
            yield process.pid, command_of(process.pid), process.usedGpuMemory

    def links(self) -> int:
        """Return how many NVLinks are active."""
        return sum(self.ask("NvLinkState", link) == 1 for link in range(18))


def asked(function: Callable[..., Any], *arguments: Any) -> Any:
    """Return the answer; None if NVML or this version of it lacks the function. The program ends if the GPU is lost."""
    try:
        return function(*arguments)
    except (
        pynvml.NVMLError_NotSupported,
        pynvml.NVMLError_FunctionNotFound,
        pynvml.NVMLError_NotFound,
        pynvml.NVMLError_InvalidArgument,
    ):
        return None


def command_of(pid: int) -> str:
    """Return the program of a process, as /proc names it."""
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return "[Not Found]"
    return words[0].decode(errors="replace") or "[Not Found]"


def on_off(answer: Any) -> str | None:
    return None if answer is None else "Enabled" if answer else "Disabled"


def mib(number: int | None) -> str | None:
    return None if number is None else str(number // MIB)


def watts(milliwatts: int | None) -> str | None:
    return None if milliwatts is None else f"{milliwatts / 1000:.2f}"


def compute_mode(gpu: SmiGpu) -> str | None:
    found = gpu.ask("ComputeMode")
    return None if found is None else COMPUTE_MODES[found]


def ecc(gpu: SmiGpu) -> bool | None:
    found = gpu.ask("EccMode")
    return None if found is None else bool(found[0])


def ecc_errors(gpu: SmiGpu, kind: int) -> int | None:
    return gpu.ask("TotalEccErrors", kind, pynvml.NVML_VOLATILE_ECC) if ecc(gpu) else None


def capability(gpu: SmiGpu) -> str | None:
    found = gpu.ask("CudaComputeCapability")
    return None if found is None else "{}.{}".format(*found)


def performance(gpu: SmiGpu) -> str | None:
    found = gpu.ask("PerformanceState")
    return None if found is None else f"P{found}"


Field = tuple[str, Callable[[SmiGpu], Any]]
"""The unit of a field, and the function that reads it from a GPU."""

NOT_SIMULATED = {
    "temperature.memory": "",
    "fan.speed": "%",
    "utilization.memory": "%",
    "power.draw.instant": "W",
    "power.draw.average": "W",
    "serial": "",
    "vbios_version": "",
    "pci.sub_device_id": "",
    "clocks.current.memory": "MHz",
    "clocks.mem": "MHz",
    "clocks.max.memory": "MHz",
    "encoder.stats.sessionCount": "",
    "accounting.mode": "",
    "inforom.img": "",
}
"""Fields of NVIDIA's program that simulated GPUs do not have, with their units."""

FIELDS: dict[str, Field] = {
    "timestamp": ("", lambda _: now()),
    "driver_version": ("", lambda _: pynvml.nvmlSystemGetDriverVersion()),
    "count": ("", lambda _: pynvml.nvmlDeviceGetCount()),
    "index": ("", lambda gpu: gpu.index),
    "name": ("", lambda gpu: gpu.ask("Name")),
    "uuid": ("", lambda gpu: gpu.ask("UUID")),
    "pci.bus_id": ("", lambda gpu: gpu.pci),
    "pci.domain": ("", lambda gpu: f"0x{int(gpu.pci[:8], 16):04X}"),
    "pci.bus": ("", lambda gpu: f"0x{gpu.pci[9:11]}"),
    "pci.device": ("", lambda gpu: f"0x{gpu.pci[12:14]}"),
    "pcie.link.gen.current": ("", lambda gpu: gpu.ask("CurrPcieLinkGeneration")),
    "pcie.link.gen.max": ("", lambda gpu: gpu.ask("MaxPcieLinkGeneration")),
    "pcie.link.width.current": ("", lambda gpu: gpu.ask("CurrPcieLinkWidth")),
    "pcie.link.width.max": ("", lambda gpu: gpu.ask("MaxPcieLinkWidth")),
    "persistence_mode": ("", lambda gpu: on_off(gpu.ask("PersistenceMode"))),
    "display_active": ("", lambda gpu: on_off(gpu.ask("DisplayActive"))),
    "display_mode": ("", lambda gpu: on_off(gpu.ask("DisplayMode"))),
    "compute_mode": ("", compute_mode),
    "compute_cap": ("", capability),
    "pstate": ("", performance),
    "mig.mode.current": ("", lambda gpu: on_off(gpu.mig_mode)),
    "mig.mode.pending": ("", lambda gpu: on_off(gpu.mig_mode)),
    "memory.total": ("MiB", lambda gpu: mib(gpu.memory.total)),
    "memory.used": ("MiB", lambda gpu: mib(gpu.memory.used)),
    "memory.free": ("MiB", lambda gpu: mib(gpu.memory.free)),
    "memory.reserved": ("MiB", lambda gpu: mib(gpu.reserved)),
    "ecc.mode.current": ("", lambda gpu: on_off(ecc(gpu))),
    "ecc.errors.corrected.volatile.total": ("", lambda gpu: ecc_errors(gpu, pynvml.NVML_MEMORY_ERROR_TYPE_CORRECTED)),
    "ecc.errors.uncorrected.volatile.total": (
        "",
        lambda gpu: ecc_errors(gpu, pynvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED),
    ),
    "power.limit": ("W", lambda gpu: watts(gpu.ask("PowerManagementLimit"))),
    "enforced.power.limit": ("W", lambda gpu: watts(gpu.ask("EnforcedPowerLimit"))),
    "power.default_limit": ("W", lambda gpu: watts(gpu.ask("PowerManagementDefaultLimit"))),
    "clocks.current.graphics": ("MHz", lambda gpu: gpu.ask("ClockInfo", pynvml.NVML_CLOCK_GRAPHICS)),
    "clocks.current.sm": ("MHz", lambda gpu: gpu.ask("ClockInfo", pynvml.NVML_CLOCK_SM)),
    "clocks.max.graphics": ("MHz", lambda gpu: gpu.ask("MaxClockInfo", pynvml.NVML_CLOCK_GRAPHICS)),
    "clocks.max.sm": ("MHz", lambda gpu: gpu.ask("MaxClockInfo", pynvml.NVML_CLOCK_SM)),
    "temperature.gpu": ("", lambda gpu: gpu.ask("Temperature", pynvml.NVML_TEMPERATURE_GPU)),
    "utilization.gpu": ("%", lambda gpu: getattr(gpu.ask("UtilizationRates"), "gpu", None)),
    "power.draw": ("W", lambda gpu: watts(gpu.ask("PowerUsage"))),
    **{name: (unit, lambda _: None) for name, unit in NOT_SIMULATED.items()},
}
ALIASES = {
    "gpu_name": "name",
    "gpu_uuid": "uuid",
    "gpu_bus_id": "pci.bus_id",
    "clocks.gr": "clocks.current.graphics",
    "clocks.sm": "clocks.current.sm",
    "clocks.max.gr": "clocks.max.graphics",
}
PROCESS_FIELDS = ("timestamp", "gpu_name", "gpu_bus_id", "gpu_uuid", "pid", "process_name", "used_memory")
PROCESS_ALIASES = {"name": "process_name", "used_gpu_memory": "used_memory"}
FORMATS = ("csv", "noheader", "nounits")
OURS = "This is gpudiag's nvidia-smi for simulated GPUs"


class Parser(argparse.ArgumentParser):
    """An argparse parser with the wording of NVIDIA's program, where that is known."""

    def error(self, message: str) -> NoReturn:
        unknown = re.match(r"unrecognized arguments: (\S+)", message)
        if unknown:
            message = f"ERROR: Option {unknown[1]} is not recognized. Please run 'nvidia-smi -h'"
        fail(f"{message}.\n{OURS}: nvidia-smi -h lists what it knows.")


def fail(message: str, status: int = USAGE_STATUS) -> NoReturn:
    """End with a message on standard output, as NVIDIA's program does."""
    print(message)
    raise SystemExit(status)


def now() -> str:
    return datetime.now().strftime("%Y/%m/%d %H:%M:%S.%f")[:-3]


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = Parser(
        prog="nvidia-smi",
        allow_abbrev=False,
        description="NVIDIA's System Management Interface on simulated GPUs (gpudiag simulate). Settings of GPUs "
        "cannot be changed: they are in the file of the machine.",
    )
    what = parser.add_mutually_exclusive_group()
    what.add_argument("-L", "--list-gpus", action="store_true", help="list the GPUs and their MIG instances")
    what.add_argument("-q", "--query", action="store_true", help="show all fields of each GPU")
    what.add_argument("--query-gpu", metavar="FIELD,...", help="show these fields of each GPU; see --help-query-gpu")
    what.add_argument("--query-compute-apps", metavar="FIELD,...", help=f"of each process: {', '.join(PROCESS_FIELDS)}")
    what.add_argument("--help-query-gpu", action="store_true", help="list the fields")
    what.add_argument("--version", action="store_true", help="versions of the driver, NVML and CUDA")
    parser.add_argument("-i", "--id", metavar="GPU,...", help="index, UUID or PCI bus id of the GPUs to show")
    parser.add_argument("--format", metavar="csv[,noheader][,nounits]", help="needed with fields")
    parser.add_argument("-f", "--filename", metavar="FILE", help="write to this file")
    parser.add_argument("-l", "--loop", metavar="SECONDS", type=float, nargs="?", const=5.0, help="again and again")
    parser.add_argument("-lms", "--loop-ms", metavar="MILLISECONDS", type=float, help="the same")
    parser.add_argument("command", nargs="*", metavar="topo -m", help="show how the GPUs are connected")
    parser.add_argument("-m", "--matrix", action="store_true", help=argparse.SUPPRESS)
    asked_for = parser.parse_intermixed_args(list(arguments))
    if asked_for.command and asked_for.command != ["topo"]:
        parser.error(f"no command {asked_for.command[0]!r}")
    if asked_for.command and not asked_for.matrix:
        parser.error("of topo, only topo -m is simulated")
    if asked_for.matrix and not asked_for.command:
        parser.error("no option '-m' without the command topo")
    return asked_for


def chosen(wanted: str | None) -> list[SmiGpu]:
    """Return all GPUs, or those that ``wanted`` names."""
    gpus = [SmiGpu(index) for index in range(pynvml.nvmlDeviceGetCount())]
    if not gpus:
        fail("No devices were found", NOT_FOUND_STATUS)
    if wanted is None:
        return gpus
    found = []
    for name in wanted.split(","):
        matching = [
            gpu
            for gpu in gpus
            if name in (str(gpu.index), gpu.ask("UUID")) or gpu.pci.lower().endswith(name.lower().removeprefix("0000"))
        ]
        if not name or not matching:
            fail(f"No devices were found: no GPU has the index, UUID or PCI bus id {name!r}", NOT_FOUND_STATUS)
        found += matching
    return found


def rows_of_fields(names: str, known: Sequence[str], aliases: dict[str, str]) -> list[str]:
    fields = [name.strip() for name in names.split(",")]
    for name in fields:
        if aliases.get(name, name) not in known:
            fail(f'Field "{name}" is not a valid field to query.\n\n{OURS}. It knows: {", ".join(known)}')
    return [aliases.get(name, name) for name in fields]


def with_unit(cell: Any, unit: str) -> str:
    return NOT_AVAILABLE if cell is None else f"{cell} {unit}".rstrip()


def csv(wanted: argparse.Namespace, header: list[str], units: list[str], rows: list[list[Any]]) -> list[str]:
    """Return the lines of a table in the format of NVIDIA's program: ", " between the cells."""
    options = (wanted.format or "").split(",")
    if "csv" not in options or not set(options) <= set(FORMATS):
        fail(f"the format must be csv[,noheader][,nounits]; it is {wanted.format!r}")
    names = [f"{name} [{unit}]" if unit else name for name, unit in zip(header, units, strict=True)]
    if "nounits" in options:
        units = [""] * len(units)
    shown = [[with_unit(*cell) for cell in zip(row, units, strict=True)] for row in rows]
    return [", ".join(line) for line in ([] if "noheader" in options else [names]) + shown]


def query_gpu(wanted: argparse.Namespace) -> list[str]:
    names = rows_of_fields(wanted.query_gpu, tuple(FIELDS), ALIASES)
    fields = [FIELDS[name] for name in names]
    rows = [[ask(gpu) for _, ask in fields] for gpu in chosen(wanted.id)]
    return csv(wanted, names, [unit for unit, _ in fields], rows)


def query_compute_apps(wanted: argparse.Namespace) -> list[str]:
    names = rows_of_fields(wanted.query_compute_apps, PROCESS_FIELDS, PROCESS_ALIASES)
    rows = []
    for gpu in chosen(wanted.id):
        for pid, command, used in gpu.processes:
            cells = {
                "timestamp": now(),
                "gpu_name": gpu.ask("Name"),
                "gpu_bus_id": gpu.pci,
                "gpu_uuid": gpu.ask("UUID"),
                "pid": pid,
                "process_name": command,
                "used_memory": mib(used),
            }
            rows.append([cells[name] for name in names])
    header = ["used_gpu_memory" if name == "used_memory" else name for name in names]
    return csv(wanted, header, ["MiB" if name == "used_gpu_memory" else "" for name in header], rows)


def listed(wanted: argparse.Namespace) -> list[str]:
    lines = []
    for gpu in chosen(wanted.id):
        lines.append(f"GPU {gpu.index}: {gpu.ask('Name')} (UUID: {gpu.ask('UUID')})")
        for number, name, uuid in gpu.instances:
            profile = name.partition(" MIG ")[2]  # of real ones: NVIDIA A100-SXM4-40GB MIG 3g.20gb
            lines.append(f"  MIG {profile:<11} Device {number:>2}: (UUID: {uuid})")
    return lines


def topology(wanted: argparse.Namespace) -> list[str]:
    gpus = chosen(wanted.id)
    lines = ["\t".join(["", *(f"GPU{gpu.index}" for gpu in gpus), "CPU Affinity", "NUMA Affinity", "GPU NUMA ID"])]
    for gpu in gpus:
        node = gpu.ask("NumaNodeId")
        cells = [" X " if gpu is other else connection(gpu, other) for other in gpus]
        lines.append("\t".join([f"GPU{gpu.index}", *cells, "N/A", "N/A" if node is None else str(node), "", "N/A"]))
    return [*lines, *LEGEND]


LEGEND = """
Legend:

  X    = Self
  SYS  = Connection traversing PCIe as well as the SMP interconnect between NUMA nodes (e.g., QPI/UPI)
  NODE = Connection traversing PCIe as well as the interconnect between PCIe Host Bridges within a NUMA node
  PHB  = Connection traversing PCIe as well as a PCIe Host Bridge (typically the CPU)
  PXB  = Connection traversing multiple PCIe bridges (without traversing the PCIe Host Bridge)
  PIX  = Connection traversing at most a single PCIe bridge
  NV#  = Connection traversing a bonded set of # NVLinks""".splitlines()


def connection(gpu: SmiGpu, other: SmiGpu) -> str:
    """Return the connection of two GPUs, as far as a simulated machine has one: its NVLinks and NUMA nodes."""
    links = min(gpu.links(), other.links())
    if links:
        return f"NV{links}"
    return "NODE" if gpu.ask("NumaNodeId") == other.ask("NumaNodeId") else "SYS"


def versions() -> list[str]:
    return [
        f"NVIDIA-SMI version  : {pynvml.nvmlSystemGetDriverVersion()}",
        f"NVML version        : {pynvml.nvmlSystemGetNVMLVersion()}",
        f"DRIVER version      : {pynvml.nvmlSystemGetDriverVersion()}",
        f"CUDA Version        : {cuda_version()}",
    ]


def cuda_version() -> str:
    version = asked(pynvml.nvmlSystemGetCudaDriverVersion)
    return "N/A" if version is None else f"{version // 1000}.{version % 1000 // 10}"


SECTIONS: tuple[tuple[int, str, str], ...] = (
    (1, "Product Name", "name"),
    (1, "Display Mode", "display_mode"),
    (1, "Display Active", "display_active"),
    (1, "Persistence Mode", "persistence_mode"),
    (1, "MIG Mode", ""),
    (2, "Current", "mig.mode.current"),
    (2, "Pending", "mig.mode.pending"),
    (1, "Serial Number", "serial"),
    (1, "GPU UUID", "uuid"),
    (1, "Minor Number", "index"),
    (1, "VBIOS Version", "vbios_version"),
    (1, "PCI", ""),
    (2, "Bus", "pci.bus"),
    (2, "Device", "pci.device"),
    (2, "Domain", "pci.domain"),
    (2, "Bus Id", "pci.bus_id"),
    (2, "GPU Link Info", ""),
    (3, "PCIe Generation", ""),
    (4, "Max", "pcie.link.gen.max"),
    (4, "Current", "pcie.link.gen.current"),
    (3, "Link Width", ""),
    (4, "Max", "pcie.link.width.max"),
    (4, "Current", "pcie.link.width.current"),
    (1, "Fan Speed", "fan.speed"),
    (1, "Performance State", "pstate"),
    (1, "FB Memory Usage", ""),
    (2, "Total", "memory.total"),
    (2, "Reserved", "memory.reserved"),
    (2, "Used", "memory.used"),
    (2, "Free", "memory.free"),
    (1, "Compute Mode", "compute_mode"),
    (1, "Utilization", ""),
    (2, "Gpu", "utilization.gpu"),
    (2, "Memory", "utilization.memory"),
    (1, "ECC Mode", ""),
    (2, "Current", "ecc.mode.current"),
    (2, "Pending", "ecc.mode.current"),
    (1, "ECC Errors", ""),
    (2, "Volatile", ""),
    (3, "DRAM Correctable", "ecc.errors.corrected.volatile.total"),
    (3, "DRAM Uncorrectable", "ecc.errors.uncorrected.volatile.total"),
    (1, "Temperature", ""),
    (2, "GPU Current Temp", "temperature.gpu"),
    (1, "GPU Power Readings", ""),
    (2, "Power Draw", "power.draw"),
    (2, "Current Power Limit", "power.limit"),
    (2, "Default Power Limit", "power.default_limit"),
    (1, "Clocks", ""),
    (2, "Graphics", "clocks.current.graphics"),
    (2, "SM", "clocks.current.sm"),
    (1, "Max Clocks", ""),
    (2, "Graphics", "clocks.max.graphics"),
    (2, "SM", "clocks.max.sm"),
)
"""The lines of ``-q`` for a GPU: indentation, name and field; the field is "" for a heading."""


def queried(wanted: argparse.Namespace) -> list[str]:
    """Return all fields of each GPU in the layout of ``-q``."""
    lines = ["", "==============NVSMI LOG==============", ""]
    lines.append(entry(0, "Timestamp", time.asctime()))
    lines.append(entry(0, "Driver Version", pynvml.nvmlSystemGetDriverVersion()))
    lines += [entry(0, "CUDA Version", cuda_version()), "", entry(0, "Attached GPUs", pynvml.nvmlDeviceGetCount())]
    for gpu in chosen(wanted.id):
        lines.append(f"GPU {gpu.pci}")
        for depth, name, field in SECTIONS:
            if not field:
                lines.append(" " * 4 * depth + name)
                continue
            unit, ask = FIELDS[field]
            value = ask(gpu)
            lines.append(entry(depth, name, f"{value}x" if value and ".width." in field else value, unit))
        processes = list(gpu.processes)
        lines.append("    Processes" if processes else entry(1, "Processes", "None"))
        for pid, command, used in processes:
            lines += [entry(2, "GPU instance ID", None), entry(2, "Compute instance ID", None)]
            lines.append(entry(2, "Process ID", pid))
            lines += [entry(3, "Type", "C"), entry(3, "Name", command), entry(3, "Used GPU Memory", mib(used), "MiB")]
        lines.append("")
    return lines


def entry(depth: int, name: str, value: Any, unit: str = "") -> str:
    shown = "N/A" if value is None else f"{value} {unit}".rstrip()
    return f"{' ' * 4 * depth + name:<42}: {shown}"


def summary(wanted: argparse.Namespace) -> list[str]:
    """Return the table that ``nvidia-smi`` shows without arguments."""
    gpus = chosen(wanted.id)
    driver = pynvml.nvmlSystemGetDriverVersion()
    wide = "-" * 89
    lines = [
        f"{time.asctime()}       ",
        f"+{wide}+",
        f"| NVIDIA-SMI {driver:<22} Driver Version: {driver:<14} CUDA Version: {cuda_version():<9}|",
        f"|{'-' * 41}+{'-' * 24}+{'-' * 22}+",
        "| GPU  Name                 Persistence-M | Bus-Id          Disp.A | Volatile Uncorr. ECC |",
        "| Fan  Temp   Perf          Pwr:Usage/Cap |           Memory-Usage | GPU-Util  Compute M. |",
        "|                                         |                        |               MIG M. |",
        f"|{'=' * 41}+{'=' * 24}+{'=' * 22}|",
    ]
    for gpu in gpus:
        name = gpu.ask("Name")
        name = name if len(name) <= 27 else f"{name[:24]}..."
        persistence = {True: "On", False: "Off", None: "N/A"}[as_bool(gpu.ask("PersistenceMode"))]
        limit = gpu.ask("EnforcedPowerLimit")
        cap = "N/A" if limit is None else f"{limit // 1000}W"
        found = ecc_errors(gpu, pynvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED)
        errors = "N/A" if found is None else str(found)
        usage = f"{gpu.memory.used // MIB}MiB / {gpu.memory.total // MIB:>6}MiB"
        mode = (compute_mode(gpu) or "N/A").replace("Exclusive_", "E. ")
        mig = on_off(gpu.mig_mode) or "N/A"
        left = f"N/A   N/A    {performance(gpu) or 'N/A':<4}"
        lines += [
            f"| {gpu.index:>3}  {name:<30} {persistence:<4}| {gpu.pci:>18} Off | {errors:>20} |",
            f"| {left:<17} {f'N/A / {cap:>5}':>21} | {usage:>22} | {'N/A':>8} {mode:>11} |",
            f"|                                         |                        | {mig:>20} |",
            f"+{'-' * 41}+{'-' * 24}+{'-' * 22}+",
        ]
    lines += [
        " " * 91,
        f"+{wide}+",
        f"| {'Processes:':<88}|",
        "|  GPU   GI   CI              PID   Type   Process name                        GPU Memory |",
        "|        ID   ID                                                               Usage      |",
        f"|{'=' * 89}|",
    ]
    rows = [(gpu, *process) for gpu in gpus for process in gpu.processes]
    for gpu, pid, command, used in rows:
        name = command if len(command) <= 33 else f"...{command[-30:]}"
        memory = "N/A" if used is None else f"{used // MIB}MiB"
        lines.append(f"|  {gpu.index:>3}   N/A  N/A  {pid:>15}      C   {name:<33} {memory:>11} |")
    if not rows:
        lines.append(f"|  {'No running processes found':<87}|")
    lines.append(f"+{wide}+")
    return lines


def as_bool(answer: Any) -> bool | None:
    return None if answer is None else bool(answer)


def written(wanted: argparse.Namespace) -> list[str]:
    """Return the requested lines."""
    if wanted.command:
        return topology(wanted)
    if wanted.list_gpus:
        return listed(wanted)
    if wanted.query_gpu is not None:
        return query_gpu(wanted)
    if wanted.query_compute_apps is not None:
        return query_compute_apps(wanted)
    if wanted.version:
        return versions()
    return queried(wanted) if wanted.query else summary(wanted)


def init() -> None:
    """Start NVML, or end as NVIDIA's program does if NVML does not start, with NVML's code as status."""
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        text = INIT_FAILED.get(error.value, f"Failed to initialize NVML: {error}")
        fail(text, error.value)


def main(arguments: Sequence[str]) -> None:
    wanted = parse(arguments)
    if wanted.help_query_gpu:
        print(*(name for name in FIELDS if name not in NOT_SIMULATED), sep="\n")
        return
    init()
    seconds = wanted.loop if wanted.loop_ms is None else wanted.loop_ms / 1000
    out = sys.stdout
    try:
        if wanted.filename:
            out = Path(wanted.filename).open("w")  # noqa: SIM115  # until the program ends
        while True:
            print("".join(f"{line}\n" for line in written(wanted)), end="", file=out, flush=True)
            if seconds is None:
                return
            time.sleep(seconds)
            if wanted.format and "noheader" not in wanted.format:
                wanted.format += ",noheader"  # the header comes once
    except pynvml.NVMLError as error:
        fail(f"Unable to determine the device handle for a GPU: {error}", error.value)
    except OSError as error:
        fail(f"cannot write to {wanted.filename or 'standard output'}: {error.strerror}")


if __name__ == "__main__":
    try:
        main(sys.argv[1:])
    except (KeyboardInterrupt, BrokenPipeError):
        raise SystemExit(130) from None
