"""TensorFlow cannot be imported, because of a plug-in

`import tensorflow` loads every library in the folder tensorflow-plugins of site-packages. One that was made for
another release of TensorFlow, or that its distribution left behind, ends the import in a NotFoundError.
"""

from __future__ import annotations

from shlex import quote

from gpudiag.cause import TRACE, Cause, Match, Matches, Rows
from gpudiag.causes.shared.packages import FailedImport
from gpudiag.fix import Kind, run
from gpudiag.model.facts import LibraryFacts, TensorflowFacts

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


def find(rows: Rows, failed: FailedImport, installed: TensorflowFacts, libraries: LibraryFacts | None) -> Matches:
    error = failed.error
    told = [error, *(line for row in rows if row.probe == TRACE for line in row.log)]
    lacks = {} if libraries is None else libraries.plugins_lack
    lacking = next((name for name in lacks if any(f"{name}: cannot open" in line for line in told)), "")
    named = (file for file in installed.plugins if any(file in line for line in told))
    guilty = next(named, lacks.get(lacking))
    if guilty is None:
        return
    owners = " ".join(distribution.name for distribution in installed.plugin_distributions)
    yield Match(
        evidence=(
            f"import tensorflow: {error}",
            f"plug-in {guilty}{f' needs {lacking}, which is not found' if lacking else ''}",
            *owners.split(),
        ),
        figures={"file": guilty},
        fix=(
            run(f"pip uninstall -y {owners}", kind=Kind.REMOVE)
            if owners
            else run(f"rm {quote(guilty)}", kind=Kind.REMOVE),
        ),
    )
