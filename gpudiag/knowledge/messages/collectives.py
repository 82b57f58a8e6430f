"""Messages about GPUs that exchange data."""

from __future__ import annotations

from gpudiag.fix import check, edit, edit_note
from gpudiag.knowledge.fault import Stage
from gpudiag.knowledge.message import MessageFamily

FAMILY = MessageFamily("several GPUs", stage=Stage.CONFIGURATION)

NCCL_SYSTEM_ERROR = FAMILY.fault(
    "nccl_system_error",
    pattern=r"(?i)NCCL(?:(?!NCCL).){0,300}(?:unhandled )?system error|ncclSystemError",
    words=("nccl", "ncclsystemerror"),
    seen="NCCL",
)
NCCL_WARNING = FAMILY.fault(
    "nccl_warning",
    pattern=r"(?i)NCCL WARN(?P<what>(?:(?!NCCL WARN).){0,300})",  # a log may repeat the words without end
    words=("nccl",),
    seen="NCCL",
    meaning="NCCL names a fault:{what}",
    fix=(
        check("NCCL_DEBUG=INFO python program.py 2>&1 | tee app.log", "on every rank: the first WARN names the fault"),
        check("nvidia-smi topo -m; df -h /dev/shm; ulimit -l -n", "how GPUs are joined; what NCCL needs of the system"),
    ),
    symptom=True,
    url="https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/troubleshooting.html",
)
GPUS_EXCHANGE = FAMILY.sign(
    "gpus_exchange",
    pattern=r"(?i)\bNCCL INFO\b|\ball[-_ ]?reduces?\b",
    words=("nccl", "allreduce", "allreduces", "all_reduce", "all_reduces", "reduce", "reduces"),
    meaning="GPUs are about to exchange data",
    seen="2.18-2.21, NCCL",
)
FAMILY.fault(
    "group_of_another_size",
    "is joining a group with size {new:d}, but that group has size {old:d}",
    "is joining a group with size{new:d}, but that group has size {old:d}",
    meaning="a strategy for {old} devices was made before in this process, and one for {new} uses its group: a process "
    "can have one distribution strategy, of one size",
    fix=(
        edit_note(
            "make one strategy at the start of the program and keep it; for another number of GPUs start "
            "another process"
        ),
        edit_note("in a notebook: restart the kernel; in tests: one process for each strategy"),
    ),
    stage=Stage.FIRST_OP,
    seen="2.4-2.21",
)
FAMILY.fault(
    "replicas_run_eagerly",
    "Using MirroredStrategy eagerly has significant overhead",
    meaning="the replicas of the strategy run eagerly, one after the other: that is slow, and hangs if one waits for "
    "the others, as NCCL does",
    fix=(
        edit("@tf.function", "on the function that calls strategy.run; without tf.config.run_functions_eagerly(True)"),
        edit_note("and model.compile with run_eagerly=False, which is the default"),
    ),
    symptom=True,
    stage=Stage.PROGRAM,
    seen="2.0-2.21",
)
NOT_REGISTERED = FAMILY.fault(
    "not_registered",
    "TensorFlow device GPU:{number:d} was not registered",
    meaning="said by the worker that has no GPU, when the others have one (measured, 2.21)",
)
