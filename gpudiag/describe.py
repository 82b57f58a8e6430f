"""Texts about the catalogue: the listing and the explanation of a probe."""

from __future__ import annotations

import itertools
import textwrap
from collections.abc import Sequence

from gpudiag.catalogue import Entry, documentation
from gpudiag.probe import Needs


def needs_text(needs: Needs) -> str:
    """Return what a probe needs in a few words, such as ``TensorFlow, 2 GPUs``."""
    tensorflow = [f"TensorFlow {needs.versions}".rstrip()] if needs.tensorflow else []
    gpus = [] if not needs.gpus else ["1 GPU"] if needs.gpus == 1 else [f"{needs.gpus} GPUs"]
    free = [f"{needs.free_bytes >> 20} MiB free"] if needs.free_bytes else []
    return ", ".join(tensorflow + gpus + free) or "nothing"


def listing(entries: Sequence[Entry], width: int) -> str:
    """Return what ``gpudiag list`` prints in ``width`` columns: a table, or where it is too narrow, paragraphs."""
    rows = [(entry.name, needs_text(entry.probe.needs), entry.summary) for entry in entries]
    left = width - sum(max(len(row[column]) for row in rows) + 2 for column in (0, 1))
    if left < 20:
        return "\n".join(
            f"{name}\n{wrapped(f'    Needs {needs}.', width)}\n{wrapped(f'    {summary}', width)}\n"
            for name, needs, summary in rows
        )

    from tabulate import tabulate

    table = tabulate(
        rows, headers=("probe", "needs", "what it shows"), tablefmt="simple", maxcolwidths=[None, None, left]
    )
    return table + "\n"


def explanation(entry: Entry, width: int) -> str:
    """Return the text of ``gpudiag explain``: the probe's documentation and the findings it can make."""
    lines = [f"{entry.name} (needs {needs_text(entry.probe.needs)})", "", documentation(entry.module), ""]
    if entry.kinds:
        lines += ["Findings", ""]
        for kind in entry.kinds:
            lines += [f"    {kind.name} ({kind.severity.value}): {kind.message}", f"        {kind.advice}"]
    return wrapped("\n".join(lines).rstrip(), width) + "\n"


def wrapped(text: str, width: int) -> str:
    """Return ``text`` filled anew to ``width`` columns.

    Indentation stays, and so does a new line where the line before ends a sentence: there an item begins.
    """
    paragraphs: list[str] = []
    for before, line in itertools.pairwise(["", *text.splitlines()]):
        if before and line and _indentation(line) == _indentation(before) and not before.endswith("."):
            paragraphs[-1] += f" {line.strip()}"
        else:
            paragraphs.append(line)
    return "\n".join(
        textwrap.fill(
            paragraph, width, subsequent_indent=_indentation(paragraph), break_long_words=False, break_on_hyphens=False
        )
        for paragraph in paragraphs
    )


def _indentation(line: str) -> str:
    return line[: len(line) - len(line.lstrip())]
