"""TensorFlow 2.18 to 2.21 is not published for this Python, but for 3.9 to 3.13

gpudiag was tested with Python 3.10 to 3.13. A newer Python may have no wheel of TensorFlow at all.
"""

from __future__ import annotations

from gpudiag.cause import Cause, Match, Matches
from gpudiag.fix import Kind, run
from gpudiag.model.facts import SystemFacts
from gpudiag.model.report import Severity
from gpudiag.probes.host.tensorflow import release

CAUSE = Cause(
    title="Python {python}: TensorFlow 2.18 to 2.21 is published for Python 3.9 to 3.13",
    severity=Severity.WARNING,
    fix=(run("python3.13 -m venv tf && . tf/bin/activate", "or 3.10 to 3.12", kind=Kind.NEW_ENVIRONMENT),),
    url="https://www.tensorflow.org/install/pip",
    finding="host.tensorflow.unsupported_python",
    row_only=True,
)


def find(system: SystemFacts) -> Matches:
    python = release(system.python)
    if python is not None and python > (3, 13):
        yield Match(evidence=(f"Python {system.python}",), figures={"python": f"{python[0]}.{python[1]}"})
