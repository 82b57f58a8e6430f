"""Plans a run: which probes run on which GPUs, what each may use, and what each lacks."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass

from gpudiag.catalogue import Entry
from gpudiag.knowledge.variables import PLUGINS
from gpudiag.model.facts import Facts, NvmlDevice, Unknown
from gpudiag.model.report import Gpu, Level, ranges
from gpudiag.model.visibility import other_use
from gpudiag.probe import CONTEXT_BYTES, MEMORY_LEFT, MOST_SAMPLED, Scope

CHILD_BYTES = 1 << 30
"""The most device memory that one probe takes."""
QUICK_FROM_S = 10.0
"""If each process waits this long for the driver, only a few processes are started."""
MOST_CHILDREN = 8
"""Most children on a GPU whose memory NVML does not report."""


@dataclass(frozen=True)
class Task:
    """A planned probe that will become one row."""

    key: str
    entry: Entry
    gpus: tuple[Gpu, ...]
    number: int = 0
    """The place among the probe's tasks."""
    count: int = 1
    """How many tasks the probe has."""

    @property
    def label(self) -> str:
        return " ".join([self.entry.name, *(f"GPU {gpu.index}" for gpu in self.gpus)])


def driver_s(facts: Facts) -> float:
    """Return how many seconds a process waits until the driver has started; 0 if unknown."""
    return 0.0 if isinstance(facts.calls, Unknown) else facts.calls.driver_s


def chosen_level(asked: str | None, gpus: tuple[Gpu, ...], facts: Facts) -> Level:
    if asked is not None:
        return Level(asked)
    for gpu in gpus:
        if other := other_use(gpu, facts):
            return Level("quick", f"GPU {gpu.index} is used by {other}")
    waited_s = driver_s(facts)
    if waited_s >= QUICK_FROM_S:
        return Level("quick", f"each process waits {waited_s:.0f} s for the driver")
    return Level()


def planned(entries: tuple[Entry, ...], gpus: tuple[Gpu, ...]) -> list[Task]:
    tasks = []
    for entry in entries:
        gpu_groups: list[tuple[Gpu, ...]] = [()]
        chosen = sample(gpus) if entry.probe.sampled else gpus
        if gpus and entry.probe.scope is Scope.ALL_GPUS:
            gpu_groups = [chosen]
        elif gpus and entry.probe.scope is Scope.EACH_GPU:
            gpu_groups = [(gpu,) for gpu in chosen]
        tasks += [
            Task(f"{entry.name}#{number}", entry, some, number, len(gpu_groups))
            for number, some in enumerate(gpu_groups)
        ]
    return tasks


def of_level(entries: tuple[Entry, ...], level: str) -> tuple[Entry, ...]:
    """Return the probes of ``entries`` that run at this level if none is named."""
    if level == "quick":
        return tuple(entry for entry in entries if entry.probe.quick)
    return tuple(entry for entry in entries if bool(entry.probe.stress) == (level == "stress"))


def load_s(entry: Entry, entries: tuple[Entry, ...], all_s: float) -> float:
    """Return for how many of the ``all_s`` seconds under load a probe runs, one of ``entries``."""
    return all_s * entry.probe.stress / (sum(other.probe.stress for other in entries) or 1.0)


def what_load_does(tasks: Sequence[Task], seconds: float) -> str:
    """Return what happens to the GPUs of these tasks of level stress, in a line for the user."""
    gpus = {gpu.index: gpu for task in tasks for gpu in task.gpus}
    names = f"GPU{'s' * (len(gpus) > 1)} {ranges(sorted(gpus))}"
    end = "Ctrl-C ends it, and what was measured until then is reported."
    if any(gpu.simulated for gpu in gpus.values()):
        return (
            f"{names} (simulated) will be under load for {seconds:g} s, at the cost of this machine's processors. {end}"
        )
    filled = round(100 * (1 - MEMORY_LEFT))
    return (
        f"{names} will run at full power for {seconds:g} s and get hot, with {filled} % of their free memory in use "
        f"(less where a display is on). {end}"
    )


