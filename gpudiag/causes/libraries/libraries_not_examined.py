"""the libraries could not be looked at

Each library is opened in a separate process. TensorFlow's own log says which it opens.
"""

from __future__ import annotations

from gpudiag.cause import Cause, Match, Matches
from gpudiag.fix import export
from gpudiag.model.facts import Facts, Unknown
from gpudiag.model.report import Severity

CAUSE = Cause(
    title="the libraries could not be looked at: {reason}",
    severity=Severity.NOTE,
    fix=(export("TF_CPP_VMODULE", "dso_loader=1", "makes TensorFlow's log name the libraries that it opens"),),
    url="https://www.tensorflow.org/install/pip",
    finding="host.libraries.not_gathered",
    row_only=True,
)


def find(facts: Facts) -> Matches:
    if isinstance(facts.libraries, Unknown):
        yield Match(evidence=(facts.libraries.reason,), figures={"reason": facts.libraries.reason})
