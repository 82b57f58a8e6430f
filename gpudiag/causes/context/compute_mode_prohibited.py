"""a GPU is closed to all programs (compute mode prohibited)

An administrator can close a GPU to CUDA, for instance the one that drives the screens. TensorFlow lists it all the
same, and fails when it creates its devices, on all GPUs: "device(s) is/are busy or unavailable".
"""

from __future__ import annotations

from gpudiag.cause import Cause, Match, Matches
from gpudiag.causes.shared.devices import ChosenGpus, SaidToBeBusy
from gpudiag.causes.shared.gpu_state import addresses
from gpudiag.fix import Role, configure, note

CAUSE = Cause(
    title="GPU {index} is closed to all programs (compute mode prohibited)",
    unfit=True,
    fix=(
        note("there is no other GPU to choose here"),
        configure("sudo nvidia-smi -i {index} -c 0", "opens it", role=Role.ALTERNATIVE),
    ),
    url="https://docs.nvidia.com/deploy/nvidia-smi/index.html",
)


def find(gpus: ChosenGpus, busy: SaidToBeBusy | None) -> Matches:
    shut = [gpu for gpu, device in gpus.by_nvml if device.compute_mode == "prohibited"]
    if not shut:
        return
    other = gpus.without(shut)
    yield Match(
        evidence=(
            *(f"GPU {gpu.index} ({gpu.name}): compute mode prohibited" for gpu in shut),
            *([busy.text] if busy else []),
        ),
        figures={"index": shut[0].index},
        fix=(other, CAUSE.fix[1]),
        tried=other,
        gpus=addresses(shut),
    )
