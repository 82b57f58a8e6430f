"""a library cannot be opened

TensorFlow opens seven CUDA libraries when it first looks for GPUs, and uses no GPU unless all of them open. Other
causes say why this one does not open.
"""

from __future__ import annotations

from gpudiag.cause import Cause, Match, Matches
from gpudiag.fix import Kind, note
from gpudiag.model.facts import Facts
from gpudiag.probes.host.libraries import unopened

CAUSE = Cause(
    title="{library} cannot be opened: {error}",
    fix=(
        note(
            "gpudiag found no file of that name that opens: install TensorFlow's CUDA libraries, as in "
            "tensorflow[and-cuda]",
            kind=Kind.INSTALL,
        ),
    ),
    url="https://www.tensorflow.org/install/pip",
    finding="host.libraries.unopened",
    row_only=True,
)


def find(facts: Facts) -> Matches:
    for library in unopened(facts):
        yield Match(
            evidence=(f"{library.soname}: {library.error}",),
            figures={"library": library.soname, "error": library.error},
        )
