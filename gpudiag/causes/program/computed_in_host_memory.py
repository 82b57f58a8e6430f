"""operations computed in the computer's memory, although TensorFlow names a GPU for them

TensorFlow names a GPU for operations and constants of int32, and for a few others, and uses a kernel that keeps their
tensors in the computer's memory: the CPU computes them, and what the GPU needs of them is copied. It does so because
most int32 tensors are shapes and indices. A tensor's ``device`` does not show it; its ``backing_device`` does.
"""

from __future__ import annotations

from collections import Counter

from gpudiag.cause import Cause, Match, Matches
from gpudiag.causes.shared.traced import GUIDE, MOST
from gpudiag.fix import edit
from gpudiag.model.program import ProgramTrace, place
from gpudiag.model.report import Severity
from gpudiag.text import counted, size

CAUSE = Cause(
    title="{count} of {types} on {device} computed in the computer's memory, such as {op}",
    severity=Severity.NOTE,
    fix=(edit("tf.cast(ids, tf.int64)", "or float32: TensorFlow has kernels for GPUs for these"),),
    url=f"{GUIDE}#manual_device_placement",
    needs_gpu=False,
    symptom=True,
)
_LEAST = 10
_MUCH = 1 << 20
"""The size of a tensor from which a single one is reported."""


def find(program: ProgramTrace) -> Matches:
    found = [placed for placed in program.placed if placed.why == "host" and placed.largest_bytes and placed.direct]
    if sum(placed.count for placed in found) < _LEAST and all(placed.largest_bytes < _MUCH for placed in found):
        return
    lines: Counter[tuple[str, str]] = Counter()
    for placed in found:
        lines[place(placed.line), f"{placed.op} on tensors of up to {size(placed.largest_bytes)}"] += placed.count
    largest = max(found, key=lambda placed: placed.count)
    yield Match(
        evidence=tuple(f"{line}: {what}, {counted(count, 'time')}" for (line, what), count in lines.most_common(MOST)),
        figures={
            "count": counted(sum(placed.count for placed in found), "operation"),
            "device": largest.device,
            "op": largest.op,
            "types": largest.types or "int32",
        },
    )
