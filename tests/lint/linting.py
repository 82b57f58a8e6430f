"""Helpers of these tests: texts are checked without a file, and the corpus is read with its labels."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from gpudiag.lint import check, rule
from gpudiag.lint.result import LintFinding, Result

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

CORPUS = Path(__file__).parent / "corpus"
HALVES = ("first", "second")
PARTS = (*HALVES, "third", "fourth", "fifth", "sixth", "seventh", "eighth", "ninth")
_MARK = "  #! "


def result_of(text: str | bytes, gpu_bytes: int | None = None) -> Result:
    """Return what every rule finds in a text."""
    raw = text if isinstance(text, bytes) else text.encode()
    return check.check([], rule.known(), stdin=raw, gpu_bytes=gpu_bytes).result()


def found_in(text: str | bytes, gpu_bytes: int | None = None) -> list[LintFinding]:
    """Return the findings in a text."""
    return list(result_of(text, gpu_bytes).findings)


def rules_in(text: str | bytes, gpu_bytes: int | None = None) -> list[str]:
    """Return the rules that find something in a text."""
    return [finding.rule for finding in found_in(text, gpu_bytes)]


@dataclass(frozen=True)
class Snippet:
    """A program of the corpus, and what is wrong with it."""

    source: str
    code: str
    labels: frozenset[tuple[str, int]]
    """Rules and lines."""


def snippets(part: str) -> Iterator[Snippet]:
    """Yield the snippets of one part of the corpus, without their labels."""
    for entry in tomllib.loads((CORPUS / f"{part}.toml").read_text("utf-8"))["snippet"]:
        lines = entry["code"].lstrip("\n").splitlines()
        labels = {
            (name, at) for at, line in enumerate(lines, 1) if _MARK in line for name in line.split(_MARK)[1].split()
        }
        yield Snippet(entry["source"], "\n".join(line.split(_MARK)[0] for line in lines) + "\n", frozenset(labels))
