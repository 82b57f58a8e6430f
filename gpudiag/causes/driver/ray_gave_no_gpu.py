"""Ray hides all GPUs from this worker, which asked for none

Ray writes CUDA_VISIBLE_DEVICES for each worker: the GPUs that the task or actor asked for, and nothing if it asked for
none, which is the default. cuInit then answers "no CUDA-capable device is detected" on a machine full of GPUs, and
TensorFlow computes on the CPU. Unsetting the variable would take a GPU that Ray gives to others.
"""

from __future__ import annotations

from gpudiag.cause import Cause, Match, Matches, Variables
from gpudiag.causes.shared.visibility import MASK
from gpudiag.fix import edit, export
from gpudiag.model.facts import NvmlFacts
from gpudiag.text import counted

CAUSE = Cause(
    fix=(
        edit("@ray.remote(num_gpus=1)", "requests a GPU for the task or actor"),
        edit(
            'tune.with_resources(train, {{"cpu": 4, "gpu": 1}})',
            "if you use Ray Tune; in Ray Train: ScalingConfig(use_gpu=True)",
        ),
        export(
            "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO",
            "0",
            "set it before Ray starts: Ray then leaves CUDA_VISIBLE_DEVICES unchanged",
        ),
    ),
    url="https://docs.ray.io/en/latest/ray-core/scheduling/accelerators.html",
    views=("host.environment.all_hidden",),
)
_MARKS = ("RAY_JOB_ID", "RAY_RAYLET_PID")
"""Variables that Ray sets for each of its workers."""


def find(variables: Variables, nvml: NvmlFacts) -> Matches:
    mark = next((name for name in _MARKS if name in variables), None)
    if mark and variables.get(MASK) == "" and nvml.devices:
        yield Match(
            evidence=(
                f"{MASK}=''",
                f"{mark} is set: Ray started this process",
                f"NVML reports {counted(len(nvml.devices), 'GPU')}",
            ),
        )
