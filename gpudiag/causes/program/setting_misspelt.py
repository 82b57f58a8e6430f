"""nothing reads {setting} {where}: the name is probably misspelled

TensorFlow asks for the variables that it knows and the keys of device_count that are in upper case; all other names are
ignored without a message.
"""

from __future__ import annotations

from gpudiag.cause import Cause, Matches
from gpudiag.causes.shared.traced import GUIDE, settings
from gpudiag.fix import edit
from gpudiag.model.program import ProgramTrace
from gpudiag.model.report import Severity

CAUSE = Cause(
    severity=Severity.WARNING,
    fix=(edit("os.environ['TF_FORCE_GPU_ALLOW_GROWTH'] = 'true'"),),
    url=GUIDE,
    needs_gpu=False,
)


def find(program: ProgramTrace) -> Matches:
    yield from settings(program, "misspelt")
