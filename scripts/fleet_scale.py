"""Measures how `gpudiag fleet merge` grows, and whether it finds what sets bad nodes apart: writes `reports/fleet.md`.

Fleets are made up: 79 facts a node, of which most mean nothing, and bad nodes with a driver, a rack, and an image on
one model of GPU, among others that fail at random. A full report is one that was recorded on two simulated GPUs, with
the facts and the cause of a node in it. Each merge is a process of its own. Processor time is given, because the
machine may be shared; memory is the most that the process and its children had at a time, shared pages counted once.
"""

from __future__ import annotations

import argparse
import contextlib
import gzip
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import msgspec
import psutil

import gpudiag
from gpudiag.fix import Action, reboot, run
from gpudiag.fleet.folder import ANSWERS, PLAN, REPORTS
from gpudiag.fleet.nodes import NodeTable
from gpudiag.fleet.outliers import outliers
from gpudiag.fleet.separation import separations
from gpudiag.model import codec
from gpudiag.model.diagnosis import Confidence, Diagnosis, RootCause, Stage
from gpudiag.model.facts import ContainerFacts
from gpudiag.model.fleet import Answer, CauseSummary, FleetReport, Plan, Summary
from gpudiag.model.report import Verdict, conclude

ROOT = Path(__file__).resolve().parent.parent
FULL = ROOT / "reports/simulated-2x16GiB.json"
REPORT = ROOT / "reports/fleet.md"
MOST_CPU_S, MOST_MIB = 40.0, 250
"""The targets for 10,000 full reports: 20 seconds on two processors."""
MODELS = ("Simulated NVIDIA H100 80GB HBM3", "Simulated NVIDIA A100-SXM4-80GB", "Simulated NVIDIA L40S")
RATES = {"float16 product": 6e14, "float32 product": 5e13, "memory": 2.8e12, "copy to the GPU": 2.5e10}
NODES_OF_A_RACK = 32
PACKAGES = 55
SLOW_EVERY = 500
"""Of so many nodes one has a GPU that is 25 % slower."""

PLANTED = {
    "driver_broken": (("driver", "545.29.06"),),
    "gpu_lost": (("rack", "r3"),),
    "libraries_missing": (("image of the container", "image-2"), ("GPU", MODELS[1])),
}
"""For each cause the facts of the nodes that have it."""
_SHARES = {"driver_broken": 0.9, "gpu_lost": 0.6, "libraries_missing": 0.8}
"""Which part of the nodes with these facts has the cause."""
_RANDOM = 0.005
"""Which part of all other nodes has one of the causes, or another one."""


@dataclass(frozen=True)
class Fleet:
    """A made-up fleet."""

    number: int
    seed: int = 1
    is_healthy: bool = False
    """True: nothing sets bad nodes apart, and 3 % of all nodes fail at random."""

    def racks(self) -> dict[str, str]:
        return {self.name(number): f"r{number // NODES_OF_A_RACK}" for number in range(self.number)}

    @staticmethod
    def name(number: int) -> str:
        return f"n{number:06}"

    def answers(self) -> Iterator[Answer]:
        """Yield the answer of each node."""
        chance = random.Random(self.seed)  # noqa: S311  # the same fleet each time
        for number in range(self.number):
            facts, cause = self.node(chance, number)
            is_slow = not self.is_healthy and number % SLOW_EVERY == SLOW_EVERY - 1
            yield Answer(self.name(number), summary=_summary(chance, facts, cause, is_slow=is_slow), seconds=40.0)

    def node(self, chance: random.Random, number: int) -> tuple[dict[str, str], str]:
        """Return the facts of a node and its cause; "" if it has none."""
        facts = _facts(chance)
        return facts, self._cause(chance, facts | {"rack": f"r{number // NODES_OF_A_RACK}"})

    def _cause(self, chance: random.Random, facts: dict[str, str]) -> str:
        if not self.is_healthy:
            for cause, planted in PLANTED.items():
                if all(facts[name] == value for name, value in planted) and chance.random() < _SHARES[cause]:
                    return cause
        if chance.random() < (0.03 if self.is_healthy else _RANDOM):
            return chance.choice([*PLANTED, "memory_faulty"])
        return ""


