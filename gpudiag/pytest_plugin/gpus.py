"""The GPUs of a session, and the part of them that a process may use: records, and how they are found."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from gpudiag.model.facts import NvmlDevice, NvmlFacts, TensorflowFacts

MASK = "CUDA_VISIBLE_DEVICES"
FACTS_DEADLINE_S = 15.0


@dataclass(frozen=True)
class Device:
    """A GPU, or a MIG instance of one."""

    uuid: str
    """The device's name in ``CUDA_VISIBLE_DEVICES``."""
    index: int
    """NVML's index of the GPU, as ``nvidia-smi`` prints it."""
    name: str
    total_bytes: int
    """Total memory in bytes; 0 if NVML does not report it."""
    free_bytes: int
    """Free memory in bytes when the session began."""
    capability: tuple[int, int] | None

    @property
    def is_instance(self) -> bool:
        """True for a MIG instance: a process can use one, and no other GPU beside it."""
        return self.uuid.startswith("MIG-")

    @property
    def label(self) -> str:
        return f"GPU {self.index}" + (f" ({self.uuid})" if self.is_instance else "")


@dataclass(frozen=True)
class VisibleDevices:
    """The devices that a process may use."""

    devices: tuple[Device, ...] = ()
    """The devices, in the order in which TensorFlow numbers them."""
    limit_bytes: int | None = None
    """Bytes of memory that the test gets on each device; None: all of it."""
    shared: bool = False
    """True if other processes of the session use these devices too."""

    @property
    def label(self) -> str:
        return ", ".join(device.label for device in self.devices)

    @property
    def environment(self) -> dict[str, str]:
        """The variables that restrict TensorFlow to these devices."""
        if not self.devices:
            return {}
        variables = {MASK: ",".join(device.uuid for device in self.devices)}
        if self.shared or self.limit_bytes is not None:
            # Not nearly all free memory at the first operation, whatever the tests configure.
            variables["TF_FORCE_GPU_ALLOW_GROWTH"] = "true"
        if self.limit_bytes is not None:
            variables["TF_PER_DEVICE_MEMORY_LIMIT_MB"] = str(self.limit_bytes >> 20)
        return variables


PLACE = pytest.StashKey[VisibleDevices]()
FOUND = pytest.StashKey["SessionGpus"]()


@dataclass(frozen=True)
class SessionGpus:
    """The answers of NVML and TensorFlow's metadata when the session began."""

    nvml: NvmlFacts | None
    """NVML's facts; None if NVML did not answer or could not be asked."""
    tensorflow: TensorflowFacts | None
    mask: str | None
    """The caller's ``CUDA_VISIBLE_DEVICES``."""
    unknown: str = ""
    """Why ``nvml`` is None."""

    @property
    def devices(self) -> tuple[Device, ...]:
        """The devices that the caller's mask lets through, each MIG instance by itself."""
        from gpudiag.model.visibility import choices

        devices = () if self.nvml is None else self.nvml.devices
        return tuple(_device(uuid, device) for uuid, device in choices(self.mask, devices).items())

    @property
    def simulated(self) -> bool:
        from gpudiag.model.report import SIMULATED

        return self.nvml is not None and any(device.name.startswith(SIMULATED) for device in self.nvml.devices)

    @property
    def lack(self) -> str:
        """Why there is no device, in a few words."""
        if self.nvml is None:
            return f"GPUs not known: {self.unknown}"
        if self.nvml.devices:
            return f"CUDA_VISIBLE_DEVICES={self.mask!r} hides every GPU"
        return "no GPU"


def of(config: pytest.Config) -> VisibleDevices:
    """Return the devices of this process: those that it was given, or else those that the caller's mask lets
    through."""
    if PLACE not in config.stash:
        config.stash[PLACE] = VisibleDevices(for_one_process(found(config).devices))
    return config.stash[PLACE]


def for_one_process(devices: tuple[Device, ...]) -> tuple[Device, ...]:
    """Return the ``devices`` that a single process can see."""
    from gpudiag.model.visibility import for_one_process

    seen = for_one_process(tuple(device.uuid for device in devices))
    return tuple(device for device in devices if device.uuid in seen)


def found(config: pytest.Config) -> SessionGpus:
    """Return the GPUs found on this machine; they are searched for once."""
    if FOUND not in config.stash:
        config.stash[FOUND] = ask()
    return config.stash[FOUND]


def labels(numbers: Iterable[int], devices: tuple[Device, ...]) -> str:
    """Return the labels of the ``devices`` behind TensorFlow's GPUs with these numbers, each once.

    TensorFlow must have made its devices: it may have split a GPU or left one out.
    """
    from tensorflow.python.eager.context import context

    physical = context().list_physical_devices("GPU")
    places = [
        physical.index(device)
        for device in context().get_visible_devices("GPU")
        for _ in context().get_logical_device_configuration(device) or (None,)
    ]
    labels_by_number = {number: devices[place].label for number, place in enumerate(places) if place < len(devices)}
    return ", ".join(dict.fromkeys(labels_by_number.get(number, f"GPU:{number}") for number in numbers))


def ask() -> SessionGpus:
    """Ask NVML, and search for TensorFlow without importing it, in child processes with a deadline, since NVML can
    hang."""
    import msgspec

    from gpudiag.isolate import Bounds, Job, ServerSpec, supervise
    from gpudiag.model.facts import Facts, Unknown
    from gpudiag.model.report import NoReading

    types: dict[str, Any] = {field.name: field.type for field in msgspec.structs.fields(Facts)}
    known: dict[str, Any] = {}
    unknown: dict[str, str] = {}
    families = {"nvml", "tensorflow"}
    with supervise({"plain": ServerSpec()}, Bounds()) as children:
        for family in families:
            target = "gpudiag.facts:gather_family"
            children.start(Job(family, target, {"family": family}, FACTS_DEADLINE_S, "plain"))
        while known.keys() | unknown.keys() != families:
            for ended in children.wait(0.1):
                ours = ended.cause is NoReading.NOT_STARTED
                facts = Unknown(ended.detail if ours else f"NVML did not answer: {ended.detail}")
                if ended.value is not None:
                    facts = msgspec.json.decode(ended.value, type=types[ended.key])
                if isinstance(facts, Unknown):
                    unknown[ended.key] = facts.reason
                else:
                    known[ended.key] = facts
    return SessionGpus(known.get("nvml"), known.get("tensorflow"), os.environ.get(MASK), unknown.get("nvml", ""))


def _device(uuid: str, device: NvmlDevice) -> Device:
    total, used = device.memory_total_bytes, device.memory_used_bytes
    if uuid in device.mig_uuids:
        total, used = dict(zip(device.mig_uuids, device.mig_memory_bytes, strict=False)).get(uuid, (0, 0))
    major, _, minor = (device.compute_capability or "").partition(".")
    return Device(
        uuid=uuid,
        index=device.index,
        name=device.name,
        total_bytes=total,
        free_bytes=total - used,
        capability=(int(major), int(minor)) if major.isdecimal() and minor.isdecimal() else None,
    )


def size_text(size: int) -> str:
    """Return a size as people write it: ``8 GiB``, ``3496 MiB``."""
    return f"{size >> 30} GiB" if size >= 1 << 30 and size % (1 << 30) == 0 else f"{size >> 20} MiB"
