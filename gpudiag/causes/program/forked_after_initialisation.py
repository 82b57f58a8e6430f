"""a process was forked after TensorFlow had started, and uses TensorFlow

A forked process inherits what TensorFlow and the driver have in memory, but not their threads: it hangs at its first
operation, or fails. On Linux multiprocessing forks, unless it is asked for another way; so do os.fork and many
servers.
"""

from __future__ import annotations

from gpudiag.cause import Cause, Match, Matches
from gpudiag.fix import edit, edit_note
from gpudiag.model.program import ProgramTrace, place
from gpudiag.model.report import Severity

CAUSE = Cause(
    title="a process was forked after TensorFlow had {step}, and uses TensorFlow",
    severity=Severity.WARNING,
    fix=(
        edit("multiprocessing.set_start_method('spawn')", "before the first process is made"),
        edit_note("or start the processes before anything uses TensorFlow"),
    ),
    url="https://docs.python.org/3/library/multiprocessing.html#contexts-and-start-methods",
    needs_gpu=False,
)
_STEPS = {"initialised": "made its devices", "listed": "listed its devices"}
_INHERITED = "CUDA_ERROR_NOT_INITIALIZED"
"""CUDA's error in a fork of a process that has used CUDA, which may have done so without TensorFlow."""


def find(program: ProgramTrace) -> Matches:
    forked = [
        process
        for process in program.processes
        if (process.forked_when in _STEPS and (process.used_after_fork or process.operations))
        or (process.forked_when and _INHERITED in process.not_made)
    ]
    if not forked:
        return
    first = forked[0]
    parent = next((process for process in program.processes if process.pid == first.parent), None)
    made = f"; its devices were made at {place(parent.initialised_at)}" if parent and parent.initialised_at else ""
    hung = [process for process in forked if not process.operations]
    yield Match(
        evidence=(
            f"{len(forked)} forked of process {first.parent}{made}",
            *([f"TensorFlow is used in the fork at {place(first.used_after_fork)}"] if first.used_after_fork else []),
            *([first.not_made] if first.not_made else []),
            *([f"{len(hung)} of them ended no operation"] if hung else []),
        ),
        figures={"step": _STEPS.get(first.forked_when, "used CUDA")},
    )
