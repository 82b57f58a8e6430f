"""the listed packages do not fit together

The packages are those that pip or conda list beside the log. Each release of TensorFlow takes ranges of others (numpy,
protobuf, keras), and some packages (tensorflow-text, tensorflow-metal, tensorflow-addons) were made for one release
each. pip does not look at what is installed already, so that a later installation breaks an earlier one.
"""

from __future__ import annotations

from packaging.version import InvalidVersion
from packaging.version import Version as Exact

from gpudiag.cause import Cause, LogAlone, Match, Matches
from gpudiag.fix import Kind, ask, install, run
from gpudiag.knowledge.message import Worth
from gpudiag.knowledge.messages.python_packages import FAMILY
from gpudiag.knowledge.origin import Origin
from gpudiag.knowledge.releases import Version
from gpudiag.knowledge.requirements import TENSORFLOWS, companion, has_companion, specifiers
from gpudiag.knowledge.stated import Statement
from gpudiag.knowledge.suspicion import suspicion
from gpudiag.knowledge.tensorflow_releases import NEEDS
from gpudiag.model.diagnosis import Confidence
from gpudiag.record import Record

CAUSE = Cause(
    title="{what}",
    fix=(install("numpy<2"), ask("python -m pip check", "must report no broken requirements")),
    url="https://pip.pypa.io/en/stable/cli/pip_check/",
    needs_gpu=False,
)


class _Unfit(Record):
    name: str
    has: Statement
    takes: str
    """The versions of the distribution that fit."""


def find(program: LogAlone, origin: Origin) -> Matches:
    listed = origin.stated.packages
    own = next((name for name in sorted(TENSORFLOWS, key=len) if name in listed), "")
    release = _release(listed[own].value) if own else None
    if release is None or _is_explained(program):
        return
    wrong = [
        _Unfit(name, has, takes)
        for name, has in listed.items()
        if (takes := _takes(name, release)) and not _is_in(has.value, takes)
    ]
    text = "\n".join(program.lines).lower()
    named = [
        mismatch for mismatch in wrong if f"/{mismatch.name.replace('-', '_')}/" in text or f"'{mismatch.name}" in text
    ]
    if not wrong:
        return
    chosen = (named or wrong)[:3]
    what = " and ".join(
        f"{mismatch.name} {mismatch.has.value} is installed, and it takes {mismatch.takes}" for mismatch in chosen
    )
    yield Match(
        (listed[own].line, *(mismatch.has.line for mismatch in chosen)),
        Confidence.LIKELY if named else Confidence.POSSIBLE,
        {"what": f"packages do not fit {own} {listed[own].value}: {what}"},
        fix=(
            run(
                f"pip install {' '.join(repr(mismatch.name + _written(mismatch.takes)) for mismatch in chosen)}",
                kind=Kind.INSTALL,
            ),
            ask("python -m pip check", "must report no broken requirements"),
        ),
    )


def _takes(name: str, release: Version) -> str:
    """Return the versions of a distribution that fit a release of TensorFlow; "" if nothing is known of it."""
    if has_companion(name):
        return companion(name, release)
    return NEEDS.get((release.major, release.minor), {}).get(name, "")


def _written(takes: str) -> str:
    return takes if takes[0] in "<>=!~" else f"=={takes}"


def _is_in(version: str, takes: str) -> bool:
    try:
        fits = specifiers(_written(takes))
        return fits is None or fits.contains(Exact(version), prereleases=True)
    except InvalidVersion:
        return True


def _release(version: str) -> Version | None:
    parts = version.split(".")
    known = len(parts) > 1 and parts[0].isdecimal() and parts[1].isdecimal()
    return Version(int(parts[0]), int(parts[1])) if known else None


def _is_explained(program: LogAlone) -> bool:
    """Return whether a line names a fault that has nothing to do with packages, or none looks like a fault.

    The list of packages is no evidence then.
    """
    faults = [event.message for event in program.events if event.message.worth is Worth.FAULT]
    others = [message for message in faults if message not in FAMILY.messages and not message.symptom]
    return bool(others) or not (faults or suspicion(program.lines).unexplained)
