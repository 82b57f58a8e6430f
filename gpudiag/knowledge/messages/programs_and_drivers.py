"""What programs meet of a driver, its tools and its libraries, of whatever release."""

from __future__ import annotations

from gpudiag.knowledge.message import Family, Text, Worth

FAMILY = Family("drivers and libraries, as programs meet them", stage="DRIVER", seen="any")

# --- libraries -------------------------------------------------------------------------------------------------------

NO_LIBCUDA = FAMILY.fault(
    "no_libcuda",
    Text("Could not load dynamic library 'libcuda.so.1'", "https://github.com/tensorflow/serving/issues/1487"),
    Text("Could not load dynamic library 'nvcuda.dll'", "https://github.com/tensorflow/tensorflow/issues/54499"),
    Text("libcuda.so.1: cannot open shared object file", "https://github.com/aws/amazon-sagemaker-examples/issues/632"),
    Text("failed call to cuInit: UNKNOWN ERROR (303)", "https://github.com/minimaxir/gpt-2-cloud-run/issues/17"),
    "Failed call to cuInit: UNKNOWN ERROR (303)",
    "Could not find module 'nvcuda.dll'",
    Text(
        "was unable to find libcuda.so DSO loaded into this program",
        "tensorflow 2.21 xla/stream_executor/cuda/cuda_diagnostics.cc:207",
    ),
    Text('libcuda.so.1" does not exist', "https://github.com/tensorflow/tensorflow/issues/45882"),
    "libcuda.so.1 does not exist",
    "libcuda.so.1' does not exist",
    Text("libcuda.so.1 not found", "cmake 4.4 Modules/FindFLTK2.cmake:261"),
    "libcuda.so.1 is missing",
)
NO_CUPTI = FAMILY.add(
    Worth.FAULT,
    "no_cupti",
    pattern=r"Could not load dynamic library '(?P<library>libcupti\.so[.\d]{0,20}|cupti64_[\w.]+\.dll)'|"
    r"(?P<missing>libcupti\.so[.\d]{0,20}): cannot open shared object file",
    witness="https://github.com/openxla/xprof/issues/209",
    words=("libcupti", "cupti"),
)
PROFILING_NOT_PERMITTED = FAMILY.fault(
    "profiling_not_permitted",
    Text("CUPTI_ERROR_INSUFFICIENT_PRIVILEGES", "https://github.com/openxla/xprof/issues/24"),
    Text(
        "CUPTI_ERROR_VIRTUALIZED_DEVICE_INSUFFICIENT_PRIVILEGES",
        "tensorflow 2.15.1 tensorflow/include/third_party/gpus/cuda/include/cupti_result.h:283",
    ),
    Text("CUPTI need root access", "tensorflow 2.4.4 _pywrap_tensorflow_internal.so"),
    Text(
        "Insufficient privilege to run libcupti (you need root permission)",
        "tensorflow 2.21 xla/backends/profiler/gpu/cupti_profiler.cc:85",
    ),
    Text("ERR_NVGPUCTRPERM", "nvidia-cuda-cupti-cu12 12.9.79 nvperf_common.h:204"),
    seen="2.0-2.21, CUPTI",
)
CUDNN_PART = FAMILY.add(
    Worth.FAULT,
    "cudnn_part",
    pattern=r"Could not (?:load library|locate) (?P<part>\S{0,200}?cudnn_\w{1,40}(?:\.so[.\d]{0,20}|64_\d\.dll|\.dll))|"
    r"Unable to load any of \{(?P<any>libcudnn_[^}]{1,200})\}|"
    r"Cannot load symbol (?P<symbol>cudnn\w{1,80})|"
    r"(?P<version>libcudnn_\w{1,40}\.so[.\d]{0,20}): (?:undefined symbol|version)",
    witness="https://github.com/tensorflow/tensorflow/issues/63455",
    words=("locate", "load", "libcudnn_cnn_train", "libcudnn_cnn_infer", "libcudnn_ops_infer", "symbol"),
)
NO_ZLIB = FAMILY.fault(
    "no_zlib",
    Text("Could not locate zlibwapi.dll", "https://github.com/PaddlePaddle/PaddleOCR/issues/8400"),
    seen="cuDNN 8, Windows",
)
LIBRARIES_MIXED = FAMILY.add(
    Worth.FAULT,
    "libraries_mixed",
    pattern=r"(?P<user>(?<![^\s:'\"(])[^\s:'\"(]{1,300}\.so[.\d]{0,20}): "
    r"(?:undefined symbol: (?P<symbol>\w{1,300}), version "
    r"(?P<library>lib\w{1,60}\.so[.\d]{0,20})|symbol (?P<lacked>\w{1,300}),? version "
    r"(?P<of>lib\w{1,60}\.so[.\d]{0,20}) not defined)|"
    r"(?P<by>(?<![^\s:'\"(])[^\s:'\"(]{1,300}\.so[.\d]{0,20}): undefined symbol: (?P<name>"
    r"(?:cublas|cublasLt|cusparse|cusolver|cudnn|nvJitLink|"
    r"__nvJitLink)\w+)",
    witness="https://github.com/nanoporetech/medaka/issues/472",
    words=("symbol",),
)

