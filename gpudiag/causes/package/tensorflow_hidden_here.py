"""in this folder a file or folder hides TensorFlow from programs that are started here

Python looks into the folder of the program first. A program in this folder, a notebook, and `python -m` or `python -c`
started here import the file in place of TensorFlow, and end with "module 'tensorflow' has no attribute ..." or
"partially initialized module 'tensorflow'". gpudiag is started from elsewhere, so it takes the installed TensorFlow.
"""

from __future__ import annotations

from pathlib import PurePath
from shlex import quote

from gpudiag.cause import Cause, Match, Matches, Program
from gpudiag.fix import note, run
from gpudiag.knowledge.messages.code import NOT_TENSORFLOW
from gpudiag.model.facts import TensorflowFacts
from gpudiag.model.report import Severity
from gpudiag.probes.host.tensorflow import is_imported, of_module

CAUSE = Cause(
    title="{path} hides TensorFlow from programs that are started in this folder",
    severity=Severity.NOTE,
    fix=(run("mv {path} {new}"), note("and delete the folder __pycache__ beside it, if it is there")),
    url="https://docs.python.org/3/library/sys_path_init.html",
    needs_gpu=False,
    finding="host.tensorflow.hidden_here",
)


def find(installed: TensorflowFacts, program: Program) -> Matches:
    module = installed.in_working_directory
    if module is not None and is_imported(installed) and not program.first(NOT_TENSORFLOW):  # else it was taken
        path = PurePath(of_module(module))
        new = path.with_name(f"my_{path.name}")
        yield Match(
            evidence=(f"a program in {path.parent} that imports tensorflow takes {module}",),
            figures={"path": quote(str(path)), "new": quote(str(new))},
        )
