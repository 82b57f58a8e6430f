"""CUDA_VISIBLE_DEVICES={value!r} hides every GPU: {entry!r} is not the number or the UUID of one

The CUDA driver reads the list up to the first entry that names no GPU. cuda:0, gpu:0 and [0] are names of other
libraries, so the list is empty, and TensorFlow runs on the CPU. Nothing is said.

Bad
    import os

    os.environ["CUDA_VISIBLE_DEVICES"] = "cuda:0"
    import tensorflow as tf

Good
    import os

    os.environ.setdefault("CUDA_VISIBLE_DEVICES", "0")
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
    severity=Severity.FAIL,
    advice="write the numbers alone: {instead}; to hide every GPU: '-1'",
    words=(MASK,),
    url="https://docs.nvidia.com/cuda/cuda-c-programming-guide/#cuda-environment-variables",
    cause="mask_hides_all",
)
_MEANT_TO_HIDE = re.compile(
    r"\s{0,40}(?:-\d{1,9}|none|null|cpu|no\w{0,40}|void|false|off|['\"]{0,8})\s{0,40}\Z", re.IGNORECASE
)


def find(program: Program) -> Matches:
    for event in masks(program):
        value = event.value.value if isinstance(event.value, Const) else None
        if isinstance(value, str) and not entries(event.value) and not _MEANT_TO_HIDE.match(value.split(",")[0]):
            numbers = re.findall(r"\d+", value)
            figures = {"value": value, "entry": value.split(",")[0], "instead": repr(",".join(numbers) or "0")}
            yield Match(event, figures, node=event.value_node)
