"""Tables of the statuses that cuDNN, cuBLAS, cuSOLVER, cuFFT, cuSPARSE and cuRAND return.

cuDNN 9 divides the statuses of cuDNN 8 into finer ones; one that this table lacks has the meaning of its class.
"""

from __future__ import annotations

from gpudiag.fix import (
    Action,
    check,
    edit_note,
    export,
    install,
    install_driver,
    kernel_log,
    nvidia_smi,
    unset,
)
from gpudiag.knowledge.fault import Confidence
from gpudiag.knowledge.message import Message, MessageFamily

# What cublasGetStatusString gives (the strings of libcublasLt 12.5.3.2). TensorFlow built with CUDA 12 prints it in
# place of the name (clearml/clearml-fractional-gpu, issue 4).
CUBLAS_TEXTS = {
    "NOT_INITIALIZED": "the library was not initialized",
    "ALLOC_FAILED": "the resource allocation failed",
    "INVALID_VALUE": "an unsupported value or parameter was passed to the function",
    "ARCH_MISMATCH": "the function requires an architectural feature absent from the device",
    "MAPPING_ERROR": "an access to GPU memory space failed",
    "EXECUTION_FAILED": "the function failed to launch on the GPU",
    "INTERNAL_ERROR": "an internal operation failed",
    "NOT_SUPPORTED": "the requested functionality is not supported",
    "LICENSE_ERROR": "the license check failed",
}
_CUBLAS_SAYS = ("cublas handle", "cuBLAS calls")
"""The prefix that TensorFlow puts before a text of libcublasLt."""

FAMILY = MessageFamily("statuses of NVIDIA's libraries", seen="CUDA 11-13, cuDNN 8-9")

_GROWTH = export("TF_FORCE_GPU_ALLOW_GROWTH", "true", "leaves memory to NVIDIA's libraries")
_SMALLER = nvidia_smi("shows whether another process holds memory; use a smaller batch")
_SAME = install("--upgrade", "--force-reinstall", "tensorflow[and-cuda]", note="installs libraries that fit each other")
_PATH = unset("LD_LIBRARY_PATH", note="if it puts other copies of CUDA's libraries first")
_MEMORY = (_GROWTH, _SMALLER, _PATH)

_WHAT = {
    "CUDNN": ("cuDNN", "https://docs.nvidia.com/deeplearning/cudnn/latest/api/cudnn-graph-library.html"),
    "CUBLAS": ("cuBLAS", "https://docs.nvidia.com/cuda/cublas/index.html#cublasstatus-t"),
    "CUSOLVER": ("cuSOLVER", "https://docs.nvidia.com/cuda/cusolver/index.html"),
    "CUSPARSE": ("cuSPARSE", "https://docs.nvidia.com/cuda/cusparse/index.html"),
    "CURAND": ("cuRAND", "https://docs.nvidia.com/cuda/curand/group__HOST.html"),
    "CUFFT": ("cuFFT", "https://docs.nvidia.com/cuda/cufft/index.html"),
}
_ALL = "CUDNN CUBLAS CUSOLVER CUSPARSE CURAND"

