"""What the log of a program says of code that its GPU cannot run, and of libraries that are of another CUDA."""

from __future__ import annotations

from collections.abc import Iterator

from gpudiag.diagnosis.rule import Evidence, Match, Rule, RuleCase
from gpudiag.hostfacts import example_with_gpus
from gpudiag.knowledge.log import LIBRARY_ASKED_FOR, NO_CODE_FOR_GPU, NO_LIBCUDA_LINK, PTXAS_TOO_OLD, STRAY_ACCESS
from gpudiag.log import Log, text
from gpudiag.model import Judged, Row, Stage, Sure


def _no_code(evidence: Evidence) -> Iterator[Match]:
    said = evidence.program.said(NO_CODE_FOR_GPU)
    if said:
        gpus = tuple(
            f"GPU {device.index} here: {device.name}, compute capability {device.compute_capability}"
            for device in evidence.facts.nvml_devices
            if device.compute_capability
        )
        yield Match(evidence=(*said, *gpus), sure=Sure.LIKELY)


def _old_ptxas(evidence: Evidence) -> Iterator[Match]:
    if said := evidence.unprovoked.first(PTXAS_TOO_OLD):
        yield Match(evidence=(text(said.line),), figures={"target": said["target"]})


def _kernel_failed(evidence: Evidence) -> Iterator[Match]:
    said = evidence.program.said(STRAY_ACCESS)
    if said:
        yield Match(evidence=said, sure=Sure.POSSIBLE)


_OURS = {
    "libcublas": "12",
    "libcublasLt": "12",
    "libcudart": "12",
    "libcudnn": "9",
    "libcufft": "11",
    "libcurand": "10",
    "libcusolver": "11",
    "libcusparse": "12",
    "libnvrtc": "12",
}
"""Library to the version in its name that CUDA 12 has, for which TensorFlow 2.18 to 2.21 is built; cuDNN's is 9."""


def _library_of_another_cuda(evidence: Evidence) -> Iterator[Match]:
    for asked in evidence.program.all(LIBRARY_ASKED_FOR):
        name = asked["library"].partition("_")[0]
        if name not in _OURS or asked["version"].partition(".")[0] == _OURS[name]:
            continue
        library = "cuDNN" if name == "libcudnn" else "CUDA"
        link = Log((asked.line,)).first(NO_LIBCUDA_LINK)
        yield Match(
            evidence=(text(asked.line),),
            sure=Sure.LIKELY,
            figures={
                "asked": f"{asked['library']}.so.{asked['version']}",
                "ours": f"{name}.so.{_OURS[name]}",
                "library": library,
                "link": "export LD_LIBRARY_PATH=/usr/lib/wsl/lib:$LD_LIBRARY_PATH  # under WSL: has the libcuda.so "
                "that is lacking; elsewhere it is a link to libcuda.so.1"
                if link
                else "",
            },
        )
        return


def _said(*log: str) -> Evidence:
    return Evidence(example_with_gpus(1), lines=log)


_OLD_CUDART = "ImportError: libcudart.so.11.0: cannot open shared object file: No such file or directory"
_OLD_CUDNN = (
    "Could not load library libcudnn_cnn_infer.so.8. Error: libcuda.so: cannot open shared object file: No such file "
    "or directory"
)
_PTXAS = "ptxas fatal   : Value 'sm_120' is not defined for option 'gpu-name'"

