"""Python crashes when two packages are imported in this order: their libraries conflict

Packages with compiled code bring further libraries: of C++, OpenMP, protobuf, CUDA. Two that hold the same one, in
another release, may live in one process only if the right one comes first. Such a crash (a segmentation fault, "free():
invalid pointer") has nothing to do with the GPU.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from gpudiag.cause import Cause, Match, Matches, Program
from gpudiag.fix import Kind, edit, edit_note, run
from gpudiag.knowledge.log_lines import text
from gpudiag.model.diagnosis import Confidence

CAUSE = Cause(
    title="Python crashes when {last} is imported after {first}: their libraries conflict in this order",
    fix=(
        edit("import {last}", "as the first line of the program, before {first}"),
        edit_note("or use each of them in a separate process or environment"),
        run(
            "python -m venv fresh; fresh/bin/pip install {packages}",
            "installs releases of the same time that are built alike",
            kind=Kind.NEW_ENVIRONMENT,
        ),
    ),
    url="https://www.tensorflow.org/install/errors",
    needs_gpu=False,
)

_CRASH = re.compile(
    r"(?i)\bsegmentation fault\b|\bsegfaults?\b|\bSIGSEGV\b|\(core dumped\)|free\(\): invalid pointer|"
    r"double free or corruption|\bsignal 11\b"
)
_TOLD = re.compile(
    r"(?i)(?:segfault|segmentation fault|crash)\w{0,4}\b.{0,40}\bimport(?:ing)? (?P<last>[a-z][\w.]{1,60})\b.{0,20}"
    r"\bafter (?:importing )?(?P<first>[a-z][\w.]{1,60})"
)
_IMPORT = re.compile(r"^(?:\s*(?:>>>|In \[\d{1,4}\]:) ?)?(?:import|from) (?P<module>[A-Za-z][\w.]{0,80})(?: |$)")
_PROMPT = re.compile(r"^\s*(?:>>>|In \[\d{1,4}\]:)")
_INLINE = re.compile(r"""-c ['"](?P<code>[^'"]{1,200})['"]""")
_NEAR = 3
"""At most this many lines of the log are between the last import and a crash that it caused."""


def find(program: Program) -> Matches:
    for number, line in enumerate(program.lines):
        if told := _TOLD.search(line):
            yield _match(told["first"], told["last"], (line,))
            return
        if not _CRASH.search(line):
            continue
        modules, last = _imported(program.lines[:number])
        if len(modules) > 1 and number - last <= _NEAR:
            yield _match(modules[-2], modules[-1], (program.lines[last], line))
            return


def _imported(lines: Sequence[str]) -> tuple[list[str], int]:
    """Return the modules that a session imports, in order, and the number of the last import's line."""
    modules, last = list[str](), -1
    for number, line in enumerate(lines):
        if found := _INLINE.search(line):
            here = [match["module"] for part in found["code"].split(";") if (match := _IMPORT.match(part.strip()))]
            modules, last = (here, number) if here else (modules, last)
        elif found := _IMPORT.match(line):
            modules, last = [*modules, found["module"]], number
        elif _PROMPT.match(line) and line.strip(" >"):
            modules, last = [], -1  # it did more than import
    return list(dict.fromkeys(modules)), last


def _match(first: str, last: str, lines: tuple[str, ...]) -> Match:
    tops = dict.fromkeys(module.partition(".")[0] for module in (last, first))
    return Match(
        tuple(text(line) for line in lines),
        Confidence.LIKELY,
        {"first": first, "last": last, "packages": " ".join(tops)},
    )