_ROWS: tuple[tuple[str, str, str, tuple[Action, ...], Confidence], ...] = (
    # libraries, statuses, meaning, fix, whether others lead to it
    (
        _ALL,
        "NOT_INITIALIZED INITIALIZATION_FAILED",
        "could not start on the GPU: no memory left for it most often",
        _MEMORY,
        Confidence.POSSIBLE,
    ),
    (_ALL, "ALLOC_FAILED ALLOCATION_FAILED", "found no memory on the GPU", _MEMORY, Confidence.LIKELY),
    (
        _ALL,
        "INTERNAL_ERROR",
        "failed inside: no memory left on the GPU most often, else libraries that do not fit each other",
        (_GROWTH, _SMALLER, _SAME),
        Confidence.POSSIBLE,
    ),
    (
        _ALL,
        "EXECUTION_FAILED LAUNCH_FAILURE PREEXISTING_FAILURE",
        "could not run a kernel on the GPU: no memory left, a kernel that failed before it, or a GPU that its code is "
        "too old for",
        (_GROWTH, _SMALLER, kernel_log(), _SAME),
        Confidence.POSSIBLE,
    ),
    (
        _ALL,
        "ARCH_MISMATCH",
        "has no code for this GPU, which is older or newer than the library",
        (nvidia_smi(options="--query-gpu=name,compute_cap --format=csv"), _SAME),
        Confidence.LIKELY,
    ),
    (
        _ALL,
        "NOT_SUPPORTED",
        "does not do what was asked on this GPU, or in this release",
        (_SAME, edit_note("use another algorithm, type or layout")),
        Confidence.POSSIBLE,
    ),
    (
        _ALL,
        "INVALID_VALUE BAD_PARAM",
        "was called with a value that it does not take",
        (_SAME, _PATH),
        Confidence.POSSIBLE,
    ),
    (_ALL, "MAPPING_ERROR", "could not reach memory of the GPU", (_GROWTH, _SMALLER), Confidence.POSSIBLE),
    (_ALL, "INSUFFICIENT_RESOURCES", "needs more of the GPU than there is", (_GROWTH, _SMALLER), Confidence.POSSIBLE),
    (
        "CUDNN",
        "VERSION_MISMATCH SUBLIBRARY_VERSION_MISMATCH SERIALIZATION_VERSION_MISMATCH",
        "has parts of different versions loaded",
        (_PATH, install("--force-reinstall", "nvidia-cudnn-cu12"), check("pip list | grep -i cudnn", "one only")),
        Confidence.LIKELY,
    ),
    (
        "CUDNN",
        "SUBLIBRARY_LOADING_FAILED",
        "could not load one of its own libraries (libcudnn_*.so.9)",
        (install("--force-reinstall", "nvidia-cudnn-cu12"), _PATH),
        Confidence.LIKELY,
    ),
    (
        "CUDNN",
        "RUNTIME_PREREQUISITE_MISSING",
        "lacks a library that it needs, or a driver that is new enough",
        (
            _SAME,
            install_driver("or install the driver in your distribution's way; then reboot"),
        ),
        Confidence.LIKELY,
    ),
    ("CUDNN CUBLAS", "LICENSE_ERROR", "finds no licence", (check("nvidia-smi -q | grep -i licen"),), Confidence.LIKELY),
    ("CUDNN", "RUNTIME_IN_PROGRESS RUNTIME_FP_OVERFLOW", "reports on work that it was given", (), Confidence.POSSIBLE),
    ("CUSOLVER CUSPARSE", "MATRIX_TYPE_NOT_SUPPORTED ZERO_PIVOT", "cannot solve this matrix", (), Confidence.POSSIBLE),
    ("CUSOLVER", "INVALID_LICENSE", "finds no licence", (check("nvidia-smi -q | grep -i licen"),), Confidence.LIKELY),
    (
        "CUSOLVER",
        "INVALID_WORKSPACE IRS_PARAMS_NOT_INITIALIZED IRS_PARAMS_INVALID IRS_PARAMS_INVALID_PREC "
        "IRS_PARAMS_INVALID_REFINE IRS_PARAMS_INVALID_MAXITER IRS_INTERNAL_ERROR IRS_NOT_SUPPORTED IRS_OUT_OF_RANGE "
        "IRS_NRHS_NOT_SUPPORTED_FOR_REFINE_GMRES IRS_INFOS_NOT_INITIALIZED IRS_INFOS_NOT_DESTROYED IRS_MATRIX_SINGULAR",
        "could not solve a system by iterative refinement, or was called with other memory than it asked for",
        (),
        Confidence.POSSIBLE,
    ),
    (
        "CURAND",
        "DOUBLE_PRECISION_REQUIRED TYPE_ERROR OUT_OF_RANGE LENGTH_NOT_MULTIPLE",
        "cannot make such numbers",
        (),
        Confidence.POSSIBLE,
    ),
)
_CUFFT: tuple[tuple[str, str, tuple[Action, ...], Confidence], ...] = (
    ("ALLOC_FAILED", "found no memory on the GPU", _MEMORY, Confidence.LIKELY),
    ("SETUP_FAILED", "could not start on the GPU: no memory left for it most often", _MEMORY, Confidence.POSSIBLE),
    (
        "INTERNAL_ERROR",
        "failed inside: no memory left on the GPU most often",
        (_GROWTH, _SMALLER, _SAME),
        Confidence.POSSIBLE,
    ),
    ("EXEC_FAILED", "could not run a kernel on the GPU", (_GROWTH, _SMALLER, _SAME), Confidence.POSSIBLE),
    ("NO_WORKSPACE", "was given no memory to work in", _MEMORY, Confidence.POSSIBLE),
    ("INVALID_PLAN", "was called with a plan that it does not have", (_SAME, _PATH), Confidence.POSSIBLE),
    (
        "INVALID_SIZE",
        "does not do transforms of this size",
        (edit_note("another length or batch"),),
        Confidence.POSSIBLE,
    ),
    (
        "INVALID_VALUE INVALID_TYPE INCOMPLETE_PARAMETER_LIST INVALID_DEVICE UNALIGNED_DATA PARSE_ERROR",
        "was called with a value that it does not take",
        (_SAME, _PATH),
        Confidence.POSSIBLE,
    ),
    ("LICENSE_ERROR", "finds no licence", (check("nvidia-smi -q | grep -i licen"),), Confidence.LIKELY),
    ("NOT_SUPPORTED NOT_IMPLEMENTED", "does not do what was asked on this GPU", (_SAME,), Confidence.POSSIBLE),
    (
        "MISSING_DEPENDENCY NVRTC_FAILURE NVJITLINK_FAILURE",
        "lacks a library that compiles for the GPU",
        (_SAME, _PATH),
        Confidence.LIKELY,
    ),
)
CUFFT_NUMBERS = {
    1: "INVALID_PLAN",
    2: "ALLOC_FAILED",
    3: "INVALID_TYPE",
    4: "INVALID_VALUE",
    5: "INTERNAL_ERROR",
    6: "EXEC_FAILED",
    7: "SETUP_FAILED",
    8: "INVALID_SIZE",
}
"""TensorFlow prints a status of cuFFT as its number."""

