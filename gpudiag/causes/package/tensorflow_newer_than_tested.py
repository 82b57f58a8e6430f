"""this TensorFlow is newer than 2.21, the newest that gpudiag was tested with

What gpudiag knows about messages and libraries was measured with 2.18 to 2.21.
"""

from __future__ import annotations

from gpudiag.cause import Cause, Match, Matches
from gpudiag.fix import install
from gpudiag.model.facts import TensorflowFacts
from gpudiag.model.report import Severity
from gpudiag.probes.host.tensorflow import imported, is_imported, version

CAUSE = Cause(
    title="{distribution} is newer than 2.21, the newest that gpudiag was tested with",
    severity=Severity.NOTE,
    fix=(install("--upgrade", "gpudiag", note="a newer one may know it"),),
    url="https://www.tensorflow.org/install/pip",
    finding="host.tensorflow.untested_version",
    row_only=True,
)


def find(installed: TensorflowFacts) -> Matches:
    found = version(installed) if is_imported(installed) else None
    if found is not None and found > (2, 21):
        yield Match(evidence=(imported(installed),), figures={"distribution": imported(installed)})
