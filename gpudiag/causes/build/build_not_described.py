"""TensorFlow's build description cannot be read, so it is unknown whether it is built with CUDA

gpudiag reads tensorflow/python/platform/build_info.py without importing TensorFlow. Builds that are not from PyPI may
lack it.
"""

from __future__ import annotations

from gpudiag.cause import Cause, Match, Matches
from gpudiag.fix import ask
from gpudiag.model.facts import TensorflowFacts
from gpudiag.model.report import Severity
from gpudiag.probes.host.tensorflow import imported, is_imported

CAUSE = Cause(
    title="the build description of {distribution} cannot be read, so it is unknown whether it is built with CUDA",
    severity=Severity.NOTE,
    fix=(ask("python -c 'import tensorflow as tf; print(tf.sysconfig.get_build_info())'"),),
    url="https://www.tensorflow.org/install/pip",
    finding="host.tensorflow.build_unknown",
    row_only=True,
)


def find(installed: TensorflowFacts) -> Matches:
    if is_imported(installed) and installed.build is None:
        own = imported(installed)
        yield Match(evidence=(own,), figures={"distribution": own})
