"""{gpu} is divided into vGPUs for virtual machines here, and on the host itself it has no CUDA

The driver of a hypervisor (its package is called vgpu-kvm) serves the virtual machines alone. It
brings nvidia-smi and NVML, which show the GPU, and no libcuda.so.1; programs on the host find no CUDA.
"""

from __future__ import annotations

from gpudiag.cause import Cause, Evidence, Match, Matches
from gpudiag.causes.shared.gpu_state import lists_none, named, with_state
from gpudiag.causes.shared.machine import parts
from gpudiag.model.diagnosis import Stage

CAUSE = Cause(
    fix=(
        "# run the program in a virtual machine that has a vGPU, or is given the whole GPU (passed through)",
        "# or, if no virtual machine uses it, replace the vGPU manager by the ordinary driver: {url}",
    ),
    url="https://docs.nvidia.com/vgpu/latest/grid-vgpu-user-guide/index.html",
    shown={"url": "https://docs.nvidia.com/datacenter/tesla/driver-installation-guide/"},
)


def find(evidence: Evidence) -> Matches:
    hosts = with_state(evidence, lambda one: one.virtualization in ("host_vgpu", "host_vsga"))
    known = parts(evidence.facts)
    if not hosts or known is None or not lists_none(evidence):
        return
    yield Match(
        evidence=(
            *(f"NVML: GPU {device.index}, virtualization mode: {device.state.virtualization}" for device in hosts),
            f"libcuda.so.1: {known[0].libcuda_path or known[0].libcuda_error}",
        ),
        figures={"gpu": named(hosts), "url": "https://docs.nvidia.com/datacenter/tesla/driver-installation-guide/"},
        stage=Stage.DRIVER_LIBRARY if known[0].libcuda_path is None else Stage.DRIVER,
    )
