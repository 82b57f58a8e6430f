"""Messages of bazel and compilers when TensorFlow or an extension is built from source."""

from __future__ import annotations

from gpudiag.fix import Kind, ask, check, export, install, note, prepend, run
from gpudiag.knowledge.fault import Confidence, Stage
from gpudiag.knowledge.message import MessageFamily

FAMILY = MessageFamily(
    "building from sources", stage=Stage.BUILD, seen="bazel", url="https://www.tensorflow.org/install/source"
)

FAMILY.fault(
    "no_cuda_headers",
    "Could not find any {file:s} matching version '{version:q}' in any subdirectory",
    "Could not find any {file:s} matching version",
    "Could not find any {file:s} in any subdirectory",
    "Inconsistent CUDA toolkit path: {}",
    "Cuda Configuration Error: {}",
    "Auto-Configuration Error: {}",
    "no such package '@local_config_cuda//cuda': {}",
    "Cannot find cuda library {}",
    "no such package '@local_config_cuda//crosstool': {}",
    "fatal error: cuda_runtime.h: No such file or directory",
    "fatal error: cuda.h: No such file or directory",
    "fatal error: cudnn.h: No such file or directory",
    "fatal error: cuda_runtime_api.h: No such file or directory",
    meaning="the configured version of CUDA or cuDNN was not found by the build",
    fix=(
        run(
            "find / -name cudnn_version.h 2>/dev/null; ./configure",
            "run ./configure again, and give the version and folder of each",
        ),
        note(
            "TensorFlow 2.18 and newer downloads its own CUDA and cuDNN: bazel build --config=cuda "
            "with HERMETIC_CUDA_VERSION, HERMETIC_CUDNN_VERSION"
        ),
        install("tensorflow[and-cuda]", note="if you need not build TensorFlow yourself"),
    ),
)
FAMILY.fault(
    "compiler_killed",
    "internal compiler error: Killed (program {program:w})",
    "fatal error: Killed signal terminated program {program:w}",
    "cc1plus: out of memory allocating {}",
    "Server terminated abruptly (error code: 14",
    meaning="the build ran out of the computer's memory: too many compilers run at once",
    fix=(
        run("bazel build --jobs=4 --local_ram_resources=HOST_RAM*.5 ...", "runs fewer compilers at once"),
        check("free -g", "or add swap"),
    ),
    stage=Stage.MEMORY,
)
FAMILY.fault(
    "bazel_version",
    "Please upgrade your bazel installation to version {needs:v}",
    "Please downgrade your bazel installation to version {needs:v}",
    "does not contain a toolchain for CPU '{cpu:q}'",
    "Current Bazel version is {has:v}, expected at least {needs:v}",
    "The project you're trying to build requires Bazel {needs:v}",
    "(see --incompatible{:s} on http",
    "Unrecognized option: --{option:s}",
    "name '{name:q}' is not defined (did you mean",
    "no such attribute '{name:q}' in '{rule:q}' rule",
    "doesn't have testonly attribute set",
    "The value '{name:w}' has been removed in favor of",
    "unexpected keyword '{name:q}' in call to {rule:s}",
    "type '{kind:q}' has no method {name:s}",
    meaning="this source needs another release of bazel",
    fix=(
        note(
            "use bazelisk, which takes the release named in the file .bazelversion: "
            "https://github.com/bazelbuild/bazelisk",
            kind=Kind.INSTALL,
        ),
        note(
            "if the source has no such file, take the release listed at "
            "https://www.tensorflow.org/install/source#gpu: an older one than yours unless the line "
            "asks for an upgrade",
            kind=Kind.INSTALL,
        ),
    ),
)
FAMILY.fault(
    "compile_failed",
    "Linking of rule '{rule:q}' failed",
    "Target //tensorflow/tools/pip_package:{:s} failed to build",
    "Build did NOT complete successfully",
    "C++ compilation of rule '{rule:q}' failed (Exit {:d})",
    "undeclared inclusion(s) in rule '{rule:q}'",
    "crosstool_wrapper_driver_is_not_gcc failed: error executing command",
    meaning="a file could not be compiled; the lines around this one say why: most often the "
    "compiler, CUDA or bazel is not the release that this source was tested with",
    fix=(
        check(
            "gcc --version; bazel --version; nvcc --version",
            "compare with https://www.tensorflow.org/install/source#gpu",
        ),
        run("bazel clean --expunge; ./configure", "if you change one of them, configure again"),
        install("tensorflow[and-cuda]", note="if you need not build TensorFlow yourself"),
    ),
    symptom=True,
)
FAMILY.fault(
    "no_msvc",
    "Could not find MSVC/GCC/CLANG installation on this computer",
    "nvcc fatal : Cannot find compiler 'cl.exe' in PATH",
    "'cl' is not recognized as an internal or external command",
    "error: command 'cl.exe' failed: {}",
    meaning="the Visual Studio compiler was not found; nvcc needs it on Windows",
    fix=(
        note(
            "install the Build Tools for Visual Studio with the C++ workload: "
            "https://visualstudio.microsoft.com/downloads/",
            kind=Kind.INSTALL,
        ),
        note(
            '"C:\\Program Files (x86)\\Microsoft Visual '
            'Studio\\2019\\Community\\VC\\Auxiliary\\Build\\vcvars64.bat"'
            "  # your folder of it; in the same window before the program"
        ),
        ask("where cl.exe nvcc.exe", "both must be found"),
    ),
    seen="nvcc, Windows",
)
FAMILY.fault(
    "standard_not_known_by_nvcc",
    "nvcc fatal : Value '{standard:q}' is not defined for option 'std'",
    meaning="this CUDA's nvcc does not support {standard}, which this TensorFlow is written in: C++17"
    " needs CUDA 11, C++14 needs CUDA 9",
    in_general="this CUDA's nvcc is too old for the C++ standard that this TensorFlow is written in: "
    "C++17 needs CUDA 11, C++14 CUDA 9",
    fix=(
        run(
            "conda install -c nvidia cuda-toolkit=11.8",
            "or a newer CUDA that the GPU and the driver support",
            kind=Kind.INSTALL,
        ),
        note("or use an older TensorFlow: up to 2.9 it is written in C++14", kind=Kind.INSTALL),
    ),
    seen="nvcc",
)
FAMILY.fault(
    "compiler_crashed",
    "internal compiler error: Segmentation fault",
    "internal compiler error: in {}",
    "nvcc error : 'cicc' died due to signal {}",
    "nvcc error : 'cudafe++' died due to signal {}",
    meaning="the compiler itself crashes: this gcc does not work with this nvcc (gcc 10.3 and 11.0 "
    "with CUDA up to 11.2), or memory is short",
    fix=(
        run(
            "sudo apt install gcc-9 g++-9; export NVCC_PREPEND_FLAGS='-ccbin /usr/bin/g++-9'",
            "name this compiler in ./configure, too",
            kind=Kind.INSTALL_AS_ROOT,
        ),
        run("bazel build --jobs=4 ...", "if memory is short, runs fewer compilers at once"),
    ),
    confidence=Confidence.POSSIBLE,
    seen="gcc, nvcc",
)
CAPABILITY_NOT_KNOWN = FAMILY.fault(
    "capability_not_known_by_nvcc",
    "nvcc fatal : Unsupported gpu architecture '{architecture:q}'",
    "Value '{architecture:q}' is not defined for option 'gpu-architecture'",
    meaning="this CUDA toolkit does not support {architecture}: the toolkit is older than the GPU, or"
    " so new that it dropped that GPU",
    in_general="this CUDA toolkit does not support the GPU: it is older than the GPU, or so new that it "
    "dropped that GPU",
    fix=(
        check(
            "nvcc --list-gpu-arch; nvidia-smi --query-gpu=name,compute_cap --format=csv",
            "compare what nvcc supports with the GPU's compute capability",
        ),
        note(
            "compute capability 8.6 needs CUDA 11.1, 8.9 and 9.0 need 11.8, 10.0 and 12.0 need 12.8; "
            "the last CUDA for 3.5 to 3.7 is 11.8, for up to 7.0 it is 12.9"
        ),
    ),
    seen="nvcc",
)
FAMILY.fault(
    "abi_differs",
    '#error "C++ versions less than C++17 are not supported."',
    "undefined reference to `tensorflow::{}'",
    "#error This file requires compiler and library support for the ISO C++ 2011 standard",
    meaning="your own operation is compiled with other compiler options than TensorFlow was",
    fix=(
        ask(
            "python -c 'import tensorflow as tf; print(*tf.sysconfig.get_compile_flags(), "
            "*tf.sysconfig.get_link_flags())'",
            "add the printed options to the g++ command line",
        ),
    ),
    confidence=Confidence.POSSIBLE,
)

