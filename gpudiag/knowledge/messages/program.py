"""Messages of programs, launchers and test runners."""

from __future__ import annotations

from gpudiag.fix import ask, check, edit, edit_note, install, kernel_log, note, nvidia_smi, run_container, unset
from gpudiag.knowledge.fault import Confidence, Stage
from gpudiag.knowledge.message import MessageFamily

FAMILY = MessageFamily("the user's own program", stage=Stage.CONFIGURATION)

SLURM_HIDES = FAMILY.fault(
    "slurm_hides",
    "NoDevFiles",
    meaning="what Slurm writes into the mask of a job step without GPUs",
)
_ENTRY = r"(?:-?\d+|(?:GPU|MIG)-[\w-]+|NoDevFiles)"
MASK_PRINTED = FAMILY.sign(
    "mask_printed",
    pattern=r"CUDA_VISIBLE_DEVICES['\"\])]*\s*(?:=|:|,|is set to)\s*['\"]?"
    rf"(?P<value>{_ENTRY}(?:,\s*{_ENTRY})*|(?=['\"]))",
    words=("cuda_visible_devices",),
    seen="programs",
)
LOCAL_RANK = FAMILY.sign(
    "local_rank",
    "local_rank",
    seen="Horovod",
)
RAY_AT_WORK = FAMILY.sign(
    "ray_at_work",
    pattern=r"\b[Rr]ay[ =v]{1,3}\d\.\d{1,2}\b|"
    r"\bray\.(?:init|remote|tune|rllib|train|util)\b|\bray::\w|[/\\]ray[/\\](?:rllib|tune|train|_private)[/\\]|"
    r"\((?:RolloutWorker|RayTrainWorker|TunerInternal|ImplicitFunc|raylet) pid=",
    words=("ray", "rolloutworker", "raytrainworker", "tunerinternal", "implicitfunc", "raylet"),
    seen="Ray",
)
XDIST_WORKER = FAMILY.sign(
    "xdist_worker",
    pattern=r"\[gw(?P<worker>\d+)\]",
    words=("gw",),
    seen="pytest-xdist",
)
TEST_SKIPPED = FAMILY.sign(
    "test_skipped",
    pattern=r"(?i)\bskipped\b(?: \[(?P<count>\d+)\])?(?:(?!skipped).){0,300}\b(?:gpus?|cuda)\b|"
    r"\b(?:gpus?|cuda)\b(?:(?!gpu|cuda)[^:]){0,300}\bskipped\b(?! \[)|"
    r"\.\.\. skipped '[^']{0,300}\b(?:gpus?|cuda)\b",
    words=("skipped",),
    seen="pytest, unittest",
)
FAMILY.fault(
    "colab_has_no_gpu",
    "You cannot currently connect to a GPU due to usage limits in Colab",
    "Cannot connect to GPU backend",
    meaning="Colab gives this account no GPU now: the free quota is used up, or no GPU is idle",
    fix=(
        note(
            "try Runtime, Change runtime type, GPU again some hours later, or with another kind of "
            "GPU; close other sessions"
        ),
    ),
    seen="Google Colab",
)
FAMILY.fault(
    "colab_has_no_tensorflow_1",
    "Tensorflow 1 is unsupported in Colab",
    meaning="Colab supports only TensorFlow 2",
    fix=(
        edit("import tensorflow.compat.v1 as tf; tf.disable_v2_behavior()", "replaces: import tensorflow as tf"),
        edit_note(
            "if the program needs tf.contrib, which TensorFlow 2 does not have, run TensorFlow 1.15 "
            "elsewhere, with Python 3.7"
        ),
    ),
    seen="Google Colab",
    url="https://www.tensorflow.org/guide/migrate",
)
FAMILY.fault(
    "notebook_kernel_died",
    "appears to have died. It will restart automatically",
    "The kernel appears to have died",
    "The kernel died, restarting",
    "Kernel died, restarting",
    "AsyncIOLoopKernelRestarter: restarting kernel",
    "Kernel Restarting",
    "The Kernel crashed while executing code in the current cell or a previous cell",
    "Your session crashed after using all available RAM",
    "Your session crashed for an unknown reason",
    "DeadKernelError: Kernel died",
    meaning="the notebook's kernel crashed: memory was used up, or a library of CUDA failed; the notebook hides "
    "what it printed",
    fix=(
        ask(
            "python program.py",
            "run the notebook as a script in a terminal (jupyter nbconvert --to script): it shows the last line",
        ),
        check("nvidia-smi; free -g", "shows the memory of the GPU and of the computer; run it while the program runs"),
        check(
            "pip check; pip list | grep -i -e nvidia -e tensorflow",
            "shows whether one environment has CUDA or cuDNN twice",
        ),
    ),
    symptom=True,
    stage=Stage.FIRST_OP,
    seen="Jupyter, Colab, VS Code, Spyder",
)
FAMILY.fault(
    "torch_without_cuda",
    "Torch not compiled with CUDA enabled",
    meaning="the PyTorch that is installed was built without CUDA",
    fix=(
        install(
            "--force-reinstall",
            "torch",
            "--index-url",
            "https://download.pytorch.org/whl/cu126",
            note="installs a build with CUDA",
        ),
        nvidia_smi("shows the driver's version and the newest CUDA that it supports"),
    ),
    stage=Stage.BUILD,
    seen="PyTorch",
)
FAMILY.fault(
    "torch_sees_no_gpu",
    "Found no NVIDIA driver on your system",
    "CUDA driver initialization failed, you might not have a CUDA gpu",
    meaning="CUDA does not start: there is no driver, no GPU, or the container was given none",
    fix=(
        nvidia_smi("must work; if the machine has no NVIDIA GPU, there is nothing to fix"),
        run_container("--gpus all", note="if it runs in a container"),
        kernel_log(),
    ),
    confidence=Confidence.POSSIBLE,
    stage=Stage.DRIVER,
    seen="PyTorch",
)
FAMILY.fault(
    "cudnn_of_torch_hidden",
    "cuDNN version incompatibility: PyTorch was compiled against ({built:l}) but found runtime version ({found:l})",
    "cuDNN version incompatibility: PyTorch was compiled against ({built:l}) but linked against ({found:l})",
    "cuDNN version mismatch: PyTorch was compiled against {built:d} but linked against {found:d}",
    meaning="PyTorch was built with cuDNN {built} but loads cuDNN {found}, which comes first on the loader's path",
    in_general="another cuDNN comes first on the loader's path and is older than PyTorch's own",
    fix=(
        unset("LD_LIBRARY_PATH", note="if it puts another cuDNN first: PyTorch brings its own"),
        check("ldconfig -p | grep cudnn; pip list | grep -i cudnn", "shows which copies are installed"),
        install("--force-reinstall", "torch", note="brings the cuDNN that this PyTorch was built with"),
    ),
    stage=Stage.LIBRARIES,
    seen="PyTorch",
)
FAMILY.fault(
    "library_of_jax_not_loaded",
    "Unable to load {library:w}. Is it installed?",
    "versions_helpers.cc:{:d}: operation {} failed: The {library:w} library was not found",
    meaning="JAX's plug-in for CUDA cannot load {library}: it is not installed, or another copy comes first",
    in_general="JAX's plug-in for CUDA cannot load one of CUDA's libraries",
    fix=(
        unset("LD_LIBRARY_PATH", note="if it puts another CUDA before the one that jax[cuda12] brings"),
        install("--upgrade", "jax[cuda12]", note="brings CUDA's libraries, of the releases that this JAX needs"),
        check("pip list | grep -i -e jax -e nvidia", "the releases of jax, jaxlib and JAX's plug-in must be the same"),
    ),
    stage=Stage.LIBRARIES,
    seen="JAX",
)