def _facts(chance: random.Random) -> dict[str, str]:
    """Return the facts of a node: each independent of the others."""
    model = chance.choices(MODELS, (60, 30, 10))[0]
    return {
        "driver": chance.choices(("550.90.07", "545.29.06", "535.183.01"), (90, 5, 5))[0],
        "kernel": chance.choices(("6.8.0-45-generic", "6.8.0-47-generic", "5.15.0-119-generic"), (80, 15, 5))[0],
        "BIOS": f"2.{chance.choices(range(4), (85, 5, 5, 5))[0]}",
        "GPU": model,
        "GPUs": "8",
        "image of the container": f"image-{chance.choices(range(5), (50, 20, 15, 10, 5))[0]}",
        "operating system": "Ubuntu 22.04.5 LTS",
        "memory of the machine": f"{chance.choice((500, 1000, 2000)):,} GiB",
        "Python": chance.choices(("3.11.7", "3.12.3"), (95, 5))[0],
        "LD_LIBRARY_PATH": chance.choices(("/usr/local/cuda/lib64", "/opt/cuda/lib64"), (97, 3))[0],
        **{f"fact {number}": "yes" for number in range(14)},
        **{f"package p{number}": f"1.{chance.choices(range(3), (90, 7, 3))[0]}" for number in range(PACKAGES)},
    }


def _summary(chance: random.Random, facts: dict[str, str], cause: str, *, is_slow: bool) -> Summary:
    model = facts["GPU"]
    factors = [0.75 if is_slow and gpu == 3 else 1.0 for gpu in range(8)]
    return Summary(
        gpudiag_version="0.1.0",
        started_at="2026-11-28T12:00:00+00:00",
        duration_s=30.0,
        level="stress",
        verdict=Verdict.FAIL if cause else Verdict.PASS,
        headline=f"{cause}: TensorFlow uses no GPU" if cause else "",
        causes=(CauseSummary(cause, "TensorFlow uses no GPU", Confidence.PROVED, unfit=True),) if cause else (),
        actions=(_action(cause),) if cause else (),
        gpus=(model,) * 8,
        facts=facts,
        figures={
            work: tuple(round(rate * factor * chance.gauss(1, 0.02), -6) for factor in factors)
            for work, rate in RATES.items()
        },
    )


def _action(cause: str) -> Action:
    return reboot() if cause == "gpu_lost" else run(f"sudo mend {cause}")


def write_run(fleet: Fleet, folder: Path) -> None:
    """Write the folder of a fleet check with the answers of a fleet, without its reports."""
    (folder / REPORTS).mkdir(parents=True)
    names = tuple(map(fleet.name, range(fleet.number)))
    plan = Plan(1, "0.1.0", "scale", "2026-11-28T12:00:00+00:00", "local", names, (), 600.0, racks=fleet.racks())
    (folder / PLAN).write_bytes(msgspec.json.encode(plan))
    with (folder / ANSWERS).open("wb") as file:
        file.writelines(msgspec.json.encode(answer) + b"\n" for answer in fleet.answers())


def write_full(fleet: Fleet, folder: Path) -> None:
    """Write the full report of each node."""
    folder.mkdir()
    templates = {cause: _template(cause) for cause in ("", *PLANTED, "memory_faulty")}
    chance = random.Random(fleet.seed)  # noqa: S311
    packed: dict[tuple[str, ...], bytes] = {}
    for number in range(fleet.number):
        facts, cause = fleet.node(chance, number)
        key = cause, facts["driver"], facts["image of the container"], facts["GPU"]
        if key not in packed:
            report = templates[cause]
            for word, value in zip(("560.35.05", "IMAGE", "Simulated GPU"), key[1:], strict=True):
                report = report.replace(word.encode(), value.encode())
            packed[key] = gzip.compress(report)
        (folder / f"{fleet.name(number)}.json.gz").write_bytes(packed[key])


