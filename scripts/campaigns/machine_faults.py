"""Writes ``reports/machine-faults.md``: what ``gpudiag check`` makes of every fault that a simulated machine knows.

A check that selects some probes is a part of the whole check: each probe has its own process, in which a fault counts
calls from 1. So if the part fails, the whole check does. Each fault meets first the cheapest area of probes that makes
the call, by a trace of the calls of each area; only if that passes, every area that makes it, and then a program that
uses each library. Results are kept in a file, line by line, each with the commit that last changed what is measured.
The campaign goes on where it was stopped, and runs again what is of another commit. Rows that were not run stay on the
page.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from gpudiag.errors import ReportError, UsageError
from gpudiag.model import codec
from gpudiag.model.report import Broken, NoReading, Report, Verdict
from gpudiag.report.masking import mask
from gpudiag.simulator.faults import SONAMES, UNNEEDED, Fault, no_effect, parse_fault
from gpudiag.simulator.spec import STATES

ROOT = Path(__file__).resolve().parent.parent.parent
REPORT = ROOT / "reports" / "machine-faults.md"
MEASURED = ("gpudiag", "scripts/campaigns", ":!gpudiag/docs")
"""What a row depends on, as Git names it."""
PROGRAM = Path(__file__).parent / "every_library.py"
AREAS = ("discovery", "logical", "placement", "memory", "visibility", "distribution", "libraries")
"""Of probes that use GPUs, the cheapest first."""
DEADLINE_S = 900.0
CODES = {"nvml": 999, "nccl": 1, "cublas": 13, "cudnn": 5000, "cufft": 5, "cusolver": 6, "cusparse": 6, "cu": 999}
"""What a call of each library answers: an error that says no more than that the call failed. CUDA: unknown."""

LATER = ("cuMemcpyHtoDAsync_v2", "cuMemcpyDtoHAsync_v2", "cuMemAlloc_v2", "cuEventRecord", "cuStreamSynchronize")
SLOW = ("cuInit", "cuMemAlloc_v2", "cuStreamSynchronize", "nvmlInit_v2", "nvmlDeviceGetMemoryInfo", "cudnnCreate")
OF_EIGHT = ("context_creation=46", "memory_corrupted=1", "call_fails=cudnnCreate:1001", "allocation_above=1GiB")
STATES_TRIED = {
    "compute_mode": ('"prohibited"', '"exclusive_process"'),
    "memory_pools": ("false",),
    "taken": ('"15GiB"',),
    "mig": ("2",),
    "compute_capability": ('"5.2"', '"12.0"'),
    "multiprocessors": ("4",),
}
BAD = {
    "persistence": (0,),
    "virtualization": (1, 2, 3, 4),
    "licence": (0,),
    "ecc": (0,),
    "ecc_uncorrected": (7,),
    "ecc_corrected": (900,),
    "retired_pages": (60,),
    "retirement_pending": (1,),
    "remapped_rows": (500,),
    "remap_pending": (1,),
    "remap_failed": (1,),
    "pcie_generation": (1,),
    "pcie_width": (1,),
    "throttle": (8, 32, 64, 128),
    "performance_state": (12,),
    "power_limit": (60000,),
    "clock": (210,),
    "fabric": (1, 2),
    "fabric_status": (1,),
    "nvlinks_active": (0,),
    "peer": (1, 4),
    "confidential": (1,),
    "confidential_ready": (0,),
}
"""Of each state of NVML the values that a healthy card does not have; what only describes a card is left out."""
BESIDE = {
    "licence": "virtualization = 2, ",
    "fabric_status": "fabric = 3, ",
    "nvlinks_active": "nvlinks = 12, ",
    "confidential_ready": "confidential = 1, ",
}
"""What a value needs to mean anything."""


STATE = "state of NVML"
"""The group of machines of which NVML alone says something: no call of the driver or of a library is another."""


@dataclass(frozen=True)
class Case:
    """A machine and its faults."""

    group: str
    faults: tuple[str, ...] = ()
    machine: str = "2"
    """A specification, or the lines of the second GPU of a machine of two."""

    @property
    def name(self) -> str:
        return " ".join((self.machine if self.machine != "2" else "", *self.faults)).strip()


def cases(called: dict[str, list[str]]) -> Iterator[Case]:
    """Yield every case; ``called``: function to the areas that call it."""
    for soname in SONAMES:
        yield Case("library", (f"library_missing={soname}",))
    for text in (
        *("nvml_init=18", "nvml_init=9", "cuinit=100", "cuinit=802", "cuinit=803", "cuinit=999", "driver_too_old"),
        *("driver_too_old=12.2", "cudnn_version", "cudnn_version=9.1.0", "context_creation=46@1", "context_creation=2"),
        *("stream_creation@1", "allocation_from=1@1", "allocation_from=3@1", "allocation_above=1GiB@1"),
        *("allocation_above=8GiB@1", "device_lost_after=200@1", "device_lost_after=1000@1", "memory_corrupted=1@1"),
        *("memory_corrupted=50@1", "memory_corrupted=500@1", "peer_copies_corrupted=1@1", "peer_copies_corrupted=5@1"),
    ):
        yield Case("machine", (text,))
    for key, texts in STATES_TRIED.items():
        for text in texts:
            yield Case("card", machine=f"{key} = {text}")
    yield Case("two at once", ("call_fails=cudnnCreate:1001@1", "memory_corrupted=1@0"))
    yield Case("two at once", ("call_fails=cufftCreate:5@0", "call_fails=cusolverDnCreate:1@1"))
    yield Case("two at once", ("library_missing=libnccl.so.2", "peer_copies_corrupted=1@1"))
    yield Case("two at once", ("allocation_above=1GiB@0", "context_creation=46@1"))
    yield Case("two at once", ("slow_call=cuMemAlloc_v2:0.2@0", "memory_corrupted=50@1"))
    for text in OF_EIGHT:
        yield Case("one of eight", (f"{text}@5",), machine="8")
    for function in LATER:
        for first in (5, 50):
            yield Case("intermittent", (f"call_fails={function}:700:{first}@1",))
    for function in sorted(called, key=lambda name: name.startswith("nvml")):
        code = next(code for prefix, code in CODES.items() if function.startswith(prefix))
        yield Case("call", (f"call_fails={function}:{code}@1",))
    for key, values in BAD.items():
        for value in values:
            yield Case(STATE, machine=f"state = {{{BESIDE.get(key, '')}{key} = {value}}}")
    for function in SLOW:
        yield Case("slow", (f"slow_call={function}:0.2@1",))
    for function in SLOW:
        yield Case("hangs", (f"slow_call={function}:100000@1",))


def command(*arguments: str, trace: Path | None = None, gpus: int = 1) -> subprocess.CompletedProcess[str]:
    """Run gpudiag, without the settings and the state of this user."""
    environment = {**os.environ, "GPUS_EXPECTED": str(gpus), "TF_CPP_MIN_LOG_LEVEL": "1"}
    if trace is not None:
        environment["GPUDIAG_SIM_TRACE"] = str(trace)
    words = (sys.executable, "-m", "gpudiag", *arguments)
    return subprocess.run(
        words, env=environment, capture_output=True, text=True, errors="replace", timeout=DEADLINE_S, check=False
    )


def calls_of(folder: Path, name: str, *arguments: str) -> Counter[str]:
    """Return how often a run calls each function."""
    file = folder / f"{name}.trace"
    command(*arguments, trace=file, gpus=2)
    lines = file.read_text().splitlines() if file.exists() else []
    return Counter(line.split()[2] for line in lines if line.split()[2].startswith(tuple(CODES)))


def traced(folder: Path) -> tuple[dict[str, list[str]], list[str]]:
    """Return every function with the areas whose probes call it, and the functions that the program calls.

    A function that an area calls as often as the rows of the host alone, which start no probe, is called by no probe
    there.
    """
    host = calls_of(folder, "host", "check", "host", "--simulate", "2")
    called: dict[str, list[str]] = {function: [] for function in host}
    for area in AREAS:
        for function, times in calls_of(folder, area, "check", area, "--simulate", "2").items():
            called.setdefault(function, [])
            if times > host[function]:
                called[function].append(area)
    program = calls_of(folder, "program", "simulate", "2", "--", sys.executable, str(PROGRAM))
    return dict(sorted(called.items())), sorted(program)


def specification(case: Case, folder: Path) -> list[str]:
    """Return the options that make the machine of a case."""
    machine = case.machine
    if "=" in machine:
        file = folder / "machine.toml"
        file.write_text(f"[[gpu]]\n[[gpu]]\n{machine}\n")
        machine = str(file)
    return [machine, *(word for fault in case.faults for word in ("--fault", fault))]


@cache
def is_met(fault: Fault, notes: tuple[str, ...]) -> bool:
    if fault.removed and fault.removed[0] not in UNNEEDED:
        return True  # TensorFlow opens it
    return no_effect(fault) not in notes


def check(case: Case, areas: list[str], folder: Path) -> Report:
    """Return the report of a check; raises :class:`UsageError` for a fault that is refused."""
    options = ("--format", "json", "--no-keep-last-pass", "--bisect", "0", "--simulate")
    done = command("check", *areas, *options, *specification(case, folder))
    if done.returncode == 2:
        raise UsageError(done.stderr.strip().splitlines()[-1] if done.stderr.strip() else "usage")
    return codec.decode(done.stdout, case.name)


def areas_of(case: Case, called: dict[str, list[str]]) -> list[list[str]]:
    """Return the selections of probes to try, one after the other while they pass."""
    functions = {rule.split(",")[0] for text in case.faults for rule in parse_fault(text).rules}
    known = [area for area in AREAS if any(area in called.get(function, ()) for function in functions)]
    if case.group in ("call", "slow", "hangs", "intermittent"):
        return [known[:1], known] if len(known) > 1 else [known or ["host", "discovery"]]
    return [["discovery"]] if case.group == STATE else [["discovery"], []]


def passes(report: Report) -> bool:
    """Return True for PASS, and for a part of a check that verified too little to be one."""
    return report.verdict is Verdict.PASS or (report.verdict is Verdict.NOT_VERIFIED and not report.withheld)


def tried(case: Case, called: dict[str, list[str]], by_program: list[str]) -> dict[str, str]:
    """Return the record of a case."""
    with tempfile.TemporaryDirectory(prefix="machine-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        try:
            for areas in areas_of(case, called):
                report = check(case, areas, folder)
                met = all(is_met(parse_fault(text), report.notes) for text in case.faults)
                if not met and case.group in ("call", "slow", "hangs") and case.faults[0].endswith("@1"):
                    everywhere = Case(case.group, tuple(text.removesuffix("@1") for text in case.faults), case.machine)
                    return tried(everywhere, called, by_program)
                if not passes(report):
                    break
        except subprocess.TimeoutExpired:
            return {"fault": case.name, "verdict": "none", "why": f"no report within {DEADLINE_S:.0f} s", "right": "no"}
        except ReportError as error:
            return {"fault": case.name, "verdict": "none", "why": f"no report: {error}", "right": "no"}
        except UsageError as error:
            return {"fault": case.name, "verdict": "refused", "why": str(error), "right": "yes"}
        record = {
            "fault": case.name,
            "verdict": report.verdict.value,
            "by": "every probe" if not areas else " ".join(areas),
            "why": _why(report),
            **_right(report),
        }
        if passes(report):
            record |= _proof(case, report, met, by_program)
        return record


def _right(report: Report) -> dict[str, str]:
    """Return whether a verdict other than PASS is right: gpudiag must not break by a fault of the machine."""
    if any(isinstance(row.outcome, Broken) and row.outcome.cause is NoReading.BUSY for row in report.rows):
        return {"right": "no", "proof": "this machine was too busy"}
    if report.verdict is Verdict.BROKEN:
        return {"right": "no", "proof": "the fault is the machine's and not gpudiag's"}
    return {"right": "yes"}


def _why(report: Report) -> str:
    """Return the first cause and the rows that did not pass, masked."""
    report = mask(report)
    causes = [f"{cause.cause} ({cause.confidence.value}; {cause.cause_id})" for cause in report.diagnosis.causes[:1]]
    rows = [f"{row.probe}: {row.status}" for row in report.rows if row.status in ("fail", "broken", "warning")]
    return "; ".join((*causes, *rows[:2], *([f"and {len(rows) - 2} more"] if len(rows) > 2 else [])))


def _proof(case: Case, report: Report, met: bool, by_program: list[str]) -> dict[str, str]:
    """Return why a PASS is right: TensorFlow does not make the call, or a program that uses each library is right."""
    functions = {rule.split(",")[0] for text in case.faults for rule in parse_fault(text).rules}
    if case.group == "call" and functions.isdisjoint(by_program):
        return {"proof": "the program does not make this call"}
    if case.group == STATE:
        every = ", ".join(f"{key} = {values[0]}" for key, values in BAD.items())
        error = error_of_program((f"state = {{{every}}}",), 2)
        proof = "the program is right with the first value of every state at once"
    else:
        error = error_of_program((case.machine, *case.faults), len(report.gpus) or 1)
        proof = "the program is right" + ("" if met else "; no call meets the fault")
    return {"proof": error, "right": "no"} if error else {"proof": proof}


@cache
def error_of_program(machine_and_faults: tuple[str, ...], gpus: int) -> str:
    """Return how the program ends on a machine; "" if everything that it computes is right."""
    machine, *faults = machine_and_faults
    with tempfile.TemporaryDirectory(prefix="program-", ignore_cleanup_errors=True) as name:
        options = specification(Case("", tuple(faults), machine), Path(name))
        done = command("simulate", *options, "--", sys.executable, str(PROGRAM), gpus=gpus)
    last = [line for line in done.stderr.splitlines() if line.strip() and not line.startswith("gpudiag:")][-1:]
    return "" if done.returncode == 0 else f"the program ends with {done.returncode}: {' '.join(last)[:160]}"


HEAD = """# What a check makes of a machine with a fault

