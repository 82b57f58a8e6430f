"""The output of ``gpudiag explain``, made without importing a probe or a cause, which would take most of its time.

The texts are an index, which is made when the wheel is built. A checkout and an editable installation have none: there
each text is made from its probe or cause.
"""

from __future__ import annotations

import itertools
import json
import textwrap
from collections.abc import Iterable
from enum import Enum
from pathlib import Path
from typing import NamedTuple

INDEX = Path(__file__).with_name("explanations.json")


class Kind(str, Enum):
    """What is explained."""

    PROBE = "probe"
    CAUSE = "cause"
    MESSAGE = "message"
    """A cause that a line of a log names by itself."""
    RULE = "rule"
    EXPECTATION = "expectation"


class Explanation(NamedTuple):
    """The explanation of a probe, a cause, a message, a rule or an expectation."""

    name: str
    kind: str
    """The value of a :class:`Kind`."""
    group: str
    """The area of a probe, or the stage of a cause; "" for others."""
    summary: str
    """One sentence."""
    prose: str
    """Paragraphs that are filled to the width of the terminal."""
    commands: str = ""
    """Lines that are printed as they are, so that they can be pasted."""

    def text(self, width: int) -> str:
        """Return the explanation in ``width`` columns."""
        return "\n\n".join(filter(None, (wrapped(self.prose, width), self.commands))) + "\n"


def write(explanations: Iterable[Explanation], index: Path) -> None:
    """Write the index: a line for each explanation."""
    index.write_text(
        "".join(f"{json.dumps(explanation, ensure_ascii=False)}\n" for explanation in explanations), encoding="utf-8"
    )


def indexed(name: str, index: Path | None = None) -> Explanation | None:
    """Return the explanation in the index; None if it is missing, or if there is no index."""
    try:
        with (index or INDEX).open(encoding="utf-8") as lines:
            line = next(line for line in lines if line.startswith(f'["{name}",'))
        return Explanation(*json.loads(line))
    except (OSError, ValueError, TypeError, StopIteration):
        return None


def read(index: Path | None = None) -> list[Explanation]:
    """Return all explanations of the index; none if there is no index."""
    try:
        with (index or INDEX).open(encoding="utf-8") as lines:
            return [Explanation(*json.loads(line)) for line in lines]
    except (OSError, ValueError, TypeError):
        return []


def wrapped(text: str, width: int) -> str:
    """Return ``text`` filled again to ``width`` columns.

    Indentation is kept, and so is a line break after a sentence, where a new item begins.
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
