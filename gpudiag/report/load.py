"""What a run of level stress measured, put together for all formats. Pure.

A GPU's rates are compared with those of its twins, the other GPUs of its model, as the judge compares them. Of
simulated GPUs only these shares are shown: their rates are those of the host.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING

import msgspec

from gpudiag.model.health import COPIED, GpuHealth, HealthSample
from gpudiag.model.reading import SavedReading, plain_reading
from gpudiag.model.report import LOAD, Gpu, Report, Row
from gpudiag.text import one_line

if TYPE_CHECKING:
    from gpudiag.probe import LoadReading
    from gpudiag.probes.under_load import Deficit, Rate

GPUS, LINKS = f"{LOAD}.gpus", f"{LOAD}.links"
_MOST_SLICES = 20_000
"""The most slices of a row that count; a run notes a few hundred."""

FLOPS, BYTES = "TFLOP/s", "GB/s"
_COLUMNS = {
    "float32 product": "float32",
    "TF32 product": "TF32",
    "float16 product": "float16",
    "bfloat16 product": "bfloat16",
    "float16 convolution": "conv",
    "memory": "memory",
    "copy to the GPU": "to GPU",
    "copy to the host and back": "back",
}
"""The headings of the kinds of work."""

COUNTERS = {
    "corrected_errors": "ECC corrected",
    "uncorrected_errors": "ECC uncorrected",
    "remapped_rows": "rows remapped",
    "pcie_replays": "PCIe replays",
    "nvlink_errors": "NVLink errors",
}
"""What NVML counts, in a few words."""


def is_work(name: str) -> bool:
    """Return whether a figure of this name is the rate of a kind of work."""
    return name in _COLUMNS


def unit(work: str) -> str:
    """Return the unit in which the rate of a kind of work is shown."""
    return BYTES if work == "memory" or work.startswith("copy") else FLOPS


def in_unit(work: str, rate: float) -> float:
    """Return a rate in its :func:`unit`."""
    return rate / (1e9 if unit(work) == BYTES else 1e12)


def number(value: float) -> str:
    """Return a rate with three digits."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def percent(share: float) -> str:
    return f"{100 * share:.0f} %"


@dataclass(frozen=True)
class GpuLoad:
    """A GPU under load."""

    gpu: Gpu
    reading: LoadReading
    twins: tuple[LoadReading, ...]
    """The readings of the other GPUs of its model."""
    health: GpuHealth | None
    """What NVML said meanwhile; None if nothing."""

    @cached_property
    def rates(self) -> dict[str, Rate]:
        """Its rate in each kind of work, under the load of all GPUs."""
        from gpudiag.probes.under_load import rates

        return rates(self.reading)

    @cached_property
    def behind(self) -> dict[str, Deficit]:
        """By which part it is slower than the median of its twins in each kind of work; empty without twins."""
        from gpudiag.probes.under_load import behind

        return behind(self.reading, self.twins)

    def share(self, *, copies: bool = False) -> float | None:
        """Return its rate as a part of the median of its twins, of copies or of all else; None without twins."""
        from gpudiag.probes.under_load import COPIES, typical

        deficit = typical(deficit for work, deficit in self.behind.items() if work.startswith(COPIES) == copies)
        return None if deficit is None else 1 - deficit.value

    @property
    def waited(self) -> float:
        """Which part of the time its process waited for a processor."""
        from gpudiag.probes.under_load import blur

        return blur(self.reading)

    @cached_property
    def samples(self) -> tuple[HealthSample, ...]:
        """What NVML said while it was under load."""
        samples = () if self.health is None else self.health.samples
        begins = self.reading.load_began_s
        ends = begins + self.reading.measured_s
        return tuple(sample for sample in samples if begins <= sample.at_s <= ends)

    @property
    def hottest(self) -> int | None:
        """The highest temperature in degrees Celsius."""
        return max((sample.temperature for sample in self.samples if sample.temperature is not None), default=None)

    @property
    def clocks(self) -> tuple[int, int] | None:
        """The lowest and the highest clock in MHz while it computed."""
        clocks = [sample.clock_mhz for sample in self.samples if sample.clock_mhz and sample.is_busy]
        return (min(clocks), max(clocks)) if clocks else None

    def throttled_s(self) -> dict[str, float]:
        """Return for how many seconds its clocks were lowered, for each reason that is not one of a GPU at rest."""
        every = period(self.samples)
        reasons = {reason for sample in self.samples for reason in sample.slowed_by or () if reason != "idle"}
        return {
            reason: round(every * sum(reason in (sample.slowed_by or ()) for sample in self.samples), 1)
            for reason in sorted(reasons)
        }

    @property
    def is_throttled_for(self) -> float:
        """For how many seconds its clocks were lowered for a reason that no healthy GPU has."""
        return period(self.samples) * sum(bool(sample.throttled_by) for sample in self.samples)

    @property
    def rose(self) -> dict[str, int]:
        """By how much each counter of NVML rose."""
        return {} if self.health is None else self.health.rose()


