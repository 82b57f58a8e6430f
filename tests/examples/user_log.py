"""Examples of causes: code that the GPU cannot run, and libraries of another CUDA."""

from __future__ import annotations

from examples import Example
from examples.facts import example_with_gpus
from gpudiag.cause import Evidence
from gpudiag.model.report import Judged, Row


def _said(*log: str) -> Evidence:
    return Evidence(example_with_gpus(1), lines=log)


_OLD_CUDART = "ImportError: libcudart.so.11.0: cannot open shared object file: No such file or directory"
_OLD_CUDNN = (
    "Could not load library libcudnn_cnn_infer.so.8. Error: libcuda.so: cannot open shared object file: No such file "
    "or directory"
)
_PTXAS = "ptxas fatal   : Value 'sm_120' is not defined for option 'gpu-name'"
EXAMPLES: dict[str, tuple[Example, ...]] = {
    "no_code_for_gpu": (
        Example("the driver's word", _said("'cuModuleLoadData' failed with 'CUDA_ERROR_NO_BINARY_FOR_GPU'")),
        Example("the runtime's", _said("CUDA error: no kernel image is available for execution on the device")),
        Example("another error", _said("CUDA_ERROR_INVALID_VALUE"), fires=False),
        Example(
            "provoked by a probe",
            Evidence(
                example_with_gpus(1),
                rows=(Row("memory.x", (), Judged(), 0.0, log=("CUDA_ERROR_NO_BINARY_FOR_GPU",)),),
            ),
            fires=False,
        ),
    ),
    "ptxas_too_old": (
        Example("Blackwell", _said(_PTXAS)),
        Example("another fault", _said("ptxas fatal   : Unresolved extern function '__nv_expf'"), fires=False),
    ),
    "kernel_failed": (
        Example("address", _said("CUDA_ERROR_ILLEGAL_ADDRESS: an illegal memory access was encountered")),
        Example("launch", _said("CUDA_ERROR_LAUNCH_FAILED: unspecified launch failure")),
        Example("no memory", _said("CUDA_ERROR_OUT_OF_MEMORY: out of memory"), fires=False),
    ),
    "library_of_another_cuda": (
        Example("CUDA 11", _said(_OLD_CUDART)),
        Example("a link of the driver that cuDNN 8 lacks", _said(_OLD_CUDNN), fires=False),
        Example("by TensorFlow", _said("Could not load dynamic library 'libcublas.so.11'; dlerror: libcublas.so.11")),
        Example("CUDA 13", _said(_OLD_CUDART.replace("11.0", "13"))),
        Example("CUDA 12", _said(_OLD_CUDART.replace("11.0", "12")), fires=False),
        Example("another library", _said(_OLD_CUDART.replace("cudart.so.11.0", "foo.so.1")), fires=False),
    ),
}
