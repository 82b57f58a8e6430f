"""pip finds no wheel of a package for this Python, and cannot compile it

A release of a package has wheels for the Pythons of its time. For another Python pip takes the sources, which need a
compiler and more. Either an old release is pinned and Python is newer, or the release is new and Python, or pip, is too
old for its wheels.
"""

from __future__ import annotations

import re

from gpudiag.cause import Cause, Match, Matches, Program
from gpudiag.fix import Action, Kind, Role, install, note, run
from gpudiag.knowledge.log_lines import text
from gpudiag.knowledge.messages.installing import NO_WHEEL_TO_BUILD
from gpudiag.knowledge.origin import Origin
from gpudiag.knowledge.requirements import canonical
from gpudiag.model.diagnosis import Confidence

CAUSE = Cause(
    title="pip finds no wheel of {package} for {python}, and cannot compile it",
    fix=(
        run("conda create -n tf python=3.11; conda activate tf", kind=Kind.NEW_ENVIRONMENT),
        install("--upgrade", "pip", "setuptools", "wheel", python="python"),
        run("sudo apt install build-essential python3-dev", kind=Kind.INSTALL_AS_ROOT),
    ),
    url="https://packaging.python.org/en/latest/discussions/package-formats/",
    needs_gpu=False,
    unless={
        "musl_system": "pip builds from source because there are no wheels for musl",
    },
)
_NAMES = re.compile(
    r"Failed building wheel for (?P<failed>[A-Za-z][\w.-]{0,80})|"
    r"Building wheel for (?P<building>[A-Za-z][\w.-]{0,80}) \([\w.]{1,20}\)"
    r"(?:: finished with status 'error'| did not run| ?\.\.\. ?error)|"
    r"Could not build wheels for (?P<could>[A-Za-z][\w.-]{0,80})|"
    r"Failed to build (?:installable wheels for )?(?P<to>[A-Za-z][\w.-]{0,80})$"
)
_COMPILER = re.compile(
    r"Microsoft Visual C\+\+|unable to execute|Python\.h|command '?\S*(?:gcc|cl\.exe|clang)'? failed"
)
_RELEASE = re.compile(
    r"\b(?P<name>[A-Za-z][\w.-]{0,80})==(?P<pinned>\d[\w.]{0,30})|"
    r"\b(?P<file>[A-Za-z][A-Za-z_]{0,80})-(?P<archive>\d[\w.]{0,30})\.(?:tar\.gz|zip)|"
    r"'version': '(?P<own>\d[\w.]{0,30})'"
)
_LAST_COMMON = 11
"""The minor version of the Python to suggest: 3.11 has wheels of most packages, old and new."""
_LAST_OF_MOST = 9
"""The minor version to suggest if neither Python nor date is known and the release is named, usually an old one."""
_OLD = 8
"""The minor version up to which packages no longer support a Python: there, a newer one helps."""


def find(program: Program, origin: Origin) -> Matches:
    for line in program.lines:
        if (found := _NAMES.search(line)) is not None:
            package = next(filter(None, found.groups()))
            release = _release(package, program.lines)
            yield Match(
                (text(line), *program.said(NO_WHEEL_TO_BUILD, most=1)),
                Confidence.LIKELY,
                {
                    "package": f"{package} {release}".strip(),
                    "python": f"Python {origin.python}" if origin.python else "this Python",
                },
                fix=_fix(package, release, origin, program.lines),
            )
            return


def _fix(package: str, release: str, origin: Origin, lines: tuple[str, ...]) -> tuple[Action, ...]:
    minor = int(origin.python.partition(".")[2]) if origin.python else _LAST_COMMON + 1
    older = min(minor - 1, _LAST_COMMON if origin.python or not release else _LAST_OF_MOST)
    new_pip = install(
        "--upgrade",
        "pip",
        "setuptools",
        "wheel",
        note="an old pip does not find newer wheels; then install again",
        python="python",
    )
    other = f"python=3.{older if minor > _OLD else _LAST_COMMON}"
    why = f"{package} {release} has wheels for the Pythons of its time" if release else "one that it has wheels for"
    another_python = run(
        f"conda create -n tf {other}; conda activate tf",
        f"{why}: an older Python for an old release",
        kind=Kind.NEW_ENVIRONMENT,
    )
    newer = install("--upgrade", package, note="or a newer release of it, without the pin", python="python")
    compile_it = (
        note(
            "to compile it: the Build Tools for Visual Studio with the C++ workload, "
            "https://visualstudio.microsoft.com/visual-cpp-build-tools/"
        )
        if origin.windows
        else run(
            f"conda install -c conda-forge {package}",
            "or compiled already; to compile it: sudo apt install build-essential python3-dev",
            kind=Kind.INSTALL,
            role=Role.ALTERNATIVE,
        )
    )
    needs = any(map(_COMPILER.search, lines))
    first, second = (
        (another_python, newer) if release or (origin.python and minor > _OLD) else (new_pip, another_python)
    )
    return first, second, compile_it if needs or first == another_python else newer


def _release(package: str, lines: tuple[str, ...]) -> str:
    """Return the release that pip builds, if the lines name it."""
    found = (match for line in lines for match in _RELEASE.finditer(line))
    ours = (match for match in found if match["own"] or canonical(match["name"] or match["file"]) == canonical(package))
    return next((our["pinned"] or our["archive"] or our["own"] for our in ours), "")
