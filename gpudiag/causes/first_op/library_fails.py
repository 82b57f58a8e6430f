"""a library of NVIDIA's does not work on a GPU

TensorFlow opens NVIDIA's libraries when it lists the GPUs and asks one for a handle at the first operation that needs
it: GPUs are listed, and a program fails hours later, with words such as "No DNN in stream executor" that name no
reason. The library's status is in the log. A lack of GPU memory is ruled out: a probe takes little, and there is room.
The reason is an installation whose parts do not fit each other, another copy that comes first, a limit of the host's
memory, or a driver or GPU that failed.
"""

from __future__ import annotations

from collections.abc import Iterator

from gpudiag.cause import Cause, Match, Matches, Rows, Variables
from gpudiag.causes.shared.libraries import LIBRARIES
from gpudiag.causes.shared.memory import checked, tight
from gpudiag.fix import check, install, kernel_log, nvidia_smi, unset
from gpudiag.knowledge.log_lines import Log, text
from gpudiag.knowledge.message import Event
from gpudiag.knowledge.messages import statuses
from gpudiag.knowledge.messages.memory import NO_HANDLE
from gpudiag.knowledge.messages.runtime import BLAS_FAILED, DNN_FAILED, FFT_FAILED, SOLVER_FAILED
from gpudiag.model.diagnosis import Confidence
from gpudiag.model.facts import Facts
from gpudiag.model.report import Finding, Row
from gpudiag.probes.host.libraries import requirement

CAUSE = Cause(
    title="{library} does not work on {gpus}: {status}",
    unfit=True,
    fix=(
        install("--force-reinstall", "nvidia-cudnn-cu12"),
        unset("LD_LIBRARY_PATH"),
        nvidia_smi("must work, and show a driver that is new enough"),
        kernel_log("shows errors of the GPU"),
    ),
    url="https://www.tensorflow.org/install/pip",
    symptom=True,
    unless={
        "gpu_newer_than_wheel": "the library fails for lack of code for the GPU",
        "no_code_for_gpu": "the library fails for lack of code for the GPU",
    },
)
_LESS = (BLAS_FAILED, DNN_FAILED, FFT_FAILED, SOLVER_FAILED)
"""Errors that name the library but not its status."""


def find(facts: Facts, rows: Rows, variables: Variables) -> Matches:
    if checked(rows, NO_HANDLE) and tight(facts):
        return  # little memory is free, which such a status says most often: no_room_for_libraries
    failed = {library: reports for library in LIBRARIES if (reports := list(_failed(rows, library)))}
    if "cuBLAS" in failed:
        failed.pop("cuSOLVER", None)  # asks for a handle of cuBLAS beside its own
    for library, reports in failed.items():
        row, found = reports[0]
        said = _status(Log(row.log))
        status = found.message if said is None else _named(said)
        devices = dict.fromkeys(str(finding.figures["device"]) for _, finding in reports if "device" in finding.figures)
        package = requirement(facts, LIBRARIES[library])
        shadowed = "LD_LIBRARY_PATH" in variables
        yield Match(
            evidence=(*(() if said is None else (f"log: {text(said.line)}",)), f"{row.probe}: {found.message}"),
            confidence=Confidence.LIKELY if said is None else Confidence.PROVED,
            figures={
                "library": library,
                "gpus": " and ".join(devices) or "the GPUs",
                "status": status,
            },
            fix=(
                install("--force-reinstall", package),
                unset("LD_LIBRARY_PATH", note="if it puts another copy first") if shadowed else None,
                check("ulimit -v; free -m", "limit of this shell, memory of the host") if "ALLOC" in status else None,
                *CAUSE.fix[2:],
            ),
        )


def _failed(rows: Rows, library: str) -> Iterator[tuple[Row, Finding]]:
    findings = [(row, found) for row in rows if row.area == "libraries" for found in row.findings]
    of_driver = [found for _, found in findings if "CUDA_ERROR_" in found.message]  # whichever library has it
    for row, found in findings:
        crashed = found.kind == "crashed" and library == "cuSOLVER" and not of_driver
        failed = found.kind == "failed" and found.figures.get("library") == library
        if crashed or (failed and found not in of_driver):
            yield row, found


def _status(log: Log) -> Event | None:
    return log.first(*statuses.FAMILY.messages) or log.first(*_LESS)


def _named(said: Event) -> str:
    """Return the status in a line; TensorFlow prints a status of cuFFT as a number, and one of cuBLAS as a text."""
    if (number := said["code"]) and (name := statuses.CUFFT_NUMBERS.get(int(number))):
        return f"CUFFT_{name} ({number})"
    for name, words in statuses.CUBLAS_TEXTS.items():
        if said.text.endswith(words):
            return f"CUBLAS_STATUS_{name} ({words})"
    if said.text.endswith("== CUSOLVER_STATUS_SUCCESS"):
        return "it gives no handle, and TensorFlow ends the process"
    return said["status"] or said.text
