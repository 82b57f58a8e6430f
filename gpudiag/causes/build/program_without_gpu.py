"""the TensorFlow that ran the program had no GPU: {why}

"available devices are [CPU:0]" and an empty list of GPUs are what follows, and not the cause. If no line above says
what is missing, it is most often a TensorFlow without GPU support: `tensorflow` before 2.1 (`tensorflow-gpu` had it),
`tensorflow-cpu`, 2.11 and newer on Windows, or one of conda that was chosen for a machine without GPU.
"""

from __future__ import annotations

from gpudiag.cause import Cause, LogAlone, Match, Matches
from gpudiag.causes.shared.advice import PIP, libraries, unfit
from gpudiag.knowledge.log_lines import Log, lists_no_gpu
from gpudiag.knowledge.messages.placement import DEVICE_NOT_AVAILABLE, DEVICE_NOT_SATISFIED
from gpudiag.knowledge.messages.programs_and_drivers import (
    BUILT_WITH_CUDA,
    BUILT_WITHOUT_CUDA,
    NO_GPU_LISTED,
    NO_WINDOWS_GPU,
    SMI_TABLE,
)
from gpudiag.knowledge.origin import Origin
from gpudiag.knowledge.placement import has_gpu
from gpudiag.knowledge.releases import LAST_FOR_WINDOWS, ONE_PACKAGE
from gpudiag.model.diagnosis import Confidence

_DECIDES = (
    'TF_CPP_VMODULE=dso_loader=1 python -c "import tensorflow as tf; print(tf.__version__, '
    "tf.test.is_built_with_cuda(), tf.config.list_physical_devices('GPU'))\"  # False: the build; else it names the "
    "libraries that it does not find"
)
_SOFT = (
    "tf.config.set_soft_device_placement(True)  # runs it on the CPU; 1.x: tf.ConfigProto(allow_soft_placement=True) "
    "of the session"
)
CAUSE = Cause(
    fix=("python -c 'import tensorflow as tf; print(tf.__version__, tf.test.is_built_with_cuda())'",),
    url=PIP,
    needs_gpu=False,
    symptom=True,
    unless=(
        "cuda_libraries_not_found",
        "cuinit_says_unknown",
        "driver_older_than_cuda",
        "gpu_older_than_wheel",
        "kernel_module_not_running",
        "libcuda_not_found",
        "library_and_module_differ",
        "program_shown_no_gpu",
    ),
)


def find(program: LogAlone, origin: Origin) -> Matches:
    refused = [
        one for one in program.all(DEVICE_NOT_AVAILABLE, DEVICE_NOT_SATISFIED) if "CPU" in one["devices"].upper()
    ]
    refused = [one for one in refused if not has_gpu(one["devices"])]
    said = Log(one.line for one in refused).said(DEVICE_NOT_AVAILABLE, DEVICE_NOT_SATISFIED)
    windows = program.said(NO_WINDOWS_GPU)
    listed = program.said(NO_GPU_LISTED) or lists_no_gpu(program.lines)
    if not (said or windows or listed):
        return
    newest = origin.releases[1]
    ask = CAUSE.fix[0]
    if windows or (origin.windows and origin.releases[0] > LAST_FOR_WINDOWS):
        yield Match(
            (*windows, *said, *listed)[:3],
            Confidence.PROVED if windows else Confidence.LIKELY,
            {"why": "TensorFlow 2.11 and newer has no GPU support on Windows"},
            fix=(
                "wsl --install  # then TensorFlow in WSL 2: pip install 'tensorflow[and-cuda]'",
                "conda install -c conda-forge cudatoolkit=11.2 cudnn=8.1.0; pip install 'tensorflow<2.11'  # or",
            ),
        )
    elif any("XLA_GPU" in one["devices"].upper() for one in refused):
        yield Match(
            said,
            Confidence.LIKELY,
            {"why": "it knows the GPU (XLA_GPU), and did not find all of its CUDA libraries"},
            fix=(
                *libraries(origin),
                "# the lines at the start of the log name the library: Could not load dynamic ...",
            ),
        )
    elif newest < ONE_PACKAGE:
        yield Match(
            (*said, *listed)[:3],
            Confidence.LIKELY,
            {"why": "most likely it is a build without GPU support, installed beside or in place of tensorflow-gpu"},
            fix=(
                "pip uninstall tensorflow tensorflow-gpu; pip install tensorflow-gpu  # of the same release; in conda: "
                "conda install tensorflow-gpu",
                ask,
            ),
        )
    elif any("SystemError: GPU device not found" in line for line in program.lines):  # the test of Colab's notebooks
        yield Match(
            (*said, *listed)[:3],
            Confidence.LIKELY,
            {"why": "in Colab, the notebook runs on a machine without GPU, or another TensorFlow was installed there"},
            fix=(
                "# Colab: Runtime, Change runtime type, GPU, Save",
                "# Runtime, Disconnect and delete runtime: a new machine, without what was installed by pip",
                "!nvidia-smi  # must list the GPU",
                ask,
            ),
        )
    else:
        why, lines = _likeliest(program, origin)
        soft = (_SOFT,) if refused else ()
        yield Match((*said, *listed)[:3], Confidence.POSSIBLE, {"why": why}, fix=(*lines, *soft, _DECIDES))


def _likeliest(program: LogAlone, origin: Origin) -> tuple[str, tuple[str, ...]]:
    """Return the causes of an empty list whose reason the log does not show, the likeliest first, and what to type."""
    bring, see = libraries(origin), "nvidia-smi  # must list the GPU, in the same container"
    if origin.stated.is_cpu_build:
        return "it is a build without GPU support, as the list of packages shows", (_other_build(origin), *bring)
    if wrong := unfit(origin):
        return f"it does not find its CUDA libraries, most likely: {wrong[1]}", (*bring, see)
    smi = program.first(SMI_TABLE) is not None
    if program.first(BUILT_WITHOUT_CUDA):
        return "it is a build without GPU support", (_other_build(origin), *bring)
    if origin.jetson:
        return "on a Jetson the wheels of PyPI have no GPU support", bring
    if origin.mac:
        return "there, it uses Apple's GPU with tensorflow-metal alone, which is not installed or does not fit", bring
    if origin.container and not smi:
        return (
            "most likely the container was given no GPU; else its CUDA libraries are not found, or it is a build "
            "without GPU support",
            ("docker run --gpus all ...  # with the NVIDIA container toolkit on the host", see, *bring),
        )
    if origin.conda and not smi and not program.first(BUILT_WITH_CUDA):
        return (
            "it does not find its CUDA libraries, or it is conda's build without GPU support; the third possibility is "
            "the driver",
            (*bring, _other_build(origin), see),
        )
    if smi:
        return "the driver works; it does not find its CUDA libraries, or it is a build without GPU support", (
            *bring,
            _other_build(origin),
        )
    if program.first(BUILT_WITH_CUDA):
        return "it does not find its CUDA libraries; else the driver, or a mask (CUDA_VISIBLE_DEVICES)", (*bring, see)
    return (
        "it does not find its CUDA libraries, most likely; else there is no driver that it can use, or it is a build "
        "without GPU support",
        (*bring, see),
    )


def _other_build(origin: Origin) -> str:
    if origin.conda:
        return "conda install -c conda-forge 'tensorflow=*=cuda*'  # conda's build with CUDA, in place of the other"
    return "pip uninstall -y tensorflow tensorflow-cpu; pip install 'tensorflow[and-cuda]'  # a build with CUDA"
