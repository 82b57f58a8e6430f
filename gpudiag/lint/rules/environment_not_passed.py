"""the copy of the environment in which {place} sets {name} is given to no process

os.environ.copy() and dict(os.environ) make a dictionary. A process that is started sees it only if it is given as env=;
without it the process has the environment of this program.

Bad
    import os, subprocess

    env = os.environ.copy()
    env["CUDA_VISIBLE_DEVICES"] = "1"
    subprocess.run(["python", "train.py"])

Good
    import os, subprocess

    env = os.environ.copy()
    env["CUDA_VISIBLE_DEVICES"] = "1"
    subprocess.run(["python", "train.py"], env=env)
"""

from __future__ import annotations

import re

from gpudiag.fix import edit
from gpudiag.knowledge.variables import PIECES, SETTINGS
from gpudiag.lint.program import Call, Event, Program, Variable
from gpudiag.lint.rule import Match, Matches, Rule
from gpudiag.model.report import Severity

RULE = Rule(
    severity=Severity.WARNING,
    fix=(edit("env=env", "give it to the process"),),
    words=("environ",),
    also=PIECES,
    url="https://docs.python.org/3/library/subprocess.html#subprocess.Popen",
)


def find(program: Program) -> Matches:
    reported = set()
    for event in program.of(Variable):
        table = event.table
        if table is not None and not table.used and event.name in SETTINGS and id(table) not in reported:
            reported.add(id(table))
            yield Match(_start(event, program), {"name": event.name, "place": event.place(program)})


def _start(setting: Variable, program: Program) -> Event:
    """Return the start of a process without an environment that follows in the function, or else the setting itself."""
    for event in program.events[program.events.index(setting) :]:
        here = isinstance(event, Call) and event.functions == setting.functions
        if here and isinstance(event, Call) and _STARTS.match(event.made.name) and "env" not in event.made.kwargs:
            return event
    return setting


_STARTS = re.compile(r"subprocess\.(?:run|Popen|call|check_call|check_output)\Z")
