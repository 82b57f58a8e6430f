"""What the rules of `gpudiag lint` say of a program's own lines: those at which it ended, and options never set."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from gpudiag.model.program import FailedLine, Process, ProgramTrace, Setting, place
from gpudiag.model.program import SettingFate as Fate
from gpudiag.text import size

if TYPE_CHECKING:
    from gpudiag.lint.result import LintFinding

_FRAME = re.compile(r'  File "(?P<file>[^"]+\.py)", line (?P<line>\d+), in ')
_ERROR = re.compile(r"(?:\w+\.)*(?P<name>\w+)(?::|$)")
_OF_PACKAGES = {"site-packages", "dist-packages"}
_MOST_FILES = 4
_MOST_BYTES = 1 << 20
_LIMITING = {
    "set_memory_growth": "memory_growth",
    "set_logical_device_configuration": "logical_devices",
    "set_virtual_device_configuration": "logical_devices",
}
"""Functions without which TensorFlow takes all memory, and the names of what they set."""
_ALL_OF_IT = 0.8
"""The share of a card's memory from which on a process has taken all that it could get."""
_AROUND = (ast.If, ast.FunctionDef)
_NEVER_REACHED = ("setting_never_made", "test_never_varies")


def explained(trace: ProgramTrace) -> ProgramTrace:
    """Return a trace with what lint says of the program's own lines.

    Of those in the traceback, the innermost first, only rules that say that a line raises this exception are asked:
    others may be right about the line, too, and not explain why the program ended there. What lint could not check is a
    note of the first process: the trace stays.
    """
    problems: list[str] = []
    lines: tuple[FailedLine, ...] = ()
    uncalled: tuple[Setting, ...] = ()
    try:
        if trace.raised:
            lines = tuple(_failed(trace.raised, problems))
        elif trace.ended == "exit status 0":
            uncalled = tuple(_uncalled(trace, problems))
    except Exception as error:
        problems.append(f"gpudiag lint failed ({type(error).__name__}: {error}): please report it")
    processes = [
        msgspec.structs.replace(process, missing=(*process.missing, *(() if number else problems)))
        for number, process in enumerate(trace.processes)
    ]
    settings = (*trace.settings, *uncalled)
    return msgspec.structs.replace(trace, failed_lines=lines, settings=settings, processes=tuple(processes))


def _failed(traceback: Sequence[str], problems: list[str]) -> Iterator[FailedLine]:
    from gpudiag.lint import rule  # most programs end well

    error = next((found["name"] for line in reversed(traceback) if (found := _ERROR.match(line))), "")
    rules = [known.name for known in rule.known() if error in known.declared.raises]
    frames = [(Path(found["file"]), int(found["line"])) for line in traceback if (found := _FRAME.match(line))]
    own = [frame for frame in reversed(frames) if _OF_PACKAGES.isdisjoint(frame[0].parts) and frame[0].is_file()]
    files = tuple(dict.fromkeys(file for file, _ in own))[:_MOST_FILES] if rules else ()
    findings = _linted(files, rules, problems)
    for file, number in own:
        for finding in findings:
            if finding.file == str(file) and finding.line <= number <= finding.end_line:
                yield FailedLine(f"{file}:{number}", finding.text, finding.rule, finding.message, finding.fix)


def _linted(files: Sequence[Path], rules: Sequence[str], problems: list[str]) -> tuple[LintFinding, ...]:
    """Return what some rules find in files; what could not be checked is added to the problems."""
    from gpudiag.lint import check, rule

    result = check.check(files, [known for known in rule.known() if known.name in rules]).result()
    problems += [f"gpudiag lint, {problem.place}: {problem.message}" for problem in result.problems]
    return result.findings


def _uncalled(trace: ProgramTrace, problems: list[str]) -> Iterator[Setting]:
    """Yield the options of memory that stand in the script of a process that took all memory, and were never set."""
    for process in trace.processes:
        script = next((Path(word) for word in process.command if word.endswith(".py")), None)
        taken = _taken(trace, process)
        if script is None or not taken or not process.gpus or not script.is_file() or _limits(trace, process):
            continue
        text = script.read_bytes()[:_MOST_BYTES]
        if not any(name.encode() in text for name in _LIMITING):
            continue
        tree = ast.parse(text)
        findings = _linted([script], _NEVER_REACHED, problems)
        called = {place(setting.line) for setting in trace.settings}
        for node in ast.walk(tree):
            what = _LIMITING.get(_name(node.func), "") if isinstance(node, ast.Call) else ""
            lines = range(node.lineno, (node.end_lineno or node.lineno) + 1) if what else range(0)  # type: ignore[attr-defined]
            if not what or any(f"{script.name}:{number}" in called for number in lines):
                continue
            around = [outer for outer in ast.walk(tree) if isinstance(outer, _AROUND) and node in ast.walk(outer)]
            finding = next((row for row in findings if row.line in lines or _explains(row, around)), None)
            fate = Fate.IGNORED if finding else Fate.NOT_REACHED
            why = "; ".join(
                (
                    "no process called it",
                    *((f"{script.name}:{finding.line}: {finding.message}",) if finding else ()),
                    taken,
                )
            )
            instead = finding.fix[0] if finding else None
            yield Setting(what, "", f"{script}:{lines[0]}", fate, why, instead, process.pid)


def _explains(finding: LintFinding, around: Sequence[ast.stmt]) -> bool:
    """Return whether a finding is of a test around a call, or of a setting in a function around it."""
    if finding.rule != "setting_never_made":
        return any(isinstance(outer, ast.If) and outer.lineno == finding.line for outer in around)
    inner = (outer for outer in around if isinstance(outer, ast.FunctionDef))
    return any(outer.lineno <= finding.line <= (outer.end_lineno or 0) for outer in inner)


def _name(func: ast.expr) -> str:
    return str(getattr(func, "attr", None) or getattr(func, "id", ""))


def _limits(trace: ProgramTrace, process: Process) -> bool:
    """Return whether something else limited the memory of a process."""
    return any(
        setting.fate in (Fate.TOOK_EFFECT, Fate.NOT_CHECKED) and setting.process == process.pid
        for setting in trace.settings
        if setting.what in _LIMITING.values() or "GROWTH" in setting.what or setting.what == "session"
    )


def _taken(trace: ProgramTrace, process: Process) -> str:
    """Return what NVML says of the card whose memory a process took; "" if it did not take all of any."""
    for card in trace.booked:
        taken = dict(card.processes).get(process.pid, 0)
        if taken >= _ALL_OF_IT * card.total_bytes:
            return f"NVML: {size(taken)} of the {size(card.total_bytes)} of card {card.index} were taken"
    return ""