def _template(cause: str) -> bytes:
    """Return a full report with a cause, as JSON."""
    recorded = codec.load(FULL)
    container = msgspec.structs.replace(recorded.facts.container, image="IMAGE")
    assert isinstance(container, ContainerFacts)
    found = RootCause(
        cause, Stage.DEVICE_FILTER, Confidence.PROVED, "TensorFlow uses no GPU", (), (_action(cause),), "", unfit=True
    )
    facts = msgspec.structs.replace(recorded.facts, container=container)
    diagnosis = Diagnosis(causes=(found,)) if cause else recorded.diagnosis
    return codec.encoded(conclude(msgspec.structs.replace(recorded, facts=facts, diagnosis=diagnosis)))


@dataclass(frozen=True)
class Merge:
    """What a merge took, and what it found."""

    number: int
    cpu_s: float
    wall_s: float
    mib: float
    planted: int
    """Planted separations among the first three."""
    slow: int
    """Slow GPUs among the outliers."""
    outliers: int
    load: float = 0.0
    """The machine's load average at its end, as of one minute."""


def merge(fleet: Fleet, source: Path, folder: Path) -> Merge:
    """Merge in a process of its own."""
    racks, output = folder / "racks.txt", folder / "merged.json"
    lines: dict[str, list[str]] = {}
    for name, rack in fleet.racks().items():
        lines.setdefault(rack, []).append(name)
    racks.write_text("".join(f"{rack}: {','.join(names)}\n" for rack, names in lines.items()))
    command = [sys.executable, "-m", "gpudiag", "fleet", "merge", str(source)]
    command += ["--racks", str(racks), "--output", str(output)]
    before, began, most = os.times(), time.monotonic(), 0
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        while process.poll() is None:
            most = max(most, _memory(process.pid))
            time.sleep(0.1)
    after, wall_s = os.times(), time.monotonic() - began
    if process.returncode not in (0, 1):
        raise SystemExit(f"{' '.join(command)} ended with {process.returncode}")
    report = msgspec.json.decode(output.read_bytes(), type=FleetReport)
    first = {(one.label, frozenset(one.facts)) for one in report.separations[:3]}
    wanted = {(cause, frozenset(facts)) for cause, facts in PLANTED.items()}
    slow = [one for one in report.outliers if one.gpu == 3 and int(one.node[1:]) % SLOW_EVERY == SLOW_EVERY - 1]
    cpu_s = after.children_user + after.children_system - before.children_user - before.children_system
    return Merge(
        fleet.number,
        cpu_s,
        wall_s,
        most / (1 << 20),
        len(first & wanted),
        len(slow),
        len(report.outliers),
        os.getloadavg()[0],
    )


def _memory(pid: int) -> int:
    """Return the bytes of memory of a process and its children; a shared page is divided among those that have it."""
    total = 0
    try:
        processes = [psutil.Process(pid), *psutil.Process(pid).children(recursive=True)]
    except psutil.Error:
        return 0
    for process in processes:
        with contextlib.suppress(psutil.Error):
            total += process.memory_full_info().pss
    return total


def invented(fleets: int, number: int) -> tuple[int, int, int]:
    """Return how many separations and outliers are found in fleets in which there is none, and how many nodes fail."""
    separated = odd = failing = 0
    for seed in range(fleets):
        fleet = Fleet(number, seed, is_healthy=True)
        table = NodeTable(racks=fleet.racks())
        for answer in fleet.answers():
            table.add(answer)
        separated += len(separations(table))
        odd += len(outliers(table)[0])
        failing += len({node for numbers in table.labels.values() for node in numbers})
    return separated, odd, failing


