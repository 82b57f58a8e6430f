"""{setting} {where} comes too late to have an effect

Each option has one moment at which it is read: TF_ENABLED_DEVICE_TYPES at the import, CUDA_VISIBLE_DEVICES and
TF_XLA_FLAGS at the first query of devices, TF_CONFIG when a strategy for several workers is made, a policy of Keras
when a layer is made, most else when TensorFlow makes its devices, which the first tensor does. A function called
later raises RuntimeError, which programs often catch; a variable that is set later does nothing.
"""

from __future__ import annotations

from gpudiag.cause import Cause, Matches
from gpudiag.causes.shared.traced import GROWTH_GUIDE, settings
from gpudiag.fix import edit_note
from gpudiag.model.program import ProgramTrace
from gpudiag.model.report import Severity

CAUSE = Cause(
    severity=Severity.WARNING,
    fix=(edit_note("move the line directly after import tensorflow"),),
    url=GROWTH_GUIDE,
    needs_gpu=False,
)


def find(program: ProgramTrace) -> Matches:
    yield from settings(program, "too late")
