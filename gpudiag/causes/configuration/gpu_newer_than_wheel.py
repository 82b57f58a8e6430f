"""this TensorFlow brings no code for the GPU, which is newer: its kernels fail, or are compiled at the first start

TensorFlow's wheels up to 2.21 have machine code for compute capabilities 6.0 to 8.9 and, for everything newer, PTX of
9.0 that the driver compiles. On Blackwell (10.0 and 12.0: B200, RTX 50, RTX PRO) the GPU is listed, and the first
start takes up to 30 minutes, or kernels fail with CUDA_ERROR_INVALID_PTX and CUDA_ERROR_INVALID_HANDLE. That the GPU
is listed is not a proof that it works. Later CUDA libraries or a later driver do not help: the code is missing in
TensorFlow.
"""

from __future__ import annotations

from gpudiag.cause import Cause, EveryLog, Match, Matches, Program, Rows
from gpudiag.causes.shared.generations import where_kernels_fail
from gpudiag.fix import Kind, export, note, run_container
from gpudiag.knowledge.log_lines import parse
from gpudiag.knowledge.messages.code import KERNEL_NOT_COMPILED, NO_CODE_FOR_GPU, NO_MACHINE_CODE, PTX_REFUSED
from gpudiag.knowledge.raised import last_error
from gpudiag.knowledge.releases import numbers
from gpudiag.model.diagnosis import Confidence
from gpudiag.model.report import Severity

CAUSE = Cause(
    title="{name} has compute capability {capability}, for which this TensorFlow brings no code: {slow}",
    severity=Severity.WARNING,
    fix=(
        run_container(
            "--gpus all",
            "-it",
            image="nvcr.io/nvidia/tensorflow:25.02-tf2-py3",
            note="has code for Blackwell; needs driver 570 or newer",
        ),
        note(
            "or build TensorFlow for it: HERMETIC_CUDA_COMPUTE_CAPABILITIES={capability}, CUDA 12.8 or later",
            kind=Kind.INSTALL,
        ),
        export("CUDA_CACHE_MAXSIZE", "4294967296", "keeps the compiled code, if compiling works"),
    ),
    url="https://github.com/tensorflow/tensorflow/issues/89272",
    views=(
        "discovery.device_details.ptx_only",
        "discovery.first_op.compiled",
        "discovery.first_op.slow_first",
    ),
)

_FAILS = (KERNEL_NOT_COMPILED, PTX_REFUSED, NO_CODE_FOR_GPU)
_NEWER = "10.0 or 12.0"
"""The capabilities of Blackwell, for a log that names none."""


def find(rows: Rows, program: Program, log: EveryLog) -> Matches:
    found = rows.found("discovery.device_details", "ptx_only")
    old_driver = any("UNSUPPORTED_PTX" in event.text for event in program.all(PTX_REFUSED))
    announced = [] if _goes_on(program) else program.all(NO_MACHINE_CODE)
    in_log = announced or ([] if old_driver else program.all(KERNEL_NOT_COMPILED))
    if not found and not in_log:
        return
    # A kernel of TensorFlow's own that the driver cannot compile is of a GPU that is newer than the wheel's PTX.
    figures = found[0].figures if found else {"name": "a GPU", "capability": in_log[0]["has"] or _NEWER}
    capability = str(figures["capability"])
    failed = [event.text for event in log.all(KERNEL_NOT_COMPILED, PTX_REFUSED)]
    build, keep = CAUSE.fix[0:2], CAUSE.fix[2:]
    is_blackwell = capability == _NEWER or numbers(capability) >= (10,)
    yield Match(
        evidence=tuple(
            dict.fromkeys((*(finding.message for finding in found), *(event.text for event in in_log[:1]), *failed[:1]))
        ),
        confidence=Confidence.PROVED if found else Confidence.LIKELY,
        figures={
            "name": figures["name"],
            "capability": capability,
            "slow": "kernels fail"
            if failed
            else "each kernel is compiled at its first use, for up to 30 minutes, or fails",
        },
        stage=where_kernels_fail(rows),
        fix=CAUSE.fix if failed else (*keep, *(build if is_blackwell else ())),
    )


def _goes_on(program: Program) -> bool:
    """Return whether a program prints lines of its own after the announcement, and no error ends it."""
    at = next((at for at, line in enumerate(program.lines) if NO_MACHINE_CODE.texts[0].partition("{")[0] in line), -1)
    own = (line for line in program.lines[at + 1 :] if line.strip() and not parse([line]))
    return at >= 0 and any(own) and last_error(program.lines) is None and not program.first(*_FAILS)
