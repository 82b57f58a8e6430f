"""Messages about code for the GPU, its compilers, and the libraries that TensorFlow and Python load."""

from __future__ import annotations

from gpudiag.fix import ask, check, edit, install, install_driver, note, nvidia_smi, prepend, run_container
from gpudiag.knowledge.fault import Confidence, Stage
from gpudiag.knowledge.message import MessageFamily, Worth

FAMILY = MessageFamily("code and libraries")

NO_MACHINE_CODE = FAMILY.fault(
    "no_machine_code",
    "not built with CUDA kernel binaries compatible with compute capability {has:v}",
    worth=Worth.HARMLESS,
    meaning="the driver compiles TensorFlow's kernels for this GPU at their first use, which takes up to 30 minutes, "
    "and keeps them (CUDA_CACHE_MAXSIZE=4294967296 gives them room)",
    stage=Stage.CONFIGURATION,
)
KERNEL_NOT_COMPILED = FAMILY.fault(
    "kernel_not_compiled",
    "'cuModuleLoadData(&module, data)' failed with 'CUDA_ERROR_INVALID_PTX'",
    "'cuModuleGetFunction(&function, module, kernel_name)' failed with 'CUDA_ERROR_INVALID_HANDLE'",
    "'cuLaunchKernel({}' failed with 'CUDA_ERROR_INVALID_HANDLE'",
    seen="2.14-2.21",
)
PTX_REFUSED = FAMILY.fault(
    "ptx_refused",
    "CUDA_ERROR_INVALID_PTX",
    "CUDA_ERROR_UNSUPPORTED_PTX_VERSION",
    "cudaErrorInvalidPtx",
    "cudaErrorUnsupportedPtxVersion",
    "a PTX JIT compilation failed",
    "the provided PTX was compiled with an unsupported toolchain",
    meaning="the driver cannot compile this code: the driver is older than the CUDA that made the "
    "code, or than the GPU",
    fix=(
        nvidia_smi("shows the driver's version and the newest CUDA that it supports"),
        install_driver("or install a newer driver in your distribution's way; then reboot"),
        install(
            "--upgrade",
            "tensorflow[and-cuda]",
            note="installs a release that supports this GPU; for Blackwell (RTX 50) use NVIDIA's image "
            "nvcr.io/nvidia/tensorflow:25.02-tf2-py3",
        ),
    ),
    confidence=Confidence.POSSIBLE,
)
FAMILY.fault(
    "compiler_older_than_gpu",
    "LLVM ERROR: PTX version {ptx:v} does not support target '{target:w}'",
    "LLVM ERROR: ptx{ptx:d} is required for target {target:w}",
    meaning="XLA's compiler does not write code for {target}: this build of TensorFlow is older than the GPU",
    in_general="XLA's compiler does not write code for this GPU: this build of TensorFlow is older than the GPU",
    fix=(
        run_container(
            "--gpus all",
            "-it",
            image="nvcr.io/nvidia/tensorflow:25.02-tf2-py3",
            note="NVIDIA's build, has code for Blackwell",
        ),
        edit("jit_compile=False", "in model.compile() and tf.function, if the program can do without XLA"),
    ),
    seen="2.21, XLA",
)
NO_CODE_FOR_GPU = FAMILY.fault(
    "no_code_for_gpu",
    "CUDA_ERROR_NO_BINARY_FOR_GPU",
    "no kernel image is available for execution on the device",
    "cudaErrorNoKernelImageForDevice",
    "CUDA runtime implicit initialization on GPU:{:d} failed. Status: device kernel image is invalid",
    "cudaErrorInvalidDeviceFunction",
    meaning="a library or an operation has no code for this GPU",
)
PTXAS_TOO_OLD = FAMILY.fault(
    "ptxas_too_old",
    "ptxas fatal : Value '{target:w}' is not defined",
    seen="CUDA",
)
FAMILY.harmless(
    "ptxas_compared_wrongly",
    pattern=r"You are using ptxas \d\d\.[\d.]{1,12}, which is older than \d\.[\d.]{1,12}",
    words=("ptxas",),
    meaning="TensorFlow compares the versions wrongly: that ptxas is the newer one",
    seen="1.12",
)
FAMILY.fault(
    "ptxas_with_a_bug",
    "ptxas {has:v} has a bug that we think can affect XLA",
    meaning="XLA refuses ptxas {has}: this release has a bug and compiles some programs wrongly",
    in_general="XLA refuses a ptxas that has a bug and compiles some programs wrongly",
    fix=(
        install(
            "--upgrade",
            "nvidia-cuda-nvcc-cu12",
            note="installs a ptxas without the bug (12.3.107 and newer) where XLA finds it",
        ),
        check("which -a ptxas; ptxas --version", "shows every ptxas: put one of another CUDA first on PATH"),
        install("--upgrade", "tensorflow[and-cuda]", note="or install a TensorFlow that brings another ptxas"),
    ),
    seen="2.15-2.21",
)
PTXAS_OF_OLD_CUDA = FAMILY.fault(
    "ptxas_of_old_cuda",
    "You are using ptxas {has:w}.{:s}, but TF requires ptxas {needs:w}.{:s}",
    "You are using ptxas {has:v}, which is older than {needs:v}",
    meaning="the ptxas that XLA found first ({has}) is too old for this TensorFlow: it belongs to another CUDA",
    in_general="the ptxas that XLA found first is too old for this TensorFlow: it belongs to another CUDA",
    fix=(
        check(
            "which -a ptxas; ptxas --version",
            "shows every ptxas; the package nvidia-cuda-toolkit of Debian and Ubuntu brings an old one",
        ),
        prepend(
            "PATH",
            "/usr/local/cuda/bin",
            "puts the CUDA that TensorFlow was built for first; or: XLA_FLAGS=--xla_gpu_cuda_data_dir=/usr/local/cuda",
        ),
    ),
    confidence=Confidence.POSSIBLE,
    seen="1.13-2.21",
)
STRAY_ACCESS = FAMILY.fault(
    "stray_access",
    *(
        f"CUDA_ERROR_{name}"
        for name in (
            "ILLEGAL_ADDRESS",
            "MISALIGNED_ADDRESS",
            "ILLEGAL_INSTRUCTION",
            "INVALID_ADDRESS_SPACE",
            "INVALID_PC",
            "LAUNCH_FAILED",
        )
    ),
    "an illegal memory access was encountered",
    "an illegal instruction was encountered",
    "unspecified launch failure",
    *(
        f"cudaError{name}"
        for name in (
            "IllegalAddress",
            "MisalignedAddress",
            "IllegalInstruction",
            "InvalidAddressSpace",
            "InvalidPc",
            "LaunchFailure",
        )
    ),
    meaning="a kernel accessed memory that does not belong to it, or the GPU failed while it ran",
    seen="CUDA",
)
CUDNN_OLDER = FAMILY.fault(
    "cudnn_older",
    "Loaded runtime CuDNN library: {found:v} but source was compiled with: {needed:v}",
    "Loaded runtime CuDNN library: {found:v} (compatibility version {:d}) but source was compiled with {needed:v}",
    "Loaded runtime CuDNN library: {found:v} (compatibility version {:d}) but source was compiled with: {needed:v}",
    "Loaded cudnn library: {found:v} but source was compiled against {needed:v}",
    seen="0.6-2.21",
)
NO_LIBDEVICE = FAMILY.fault(
    "no_libdevice",
    "Can't find libdevice directory",
    "libdevice not found at",
    "libdevice is required by this HLO module",
)
NOT_TENSORFLOW = FAMILY.fault(
    "not_tensorflow",
    "module 'tensorflow' has no attribute",
    "No module named 'tensorflow.{:q}'",
    "partially initialized module 'tensorflow'",
    "cannot import name '{:w}' from 'tensorflow",
    "Do not import tensorflow from its source directory",
    meaning="another file or folder named tensorflow is imported instead of the package",
    fix=(
        ask(
            "python -c 'import tensorflow; print(tensorflow.__file__)'",
            "if it prints a file of yours, rename that file",
        ),
        note("remove its __pycache__ too, or start the program from another folder"),
    ),
    symptom=True,
    stage=Stage.PACKAGE,
    seen="Python",
)
MODULE_LACKS = FAMILY.fault(
    "module_lacks",
    "cannot import name '{:q}' from '{module:q}'{}({file:p})",
    "cannot import name '{:q}' from '{module:q}'",
    "module '{module:q}' has no attribute",
    "No module named '{module:q}'; '{:q}' is not a package",
    "cannot import name '{:q}' from partially initialized module '{module:q}'{}({file:p})",
    "cannot import name '{:q}' from partially initialized module '{module:q}'",
    seen="Python",
)
