"""Messages that name another fault than the actual one."""

from __future__ import annotations

from gpudiag.fix import check, install, install_driver, nvidia_smi, run_container, unset
from gpudiag.knowledge.fault import Stage
from gpudiag.knowledge.message import MessageFamily

FAMILY = MessageFamily("what names another fault")

NO_CUDA_DRIVERS = FAMILY.misleading(
    "no_cuda_drivers",
    "Could not find cuda drivers on your machine, GPU will not be used",
    meaning="the driver is not at fault: the CUDA runtime library (libcudart.so.12; up to 2.14: "
    "libcudart.so.11.0) could not be opened",
    fix=(
        install(
            "tensorflow[and-cuda]",
            note="brings CUDA's libraries (2.14 and newer); if there is no GPU, there is nothing to do",
        ),
        check(
            "ldconfig -p | grep libcudart",
            "shows the installed CUDA runtime; TensorFlow 2.12-2.14 needs CUDA 11.8, 2.15 and newer CUDA 12",
        ),
    ),
    symptom=True,
    stage=Stage.RUNTIME_LIBRARY,
)
CUINIT_303 = FAMILY.misleading(
    "cuinit_303",
    "failed call to cuInit: UNKNOWN ERROR (303)",
    meaning="the driver's library libcuda.so.1 could not be opened",
    fix=(
        nvidia_smi("must work; if the machine has no NVIDIA GPU, there is nothing to fix"),
        run_container("--gpus all", note="in a container"),
        install_driver("or install the driver in your distribution's way; then reboot"),
    ),
    stage=Stage.DRIVER_LIBRARY,
)
LIBRARIES_ABOVE = FAMILY.misleading(
    "libraries_mentioned_above",
    "Cannot dlopen some GPU libraries. Please make sure the missing libraries mentioned above",
    meaning="the missing libraries are not named in this log: TF_CPP_VMODULE=dso_loader=1 makes TensorFlow name them",
)
FAMILY.misleading(
    "cudnn_version_unknown",
    "Failed to determine cuDNN version {} CUDNN_STATUS_INTERNAL_ERROR",
    meaning="the library libcudnn.so.9 could not be opened",
    fix=(
        install("tensorflow[and-cuda]", note="brings it"),
        unset("LD_LIBRARY_PATH", note="if it puts another copy first"),
    ),
    stage=Stage.LIBRARIES,
)
FAMILY.misleading(
    "growth_overridden",
    "Overriding {setting:w} setting because the TF_FORCE_GPU_ALLOW_GROWTH environment variable is set",
    meaning="change the variable: it overrides what the program sets",
)
FAMILY.misleading(
    "cuda_not_enabled",
    "The requested device appears to be a GPU, but CUDA is not enabled",
    meaning="TensorFlow found no usable GPU, or was built without CUDA",
)
