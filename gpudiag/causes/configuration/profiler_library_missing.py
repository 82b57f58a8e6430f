"""the profiler's library (CUPTI) was not found; everything else works without it

TensorFlow's profiler, and the TensorBoard callback with profile_batch, open CUPTI of the CUDA that TensorFlow was built
for. Toolkits have it in extras/CUPTI/lib64, which no loader searches, and /usr/local/cuda may be another release.
"""

from __future__ import annotations

from gpudiag.cause import Cause, Match, Matches, Program
from gpudiag.fix import Kind, Role, edit_note, install, note, prepend, run
from gpudiag.knowledge.messages.programs_and_drivers import NO_CUPTI
from gpudiag.knowledge.origin import Origin
from gpudiag.model.report import Severity

CAUSE = Cause(
    title="{name}, the profiler's library, was not found; everything else works without it",
    severity=Severity.WARNING,
    fix=(
        install("nvidia-cuda-cupti-cu12"),
        prepend("LD_LIBRARY_PATH", "/usr/local/cuda/extras/CUPTI/lib64"),
        edit_note("or switch profiling off: TensorBoard(profile_batch=0)"),
    ),
    url="https://www.tensorflow.org/guide/profiler#install_the_profiler_and_gpu_prerequisites",
    needs_gpu=False,
)


def find(program: Program, origin: Origin) -> Matches:
    said = program.first(NO_CUPTI)
    if said is None or "ImportError" in said.line:  # then nothing works without it
        return
    cuda = origin.generation.cuda
    path = run(
        f"export LD_LIBRARY_PATH=/usr/local/cuda-{cuda}/extras/CUPTI/lib64:$LD_LIBRARY_PATH",
        f"of CUDA {cuda}",
        kind=Kind.SET_VARIABLE,
    )
    if origin.windows:
        path = note(f"add the folder extras\\CUPTI\\lib64 of CUDA {cuda} to PATH")
    yield Match(
        program.said(NO_CUPTI),
        figures={"name": said["library"] or said["missing"]},
        fix=(
            path,
            None if origin.is_before_12 else install("nvidia-cuda-cupti-cu12", role=Role.ALTERNATIVE),
            CAUSE.fix[2],
        ),
    )
