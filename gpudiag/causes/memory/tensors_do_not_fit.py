"""the program's tensors do not fit into the memory that TensorFlow took of the GPU

"OOM when allocating tensor" is about TensorFlow's own pool: everything that the program holds on the GPU, or one
tensor whose shape the line names. The number in "Created device ... with N MB memory" is the pool's ceiling: less
than the card has if the program or another one limits it. TensorFlow tries for ten seconds before it raises.
"""

from __future__ import annotations

from gpudiag.cause import Cause, Match, Matches, Program
from gpudiag.causes.shared.advice import OF_TEGRA
from gpudiag.causes.shared.memory import GROW_BY_VARIABLE, shared_otherwise
from gpudiag.fix import Role, edit, edit_note, export
from gpudiag.knowledge.log_lines import Log, ended_by
from gpudiag.knowledge.messages.memory import POOL_FULL
from gpudiag.knowledge.messages.way import DEVICE_CREATED
from gpudiag.knowledge.origin import Origin
from gpudiag.model.diagnosis import Confidence

CAUSE = Cause(
    fix=(
        edit_note("use a smaller batch, or smaller or shorter inputs"),
        edit("tf.keras.mixed_precision.set_global_policy('mixed_float16')", role=Role.ALTERNATIVE),
        export("TF_GPU_ALLOCATOR", "cuda_malloc_async", "if the free memory is fragmented but large enough in total"),
    ),
    url="https://www.tensorflow.org/guide/gpu_performance_analysis",
    symptom=True,
    unless={"little_memory_left": "the tensors might fit a GPU that has its memory free"},
)


def find(program: Program, origin: Origin) -> Matches:
    said = Log(line for line in program.lines if "this is not a failure" not in line).said(POOL_FULL)
    if not said or shared_otherwise(program):
        return
    made = program.said(DEVICE_CREATED, most=1)
    ended = ended_by(program, POOL_FULL)
    caught = () if ended else ("the log does not end with it: the program may have caught it",)
    yield Match(
        evidence=(*made, *said, *caught),
        confidence=Confidence.LIKELY if ended else Confidence.POSSIBLE,
        fix=(CAUSE.fix[0], OF_TEGRA, GROW_BY_VARIABLE) if origin.jetson else (),
    )
