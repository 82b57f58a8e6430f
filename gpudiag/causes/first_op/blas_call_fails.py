"""a matrix product fails on the GPU

cuBLAS fails if no memory is left for it beside TensorFlow's pool, and if the GPU is newer than the CUDA that
TensorFlow was built for: CUDA 10 and older (TensorFlow up to 2.3) have no code for Ampere and later GPUs (RTX 30, A100
on), so that everything starts, slowly, and the first matrix product fails or gives wrong numbers.
"""

from __future__ import annotations

from gpudiag.cause import Cause, Match, Matches, Program
from gpudiag.causes.shared.memory import GROW, GROW_BY_VARIABLE
from gpudiag.fix import Action, Kind, note, nvidia_smi
from gpudiag.knowledge.messages.programs_and_drivers import BLAS_CALL_FAILED
from gpudiag.knowledge.origin import Origin
from gpudiag.knowledge.releases import Version, knows
from gpudiag.model.diagnosis import Confidence

CAUSE = Cause(
    title="a matrix product fails on the GPU: {why}",
    fix=(
        GROW,
        GROW_BY_VARIABLE,
        note("RTX 30 and newer need TensorFlow 2.4 or newer", kind=Kind.INSTALL),
        nvidia_smi("shows what else holds the GPU's memory: end it"),
    ),
    url="https://docs.nvidia.com/cuda/ampere-compatibility-guide/",
    needs_gpu=False,
    symptom=True,
    unless={
        "gpu_newer_than_wheel": "cuBLAS fails for lack of code for the GPU",
        "no_code_for_gpu": "cuBLAS fails for lack of code for the GPU",
    },
)
_FIRST_FOR_AMPERE = Version(2, 4)
_NEWER = note(
    "a GPU of RTX 30, A100 or newer needs TensorFlow 2.4 or newer with CUDA 11, or NVIDIA's build of "
    "1.15: "
    "nvcr.io/nvidia/tensorflow:23.03-tf1-py3",
    kind=Kind.INSTALL,
)
_OTHER_KERNELS = nvidia_smi(
    "shows which processes hold the GPU: shut down other notebooks' kernels, and restart this one's"
)


def find(program: Program, origin: Origin) -> Matches:
    said = program.said(BLAS_CALL_FAILED)
    if not said:
        return
    card = next((card for card, _ in origin.stated.cards), None)
    ampere = card is not None and not knows("10.1", card.capability)
    old = (origin.is_before_11 and (ampere or card is None)) or (ampere and origin.releases[0] < _FIRST_FOR_AMPERE)
    order: tuple[Action, ...] = (_NEWER, GROW, GROW_BY_VARIABLE) if old else (GROW, GROW_BY_VARIABLE, _NEWER)
    memory = "no memory is left for cuBLAS beside TensorFlow's pool"
    if origin.notebook and not old:
        order = (_OTHER_KERNELS, *order)
        memory = "another notebook, or an earlier run of this one, holds the GPU's memory, and none is left for cuBLAS"
    newer = "the GPU is newer than CUDA 10 (TensorFlow up to 2.3)"
    yield Match(
        said,
        Confidence.POSSIBLE,
        {"why": f"{newer}, or {memory}" if old else f"{memory}, or {newer}"},
        fix=(*order, CAUSE.fix[-1]),
    )
