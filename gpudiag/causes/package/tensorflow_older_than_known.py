"""this TensorFlow is older than 2.18, the oldest that gpudiag knows

TensorFlow changed how it opens CUDA libraries in 2.14 and 2.18, so findings may be wrong for it.
"""

from __future__ import annotations

from gpudiag.cause import Cause, Match, Matches
from gpudiag.fix import install
from gpudiag.model.facts import TensorflowFacts
from gpudiag.model.report import Severity
from gpudiag.probes.host.tensorflow import imported, is_imported, version

CAUSE = Cause(
    title="{distribution} is older than 2.18, the oldest that gpudiag knows",
    severity=Severity.WARNING,
    fix=(install("--upgrade", "gpudiag[tensorflow]", note="if you can"),),
    url="https://www.tensorflow.org/install/pip",
    finding="host.tensorflow.old_version",
    row_only=True,
)


def find(installed: TensorflowFacts) -> Matches:
    found = version(installed) if is_imported(installed) else None
    if found is not None and found < (2, 18):
        yield Match(evidence=(imported(installed),), figures={"distribution": imported(installed)})
