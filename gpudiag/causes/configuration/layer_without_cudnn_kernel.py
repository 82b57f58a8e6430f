"""an argument keeps a recurrent layer from cuDNN's kernel, which is several times as fast

cuDNN supports LSTM and GRU layers only with their usual arguments: activation tanh, recurrent_activation sigmoid, no
recurrent_dropout, not unrolled, with bias, reset_after of the GRU. With other arguments TensorFlow uses a general,
slower kernel.
"""

from __future__ import annotations

import re

from gpudiag.cause import Cause, Match, Matches, Program
from gpudiag.fix import edit_note
from gpudiag.knowledge.messages.notices import NO_CUDNN_KERNEL
from gpudiag.model.diagnosis import Confidence
from gpudiag.model.report import Severity

CAUSE = Cause(
    title="a recurrent layer cannot use cuDNN's kernel, which is several times as fast, because of {argument}",
    severity=Severity.WARNING,
    fix=(edit_note("remove {argument}; instead of recurrent_dropout use dropout, or Dropout layers in between"),),
    url="https://www.tensorflow.org/api_docs/python/tf/keras/layers/LSTM",
    needs_gpu=False,
)
_ARGUMENT = re.compile(
    r"\b(?:recurrent_dropout ?= ?(?:0?\.\d*[1-9]|[1-9])[\d.]*|unroll ?= ?True|use_bias ?= ?False|reset_after ?= ?False|"
    r"recurrent_activation ?= ?['\"](?!sigmoid)\w+['\"]|(?<!_)activation ?= ?['\"](?!tanh)\w+['\"])"
)
_LAYER = re.compile(r"\b(?:LSTM|GRU)\(")


def find(program: Program) -> Matches:
    said = program.said(NO_CUDNN_KERNEL, most=1)
    code = next(
        ((argument[0], line) for line in program.lines if _LAYER.search(line) and (argument := _ARGUMENT.search(line))),
        None,
    )
    if said and code:
        yield Match((code[1].strip(), *said), Confidence.LIKELY, {"argument": code[0]})
