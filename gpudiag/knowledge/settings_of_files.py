"""Variables as files set them: which of them matter, and which are lists of entries."""

from __future__ import annotations

import re

from gpudiag.knowledge.variables import CONTEXT, SETTINGS

KEPT = re.compile(
    r"USER|LOGNAME|LANG|LANGUAGE|LC_\w+|TERM|TZ|SHELL|PWD|OLDPWD|SHLVL|_|TMPDIR|COLUMNS|LINES|SYSTEMROOT|"
    r"TF_CPP_\w+|TF_FORCE_GPU_ALLOW_GROWTH|PYTHONWARNINGS|GPUDIAG_\w+"
)
"""Variables that are never taken away: a process needs them, gpudiag sets them for every process it starts, or they
describe a simulated machine."""
SUSPECT = re.compile(
    r"(?:LD|DYLD|CUDA|CUDNN|CUBLAS|NVIDIA|NV|NVCC|NCCL|TF|TF2|XLA|TENSORFLOW|KERAS|NPY|PROTOCOL_BUFFERS|GLIBC|MALLOC|"
    r"ROCM|HIP|HSA)_\w+|PYTHON\w+"
)
"""Names that Python, the loader, CUDA or TensorFlow reads: these variables are removed first."""
_SEPARATED = {
    "LD_LIBRARY_PATH": "[:;]",
    "LD_PRELOAD": "[: ]+",
    "PATH": ":",
    "PYTHONPATH": ":",
    "TF_XLA_FLAGS": r"\s+",
    "XLA_FLAGS": r"\s+",
}
"""Variables that are lists, with the separator of their entries."""
FLAGS = ("TF_XLA_FLAGS", "XLA_FLAGS")
"""Lists whose entries are separated by spaces."""


def entries(name: str, value: str) -> list[tuple[int, str]]:
    """Return the entries of a list variable, numbered from 1; none for any other variable."""
    if name not in _SEPARATED:
        return []
    parts = re.split(_SEPARATED[name], value.strip() if name in FLAGS else value)
    return list(enumerate(parts, 1)) if value else []


def is_list(name: str) -> bool:
    """Return whether the variable is a list of entries."""
    return name in _SEPARATED


def is_relevant(name: str) -> bool:
    """Return whether a variable that another file sets may matter."""
    known = name in SETTINGS | CONTEXT or name == "PATH"
    return not KEPT.fullmatch(name) and (known or SUSPECT.fullmatch(name) is not None)
