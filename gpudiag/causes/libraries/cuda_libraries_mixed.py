"""libraries of different CUDA releases are loaded together: one asks another for a function that it does not have

CUDA's libraries call each other and must be of one release. LD_LIBRARY_PATH comes before the folders of NVIDIA's
packages: a toolkit's folder in it, a module of a cluster, or a package of another framework supplies an older one.
"""

from __future__ import annotations

from gpudiag.cause import Cause, Match, Matches, Program
from gpudiag.fix import check, install, unset
from gpudiag.knowledge.messages.programs_and_drivers import LIBRARIES_MIXED
from gpudiag.model.diagnosis import Confidence

CAUSE = Cause(
    title="libraries of different CUDA releases are loaded together: {user} asks {library} for {symbol}, which it "
    "does not have",
    fix=(
        unset(
            "LD_LIBRARY_PATH", note="do this for this program, or remove the folder with the older {library} from it"
        ),
        install("--force-reinstall", "tensorflow[and-cuda]", note="installs all of them in one release"),
        check("ldd {user} | grep -i -e cu -e nv", "shows where each is loaded from"),
    ),
    url="https://man7.org/linux/man-pages/man8/ld.so.8.html",
    needs_gpu=False,
)


def find(program: Program) -> Matches:
    for said in program.all(LIBRARIES_MIXED):
        if "SmCountTarget" in said.line:
            continue
        symbol = said["symbol"] or said["lacked"] or said["name"]
        library = said["library"] or said["of"] or "another library"
        if not library.startswith(("libcu", "libnv", "another")):
            continue
        user = said["user"] or said["by"]
        yield Match(
            program.said(LIBRARIES_MIXED), Confidence.LIKELY, {"user": user, "library": library, "symbol": symbol}
        )
        return
