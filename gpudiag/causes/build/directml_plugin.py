"""{plugin} is for TensorFlow 2.10 alone, and {version} is installed

The development of the DirectML plug-in has stopped. It asks for tensorflow-cpu 2.10 (Python 3.10 at the latest): with
a later TensorFlow the import fails at its library in the folder tensorflow-plugins, or no device appears.
"""

from __future__ import annotations

from gpudiag.cause import Cause, Evidence, Match, Matches
from gpudiag.causes.shared.packages import FailedImport, shown
from gpudiag.hostfacts import TensorflowFacts

CAUSE = Cause(
    fix=(
        "pip uninstall -y {plugin}",
        "pip install 'tensorflow[and-cuda]'  # in WSL2, for NVIDIA GPUs under Windows",
        "pip install tensorflow-cpu==2.10.1  # instead, to keep the plug-in",
    ),
    url="https://github.com/microsoft/tensorflow-directml-plugin",
    needs_gpu=False,
)


def find(evidence: Evidence, installed: TensorflowFacts) -> Matches:
    for finding in evidence.found("host.packages", "directml"):
        failed = FailedImport.of(evidence)
        yield Match(
            evidence=(
                f"{finding.figures['plugin']} {finding.figures['found']}",
                *shown(installed),
                *installed.plugins,
                *([f"import tensorflow: {failed.error}"] if failed else []),
            ),
            figures={"plugin": finding.figures["plugin"], "version": finding.figures["version"]},
        )
