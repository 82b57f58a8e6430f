"""several distributions of TensorFlow install the same folder, and the last one has overwritten the others

tensorflow, tensorflow-cpu, tf-nightly and others all install the folder `tensorflow`. Most often another package asks
for tensorflow-cpu: its files replace those of the build with CUDA, no GPU is listed, and not one line says why.
Uninstalling only one of them deletes files of the other: remove all, then install one.
"""

from __future__ import annotations

from gpudiag.cause import Cause, Match, Matches
from gpudiag.causes.shared.packages import (
    INSTALLATION,
    FailedImport,
    has_cuda,
    overwritten,
    reinstall,
    shown,
    sure_of_mixture,
)
from gpudiag.fix import Kind, run
from gpudiag.model.facts import Facts, TensorflowFacts
from gpudiag.probes.host.tensorflow import several

CAUSE = Cause(
    title="{listed} install the same folder, and the one installed last has overwritten the other",
    fix=(
        run("pip uninstall -y {names}", kind=Kind.REMOVE),
        run("pip install --force-reinstall '{with_cuda}'", kind=Kind.INSTALL),
    ),
    url=INSTALLATION,
    finding="host.tensorflow.several",
    views=("host.tensorflow.no_cuda",),
)


def find(facts: Facts, installed: TensorflowFacts, failed: FailedImport | None) -> Matches:
    if failed is None and several(installed):
        build = f"is_cuda_build of the files in use: {has_cuda(facts)}"
        seen = (*shown(installed), *overwritten(installed), build)
        yield Match(seen, sure_of_mixture(installed), figures=reinstall(installed))
