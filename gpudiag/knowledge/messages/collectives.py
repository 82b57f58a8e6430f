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
    in_general="NCCL names a fault",
    fix=(
        check(
            "NCCL_DEBUG=INFO python program.py 2>&1 | tee app.log",
            "run every rank with it: the first WARN line names the fault",
        ),
        check(
            "nvidia-smi topo -m; df -h /dev/shm; ulimit -l -n",
            "shows how the GPUs are connected, and the shared memory and limits that NCCL needs",
        ),
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
    meaning="this process created a strategy for {old} devices, and then one for {new}: a process can"
    " have only one distribution strategy, of one size",
    in_general="this process created strategies of two sizes: a process can have only one distribution "
    "strategy, of one size",
    fix=(
        edit_note(
            "create one strategy at the start of the program and keep it; for another number of GPUs,"
            " start another process"
        ),
        edit_note("in a notebook: restart the kernel; in tests: one process for each strategy"),
    ),
    stage=Stage.FIRST_OP,
    seen="2.4-2.21",
)
FAMILY.fault(
    "replicas_run_eagerly",
    "Using MirroredStrategy eagerly has significant overhead",
    meaning="the strategy's replicas run eagerly, one after the other: this is slow, and hangs if one"
    " waits for the others, as NCCL does",
    fix=(
        edit(
            "@tf.function",
            "decorate the function that calls strategy.run; remove tf.config.run_functions_eagerly(True)",
        ),
        edit_note("call model.compile with run_eagerly=False, the default"),
    ),
    symptom=True,
    stage=Stage.PROGRAM,
    seen="2.0-2.21",
)
NOT_REGISTERED = FAMILY.fault(
    "not_registered",
    "TensorFlow device GPU:{number:d} was not registered",
    meaning="printed by the worker that has no GPU when the others have one (measured, 2.21)",
)