# --- the driver ------------------------------------------------------------------------------------------------------

TWO_VERSIONS = FAMILY.fault(
    "two_versions_of_the_driver",
    Text(
        "kernel version {module:v} does not match DSO version {library:v}",
        "tensorflow 2.21 xla/stream_executor/cuda/cuda_diagnostics.cc:287",
    ),
    "NVRM: API mismatch: the client has the version {library:v}",
    Text("Driver/library version mismatch", "https://github.com/tensorflow/tensorflow/issues/4349"),
    Text("NVML/RM version mismatch", "nvidia-ml-py 13.615.71 pynvml.py:1058"),
    Text("CUDA_ERROR_SYSTEM_DRIVER_MISMATCH", "nvidia-cuda-runtime-cu12 12.9.79 cuda.h:2959"),
    Text("NVML_ERROR_LIB_RM_VERSION_MISMATCH", "tensorflow 2.21 include/third_party/gpus/cuda/nvml/include/nvml.h"),
    meaning="the driver's libraries and its kernel module are of different versions",
)
NVML_LIBRARY_VERSION = FAMILY.sign(
    "nvml_library_version", Text("NVML library version: {version:v}", "https://github.com/k4yt3x/video2x/issues/1226")
)
COMPAT_REFUSED = FAMILY.fault(
    "compat_refused",
    Text("CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE", "https://github.com/google-research/omniglue/issues/14"),
    Text(
        "forward compatibility was attempted on non supported HW",
        "https://github.com/tensorflow/tensorflow/issues/4349",
    ),
)
MODULE_SILENT = FAMILY.fault(
    "module_silent",
    Text(
        "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver",
        "https://github.com/gridhead/nvidia-auto-installer-for-fedora-linux/issues/75",
    ),
    Text(
        "kernel driver does not appear to be running on this host",
        "tensorflow 2.21 xla/stream_executor/cuda/cuda_diagnostics.cc:145",
    ),
    "Failed to initialize NVML: Driver Not Loaded",
    "modprobe: ERROR: could not insert 'nvidia{:q}': No such device",
    "modprobe: ERROR: could not insert 'nvidia{:q}': Exec format error",
    "modprobe: ERROR: could not insert 'nvidia{:q}': Invalid argument",
    Text(
        "modprobe: ERROR: could not insert 'nvidia{:q}': Unknown symbol in module",
        "https://github.com/tensorflow/tensorflow/issues/5473",
    ),
    Text("could not find module by name='nvidia{:q}'", "https://github.com/tensorflow/tensorflow/issues/5473"),
    Text("modprobe: FATAL: Module nvidia{:s} not found", "https://github.com/Witko/nvidia-xrun/issues/135"),
    "nvml: Driver Not Loaded",
)
GPU_HELD_BY_MODULE = FAMILY.fault(
    "gpu_held_by_module",
    Text("NVRM: The NVIDIA probe routine was not called for", "https://github.com/mattshma/bigdata/issues/133"),
    Text("obtained ownership of the NVIDIA device(s)", "https://github.com/mattshma/bigdata/issues/133"),
    Text("The Nouveau kernel driver is currently in use by your system", "nvidia-installer 590.48.01 misc.c:2509"),
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
    Text("CUDA_ERROR_NO_DEVICE", "https://github.com/ray-project/ray/issues/2745"),
    Text("no CUDA-capable device is detected", "https://github.com/tensorflow/tensorflow/issues/62494"),
    Text("no NVIDIA GPU device is present", "tensorflow 2.21 xla/stream_executor/cuda/cuda_diagnostics.cc:152"),
    Text("No CUDA GPUs are available", "https://github.com/YanWenKun/ComfyUI-Docker/issues/60"),
)
NO_DEVICE_FILE = FAMILY.fault(
    "no_device_file",
    Text(
        "no NVIDIA GPU device is present: /dev/nvidia{:d} does not exist",
        "https://github.com/tensorflow/tensorflow/issues/41785",
    ),
)
MASK_IN_CODE = FAMILY.add(
    Worth.SIGN,
    "mask_in_code",
    pattern=r"os\.environ\[.CUDA_VISIBLE_DEVICES.\]\s*=\s*['\"](?P<value>[^'\"]*)['\"]",
    witness="https://github.com/ray-project/ray/issues/2745",
    words=("cuda_visible_devices",),
)
CUINIT_UNKNOWN = FAMILY.fault(
    "cuinit_unknown",
    Text("failed call to cuInit: CUDA_ERROR_UNKNOWN", "https://github.com/tensorflow/tensorflow/issues/394"),
    "Failed call to cuInit: CUDA_ERROR_UNKNOWN",
    "cudaGetDeviceCount() failed. Status: unknown error",
    "cudaGetDevice() failed. Status: unknown error",
    Text(
        "calling cudaGetDevice({:l}) in file {:s} code: {:d}, reason: unknown error",
        "https://github.com/deepfakes/faceswap/issues/149",
    ),
    "calling cudaGetDeviceCount({:l}) in file {:s} code: {:d}, reason: unknown error",
    "CUDA unknown error - this may be due to an incorrectly set up environment",
)
OLD_DRIVER = FAMILY.fault(
    "old_driver",
    Text(
        "driver version is insufficient for CUDA runtime version", "https://github.com/NVIDIA/nvidia-docker/issues/399"
    ),
    "CUDA_ERROR_INSUFFICIENT_DRIVER",
    Text("cudaErrorInsufficientDriver", "nvidia-cuda-runtime-cu12 12.9.79 libcudart.so.12"),
    "The NVIDIA driver on your system is too old (found version {found:d})",
    "NVIDIA driver on your system is too old",
    meaning="the driver is older than the CUDA of the program needs",
)
PTX_TOO_NEW = FAMILY.fault(
    "ptx_too_new",
    Text("CUDA_ERROR_UNSUPPORTED_PTX_VERSION", "https://github.com/CY-CHENYUE/ComfyUI-Molmo/issues/26"),
    Text(
        "the provided PTX was compiled with an unsupported toolchain",
        "nvidia-cuda-runtime-cu12 12.9.79 libcudart.so.12",
    ),
    Text("cudaErrorUnsupportedPtxVersion", "nvidia-cuda-runtime-cu12 12.9.79 libcudart.so.12"),
)
NO_WINDOWS_GPU = FAMILY.fault(
    "no_windows_gpu", "TensorFlow GPU support is not available on native Windows for TensorFlow >= 2.11"
)

