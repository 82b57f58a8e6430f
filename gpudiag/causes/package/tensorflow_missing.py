"""TensorFlow is not installed for {executable}

A virtual environment that is not activated, or a notebook whose kernel is another Python than the one that pip
installed into, has no TensorFlow: the interpreter that runs the program counts.
"""

from __future__ import annotations

from gpudiag.cause import Cause, Evidence, Match, Matches
from gpudiag.causes.shared.packages import INSTALLATION
from gpudiag.hostfacts import Unknown

CAUSE = Cause(
    fix=("{executable} -m pip install 'tensorflow[and-cuda]'",),
    url=INSTALLATION,
    views=("host.tensorflow.missing",),
)


def find(evidence: Evidence) -> Matches:
    if evidence.found("host.tensorflow", "missing"):
        system = evidence.facts.system
        executable = "python" if isinstance(system, Unknown) else system.executable
        yield Match((f"{executable} finds no module tensorflow",), figures={"executable": executable})
