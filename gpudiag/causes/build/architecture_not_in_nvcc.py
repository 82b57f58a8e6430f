"""the toolkit's nvcc does not support the GPU's architecture

Each CUDA toolkit compiles for a range of compute capabilities: a newer GPU needs a newer toolkit, and newer toolkits
drop old GPUs (12.0: up to 3.7, 13.0: up to 7.2). A capability of the build's configuration may also be one that no
toolkit has.
"""

from __future__ import annotations

import re

from gpudiag.cause import Cause, LogAlone, Match, Matches
from gpudiag.fix import Kind, check, export, run
from gpudiag.knowledge.messages.building import CAPABILITY_NOT_KNOWN
from gpudiag.knowledge.origin import Origin
from gpudiag.knowledge.releases import LAST_WITH, NEW_IN, numbers
from gpudiag.model.diagnosis import Confidence

CAUSE = Cause(
    title="nvcc of {toolkit} does not support {architecture}: {why}",
    fix=(
        check(
            "nvcc --list-gpu-arch; nvidia-smi --query-gpu=name,compute_cap --format=csv",
            "compare what nvcc supports with the GPU's compute capability",
        ),
    ),
    url="https://docs.nvidia.com/cuda/cuda-compiler-driver-nvcc/#gpu-feature-list",
    needs_gpu=False,
)
_CAPABILITY = re.compile(r"(?:compute|sm)_(?P<major>\d{1,2})(?P<minor>\d)")


def find(program: LogAlone, origin: Origin) -> Matches:
    said = program.first(CAPABILITY_NOT_KNOWN)
    found = _CAPABILITY.search(said["architecture"]) if said else None
    if said is None or found is None:
        return
    capability = f"{found['major']}.{found['minor']}"
    has = origin.stated.cuda
    toolkit = f"CUDA {has.value}" if has else "this CUDA"
    first_with = NEW_IN.get(capability, "")
    last = next((cuda for cuda, newest in LAST_WITH.items() if numbers(capability) <= numbers(newest)), "")
    if capability == "2.1":
        why = "2.1 has no separate code, it runs that of 2.0"
        first = export(
            "TF_CUDA_COMPUTE_CAPABILITIES", "2.0", "before ./configure: TensorFlow itself wants 3.0 or newer"
        )
    elif last and (not has or numbers(has.value) > numbers(last)):
        why = f"CUDA {last} was the last with code for {capability}"
        first = run(
            f"conda install -c nvidia cuda-toolkit={last}",
            f"or leave {capability} out of the configuration",
            kind=Kind.INSTALL,
        )
    elif first_with:
        why = f"CUDA {first_with} is the first with code for {capability}"
        first = run(
            f"conda install -c nvidia cuda-toolkit={first_with}",
            "or a newer toolkit; or compile PTX for an older capability",
            kind=Kind.INSTALL,
        )
    else:
        return
    yield Match(
        program.said(CAPABILITY_NOT_KNOWN),
        Confidence.LIKELY,
        {"toolkit": toolkit, "architecture": found[0], "why": why},
        fix=(first, *CAUSE.fix),
    )
