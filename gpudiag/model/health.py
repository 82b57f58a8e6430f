"""What NVML says of the GPUs while they are under load, once a second, and what probes and reports call it."""

from __future__ import annotations

from gpudiag.record import Record

COPIED = ("copy to the GPU", "copy to the host and back")
"""The kinds of work that copy between a GPU and the host."""
BUSY_PERCENT = 20
"""A GPU that computes for a smaller part of the time is between two kinds of work, or at rest."""
SLOWED = {
    "hot": "too hot (the hardware's limit)",
    "warm": "too hot (the driver's limit)",
    "power_brake": "the power supply asks for it",
    "hardware": "the hardware asks for it",
}
"""Reasons for lowered clocks that no healthy GPU has under load, the most specific first: the hardware reports
``hardware`` with each of its own. A cap of the power is not among them, because many GPUs have one."""


class HealthSample(Record):
    """The state of a GPU at one moment; None where the card, the driver or this user cannot know a value."""

    at_s: float
    """Seconds since the run began."""
    clock_mhz: int | None = None
    """Clock of the multiprocessors."""
    memory_clock_mhz: int | None = None
    temperature: int | None = None
    """Degrees Celsius."""
    power_watts: float | None = None
    busy_percent: int | None = None
    """Part of the time just past in which the GPU computed."""
    slowed_by: tuple[str, ...] | None = None
    """The reasons why its clocks are lowered, as of :class:`gpudiag.model.facts.GpuState`."""
    pcie_generation: int | None = None
    pcie_width: int | None = None

    @property
    def is_busy(self) -> bool:
        """False if the GPU is known to have computed for less than :data:`BUSY_PERCENT` of the time."""
        return self.busy_percent is None or self.busy_percent >= BUSY_PERCENT

    @property
    def throttled_by(self) -> str:
        """The first of :data:`SLOWED` that lowers the clocks; "" if none does."""
        return next((reason for reason in SLOWED if reason in (self.slowed_by or ())), "")


class HealthCounters(Record):
    """What a GPU counts; None where it does not."""

    corrected_errors: int | None = None
    """ECC errors since the driver was loaded that were corrected."""
    uncorrected_errors: int | None = None
    remapped_rows: int | None = None
    pcie_replays: int | None = None
    """Packets that were sent again on the PCI Express link."""
    nvlink_errors: int | None = None
    """Errors of all its NVLinks: packets that were sent again, and those that were damaged."""


class GpuHealth(Record):
    """What NVML said of one GPU."""

    gpu: str
    """Its UUID."""
    samples: tuple[HealthSample, ...]
    before: HealthCounters
    after: HealthCounters

    def rose(self) -> dict[str, int]:
        """Return by how much each counter rose."""
        pairs = {
            name: (getattr(self.before, name), getattr(self.after, name)) for name in self.before.__struct_fields__
        }
        return {
            name: after - before
            for name, (before, after) in pairs.items()
            if before is not None and after is not None and after > before
        }
