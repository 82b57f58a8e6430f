"""Records what the probes measure on healthy simulated machines, and whole reports of machines of the corpus.

    python scripts/record.py [PROBE ...]
    python scripts/record.py corpus [NUMBER ...]

The first writes ``tests/recorded/<machine>/<probe>.json``, for the examples in ``tests/provocations``, for each probe
that is named; for every probe that measures, and the facts of the machine as ``facts.json``, if none is. A reading that
gives a finding is not written, and what needs a real GPU stays as it is. The second writes again what is in
``tests/recorded/corpus``, or the recordings of the machines with these numbers.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import msgspec

TESTS = Path(__file__).resolve().parents[1] / "tests"
sys.path.insert(0, str(TESTS))

import staged  # noqa: E402
from docs import compact  # noqa: E402

from conftest import Gpudiag  # noqa: E402
from corpus import items  # noqa: E402
from gpudiag.model import codec  # noqa: E402
from gpudiag.model.report import Report  # noqa: E402

RECORDED = TESTS / "recorded"
MACHINES = ("2x16GiB", "1x16GiB")


def run(machine: str, probes: list[str]) -> Report:
    """Check a healthy machine; probes that load it do so for a short time, and only if they are named."""
    load = ("--for", "8") if any(probe.startswith("load") for probe in probes) else ()
    command = [
        sys.executable,
        "-m",
        "gpudiag",
        "check",
        *probes,
        "--simulate",
        machine,
        "--level",
        "full",
        *load,
        "--mask",
        "-q",
    ]
    done = subprocess.run([*command, "--format", "json"], stdout=subprocess.PIPE, check=False)
    return codec.decode(done.stdout.decode(), "standard output")


def write(path: Path, content: object) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(msgspec.json.format(msgspec.json.encode(content), indent=1) + b"\n")


def record_corpus(numbers: set[int]) -> None:
    """Check machines of the corpus as its tests do, and keep the reports."""
    with tempfile.TemporaryDirectory(prefix="corpus-", ignore_cleanup_errors=True) as name:
        for place, item in enumerate(items()):
            if item.machine is None or not (item.number in numbers if numbers else item.recording.exists()):
                continue
            own = Path(name, f"machine{place}")
            own.mkdir()
            machine = Gpudiag(own)
            report = staged.check(item, machine, staged.stage(item, machine))
            item.recording.parent.mkdir(parents=True, exist_ok=True)
            item.recording.write_text(compact(_without_places(codec.encode(report), own)), encoding="utf-8")
            print(item, report.diagnosis.causes[0].cause_id if report.diagnosis.causes else "no cause", flush=True)


def _without_places(text: str, folder: Path) -> str:
    """Return a report without the names of this computer; ``--mask`` would take from it what a cause is known by."""
    names = {
        str(folder): "/srv/machine",
        sys.prefix: "/opt/venv",
        sys.base_prefix: "/opt/python",
        str(TESTS.parent): "/srv/gpudiag",
        str(Path.home()): "/home/someone",
    }
    for name, other in names.items():
        text = text.replace(name, other)
    text = re.sub(r'(?<="hostname": ")[^"]*', "somewhere", text)
    return re.sub(r"/tmp/gpudiag-sim-\w+", "/tmp/gpudiag-sim-machine", text)  # noqa: S108  # a text, not a file


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help="probes, or 'corpus' and the numbers of its machines")
    names = parser.parse_args().names
    if names[:1] == ["corpus"]:
        record_corpus(set(map(int, names[1:])))
        return
    for machine in MACHINES:
        report = run(machine, names)
        if not names:
            write(RECORDED / machine / "facts.json", report.facts)
        for row in {row.probe: row for row in reversed(report.rows)}.values():
            if row.findings:
                print(f"{row.probe} on {machine} is not written: {row.findings[0].message}", file=sys.stderr)
            elif row.reading is not None:
                write(RECORDED / machine / f"{row.probe}.json", row.reading)


if __name__ == "__main__":
    main()
