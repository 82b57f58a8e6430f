"""a GPU is a vGPU of a type that does not support CUDA

A vGPU of NVIDIA's has a type, which the administrator of the hypervisor chooses; the last letter of its name says what
it is for. Types that end with Q and C have CUDA; those that end with A (applications) and B (desktops) draw only.
nvidia-smi shows such a GPU like any other, and cuInit fails with "no CUDA-capable device is detected".
"""

from __future__ import annotations

import re

from gpudiag.cause import Cause, Match, Matches
from gpudiag.causes.shared.gpu_state import GpusInScope, NoneListed, addresses, indices, named
from gpudiag.fix import Kind, check, note

CAUSE = Cause(
    title="{gpu} is a vGPU of a type that does not support CUDA: {name}",
    unfit=True,
    fix=(
        note(
            "in the hypervisor: give the machine a vGPU of a type that ends with C or Q, such as {instead}",
            kind=Kind.ASK_ADMIN,
        ),
        check("nvidia-smi -q -i {index} | grep -i -A 2 virtualization", "shows the type"),
    ),
    url="https://docs.nvidia.com/vgpu/latest/grid-vgpu-user-guide/index.html#cuda-open-cl-support-vgpu",
)
_TYPE = re.compile(r"(?P<type>\S{1,60}-\d{1,9})[AB]$")


def find(gpus: GpusInScope, none: NoneListed) -> Matches:
    drawing = tuple(
        device for device in gpus.whose_state(lambda gpu: gpu.virtualization == "vgpu") if _TYPE.search(device.name)
    )
    if not drawing:
        return
    found = _TYPE.search(drawing[0].name)
    assert found is not None
    yield Match(
        evidence=tuple(f"NVML: GPU {device.index} is {device.name}, virtualization mode: vGPU" for device in drawing),
        figures={
            "gpu": named(drawing),
            "name": drawing[0].name,
            "instead": f"{found['type']}C",
            "index": indices(drawing),
        },
        gpus=addresses(drawing),
    )
