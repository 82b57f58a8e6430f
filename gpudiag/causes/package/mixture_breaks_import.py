"""{listed} have overwritten each other's files, and TensorFlow cannot be imported

tensorflow, tensorflow-cpu, tf-nightly and others all install the folder `tensorflow`. Of two releases the files that
only one has stay, and fit those of the other or not.
"""

from __future__ import annotations

from gpudiag.cause import Cause, Evidence, Match, Matches
from gpudiag.causes.shared.packages import (
    INSTALLATION,
    import_error,
    overwritten,
    reinstall,
    shown,
    sure_of_mixture,
    tensorflow_facts,
)

CAUSE = Cause(
    fix=("pip uninstall -y {names}", "pip install --force-reinstall '{with_cuda}'"),
    url=INSTALLATION,
    needs_gpu=False,
    views=("host.tensorflow.several",),
)


def find(evidence: Evidence) -> Matches:
    installed, error = tensorflow_facts(evidence.facts), import_error(evidence)
    if installed is not None and error is not None and evidence.found("host.tensorflow", "several"):
        seen = (*shown(installed), *overwritten(installed), f"import tensorflow: {error}")
        yield Match(seen, sure_of_mixture(installed), figures=reinstall(installed))
