"""{setting} {where} is overridden

A variable of the environment comes before what the program asks for: TF_FORCE_GPU_ALLOW_GROWTH is read inside the
allocator, after everything that the program has set, and get_memory_growth does not know of it.
"""

from __future__ import annotations

from gpudiag.cause import Cause, Matches
from gpudiag.causes.shared.traced import GROWTH_GUIDE, settings
from gpudiag.fix import unset
from gpudiag.model.program import ProgramTrace
from gpudiag.model.report import Severity

CAUSE = Cause(
    severity=Severity.WARNING,
    fix=(unset("TF_FORCE_GPU_ALLOW_GROWTH"),),
    url=GROWTH_GUIDE,
    needs_gpu=False,
)


def find(program: ProgramTrace) -> Matches:
    yield from settings(program, "overridden")
