"""conda does not find packages that it is asked to install

Conda lists the packages that it did not find. A file exported by conda on another system names builds, and packages
that only that system has. A package that is listed without a build is in none of the channels that conda searches, or
only in another version.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from gpudiag.cause import Cause, Match, Matches, Program
from gpudiag.fix import Kind, ask, install, note, run
from gpudiag.knowledge.log_lines import text
from gpudiag.knowledge.messages.installing import CONDA_NOT_SOLVED
from gpudiag.knowledge.origin import Origin
from gpudiag.model.diagnosis import Confidence

CAUSE = Cause(
    title="{what}",
    fix=(
        run("conda config --append channels conda-forge", kind=Kind.INSTALL),
        ask("conda search -c conda-forge NAME"),
        install("NAME"),
    ),
    url="https://docs.conda.io/projects/conda/en/latest/user-guide/tasks/manage-environments.html",
    needs_gpu=False,
)

_BEGINS = re.compile(r"ResolvePackageNotFound|PackagesNotFoundError|not available from current channels")
_ENDS = re.compile(r"Current channels|To search for|Traceback|^\S.*\$ ")
_SPEC = re.compile(
    r"^\s{0,8}[-*] {1,3}(?:[\w./-]{1,80}::)?(?P<name>[A-Za-z_][\w.-]{0,80})"
    r"(?:[ =<>!~]{1,3}(?P<version>[\w.*+!]{1,40})(?:[= ](?P<build>\w{1,60}))?)?\s{0,8}$"
)
_ONLY_ON = {
    "Linux": "_libgcc_mutex _openmp_mutex ld_impl_linux-64 libgcc-ng libgomp libstdcxx-ng libgfortran-ng libuuid dbus "
    "gst-plugins-base gstreamer readline ncurses libxcb",
    "Windows": "vc vs2015_runtime vs2015_win-64 wincertstore win_inet_pton pywin32 pywinpty winpty msys2-conda-epoch "
    "icc_rt console_shortcut menuinst ucrt",
    "macOS": "appnope libcxx libcxxabi libgfortran llvm-openmp python.app tensorflow-deps applaunchservices",
}


class Missing(NamedTuple):
    name: str
    version: str
    build: str

    @property
    def spec(self) -> str:
        return f"{self.name}={self.version}" if self.version else self.name


def find(program: Program, origin: Origin) -> Matches:
    missing = tuple(_missing(program.lines))
    if not missing:
        return
    of = max(_ONLY_ON, key=lambda system: _count(system, missing))
    here = "Windows" if origin.windows else "macOS" if origin.mac else ""
    built = [package for package in missing if package.build]
    if _count(of, missing) and of != here and (built or len(missing) > 1):
        what = f"the list of packages is of {of}: conda has no such builds for {here or 'this system'}"
    elif built and len(built) * 2 > len(missing):
        what = f"the list names builds, such as {built[0].spec}={built[0].build}, which conda has not, or not any more"
    else:
        yield _not_in_the_channels(missing[0], program)
        return
    yield Match(
        _said(program),
        Confidence.LIKELY,
        {"what": what},
        fix=(
            run(
                "conda env export --no-builds > environment.yml",
                "run it where the file was made; with --from-history it lists only what was requested",
                kind=Kind.INSTALL,
            ),
            note(
                f"or take the builds out of the file (NAME=VERSION=BUILD becomes NAME=VERSION), and what only {of} has"
            ),
            run(
                "conda env create -f environment.yml",
                "then create it again; or do it on a system of that kind, such as WSL",
                kind=Kind.INSTALL,
            ),
        ),
    )


def _not_in_the_channels(missing: Missing, program: Program) -> Match:
    pinned = f"{missing.name}=={missing.version}" if missing.version else missing.name
    return Match(
        _said(program),
        Confidence.LIKELY,
        {"what": f"the channels that conda looks in do not have {missing.spec} for this system"},
        fix=(
            run(
                "conda config --append channels conda-forge",
                'in an environment file, add "- conda-forge" below channels; then install again',
                kind=Kind.INSTALL,
            ),
            ask(f"conda search -c conda-forge {missing.name}", "shows the available versions: pin one of them"),
            install(pinned, note='if it is a Python package; in the file, put it below "- pip:"'),
        ),
    )


def _said(program: Program) -> tuple[str, ...]:
    return next(((text(line),) for line in program.lines if _BEGINS.search(line)), program.said(CONDA_NOT_SOLVED))


def _count(system: str, missing: tuple[Missing, ...]) -> int:
    only = set(_ONLY_ON[system].split())
    return sum(
        package.name in only or (system == "Windows" and package.name.startswith("m2w64-")) for package in missing
    )


def _missing(lines: tuple[str, ...]) -> list[Missing]:
    found: list[Missing] = []
    inside = False
    for line in lines:
        if _BEGINS.search(line):
            inside = True
        elif inside and _ENDS.search(line):
            inside = False
        elif inside and (spec := _SPEC.match(line)):
            found.append(Missing(spec["name"], spec["version"] or "", spec["build"] or ""))
    return found
