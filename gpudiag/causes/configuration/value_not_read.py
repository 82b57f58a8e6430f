"""a variable has no effect: its value is not one of those that are read

CUDA and TensorFlow compare the values of these variables with a few words and ignore every other value without a
message. For TF_FORCE_GPU_ALLOW_GROWTH and TF_GPU_ALLOCATOR see the causes `growth_not_read` and `allocator_not_known`:
they decide over memory, and the value that was meant is tried.
"""

from __future__ import annotations

from gpudiag.cause import Cause, Match, Matches, Variables
from gpudiag.causes.shared.visibility import names_gpus
from gpudiag.fix import export, unset
from gpudiag.knowledge.variables import ACCEPTED, DEVICE_ORDER, LOG_LEVEL
from gpudiag.model.report import Severity

CAUSE = Cause(
    title="{name}={value!r} has no effect, {read}: {instead}",
    severity=Severity.WARNING,
    fix=(export("CUDA_DEVICE_ORDER", "PCI_BUS_ID"),),
    url="https://docs.nvidia.com/cuda/cuda-c-programming-guide/#cuda-environment-variables",
    finding="host.environment.value_ignored",
    row_only=True,
)

_JUDGED = (DEVICE_ORDER, "CUDA_MODULE_LOADING", "CUDA_LAUNCH_BLOCKING", LOG_LEVEL)
"""Variables judged here; for the others, a value that is not read is a cause of its own."""


def find(variables: Variables) -> Matches:
    for name in _JUDGED:
        accepted, value = ACCEPTED[name], variables.get(name, "")
        if not accepted.reads(value):
            meant = accepted.meant_by(value) or accepted.usual
            if name == DEVICE_ORDER and names_gpus(value):  # device_order_names_gpus says which variable chooses them
                meant = None
            yield Match(
                evidence=(f"{name}={value!r}",),
                figures={"name": name, "value": value, "read": accepted.read, "instead": accepted.otherwise},
                fix=(export(name, meant) if meant else unset(name),),
            )
