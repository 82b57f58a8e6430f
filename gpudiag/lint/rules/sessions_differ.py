"""two sessions set the options of the GPUs differently: the first one decides

The GPU devices of a process are made once, by its first session. Other values of per_process_gpu_memory_fraction and
allow_growth in a later session are ignored. A visible_device_list that gives a number to another GPU than before raises
AlreadyExistsError ('0' and then '1'); one that adds GPUs behind the first does not ('0' and then '0,1': 2.21, simulated
GPUs). To close the first session does not help.

Bad
    import tensorflow.compat.v1 as tf

    one = tf.Session(config=tf.ConfigProto(gpu_options=tf.GPUOptions(per_process_gpu_memory_fraction=0.3)))
    two = tf.Session(config=tf.ConfigProto(gpu_options=tf.GPUOptions(per_process_gpu_memory_fraction=0.6)))

Good
    import tensorflow.compat.v1 as tf

    config = tf.ConfigProto(gpu_options=tf.GPUOptions(per_process_gpu_memory_fraction=0.9))
    one = tf.Session(config=config)
    two = tf.Session(config=config)
"""

from __future__ import annotations

from gpudiag.fix import edit_note
from gpudiag.lint.program import Call, LintedProgram, ProgramEvent
from gpudiag.lint.rule import Matches, Rule, Violation
from gpudiag.lint.settings import different_options, is_local
from gpudiag.model.report import Severity

RULE = Rule(
    message="this session sets {options} otherwise than the session of {place}, and {happens}",
    severity=Severity.WARNING,
    fix=(edit_note("give all sessions of a process the same GPU options, or run one process for each GPU"),),
    words=("Session",),
    also=("GPUOptions", "gpu_options"),
    url="https://github.com/tensorflow/tensorflow/issues/19083",
)


def find(program: LintedProgram) -> Matches:
    for event in program.calls("Session"):
        first = _first(event)
        if first is not None and is_local(event.made) and (options := different_options(first.made, event.made)):
            raises = "visible_device_list" in options
            happens = "AlreadyExistsError is raised" if raises else "TensorFlow keeps the first"
            figures = {"options": " and ".join(options), "place": first.place(program), "happens": happens}
            yield Violation(event, figures)


def _first(event: ProgramEvent) -> Call | None:
    """Return the first session that was surely made before."""
    found = None
    for earlier in event.history():
        if isinstance(earlier, Call) and earlier.api == "Session" and is_local(earlier.made):
            found = earlier
    return found
