"""Shared by causes of programs: lines of the program in words."""

from __future__ import annotations

from collections.abc import Iterable

from gpudiag.model.program import Placed, ProgramTrace, place

GUIDE = "https://www.tensorflow.org/guide/gpu"
GROWTH_GUIDE = f"{GUIDE}#limiting_gpu_memory_growth"
MOST = 8
"""The most settings and lines that a report names for one cause."""


_BECAUSE = {
    "asked": "a GPU was asked for",
    "scope": "the CPU was asked for",
    "variable": "its variable is on the CPU",
    "none": "not asked for",
}


def cpu_scopes(program: ProgramTrace, process: int) -> tuple[str, ...]:
    """Return a line for each scope in which a process of the program asked for the CPU."""
    asking = [scope for scope in program.scopes if scope.process == process and "CPU" in scope.device.upper()]
    return tuple(f"{place(scope.line)}: with tf.device({scope.device!r})" for scope in asking[:2])


def on_cpu(placed: Iterable[Placed]) -> tuple[str, ...]:
    """Return a line for each kind of operation that ran on the CPU and could have run on a GPU."""
    return tuple(
        f"{place(placement.line)}: {placement.op} x{placement.count}"
        f"{f' in {placement.function}' if placement.function else ''} on the CPU: {_BECAUSE[placement.why]}"
        for placement in sorted(placed, key=lambda entry: -entry.count)
    )
