"""TensorFlow refuses {setting} {where}

Settings that exclude each other raise ValueError: growth on a GPU that has logical devices, a logical device without
a limit. A function that TensorFlow does not have raises AttributeError, and an unknown flag in TF_XLA_FLAGS ends the
process. A program that catches an error goes on without the setting.
"""

from __future__ import annotations

from gpudiag.cause import Cause, Matches
from gpudiag.causes.shared.traced import GROWTH_GUIDE, settings
from gpudiag.fix import export
from gpudiag.model.program import ProgramTrace
from gpudiag.model.report import Severity

CAUSE = Cause(
    severity=Severity.WARNING,
    fix=(export("TF_FORCE_GPU_ALLOW_GROWTH", "true"),),
    url=GROWTH_GUIDE,
    needs_gpu=False,
)


def find(program: ProgramTrace) -> Matches:
    yield from settings(program, "refused")
