"""CUDA_DEVICE_ORDER selects no GPU: probably CUDA_VISIBLE_DEVICES is meant

CUDA_DEVICE_ORDER says in which order CUDA counts the GPUs, FASTEST_FIRST or PCI_BUS_ID, and CUDA ignores every other
value without a message. Which GPUs a program sees is CUDA_VISIBLE_DEVICES: until that is set it uses all of them.
"""

from __future__ import annotations

from gpudiag.cause import Cause, Match, Matches
from gpudiag.causes.shared.visibility import MASK, PROGRAMMING_GUIDE, names_gpus
from gpudiag.fix import export, unset
from gpudiag.model.facts import Facts
from gpudiag.model.report import Severity

CAUSE = Cause(
    title="CUDA_DEVICE_ORDER={value!r} selects no GPU: probably CUDA_VISIBLE_DEVICES is meant",
    severity=Severity.WARNING,
    fix=(export("CUDA_VISIBLE_DEVICES", "{value}"), unset("CUDA_DEVICE_ORDER")),
    url=PROGRAMMING_GUIDE,
)
_ORDER = "CUDA_DEVICE_ORDER"


def find(facts: Facts) -> Matches:
    value = facts.variables.get(_ORDER, "").strip()
    if MASK not in facts.variables and len(facts.nvml_devices) > 1 and names_gpus(value):
        yield Match(
            evidence=(
                f"{_ORDER}={value!r}, {MASK} is not set",
                f"every one of the {len(facts.nvml_devices)} GPUs is used",
            ),
            figures={"value": value},
            about=(_ORDER,),
            tried=CAUSE.fix[0],
        )
