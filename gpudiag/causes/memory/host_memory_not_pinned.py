"""out of host memory: the computer's memory (not the GPU's) cannot be pinned for the GPU

TensorFlow keeps data that goes to the GPU in pinned memory of the host. Such memory must be there in RAM: a large data
set as a tensor, large batches in several workers, little RAM or a small page file, or a limit (container, Slurm, WSL's
.wslconfig, ulimit -l) stop it. CUDA says CUDA_ERROR_OUT_OF_MEMORY for that, too.
"""

from __future__ import annotations

from gpudiag.cause import Cause, EveryLog, Match, Matches
from gpudiag.causes.shared.limits import below, in_words, raised
from gpudiag.fix import check, edit_note, export, note
from gpudiag.knowledge.messages.programs_and_drivers import HOST_MEMORY_REFUSED
from gpudiag.knowledge.origin import Origin
from gpudiag.model.facts import Facts

CAUSE = Cause(
    title="out of host memory: {size} of the computer's memory (not the GPU's) cannot be pinned for the GPU",
    fix=(
        edit_note(
            "use smaller batches, and read data piece by piece: tf.data.Dataset.from_generator "
            "instead of from_tensor_slices of a whole array; no cache() in memory"
        ),
        check(
            "free -h; ulimit -l",
            "shows free RAM and the limit: add RAM, or raise the limit of the container, of Slurm or "
            "of WSL (.wslconfig)",
        ),
        export("TF_GPU_HOST_MEM_LIMIT_IN_MB", "8192", "must be less than the free RAM"),
    ),
    url="https://www.tensorflow.org/guide/data_performance#reducing_memory_footprint",
    needs_gpu=False,
)


_LIMITS = ("memory.max", "Max address space", "vm.overcommit_memory")


def find(log: EveryLog, origin: Origin, facts: Facts) -> Matches:
    refused = log.all(HOST_MEMORY_REFUSED)
    if not refused:
        return
    largest = max(int(event["bytes"]) for event in refused)
    tight = () if origin.windows else below(facts, largest, *_LIMITS)[:1]
    yield Match(
        (*log.said(HOST_MEMORY_REFUSED), *map(in_words, tight)),
        figures={"size": f"{largest / (1 << 30):.1f} GiB" if largest >= 1 << 29 else f"{largest >> 20} MiB"},
        fix=(
            *(raised(tight[0], facts) if tight else ()),
            CAUSE.fix[0],
            note("add RAM, or enlarge the page file (Windows: System, Advanced, Performance, Virtual memory)")
            if origin.windows
            else check(
                "free -h; ulimit -l",
                "shows free RAM and the limit: add RAM, or raise the limit of the container, of Slurm or "
                "of WSL (.wslconfig)",
            ),
            CAUSE.fix[2],
        ),
    )
