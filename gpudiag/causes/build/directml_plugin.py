"""the DirectML plug-in is for TensorFlow 2.10 only, but another release is installed

The development of the DirectML plug-in has stopped. It asks for tensorflow-cpu 2.10 (Python 3.10 at the latest): with
a later TensorFlow the import fails at its library in the folder tensorflow-plugins, or no device appears.
"""

from __future__ import annotations

from gpudiag.cause import Cause, Match, Matches
from gpudiag.causes.shared.packages import FailedImport, shown
from gpudiag.fix import Kind, install, run
from gpudiag.model.facts import TensorflowFacts
from gpudiag.model.report import Severity
from gpudiag.probes.host.packages import foreign_directml

CAUSE = Cause(
    title="{plugin} is for TensorFlow 2.10 only, but {version} is installed",
    severity=Severity.WARNING,
    fix=(
        run("pip uninstall -y {plugin}", kind=Kind.REMOVE),
        install("tensorflow[and-cuda]", note="run it in WSL 2, if the GPU is NVIDIA's"),
        install("tensorflow-cpu==2.10.1", note="if you want to keep the plug-in instead"),
    ),
    url="https://github.com/microsoft/tensorflow-directml-plugin",
    needs_gpu=False,
    finding="host.packages.directml",
)


def find(installed: TensorflowFacts, failed: FailedImport | None) -> Matches:
    for plugin in foreign_directml(installed):
        yield Match(
            evidence=(
                f"{plugin.name} {plugin.version}",
                *shown(installed),
                *installed.plugins,
                *([f"import tensorflow: {failed.error}"] if failed else []),
            ),
            figures={
                "plugin": plugin.name,
                "version": installed.distributions[0].version if installed.distributions else "of unknown version",
            },
        )
