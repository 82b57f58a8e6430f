"""a function was called for one GPU and ran on another

A tf.device inside a function comes before the one around its call, and its operations follow their variables. So a
function that names a GPU, or whose variables were made on one, runs there for every caller.
"""

from __future__ import annotations

from gpudiag.cause import Cause, Match, Matches
from gpudiag.causes.shared.traced import GUIDE
from gpudiag.fix import edit_note
from gpudiag.model.program import Function, ProgramTrace, place
from gpudiag.model.report import Severity
from gpudiag.text import counted

CAUSE = Cause(
    title="{function} was called for {asked} and ran on {ran}",
    severity=Severity.WARNING,
    fix=(edit_note("take tf.device out of {function}, and make its variables in the scope that calls it"),),
    url=f"{GUIDE}#manual_device_placement",
    needs_gpu=False,
    unless={
        "gpu_asked_for_not_used": "it says the same of all operations",
    },
)


def find(program: ProgramTrace) -> Matches:
    for function in program.functions:
        for asked, devices in function.scopes.items():
            gpus = [device for device in devices if device.startswith("GPU")]
            if gpus and asked not in gpus:
                yield Match(
                    evidence=(
                        f"{place(function.line)}: {function.name}, {counted(function.runs, 'run')}",
                        _nodes(function),
                    ),
                    figures={"function": function.name, "asked": asked, "ran": ", ".join(gpus)},
                )
                return


def _nodes(function: Function) -> str:
    return "its operations: " + ", ".join(
        f"{number} on {device}" for device, number in sorted(function.devices.items())
    )
