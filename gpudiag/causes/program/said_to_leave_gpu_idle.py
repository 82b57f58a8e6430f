"""the GPU waits for the program, as is said: {why}

TensorFlow has its GPU, no line names a fault, and somebody says that it is used little. Then data come too slowly: they
are read and prepared in one thread, batches are small, or several GPUs are fed by one process. More GPUs make it worse.
"""

from __future__ import annotations

import re

from gpudiag.cause import Cause, LogAlone, Match, Matches
from gpudiag.knowledge.log_lines import text
from gpudiag.knowledge.messages.way import DEVICE_CREATED
from gpudiag.knowledge.origin import Origin
from gpudiag.model.diagnosis import Confidence
from gpudiag.text import counted

CAUSE = Cause(
    fix=(
        "# dataset.map(f, num_parallel_calls=tf.data.AUTOTUNE).batch(larger).prefetch(tf.data.AUTOTUNE)",
        "tf.profiler.experimental.start('logs')  # shows in TensorBoard what it waits for",
    ),
    url="https://www.tensorflow.org/guide/data_performance",
    last_resort=True,
    needs_gpu=False,
)
_IDLE = re.compile(
    r"(?i)\b(?:low|little|poor|bad|no|zero|0 ?%) (?:\w{1,12} )?gpu[- ](?:util|us)\w*|"
    r"\bgpu[- ](?:util|us)\w* (?:is |was |of |at |stays |only |very |too |always |around |about |~ ?){0,3}"
    r"(?:low|small|poor|\d ?%|1\d ?%|zero)|"
    r"\bgpus? (?:is |are |stays? )?(?:mostly |almost |nearly )?(?:idle|not fully used|under-?utili[sz]ed)"
)
_ONE = "CUDA_VISIBLE_DEVICES=0 python program.py  # one GPU is enough, as long as one process feeds them"


def find(program: LogAlone, origin: Origin) -> Matches:
    said = next((line for line in origin.stated.prose if _IDLE.search(line)), None)
    gpus = {event["number"] for event in program.all(DEVICE_CREATED)}
    if said is None or not gpus:
        return
    highest = max(int(one) for one in gpus) + 1
    several = highest > 1
    yield Match(
        (text(said),),
        Confidence.POSSIBLE,
        {
            "why": f"the CPU that feeds {counted(highest, 'GPU')} is too slow for them"
            if several
            else "data come too slowly"
        },
        fix=(_ONE, *CAUSE.fix) if several else (),
    )
