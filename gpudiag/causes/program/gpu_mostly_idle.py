"""a GPU computed nothing most of the time

NVML says in which part of the last moments a GPU computed. If it is idle most of the time, Python or the input pipeline
is too slow for it, not the GPU: data that is prepared in one thread, small batches, values that are read in each step.
"""

from __future__ import annotations

from gpudiag.cause import Cause, Match, Matches
from gpudiag.fix import edit, edit_note
from gpudiag.model.program import ProgramTrace, place
from gpudiag.model.report import Severity

CAUSE = Cause(
    title="GPU {gpu} computed nothing in {share} % of the time",
    severity=Severity.NOTE,
    fix=(
        edit_note(
            "dataset.cache().map(f, num_parallel_calls=tf.data.AUTOTUNE).batch(larger).prefetch(tf.data.AUTOTUNE)"
        ),
        edit("tf.profiler.experimental.start('logs')", "what TensorFlow waits for, in TensorBoard"),
    ),
    url="https://www.tensorflow.org/guide/data_performance",
    needs_gpu=False,
    symptom=True,
)
_MOSTLY = 0.7
_LEAST_S = 30.0
"""The shortest time that is judged: less may be the program's start and the compilation of its functions."""


def find(program: ProgramTrace) -> Matches:
    used = {device.gpu for process in program.processes for device in process.devices if device.peak_bytes}
    for card in program.booked:
        idle, watched = card.idle_s, card.watched_s
        if idle is None or watched < _LEAST_S or idle < _MOSTLY * watched or str(card.index) not in used:
            continue
        slow = [wait for wait in program.waited if wait.seconds >= 0.1 * watched]
        yield Match(
            evidence=(
                f"NVML: idle in {idle:.0f} s of {watched:.0f} since TensorFlow made its devices",
                *(f"{place(wait.line)}: waited {wait.seconds:.0f} s for tf.data" for wait in slow[:3]),
            ),
            figures={"gpu": card.index, "share": f"{100 * idle / watched:.0f}"},
        )
        return
