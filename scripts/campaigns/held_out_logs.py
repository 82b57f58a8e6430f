"""Counts how many of the logs that nobody reads ``gpudiag why`` answers: ``tests/logs/held_out`` and ``unseen``.

    python scripts/campaigns/held_out_logs.py

Only sums are printed, beside those of the other logs. Who builds gpudiag does not read the logs that are held out: a
cause or a message that was made for one of them says nothing of the next log.
"""

from __future__ import annotations

import sys
from pathlib import Path

from tabulate import tabulate

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests"))

import settled


def score(folder: Path) -> tuple[int, ...]:
    """Return the logs with a fault, those with the right cause, also with the word; the harmless, those called so."""
    faults = causes = words = harmless = quiet = 0
    for log in settled.load(folder):
        diagnosis = log.diagnosis()
        if log.harmless:
            harmless += 1
            quiet += not diagnosis.causes
            continue
        cause, text = settled.answer(diagnosis)
        faults += 1
        causes += cause == log.cause
        words += cause == log.cause and log.word in text
    return faults, causes, words, harmless, quiet


def main() -> None:
    """Print the table."""
    rows = [
        ("unseen", *score(settled.UNSEEN)),
        ("held out", *score(settled.HELD_OUT)),
        ("others", *score(settled.FOLDER)),
    ]
    heads = ("logs", "with a fault", "cause right", "and a settled word", "harmless", "called harmless")
    print(tabulate(rows, headers=heads, tablefmt="github"))


if __name__ == "__main__":
    main()
