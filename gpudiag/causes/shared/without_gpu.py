"""Shared by causes: a log of a machine that was never meant to have a GPU."""

from __future__ import annotations

import re

from gpudiag.knowledge.log_lines import Log
from gpudiag.knowledge.messages.way import LIBRARY_NOT_OPENED
from gpudiag.knowledge.origin import Origin

RUNTIME = re.compile(r"(?:lib)?cudart")
MEANT_FOR_A_GPU = re.compile(r"LD_LIBRARY_PATH: \S*(?:cuda-\d|nvidia|/wsl/lib)|The GPU version of TensorFlow")


def is_without_gpu(log: Log, origin: Origin) -> bool:
    """Return whether CUDA's runtime is not there, and nothing in the log was set up for a GPU.

    If the driver's library is not there either, then there is no GPU: TensorFlow says both on every such machine.
    """
    if origin.stated.has_no_gpu:
        return True
    meant = origin.container or origin.singularity or origin.wsl or any(map(MEANT_FOR_A_GPU.search, log.lines))
    return not meant and any(RUNTIME.match(one["library"]) for one in log.all(LIBRARY_NOT_OPENED))