def sample(gpus: tuple[Gpu, ...]) -> tuple[Gpu, ...]:
    """Return all of up to :data:`MOST_SAMPLED` GPUs; of more, so many spread over all, and the first of each model."""
    spread = gpus[:: -(-len(gpus) // MOST_SAMPLED) or 1]
    first_of_model = {gpu.name: gpu for gpu in reversed(gpus)}
    return tuple(gpu for gpu in gpus if gpu in spread or gpu is first_of_model[gpu.name])


def start_rank(task: Task) -> int:
    """Return the rank by which tasks are started, the lowest first; their rows keep the order of the catalogue.

    Discovery comes first, because it explains why others fail. Then tasks that need their GPUs alone, and tasks without
    a GPU: they alone can run beside those, on processors that would be idle. Nothing can run beside a load.
    """
    if task.entry.area == "discovery":
        return 0
    if task.entry.probe.stress:
        return 4
    if not task.gpus:
        return 3
    return 1 if task.entry.probe.exclusive else 2


def uuids_of(task: Task) -> tuple[str, ...]:
    return tuple(gpu.uuid for gpu in task.gpus)


def lack_of_linux() -> str:
    """Return why no probe runs on this system, and what to do; "" on Linux. True of TensorFlow 2.11 to 2.21."""
    if sys.platform == "linux":
        return ""
    if sys.platform == "win32":
        return "TensorFlow has no CUDA on Windows: run gpudiag in WSL 2 (wsl --install)"
    return f"TensorFlow has no CUDA on {'macOS' if sys.platform == 'darwin' else sys.platform}: run gpudiag on Linux"


def lack_of_gpus(needed: int, facts: Facts, gpus: tuple[Gpu, ...]) -> str:
    """Return which GPUs are missing, and the setting that hides them if there is one."""
    if gpus:
        return f"needs {needed} GPUs, {len(gpus)} here"
    if isinstance(facts.nvml, Unknown):
        return f"GPUs not known: {facts.nvml.reason}"
    if facts.nvml.devices:
        mask = facts.variables.get("CUDA_VISIBLE_DEVICES", "")
        return f"CUDA_VISIBLE_DEVICES={mask!r} hides every GPU"
    return "no GPU" if facts.without_gpu else "NVML lists no GPU"


def lack_of_real_gpus(needed: bool, gpus: tuple[Gpu, ...]) -> str:
    """Return that simulated GPUs cannot do what a probe measures; "" if they can, or if the GPUs are real."""
    return "needs real GPUs, these are simulated" if needed and any(gpu.simulated for gpu in gpus) else ""


def lack_of_version(versions: str, facts: Facts) -> str:
    """Return which TensorFlow is needed; "" if the installed one is right or unknown."""
    if not versions or isinstance(facts.tensorflow, Unknown) or not facts.tensorflow.distributions:
        return ""
    from packaging.specifiers import SpecifierSet
    from packaging.version import InvalidVersion, Version

    version = facts.tensorflow.distributions[0].version
    try:
        # A nightly (2.19.0.dev1) counts as the release that it leads to: by itself it is neither before nor after that.
        right = SpecifierSet(versions).contains(Version(version).base_version)
    except InvalidVersion:
        return ""
    return "" if right else f"needs TensorFlow {versions}, {version} is installed"


def bytes_needed(entry: Entry) -> int:
    """Return the device memory of all processes of a probe that fills some; 0 for one that does not."""
    needs = entry.probe.needs
    return needs.free_bytes + CONTEXT_BYTES * (2 if entry.peered else 1) if needs.free_bytes else 0


def room_on(gpu: Gpu, device: NvmlDevice) -> int:
    """Return how many children may use ``gpu`` at once: one in exclusive mode, otherwise as many as fit in memory."""
    if (device.compute_mode or "").startswith("exclusive"):
        return 1
    if not device.memory_total_bytes:
        return MOST_CHILDREN
    parts = len(device.mig_uuids) if gpu.uuid in device.mig_uuids else 1
    return max(1, (device.memory_total_bytes - device.memory_used_bytes) // parts // CHILD_BYTES)


def lack_of_memory(needed: int, gpus: tuple[Gpu, ...], facts: Facts) -> str:
    """Return which GPU has too little free memory; "" if none, or if NVML does not report it."""
    devices = {device.pci_bus_id: device for device in facts.nvml_devices}
    for gpu in gpus:
        device = devices[gpu.pci_bus_id]
        free = device.memory_total_bytes - device.memory_used_bytes
        if device.memory_total_bytes and free < needed:
            return f"needs {needed >> 20} MiB free, GPU {gpu.index} has {free >> 20} MiB"
    return ""


def lack_of_known_memory(needed: bool, gpus: tuple[Gpu, ...]) -> str:
    """Return which GPU's memory NVML does not report, because it may be the computer's own; "" if none."""
    unknown = next((gpu for gpu in gpus if not gpu.memory_total_bytes), None) if needed else None
    return f"NVML does not report the memory of GPU {unknown.index}: it may be the computer's own" if unknown else ""


def lack_of_figures(gpus: tuple[Gpu, ...], facts: Facts) -> str:
    """Return which GPU's memory use NVML fails to report; "" if none."""
    errors = {device.pci_bus_id: device.memory_error for device in facts.nvml_devices}
    for gpu in gpus:
        if error := errors[gpu.pci_bus_id]:
            return f"measures memory, and NVML does not say how much GPU {gpu.index} has: {error}"
    return ""


def lack_of_peace(gpus: tuple[Gpu, ...], facts: Facts) -> str:
    """Return which other process uses one of ``gpus``; "" if none does."""
    for gpu in gpus:
        if other := other_use(gpu, facts):
            return f"GPU {gpu.index} is used by {other}; to run this probe on it anyway, add --disturb"
    return ""


def environment_of(task: Task) -> dict[str, str | None]:
    """Return the changes to a child's environment: its devices, named by UUID, and the variables that its probe
    declares."""
    if task.entry.probe.as_user:
        return {name: os.environ[name] for name in (PLUGINS,) if name in os.environ} | task.entry.probe.variables
    changes: dict[str, str | None] = {"CUDA_VISIBLE_DEVICES": ",".join(uuids_of(task)) or "-1"}
    # As the caller has them, by which they are judged: Keras sets growth while it is imported with another backend.
    changes |= {name: os.environ.get(name) for name in task.entry.probe.honours}
    if task.gpus and not task.entry.probe.exclusive:
        # It may share the device with another child, and TensorFlow by default takes nearly all memory that is free.
        changes["TF_FORCE_GPU_ALLOW_GROWTH"] = "true"
    return changes | task.entry.probe.variables


def default_jobs() -> int:
    """Return how many children the processors and the memory (1 GiB for each child) allow."""
    import psutil

    processors = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    try:
        available = psutil.virtual_memory().available
    except OSError:  # no /proc
        return 1
    return max(1, min(processors, available >> 30))
