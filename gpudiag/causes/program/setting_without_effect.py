"""{setting} {where} has no effect

TensorFlow accepts it and does not use it: a function was assigned to instead of called, a value is not one that it
reads, growth is lost beside logical devices, the GPUs were made before, by another session or by
tf.test.is_gpu_available(), with other options. Or nothing looks at it: nothing ran in a scope, no session was made with
a ConfigProto, a list of 'gpu' is empty, a shell that set a variable has ended, and JAX reads another.
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
    yield from settings(program, "ignored")
