"""Writes ``reports/stress.md``: what ``gpudiag check --level stress`` finds on simulated machines with one fault each,
and on healthy ones with noise, and what its watcher costs.

Machines run one after the other: each loads the host for its whole time, and some have a burner for each processor
besides. A full run takes about 40 minutes on two processors; ``--machines 4`` is for a look. With ``--records FILE``, a
run that was stopped goes on, and rows of another commit stay until their machine runs again.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from itertools import zip_longest
from pathlib import Path
from typing import Any

from gpudiag import catalogue
from gpudiag.isolate import worker
from gpudiag.model import codec
from gpudiag.model.report import Judged, Report
from gpudiag.probe import LoadReading, Slice
from gpudiag.probes.under_load import COPIES, FLOOR, MUCH, SIGMAS, Deficit, behind, blur, by_work, typical
from gpudiag.run import health
from gpudiag.simulator import Machine

ROOT = Path(__file__).resolve().parent.parent
REPORT = ROOT / "reports" / "stress.md"
SECONDS = 15
KERNEL_US, COPY_MB_S = 24_000, 50
"""So long that two processors can keep the pace of eight GPUs, and so short that there are some hundred results."""
DEADLINE_S = 300
WITHOUT_WATCHER = (
    "import contextlib, sys\n"
    "from gpudiag.run import health, runner\n"
    "runner.watching = lambda *_: contextlib.nullcontext(health.Watch(None))\n"
    "from gpudiag.__main__ import main\n"
    "sys.exit(main())\n"
)

SLOW = {"slower", "much_slower", "slow_work"}
FINDINGS = {
    "slow_gpu": SLOW,
    "narrow_link": {"slow_copies", "narrow", "half_link", "under_link", "slow_gpu", "one_way"},
    "bit_flips": {"wrong"},
    "bit_flips_above": {"wrong"},
    "dies_after": {"ended", "process_ended", "operation_failed"},
    "overheats": {*SLOW, "slowed", "slower_with_time"},
    "ecc_counts": {"counted"},
}
"""The findings that a fault may have; the first line of each must be one of them, and every other finding is false."""
ON_ALL = {"narrow_link": {"slow_gpu", "one_way"}, "bit_flips": {"wrong_result"}, "bit_flips_above": {"wrong_result"}}
"""What may also be found by the probes that use all GPUs. A GPU that is gone fails all of them, and those that ask for
the reason."""


@dataclass(frozen=True)
class Case:
    """A machine, and how it is run."""

    number: int
    gpus: int
    noise: int
    fault: str = ""
    """Without its GPU."""
    gpu: int = 0
    seconds: int = SECONDS
    busy: bool = False

    @property
    def name(self) -> str:
        what = f"{self.fault}@{self.gpu}" if self.fault else "healthy"
        return f"{self.number}: {self.gpus} GPUs, noise {self.noise}, {what}, {self.seconds} s" + ", busy" * self.busy

    def write(self, folder: Path) -> str:
        """Write the machine's file, and return its name."""
        file = folder / "machine.toml"
        pace = f"kernel_us = {KERNEL_US}\ncopy_mb_s = {COPY_MB_S}\nnoise = {self.noise}\nnoise_seed = {self.number}\n"
        file.write_text(f'[[gpu]]\ncount = {self.gpus}\nmemory = "2GiB"\n{pace}')
        return str(file)


def cases() -> Iterator[Case]:
    """Yield sick and healthy machines by turns, so that a part of a run has both."""
    faults = [
        *[("slow_gpu", value, SECONDS) for value in (1.15, 1.2, 1.3, 1.5, 2, 3)],
        *[("narrow_link", value, SECONDS) for value in (8, 4, 2, 1)],
        *[("bit_flips", value, SECONDS) for value in (10, 30, 80, 150)],
        *[("bit_flips_above", value, seconds) for value, seconds in ((40, SECONDS), (45, 30), (50, 45), (55, 60))],
        *[("dies_after", value, SECONDS) for value in (3, 6, 10, 14)],
        *[("overheats", value, seconds) for value, seconds in ((1, SECONDS), (2, SECONDS), (3, 30), (5, 40))],
        *[("ecc_counts", value, SECONDS) for value in (0.5, 1, 5, 20)],
    ]
    # By turns of the kinds, and of 2 to 8 GPUs.
    faults = [faults[7 * step % 30] for step in range(30)]
    sick = [
        Case(2 * at + 1, gpus := 2 + at % 7, 30, f"{name}={value:g}", at % gpus, seconds)
        for at, (name, value, seconds) in enumerate(faults)
    ]
    healthy = [Case(2 * at + 2, 2 + 3 * at % 7, 10 * (1 + at % 5), busy=at % 3 == 2) for at in range(30)]
    for pair in zip_longest(sick, healthy):
        yield from pair