_CMAKE = (
    (
        "MPI",
        "MPI_CXX MPI_C MPI",
        "MPI with its compiler wrapper",
        (
            run(
                "sudo apt install libopenmpi-dev openmpi-bin; mpicxx --version",
                "or run: conda install -c conda-forge openmpi",
                kind=Kind.INSTALL_AS_ROOT,
            ),
        ),
    ),
    (
        "CUDA",
        "CUDA CUDAToolkit CUDAToolkit_NVCC",
        "the CUDA toolkit (nvcc and headers)",
        (
            run(
                "nvcc --version; export PATH=/usr/local/cuda/bin:$PATH CUDA_HOME=/usr/local/cuda "
                "HOROVOD_CUDA_HOME=/usr/local/cuda",
                "set these to the toolkit's folder; pip's CUDA packages contain only libraries",
                kind=Kind.SET_VARIABLE,
            ),
        ),
    ),
    (
        "NCCL",
        "NCCL",
        "NCCL with its headers",
        (run("sudo apt install libnccl2 libnccl-dev; export HOROVOD_NCCL_HOME=/usr", kind=Kind.INSTALL_AS_ROOT),),
    ),
    (
        "Tensorflow",
        "Tensorflow TensorFlow",
        "TensorFlow's own libraries in the Python that builds: TensorFlow is not installed there,"
        " or twice, by pip and by conda",
        (
            install(
                "--no-cache-dir",
                "--no-build-isolation",
                "horovod[tensorflow]",
                note="run it in an environment that has only pip's TensorFlow; to check: pip list | grep -i "
                "tensorflow; conda list | grep -i tensorflow",
            ),
        ),
    ),
    ("Pytorch", "Pytorch PyTorch Torch", "PyTorch", (export("HOROVOD_WITHOUT_PYTORCH", "1", "if you do not need it"),)),
    (
        "OpenCV",
        "OpenCV",
        "OpenCV with its headers",
        (run("sudo apt install libopencv-dev", kind=Kind.INSTALL_AS_ROOT),),
    ),
    ("HDF5", "HDF5", "HDF5 with its headers", (run("sudo apt install libhdf5-dev", kind=Kind.INSTALL_AS_ROOT),)),
)
_FIND_PACKAGE = "cmake 4.4 Modules/FindPackageHandleStandardArgs.cmake:514"
for _name, _packages, _what, _fix in _CMAKE:
    FAMILY.fault(
        f"cmake_no_{_name.lower()}",
        *(f"Could NOT find {part}" for part in _packages.split()),
        *(f'Could not find a package configuration file provided by "{part}"' for part in _packages.split()),
        meaning=f"the build does not find {_what}",
        fix=(*_fix, install("--upgrade", "cmake", note="an old CMake does not find newer systems' libraries")),
        seen="CMake",
    )