def text_of(small: list[Merge], full: Merge | None, healthy: tuple[int, int, int], fleets: int, nodes: int) -> str:
    """Return the page."""
    lines = [
        "# Fleets of up to 100,000 nodes",
        "",
        f"Made by `python scripts/fleet_scale.py` with gpudiag {gpudiag.__version__} on Python "
        f"{sys.version.split()[0]} and {len(os.sched_getaffinity(0))} processors, which other programs used, too: "
        "load is the load average of the machine at the end, and processor time grows with it. Each "
        "merge is `gpudiag fleet merge`, from the start of its process to the report in JSON and the table.",
        "",
        "| what is merged | nodes | processor s | elapsed s | load | memory MiB | planted among the first three "
        "| slow GPUs found | others called odd |",
        "| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    for what, merges in (("summaries", small), ("full reports", [full] if full else [])):
        for one in merges:
            slow = one.number // SLOW_EVERY if what == "summaries" else 0
            lines.append(
                f"| {what} | {one.number:,} | {one.cpu_s:.1f} | {one.wall_s:.1f} | {one.load:.0f} | {one.mib:.0f} "
                f"| {one.planted} of {len(PLANTED)} | {f'{one.slow} of {slow}' if slow else ''} "
                f"| {one.outliers - one.slow if slow else ''} |"
            )
    if full:
        is_met = full.cpu_s <= MOST_CPU_S and full.mib <= MOST_MIB
        target = (
            f"{MOST_CPU_S:.0f} processor seconds (20 s on two processors) and {MOST_MIB} MiB for 10,000 full reports"
        )
        lines += ["", f"The target is {target}: {'met' if is_met else 'not met'} in this run."]
    separated, odd, failing = healthy
    lines += [
        "",
        f"Of {fleets} fleets of {nodes} nodes in which nothing sets bad nodes apart and {failing:,} nodes failed at "
        f"random, {separated} had a separation, and {odd} GPUs of {fleets * nodes * 8:,} were called odd.",
        "",
        "What is planted: a driver (90 % of its nodes fail), a rack (60 % of 32 nodes), an image together with a model "
        "of GPU (80 %), 0.5 % of the other nodes at random, and one GPU of 4,000 that is 25 % slower.",
        "",
    ]
    return "\n".join(lines)


def main() -> None:
    """Measure, and write the page."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--nodes", type=int, nargs="*", default=[1_000, 10_000, 100_000], help="sizes, of summaries")
    parser.add_argument("--full", type=int, default=10_000, help="number of full reports; 0 for none")
    parser.add_argument("--healthy", type=int, default=200, help="number of fleets in which there is nothing to find")
    parser.add_argument("--output", type=Path, default=REPORT)
    asked = parser.parse_args()
    small = []
    with tempfile.TemporaryDirectory() as name:
        for number in asked.nodes:
            fleet, folder = Fleet(number), Path(name, f"run{number}")
            write_run(fleet, folder)
            small.append(merge(fleet, folder, Path(name)))
            print(small[-1], flush=True)
        full = None
        if asked.full:
            fleet, folder = Fleet(asked.full), Path(name, "full")
            write_full(fleet, folder)
            full = merge(fleet, folder, Path(name))
            print(full, flush=True)
    healthy = invented(asked.healthy, 500)
    asked.output.write_text(text_of(small, full, healthy, asked.healthy, 500))
    print(asked.output.read_text())
    faults = [f"{one.number} nodes: {one.planted} planted separations" for one in small if one.planted < len(PLANTED)]
    if full and (full.cpu_s > MOST_CPU_S or full.mib > MOST_MIB or full.planted < len(PLANTED)):
        faults.append(f"full reports: {full}")
    if healthy[0] or healthy[1]:
        faults.append(f"invented: {healthy[0]} separations, {healthy[1]} outliers")
    sys.exit("\n".join(faults) or 0)


if __name__ == "__main__":
    main()