@dataclass
class Record:
    """What came of a machine."""

    name: str
    commit: str
    wall_s: float
    cores_used: float
    load: float
    found: list[str] = field(default_factory=list)
    """Messages of the findings that the fault may have."""
    false: list[str] = field(default_factory=list)
    gaps: list[str] = field(default_factory=list)
    waited: list[float] = field(default_factory=list)
    """Of each GPU, the part of the time in which its process waited for a processor."""
    broken: str = ""
    slices: list[dict[str, list[tuple[float, float]]]] = field(default_factory=list)
    """Of each GPU and each kind of work, the rates and what waited: to try other ways to judge them."""


@contextlib.contextmanager
def burners(count: int) -> Iterator[None]:
    """Keep so many processors busy during the block."""
    started = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(count)]
    try:
        yield
    finally:
        for process in started:
            process.kill()
            process.wait()


def check(spec: str, seconds: int, *options: str, code: str = "") -> tuple[Report | None, str, float]:
    """Run the probes of load; return the report, or what was said instead of one, and the CPU seconds of all."""
    start = ("-c", code) if code else ("-m", "gpudiag")
    words = (sys.executable, *start, "check", "load", "--simulate", spec, "--level", "stress", "--for", str(seconds))
    before = os.times()
    done = subprocess.run(
        (*words, *options, "--bisect", "0", "--format", "json", "-q"),
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=False,
    )
    after = os.times()
    used = after.children_user + after.children_system - before.children_user - before.children_system
    try:
        return codec.decode(done.stdout, "standard output"), "", used
    except Exception as error:  # whatever it is, it is this machine's row
        return None, f"{error}: {done.stderr[-300:]}", used


def run(case: Case, folder: Path) -> Record:
    words = ("git", "rev-parse", "--short=8", "HEAD")
    commit = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()
    options = ("--fault", f"{case.fault}@{case.gpu}") if case.fault else ()
    began, load = time.monotonic(), os.getloadavg()[0]
    with burners((os.cpu_count() or 1) * case.busy):
        report, why, used = check(case.write(folder), case.seconds, *options)
    wall = time.monotonic() - began
    record = Record(case.name, commit, round(wall, 1), round(used / wall, 2), round(load, 1), broken=why)
    if report is not None:
        judge(case, report, record)
    return record


def judge(case: Case, report: Report, record: Record) -> None:
    """Sort the findings, and note how much the GPUs differed."""
    kind = case.fault.partition("=")[0]
    uuids = [gpu.uuid for gpu in report.gpus]
    sick = uuids[case.gpu]
    readings = []
    for row in catalogue.decode_readings(report.rows):
        where = " ".join(str(uuids.index(uuid)) for uuid in row.devices) or "host"
        allowed = FINDINGS.get(kind, set()) if row.devices == (sick,) else ON_ALL.get(kind, set())
        gone = kind == "dies_after" and row.devices != (sick,) and len(row.devices) != 1
        for finding in row.findings:
            if gone:
                continue
            about = report.gpus_of(row, finding) or {report.gpus[case.gpu].pci_bus_id.lower()}
            of_case = finding.kind in allowed and report.gpus[case.gpu].pci_bus_id.lower() in about
            (record.found if of_case else record.false).append(f"{row.probe}@{where}: {finding.message}")
        if isinstance(row.outcome, Judged):
            record.gaps += [f"{row.probe}@{where}: not judged: {gap.what} ({gap.why})" for gap in row.outcome.gaps]
        elif kind != "dies_after" or not (gone or sick in row.devices):
            record.broken += f"{row.probe}@{where}: {row.outcome}"
        if row.probe == "load.gpus" and isinstance(row.reading, LoadReading):
            readings.append(row.reading)
    record.false += [f"cause: {cause.cause_id}" for cause in report.diagnosis.causes if not case.fault]
    for reading in readings:
        record.waited.append(round(blur(reading), 3))
        record.slices.append(
            {
                work: [(part.rate, part.waited or 0.0) for part in parts]
                for work, parts in by_work(reading.together).items()
            }
        )


def differences(record: Record, *, copies: bool, as_measured: bool = False) -> list[Deficit]:
    """Return by which part each GPU is slower than its twins, as it is judged now, or without taking off what its
    process waited for a processor."""
    readings = [
        LoadReading(
            slices=tuple(
                Slice(0.0, 0.0, work, rate, 0.0 if as_measured else waited)
                for work, parts in gpu.items()
                for rate, waited in parts
            )
        )
        for gpu in record.slices
    ]
    found = []
    for reading in readings:
        deficits = behind(reading, [other for other in readings if other is not reading])
        whole = typical(one for work, one in deficits.items() if work.startswith(COPIES) == copies)
        if whole is not None:
            found.append(whole)
    return found


