"""Shared by causes: a log of a machine that was never meant to have a GPU."""

from __future__ import annotations

import re

from gpudiag.knowledge.log import recognised
from gpudiag.knowledge.log_lines import Log
from gpudiag.knowledge.message import Worth
from gpudiag.knowledge.messages.misleading import CUINIT_303, LIBRARIES_ABOVE, NO_CUDA_DRIVERS
from gpudiag.knowledge.messages.owners import OF_OTHER_GPUS
from gpudiag.knowledge.messages.way import DRIVER_LIBRARY_NOT_OPENED, LIBRARY_NOT_OPENED, LIBRARY_OPENED
from gpudiag.knowledge.origin import Origin
from gpudiag.knowledge.relevance import LOGGED
from gpudiag.text import one_line

RUNTIME = ("libcudart", "cudart")
"""What the file names of the CUDA runtime begin with, on Linux and Windows."""
MEANT_FOR_A_GPU = re.compile(
    r"LD_LIBRARY_PATH: \S*(?:cuda-\d|nvidia|/wsl/lib)|The GPU version of TensorFlow|^\s*(?:Out\[\d{1,5}\]: ?)?\[\]\s*$"
)
"""Signs that a GPU was meant; an empty list alone on a line is what list_physical_devices('GPU') gave."""
_DRIVER_AT_WORK = ("retrieving CUDA diagnostic information", "libcuda reported version")
"""Parts of lines that TensorFlow on Linux prints only if the kernel module is loaded and a device file exists."""
_SAYS_GPU = re.compile(r"(?i)gpu|cuda(?!rt\b)|nvidia")
_STARTS_CONTAINER = re.compile(r"\b(?:docker|podman)\b.{0,40} run\b")
_OF_NO_DRIVER = (DRIVER_LIBRARY_NOT_OPENED, CUINIT_303)


def is_without_gpu(log: Log, origin: Origin) -> bool:
    """Return whether TensorFlow found neither driver nor CUDA, and no sign shows that a GPU was intended.

    Every TensorFlow built for CUDA says so on a machine without a GPU, and computes on the CPU.
    """
    if origin.stated.has_no_gpu or log.first(*OF_OTHER_GPUS):
        return True
    no_runtime = any(event["library"].startswith(RUNTIME) for event in log.all(LIBRARY_NOT_OPENED))
    no_runtime = no_runtime or log.first(NO_CUDA_DRIVERS) is not None
    return (no_runtime or bool(_of_no_driver(log))) and not _is_meant(log, origin, no_runtime=no_runtime)


def of_no_gpu(log: Log, origin: Origin) -> tuple[str, ...]:
    """Return the notice for a missing driver, or a missing CUDA, that is not needed."""
    said = _of_no_driver(log)
    if not (said or log.first(NO_CUDA_DRIVERS)) or not is_without_gpu(log, origin):
        return ()
    if not said:
        said = tuple(event.text for event in log.all(NO_CUDA_DRIVERS))
        return (
            f'"{one_line(said[0])}": a TensorFlow with GPU support says so wherever it finds no CUDA, and nothing '
            "in the log asks for a GPU: it uses the CPU. To use a GPU: pip install 'tensorflow[and-cuda]'",
        )
    return (
        f'"{one_line(said[0])}": there is no NVIDIA driver, and nothing in the log asks for a GPU: TensorFlow uses the '
        "CPU. To use a GPU it needs the driver; in a container, docker run --gpus all",
    )


def _of_no_driver(log: Log) -> tuple[str, ...]:
    """Return TensorFlow's own line about the missing driver library; a program that this error ended needs it."""
    return tuple(event.text for event in log.all(*_OF_NO_DRIVER) if LOGGED.search(event.line))


def _is_meant(log: Log, origin: Origin, *, no_runtime: bool) -> bool:
    """Return whether a sign shows that a GPU exists, or was intended."""
    stated = origin.stated
    if origin.singularity or origin.wsl or origin.wsl_1 or stated.cards or stated.complaint or stated.cuda:
        return True
    if any(event["library"] not in ("libcuda.so.1", "nvcuda.dll") for event in log.all(LIBRARY_OPENED)):
        return True  # CUDA's libraries are there
    # An image without CUDA that is started without a GPU is one for the CPU.
    if origin.container and not (no_runtime and any(map(_STARTS_CONTAINER.search, log.lines))):
        return True
    if log.first(LIBRARIES_ABOVE) or any(map(MEANT_FOR_A_GPU.search, log.lines)):
        return True
    if not origin.windows and any(part in line for line in log.lines for part in _DRIVER_AT_WORK):
        return True
    return any(map(_asks_for_gpu, log.lines))


def _asks_for_gpu(line: str) -> bool:
    """Return whether a line that TensorFlow did not log names a GPU or CUDA, and does not follow from its log."""
    if LOGGED.search(line) or not _SAYS_GPU.search(line):
        return False
    return all(event.message.worth not in (Worth.HARMLESS, Worth.MISLEADING) for event in recognised(line)) and not (
        Log([line]).all(*_OF_NO_DRIVER, LIBRARY_NOT_OPENED)
    )
