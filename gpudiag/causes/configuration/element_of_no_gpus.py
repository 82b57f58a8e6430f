"""the program's index into the list of GPUs is out of range: the list is empty or shorter than it assumes

tf.config.list_physical_devices('GPU') gives an empty list if TensorFlow can use no GPU; it raises nothing. `gpus[0]`
then ends in IndexError, which says nothing about the reason. The reason is named before this cause, or TensorFlow's own
lines above the traceback hint at it.
"""

from __future__ import annotations

import re

from gpudiag.cause import Cause, Match, Matches, Program
from gpudiag.causes.shared.configuration import listed_here
from gpudiag.fix import edit
from gpudiag.knowledge.log_lines import statements
from gpudiag.knowledge.messages.placement import NO_SUCH_ELEMENT
from gpudiag.model.diagnosis import Confidence
from gpudiag.model.program import ProgramTrace
from gpudiag.model.report import Severity
from gpudiag.probes.discovery import trace

CAUSE = Cause(
    severity=Severity.WARNING,
    fix=(
        edit(
            "if not (gpus := tf.config.list_physical_devices('GPU')): "
            "raise SystemExit('TensorFlow lists no GPU; gpudiag check says why')"
        ),
    ),
    url="https://www.tensorflow.org/api_docs/python/tf/config/list_physical_devices",
    needs_gpu=False,
    symptom=True,
)
_OF_GPUS = re.compile(r"(?i)(?:gpu|device)\w{0,60}(?:\([^()]{0,200}\))?\[")


def find(program: Program, traced: trace.Reading | None, watched: ProgramTrace | None) -> Matches:
    if watched is not None and watched.failed_lines:  # line_cannot_work says which line hides the GPU
        return
    for _, error, statement in statements(program, NO_SUCH_ELEMENT, _OF_GPUS):
        if statement:
            yield Match(
                evidence=(statement, error, *listed_here(traced)),
                confidence=Confidence.LIKELY if traced and traced.listed else Confidence.PROVED,
            )
            return
