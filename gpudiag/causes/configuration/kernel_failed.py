"""a kernel of the program failed on the GPU: it accessed memory illegally, or the GPU has a fault

After CUDA_ERROR_ILLEGAL_ADDRESS and similar errors every further call of the process fails, and the line names what was
called then, not the kernel that failed: kernels run later than they are called. Most often it is your own operation or
one of an extension, an index out of range (which on the GPU is not checked), or libraries that do not fit each other;
in rare cases the GPU, its memory or its overclocking.
"""

from __future__ import annotations

from gpudiag.cause import Cause, Match, Matches, Program
from gpudiag.fix import Kind, check, kernel_log, note
from gpudiag.knowledge.messages.code import STRAY_ACCESS
from gpudiag.model.diagnosis import Confidence
from gpudiag.model.report import Severity

CAUSE = Cause(
    severity=Severity.WARNING,
    fix=(
        note("start the program again, in a notebook its kernel: in this process every further call fails"),
        check("CUDA_LAUNCH_BLOCKING=1 python program.py", "makes the traceback name the operation that failed"),
        note(
            "update the NVIDIA driver; on Windows, raise the limit of its watchdog for the display (TdrDelay), too",
            kind=Kind.CONFIGURE,
        ),
        kernel_log(
            "look for an Xid: 13 and 31 are faults of a program; 48, 63, 64, 79, 94 and 95 are faults of the GPU"
        ),
    ),
    url="https://docs.nvidia.com/deploy/xid-errors/",
    needs_gpu=False,
)


def find(program: Program) -> Matches:
    said = program.said(STRAY_ACCESS)
    if said:
        yield Match(evidence=said, confidence=Confidence.POSSIBLE)
