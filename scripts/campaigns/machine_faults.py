"""Writes ``reports/machine-faults.md``: what ``gpudiag check`` makes of every fault that a simulated machine knows.

A check that selects some probes is a part of the whole check: each probe has its own process, in which a fault counts
calls from 1. So if the part fails, the whole check does. Each fault meets first the cheapest area of probes that makes
the call, by a trace of the calls of each area; only if that passes, every area that makes it, and then a program that
uses each library. Results are kept in a file, line by line: the campaign goes on where it was stopped. Takes hours.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from gpudiag.errors import ReportError, UsageError
from gpudiag.model import codec
from gpudiag.model.report import Report, Verdict
from gpudiag.report.masking import mask
from gpudiag.simulator.faults import SONAMES, UNNEEDED, Fault, no_effect, parse_fault
from gpudiag.simulator.spec import STATES

ROOT = Path(__file__).resolve().parent.parent.parent
REPORT = ROOT / "reports" / "machine-faults.md"
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
        *("allocation_above=8GiB@1", "device_lost_after=200@1", "device_lost_after=2000@1", "memory_corrupted=1@1"),
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
            "right": "yes",
        }
        if passes(report):
            record |= _proof(case, report, met, by_program)
        return record


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
large tensors, copies between GPUs and a training step, makes no such call, or is right with the fault. If a check of
some areas fails, the whole check does. Written by `python scripts/campaigns/machine_faults.py`.

"""


def table(records: list[dict[str, str]], planned: int) -> str:
    """Return the page; ``planned``: how many faults there are."""
    verdicts = Counter(record["verdict"] for record in records)
    wrong = [record for record in records if record["right"] != "yes"]
    counts = ", ".join(f"{count} {verdict}" for verdict, count in sorted(verdicts.items()))
    lines = [f"{len(records)} of {planned} faults: {counts}; {len(wrong)} not as they must be.", ""]
    for group in dict.fromkeys(record["group"] for record in records):
        lines += [
            f"## {group[0].upper()}{group[1:]}",
            "",
            "| fault | verdict | probes | why | right |",
            "| - | - | - | - | - |",
        ]
        for record in (candidate for candidate in records if candidate["group"] == group):
            cells = (
                f"`{record['fault']}`",
                record["verdict"],
                record.get("by", ""),
                record["why"],
                ": ".join(filter(None, (record["right"], record.get("proof", "")))),
            )
            lines.append(f"| {' | '.join(' '.join(cell.split()).replace('|', '/') for cell in cells)} |")
        lines.append("")
    return HEAD + "\n".join(lines)


def main() -> int:
    """Run what has no record yet, write the table, and return 1 if a record is not as it must be."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", type=Path, default=Path("machine-faults.jsonl"), help="kept from run to run")
    parser.add_argument("--only", default="", help="faults whose name contains this, again")
    parser.add_argument("--most", type=int, default=1 << 30, help="how many to run now")
    arguments = parser.parse_args()
    lines = arguments.records.read_text().splitlines() if arguments.records.exists() else []
    records = {record["case"]: record for record in map(json.loads, lines)}
    if "" not in records:
        with tempfile.TemporaryDirectory(prefix="traces-") as name:
            called, by_program = traced(Path(name))
        records[""] = {"case": "", "called": called, "program": by_program}
        _keep(arguments.records, records[""])
    called, by_program = records[""]["called"], records[""]["program"]
    planned = list(cases(called))
    left = [case for case in planned if case.name not in records or (arguments.only and arguments.only in case.name)]
    for case in [case for case in left if arguments.only in case.name][: arguments.most]:
        record = {"case": case.name, "group": case.group, **tried(case, called, by_program)}
        records[case.name] = record
        _keep(arguments.records, record)
        print(f"{record['right']:4}{record['verdict']:14}{record['fault']}  {record['why'][:90]}", flush=True)
    known = [records[case.name] for case in planned if case.name in records]
    REPORT.write_text(table(known, len(planned)))
    wrong = sum(record["right"] != "yes" for record in known)
    print(f"{len(known)} of {len(planned)}, {wrong} not as they must be")
    return 1 if wrong or len(known) < len(planned) else 0


def _keep(file: Path, record: Mapping[str, object]) -> None:
    with file.open("a") as lines:
        lines.write(json.dumps(record) + "\n")


if __name__ == "__main__":
    assert set(BAD) <= set(STATES)
    sys.exit(main())
