"""The rates of GPUs under load in two reports, compared by the rule by which a GPU is compared with its twins.

What was slower only because the process waited for a processor does not count. The times of the two runs may differ.
GPUs are paired by UUID or, where that is masked, by PCI bus id and model.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from gpudiag.comparison.likeness import is_loose
from gpudiag.model.change import Change, ChangeSubject
from gpudiag.model.reading import plain_reading
from gpudiag.model.report import Report
from gpudiag.report import load
from gpudiag.report.load import GpuLoad


def changes(old: Report, new: Report, source: str) -> Iterator[Change]:
    """Yield what differs by more than noise; ``source`` names the older report."""
    before = load.gpus(old)
    for after in load.gpus(new):
        name = f"GPU {after.gpu.index}"
        same = [one for one in before if one.gpu.uuid == after.gpu.uuid and not is_loose(after.gpu.uuid)]
        same += [one for one in before if one.gpu.pci_bus_id == after.gpu.pci_bus_id]
        if not same:
            continue
        earlier = same[0]
        if earlier.gpu.name != after.gpu.name:
            text = f"rates are not compared: the model was {earlier.gpu.name}, and is {after.gpu.name}"
            yield Change(ChangeSubject.RATE, name, earlier.gpu.name, text)
            continue
        resized = _resized(old, new, earlier, after)
        for work in resized:
            yield Change(ChangeSubject.RATE, name, None, f"{work} is not compared: its matrices have another size")
        yield from _of_gpu(name, earlier, after, resized, Path(source).name)


def _of_gpu(name: str, old: GpuLoad, new: GpuLoad, left_out: list[str], source: str) -> Iterator[Change]:
    """Yield how much slower or faster a GPU is: in one line if it is so in most kinds of work."""
    from gpudiag.probes.under_load import COPIES, behind, typical

    for slower, (one, other) in ((True, (new, old)), (False, (old, new))):
        # First by how much the new rate is below the old one, then the other way round.
        deficits = {
            work: deficit for work, deficit in behind(one.reading, [other.reading]).items() if work not in left_out
        }
        computing = {work: deficit for work, deficit in deficits.items() if not work.startswith(COPIES)}
        whole = typical(computing.values())
        if whole is not None and whole.counts:
            found = {"": whole} | {work: deficit for work, deficit in deficits.items() if work not in computing}
        else:
            found = deficits
        for work, deficit in found.items():
            if deficit.counts:
                part = deficit.value if slower else 1 / (1 - deficit.value) - 1
                much = f"{load.percent(part)} {'slower' if slower else 'faster'} than in {source}"
                text = f"{work} {much} (noise {100 * deficit.error:.2g} %)".strip()
                yield Change(ChangeSubject.RATE, name, _rate(old, work), text, worse=slower)


def _rate(load_: GpuLoad, work: str) -> str | None:
    """Return a rate of a real GPU; None for a simulated one, whose rates mean nothing, or for all work."""
    if load_.gpu.simulated or work not in load_.rates:
        return None
    return f"{load.number(load.in_unit(work, load_.rates[work].value))} {load.unit(work)}"


def _resized(old: Report, new: Report, before: GpuLoad, after: GpuLoad) -> list[str]:
    """Return the kinds of work that the two runs did with matrices of different sizes."""
    sizes: list[dict[str, Any]] = []
    for report, one in ((old, before), (new, after)):
        rows = [row for row in report.rows if row.probe == load.GPUS and row.devices == (one.gpu.uuid,)]
        plain = plain_reading(rows[-1].reading) if rows else None
        sides = None if plain is None else plain.get("sides")
        sizes.append(sides if isinstance(sides, dict) else {})
    return [work for work, side in sizes[1].items() if sizes[0].get(work, side) != side]