Each row is one fault of a simulated machine of two GPUs (of eight, if the row says so). `@1` is the second GPU. A PASS
is right only if the fault has no effect on TensorFlow: `scripts/campaigns/every_library.py`, which uses each library,
large tensors, copies between GPUs and a training step, makes no such call, or is right with the fault. BROKEN is never
right. If a check of some areas fails, the whole check does. Written by `python scripts/campaigns/machine_faults.py`.

"""
COLUMNS = ("fault", "verdict", "probes", "why", "right", "commit")


def table(records: list[dict[str, str]], planned: int) -> str:
    """Return the page; ``planned``: how many faults there are."""
    verdicts = Counter(record["verdict"] for record in records)
    wrong = [record for record in records if record["right"] != "yes"]
    commits = Counter(record["commit"] for record in records)
    counts = ", ".join(f"{count} {verdict}" for verdict, count in sorted(verdicts.items()))
    at = ", ".join(commit if len(commits) == 1 else f"{commit} ({count})" for commit, count in commits.most_common())
    lines = [
        f"{len(records)} of {planned} faults: {counts}; {len(wrong)} not as they must be.",
        f"Measured at commit {at}.",
        "",
    ]
    for group in dict.fromkeys(record["group"] for record in records):
        lines += [
            f"## {group[0].upper()}{group[1:]}",
            "",
            f"| {' | '.join(COLUMNS)} |",
            f"|{' - |' * len(COLUMNS)}",
        ]
        for record in (candidate for candidate in records if candidate["group"] == group):
            cells = (
                f"`{record['fault']}`",
                record["verdict"],
                record.get("by", ""),
                record["why"],
                ": ".join(filter(None, (record["right"], record.get("proof", "")))),
                record["commit"],
            )
            lines.append(f"| {' | '.join(' '.join(cell.split()).replace('|', '/') for cell in cells)} |")
        lines.append("")
    return HEAD + "\n".join(lines)


def rows_of(page: str) -> Iterator[dict[str, str]]:
    """Yield the records that :func:`table` made a page of, by the name that a fault has there."""
    group = ""
    for line in page.splitlines():
        group = f"{line[3].lower()}{line[4:]}" if line.startswith("## ") else group
        cells = line.removeprefix("| ").removesuffix(" |").split(" | ")
        if line.startswith("| `") and len(cells) == len(COLUMNS):
            fault, verdict, by, why, right, commit = (cell.strip() for cell in cells)
            right, _, proof = right.partition(": ")
            record = {"fault": fault.strip("`"), "verdict": verdict, "by": by, "why": why, "right": right}
            yield {**record, "proof": proof, "commit": commit, "group": group}


def commit_measured() -> str:
    """Return the commit that last changed what is measured, marked if something there is not committed."""
    git = ("git", "-C", str(ROOT))
    last, changed = (
        subprocess.run([*git, *words, "--", *MEASURED], capture_output=True, text=True, check=True).stdout.strip()
        for words in (("log", "-1", "--format=%h"), ("status", "--porcelain"))
    )
    return f"{last} with changes" if changed else last


def part_of(text: str) -> tuple[int, int]:
    """Return the number of a part, from 0, and of how many: ``2/5`` is (1, 5)."""
    if (match := re.fullmatch(r"([1-9]\d*)/([1-9]\d*)", text)) is None or int(match[1]) > int(match[2]):
        raise argparse.ArgumentTypeError(f"{text!r} is no part: write 1/5 for the first of five")
    return int(match[1]) - 1, int(match[2])


class Records:
    """What was measured, by the names of the cases, kept in a file line by line; the last line of a case counts."""

    def __init__(self, file: Path) -> None:
        self.file = file
        lines = file.read_text().splitlines() if file.exists() else []
        self.by_case: dict[str, dict[str, Any]] = {record["case"]: record for record in map(json.loads, lines)}

    def keep(self, record: dict[str, Any]) -> None:
        self.by_case[record["case"]] = record
        with self.file.open("a") as lines:
            lines.write(json.dumps(record) + "\n")

    def has(self, case: str, commit: str) -> bool:
        """Return whether a case needs no further run: it was measured at this commit, and is as it must be."""
        record = self.by_case.get(case, {})
        return record.get("commit") == commit and record.get("right", "yes") == "yes"


def main() -> int:
    """Run what has no record of this commit, write the table, and return 1 if a row of it is not as it must be."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", type=Path, default=Path("machine-faults.jsonl"), help="kept from run to run")
    parser.add_argument("--jobs", type=int, default=2, help="how many faults to run at the same time")
    parser.add_argument("--part", type=part_of, default=(0, 1), metavar="K/N", help="only the K-th of N parts")
    parser.add_argument("--only", action="append", help="only faults whose name contains this, and again; repeatable")
    arguments = parser.parse_args()
    commit, records = commit_measured(), Records(arguments.records)
    if not records.has("", commit):
        with tempfile.TemporaryDirectory(prefix="traces-") as name:
            called, by_program = traced(Path(name))
        records.keep({"case": "", "commit": commit, "called": called, "program": by_program})
    called, by_program = records.by_case[""]["called"], records.by_case[""]["program"]
    planned = list(cases(called))
    number, parts = arguments.part
    chosen = [case for case in planned[number::parts] if any(text in case.name for text in arguments.only or ("",))]
    left = [case for case in chosen if arguments.only or not records.has(case.name, commit)]
    print(f"commit {commit}: {len(planned)} faults, {len(chosen)} of this part, {len(left)} to run", flush=True)
    pool = ThreadPoolExecutor(arguments.jobs)
    jobs = {pool.submit(tried, case, called, by_program): case for case in left}
    try:
        for job in as_completed(jobs):
            record = {"case": jobs[job].name, "group": jobs[job].group, "commit": commit, **job.result()}
            if commit_measured() != commit:
                raise SystemExit("What is measured was changed while it ran. Start it again.")
            records.keep(record)
            print(f"{record['right']:4}{record['verdict']:14}{record['fault']}  {record['why'][:90]}", flush=True)
    finally:
        pool.shutdown(cancel_futures=True)
    records = Records(arguments.records)  # with those of other parts
    known = {record["fault"].removesuffix("@1"): record for record in rows_of(REPORT.read_text())}
    known |= {record["fault"].removesuffix("@1"): record for case, record in records.by_case.items() if case}
    on_page = [known[name] for case in planned if (name := case.name.removesuffix("@1")) in known]
    REPORT.write_text(table(on_page, len(planned)))
    wrong = [case.name for case in chosen if not records.has(case.name, commit)]
    print(f"{len(chosen) - len(wrong)} of {len(chosen)} are of commit {commit} and as they must be")
    return 1 if wrong else 0


if __name__ == "__main__":
    assert set(BAD) <= set(STATES)
    sys.exit(main())
