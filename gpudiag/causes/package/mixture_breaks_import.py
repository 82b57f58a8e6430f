"""several distributions of TensorFlow have overwritten each other's files, and it cannot be imported

tensorflow, tensorflow-cpu, tf-nightly and others all install the folder `tensorflow`. If two releases are mixed, files
that only one of them has stay, and may not fit the files of the other.
"""

from __future__ import annotations

from gpudiag.cause import Cause, Match, Matches
from gpudiag.causes.shared.packages import (
    INSTALLATION,
    FailedImport,
    overwritten,
    reinstall,
    shown,
    sure_of_mixture,
)
from gpudiag.fix import Kind, run
from gpudiag.model.facts import TensorflowFacts
from gpudiag.probes.host.tensorflow import several

CAUSE = Cause(
    title="{listed} have overwritten each other's files, and TensorFlow cannot be imported",
    fix=(
        run("pip uninstall -y {names}", kind=Kind.REMOVE),
        run("pip install --force-reinstall '{with_cuda}'", kind=Kind.INSTALL),
    ),
    url=INSTALLATION,
    needs_gpu=False,
    views=("host.tensorflow.several",),
)


def find(failed: FailedImport, installed: TensorflowFacts) -> Matches:
    if several(installed):
        seen = (*shown(installed), *overwritten(installed), f"import tensorflow: {failed.error}")
        yield Match(seen, sure_of_mixture(installed), figures=reinstall(installed))
