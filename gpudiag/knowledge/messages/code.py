"""Code for the GPU, its compilers, and the libraries that TensorFlow and Python load."""

from __future__ import annotations

from gpudiag.fix import Kind, check, export, install, note, prepend, run
from gpudiag.knowledge.message import Family, Text, Worth

FAMILY = Family("code and libraries")

NO_MACHINE_CODE = FAMILY.fault(
    "no_machine_code",
    Text(
        "not built with CUDA kernel binaries compatible with compute capability {has:v}",
        "tensorflow 2.21 tensorflow/core/common_runtime/gpu/gpu_device.cc:2448",
    ),
    meaning="this TensorFlow has no machine code for compute capability {has}: the driver compiles it at the first "
    "start, which takes minutes",
    fix=(
        export("CUDA_CACHE_MAXSIZE", "4294967296", "keeps what was compiled; the second start is fast"),
        install("--upgrade", "tensorflow[and-cuda]", note="a release that was built for this GPU"),
    ),
    stage="CONFIGURATION",
)
KERNEL_NOT_COMPILED = FAMILY.fault(
    "kernel_not_compiled",
    Text(
        "'cuModuleLoadData(&module, data)' failed with 'CUDA_ERROR_INVALID_PTX'",
        "https://github.com/tensorflow/tensorflow/issues/99592",
    ),
    "'cuModuleLoadDataEx({})' failed with 'CUDA_ERROR_INVALID_PTX'",
    seen="2.14-2.21",
)
PTX_REFUSED = FAMILY.fault(
    "ptx_refused",
    Text("CUDA_ERROR_INVALID_PTX", "https://github.com/tensorflow/tensorflow/issues/101746"),
    Text("CUDA_ERROR_UNSUPPORTED_PTX_VERSION", "https://github.com/CY-CHENYUE/ComfyUI-Molmo/issues/26"),
    "PTX version {:s} does not support",
    Text("cudaErrorInvalidPtx", "nvidia-cuda-runtime-cu12 12.9.79 libcudart.so.12"),
    Text("cudaErrorUnsupportedPtxVersion", "nvidia-cuda-runtime-cu12 12.9.79 libcudart.so.12"),
    Text("a PTX JIT compilation failed", "nvidia-cuda-runtime-cu12 12.9.79 libcudart.so.12"),
    Text(
        "the provided PTX was compiled with an unsupported toolchain",
        "nvidia-cuda-runtime-cu12 12.9.79 libcudart.so.12",
    ),
    meaning="the driver cannot compile this code: it is older than the CUDA that made it, or the GPU is newer than it",
    fix=(
        check("nvidia-smi", "names the driver, and the newest CUDA that it runs"),
        run(
            "sudo apt install nvidia-driver-580",
            "or another way to a newer driver of this distribution; then reboot",
            kind=Kind.CHANGE_DRIVER,
        ),
        install(
            "--upgrade",
            "tensorflow[and-cuda]",
            note="a release that knows this GPU; for Blackwell (RTX 50) "
            "NVIDIA's image: nvcr.io/nvidia/tensorflow:25.02-tf2-py3",
        ),
    ),
    possible=True,
)
NO_CODE_FOR_GPU = FAMILY.fault(
    "no_code_for_gpu",
    Text("CUDA_ERROR_NO_BINARY_FOR_GPU", "k8s-device-plugin 0.20 internal/cuda/result.go:74"),
    Text(
        "no kernel image is available for execution on the device", "nvidia-cuda-runtime-cu12 12.9.79 libcudart.so.12"
    ),
    Text("cudaErrorNoKernelImageForDevice", "nvidia-cuda-runtime-cu12 12.9.79 libcudart.so.12"),
    Text(
        "cudaErrorInvalidDeviceFunction",
        "tensorflow 2.21.0 tensorflow/include/third_party/gpus/cuda/include/driver_types.h",
    ),
    Text(
        "CUDA runtime implicit initialization on GPU:{:d} failed. Status: device kernel image is invalid",
        "https://github.com/tensorflow/tensorflow/issues/41132",
    ),
    meaning="a library or an operation has no code for this GPU",
    fix=(
        check("nvidia-smi --query-gpu=name,compute_cap --format=csv"),
        install("--upgrade", "tensorflow[and-cuda]", note="a release that was built for this GPU"),
    ),
)
PTXAS_TOO_OLD = FAMILY.fault(
    "ptxas_too_old",
    Text("ptxas fatal : Value '{target:w}' is not defined", "https://github.com/microsoft/WSL/issues/6187"),
    "ptxas fatal: Value '{target:w}' is not defined",
    seen="CUDA",
)
FAMILY.add(
    Worth.HARMLESS,
    "ptxas_compared_wrongly",
    pattern=r"You are using ptxas \d\d\.[\d.]{1,12}, which is older than \d\.[\d.]{1,12}",
    witness="https://github.com/tensorflow/tensorflow/issues/23874",
    words=("ptxas",),
    meaning="TensorFlow compares the versions wrongly: that ptxas is the newer one",
    seen="1.12",
)
FAMILY.fault(
    "ptxas_with_a_bug",
    Text(
        "ptxas {has:v} has a bug that we think can affect XLA", "https://github.com/tensorflow/tensorflow/issues/68966"
    ),
    meaning="XLA refuses this ptxas, {has}, which compiles some programs wrongly: it is of a CUDA with that bug",
    fix=(
        install("--upgrade", "nvidia-cuda-nvcc-cu12", note="a ptxas without it (12.3.107 and newer), which XLA finds"),
        check("which -a ptxas; ptxas --version", "which there are: put one of another CUDA first on PATH"),
        install("--upgrade", "tensorflow[and-cuda]", note="or a TensorFlow that brings another"),
    ),
    seen="2.15-2.21",
)
PTXAS_OF_OLD_CUDA = FAMILY.fault(
    "ptxas_of_old_cuda",
    Text(
        "You are using ptxas {has:w}.{:s}, but TF requires ptxas {needs:w}.{:s}",
        "https://github.com/tensorflow/tensorflow/issues/33375",
    ),
    Text(
        "You are using ptxas {has:v}, which is older than {needs:v}",
        "https://github.com/tensorflow/tensorflow/issues/23874",
    ),
    meaning="the ptxas that XLA found first ({has}) is older than this TensorFlow needs: it is of another CUDA",
    fix=(
        check("which -a ptxas; ptxas --version", "Debian's and Ubuntu's package nvidia-cuda-toolkit brings an old one"),
        prepend(
            "PATH",
            "/usr/local/cuda/bin",
            "the CUDA that TensorFlow was built for comes first; or: XLA_FLAGS=--xla_gpu_cuda_data_dir=/usr/local/cuda",
        ),
    ),
    possible=True,
    seen="1.13-2.21",
)
STRAY_ACCESS = FAMILY.fault(
    "stray_access",
    *(
        Text(f"CUDA_ERROR_{name}", "nvidia-cuda-runtime-cu12 12.9.79 cuda.h")
        for name in (
            "ILLEGAL_ADDRESS",
            "MISALIGNED_ADDRESS",
            "ILLEGAL_INSTRUCTION",
            "INVALID_ADDRESS_SPACE",
            "INVALID_PC",
            "LAUNCH_FAILED",
        )
    ),
    Text("an illegal memory access was encountered", "nvidia-cuda-runtime-cu12 12.9.79 libcudart.so.12"),
    Text("an illegal instruction was encountered", "nvidia-cuda-runtime-cu12 12.9.79 libcudart.so.12"),
    Text("unspecified launch failure", "https://github.com/tensorflow/tensorflow/issues/41169"),
    *(
        Text(f"cudaError{name}", "nvidia-cuda-runtime-cu12 12.9.79 driver_types.h")
        for name in (
            "IllegalAddress",
            "MisalignedAddress",
            "IllegalInstruction",
            "InvalidAddressSpace",
            "InvalidPc",
            "LaunchFailure",
        )
    ),
    meaning="a kernel read or wrote memory that is not its own, or the GPU failed while it ran",
    seen="CUDA",
)
CUDNN_OLDER = FAMILY.fault(
    "cudnn_older",
    Text(
        "Loaded runtime CuDNN library: {found:v} but source was compiled with: {needed:v}",
        "tensorflow 2.21 xla/stream_executor/cuda/cuda_dnn.cc:459",
    ),
    "Loaded runtime CuDNN library: {found:v} but source was compiled with {needed:v}",
    Text(
        "Loaded runtime CuDNN library: {found:v} (compatibility version {:d}) but source was compiled with {needed:v}",
        "https://github.com/balancap/SSD-Tensorflow/issues/340",
    ),
    "Loaded runtime CuDNN library: {found:v} (compatibility version {:d}) but source was compiled with: {needed:v}",
    "Loaded cudnn library: {found:v} (compatibility version {:d}) but source was compiled against {needed:v}",
    seen="0.6-2.21",
)
NO_LIBDEVICE = FAMILY.fault(
    "no_libdevice",
    Text(
        "Can't find libdevice directory",
        "tensorflow 2.21 xla/service/gpu/llvm_gpu_backend/default/nvptx_libdevice_path.cc:42",
    ),
    Text("libdevice not found at", "tensorflow 2.21 xla/service/gpu/llvm_gpu_backend/nvptx_backend.cc:113"),
    Text(
        "libdevice is required by this HLO module",
        "tensorflow 2.21 xla/service/gpu/llvm_gpu_backend/nvptx_backend.cc:111",
    ),
)
NOT_TENSORFLOW = FAMILY.fault(
    "not_tensorflow",
    Text("module 'tensorflow' has no attribute", "https://github.com/adumrewal/imageMatting/issues/1"),
    "cannot import name '{:w}' from 'tensorflow",
    "cannot import name '{:w}' from tensorflow",
    Text("No module named 'tensorflow.{:q}'", "https://github.com/araffin/rl-baselines-zoo/issues/110"),
    "do not import tensorflow from its source directory",
    Text("partially initialized module 'tensorflow'", "https://github.com/tensorflow/tensorflow/issues/49518"),
    meaning="another file or folder of the name tensorflow is imported in place of the package",
    fix=(
        check("python -c 'import tensorflow; print(tensorflow.__file__)'", "rename what it prints, if it is yours"),
        note("remove its __pycache__ too; start the program from another folder"),
    ),
    follows=True,
    stage="PACKAGE",
    seen="Python",
)
MODULE_LACKS = FAMILY.fault(
    "module_lacks",
    "cannot import name '{:q}' from partially initialized module '{module:q}'{}({file:p})",
    Text("cannot import name '{:q}' from '{module:q}'{}({file:p})", "https://github.com/ma7555/kerasgen/issues/2"),
    "cannot import name '{:q}' from partially initialized module '{module:q}'",
    Text("cannot import name '{:q}' from '{module:q}'", "https://github.com/ma7555/kerasgen/issues/2"),
    Text("module '{module:q}' has no attribute", "https://github.com/dBeker/Faster-RCNN-TensorFlow-Python3/issues/90"),
    Text("No module named '{module:q}'; '{:q}' is not a package", "https://github.com/keras-team/autokeras/issues/82"),
    seen="Python",
)
