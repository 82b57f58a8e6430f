"""in this folder a file or folder hides TensorFlow from programs that are started here

Python looks into the folder of the program first. gpudiag is started from elsewhere, so it takes the installed
TensorFlow.
"""

from __future__ import annotations

from gpudiag.cause import Cause, Match, Matches
from gpudiag.fix import note
from gpudiag.model.facts import TensorflowFacts
from gpudiag.model.report import Severity
from gpudiag.probes.host.tensorflow import is_imported

CAUSE = Cause(
    title="{path} hides TensorFlow from programs that are started in this folder",
    severity=Severity.NOTE,
    fix=(note("rename it: Python looks in the program's folder first"),),
    url="https://docs.python.org/3/library/sys_path_init.html",
    finding="host.tensorflow.hidden_here",
    row_only=True,
)


def find(installed: TensorflowFacts) -> Matches:
    path = installed.in_working_directory
    if path is not None and is_imported(installed):
        yield Match(evidence=(path,), figures={"path": path})
