"""{name} is set in a shell and reaches no program: {why}

A shell keeps a variable for itself unless it is exported: `NAME=value; command` and a line `NAME=value` of a script set
it, and the command does not get it. `NAME=value command` gives it to that command. With spaces around the equals sign
the shell looks for a command of that name. os.system and subprocess start a new shell. What it exports is gone when it
ends, and so it is for a line of a notebook that begins with an exclamation mark and for RUN in a Dockerfile.

Bad
    import subprocess

    subprocess.run("CUDA_VISIBLE_DEVICES=2; python train.py", shell=True)

Good
    import subprocess

    subprocess.run("CUDA_VISIBLE_DEVICES=2 python train.py", shell=True)
"""

from __future__ import annotations

from gpudiag.fix import edit
from gpudiag.knowledge.variables import SETTINGS
from gpudiag.lint.program import Program, Unreached
from gpudiag.lint.rule import Match, Matches, Rule, change
from gpudiag.model.report import Severity

RULE = Rule(
    severity=Severity.WARNING,
    fix=(change("export it, or write it before the command, separated by a space"),),
    words=tuple(sorted(SETTINGS)),
    url="https://www.gnu.org/software/bash/manual/bash.html#Environment",
)


def find(program: Program) -> Matches:
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
        yield Match(event, {"name": setting.name, "why": why}, fix=(fix,))