def time_of_watcher(folder: Path, seconds: int) -> str:
    """Measure the processor time of the watcher of eight GPUs."""
    with Machine(Case(1, 8, 0).write(folder)) as made:
        words = worker.command(health.__name__, str(folder / "health"), str(time.monotonic()))
        began, process = time.monotonic(), subprocess.Popen(words, env=made.environment())
        time.sleep(seconds)
        process.kill()
        _, _, used = os.wait4(process.pid, 0)
        elapsed = time.monotonic() - began
        lines = len((folder / "health").read_text().splitlines())
    percent = 100 * (used.ru_utime + used.ru_stime) / elapsed
    return (
        f"It used {percent:.1f} % of one processor for 8 GPUs ({lines} times in {elapsed:.0f} s, its start counted, at "
        f"load {os.getloadavg()[0]:.0f})."
    )


def rate_with_watcher(folder: Path, seconds: int) -> str:
    """Compare the rate of two GPUs with the watcher and without it."""
    rates: dict[str, list[float]] = {"with": [], "without": []}
    machine = Case(1, 2, 0).write(folder)
    for which in ("with", "without", "without", "with", "with", "without"):
        report, why, _ = check(machine, seconds, code=WITHOUT_WATCHER if which == "without" else "")
        if report is None:
            return f"The rate with it was not measured: {why}"
        assert bool(report.health) == (which == "with")
        done: dict[str, list[float]] = {}
        for row in catalogue.decode_readings(report.rows):
            if row.probe == "load.gpus" and isinstance(row.reading, LoadReading):
                for part in row.reading.slices:
                    done.setdefault(part.work, []).append(part.results / part.seconds)
        rates[which].append(sum(map(statistics.fmean, done.values())))
    ratio = statistics.fmean(rates["with"]) / statistics.fmean(rates["without"])
    spread = max(max(several) / min(several) for several in rates.values()) - 1
    return (
        f"On two GPUs the results in a second were {100 * (ratio - 1):+.1f} % with it (three runs of {seconds} s with "
        f"it and three without, which differed by up to {100 * spread:.1f} % among themselves)."
    )


def distribution(title: str, deficits: Sequence[Deficit], *, of_copies: bool = False) -> str:
    """Return a row of the table of the noise model."""
    if len(deficits) < 2:
        return f"| {title} | {len(deficits)} | | | | | |"
    parts = sorted(abs(one.value) for one in deficits)
    slowest, error = max(one.value for one in deficits), statistics.median(one.error for one in deficits)
    count = sum(one.is_much if of_copies else one.counts for one in deficits)
    figures = (statistics.median(parts), parts[int(0.95 * len(parts))], slowest, error)
    return f"| {title} | {len(parts)} | " + " | ".join(f"{100 * it:.1f} %" for it in figures) + f" | {count} |"


HEAD = """# Simulated machines under load

Each row is one run of `gpudiag check load --level stress` on simulated GPUs with a pace: 24 ms for a product, a
convolution or an operation on bits, 50 MB in a second for copies, and noise (in thousandths; see *A pace, heat and
noise* in the manual). *@N* is the GPU with the fault. *s* is the time of `--for`, in which the fault must be found;
*cores* is how many processors the run used, *load* the load average when it began, of other programs. Written by
`python scripts/stress_machines.py`.

"""