NO_GPU_LISTED = FAMILY.fault(
    "no_gpu_listed",
    Text("Num GPUs Available: 0", "https://github.com/tensorflow/tensorflow/issues/40683"),
    Text("Num GPUs: 0", "https://github.com/tensorflow/tensorflow/issues/38990"),
    "Number of GPUs: 0",
    "Number of GPUs available: 0",
    "Number of available GPUs: 0",
    Text("GPU is NOT AVAILABLE", "https://github.com/tensorflow/tensorflow/issues/60237"),
    "GPU Available: False",
    Text("GPU Available: []", "https://github.com/tensorflow/tensorflow/issues/62322"),
    Text("No GPU available", "tensorflow 2.21 tensorflow/python/client/virtual_gpu_test.py:206"),
    "GPUs: []",
    Text("GPU []", "https://github.com/tensorflow/tensorflow/issues/62375"),
    "Number of GPU: 0",
    Text(
        "[PhysicalDevice(name='/physical_device:CPU:0', device_type='CPU')]",
        "https://github.com/tensorflow/tensorflow/issues/62375",
    ),
    "GPUs available: []",
    "GPUs detected: []",
    "gpus = []",
    "GPU: []",
    "GPU devices: []",
    Text("No GPUs found", "tensorflow 1.15 (NVIDIA) tensorflow/python/framework/config.py:596"),
    Text("not detecting GPU", "https://github.com/tensorflow/tensorflow/issues/62711"),
    "not detecting my GPU",
    "GPU not detected",
    "unable to detect GPU",
    Text("No GPU detected", "tensorflow 2.21 xla/backends/profiler/gpu/cupti_profiler.cc:82"),
    "No GPU was detected",
    Text("GPU is not available", "tensorflow 2.21 tensorflow/python/distribute/mirrored_values_test.py:249"),
    Text("GPU device not found", "https://github.com/tensorflow/tensorflow/issues/48096"),
    "No GPU found. Please ensure you have installed TensorFlow correctly",
    "Please install GPU version of TF",
    seen="programs",
)
BUILT_WITHOUT_CUDA = FAMILY.sign(
    "built_without_cuda",
    "Built with CUDA: False",
    "is_built_with_cuda: False",
    "is_built_with_cuda() False",
    "is_built_with_cuda(): False",
    "Is built with CUDA: False",
    "TensorFlow built with CUDA: False",
    "'is_cuda_build': False",
    '"is_cuda_build": False',
    seen="programs",
)
BUILT_WITH_CUDA = FAMILY.sign(
    "built_with_cuda",
    "Built with CUDA: True",
    "is_built_with_cuda: True",
    "is_built_with_cuda() True",
    "is_built_with_cuda(): True",
    "Is built with CUDA: True",
    "TensorFlow built with CUDA: True",
    "'is_cuda_build': True",
    '"is_cuda_build": True',
    seen="programs",
)
SMI_TABLE = FAMILY.sign(
    "smi_table",
    Text("NVIDIA-SMI {smi:v} Driver Version: {driver:v}", "https://github.com/tensorflow/tensorflow/issues/48096"),
    seen="nvidia-smi",
)

