"""Messages of programs about the driver, its tools and its libraries, of any release."""

from __future__ import annotations

from gpudiag.knowledge.fault import Stage
from gpudiag.knowledge.message import MessageFamily

FAMILY = MessageFamily("drivers and libraries, as programs meet them", stage=Stage.DRIVER, seen="any")

# --- libraries -------------------------------------------------------------------------------------------------------

NO_LIBCUDA = FAMILY.fault(
    "no_libcuda",
    "Could not load dynamic library 'libcuda.so.1'",
    "Could not load dynamic library 'nvcuda.dll'",
    "libcuda.so.1: cannot open shared object file",
    "failed call to cuInit: UNKNOWN ERROR (303)",
    "was unable to find libcuda.so DSO loaded into this program",
    "Could not find module 'nvcuda.dll'",
    'libcuda.so.1" does not exist',
)
NO_CUPTI = FAMILY.fault(
    "no_cupti",
    pattern=r"Could not load dynamic library '(?P<library>libcupti\.so[.\d]{0,20}|cupti64_[\w.]+\.dll)'|"
    r"(?P<missing>libcupti\.so[.\d]{0,20}): cannot open shared object file",
    words=("libcupti", "cupti"),
)
PROFILING_NOT_PERMITTED = FAMILY.fault(
    "profiling_not_permitted",
    "CUPTI_ERROR_INSUFFICIENT_PRIVILEGES",
    "CUPTI_ERROR_VIRTUALIZED_DEVICE_INSUFFICIENT_PRIVILEGES",
    "CUPTI need root access",
    "Insufficient privilege to run libcupti (you need root permission)",
    "ERR_NVGPUCTRPERM",
    seen="2.0-2.21, CUPTI",
)
CUDNN_PART = FAMILY.fault(
    "cudnn_part",
    pattern=r"Could not (?:load library|locate) (?P<part>\S{0,200}?cudnn_\w{1,40}"
    r"(?:\.so(?:\.\d{1,4}){0,4}|64_\d\.dll|\.dll))"
    r"(?:\. Error: (?P<behind>lib(?!cudnn)\w{1,40}\.so(?:\.\d{1,4}){0,4}): cannot open)?|"
    r"Unable to load any of \{(?P<any>libcudnn_[^}]{1,200})\}|"
    r"Cannot load symbol (?P<symbol>cudnn\w{1,80})|"
    r"(?P<version>libcudnn_\w{1,40}\.so[.\d]{0,20}): (?:undefined symbol|version)",
    words=("locate", "load", "libcudnn_cnn_train", "libcudnn_cnn_infer", "libcudnn_ops_infer", "symbol"),
)
NO_ZLIB = FAMILY.fault(
    "no_zlib",
    "Could not locate zlibwapi.dll",
    seen="cuDNN 8, Windows",
)
LIBRARIES_MIXED = FAMILY.fault(
    "libraries_mixed",
    pattern=r"(?P<user>(?<![^\s:'\"(])[^\s:'\"(]{1,300}\.so[.\d]{0,20}): "
    r"(?:undefined symbol: (?P<symbol>\w{1,300}), version "
    r"(?P<library>lib\w{1,60}\.so[.\d]{0,20})|symbol (?P<lacked>\w{1,300}),? version "
    r"(?P<of>lib\w{1,60}\.so[.\d]{0,20}) not defined)|"
    r"(?P<by>(?<![^\s:'\"(])[^\s:'\"(]{1,300}\.so[.\d]{0,20}): undefined symbol: (?P<name>"
    r"(?:cublas|cublasLt|cusparse|cusolver|cudnn|nvJitLink|"
    r"__nvJitLink)\w+)",
    words=("symbol",),
)

# --- the driver ------------------------------------------------------------------------------------------------------