_PRINTED = {
    "CUDNN": "NOT_INITIALIZED ALLOC_FAILED INTERNAL_ERROR EXECUTION_FAILED ARCH_MISMATCH NOT_SUPPORTED "
    "INVALID_VALUE BAD_PARAM MAPPING_ERROR VERSION_MISMATCH SUBLIBRARY_VERSION_MISMATCH "
    "SERIALIZATION_VERSION_MISMATCH SUBLIBRARY_LOADING_FAILED RUNTIME_PREREQUISITE_MISSING LICENSE_ERROR "
    "RUNTIME_IN_PROGRESS RUNTIME_FP_OVERFLOW",
    "CUBLAS": "NOT_INITIALIZED ALLOC_FAILED INTERNAL_ERROR EXECUTION_FAILED ARCH_MISMATCH NOT_SUPPORTED "
    "INVALID_VALUE MAPPING_ERROR LICENSE_ERROR",
    "CUSOLVER": "NOT_INITIALIZED ALLOC_FAILED INTERNAL_ERROR EXECUTION_FAILED ARCH_MISMATCH NOT_SUPPORTED "
    "INVALID_VALUE MAPPING_ERROR MATRIX_TYPE_NOT_SUPPORTED ZERO_PIVOT INVALID_LICENSE INVALID_WORKSPACE "
    "IRS_PARAMS_NOT_INITIALIZED IRS_PARAMS_INVALID IRS_PARAMS_INVALID_PREC IRS_PARAMS_INVALID_REFINE "
    "IRS_PARAMS_INVALID_MAXITER IRS_INTERNAL_ERROR IRS_NOT_SUPPORTED IRS_OUT_OF_RANGE "
    "IRS_NRHS_NOT_SUPPORTED_FOR_REFINE_GMRES IRS_INFOS_NOT_INITIALIZED IRS_INFOS_NOT_DESTROYED "
    "IRS_MATRIX_SINGULAR",
    "CUSPARSE": "NOT_INITIALIZED ALLOC_FAILED INTERNAL_ERROR EXECUTION_FAILED ARCH_MISMATCH NOT_SUPPORTED "
    "INVALID_VALUE MAPPING_ERROR INSUFFICIENT_RESOURCES MATRIX_TYPE_NOT_SUPPORTED ZERO_PIVOT",
    "CURAND": "NOT_INITIALIZED INITIALIZATION_FAILED ALLOCATION_FAILED INTERNAL_ERROR LAUNCH_FAILURE "
    "PREEXISTING_FAILURE ARCH_MISMATCH DOUBLE_PRECISION_REQUIRED TYPE_ERROR OUT_OF_RANGE "
    "LENGTH_NOT_MULTIPLE",
    "CUFFT": "ALLOC_FAILED SETUP_FAILED INTERNAL_ERROR EXEC_FAILED NO_WORKSPACE INVALID_PLAN INVALID_SIZE "
    "INVALID_VALUE INVALID_TYPE NOT_SUPPORTED NOT_IMPLEMENTED MISSING_DEPENDENCY NVRTC_FAILURE "
    "NVJITLINK_FAILURE INCOMPLETE_PARAMETER_LIST INVALID_DEVICE UNALIGNED_DATA PARSE_ERROR LICENSE_ERROR",
}
"""All statuses in the header of each library."""


