"""CUDA_CACHE_DISABLE is set: every start of TensorFlow compiles its kernels for the GPU again

The wheel has no machine code for this GPU, only PTX, which the driver compiles at the first use of each kernel.
That can take up to 30 minutes. The driver keeps the result in ~/.nv/ComputeCache, and the next start takes seconds, but
not with this variable. Images and clusters set it because home folders are small or shared.
"""

from __future__ import annotations

from gpudiag.cause import Cause, Match, Matches, Variables
from gpudiag.fix import export, unset
from gpudiag.knowledge.cuda_code import code_for
from gpudiag.model.facts import Facts, TensorflowFacts
from gpudiag.model.report import Severity
from gpudiag.model.visibility import gpus_in_scope

CAUSE = Cause(
    title="CUDA_CACHE_DISABLE={value}: every start of TensorFlow compiles its kernels for {name} again",
    severity=Severity.WARNING,
    fix=(
        unset("CUDA_CACHE_DISABLE"),
        export("CUDA_CACHE_PATH", "/tmp/nv-cache", "if the home folder is the reason, set any folder that is kept"),  # noqa: S108
        export("CUDA_CACHE_MAXSIZE", "4294967296", "makes room for all kernels (in bytes)"),
    ),
    url="https://docs.nvidia.com/cuda/cuda-c-programming-guide/#cuda-environment-variables",
)
_VARIABLE = "CUDA_CACHE_DISABLE"


def find(variables: Variables, facts: Facts, installed: TensorflowFacts) -> Matches:
    value = variables.get(_VARIABLE, "")
    if value.strip() != "1" or installed.build is None or not installed.build.compute_capabilities:
        return
    built = installed.build.compute_capabilities
    chosen = {gpu.pci_bus_id for gpu in gpus_in_scope(facts)}
    for device in facts.nvml_devices:
        capability = device.compute_capability
        if device.pci_bus_id in chosen and capability and code_for(capability, built) == (False, True):
            yield Match(
                evidence=(
                    f"{_VARIABLE}={value}",
                    f"{device.name} has compute capability {capability}; TensorFlow has code for {', '.join(built)}",
                ),
                figures={"value": value, "name": device.name},
                tried=CAUSE.fix[0],
            )
            return
