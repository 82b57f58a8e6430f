"""The lines at which a program ended, as the rules of `gpudiag lint` explain them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from gpudiag.model.program import FailedLine, ProgramTrace

_FRAME = re.compile(r'  File "(?P<file>[^"]+\.py)", line (?P<line>\d+), in ')
_ERROR = re.compile(r"(?:\w+\.)*(?P<name>\w+)(?::|$)")
_OF_PACKAGES = {"site-packages", "dist-packages"}
_MOST_FILES = 4


def explained(trace: ProgramTrace) -> ProgramTrace:
    """Return a trace with what lint says of the program's own lines in its traceback, the innermost first.

    Only rules that say that a line raises this exception are asked: others may be right about the line, too, and not
    explain why the program ended there. What lint could not check is a note of the first process: the trace stays.
    """
    problems: list[str] = []
    try:
        lines = tuple(_explained(trace.raised, problems))
    except Exception as error:
        lines = ()
        problems.append(f"gpudiag lint failed ({type(error).__name__}: {error}): please report it")
    processes = [
        msgspec.structs.replace(process, missing=(*process.missing, *(() if number else problems)))
        for number, process in enumerate(trace.processes)
    ]
    return msgspec.structs.replace(trace, failed_lines=lines, processes=tuple(processes))


def _explained(traceback: Sequence[str], problems: list[str]) -> Iterator[FailedLine]:
    from gpudiag.lint import check, rule  # most programs end well

    error = next((found["name"] for line in reversed(traceback) if (found := _ERROR.match(line))), "")
    rules = [known for known in rule.known() if error in known.declared.raises]
    frames = [(Path(found["file"]), int(found["line"])) for line in traceback if (found := _FRAME.match(line))]
    own = [frame for frame in reversed(frames) if _OF_PACKAGES.isdisjoint(frame[0].parts) and frame[0].is_file()]
    files = tuple(dict.fromkeys(file for file, _ in own))[:_MOST_FILES] if rules else ()
    result = check.check(files, rules).result()
    problems += [f"gpudiag lint, {problem.place}: {problem.message}" for problem in result.problems]
    for file, number in own:
        for finding in result.findings:
            if finding.file == str(file) and finding.line <= number <= finding.end_line:
                yield FailedLine(f"{file}:{number}", finding.text, finding.rule, finding.message, finding.fix)
