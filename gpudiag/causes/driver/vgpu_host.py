"""a GPU is divided into vGPUs for virtual machines, so CUDA cannot use it on the host

The driver of a hypervisor (its package is called vgpu-kvm) serves the virtual machines alone. It brings nvidia-smi and
NVML, which show the GPU, and no libcuda.so.1; programs on the host find no CUDA.
"""

from __future__ import annotations

from gpudiag.cause import Cause, Match, Matches
from gpudiag.causes.shared.gpu_state import GpusInScope, NoneListed, addresses, named
from gpudiag.causes.shared.machine import WholeDriver
from gpudiag.fix import Kind, note
from gpudiag.model.diagnosis import Stage

CAUSE = Cause(
    title="{gpu} is divided into vGPUs for virtual machines, so CUDA cannot use it on the host",
    unfit=True,
    fix=(
        note("run the program in a virtual machine that has a vGPU, or is given the whole GPU (passed through)"),
        note(
            "or, if no virtual machine uses it, replace the vGPU manager by the ordinary driver: {url}",
            kind=Kind.CHANGE_DRIVER,
        ),
    ),
    url="https://docs.nvidia.com/vgpu/latest/grid-vgpu-user-guide/index.html",
    views=("host.driver.no_libcuda",),
)


def find(whole: WholeDriver, gpus: GpusInScope, none: NoneListed) -> Matches:
    hosts = gpus.whose_state(lambda gpu: gpu.virtualization in ("host_vgpu", "host_vsga"))
    if not hosts:
        return
    yield Match(
        evidence=(
            *(f"NVML: GPU {device.index}, virtualization mode: {device.state.virtualization}" for device in hosts),
            f"libcuda.so.1: {whole.driver.libcuda_path or whole.driver.libcuda_error}",
        ),
        figures={"gpu": named(hosts), "url": "https://docs.nvidia.com/datacenter/tesla/driver-installation-guide/"},
        stage=Stage.DRIVER_LIBRARY if whole.driver.libcuda_path is None else Stage.DRIVER,
        gpus=addresses(hosts),
    )
