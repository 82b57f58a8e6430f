"""GPU {index} lets no program compute (compute mode prohibited)

An administrator can close a GPU to CUDA, for instance the one that drives the screens. TensorFlow lists it all the
same, and fails when it creates its devices, on all GPUs: "device(s) is/are busy or unavailable".
"""

from __future__ import annotations

from gpudiag.cause import Cause, Evidence, Match, Matches
from gpudiag.causes.shared.devices import choose_others, said_to_be_busy
from gpudiag.causes.shared.machine import gpus_by_nvml

CAUSE = Cause(
    fix=("{other}", "sudo nvidia-smi -i {index} -c 0  # or: opens it"),
    url="https://docs.nvidia.com/deploy/nvidia-smi/index.html",
    shown={"other": "# there is no other GPU to choose here"},
)


def find(evidence: Evidence) -> Matches:
    shut = [gpu for gpu, device in gpus_by_nvml(evidence) if device.compute_mode == "prohibited"]
    if not shut:
        return
    other, change = choose_others(evidence, shut)
    words = said_to_be_busy(evidence)
    yield Match(
        evidence=(
            *(f"GPU {gpu.index} ({gpu.name}): compute mode prohibited" for gpu in shut),
            *([words] if words else []),
        ),
        figures={"index": shut[0].index, "other": other},
        change=change,
    )
