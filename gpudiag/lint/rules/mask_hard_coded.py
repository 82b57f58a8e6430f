"""CUDA_VISIBLE_DEVICES={value!r} replaces the mask that a launcher or the shell has given

Slurm, Kubernetes and other launchers give a program its GPUs by this variable. A value in the program takes it other
GPUs than its own, or none if the machine has fewer; the user's own setting in the shell is lost as well.

Bad
    import os

    os.environ["CUDA_VISIBLE_DEVICES"] = "1"
    import tensorflow as tf

Good
    import os

    os.environ.setdefault("CUDA_VISIBLE_DEVICES", "1")
    import tensorflow as tf
"""

from __future__ import annotations

import re

from gpudiag.lint.program import Program
from gpudiag.lint.rule import Match, Matches, Rule
from gpudiag.lint.settings import MASK, entries, masks
from gpudiag.lint.values import Const
from gpudiag.model.report import Severity

RULE = Rule(
    severity=Severity.NOTE,
    advice="os.environ.setdefault('CUDA_VISIBLE_DEVICES', {value!r}), or set it in the shell",
    words=(MASK,),
    url="https://docs.nvidia.com/cuda/cuda-c-programming-guide/#cuda-environment-variables",
    cause="mask_outside_the_allocation",
)


_KEEPS = re.compile(rf"environ\.get\(\s*['\"]{MASK}|environ\.copy\(|environ\.pop\(\s*['\"]{MASK}")
"""In a function that sets it for a while, and puts it back."""


def find(program: Program) -> Matches:
    for event in masks(program):
        if event.functions and _KEEPS.search(event.functions[-1].text):
            continue
        if (
            event.how in ("=", "update", "putenv")
            and isinstance(event.value, Const)
            and not event.value.assumed
            and entries(event.value)
        ):
            yield Match(event, {"value": event.value.value})
