"""this cuDNN has no code for the GPU, which is too old for it: convolutions fail

cuDNN 9.10 is the last with code for Maxwell, Pascal and Volta (compute capability below 7.5). TensorFlow asks for
cuDNN 9.3 or any later 9, so that pip takes the newest. The GPU is listed and matrix products work; convolutions and
recurrent layers fail, with CUDNN_STATUS_EXECUTION_FAILED, "no kernel image" or "No algorithm worked".
"""

from __future__ import annotations

import re

from gpudiag.cause import Cause, Match, Matches
from gpudiag.causes.shared.devices import ChosenGpus
from gpudiag.fix import ask, install, note
from gpudiag.model.diagnosis import Confidence
from gpudiag.model.facts import TensorflowFacts
from gpudiag.model.report import Severity
from gpudiag.probes.discovery import physical_devices

CAUSE = Cause(
    title="cuDNN {version} has no code for {name} (compute capability {capability}): convolutions fail",
    unfit=True,
    severity=Severity.WARNING,
    fix=(install("{package}>=9.3,<9.11"), ask("pip check", "shows whether another package requires a newer one")),
    url="https://docs.nvidia.com/deeplearning/cudnn/backend/v9.11.0/reference/support-matrix.html",
)
_LAST_CUDNN = (9, 10)
"""The last cuDNN with code for Maxwell, Pascal and Volta (NVIDIA's support matrices of 9.10 and 9.11)."""
_TURING = (7, 5)


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", version)[:2])


def find(gpus: ChosenGpus, installed: TensorflowFacts | None) -> Matches:
    readings = gpus.rows.readings("discovery.physical_devices", physical_devices.Reading)
    loaded = next((reading.cudnn for reading in readings if reading.cudnn), None)
    companions = () if installed is None else installed.companions
    by_pip = next(
        (distribution for distribution in companions if distribution.name.startswith("nvidia-cudnn-cu")), None
    )
    version = loaded or (by_pip.version if by_pip else None)
    if version is None or _numbers(version) <= _LAST_CUDNN:
        return
    old = [
        (gpu, device.compute_capability)
        for gpu, device in gpus.by_nvml
        if device.compute_capability is not None and _numbers(device.compute_capability) < _TURING
    ]
    if not old:
        return
    strange = loaded and by_pip and not by_pip.version.startswith(loaded)
    yield Match(
        evidence=(
            *(f"GPU {gpu.index} ({gpu.name}): compute capability {capability}" for gpu, capability in old),
            f"cuDNN {loaded} is loaded" if loaded else f"cuDNN {version} is installed",
            *([f"{by_pip.name} {by_pip.version} in {by_pip.location}"] if by_pip else []),
        ),
        confidence=Confidence.PROVED if loaded else Confidence.LIKELY,
        figures={
            "name": old[0][0].name,
            "capability": old[0][1],
            "version": version,
            "package": by_pip.name if by_pip else "nvidia-cudnn-cu12",
        },
        fix=(
            CAUSE.fix[0],
            note("remove the other cuDNN, which is loaded instead, from LD_LIBRARY_PATH")
            if strange or (loaded and not by_pip)
            else ask("pip check", "shows whether another package requires a newer one"),
        ),
        gpus=tuple(gpu.pci_bus_id for gpu, _ in old),
    )
