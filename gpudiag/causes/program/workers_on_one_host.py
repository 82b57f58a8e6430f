"""TF_CONFIG puts several workers on this host, and one takes all its GPUs

Each worker takes nearly all free memory of every GPU that it sees, so the first leaves too little for the next on the
same host: that one runs out of memory, or fails to make a stream or a handle. TF_CONFIG says where the workers are, and
nothing about GPUs; each needs a CUDA_VISIBLE_DEVICES with its own.
"""

from __future__ import annotations

from gpudiag.cause import Cause, Match, Matches
from gpudiag.causes.shared.traced import GROWTH_GUIDE, MOST
from gpudiag.fix import Role, export
from gpudiag.model.diagnosis import Confidence
from gpudiag.model.program import Cluster, ProgramTrace, Setting
from gpudiag.model.program import SettingFate as Fate
from gpudiag.model.report import Severity

CAUSE = Cause(
    title="TF_CONFIG puts {count} workers on this host, and {task} takes all its GPUs",
    severity=Severity.WARNING,
    fix=(
        export("CUDA_VISIBLE_DEVICES", "{index}", "for {task}; another GPU for each of the others"),
        export("TF_FORCE_GPU_ALLOW_GROWTH", "true", "if they are to share the GPUs", role=Role.ALTERNATIVE),
    ),
    url=GROWTH_GUIDE,
    needs_gpu=False,
)
_TRAINING = ("chief", "master", "worker")


def find(program: ProgramTrace) -> Matches:
    if len(program.clusters) != 1:
        return  # two processes of the cluster were traced: what they share is seen
    (cluster,) = program.clusters
    process = next((candidate for candidate in program.processes if candidate.pid == cluster.process), None)
    beside = _on_this_host(cluster)
    gpus = {device.gpu for device in process.devices if device.gpu} if process else set()
    if not process or len(beside) < 2 or not gpus or {str(card.index) for card in program.booked} - gpus:
        return
    if any(_may_grow(setting) for setting in program.settings):
        return
    mask = "is not set" if process.mask is None else repr(process.mask)
    yield Match(
        evidence=(
            f"TF_CONFIG: {', '.join(beside[:MOST])} at {_host(cluster.address)}",
            f"{cluster.task}: CUDA_VISIBLE_DEVICES {mask}, and it has GPU {', '.join(sorted(gpus))}",
        ),
        confidence=Confidence.LIKELY,
        figures={"count": len(beside), "task": cluster.task, "index": beside.index(cluster.task)},
    )


def _may_grow(setting: Setting) -> bool:
    by_session = setting.what == "session" and setting.value.startswith("allow_growth")
    is_growth = by_session or setting.what in ("memory_growth", "TF_FORCE_GPU_ALLOW_GROWTH")
    return is_growth and setting.fate in (Fate.TOOK_EFFECT, Fate.NOT_CHECKED)


def _on_this_host(cluster: Cluster) -> list[str]:
    """Return the workers that have the host of this one, in the order of their numbers."""
    tasks = [(cluster.task, cluster.address), *((peer.task, peer.address) for peer in cluster.peers)]
    host = _host(cluster.address)
    here = [task for task, address in tasks if host and _host(address) == host and task.startswith(_TRAINING)]
    return sorted(here, key=lambda task: (task.partition(" ")[0], int(task.rpartition(" ")[2])))


def _host(address: str) -> str:
    host = address.rpartition(":")[0]
    return "localhost" if host == "127.0.0.1" else host
