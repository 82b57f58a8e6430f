"""the metadata of a distribution cannot be read, and nothing else is known of it

A full or failing disk, or an installation that was interrupted, leaves such folders. Nothing is known of that
distribution.
"""

from __future__ import annotations

from gpudiag.cause import Cause, Match, Matches
from gpudiag.fix import Kind, note
from gpudiag.model.facts import TensorflowFacts
from gpudiag.model.report import Severity

CAUSE = Cause(
    title="{folder} cannot be read: it is the metadata of a distribution, of which nothing else is known",
    severity=Severity.WARNING,
    fix=(note("remove that folder, and install the distribution again", kind=Kind.REMOVE),),
    url="https://www.tensorflow.org/install/pip",
    finding="host.packages.unreadable",
    row_only=True,
)


def find(installed: TensorflowFacts) -> Matches:
    for folder in installed.unreadable:
        yield Match(evidence=(folder,), figures={"folder": folder})
