"""the program that wrote the log needs a library of another CUDA release

TensorFlow 2.18 to 2.21 opens libraries of CUDA 12 and cuDNN 9. A program that asks for libcudart.so.11.0 or a library
of cuDNN 8 is an older TensorFlow (2.17 and before: cuDNN 8; 2.14 and before: CUDA 11), or an extension, or another
framework, that was built for it. A link of the new library under the old name does not help: the functions differ.
"""

from __future__ import annotations

from gpudiag.cause import Cause, Match, Matches, Program
from gpudiag.fix import check, install
from gpudiag.knowledge.log_lines import Log, text
from gpudiag.knowledge.messages.notices import OPTIONAL_SYMBOL
from gpudiag.knowledge.messages.way import LIBRARY_ASKED_FOR
from gpudiag.knowledge.origin import Origin
from gpudiag.knowledge.releases import GENERATIONS
from gpudiag.model.diagnosis import Confidence
from gpudiag.model.report import Severity

CAUSE = Cause(
    title="the program that wrote the log needs {asked}, which belongs to another release of {library}",
    severity=Severity.WARNING,
    fix=(
        check(
            "pip list | grep -i -e tensorflow -e torch -e jax -e nvidia",
            "run it with the program's Python: shows what needs the library",
        ),
        install(
            "--upgrade", "tensorflow[and-cuda]", note="brings {ours}; upgrade the extension to a release for it as well"
        ),
    ),
    url="https://www.tensorflow.org/install/source#gpu",
    needs_gpu=False,
    unless={
        "cuda_libraries_not_found": "the library asked for is TensorFlow's own",
        "cudnn_finds_no_libcuda": "the library asked for is libcuda.so",
        "cudnn_incomplete": "the library asked for is cuDNN's own",
        "profiler_library_missing": "the library asked for is the profiler's",
    },
)
_OURS = {
    "libcublas": "12",
    "libcublasLt": "12",
    "libcudart": "12",
    "libcudnn": "9",
    "libcufft": "11",
    "libcurand": "10",
    "libcusolver": "11",
    "libcusparse": "12",
    "libnvrtc": "12",
}
"""For each library, the version in its name in CUDA 12, for which TensorFlow 2.18 to 2.21 is built; cuDNN has version
9."""


def find(program: Program, origin: Origin) -> Matches:
    if origin.releases[1] < GENERATIONS[-1].first:
        return  # an older TensorFlow, which asks for its own
    for asked in program.all(LIBRARY_ASKED_FOR):
        name = asked["library"].partition("_")[0]
        if name not in _OURS or asked["version"].partition(".")[0] == _OURS[name]:
            continue
        if Log((asked.line,)).first(OPTIONAL_SYMBOL):
            continue
        library = "cuDNN" if name == "libcudnn" else "CUDA"
        yield Match(
            evidence=(text(asked.line),),
            confidence=Confidence.LIKELY,
            figures={
                "asked": f"{asked['library']}.so.{asked['version']}",
                "ours": f"{name}.so.{_OURS[name]}",
                "library": library,
            },
        )
        return