def _add(
    library: str, status: str, meaning: str, fix: tuple[Action, ...], confidence: Confidence, *texts: str
) -> Message:
    name, url = _WHAT[library]
    return FAMILY.fault(
        f"{library.lower()}_{status.lower()}",
        *texts,
        meaning=f"{name} {meaning}",
        fix=fix,
        confidence=confidence,
        url=url,
    )


def _printed(library: str, between: str, statuses: str) -> list[str]:
    names = _PRINTED[library].split()
    return [f"{library}{between}{part}" for part in statuses.split() if part in names]


for _libraries, _statuses, _meaning, _fix, _confidence in _ROWS:
    for _library in _libraries.split():
        _first, *_ = _statuses.split()
        _texts = _printed(_library, "_STATUS_", _statuses)
        if _library == "CUBLAS":
            _known = [CUBLAS_TEXTS[part] for part in _statuses.split() if part in CUBLAS_TEXTS]
            _texts += [f"{says}: {known}" for says in _CUBLAS_SAYS for known in _known]
        if _texts:
            _add(_library, _first, _meaning, _fix, _confidence, *_texts)

_FFT: dict[str, Message] = {}
for _statuses, _meaning, _fix, _confidence in _CUFFT:
    _message = _add(
        "CUFFT",
        _statuses.split()[0],
        _meaning,
        _fix,
        _confidence,
        *_printed("CUFFT", "_", _statuses),
    )
    _FFT |= {str(number): _message for number, name in CUFFT_NUMBERS.items() if name in _statuses.split()}
FAMILY.fault(
    "cufft_number",
    pattern=r"(?:cuFFT|cufft) [\w ]{0,60}: ?(?P<code>\d{1,3})\b",
    words=("cufft",),
    codes=_FFT,
    meaning="a call of cuFFT failed",
)
FAMILY.fault(
    "cudnn_status",
    pattern=r"\b(?P<status>CUDNN_STATUS_(?:BAD_PARAM|INTERNAL_ERROR|EXECUTION_FAILED|NOT_SUPPORTED)_\w{1,60})",
    words=tuple(
        f"cudnn_status_{status}_{detail}"
        for status, details in {
            "bad_param": "null_pointer misaligned_pointer not_finalized out_of_bound size_insufficient stream_mismatch "
            "shape_mismatch duplicated_entries attribute_type cuda_graph_mismatch descriptor_type",
            "not_supported": "graph_pattern shape data_type layout incompatible_cuda_driver incompatible_cudart "
            "arch_mismatch runtime_prerequisite_missing sublibrary_unavailable shared_memory_insufficient padding "
            "bad_launch_param cuda_graph_native_api",
            "internal_error": "compilation_failed unexpected_value host_allocation_failed device_allocation_failed "
            "bad_launch_param texture_creation_failed",
            "execution_failed": "cuda_driver cublas cudart curand",
        }.items()
        for detail in details.split()
    ),
    meaning="cuDNN answered {status}: {status} names what it lacks",
    in_general="cuDNN answered with a status that names what it lacks",
    fix=(_SAME, _PATH, _GROWTH),
    confidence=Confidence.POSSIBLE,
)
