"""CUDA shows the program no GPU

CUDA_ERROR_NO_DEVICE comes from a driver that works. Most often CUDA_VISIBLE_DEVICES, in the environment or set by the
program itself, names a GPU that is not there; otherwise the job or the container was given no GPU, or none answers.
"""

from __future__ import annotations

import re

from gpudiag.cause import Cause, LogAlone, Match, Matches
from gpudiag.fix import Action, check, configure, edit, install, note, nvidia_smi, run_container
from gpudiag.knowledge.log_lines import text
from gpudiag.knowledge.messages.nvml import HANDLE_LOST, HANDLE_NOT_FOUND
from gpudiag.knowledge.messages.program import MASK_PRINTED, RAY_AT_WORK
from gpudiag.knowledge.messages.programs_and_drivers import (
    MASK_IN_CODE,
    MODULE_SILENT,
    NO_CUDA_DEVICE,
    NO_DEVICE_FILE,
    NO_LIBCUDA,
)
from gpudiag.knowledge.origin import Origin
from gpudiag.model.diagnosis import Confidence

_OF_AMD = re.compile(r"\bname: (?:AMD |Radeon|Vega|Instinct|gfx\d)")
"""TensorFlow's name of an AMD device, in another program of the same machine."""

CAUSE = Cause(
    title="CUDA shows the program no GPU: {why}",
    fix=(
        check('grep -rn CUDA_VISIBLE_DEVICES *.py; echo "$CUDA_VISIBLE_DEVICES"'),
        run_container("--gpus all"),
        nvidia_smi("if it lists none, the job or the container was given no GPU", "-L"),
    ),
    url="https://docs.nvidia.com/cuda/cuda-c-programming-guide/#cuda-environment-variables",
    needs_gpu=False,
    unless={
        "library_and_module_differ": "no GPU is shown because the driver's parts do not fit",
    },
)
_GIVEN = run_container(
    "--gpus all", note="if it runs in a container; in Slurm: srun --gres=gpu:1; in Kubernetes: nvidia.com/gpu: 1"
)
_FOR_AMD = (
    install("tensorflow-rocm", note="on a host with ROCm; an image: rocm/tensorflow"),
    note("an image that brings TensorFlow: the one for the CPU, or on a computer with an NVIDIA GPU"),
)
_FOR_RAY = (
    edit("@ray.remote(num_gpus=1)", "of Tune: resources={'gpu': 1}; of RLlib: num_gpus in the config"),
    check("ray status", "shows the GPUs that Ray has: nvidia-smi -L must list as many"),
)
_FOR_A_CONTAINER = (
    run_container("--gpus all", note="with the NVIDIA container toolkit; older: --runtime=nvidia"),
    nvidia_smi("must list the GPU in the container and on the host", "-L"),
    check("echo $CUDA_VISIBLE_DEVICES $NVIDIA_VISIBLE_DEVICES", "must name the GPU in the container, or be unset"),
)
_LOOK = check(
    'grep -rn CUDA_VISIBLE_DEVICES *.py; echo "$CUDA_VISIBLE_DEVICES"',
    'set it to a GPU that nvidia-smi -L lists, such as "0", or unset it',
)


def find(program: LogAlone, origin: Origin) -> Matches:
    said = program.said(NO_CUDA_DEVICE)
    if not said or program.first(NO_LIBCUDA, MODULE_SILENT, HANDLE_LOST, HANDLE_NOT_FOUND) or origin.stated.has_no_gpu:
        return
    masks = [event["value"] for event in program.all(MASK_PRINTED, MASK_IN_CODE)]
    fix: tuple[Action, ...]
    if program.first(NO_DEVICE_FILE):
        why, fix = (
            "there is no device file /dev/nvidia0",
            (_GIVEN, configure("sudo nvidia-modprobe -c 0 -u"), CAUSE.fix[2]),
        )
    elif made := [line for line in program.lines if _OF_AMD.search(line)]:
        said = (*said[:2], text(made[0]))
        why, fix = "the GPU is AMD's, and this TensorFlow is a build for NVIDIA's", _FOR_AMD
    elif program.first(RAY_AT_WORK):
        said = program.said(NO_CUDA_DEVICE, RAY_AT_WORK, most=3)
        why = "Ray masks the GPUs of a task or worker that asks for none, whatever the program sets"
        fix = (*_FOR_RAY, CAUSE.fix[2])
    elif not masks and origin.container:
        why, fix = "it runs in a container, which was most likely started without the GPU", _FOR_A_CONTAINER
    else:
        said = program.said(NO_CUDA_DEVICE, MASK_PRINTED, MASK_IN_CODE, most=3)
        named = f"CUDA_VISIBLE_DEVICES={masks[-1]!r} names none" if masks else ""
        why = named or "the job or the container was given none, or CUDA_VISIBLE_DEVICES hides it"
        fix = (_LOOK, _GIVEN, CAUSE.fix[2]) if named else (_GIVEN, _LOOK, CAUSE.fix[2])
    yield Match(said, Confidence.LIKELY, {"why": why}, fix=fix)
