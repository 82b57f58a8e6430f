"""a pip installation was interrupted, and libraries lack files or cannot be opened

While pip replaces a package, it gives the folders of the old one names that begin with "~". If it is stopped then, if
the disk is full, or if a running program holds the files, they stay, and the new package lacks files although pip lists
it and says "Requirement already satisfied". pip warns only of an "invalid distribution".
"""

from __future__ import annotations

from pathlib import PurePath

from gpudiag.cause import Cause, Match, Matches
from gpudiag.fix import Kind, install, run
from gpudiag.model.diagnosis import Stage
from gpudiag.model.facts import Facts, LibraryFacts, TensorflowFacts
from gpudiag.probes.host.libraries import unopened

CAUSE = Cause(
    title="a pip installation was interrupted: {left} is left of a package, and {lacking}",
    unfit=True,
    fix=(
        run("rm -r {folders}", kind=Kind.REMOVE),
        install("--force-reinstall", "--no-deps", "nvidia-cudnn-cu12==9.3.0.75"),
    ),
    url="https://github.com/NVIDIA/Stable-Diffusion-WebUI-TensorRT/issues/12",
    views=("host.libraries.unopened",),
)
_OURS = ("vidia", "ensorflow")
"""Leftovers of TensorFlow and NVIDIA's packages: pip has replaced the first letter by "~"."""


def find(tensorflow: TensorflowFacts, libraries: LibraryFacts, facts: Facts) -> Matches:
    left = [path for path in tensorflow.half_removed if PurePath(path).name.lstrip("~").startswith(_OURS)]
    lacking = [library.soname for library in unopened(facts)]
    if not left or not (libraries.incomplete or lacking):
        return
    packages = [owner.replace(" ", "==") for owner in libraries.incomplete]
    yield Match(
        evidence=(
            *left,
            *(f"{owner} lacks {file}" for owner, file in libraries.incomplete.items()),
            *(f"{name} cannot be opened" for name in lacking),
        ),
        figures={
            "left": PurePath(left[0]).name,
            "lacking": f"{next(iter(libraries.incomplete))} lacks files"
            if libraries.incomplete
            else f"{', '.join(lacking)} cannot be opened",
            "folders": " ".join(left),
        },
        fix=(
            CAUSE.fix[0],
            run(f"pip install --force-reinstall --no-deps {' '.join(packages)}", kind=Kind.INSTALL)
            if packages
            else install("--force-reinstall", "tensorflow[and-cuda]"),
        ),
        about=tuple(lacking),
        stage=Stage.LIBRARIES if lacking else Stage.CONFIGURATION,  # what lacks may be a library that nobody opens
    )
