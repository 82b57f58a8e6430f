"""an operation has no kernel for GPUs: it ran on the CPU

Soft placement runs on the CPU what TensorFlow cannot run on a GPU: texts, lookups, most of integer arithmetic. The
tensors are copied to the host before it and back after it.
"""

from __future__ import annotations

from gpudiag.cause import Cause, Match, Matches
from gpudiag.causes.shared.traced import GUIDE, MOST
from gpudiag.fix import edit, edit_note
from gpudiag.model.program import Placed, ProgramTrace, place
from gpudiag.model.report import Severity
from gpudiag.text import counted, size

CAUSE = Cause(
    title="{op} has no kernel for GPUs{types}: it ran on the CPU{although}",
    severity=Severity.NOTE,
    fix=(
        edit("tf.cast(x, tf.float32)", "if it is the type that has no kernel"),
        edit("tf.config.set_soft_device_placement(False)", "an operation that cannot run there raises"),
    ),
    url=f"{GUIDE}#manual_device_placement",
    needs_gpu=False,
    symptom=True,
)
_ELSEWHERE = edit_note("do it before the data is on the GPU, such as in tf.data, or use operations that have a kernel")
_OF_DATA = ("Dataset", "Iterator", "Optional")


def find(program: ProgramTrace) -> Matches:
    on_gpus = {(function.process, function.name) for function in program.functions if function.types and function.runs}
    found = [placed for placed in program.placed if _was_meant_for_gpu(placed) or _is_python(placed, on_gpus)]
    for placed in sorted(found, key=lambda placed: -placed.count)[:1]:
        yield Match(
            evidence=tuple(map(_line, sorted(found, key=lambda placed: -placed.count)[:MOST])),
            figures={
                "op": placed.op,
                "types": f" of type {placed.types}" if placed.why == "type" and placed.types else "",
                "although": f", where {placed.asked} was asked for"
                if "GPU" in placed.asked
                else f", and the rest of {placed.function} on a GPU",
            },
            fix=CAUSE.fix if placed.why == "type" else (_ELSEWHERE, CAUSE.fix[1] if placed.asked else None),
        )


def _was_meant_for_gpu(placed: Placed) -> bool:
    own = not any(name in placed.op for name in _OF_DATA)
    return placed.why in ("type", "cpu only") and "GPU" in placed.asked and placed.direct and own


def _is_python(placed: Placed, on_gpus: set[tuple[int, str]]) -> bool:
    """Return whether a function that runs on a GPU calls Python in between."""
    return placed.op in ("PyFunc", "EagerPyFunc", "PyFuncStateless") and (placed.process, placed.function) in on_gpus


def _line(placed: Placed) -> str:
    largest = f", on tensors of up to {size(placed.largest_bytes)}" if placed.largest_bytes else ""
    if placed.function:
        return f"{place(placed.line)}: {placed.op}, in each run of {placed.function}"
    return f"{place(placed.line)}: {placed.op}, {counted(placed.count, 'time')}{largest}"
