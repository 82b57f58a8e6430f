"""the GPU is newer than the CUDA that this TensorFlow was built for

The GPU is listed, and what starts takes long: the driver compiles what it finds as PTX. Then cuBLAS or cuDNN fails, a
kernel is refused (CUDA_ERROR_INVALID_PTX) or wrong numbers come, because the libraries of that CUDA have no code for a
generation that came later. The errors look like a lack of memory. Neither a driver nor a newer CUDA beside it helps:
TensorFlow opens the libraries of the CUDA that it was built for.
"""

from __future__ import annotations

import re

from gpudiag.cause import Cause, LogAlone, Match, Matches
from gpudiag.causes.shared.advice import newer_release
from gpudiag.fix import install
from gpudiag.knowledge.log_lines import text
from gpudiag.knowledge.message import Worth
from gpudiag.knowledge.messages.code import KERNEL_NOT_COMPILED, NO_CODE_FOR_GPU, PTX_REFUSED, STRAY_ACCESS
from gpudiag.knowledge.messages.launchers import ENDED_BY_SIGNAL
from gpudiag.knowledge.messages.memory import NO_HANDLE
from gpudiag.knowledge.messages.programs_and_drivers import BLAS_CALL_FAILED, CUDNN_CALL_FAILED, CUDNN_NOT_THERE
from gpudiag.knowledge.messages.way import LIBRARY_OPENED
from gpudiag.knowledge.origin import Origin
from gpudiag.knowledge.releases import NEW_IN, knows, numbers
from gpudiag.model.diagnosis import Confidence

CAUSE = Cause(
    title="{card} (compute capability {capability}) is newer than CUDA {cuda}, {release}",
    fix=(
        install("tensorflow[and-cuda]", note="installs a TensorFlow that was built for a CUDA which supports the GPU"),
    ),
    url="https://docs.nvidia.com/deploy/cuda-compatibility/",
    needs_gpu=False,
    unless={
        "cudnn_too_old": "the log names the version of cuDNN that is too old",
        "gpu_newer_than_wheel": "the facts of this machine say the same",
        "driver_too_old": "the driver fails before any kernel is compiled",
        "library_and_module_differ": "the driver fails before any kernel is compiled",
    },
)
_STRICT = (11,)
_AMPERE = (8,)
_OF_LIBRARIES = re.compile(r"(?i)cudnn|cublas|\bblas|rnn|\bdnn\b|convolution|launch|CUDA_ERROR")
_RUNTIME_BEFORE_11 = re.compile(r"(?:libcudart\.so\.|cudart64_)(\d|10)\.?(\d)(?:\.dll)?$")
_CRASH = re.compile(
    r"(?i)\s*(?:fatal python error: )?(?:segmentation fault|aborted|floating point exception)\b"
    r"|(?=.*\bgpu)(?=.*\bloss)(?:.*\W)?nan\b|.*\bloss: {0,3}nan\b"
)


def find(program: LogAlone, origin: Origin) -> Matches:
    said = program.said(
        BLAS_CALL_FAILED,
        CUDNN_CALL_FAILED,
        CUDNN_NOT_THERE,
        NO_HANDLE,
        PTX_REFUSED,
        KERNEL_NOT_COMPILED,
        NO_CODE_FOR_GPU,
        STRAY_ACCESS,
    )
    if not origin.stated.cards or origin.is_of_another:
        return
    card, line = origin.stated.cards[0]
    cuda, release = _libraries(origin)
    first = numbers(NEW_IN.get(card.capability, "0"))
    # CUDA 10 and older start on a newer GPU, and whatever comes first fails.
    strict = numbers(cuda) < _STRICT
    at_work = [event for event in program.events if event.message.worth is Worth.FAULT] if strict else []
    said = said or tuple(dict.fromkeys(text(event.line) for event in at_work if _OF_LIBRARIES.search(event.line)))[:2]
    named = any(event.message.worth is Worth.FAULT and event.message is not ENDED_BY_SIGNAL for event in program.events)
    crashed = () if said or named else tuple(line.strip() for line in program.lines if _CRASH.match(line))[:1]
    # Of a later minor number the code of the major one runs; cuBLAS and cuDNN of before CUDA 10 do not always.
    exact = strict and numbers(cuda) < first and program.first(BLAS_CALL_FAILED, NO_HANDLE) is not None
    if not (said or crashed or named) and numbers(card.capability) >= _AMPERE:
        # A build of conda opens an older CUDA than that of the release: it starts, and the first operation hangs.
        crashed, cuda, release = _opened(program, cuda, release)
    if (said and (exact or not knows(cuda, card.capability))) or (crashed and numbers(cuda) < first):
        yield Match(
            (*said, *crashed, line),
            Confidence.LIKELY if said else Confidence.POSSIBLE,
            {"card": card.name, "capability": card.capability, "cuda": cuda, "release": release},
            fix=newer_release(origin, card.capability),
        )


def _opened(program: LogAlone, cuda: str, release: str) -> tuple[tuple[str, ...], str, str]:
    """Return the line that names an opened CUDA older than 11, that CUDA, and whose it is, in words."""
    for event in program.all(LIBRARY_OPENED):
        if found := _RUNTIME_BEFORE_11.match(event["library"]):
            number = f"{found[1]}.{found[2]}"
            return (text(event.line),), number, "which this build of TensorFlow opens"
    return (), cuda, release


def _libraries(origin: Origin) -> tuple[str, str]:
    """Return the CUDA version of the libraries, and their origin: the release, or an image with an older CUDA."""
    made, stated = origin.generation.cuda, origin.stated.cuda
    if stated and numbers(stated.value) < numbers(made):
        return stated.value, "which is there, as stated"
    releases = str(origin.generation) if origin.is_one else f"TensorFlow up to {origin.releases[1]}"
    return made, f"for which {releases} was built"
