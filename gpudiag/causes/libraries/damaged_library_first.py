"""LD_LIBRARY_PATH puts a library that cannot be opened before a good copy

The loader takes the first file of the right name that it finds, and LD_LIBRARY_PATH comes before all else. It skips a
file for another processor. If a file is damaged or empty, or lacks a library that it needs, the loader stops there and
never reaches the good one. A copy that was cut short or a half-removed toolkit is enough. So is a folder of that name:
Docker makes one if it is to mount a file that the host does not have. TensorFlow's log says that the library is
missing, or names none at all.
"""

from __future__ import annotations

from pathlib import PurePath

from gpudiag.cause import Cause, Gpus, Match, Matches
from gpudiag.causes.shared.files import shown
from gpudiag.causes.shared.libraries import COMPUTE, LOADER, NVML, seen, taken_away
from gpudiag.fix import unset
from gpudiag.model.diagnosis import Stage
from gpudiag.model.facts import Facts, LibraryFacts
from gpudiag.probes.host.libraries import OPTIONAL, PROFILER, RUNTIME

CAUSE = Cause(
    title="LD_LIBRARY_PATH puts {files}, which cannot be opened, before the good {good}",
    unfit=True,
    fix=(unset("LD_LIBRARY_PATH"),),
    url=LOADER,
    views=(
        "host.driver.no_libcuda",
        "host.driver.no_nvml",
        "host.libraries.unopened",
    ),
)


def find(facts: Facts, libraries: LibraryFacts, gpus: Gpus) -> Matches:
    found = [library for library in libraries.libraries if library.instead is not None]
    if not found:
        return
    damaged = list(dict.fromkeys(folder for library in found for folder in library.damaged_folders))
    good = list(dict.fromkeys(str(PurePath(library.instead or "").parent) for library in found))
    without = taken_away(facts, damaged, good)
    yield Match(
        evidence=(
            *map(seen, found),
            *shown(found),
            *(f"{file} opens" for file in dict.fromkeys(library.instead for library in found)),
        ),
        figures={
            "files": ", ".join(dict.fromkeys(file for library in found for file in library.damaged)),
            "good": ", ".join(dict.fromkeys(library.instead or "" for library in found)),
        },
        fix=(without,),
        about=(*(library.soname for library in found), *damaged),
        tried=without,
        stage=_stage([library.soname for library in found]),
        unfit=None
        if {library.soname for library in found} - {*(OPTIONAL if len(gpus) < 2 else (PROFILER,))}
        else False,
    )


_STAGES = {RUNTIME: Stage.RUNTIME_LIBRARY, COMPUTE: Stage.DRIVER_LIBRARY, NVML: Stage.NVML}
"""The stage that a library breaks, if it differs from that of other libraries; the earliest first."""


def _stage(sonames: list[str]) -> Stage:
    """Return the first stage that these libraries break; libraries that are opened only on use break none."""
    later = Stage.CONFIGURATION if set(sonames) <= set(OPTIONAL) else Stage.LIBRARIES
    return next((stage for soname, stage in _STAGES.items() if soname in sonames), later)
