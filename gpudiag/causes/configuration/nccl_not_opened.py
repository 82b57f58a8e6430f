"""NCCL cannot be opened: several GPUs cannot compute together, but each GPU alone works

TensorFlow's wheels open NCCL when GPUs first exchange data, and not when they list the GPUs: one GPU works, and
MirroredStrategy and other collectives fail with "unhandled system error", which NCCL itself never printed.
"""

from __future__ import annotations

from gpudiag.cause import Cause, Gpus, Match, Matches, Rows, Variables
from gpudiag.causes.shared.files import repairs, shown
from gpudiag.causes.shared.libraries import seen
from gpudiag.causes.shared.multi_gpu import NCCL, where_nccl_fails
from gpudiag.fix import install, unset
from gpudiag.model.diagnosis import Confidence, Stage
from gpudiag.model.facts import Facts, TensorflowFacts
from gpudiag.probes.host.libraries import COLLECTIVES, PACKAGES, requirement

CAUSE = Cause(
    title="NCCL ({library}) cannot be opened: several GPUs cannot compute together, but each GPU alone works",
    unfit=True,
    fix=(
        install("--force-reinstall", "nvidia-nccl-cu12"),
        unset("LD_LIBRARY_PATH", note="if it puts another copy first"),
    ),
    url=NCCL,
    unless={
        "damaged_library_first": "NCCL is there, and a damaged copy comes first",
    },
)


def find(facts: Facts, tensorflow: TensorflowFacts, gpus: Gpus, rows: Rows, variables: Variables) -> Matches:
    library = facts.library(COLLECTIVES)
    if library is None or library.error is None or len(gpus) < 2:
        return
    stage = where_nccl_fails(rows)
    by_wheel = PACKAGES["libnccl"] in tensorflow.ranges  # another build may have NCCL inside
    yield Match(
        evidence=(seen(library), *shown([library])),
        confidence=Confidence.PROVED if by_wheel or stage is Stage.FIRST_OP else Confidence.POSSIBLE,
        figures={"library": COLLECTIVES},
        fix=(
            *(repairs(library.files) or (install("--force-reinstall", requirement(facts, COLLECTIVES)),)),
            CAUSE.fix[1] if "LD_LIBRARY_PATH" in variables else None,
        ),
        stage=stage,
    )
