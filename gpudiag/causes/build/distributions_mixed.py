"""{listed} install the same folder, and the one installed last has overwritten the other

tensorflow, tensorflow-cpu, tf-nightly and others all install the folder `tensorflow`. Most often another package asks
for tensorflow-cpu: its files replace those of the build with CUDA, no GPU is listed, and not one line says why.
Uninstalling only one of them deletes files of the other: remove all, then install one.
"""

from __future__ import annotations

from gpudiag.cause import Cause, Evidence, Match, Matches
from gpudiag.causes.shared.packages import (
    INSTALLATION,
    FailedImport,
    has_cuda,
    overwritten,
    reinstall,
    shown,
    sure_of_mixture,
)
from gpudiag.model.facts import TensorflowFacts
from gpudiag.probes.host.tensorflow import several

CAUSE = Cause(
    fix=("pip uninstall -y {names}", "pip install --force-reinstall '{with_cuda}'"),
    url=INSTALLATION,
    finding="host.tensorflow.several",
    views=("host.tensorflow.no_cuda",),
)


def find(evidence: Evidence, installed: TensorflowFacts) -> Matches:
    if FailedImport.of(evidence) is None and several(installed):
        build = f"is_cuda_build of the files in use: {has_cuda(evidence.facts)}"
        seen = (*shown(installed), *overwritten(installed), build)
        yield Match(seen, sure_of_mixture(installed), figures=reinstall(installed))
