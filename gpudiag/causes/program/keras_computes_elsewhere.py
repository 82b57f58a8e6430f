"""Keras computes with another backend: its models use nothing of TensorFlow's devices and settings

KERAS_BACKEND, or ~/.keras/keras.json, chooses what Keras 3 computes with. With another backend tf.config, tf.device and
TensorFlow's variables of the environment change nothing for a model, and its operations are not in this report.
"""

from __future__ import annotations

from gpudiag.cause import Cause, Match, Matches
from gpudiag.fix import export
from gpudiag.model.program import ProgramTrace
from gpudiag.model.report import Severity

CAUSE = Cause(
    title="Keras computes with {backend}: its models use nothing of TensorFlow's devices and settings",
    severity=Severity.NOTE,
    fix=(export("KERAS_BACKEND", "tensorflow"),),
    url="https://keras.io/getting_started/#configuring-your-backend",
    needs_gpu=False,
    symptom=True,
)


def find(program: ProgramTrace) -> Matches:
    for process in program.processes:
        if process.keras_backend:
            yield Match(
                evidence=(f"process {process.pid}: keras.config.backend() is {process.keras_backend!r}",),
                figures={"backend": process.keras_backend},
            )
            return
