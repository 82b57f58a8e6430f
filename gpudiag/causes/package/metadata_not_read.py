"""TensorFlow's metadata could not be read

gpudiag reads what is installed from the folders of sys.path. A network file system that hangs is a common reason.
"""

from __future__ import annotations

from gpudiag.cause import Cause, Match, Matches
from gpudiag.fix import ask
from gpudiag.model.facts import Facts, Unknown

CAUSE = Cause(
    title="TensorFlow's metadata could not be read: {reason}",
    fix=(ask("python -c 'import sys; print(sys.path)'", "look whether all of these folders can be read"),),
    url="https://www.tensorflow.org/install/pip",
    finding="host.tensorflow.not_gathered",
    row_only=True,
)


def find(facts: Facts) -> Matches:
    if isinstance(facts.tensorflow, Unknown):
        yield Match(evidence=(facts.tensorflow.reason,), figures={"reason": facts.tensorflow.reason})
