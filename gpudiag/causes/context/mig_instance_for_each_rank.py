"""several processes use parts of a GPU (MIG): each process can use only one part, and sees it as GPU 0

CUDA gives a process one MIG instance, the first that its mask names. A rank that takes the device of its number, as
Horovod's examples do, finds none from the second on. NCCL does not join instances of one GPU.
"""

from __future__ import annotations

import re

from gpudiag.cause import Cause, LogAlone, Match, Matches
from gpudiag.fix import Role, configure, edit_note, nvidia_smi
from gpudiag.knowledge.log_lines import text
from gpudiag.knowledge.message import Worth
from gpudiag.knowledge.origin import Origin
from gpudiag.model.diagnosis import Confidence

CAUSE = Cause(
    fix=(
        nvidia_smi("shows the UUID of each instance: MIG-...", "-L"),
        edit_note(
            "give each rank its own, before TensorFlow is imported: os.environ['CUDA_VISIBLE_DEVICES'] = "
            "UUIDS[int(os.environ['OMPI_COMM_WORLD_LOCAL_RANK'])], and let it use device 0"
        ),
        configure("sudo nvidia-smi -mig 0", "or use whole GPUs, which NCCL can connect", role=Role.ALTERNATIVE),
    ),
    url="https://docs.nvidia.com/datacenter/tesla/mig-user-guide/",
    needs_gpu=False,
)
_MIG = re.compile(r"\bMIG\b(?! M\.)")
_RANKS = re.compile(r"(?i)\b(?:mpirun|mpiexec|horovodrun|horovod|torchrun|srun)\b|MultiWorkerMirroredStrategy")


def find(program: LogAlone, origin: Origin) -> Matches:
    mig = next(filter(_MIG.search, origin.stated.prose), None)
    ranks = next(filter(_RANKS.search, program.lines), None)
    failed = next((event for event in program.events if event.message.worth is Worth.FAULT), None)
    if mig and ranks and failed:
        yield Match(tuple(dict.fromkeys((text(mig), text(ranks), text(failed.line)))), Confidence.LIKELY)
