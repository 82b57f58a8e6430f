"""XLA does not support Apple's GPU

Keras 2.11 to 2.15 compiles the step of its optimizers with XLA, and so does jit_compile=True. XLA has compilers for
CUDA and ROCm, and Apple's plug-in tensorflow-metal brings none.
"""

from __future__ import annotations

from gpudiag.cause import Cause, LogAlone, Match, Matches
from gpudiag.fix import edit, edit_note, install
from gpudiag.knowledge.messages.runtime import NO_XLA_COMPILER, PLATFORM_MISSING
from gpudiag.knowledge.origin import Origin
from gpudiag.model.diagnosis import Confidence

CAUSE = Cause(
    title="XLA does not support Apple's GPU: {what}",
    fix=(
        edit("tf.keras.optimizers.legacy.Adam(...)", "use the legacy optimizer of the same name: it runs without XLA"),
        edit_note("call model.compile with jit_compile=False"),
        install(
            "tensorflow==2.18",
            "tensorflow-metal==1.2.0",
            note="or install a pair whose Keras 3 does not use XLA on a Mac",
        ),
    ),
    url="https://developer.apple.com/metal/tensorflow-plugin/",
    needs_gpu=False,
)


def find(program: LogAlone, origin: Origin) -> Matches:
    said = program.said(PLATFORM_MISSING, NO_XLA_COMPILER)
    # Keras' optimizer asks for the platform of the GPU's plug-in by its address; XLA's own are asked for by name.
    of_plugin = not origin.linux and any("platform with id" in line and "_step_xla_" in line for line in said)
    if said and (origin.mac or of_plugin):
        confidence = Confidence.LIKELY if origin.mac else Confidence.POSSIBLE
        yield Match(said, confidence, {"what": "the optimizer asks for it, most likely"})
