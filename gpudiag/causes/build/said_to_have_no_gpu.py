"""the program had no GPU, according to the text beside the log

Somebody who asks why TensorFlow finds no GPU often pastes no line that shows it, but states the decisive facts: the
release, the system, the Python, the CUDA, the GPU. It counts only if nothing in the log names a fault, and no GPU was
made.
"""

from __future__ import annotations

from gpudiag.cause import Cause, LogAlone, Match, Matches
from gpudiag.causes.shared.advice import PIP
from gpudiag.causes.shared.no_gpu import without_gpu
from gpudiag.fix import ask
from gpudiag.knowledge.log import recognised
from gpudiag.knowledge.log_lines import text
from gpudiag.knowledge.message import Worth
from gpudiag.knowledge.messages.programs_and_drivers import SMI_TABLE
from gpudiag.knowledge.messages.way import DEVICE_CREATED
from gpudiag.knowledge.origin import Origin
from gpudiag.knowledge.releases import LAST_FOR_WINDOWS

CAUSE = Cause(
    title="the program had no GPU, according to the text beside the log: {why}",
    fix=(ask("python -c 'import tensorflow as tf; print(tf.__version__, tf.test.is_built_with_cuda())'"),),
    url=PIP,
    needs_gpu=False,
    last_resort=True,
)
_FOR_A_GPU = ("tensorflow-gpu", "cudatoolkit", "cudnn")


def find(program: LogAlone, origin: Origin) -> Matches:
    said = origin.stated.complaint or _on_windows(program, origin) or _of_the_list(origin)
    if said is None or origin.is_of_another or program.first(DEVICE_CREATED):
        return
    if any(event.message.worth in (Worth.HARMLESS, Worth.MISLEADING) for event in recognised(said)):
        return
    why = without_gpu(program, origin)
    stated = origin.stated
    facts = [statement.line for statement in (stated.tensorflow, stated.system, stated.cuda) if statement is not None]
    yield Match(tuple(dict.fromkeys((said, *facts[:3]))), why.confidence, {"why": why.text}, fix=why.fix)


def _of_the_list(origin: Origin) -> str | None:
    """Return the line that lists a build without CUDA, if packages that only a GPU needs are listed beside it."""
    stated = origin.stated
    if not stated.is_cpu_build or not any(name in stated.packages for name in _FOR_A_GPU):
        return None
    return next(
        (stated.packages[name].line for name in ("tensorflow", "tensorflow-base") if name in stated.packages), None
    )


def _on_windows(program: LogAlone, origin: Origin) -> str | None:
    """Return the line of a release without GPU support on Windows, if nvidia-smi's table is beside it."""
    stated, smi = origin.stated.tensorflow, program.first(SMI_TABLE)
    if not origin.windows or origin.releases[0] <= LAST_FOR_WINDOWS or smi is None:
        return None
    return stated.line if stated else text(smi.line)