# --- at work ---------------------------------------------------------------------------------------------------------

HOST_MEMORY_REFUSED = FAMILY.fault(
    "host_memory_refused",
    Text("could not allocate pinned host memory of size: {bytes:d}", "https://github.com/talmolab/sleap/issues/2001"),
    "could not allocate pinned host of size: {bytes:d}",
    Text("failed to alloc {bytes:d} bytes on host", "https://github.com/talmolab/sleap/issues/2001"),
    "failed to allocate host memory of size {bytes:d}",
)
CUDNN_CALL_FAILED = FAMILY.fault(
    "cudnn_call_failed",
    Text("CUDNN_STATUS_EXECUTION_FAILED", "tensorflow 2.21 xla/stream_executor/cuda/cuda_dnn.cc:190"),
    Text("CUDNN_STATUS_NOT_INITIALIZED", "tensorflow 2.21 xla/stream_executor/cuda/cuda_dnn.cc:176"),
    Text(
        "Failed to get convolution algorithm. This is probably because cuDNN failed to initialize",
        "https://github.com/matterport/Mask_RCNN/issues/1620",
    ),
    Text("cuDNN launch failure", "tensorflow 2.21 tensorflow/core/kernels/fused_batch_norm_op.cc:998"),
    Text("No algorithm worked!", "tensorflow 2.21 tensorflow/core/kernels/cudnn_rnn_ops.cc:2022"),
)
CUDNN_NOT_THERE = FAMILY.fault(
    "cudnn_not_there",
    Text("DNN library initialization failed", "tensorflow 2.21 xla/service/gpu/stream_executor_util.cc:82"),
    Text("DNN library is not found", "https://github.com/tensorflow/tensorflow/issues/56135"),
    Text("DNN library not found", "cmake 4.4 Modules/FindFLTK2.cmake:261"),
    Text("No DNN in stream executor", "tensorflow 2.21 tensorflow/core/kernels/conv_ops_gpu.cc:100"),
)
BLAS_CALL_FAILED = FAMILY.fault(
    "blas_call_failed",
    Text("Blas {call:w} launch failed", "tensorflow 2.21 tensorflow/core/kernels/matmul_op_impl.h:815"),
    Text("failed to run cuBLAS routine", "https://github.com/weizhepei/CasRel/issues/62"),
    Text("CUBLAS_STATUS_EXECUTION_FAILED", "https://github.com/weizhepei/CasRel/issues/62"),
    Text("CUBLAS_STATUS_ARCH_MISMATCH", "nvidia-cublas-cu12 12.5.3.2 cublas_api.h:98"),
    Text(
        "Attempting to perform BLAS operation using StreamExecutor without BLAS support",
        "tensorflow 2.15.1 libtensorflow_cc.so.2",
    ),
    Text("Failed to create cuSolverDN instance", "tensorflow 2.21 tensorflow/core/util/cuda_solvers.cc:112"),
    "Failed to create cuBlas handle",
)
PLUGIN_DEVICE = FAMILY.add(
    Worth.SIGN,
    "plugin_device",
    pattern=r"PhysicalDevice\(name='/physical_device:(?!CPU|GPU|XLA_|TPU)(?P<kind>\w+):\d+'",
    witness="https://github.com/tensorflow/tensorflow/issues/60895",
    words=("physicaldevice",),
)
