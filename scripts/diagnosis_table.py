"""Writes ``reports/diagnosis.md``: what ``gpudiag check`` says of each machine of the corpus, in ``tests/corpus``.

Takes five minutes on two processors. With numbers of machines, only these are run, and the table is printed.
"""

from __future__ import annotations

import argparse
import re
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests"))

import staged  # noqa: E402

from conftest import Gpudiag  # noqa: E402
from corpus import Item, items  # noqa: E402
from gpudiag.model.diagnosis import Diagnosis  # noqa: E402
from gpudiag.run.diagnosis import diagnose  # noqa: E402
from reports import fix_line  # noqa: E402

REPORT = ROOT / "reports" / "diagnosis.md"
HEAD = """# What is said of each machine of the corpus

Each row is one run of `gpudiag check` on a machine that is built as in `tests/corpus`: simulated GPUs, files,
variables, packages. *As it must be* is the cause that the corpus asks for, named first, with its fix. *Tried* is what
came of trying the fix on that machine, if it is a change of variables. Seconds are of the machine that made the table,
most of them the start of TensorFlow; machines without are evidence alone, because they cannot be built here. From
number 101 on a machine is that of one public thread, which is linked. Written by
`python scripts/diagnosis_table.py`.

"""
TABLE = """| machine | head | confidence | fix | tried | as it must be | s |
| --- | --- | --- | --- | --- | --- | --- |
"""


@dataclass(frozen=True)
class Row:
    """What was said of one machine."""

    item: Item
    diagnosis: Diagnosis
    seconds: float | None
    """None: it was not run."""
    folder: str = ""

    @property
    def is_right(self) -> bool:
        """True if the first cause and its fix, or the harmless line, are those that the corpus asks for."""
        if self.item.harmless:
            return not self.diagnosis.causes and any(self.item.harmless in line for line in self.diagnosis.harmless)
        wanted = self.item.after or self.item.rule
        causes = self.diagnosis.causes
        shown = (*causes, *self.diagnosis.folded)
        fixes = [fix_line(action) for cause in shown if cause.cause_id == self.item.rule for action in cause.fix]
        return bool(causes) and causes[0].cause_id == wanted and any(self.item.fix in line for line in fixes)

    def __str__(self) -> str:
        head = self.diagnosis.causes[0] if self.diagnosis.causes else None
        trial = head.trial.outcome if head is not None and head.trial is not None else ""
        title = f"[{self.item}]({self.item.source})" if self.item.source else str(self.item)
        cells = (
            _cell(title),
            f"`{head.cause_id}`" if head else "",
            head.confidence.value if head else "",
            f"`{self._masked(fix_line(head.fix[0]))}`" if head and head.fix else "",
            trial,
            "yes" if self.is_right else "no",
            "" if self.seconds is None else f"{self.seconds:.0f}",
        )
        return f"| {' | '.join(cells)} |"

    def _masked(self, line: str) -> str:
        """Return a line of a fix without the folders of the machine that made the table."""
        folders = {self.folder: "/home/someone", sys.prefix: "/home/someone/venv"}
        for folder, shown in folders.items():
            line = line.replace(folder, shown) if folder else line
        return _cell(re.sub(r"/gpudiag-sim-\w+", "/machine", line))


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("`", "'")


def rows(numbers: set[int], folder: Path) -> Iterator[Row]:
    """Yield a row for each machine of these numbers, or for every one."""
    for place, item in enumerate(items()):
        if numbers and item.number not in numbers:
            continue
        if item.machine is None:
            assert item.evidence is not None
            yield Row(item, diagnose(item.evidence), None)
            continue
        own = folder / f"machine{place}"
        own.mkdir()
        machine = Gpudiag(own)
        arguments = staged.stage(item, machine)
        began = time.monotonic()
        report = staged.check(item, machine, arguments)
        yield Row(item, report.diagnosis, time.monotonic() - began, str(own))


def main() -> int:
    """Run the machines, write the table, and return 1 if one was not as it must be."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("number", nargs="*", type=int)
    numbers = set(parser.parse_args().number)
    done: list[Row] = []
    with tempfile.TemporaryDirectory(prefix="diagnosis-", ignore_cleanup_errors=True) as name:
        for row in rows(numbers, Path(name)):
            done.append(row)
            print(row, flush=True)
    right = Counter("of threads" if row.item.source else "told" for row in done if row.is_right)
    every = Counter("of threads" if row.item.source else "told" for row in done)
    figures = "".join(f"- {kind}: {right[kind]} of {every[kind]} as it must be\n" for kind in sorted(every))
    if not numbers:
        lines = "".join(f"{row}\n" for row in done)
        REPORT.write_text(f"{HEAD}{figures}\n{TABLE}{lines}", encoding="utf-8")
    return int(any(not row.is_right for row in done))


if __name__ == "__main__":
    sys.exit(main())
