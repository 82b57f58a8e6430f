"""{setting} is set at {where}, after TensorFlow has read it

Each option has one moment at which it is read: TF_ENABLED_DEVICE_TYPES at the import, CUDA_VISIBLE_DEVICES at the
first query of devices, everything else when TensorFlow makes its devices, which the first tensor does. A function
that is called later raises RuntimeError, which programs often catch; a variable that is set later does nothing.
"""

from __future__ import annotations

from gpudiag.cause import Cause, Matches
from gpudiag.causes.shared.traced import GROWTH_GUIDE, settings
from gpudiag.fix import Kind, note
from gpudiag.model.program import ProgramTrace
from gpudiag.model.report import Severity

CAUSE = Cause(
    severity=Severity.WARNING,
    fix=(note("move the line directly after import tensorflow", kind=Kind.EDIT_PROGRAM),),
    url=GROWTH_GUIDE,
    needs_gpu=False,
)


def find(program: ProgramTrace) -> Matches:
    yield from settings(program, "too late")