FAMILY.fault(
    "framework_not_linked",
    "cannot find -ltensorflow_framework",
    "library not found for -ltensorflow_framework",
    meaning="libtensorflow_framework.so was not found by the linker: the package has it only with a "
    "number in the name (libtensorflow_framework.so.2; 1.14 and newer: .so.1)",
    fix=(
        ask(
            "python -c 'import tensorflow as tf; print(*tf.sysconfig.get_link_flags())'",
            "add the printed options (-L and -l:libtensorflow_framework.so.2) to the command",
        ),
        note("or make a link in that folder: ln -s libtensorflow_framework.so.2 libtensorflow_framework.so"),
    ),
    seen="g++, ld",
)
FAMILY.fault(
    "cuda_not_linked",
    "cannot find -lcudart",
    "cannot find -lcublas",
    "cannot find -lcudnn",
    "cannot find -lcufft",
    "cannot find -lcurand",
    "cannot find -lcusolver",
    "cannot find -lcusparse",
    meaning="a CUDA library was not found by the linker",
    fix=(
        prepend(
            "LIBRARY_PATH",
            "/usr/local/cuda/lib64",
            "or add -L/usr/local/cuda/lib64 to the command; in a container, use the image's devel variant",
        ),
        check(
            "find / -name 'libcudart.so*' -o -name 'libcudnn.so*' 2>/dev/null", "shows the folders that contain them"
        ),
    ),
    seen="g++, ld",
)
FAMILY.fault(
    "driver_not_linked",
    "cannot find -lcuda",
    "cannot find -lnvidia-ml",
    meaning="the driver's library libcuda was not found by the linker; without a driver, link against"
    " the toolkit's stub",
    fix=(prepend("LIBRARY_PATH", "/usr/local/cuda/lib64/stubs", "use it only for linking, never in LD_LIBRARY_PATH"),),
    seen="g++, ld",
)
