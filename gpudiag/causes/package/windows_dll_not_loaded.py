"""TensorFlow's library cannot be loaded on this Windows

"DLL load failed" names the module of Python and not the DLL that is missing. Most often it is the runtime of Visual C++
2015-2022 that is missing or too old ("initialization routine failed": too old), next a Python or a TensorFlow that do
not fit each other, a 32-bit Python, or a processor without AVX. TensorFlow up to 1.15 names CUDA's DLLs itself.
"""

from __future__ import annotations

from gpudiag.cause import Cause, Match, Matches, Program
from gpudiag.causes.shared.advice import libraries, unfit
from gpudiag.fix import Action, Kind, conda_environment, install, run
from gpudiag.knowledge.messages.python_packages import DLL_NOT_FOUND, DLL_NOT_LOADED
from gpudiag.knowledge.origin import Origin
from gpudiag.knowledge.releases import ONE_PACKAGE, numbers
from gpudiag.knowledge.requirements import wheels
from gpudiag.model.diagnosis import Confidence

CAUSE = Cause(
    title="TensorFlow's library cannot be loaded on this Windows: {what}",
    fix=(
        run(
            "winget install --id Microsoft.VCRedist.2015+.x64",
            "or https://aka.ms/vs/17/release/vc_redist.x64.exe",
            kind=Kind.INSTALL,
        ),
        install(
            "--force-reinstall", "--no-cache-dir", "tensorflow", note="then; in a fresh environment of a 64-bit Python"
        ),
    ),
    url="https://www.tensorflow.org/install/errors",
    needs_gpu=False,
)
_OF_CUDA = ("cu", "nv")


def find(program: Program, origin: Origin) -> Matches:
    if named := program.first(DLL_NOT_FOUND):
        of_cuda = named["dll"].lower().startswith(_OF_CUDA)
        yield Match(
            program.said(DLL_NOT_FOUND),
            figures={"what": f"{named['dll']} is not found"},
            fix=libraries(origin) if of_cuda and not named["dll"].startswith("nvcuda") else (),
        )
        return
    loaded = [event for event in program.all(DLL_NOT_LOADED) if event["module"].startswith(("_pywrap", "pywrap"))]
    unnamed = program.all(DLL_NOT_LOADED) if any("tensorflow" in line for line in program.lines) else []
    if not (loaded or unnamed):
        return
    what, fix = _stated(origin)
    yield Match(
        program.said(DLL_NOT_LOADED),
        Confidence.LIKELY,
        {"what": what or "most often the Visual C++ runtime is missing or too old"},
        fix=(*fix, *CAUSE.fix),
    )


def _stated(origin: Origin) -> tuple[str, tuple[Action, ...]]:
    """Return the fault that the stated versions show, and the fix; nothing if they fit, or are not stated."""
    release = origin.named
    if release is None:
        return "", ()
    span = wheels(release, "windows")
    if origin.python and span and not numbers(span[0]) <= numbers(origin.python) <= numbers(span[1]):
        return (
            f"TensorFlow {release} has wheels for Python {span[0]} to {span[1]}, and it is {origin.python}",
            (conda_environment(f"tensorflow=={release}.*", python=span[1]),),
        )
    if release < ONE_PACKAGE and (wrong := unfit(origin)):  # it is linked with CUDA's libraries
        return wrong[1], libraries(origin)
    return "", ()
