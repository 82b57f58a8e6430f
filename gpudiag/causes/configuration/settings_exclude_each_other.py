"""the program sets two options that exclude each other: TensorFlow uses only one of them

Memory growth belongs to a whole GPU, logical devices divide it, and TensorFlow refuses the one after the other. In the
other order, growth before the limits, it says nothing, and growth is off. The v1 options
per_process_gpu_memory_fraction and virtual_devices exclude each other in the same way, and an error says so only when
the session is made on a machine with a GPU.
"""

from __future__ import annotations

from gpudiag.cause import Cause, Match, Matches, Program
from gpudiag.causes.shared.configuration import SETTER
from gpudiag.fix import Role, edit_note, export, note
from gpudiag.knowledge.log_lines import statements
from gpudiag.knowledge.messages.settings import SETTINGS_EXCLUDED
from gpudiag.knowledge.variables import FORCE_GROWTH
from gpudiag.model.report import Severity

CAUSE = Cause(
    title="the program sets both {one} and {other}, but TensorFlow uses only one of them",
    severity=Severity.WARNING,
    fix=(
        edit_note("remove set_memory_growth: the limits of the logical devices bound the program already"),
        export("TF_FORCE_GPU_ALLOW_GROWTH", "true", "if you want both, remove it nevertheless", role=Role.ALTERNATIVE),
    ),
    url="https://www.tensorflow.org/guide/gpu#limiting_gpu_memory_growth",
    needs_gpu=False,
)
_EXCLUSIVE = {
    "Cannot set memory growth on device when virtual devices configured": (
        "memory growth",
        "logical devices",
        edit_note("remove set_memory_growth: the limits of the logical devices bound the program already"),
        export(FORCE_GROWTH, "true", "or, if you want both, remove it nevertheless"),
    ),
    "It's invalid to set per_process_gpu_memory_fraction when virtual_devices is set": (
        "per_process_gpu_memory_fraction",
        "virtual_devices",
        edit_note("remove per_process_gpu_memory_fraction: memory_limit_mb bounds each device already"),
        note("or remove virtual_devices, and keep the fraction"),
    ),
}


def find(program: Program) -> Matches:
    for found, error, statement in statements(program, SETTINGS_EXCLUDED, SETTER):
        first, other, remove, both = _EXCLUSIVE[found.text]
        yield Match(
            evidence=tuple(filter(None, (statement, error))),
            figures={"one": first, "other": other},
            fix=(remove, both),
        )
        return
