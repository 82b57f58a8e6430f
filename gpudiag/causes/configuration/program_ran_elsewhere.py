"""the program that wrote the log could not use a GPU, but TensorFlow started from here can

A log is of the process that wrote it: of another container, virtual environment, job or service, with other variables,
or of another day. A program can also hide the GPU from itself, with os.environ before its first use of TensorFlow.
"""

from __future__ import annotations

from gpudiag.cause import Cause, Match, Matches, Program
from gpudiag.causes.shared.configuration import WITHOUT_GPU, listed_here
from gpudiag.fix import ask, edit_note, note
from gpudiag.model.diagnosis import Confidence
from gpudiag.model.report import Severity
from gpudiag.probes.discovery import trace

CAUSE = Cause(
    severity=Severity.WARNING,
    fix=(
        note("run gpudiag where and as the program runs, in its container, job or service, by its interpreter:"),
        ask("python -m gpudiag check"),
        edit_note(
            "look for os.environ['CUDA_VISIBLE_DEVICES'] and TF_ENABLED_DEVICE_TYPES in the program and its start"
        ),
    ),
    url="https://www.tensorflow.org/guide/gpu#setup",
)


def find(program: Program, traced: trace.Reading) -> Matches:
    said = program.said(*WITHOUT_GPU)
    if said and traced.listed:
        yield Match(evidence=(*said, *listed_here(traced)), confidence=Confidence.LIKELY)
