"""parts of cuDNN cannot be loaded, or are of different releases

cuDNN 8 and 9 are several libraries, which the first one opens by name when they are needed. If a folder earlier in
the search path has parts of another release, or a part is missing there, the first convolution fails, often with
"Invalid handle" or an abort. The folder of cuDNN must be searched as a whole, and only one cuDNN.
"""

from __future__ import annotations

from gpudiag.cause import Cause, Match, Matches, Program
from gpudiag.causes.shared.advice import built_for
from gpudiag.causes.shared.libraries import without
from gpudiag.fix import Kind, check, install, note
from gpudiag.knowledge import sonames
from gpudiag.knowledge.messages.programs_and_drivers import CUDNN_PART, NO_ZLIB
from gpudiag.knowledge.messages.way import NO_LIBCUDA_LINK
from gpudiag.knowledge.origin import Origin
from gpudiag.model.diagnosis import Confidence
from gpudiag.model.facts import FileFault, LibraryFacts
from gpudiag.probes.host.libraries import CUDNN, PACKAGES

CAUSE = Cause(
    title="parts of cuDNN cannot be loaded, or are of different releases: {part}",
    fix=(
        install("--force-reinstall", "nvidia-cudnn-cu12"),
        check("ldconfig -p | grep libcudnn; echo $LD_LIBRARY_PATH", "remove the other cuDNN from the search path"),
    ),
    url="https://docs.nvidia.com/deeplearning/cudnn/latest/installation/overview.html",
    needs_gpu=False,
    unless={
        "cudnn_finds_no_libcuda": "the library that is missing is libcuda.so, not one of cuDNN",
    },
)


def find(libraries: LibraryFacts) -> Matches:
    cudnn = next((library for library in libraries.libraries if library.soname == CUDNN), None)
    if cudnn is None or cudnn.path is None or cudnn.error is not None:
        return
    package = PACKAGES["libcudnn"]
    damaged = [state for state in libraries.damaged if state.owner.startswith(f"{package} ")]
    absent = {owner: file for owner, file in libraries.incomplete.items() if owner.startswith(f"{package} ")}
    strays = [state for state in cudnn.files if state.fault is FileFault.OTHER_BUILD]
    parts = [*absent.values(), *(state.path for state in (*damaged, *strays))]
    if not parts:
        return
    entries = list(dict.fromkeys(state.place for state in strays))
    again = dict.fromkeys(owner.replace(" ", "==") for owner in (*absent, *(state.owner for state in damaged)))
    yield Match(
        evidence=(
            f"libcudnn.so.9 is {cudnn.path} (from {cudnn.source})",
            *(f"{owner} lacks {file}" for owner, file in absent.items()),
            *(state.sentence for state in (*damaged, *strays)),
        ),
        figures={"part": ", ".join(part.rpartition("/")[2] for part in parts)},
        fix=(
            without(libraries.search_path, entries) if strays else None,
            install("--force-reinstall", "--no-deps", "--no-cache-dir", *again) if again else None,
        ),
        about=(*parts, *entries),
        unfit=True,
    )


def find_in_log(program: Program, origin: Origin) -> Matches:
    if program.first(NO_LIBCUDA_LINK):
        return
    if zlib := program.said(NO_ZLIB):
        yield Match(
            zlib,
            figures={"part": "zlibwapi.dll is missing"},
            fix=(
                note(
                    "copy zlibwapi.dll (64 bit, https://www.winimage.com/zLibDll) to a folder of PATH, such as "
                    "CUDA's bin"
                ),
            ),
        )
    elif said := program.first(CUDNN_PART):
        part = said["part"] or said["any"] or said["version"] or said["symbol"]
        if behind := said["behind"]:
            stem = behind.partition(".")[0]
            yield Match(
                program.said(CUDNN_PART),
                Confidence.LIKELY,
                {"part": f"{part.rpartition('/')[2]} needs {behind}, which was not found"},
                fix=(
                    check(f"ldconfig -p | grep {stem}", f"put the folder that has {behind} on LD_LIBRARY_PATH"),
                    note(f"if it has {stem} with a number alone, make a link {behind} to it in a folder of your own"),
                ),
                about=(behind,),
            )
            return
        library = next(iter(sonames.named(part)), None)
        needs = built_for(origin)
        if library is not None and library.release not in ("", origin.generation.cudnn.partition(".")[0]):
            needs = library.of
        package, _ = library.requirement("11" if origin.is_before_12 else "12") if library is not None else ("", "")
        whole = (
            note(f"install the whole of {needs}: the folder bin of its archive on PATH", kind=Kind.INSTALL)
            if origin.windows
            else install(
                "--force-reinstall",
                package or "nvidia-cudnn-cu12",
                note="if cuDNN is of conda: conda install -c conda-forge --force-reinstall cudnn",
            )
        )
        look = (
            check("where cudnn*.dll", "remove every other folder with a cuDNN from PATH")
            if origin.windows
            else check(
                "ldconfig -p | grep libcudnn; echo $LD_LIBRARY_PATH", "remove the other cuDNN from the search path"
            )
        )
        yield Match(
            program.said(CUDNN_PART),
            Confidence.LIKELY,
            {"part": part.rpartition("/")[2]},
            fix=(whole, look),
        )
