"""Writes ``reports/faults.md``: what ``gpudiag check`` makes of what it lacks itself; the campaign is in tests/faults.

Needs Linux; the faults that need root are listed as not tried without it. Takes some minutes.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests"))

from faults import campaign  # noqa: E402

REPORT = ROOT / "reports" / "faults.md"
HOST = "host.gpus host.driver"
DEVICE = "discovery.logical_devices placement.log memory.shared_gpu --simulate 1"
ON_DEVICE = ("open files", "TMPDIR is full", "no folder", "TMPDIR is not UTF-8", "stopped", "/proc")
"""What is tried with TensorFlow, too, by words of its name."""

HEAD = """# What gpudiag lacks is not a verdict on the machine

Each row is one run of `gpudiag check` (`{host}`, or, marked *TensorFlow*, `{device}`) with a
deadline of {deadline} s. One call of the supervisor or of a fork server fails in it, or something real is lacking.
The exit status must be 3, with the true reason in the report, or that of a healthy run if gpudiag can do without. There
must be a report, no traceback, and nothing left behind. Written by `python scripts/fault_campaign.py`.

| fault | rows | exit status | s over the deadline | as it must be |
| --- | --- | --- | --- | --- |
"""


def main() -> int:
    """Run the campaign, write the table, and return 1 if a run was not as it must be."""
    argparse.ArgumentParser(description=__doc__).parse_args()
    lines = []
    wrong = 0
    with tempfile.TemporaryDirectory(prefix="faults-", ignore_cleanup_errors=True) as name:
        top = Path(name)
        top.chmod(0o755)
        real = list(campaign.real(top))
        plan = [(fault, HOST) for fault in (*campaign.injected(), *real)]
        plan += [(fault, DEVICE) for fault in real if any(words in fault.name for words in ON_DEVICE)]
        for number, (fault, select) in enumerate(plan):
            title = fault.name if select == HOST else f"{fault.name} (*TensorFlow*)"
            if why := campaign.possible(fault):
                lines.append(f"| {title} | | | | not tried: {why} |")
                continue
            folder = top / f"run{number}"
            folder.mkdir()
            outcome = campaign.run(fault, folder, select)
            rows = ", ".join(f"{count} {name}" for name, count in sorted(outcome.rows.items()))
            wrong += bool(outcome.faults)
            lines.append(
                f"| {title} | {rows} | {outcome.status} | {outcome.late_s:.0f} | {'; '.join(outcome.faults) or 'yes'} |"
            )
            print(lines[-1], flush=True)
    head = HEAD.format(host=HOST, device=DEVICE, deadline=campaign.DEADLINE_S)
    REPORT.write_text(head + "\n".join(lines) + "\n")
    print(f"{len(plan) - wrong} passed, {wrong} failed")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
