"""Records what the probes measure on healthy simulated machines, for the examples in ``tests/provocations``.

    python scripts/record.py [PROBE ...]

Writes ``tests/recorded/<machine>/<probe>.json`` for each probe that is named; for every probe that measures, and the
facts of the machine as ``facts.json``, if none is. A reading that gives a finding is not written.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import msgspec

from gpudiag.model import codec
from gpudiag.model.report import Report

RECORDED = Path(__file__).parents[1] / "tests" / "recorded"
MACHINES = ("2x16GiB", "1x16GiB")


def run(machine: str, probes: list[str]) -> Report:
    """Check a healthy machine."""
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
        "--mask",
        "-q",
    ]
    done = subprocess.run([*command, "--format", "json"], stdout=subprocess.PIPE, check=False)
    return codec.decode(done.stdout.decode(), "standard output")


def write(path: Path, content: object) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(msgspec.json.format(msgspec.json.encode(content), indent=1) + b"\n")


def main() -> None:
    for machine in MACHINES:
        report = run(machine, sys.argv[1:])
        if not sys.argv[1:]:
            write(RECORDED / machine / "facts.json", report.facts)
        for row in {row.probe: row for row in reversed(report.rows)}.values():
            if row.findings:
                print(f"{row.probe} on {machine} is not written: {row.findings[0].message}", file=sys.stderr)
            elif row.reading is not None:
                write(RECORDED / machine / f"{row.probe}.json", row.reading)


if __name__ == "__main__":
    main()
