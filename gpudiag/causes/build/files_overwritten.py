"""files of TensorFlow are not those that pip installed

pip recorded the hash and the size of each file that it installed, and files of TensorFlow no longer have theirs. A
distribution with the same folder was installed over it and its metadata is gone, a full disk cut them, or somebody
edited them.
"""

from __future__ import annotations

from gpudiag.cause import Cause, Match, Matches
from gpudiag.causes.shared.packages import INSTALLATION, altered, has_cuda, shown
from gpudiag.fix import install
from gpudiag.model.facts import Facts, TensorflowFacts
from gpudiag.model.report import Severity

CAUSE = Cause(
    title="files of {name} {version} are not those that pip installed",
    severity=Severity.WARNING,
    fix=(install("--force-reinstall", "--no-deps", "{name}=={version}"),),
    url=INSTALLATION,
    finding="host.packages.altered",
    views=("host.tensorflow.no_cuda",),
)


def find(facts: Facts, installed: TensorflowFacts) -> Matches:
    if altered(installed):
        seen = (*shown(installed), *(f"{file} is not the file that it installed" for file in installed.altered))
        own = installed.distributions[0]
        build = f"is_cuda_build of the files in use: {has_cuda(facts)}"
        yield Match((*seen, build), figures={"name": own.name, "version": own.version})
