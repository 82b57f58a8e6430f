"""files of {name} {version} were overwritten by another distribution

pip recorded the hash of each file that it installed, and files of TensorFlow no longer have theirs. A distribution
with the same folder was installed over it and its metadata is gone, or somebody edited them.
"""

from __future__ import annotations

from gpudiag.cause import Cause, Evidence, Match, Matches
from gpudiag.causes.shared.packages import INSTALLATION, has_cuda, shown
from gpudiag.hostfacts import TensorflowFacts

CAUSE = Cause(
    fix=("pip install --force-reinstall --no-deps {name}=={version}",),
    url=INSTALLATION,
    views=(
        "host.packages.altered",
        "host.tensorflow.no_cuda",
    ),
)


def find(evidence: Evidence, installed: TensorflowFacts) -> Matches:
    several = evidence.found("host.tensorflow", "several")  # then another rule tells it
    if installed.distributions and evidence.found("host.packages", "altered") and not several:
        seen = (*shown(installed), *(f"{file} is not the file that it installed" for file in installed.altered))
        own = installed.distributions[0]
        build = f"is_cuda_build of the files in use: {has_cuda(evidence.facts)}"
        yield Match((*seen, build), figures={"name": own.name, "version": own.version})
