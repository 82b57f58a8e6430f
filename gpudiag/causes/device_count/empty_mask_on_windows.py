"""CUDA_VISIBLE_DEVICES was set to an empty text, which hides no GPU on Windows

On Windows, setting a variable to an empty text removes it, so CUDA shows every GPU. On Linux it hides all.
"""

from __future__ import annotations

from gpudiag.cause import Cause, LogAlone, Match, Matches
from gpudiag.fix import edit
from gpudiag.knowledge.messages.programs_and_drivers import MASK_IN_CODE
from gpudiag.knowledge.origin import Origin
from gpudiag.model.diagnosis import Confidence, Stage

CAUSE = Cause(
    fix=(
        edit(
            "os.environ['CUDA_VISIBLE_DEVICES'] = '-1'",
            "hides all GPUs on every system; must come before TensorFlow is imported",
        ),
    ),
    url="https://docs.nvidia.com/cuda/cuda-c-programming-guide/#cuda-environment-variables",
    needs_gpu=False,
)


def find(program: LogAlone, origin: Origin) -> Matches:
    masks = program.all(MASK_IN_CODE)
    if masks and not masks[-1]["value"].strip() and origin.windows:
        yield Match(program.said(MASK_IN_CODE), Confidence.LIKELY, stage=Stage.CONFIGURATION)