RULES = (
    Rule(
        id="no_code_for_gpu",
        stage=Stage.CONFIGURATION,
        cause="a kernel of the program that wrote the log was not built for its GPU",
        why="""
        Machine code runs on GPUs of its own generation, PTX on later ones, too. CUDA_ERROR_NO_BINARY_FOR_GPU and "no
        kernel image is available" say that a kernel has neither for this GPU: TensorFlow's wheel, NVIDIA's library, or
        an extension that was built for other GPUs. Another driver does not help.
        """,
        fix=(
            "nvidia-smi --query-gpu=name,compute_cap --format=csv  # of the GPU",
            "python -c 'import tensorflow as tf; print(tf.sysconfig.get_build_info()[\"cuda_compute_capabilities\"])'",
            "# take a TensorFlow that has this capability, or build the extension that failed for it",
        ),
        url="https://docs.nvidia.com/cuda/cuda-c-programming-guide/#binary-compatibility",
        find=_no_code,
        needs_gpu=False,
        cases=(
            RuleCase("the driver's word", _said("'cuModuleLoadData' failed with 'CUDA_ERROR_NO_BINARY_FOR_GPU'")),
            RuleCase("the runtime's", _said("CUDA error: no kernel image is available for execution on the device")),
            RuleCase("another error", _said("CUDA_ERROR_INVALID_VALUE"), fires=False),
            RuleCase(
                "provoked by a probe",
                Evidence(
                    example_with_gpus(1),
                    rows=(Row("memory.x", (), Judged(), 0.0, log=("CUDA_ERROR_NO_BINARY_FOR_GPU",)),),
                ),
                fires=False,
            ),
        ),
    ),
    Rule(
        id="ptxas_too_old",
        stage=Stage.CONFIGURATION,
        cause="the ptxas that XLA found is too old for the GPU: it does not know {target}",
        why="""
        XLA compiles kernels with the ptxas of a CUDA toolkit that it finds in NVIDIA's package, in
        --xla_gpu_cuda_data_dir, or on PATH. One that is older than the GPU does not know its generation: 10.0 and 12.0
        (Blackwell) came with CUDA 12.8, 9.0 (Hopper) and 8.9 (Ada) with 11.8. XLA then lets the driver compile, or
        fails where it must not.
        """,
        fix=(
            "pip install --upgrade 'nvidia-cuda-nvcc-cu12'  # has a ptxas that XLA finds",
            "python -c \"import shutil; print(shutil.which('ptxas'))\"  # take one of an older toolkit out of PATH",
        ),
        url="https://docs.nvidia.com/cuda/cuda-compiler-driver-nvcc/#gpu-feature-list",
        find=_old_ptxas,
        needs_gpu=False,
        cases=(
            RuleCase("Blackwell", _said(_PTXAS)),
            RuleCase("another fault", _said("ptxas fatal   : Unresolved extern function '__nv_expf'"), fires=False),
        ),
    ),
    Rule(
        id="kernel_failed",
        stage=Stage.CONFIGURATION,
        cause="a kernel of the program failed on the GPU: it read or wrote where it must not, or the GPU has a fault",
        why="""
        After CUDA_ERROR_ILLEGAL_ADDRESS and its like every further call of the process fails, and the line names what
        was called then, not the kernel that failed: kernels run later than they are called. Most often it is an
        operation of one's own or of an extension, an index out of range (which on the GPU is not checked), or libraries
        that do not fit each other; in rare cases the GPU, its memory or its overclocking.
        """,
        fix=(
            "CUDA_LAUNCH_BLOCKING=1 python program.py  # the traceback names the operation that failed then",
            "sudo dmesg | grep -i -e nvrm -e xid  # Xid 13 and 31: a program's; 48, 63, 64, 79, 94, 95: the GPU's",
        ),
        url="https://docs.nvidia.com/deploy/xid-errors/",
        find=_kernel_failed,
        needs_gpu=False,
        cases=(
            RuleCase("address", _said("CUDA_ERROR_ILLEGAL_ADDRESS: an illegal memory access was encountered")),
            RuleCase("launch", _said("CUDA_ERROR_LAUNCH_FAILED: unspecified launch failure")),
            RuleCase("no memory", _said("CUDA_ERROR_OUT_OF_MEMORY: out of memory"), fires=False),
        ),
    ),
    Rule(
        id="library_of_another_cuda",
        stage=Stage.CONFIGURATION,
        cause="something in the program that wrote the log asks for {asked}, of another release of {library}",
        why="""
        TensorFlow 2.18 to 2.21 opens libraries of CUDA 12 and cuDNN 9. Who asks for libcudart.so.11.0 or a library of
        cuDNN 8 is an older TensorFlow (2.17 and before: cuDNN 8; 2.14 and before: CUDA 11), or an extension, or another
        framework, that was built for it. A link of the new library under the old name does not help: the functions
        differ. cuDNN 8 also opens libcuda.so, without a number, which not every driver's installation has.
        """,
        fix=(
            "{link}",
            "pip list | grep -i -e tensorflow -e torch -e jax -e nvidia  # by the program's interpreter",
            "pip install --upgrade 'tensorflow[and-cuda]'  # brings {ours}; likewise a release of the extension for it",
        ),
        url="https://www.tensorflow.org/install/source#gpu",
        find=_library_of_another_cuda,
        needs_gpu=False,
        cases=(
            RuleCase("CUDA 11", _said(_OLD_CUDART)),
            RuleCase("cuDNN 8", _said(_OLD_CUDNN)),
            RuleCase(
                "by TensorFlow", _said("Could not load dynamic library 'libcublas.so.11'; dlerror: libcublas.so.11")
            ),
            RuleCase("CUDA 13", _said(_OLD_CUDART.replace("11.0", "13"))),
            RuleCase("CUDA 12", _said(_OLD_CUDART.replace("11.0", "12")), fires=False),
            RuleCase("another library", _said(_OLD_CUDART.replace("cudart.so.11.0", "foo.so.1")), fires=False),
        ),
    ),
)
