"""the TensorFlow that ran the program had no GPU

"available devices are [CPU:0]" and an empty list of GPUs are consequences, not the cause. If no line above says what is
missing, it is most often a TensorFlow without GPU support: `tensorflow` before 2.1 (`tensorflow-gpu` had it),
`tensorflow-cpu`, 2.11 and newer on Windows, or one of conda that was chosen for a machine without GPU.
"""

from __future__ import annotations

import re

from gpudiag.cause import Cause, LogAlone, Match, Matches
from gpudiag.causes.shared.advice import PIP
from gpudiag.causes.shared.no_gpu import WINDOWS, of_xla_alone, without_gpu
from gpudiag.fix import ask, edit
from gpudiag.knowledge.log_lines import Log, lists_no_gpu
from gpudiag.knowledge.messages.placement import (
    DEVICE_NOT_AVAILABLE,
    DEVICE_NOT_SATISFIED,
    NEEDS_GPU,
    REGISTERED_DEVICES,
)
from gpudiag.knowledge.messages.programs_and_drivers import NO_GPU_LISTED, NO_WINDOWS_GPU
from gpudiag.knowledge.messages.runtime import MULTI_GPU_MODEL
from gpudiag.knowledge.origin import Origin
from gpudiag.knowledge.placement import has_gpu
from gpudiag.model.diagnosis import Confidence, Stage

_SOFT = edit(
    "tf.config.set_soft_device_placement(True)",
    "runs it on the CPU; in TensorFlow 1: tf.ConfigProto(allow_soft_placement=True) for the session",
)
CAUSE = Cause(
    title="the TensorFlow that ran the program had no GPU: {why}",
    fix=(ask("python -c 'import tensorflow as tf; print(tf.__version__, tf.test.is_built_with_cuda())'"),),
    url=PIP,
    needs_gpu=False,
    symptom=True,
)


def find(program: LogAlone, origin: Origin) -> Matches:
    refused = [
        event for event in program.all(DEVICE_NOT_AVAILABLE, DEVICE_NOT_SATISFIED) if "CPU" in event["devices"].upper()
    ]
    refused = [event for event in refused if not has_gpu(event["devices"])]
    said = Log(event.line for event in refused).said(DEVICE_NOT_AVAILABLE, DEVICE_NOT_SATISFIED)
    windows = program.said(NO_WINDOWS_GPU)
    listed = program.said(NO_GPU_LISTED) or lists_no_gpu(program.lines)
    # cuDNN's operations are on GPUs alone; Keras names the devices that it found.
    registered = re.findall(r"(?<![\w])GPU", " ".join(event["devices"] for event in program.all(REGISTERED_DEVICES)))
    needed = () if registered else program.said(NEEDS_GPU)
    needed = needed or tuple(event.text for event in program.all(MULTI_GPU_MODEL) if _has_xla_alone(event.line))
    if not (said or windows or listed or needed):
        return
    if windows:
        yield Match((*windows, *said, *listed)[:3], Confidence.PROVED, {"why": WINDOWS.text}, fix=WINDOWS.fix)
    elif any("XLA_GPU" in event["devices"].upper() for event in refused):
        why = of_xla_alone(origin)
        yield Match(said, why.confidence, {"why": why.text}, fix=why.fix)
    else:
        why = without_gpu(program, origin)
        soft = (_SOFT,) if refused else ()
        shown = (*said, *needed, *listed)[:3]
        yield Match(shown, why.confidence, {"why": why.text}, fix=(*why.fix, *soft), stage=Stage.DEVICE_COUNT)


def _has_xla_alone(line: str) -> bool:
    """Return whether the devices that Keras lists are GPUs of XLA, and none of TensorFlow's."""
    has = line.partition("only has: [")[2].partition("]")[0]
    return "'/xla_gpu:" in has and "'/gpu:" not in has
