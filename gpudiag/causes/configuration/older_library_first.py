"""LD_LIBRARY_PATH puts older libraries before this environment's own packages

LD_LIBRARY_PATH comes before the folders of NVIDIA's packages. A shell profile, a module or a base image that sets it
makes TensorFlow load the CUDA of the system, which may lack functions that TensorFlow was built with: that shows late,
in a crash or an error of a single operation.
"""

from __future__ import annotations

from pathlib import PurePath

from gpudiag.cause import Cause, Match, Matches
from gpudiag.causes.shared.libraries import LOADER, put_first
from gpudiag.fix import Kind, note, prepend
from gpudiag.model.facts import Facts
from gpudiag.model.report import Severity
from gpudiag.probes.host.libraries import cudnn_too_old, older_first

CAUSE = Cause(
    title="LD_LIBRARY_PATH puts older copies ({names}, from {folders}) before this environment's own packages",
    severity=Severity.WARNING,
    fix=(
        prepend("LD_LIBRARY_PATH", "{good}"),
        note("or take {folders} out of LD_LIBRARY_PATH", kind=Kind.SET_VARIABLE),
    ),
    url=LOADER,
    finding="host.libraries.older_first",
)


def find(facts: Facts) -> Matches:
    old = cudnn_too_old(facts)
    pairs = [(library, copy) for library, copy in older_first(facts) if library != old]
    if not pairs:
        return
    folders = list(dict.fromkeys(str(PurePath(library.path or "").parent) for library, _ in pairs))
    good = list(dict.fromkeys(str(PurePath(copy.path).parent) for _, copy in pairs))
    first = put_first(facts, good)
    yield Match(
        evidence=tuple(
            f"{library.soname}: {library.path} is {library.version}, and {copy.owner} comes after it"
            for library, copy in pairs
        ),
        figures={
            "names": ", ".join(library.soname for library, _ in pairs),
            "folders": ", ".join(folders),
            "good": ":".join(good),
        },
        about=(*(library.soname for library, _ in pairs), *folders),
        fix=(first, CAUSE.fix[1]),
        tried=first,
    )
