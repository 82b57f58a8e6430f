"""TensorFlow cannot be imported, because of a plug-in

`import tensorflow` loads every library in the folder tensorflow-plugins of site-packages. One that was made for
another release of TensorFlow, or that its distribution left behind, ends the import in a NotFoundError.
"""

from __future__ import annotations

from shlex import quote

from gpudiag.cause import TRACE, Cause, Match, Matches, Rows
from gpudiag.causes.shared.packages import FailedImport
from gpudiag.fix import Kind, run
from gpudiag.model.facts import TensorflowFacts

CAUSE = Cause(
    title="TensorFlow cannot be imported, because of the plug-in {file}",
    fix=(
        run(
            "rm /home/someone/venv/lib/python3.11/site-packages/tensorflow-plugins/libtfdml_plugin.so", kind=Kind.REMOVE
        ),
    ),
    url="https://github.com/tensorflow/community/blob/master/rfcs/20200624-pluggable-device-for-tensorflow.md",
    needs_gpu=False,
)


def find(rows: Rows, failed: FailedImport, installed: TensorflowFacts) -> Matches:
    error = failed.error
    told = [error, *(line for row in rows if row.probe == TRACE for line in row.log)]
    guilty = next((file for file in installed.plugins if any(file in line for line in told)), None)
    if guilty is None:
        return
    owners = " ".join(distribution.name for distribution in installed.plugin_distributions)
    yield Match(
        evidence=(f"import tensorflow: {error}", f"plug-in {guilty}", *(owners.split())),
        figures={"file": guilty},
        fix=(
            run(f"pip uninstall -y {owners}", kind=Kind.REMOVE)
            if owners
            else run(f"rm {quote(guilty)}", kind=Kind.REMOVE),
        ),
    )
