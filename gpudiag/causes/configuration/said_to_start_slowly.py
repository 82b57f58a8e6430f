"""the first start on {card} is slow, as is said: {why}

If the build has no machine code for the compute capability of a GPU, the driver compiles it from PTX at the first
start, for minutes, and keeps it in ~/.nv/ComputeCache: the next start is quick. It counts only if no line names a
fault.
"""

from __future__ import annotations

import re

from gpudiag.cause import Cause, LogAlone, Match, Matches
from gpudiag.causes.shared.advice import newer_release
from gpudiag.knowledge.log_lines import text
from gpudiag.knowledge.origin import Origin
from gpudiag.knowledge.releases import knows
from gpudiag.model.diagnosis import Confidence

CAUSE = Cause(
    fix=(
        "export CUDA_CACHE_MAXSIZE=4294967296  # keeps all that is compiled; wait once: the second start is quick",
        "export TF_CUDA_COMPUTE_CAPABILITIES={capability}  # before ./configure of a build from source",
        "python -c 'import tensorflow as tf; print(tf.sysconfig.get_build_info())'  # for what this one was built",
    ),
    url="https://developer.nvidia.com/blog/cuda-pro-tip-understand-fat-binaries-jit-caching/",
    last_resort=True,
)

_SLOW = re.compile(
    r"(?i)\b(?:minutes?|mins|slow(?:ly)?|(?:very|so|too|a) long|long time|takes? (?:forever|ages|long)|hangs?|"
    r"stuck|freezes?)\b"
)
_AT_THE_START = re.compile(
    r"(?i)\b(?:first|start(?:s|ing|up)?|initiali[sz]\w{1,6}|session|load(?:s|ing)?|creat\w{1,4}|gpu)\b"
)
_LAST = re.compile(r"gpu_device\.cc:\d{1,5}\] (?:Adding visible gpu|Found device|Created|Device interconnect)")


def find(program: LogAlone, origin: Origin) -> Matches:
    slow = next((line for line in origin.stated.prose if _SLOW.search(line) and _AT_THE_START.search(line)), None)
    cards = origin.stated.cards
    if slow is None or not (cards or any(map(_LAST.search, program.lines))):
        return
    card, capability = (cards[0][0].name, cards[0][0].capability) if cards else ("the GPU", "8.6")
    is_newer = bool(cards) and not knows(origin.generation.cuda, capability)
    built = "built from source without it" if origin.is_own_build else "the build has no machine code for it"
    release = str(origin.generation) if origin.is_one else f"TensorFlow up to {origin.releases[1]}"
    yield Match(
        (text(slow), *(line for _, line in cards[:1])),
        Confidence.LIKELY if is_newer else Confidence.POSSIBLE,
        {
            "card": card,
            "capability": capability,
            "why": f"{release} was built for CUDA {origin.generation.cuda}, which is older than the GPU ({capability})"
            if is_newer
            else f"its code is compiled for compute capability {capability} then, most likely; {built}",
        },
        fix=(*newer_release(origin, capability), *CAUSE.fix[:1]) if is_newer else (),
    )
