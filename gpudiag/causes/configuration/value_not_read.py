"""{name}={value!r} has no effect, only {read} are read: {instead}

CUDA and TensorFlow compare the values of these variables with a few words and ignore every other value without a
message. For TF_FORCE_GPU_ALLOW_GROWTH and TF_GPU_ALLOCATOR see the causes `growth_not_read` and `allocator_not_known`:
they decide over memory, and the value that was meant is tried.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from gpudiag.cause import Cause, Match, Matches, Variables
from gpudiag.causes.shared.visibility import names_gpus
from gpudiag.model.report import Severity

CAUSE = Cause(
    severity=Severity.WARNING,
    fix=("{right}",),
    url="https://docs.nvidia.com/cuda/cuda-c-programming-guide/#cuda-environment-variables",
    needs_gpu=False,
    shown={"right": "export CUDA_DEVICE_ORDER=PCI_BUS_ID"},
    finding="host.environment.value_ignored",
    row_only=True,
)


class _Values(NamedTuple):
    pattern: str
    """What matches a value that is read."""
    read: str
    instead: str
    """What happens with every other."""
    right: str


_READ = {
    # The first two by the CUDA Programming Guide (CUDA Environment Variables), the third measured with 2.21.
    "CUDA_DEVICE_ORDER": _Values(
        "(?:FASTEST_FIRST|PCI_BUS_ID)$",
        "FASTEST_FIRST and PCI_BUS_ID",
        "expect the fastest GPU first, as without it",
        "export CUDA_DEVICE_ORDER=PCI_BUS_ID",
    ),
    "CUDA_MODULE_LOADING": _Values(
        "(?:DEFAULT|LAZY|EAGER)$",
        "DEFAULT, LAZY and EAGER",
        "expect the default, as without it",
        "unset CUDA_MODULE_LOADING",
    ),
    "CUDA_LAUNCH_BLOCKING": _Values(
        "[01]$",
        "0 and 1",
        "kernels may run asynchronously, and errors show at a later operation",
        "export CUDA_LAUNCH_BLOCKING=1",
    ),
    "TF_CPP_MIN_LOG_LEVEL": _Values(
        r"\s*[+-]?\d",
        "whole numbers, 0 to 3,",
        "TensorFlow reads 0 and hides nothing",
        "export TF_CPP_MIN_LOG_LEVEL=1  # hides lines at level I",
    ),
}


def find(variables: Variables) -> Matches:
    for name, one in _READ.items():
        value = variables.get(name, "")
        if value and not re.match(one.pattern, value):
            yield Match(
                evidence=(f"{name}={value!r}",),
                figures={
                    "name": name,
                    "value": value,
                    "read": one.read,
                    "instead": one.instead,
                    # GPUs are chosen by another variable: device_order_names_gpus says so.
                    "right": f"unset {name}" if name == "CUDA_DEVICE_ORDER" and names_gpus(value) else one.right,
                },
            )
