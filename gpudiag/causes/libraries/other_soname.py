"""a library is really another one: a link made by hand, or a renamed file

Forums advise to satisfy a missing library by a link from another release: `ln -s libcusolver.so.12
libcusolver.so.11`. The number in the name is the promise of an interface: TensorFlow opens the file, and then finds
functions missing or with other arguments. That ends in a crash, or in wrong results.
"""

from __future__ import annotations

from shlex import quote

from gpudiag.cause import Cause, Match, Matches
from gpudiag.fix import Kind, install, run
from gpudiag.model.diagnosis import Confidence
from gpudiag.model.facts import Facts
from gpudiag.model.report import Severity
from gpudiag.probes.host.libraries import is_another_release, requirement, with_other_soname

CAUSE = Cause(
    title="{path} is really {own}: a link made by hand, or a renamed file",
    severity=Severity.WARNING,
    fix=(
        run(
            "rm /home/someone/venv/lib/python3.11/site-packages/nvidia/cusolver/lib/libcusolver.so.11", kind=Kind.REMOVE
        ),
        install("{requirement}"),
    ),
    url="https://tldp.org/HOWTO/Program-Library-HOWTO/shared-libraries.html",
    finding="host.libraries.other_soname",
)


def find(facts: Facts) -> Matches:
    for library in with_other_soname(facts):
        link = f", a link to {library.file}" if library.file != library.path else ""
        path = quote(library.path or library.soname)
        keep = run(f"mv {path} {path}.away", "do this unless the file passes all calls on to the right one")
        yield Match(
            evidence=(f"{library.path}{link}: DT_SONAME is {library.own_soname}",),
            # A library that passes calls on to the right one has its own name, too.
            confidence=Confidence.PROVED if is_another_release(library) else Confidence.LIKELY,
            figures={
                "library": library.soname,
                "path": library.path,
                "own": library.own_soname,
                "requirement": quote(requirement(facts, library.soname)),
            },
            fix=(run(f"rm {path}", kind=Kind.REMOVE) if is_another_release(library) else keep, CAUSE.fix[1]),
        )
