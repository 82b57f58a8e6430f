"""the program had no GPU, as is said beside the log: {why}

Somebody who asks why TensorFlow finds no GPU often pastes no line that says it, but states what decides: the release,
the system, the Python, the CUDA, the GPU. It counts only if nothing in the log names a fault, and no GPU was made.
"""

from __future__ import annotations

from gpudiag.cause import Cause, LogAlone, Match, Matches
from gpudiag.causes.shared.advice import PIP
from gpudiag.causes.shared.no_gpu import without_gpu
from gpudiag.knowledge.log import recognised
from gpudiag.knowledge.message import Worth
from gpudiag.knowledge.messages.way import DEVICE_CREATED
from gpudiag.knowledge.origin import Origin

CAUSE = Cause(
    fix=("python -c 'import tensorflow as tf; print(tf.__version__, tf.test.is_built_with_cuda())'",),
    url=PIP,
    needs_gpu=False,
    last_resort=True,
)


def find(program: LogAlone, origin: Origin) -> Matches:
    said = origin.stated.complaint
    if said is None or program.first(DEVICE_CREATED):
        return
    if any(one.message.worth in (Worth.HARMLESS, Worth.MISLEADING) for one in recognised(said)):
        return
    why = without_gpu(program, origin)
    stated = origin.stated
    facts = [one.line for one in (stated.tensorflow, stated.system, stated.cuda) if one is not None]
    yield Match((said, *facts[:3]), why.sure, {"why": why.text}, fix=why.fix)