def period(samples: Sequence[HealthSample]) -> float:
    """Return the seconds from one sample to the next."""
    steps = [after.at_s - before.at_s for before, after in pairwise(samples)]
    return max(0.0, statistics.median(steps)) if steps else 1.0


def gpus(report: Report) -> tuple[GpuLoad, ...]:
    """Return each GPU that was under load."""
    rows = [row for row in report.rows if row.probe == GPUS]
    if not rows:
        return ()
    from gpudiag.probes.under_load import twins

    by_uuid = {gpu.uuid: gpu for gpu in report.gpus}
    readings = {row.devices[0]: reading_of(row) for row in rows if len(row.devices) == 1}
    known = [(gpu, reading) for uuid, reading in readings.items() if reading and (gpu := by_uuid.get(uuid)) is not None]
    health = {one.gpu: one for one in report.health}
    return tuple(
        GpuLoad(
            gpu,
            reading,
            twins(reading, (other for _, other in known if other is not reading), report.facts),
            health.get(gpu.uuid),
        )
        for gpu, reading in known
    )


def reading_of(row: Row) -> LoadReading | None:
    """Return what a row of the area noted; None if it noted nothing, or nothing that this gpudiag can read."""
    from gpudiag.probe import LoadReading, Slice

    plain = plain_reading(row.reading) or SavedReading()
    try:
        slices = msgspec.convert(plain.get("slices", ())[:_MOST_SLICES], tuple[Slice, ...])
        rest = {name: plain[name] for name in ("given", "seen", "planned_s", "load_began_s", "ended") if name in plain}
        reading = msgspec.convert(rest, LoadReading)
    except (TypeError, msgspec.ValidationError):
        return None
    return msgspec.structs.replace(reading, slices=slices) if slices else None


@dataclass(frozen=True)
class Link:
    """Copies from one GPU to another."""

    source: Gpu
    target: Gpu
    rate: float
    """The median of its slices, in bytes in a second."""
    wrong: int


def links(report: Report) -> tuple[Link, ...]:
    """Return the links between GPUs, of each direction."""
    by_pci = {gpu.pci_bus_id: gpu for gpu in report.gpus}
    found = []
    for row in (row for row in report.rows if row.probe == LINKS):
        from gpudiag.probes.under_load import by_work

        reading, plain = reading_of(row), plain_reading(row.reading) or SavedReading()
        made = plain.get("made")
        if reading is None or not isinstance(made, dict):
            continue
        for work, slices in by_work(reading.slices).items():
            ends = [by_pci.get(str(made.get(word))) for word in work.split()[1::2]]
            rates = [part.rate for part in slices if part.rate > 0]
            if len(ends) == 2 and ends[0] is not None and ends[1] is not None and rates:
                wrong = sum(part.wrong for part in slices)
                found.append(Link(ends[0], ends[1], statistics.median(rates), wrong))
    return tuple(found)


def is_simulated(loads: Iterable[GpuLoad]) -> bool:
    """Return whether the rates are those of simulated GPUs, which say nothing of a real one."""
    return any(load.gpu.simulated for load in loads)


Cells = list[list[str]]
"""A table, the headings first."""


def overview(loads: Sequence[GpuLoad], width: int = 1000) -> Cells:
    """Return a line for each GPU. Columns that are empty are left out; headings are broken, and then columns left out,
    if there is no room for them."""
    rates = []
    if loads and not is_simulated(loads):
        works = ("float16 product", COPIED[0])
        rates = [(f"{_COLUMNS[work]} {unit(work)}", [_rate(load, work) for load in loads]) for work in works]
    columns = {
        "GPU": [str(load.gpu.index) for load in loads],
        "results": [_results(load) for load in loads],
        "of median": [_share(load.share()) for load in loads],
        "copies": [_share(load.share(copies=True)) for load in loads],
        **dict(rates),
        "hottest": ["?" if load.hottest is None else f"{load.hottest} °C" for load in loads],
        "throttled": [f"{load.is_throttled_for:.0f} s" if load.is_throttled_for else "" for load in loads],
        "counted": [", ".join(f"{rose} {COUNTERS[name]}" for name, rose in load.rose.items()) for load in loads],
        "clock MHz": [_clocks(load) for load in loads],
    }
    for needless in [*(head for head, cells in columns.items() if not any(cells)), "copies", "clock MHz", *dict(rates)]:
        if any(columns.get(needless, ())) and _width(columns, "\n") <= width:
            break
        columns.pop(needless, None)
    breaks = " " if _width(columns, " ") <= width else "\n"
    heads = [breaks.join(head.rsplit(" ", 1)) for head in columns]
    return [heads, *(list(line) for line in zip(*columns.values(), strict=True))]


