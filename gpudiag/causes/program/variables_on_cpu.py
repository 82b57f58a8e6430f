"""variables that a function uses on a GPU are on the CPU: each run copies them

A variable stays where it was made. A model that is made in a tf.device scope for the CPU keeps its weights there,
whatever scope calls it later: each step copies them to the GPU, and their gradients back.
"""

from __future__ import annotations

from gpudiag.cause import Cause, Match, Matches
from gpudiag.causes.shared.traced import GUIDE, on_cpu
from gpudiag.fix import edit_note
from gpudiag.model.program import ProgramTrace, place
from gpudiag.model.report import Severity
from gpudiag.text import counted

CAUSE = Cause(
    title="{count} that {function} uses on a GPU are on the CPU: at least {copies} tensors cross the bus in each run",
    severity=Severity.NOTE,
    fix=(edit_note("make the model outside of tf.device('/CPU:0') at {where}"),),
    url=f"{GUIDE}#manual_device_placement",
    needs_gpu=False,
    symptom=True,
    unless={
        "mostly_on_cpu": "the operations ran where the variables are",
    },
)
_LEAST_VARIABLES, _LEAST_RUNS = 3, 3
"""The least that is reported: one or two large tables are often kept on the CPU on purpose."""
_HEAVY = ("MatMul", "Conv")


def find(program: ProgramTrace) -> Matches:
    for scope in program.scopes:
        using = [
            function
            for function in program.functions
            if function.process == scope.process
            and function.runs >= _LEAST_RUNS
            and function.cpu_variables >= _LEAST_VARIABLES
            and function.copies
            and any(part in op for op in function.types for part in _HEAVY)
        ]
        if "CPU" in scope.device.upper() and scope.variables >= _LEAST_VARIABLES and using:
            function = max(using, key=lambda function: function.runs)
            fell = [placed for placed in program.placed if placed.function == function.name and placed.could_use_gpu]
            yield Match(
                evidence=(
                    f"{place(scope.line)}: {counted(scope.variables, 'variable')} made in tf.device({scope.device!r})",
                    f"{place(function.line)}: {function.name}, {counted(function.runs, 'run', ',')}",
                    *on_cpu(fell)[:2],
                ),
                figures={
                    "count": counted(function.cpu_variables, "variable"),
                    "function": function.name,
                    "copies": function.copies,
                    "where": place(scope.line),
                },
            )
            return
