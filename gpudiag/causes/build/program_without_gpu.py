"""the TensorFlow that ran the program had no GPU: {why}

"available devices are [CPU:0]" and an empty list of GPUs are what follows, and not the cause. If no line above says
what is missing, it is most often a TensorFlow without GPU support: `tensorflow` before 2.1 (`tensorflow-gpu` had it),
`tensorflow-cpu`, 2.11 and newer on Windows, or one of conda that was chosen for a machine without GPU.
"""

from __future__ import annotations

from gpudiag.cause import Cause, LogAlone, Match, Matches
from gpudiag.causes.shared.advice import PIP, libraries
from gpudiag.knowledge.log_lines import Log
from gpudiag.knowledge.messages.placement import DEVICE_NOT_AVAILABLE, DEVICE_NOT_SATISFIED
from gpudiag.knowledge.messages.programs_and_drivers import NO_GPU_LISTED, NO_WINDOWS_GPU
from gpudiag.knowledge.origin import Origin
from gpudiag.knowledge.placement import has_gpu
from gpudiag.knowledge.releases import LAST_FOR_WINDOWS, ONE_PACKAGE
from gpudiag.model.diagnosis import Confidence

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
    listed = program.said(NO_GPU_LISTED)
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
        yield Match(
            (*said, *listed)[:3],
            Confidence.POSSIBLE,
            {"why": "it is a build without GPU support, or it does not find its CUDA libraries or the driver"},
            fix=(ask, *libraries(origin), "nvidia-smi  # must list the GPU, in the same container"),
        )
