"""What ``gpudiag explain`` prints, without importing a probe or a cause: that takes longer than all else it does.

The texts are an index, which ``scripts/docs.py`` writes as it writes the pages. A text that is not in it, or whose file
was changed since, is made from that file.
"""

from __future__ import annotations

import itertools
import json
import textwrap
import zlib
from pathlib import Path
from typing import NamedTuple

import gpudiag

INDEX = Path(__file__).with_name("explanations.json")
_HOME = Path(gpudiag.__file__).parent


class Explanation(NamedTuple):
    """What is said of a probe or a cause."""

    name: str
    source: str
    """Its file, relative to the package."""
    checksum: int
    """Of that file."""
    prose: str
    """Paragraphs, which are filled to the width of the terminal."""
    commands: str = ""
    """Lines that are printed as they are, so that they can be pasted."""

    def text(self, width: int) -> str:
        """Return what is printed in ``width`` columns."""
        return "\n\n".join(filter(None, (wrapped(self.prose, width), self.commands))) + "\n"


def described(name: str, file: str | None, prose: str, commands: str = "") -> Explanation:
    """Return the explanation of what is in ``file``."""
    path = Path(file or "")
    return Explanation(name, path.relative_to(_HOME).as_posix(), _checksum(path), prose, commands)


def indexed(name: str, index: Path = INDEX) -> Explanation | None:
    """Return the explanation that the index has; None if it has none, or if it may be out of date."""
    try:
        with index.open(encoding="utf-8") as lines:
            line = next(line for line in lines if line.startswith(f'["{name}",'))
        found = Explanation(*json.loads(line.rstrip(",\n")))
        return found if _checksum(_HOME / found.source) == found.checksum else None
    except (OSError, ValueError, TypeError, StopIteration):
        return None


def _checksum(path: Path) -> int:
    """Return the checksum of a file; -1 if it cannot be read, as if gpudiag was installed without its source."""
    try:
        return zlib.crc32(path.read_bytes())
    except OSError:
        return -1


def wrapped(text: str, width: int) -> str:
    """Return ``text`` filled again to ``width`` columns.

    Indentation stays, and so does a new line if the line before ends a sentence: there an item begins.
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