def _width(columns: dict[str, list[str]], breaks: str) -> int:
    """Return the width of a table whose headings have ``breaks`` at their last spaces."""
    heads = {head: max(map(len, breaks.join(head.rsplit(" ", 1)).splitlines())) for head in columns}
    return sum(2 + max([heads[head], *map(len, cells)]) for head, cells in columns.items()) - 2


def rate_table(loads: Sequence[GpuLoad]) -> Cells:
    """Return the rates in each kind of work, a line for each GPU: of simulated ones as shares of the median of their
    model; empty if nothing is known of them."""
    works = list(dict.fromkeys(work for load in loads for work in load.rates))
    simulated = is_simulated(loads)
    lines = [
        [
            str(load.gpu.index),
            *(_of_twins(load, work) if simulated else _rate(load, work) for work in works),
            _noise(load.rates.values()),
        ]
        for load in loads
    ]
    if not any(any(line[1:-1]) for line in lines):
        return []
    return [["GPU", *(_COLUMNS.get(work, one_line(work)[:20]) for work in works), "noise %"], *lines]


def about_rates(loads: Sequence[GpuLoad]) -> str:
    """Return what the rates are, for the line above them."""
    if is_simulated(loads):
        return "rates in percent of the median of the other GPUs; rates of simulated GPUs mean nothing else"
    return f"rates in {FLOPS}, of memory and copies in {BYTES}: the median of quiet slices, and its noise in percent"


def _results(load: GpuLoad) -> str:
    return f"{load.reading.wrong:,} wrong" if load.reading.wrong else f"{load.reading.results:,} right"


def _share(share: float | None) -> str:
    return "" if share is None else percent(share)


def _rate(load: GpuLoad, work: str) -> str:
    return number(in_unit(work, load.rates[work].value)) if work in load.rates else ""


def _of_twins(load: GpuLoad, work: str) -> str:
    return f"{100 * (1 - load.behind[work].value):.0f}" if work in load.behind else ""


def _noise(rates: Iterable[Rate]) -> str:
    errors = [rate.error for rate in rates]
    return f"{100 * statistics.median(errors):.1f}" if errors else ""


def _clocks(load: GpuLoad) -> str:
    if load.clocks is None:
        return ""
    least, most = load.clocks
    return str(most) if least == most else f"{least}-{most}"


def sentence(report: Report, row: Row) -> str:
    """Return the line of a row's GPU in the overview, with its headings; "" for a row that is not one of a load."""
    loads = [] if row.probe != GPUS else [load for load in gpus(report) if load.gpu.uuid in row.devices]
    if not loads:
        return ""
    return ", ".join(f"{head}: {cell}" for head, cell in list(zip(*overview(loads), strict=True))[2:])


def tables(report: Report, *, verbose: bool, width: int = 1000) -> Iterator[tuple[str, Cells]]:
    """Yield the tables of a run of level stress, each with what it has; ``verbose``: also the kinds of work."""
    loads = gpus(report)
    if loads:
        yield "", overview(loads, width)
    if loads and verbose and (cells := rate_table(loads)):
        yield about_rates(loads), cells


def about_host(report: Report) -> str:
    """Return that the host was too busy for rates to be compared; "" if it was not."""
    from gpudiag.probes.under_load import FLOOR

    waited = max((load.waited for load in gpus(report)), default=0.0)
    return (
        f"the host was busy: processes waited for a processor {percent(waited)} of the time" if waited > FLOOR else ""
    )


def about_links(report: Report) -> str:
    """Return which link was the slowest; "" with less than two."""
    found = links(report)
    if len(found) < 2:
        return ""
    slowest = min(found, key=lambda link: link.rate)
    rate = "" if slowest.source.simulated else f"{number(slowest.rate / 1e9)} {BYTES}, "
    share = percent(slowest.rate / middle(found))
    ends = f"from GPU {slowest.source.index} to GPU {slowest.target.index}"
    return f"slowest of {len(found)} links: {ends}, {rate}{share} of their median"


def middle(links: Iterable[Link]) -> float:
    """Return the median rate of links."""
    return statistics.median(link.rate for link in links)
