"""What NVML says of the GPUs while they are under load, once a second."""

from __future__ import annotations

from gpudiag.record import Record


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