TWO_VERSIONS = FAMILY.fault(
    "two_versions_of_the_driver",
    "kernel version {module:v} does not match DSO version {library:v}",
    "NVRM: API mismatch: the client has the version {library:v}",
    "Driver/library version mismatch",
    "nvml error: driver/library version mismatch",
    "NVML/RM version mismatch",
    "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH",
    "NVML_ERROR_LIB_RM_VERSION_MISMATCH",
    meaning="the driver's libraries and its kernel module are of different versions",
)
NVML_LIBRARY_VERSION = FAMILY.sign("nvml_library_version", "NVML library version: {version:v}")
COMPAT_REFUSED = FAMILY.fault(
    "compat_refused",
    "CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE",
    "forward compatibility was attempted on non supported HW",
)
MODULE_SILENT = FAMILY.fault(
    "module_silent",
    "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver",
    "kernel driver does not appear to be running on this host",
    "modprobe: ERROR: could not insert 'nvidia{:q}': No such device",
    "modprobe: ERROR: could not insert 'nvidia{:q}': Exec format error",
    "modprobe: ERROR: could not insert 'nvidia{:q}': Invalid argument",
    "modprobe: ERROR: could not insert 'nvidia{:q}': Unknown symbol in module",
    "could not find module by name='nvidia{:q}'",
    "modprobe: FATAL: Module nvidia{:s} not found",
)
GPU_HELD_BY_MODULE = FAMILY.fault(
    "gpu_held_by_module",
    "NVRM: The NVIDIA probe routine was not called for",
    "obtained ownership of the NVIDIA device(s)",
    "The Nouveau kernel driver is currently in use by your system",
    "ERROR: The Nouveau kernel driver",
    seen="Linux",
)
MODULE_UNSIGNED = FAMILY.fault(
    "module_unsigned",
    "could not insert 'nvidia{:q}': Required key not available",
    "could not insert 'nvidia{:q}': Key was rejected by service",
    "could not insert 'nvidia{:q}': Operation not permitted",
    "Loading of unsigned module is rejected",
    "Lockdown: modprobe: unsigned module loading is restricted",
    "PKCS#7 signature not signed with a trusted key",
    "module verification failed: signature and/or required key missing",
)
NO_CUDA_DEVICE = FAMILY.fault(
    "no_cuda_device",
    "CUDA_ERROR_NO_DEVICE",
    "no CUDA-capable device is detected",
    "no NVIDIA GPU device is present",
    "No CUDA GPUs are available",
)
NO_DEVICE_FILE = FAMILY.fault(
    "no_device_file",
    "no NVIDIA GPU device is present: /dev/nvidia{:d} does not exist",
)
MASK_IN_CODE = FAMILY.sign(
    "mask_in_code",
    pattern=r"os\.environ\[.CUDA_VISIBLE_DEVICES.\]\s*=\s*['\"](?P<value>[^'\"]*)['\"]",
    words=("cuda_visible_devices",),
)
CUINIT_UNKNOWN = FAMILY.fault(
    "cuinit_unknown",
    "failed call to cuInit: CUDA_ERROR_UNKNOWN",
    "calling cudaGetDevice({:l}) in file {:s} code: {:d}, reason: unknown error",
    "cudaGetDevice() failed. Status: unknown error",
    "CUDA unknown error - this may be due to an incorrectly set up environment",
)
PTX_TOO_NEW = FAMILY.fault(
    "ptx_too_new",
    "CUDA_ERROR_UNSUPPORTED_PTX_VERSION",
    "the provided PTX was compiled with an unsupported toolchain",
    "cudaErrorUnsupportedPtxVersion",
)
NO_WINDOWS_GPU = FAMILY.fault(
    "no_windows_gpu",
    "TensorFlow GPU support is not available on native Windows for TensorFlow >= 2.11",
)

NO_GPU_LISTED = FAMILY.fault(
    "no_gpu_listed",
    "Num GPUs Available: 0",
    "Num GPUs: 0",
    "GPU is NOT AVAILABLE",
    "GPU Available: []",
    "No GPU available",
    "GPU []",
    "[PhysicalDevice(name='/physical_device:CPU:0', device_type='CPU')]",
    "No GPUs found",
    "not detecting GPU",
    "No GPU detected",
    "GPU is not available",
    "GPU device not found",
    "Number of GPUs: 0",
    "Number of GPUs available: 0",
    "Number of available GPUs: 0",
    "GPU Available: False",
    "GPUs: []",
    "GPUs available: []",
    "GPUs detected: []",
    "GPU: []",
    "GPU devices: []",
    "GPU not detected",
    "No GPU found. Please ensure you have installed TensorFlow correctly",
    "Please install GPU version of TF",
    seen="programs",
)
BUILT_WITHOUT_CUDA = FAMILY.sign(
    "built_without_cuda",
    "'is_cuda_build': False",
    "Built with CUDA: False",
    "is_built_with_cuda: False",
    "is_built_with_cuda() False",
    "is_built_with_cuda(): False",
    "Is built with CUDA: False",
    "TensorFlow built with CUDA: False",
    seen="programs",
)
BUILT_WITH_CUDA = FAMILY.sign(
    "built_with_cuda",
    "'is_cuda_build': True",
    "Built with CUDA: True",
    "is_built_with_cuda: True",
    "is_built_with_cuda() True",
    "is_built_with_cuda(): True",
    "Is built with CUDA: True",
    "TensorFlow built with CUDA: True",
    seen="programs",
)
SMI_TABLE = FAMILY.sign(
    "smi_table",
    "NVIDIA-SMI {smi:v} Driver Version: {driver:v}",
    seen="nvidia-smi",
)

# --- at work ---------------------------------------------------------------------------------------------------------

HOST_MEMORY_REFUSED = FAMILY.fault(
    "host_memory_refused",
    "could not allocate pinned host memory of size: {bytes:d}",
    "could not allocate pinned host of size: {bytes:d}",
    "Failed to allocate host memory of size {bytes:d}",
    "failed to alloc {bytes:d} bytes on host",
)
CUDNN_CALL_FAILED = FAMILY.fault(
    "cudnn_call_failed",
    "CUDNN_STATUS_EXECUTION_FAILED",
    "CUDNN_STATUS_NOT_INITIALIZED",
    "Failed to get convolution algorithm. This is probably because cuDNN failed to initialize",
    "cuDNN launch failure",
    "No algorithm worked!",
)
CUDNN_NOT_THERE = FAMILY.fault(
    "cudnn_not_there",
    "DNN library initialization failed",
    "DNN library is not found",
    "No DNN in stream executor",
)
BLAS_CALL_FAILED = FAMILY.fault(
    "blas_call_failed",
    "Blas {call:w} launch failed",
    "failed to run cuBLAS routine",
    "CUBLAS_STATUS_EXECUTION_FAILED",
    "CUBLAS_STATUS_ARCH_MISMATCH",
    "Attempting to perform BLAS operation using StreamExecutor without BLAS support",
    "Failed to create cuSolverDN instance",
)
PLUGIN_DEVICE = FAMILY.sign(
    "plugin_device",
    pattern=r"PhysicalDevice\(name='/physical_device:(?!CPU|GPU|XLA_|TPU)(?P<kind>\w+):\d+'",
    words=("physicaldevice",),
)
