"""{setting} {where} does something else than it asks for

TensorFlow and the CUDA driver read an option as it is written, and say nothing of what they make of it: a list of GPUs
ends at the first entry that is none, limits may add up to more than the card has, a limit in bytes is read as MiB,
GPU 1 of CUDA is another card than GPU 1 of nvidia-smi. The program runs, on fewer GPUs, on another card, or until
memory ends.
"""

from __future__ import annotations

from gpudiag.cause import Cause, Matches
from gpudiag.causes.shared.traced import GUIDE, settings
from gpudiag.fix import export
from gpudiag.model.program import OTHER_EFFECT, ProgramTrace
from gpudiag.model.report import Severity

CAUSE = Cause(
    severity=Severity.WARNING,
    fix=(export("CUDA_DEVICE_ORDER", "PCI_BUS_ID"),),
    url=GUIDE,
    needs_gpu=False,
)


def find(program: ProgramTrace) -> Matches:
    yield from settings(program, OTHER_EFFECT)
