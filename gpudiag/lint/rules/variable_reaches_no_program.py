"""a variable is set, but reaches no program

A shell keeps a variable for itself unless it is exported: `NAME=value; command` and a line `NAME=value` of a script set
it, and the command does not get it. `NAME=value command` gives it to that command. With spaces around the equals sign
the shell looks for a command of that name. os.system and subprocess start a new shell. What it exports is gone when it
ends, and so it is for a line of a notebook that begins with an exclamation mark and for RUN in a Dockerfile.

os.environ.copy() and dict(os.environ) make a dictionary. A process that is started sees it only if it is given as env=.

Bad
    import subprocess

    subprocess.run("CUDA_VISIBLE_DEVICES=2; python train.py", shell=True)

Good
    import subprocess

    subprocess.run("CUDA_VISIBLE_DEVICES=2 python train.py", shell=True)
"""

from __future__ import annotations

import re

from gpudiag.fix import edit, edit_note
from gpudiag.knowledge.variables import SETTINGS
from gpudiag.lint.program import Call, LintedProgram, ProgramEvent, Unreached, Variable
from gpudiag.lint.rule import Matches, Rule, Violation
from gpudiag.model.report import Severity

RULE = Rule(
    message="{name} is set {where} and reaches no program: {why}",
    severity=Severity.WARNING,
    fix=(edit_note("export it, or write it before the command, separated by a space"),),
    words=tuple(sorted(SETTINGS)),
    url="https://www.gnu.org/software/bash/manual/bash.html#Environment",
)


def find(program: LintedProgram) -> Matches:
    for event in program.of(Unreached):
        setting = event.assignment
        if setting.name not in SETTINGS:
            continue
        value = "VALUE" if setting.value is None else setting.value
        if setting.spaced:
            why = "with spaces around the equals sign it is a command that is not found"
            fix = edit(f"export {setting.name}={value}", "write it without spaces")
        elif setting.programs:
            why = "it is not exported"
            fix = edit(f"export {setting.name}={value}", "write it in this place")
        elif setting.exported or setting.ended or not event.in_script:
            why = "the shell ends, and this program and what it starts do not see it"
            fix = edit(f"os.environ[{setting.name!r}] = {value!r}", "set it in the program")
        else:
            continue
        yield Violation(event, {"name": setting.name, "where": "in a shell", "why": why}, fix=(fix,))
    yield from _copies(program)


def _copies(program: LintedProgram) -> Matches:
    """Yield the copies of the environment that have a setting and are given to no process."""
    reported = set()
    for event in program.of(Variable):
        table = event.table
        if table is not None and not table.used and event.name in SETTINGS and id(table) not in reported:
            reported.add(id(table))
            figures = {"name": event.name, "where": f"in a copy of the environment ({event.place(program)})"}
            fix = edit("env=env", "give it to the process")
            yield Violation(_start(event, program), {**figures, "why": "no process is given the copy"}, fix=(fix,))


def _start(setting: Variable, program: LintedProgram) -> ProgramEvent:
    """Return the start of a process without an environment that follows in the function, or else the setting itself."""
    for event in program.events[program.events.index(setting) :]:
        here = isinstance(event, Call) and event.functions == setting.functions
        if here and isinstance(event, Call) and _STARTS.match(event.made.name) and "env" not in event.made.kwargs:
            return event
    return setting


_STARTS = re.compile(r"subprocess\.(?:run|Popen|call|check_call|check_output)\Z")