def page(records: Sequence[Record], costs: Sequence[str], again: Sequence[str] = ()) -> str:
    by_name = {record.name: record for record in records}
    done = [(case, by_name[case.name]) for case in cases() if case.name in by_name]
    sick = [(case, record) for case, record in done if case.fault]
    healthy = [(case, record) for case, record in done if not case.fault]
    found = sum(bool(record.found) for _, record in sick)
    false = [record for _, record in done if record.false or record.broken]
    commits = sorted({record.commit for _, record in done})
    lines = [
        f"{found} of {len(sick)} faults were found; of {len(healthy)} healthy machines "
        f"{sum(bool(record.false) for _, record in healthy)} had a finding; {len(false)} of all {len(done)} machines "
        f"had a finding that is not its fault's, or broke. {len(list(cases()))} machines are planned. Measured at "
        f"commit {', '.join(commits)}, on {os.cpu_count()} processors.",
        "",
        *(f"Ran again after something was mended, and this is their last run: {name}." for name in again),
        "",
        "## One fault each",
        "",
        "| GPUs | fault | s | found | what was said first | else | cores | load |",
        "| - | - | - | - | - | - | - | - |",
    ]
    for case, record in sick:
        first = record.found[0] if record.found else "; ".join(record.gaps[:1])
        other = "; ".join(filter(None, [*record.false, record.broken]))
        told = "yes" if record.found else "**no**"
        lines.append(
            f"| {case.gpus} | `{case.fault}@{case.gpu}` | {case.seconds} | {told} | {cell(first)} | {cell(other)} | "
            f"{record.cores_used} | {record.load} |"
        )
    lines += [
        "",
        "## Healthy",
        "",
        "*Waited* is the largest part of the time in which the process of a GPU waited for a processor.",
        "",
        "| GPUs | noise | host | s | findings | not judged | waited | cores | load |",
        "| - | - | - | - | - | - | - | - | - |",
    ]
    for case, record in healthy:
        other = "; ".join(filter(None, [*record.false, record.broken])) or "none"
        waited = f"{100 * max(record.waited, default=0):.0f} %"
        gaps = f"{len(record.gaps)}: {record.gaps[0]}" if record.gaps else ""
        lines.append(
            f"| {case.gpus} | {case.noise} | {'burners' if case.busy else ''} | {case.seconds} | {cell(other)} | "
            f"{cell(gaps)} | {waited} | {record.cores_used} | {record.load} |"
        )
    lines += [
        "",
        "## The noise, and what counts",
        "",
        "By which part a healthy GPU is slower than the median of its twins; *error* is the median of what the probe "
        f"takes for the standard error of that. A difference counts if it is larger than {100 * FLOOR:.0f} % and than "
        f"{SIGMAS:g} errors, and is much from {100 * MUCH:.0f} % on; copies count if it is "
        "much. *As judged* is by the code that wrote this page, from the slices of each run.",
        "",
        "| healthy GPUs | number | median | 95 % below | slowest by | error | count |",
        "| - | - | - | - | - | - | - |",
    ]
    for busy in (False, True):
        host = "with burners" if busy else "without burners"
        several = [record for case, record in healthy if case.busy == busy]
        for what, copies, as_measured in (
            ("products, as measured", False, True),
            ("products, as judged", False, False),
            ("copies, as judged", True, False),
        ):
            deficits = [one for it in several for one in differences(it, copies=copies, as_measured=as_measured)]
            lines.append(distribution(f"{what}, {host}", deficits, of_copies=copies))
    for noise in range(10, 60, 10):
        several = [record for case, record in healthy if case.noise == noise]
        lines.append(
            distribution(
                f"products, as judged, noise {noise}", [d for it in several for d in differences(it, copies=False)]
            )
        )
    eight = [record for case, record in done if case.gpus == 8]
    if eight:
        ok = sum(not record.broken for record in eight)
        lines += [
            "",
            "## Eight GPUs on this host",
            "",
            f"{ok} of {len(eight)} machines of eight GPUs ran to their end, with {min(r.cores_used for r in eight)} to "
            f"{max(r.cores_used for r in eight)} processors in use.",
        ]
    lines += ["", "## The watcher", "", " ".join(costs) or "Not measured in this run."]
    return HEAD + "\n".join(lines) + "\n"


def cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


def main() -> int:
    """Run the machines, write the page, and return 1 if a fault was missed or a finding was false."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--machines", type=int, default=60, metavar="N", help="run only the first N machines")
    parser.add_argument("--again", nargs="*", default=[], metavar="NUMBER", help="run these machines again, alone")
    parser.add_argument("--records", type=Path, metavar="FILE", help="keep what was measured, and go on from it")
    parser.add_argument("--watcher", action="store_true", help="measure the cost of the watcher, too")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="stress-") as name:
        folder = Path(name)
        file = asked.records or folder / "records"
        kept: list[dict[str, Any]] = (
            [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []
        )
        known = Record.__dataclass_fields__
        records = {
            entry["name"]: Record(**{key: value for key, value in entry.items() if key in known})
            for entry in kept
            if "name" in entry
        }
        costs: list[str] = next((entry["watcher"] for entry in reversed(kept) if "watcher" in entry), [])
        for case in list(cases())[: asked.machines]:
            if str(case.number) not in asked.again if asked.again else case.name in records:
                continue
            record = run(case, folder)
            records[case.name] = record
            with file.open("a") as lines:
                lines.write(json.dumps(asdict(record)) + "\n")
            print(case.name, "|", record.found[:1], record.false, record.broken, f"{record.wall_s} s", flush=True)
        if asked.watcher:
            costs = [time_of_watcher(folder, 15), rate_with_watcher(folder, 12)]
            with file.open("a") as lines:
                lines.write(json.dumps({"watcher": costs}) + "\n")
            print(*costs, flush=True)
        names = [entry["name"] for entry in map(json.loads, file.read_text().splitlines()) if "name" in entry]
        text = page(list(records.values()), costs, [name for name in records if names.count(name) > 1])
    REPORT.write_text(text)
    print(text[len(HEAD) :].split("\n", 1)[0])
    wrong = [record for record in records.values() if record.false or record.broken]
    missed = [record for record in records.values() if "healthy" not in record.name and not record.found]
    return 1 if wrong or missed else 0


if __name__ == "__main__":
    sys.exit(main())
