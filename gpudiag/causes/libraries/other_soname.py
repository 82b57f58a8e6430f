"""{path} is really {own}: a link made by hand, or a renamed file

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
    for one in with_other_soname(facts):
        link = f", a link to {one.file}" if one.file != one.path else ""
        path = quote(one.path or one.soname)
        keep = run(f"mv {path} {path}.away", "unless it passes all calls on to the right one")
        yield Match(
            evidence=(f"{one.path}{link}: DT_SONAME is {one.own_soname}",),
            # A library that passes calls on to the right one has its own name, too.
            confidence=Confidence.PROVED if is_another_release(one) else Confidence.LIKELY,
            figures={
                "library": one.soname,
                "path": one.path,
                "own": one.own_soname,
                "requirement": requirement(facts, one.soname),
            },
            fix=(run(f"rm {path}", kind=Kind.REMOVE) if is_another_release(one) else keep, CAUSE.fix[1]),
        )
