"""kernels are compiled again at each start, because the compiled code cannot be kept

TensorFlow has no machine code for this GPU, so that the driver compiles each kernel, for minutes. It keeps the results
in CUDA_CACHE_PATH, or ~/.nv/ComputeCache. If that folder cannot be written, as in a container with a read-only home, or
the cache is switched off, every start of every program takes as long as the first.
"""

from __future__ import annotations

from gpudiag.cause import Cause, Match, Matches, Rows, Variables
from gpudiag.causes.shared.gpu_state import meaning, written
from gpudiag.fix import export, unset
from gpudiag.model.facts import TriedFacts
from gpudiag.model.report import Severity

CAUSE = Cause(
    title="kernels for {name} are compiled again at each start, because the compiled code cannot be kept: {why}",
    severity=Severity.WARNING,
    symptom=True,
    fix=(
        unset("CUDA_CACHE_DISABLE"),
        export("CUDA_CACHE_PATH", "/a/folder/that/stays", "in a container, use a folder of a volume"),
        export("CUDA_CACHE_MAXSIZE", "4294967296", "makes room for all of TensorFlow's kernels (in bytes)"),
    ),
    url="https://developer.nvidia.com/blog/cuda-pro-tip-understand-fat-binaries-jit-caching/",
)
_OFF = "CUDA_CACHE_DISABLE"


def find(variables: Variables, rows: Rows, tried: TriedFacts | None) -> Matches:
    compiled = rows.found("discovery.device_details", "ptx_only")
    off = variables.get(_OFF, "0") not in ("", "0")
    failed = next((attempt for attempt in written(tried, "CUDA cache") if attempt.error), None)
    if not compiled or not (off or failed):
        return
    why = f"{_OFF}={variables.get(_OFF)}" if failed is None else f"{failed.path}: {meaning(failed.error)}"
    yield Match(
        evidence=(compiled[0].message, why if failed is None else f"write to {why}"),
        figures={"name": compiled[0].figures["name"], "why": why},
        fix=(
            unset(_OFF) if off else None,
            export("CUDA_CACHE_PATH", "/a/folder/that/stays", "in a container, use a folder of a volume")
            if failed
            else None,
            CAUSE.fix[2],
        ),
    )
