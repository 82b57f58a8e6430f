"""Messages of TensorFlow on its way to a GPU, up to the devices that it makes."""

from __future__ import annotations

from gpudiag.fix import (
    Kind,
    Role,
    check,
    configure,
    install,
    install_driver,
    kernel_log,
    note,
    nvidia_smi,
    reboot,
    reload_uvm,
    reset_gpu,
    run,
    run_container,
    start,
)
from gpudiag.knowledge.fault import Confidence, Stage
from gpudiag.knowledge.message import MessageFamily

FAMILY = MessageFamily("on the way to a GPU", stage=Stage.DRIVER)

LIBRARY_OPENED = FAMILY.sign(
    "library_opened",
    "Successfully opened dynamic library {library:s}",
)
LIBRARY_NOT_OPENED = FAMILY.fault(
    "library_not_opened",
    "Could not load dynamic library '{library:q}'; dlerror: {reason}",
    "Could not dlopen library '{library:q}'; dlerror: {reason}",
    meaning="{library} was not found by the loader; this TensorFlow needs it",
    in_general="the loader did not find a library that this TensorFlow needs",
    fix=(
        install("tensorflow[and-cuda]", note="brings CUDA's libraries (TensorFlow 2.14 and newer)"),
        check("ldconfig -p | grep -e libcudart -e libcudnn -e libcublas", "shows which releases are installed"),
        note(
            "2.5-2.11: CUDA 11.2 and cuDNN 8.1; 2.12-2.14: 11.8 and 8.6-8.7; 2.4: 11.0 and 8.0; 2.1-2.3: "
            "10.1 and 7.6; their folder on LD_LIBRARY_PATH"
        ),
    ),
    stage=Stage.LIBRARIES,
)
LIBRARY_QUOTED = FAMILY.sign(
    "library_quoted",
    pattern=r"Could not load dynamic library '(?P<library>[^':]{1,200})"
    r"(?:'[.:\s\"`]{0,9}$|:? ?(?:No such file|cannot open))|"
    r"(?:^\W{0,9}|Could not load ')"
    r"(?P<short>(?:cudart|cublas|cublasLt|cufft|curand|cusolver|cusparse|cudnn)64_\w{1,4}\.dll)"
    r"(?: (?:is |was )?not found|'\. The GPU version)",
    words=("dynamic", "found", "gpu"),
    meaning="the same, as people quote it, without the loader's words; and as a check of TensorFlow 1 says it",
)
DRIVER_LIBRARY_NOT_OPENED = FAMILY.fault(
    "driver_library_not_opened",
    "Could not load dynamic library 'libcuda.so.1'",
    "Could not load dynamic library 'nvcuda.dll'",
    "Could not dlopen library 'libcuda.so.1'",
    "libcuda.so.1: cannot open shared object file",
    "open shared object file libcuda.so.1",
    "Failed to dlopen libcuda.so",
    meaning="the driver's library was not found: no NVIDIA driver is installed, or the container was given no GPU",
    fix=(
        nvidia_smi("must work; if the machine has no NVIDIA GPU, there is nothing to fix"),
        run_container("--gpus all", note="if it runs in a container"),
        install_driver("or install the driver in your distribution's way; then reboot"),
    ),
    stage=Stage.DRIVER_LIBRARY,
)
LIBRARY_ASKED_FOR = FAMILY.fault(
    "library_asked_for",
    "{library:w}.so.{version:v}'; dlerror:",
    "{library:w}.so.{version:v}: cannot open shared object file",
    "Could not load library {library:w}.so.{version:v}. Error: {}",
    meaning="{library}.so.{version} was not found by the loader",
    in_general="the loader did not find a library",
    fix=(
        install("tensorflow[and-cuda]", note="brings CUDA's libraries (TensorFlow 2.14 and newer)"),
        check("ldconfig -p | grep {library}", "shows whether another release is installed"),
    ),
    symptom=True,
    stage=Stage.LIBRARIES,
)
FAMILY.fault(
    "built_for_another_cuda",
    "Could not load library libcublasLt.so.{major:d}. Error: {}",
    "Could not load library libcublas.so.{major:d}. Error: {}",
    "Could not load library libnvrtc.so.{major:d}. Error: {}",
    meaning="a library that is loaded, such as cuDNN, was built for CUDA {major}, whose libraries were not found",
    in_general="a library that is loaded, such as cuDNN, was built for a CUDA whose libraries were not found",
    fix=(
        check(
            "pip list | grep -i -e cudnn -e cublas",
            "shows for which CUDA it is built (cu11, cu12, +cuda12.1)",
        ),
        check("dpkg -l | grep -i cudnn", "shows the same of the system's packages"),
        install(
            "nvidia-cudnn-cu11==8.6.*",
            note="fits TensorFlow 2.12-2.14, which uses CUDA 11.8; with apt: libcudnn8=8.6*+cuda11.8",
        ),
        install("--force-reinstall", "tensorflow[and-cuda]", note="brings both (TensorFlow 2.15 and newer)"),
    ),
    seen="cuDNN 8-9",
    stage=Stage.LIBRARIES,
)
FAMILY.fault(
    "driver_library_empty",
    "libcuda.so.1: file too short",
    "libnvidia-ml.so.1: file too short",
    "libcuda.so: file too short",
    meaning="the driver's library is an empty file: a container that had a GPU left it in its image, or there is no "
    "driver on this machine, as on the login node of a cluster",
    fix=(
        run_container("--gpus all", note="in a container: puts the host's library in that place"),
        start("srun --gres=gpu:1 ...", "on a cluster, run it on a node that has GPUs"),
        run(
            "sudo apt install --reinstall nvidia-driver-580",
            "use it on a machine with GPUs; take the number of your driver",
            kind=Kind.CHANGE_DRIVER,
        ),
    ),
    seen="Linux",
    stage=Stage.DRIVER_LIBRARY,
)
NO_LIBCUDA_LINK = FAMILY.fault(
    "no_libcuda_link",
    "libcuda.so: cannot open shared object file",
    meaning="libcuda.so (without .1) was not found by the loader; cuDNN 8 needs that name",
    seen="cuDNN 8",
)
CUINIT_FAILED = FAMILY.fault("cuinit_failed", "Failed call to cuInit: {error}")
GPU_NOT_COUNTED = FAMILY.fault(
    "device_count_failed",
    "could not retrieve CUDA device count{}",
)
LIBRARIES_MISSING = FAMILY.fault(
    "libraries_missing",
    "Cannot dlopen some GPU libraries",
    meaning="a CUDA library is missing, or is in a folder that the loader does not search",
    fix=(
        install("tensorflow[and-cuda]", note="2.16.1 still does not find them: use 2.17 or newer"),
        check(
            "TF_CPP_VMODULE=dso_loader=1 python -c 'import tensorflow as tf; tf.config.list_physical_devices()'",
            "makes the log name the missing libraries",
        ),
    ),
    symptom=True,
    stage=Stage.LIBRARIES,
)
FAMILY.fault(
    "cuinit_without_driver",
    "failed call to cuInit: CUresult(-1)",
    "failed call to cuInit: UNKNOWN ERROR (-1)",
    meaning="the driver's library libcuda.so.1 was not found, or is the stub of a CUDA toolkit, which"
    " images contain: no driver is installed, or the container was given no GPU",
    fix=(
        run_container("--gpus all", note="in a container: the toolkit brings the host's library"),
        nvidia_smi("must list the GPU where the program runs"),
        check("ldconfig -p | grep libcuda.so.1; echo $LD_LIBRARY_PATH", "must not contain a folder 'stubs'"),
    ),
    seen="1.x-2.3",
    stage=Stage.DRIVER_LIBRARY,
)
FAMILY.fault(
    "stub_is_linked",
    "libcuda.so.1 -> {:s}/stubs/libcuda.so",
    "libcuda.so.1 => {:s}/stubs/libcuda.so",
    meaning="libcuda.so.1 points to the stub of the CUDA toolkit, which is only for linking",
    fix=(
        note(
            "remove that link, and remove the folder stubs from LD_LIBRARY_PATH and "
            "/etc/ld.so.conf.d, in the image too",
            kind=Kind.REMOVE,
        ),
        run_container("--gpus all", note="in a container: brings the driver's own library"),
    ),
    seen="ls, ldd",
    stage=Stage.DRIVER_LIBRARY,
)
FAMILY.fault(
    "cuinit_not_found",
    "failed call to cuInit: CUDA_ERROR_NOT_FOUND",
    meaning="the driver's libraries do not fit each other: in a container under WSL, Docker Desktop or the container "
    "toolkit is older than the driver of Windows (555 and newer) and does not mount all of it",
    fix=(
        note(
            "update Docker Desktop (4.31 or newer), or the package nvidia-container-toolkit (1.16 or newer); "
            "then create "
            "the container again",
            kind=Kind.INSTALL,
        ),
        note("or install driver 552 in Windows: https://www.nvidia.com/drivers", kind=Kind.CHANGE_DRIVER),
        nvidia_smi("run it under WSL and in the container: both must show the same driver"),
    ),
    confidence=Confidence.POSSIBLE,
    stage=Stage.DRIVER,
)
CUINIT_CALL_FAILED = FAMILY.fault(
    "cuinit_call_failed",
    "failed call to cuInit",
    "Failed call to cuInit",
)
GPU_TYPE_DISABLED = FAMILY.fault(
    "gpu_type_disabled",
    "Device factory 'GPU' disabled",
)
GPU_IGNORED = FAMILY.fault(
    "gpu_ignored",
    "Ignoring visible gpu device{}",
)
TOO_FEW_CORES = FAMILY.fault(
    "too_few_cores",
    (
        "Ignoring visible gpu device (device: {:d}, name: {name}, pci bus id: {pci:b}, {}) with core count: {cores:d}. "
        "The minimum required count is {least:d}"
    ),
    (
        "Ignoring {:q}gpu device (device: {:d}, name: {name}, pci bus id: {pci:b}{}) with Cuda multiprocessor count: "
        "{cores:d}. The minimum required count is {least:d}"
    ),
    "Ignoring {:q}gpu device with Cuda multiprocessor count: {cores:d}",
    seen="0.8-2.21",
)
TOO_LOW_CAPABILITY = FAMILY.fault(
    "too_low_capability",
    (
        "Ignoring {:q}gpu device (device: {:d}, name: {name}, pci bus id: {pci:b}{}) with Cuda compute capability "
        "{has:v}. The minimum required Cuda capability is {least:v}"
    ),
    (
        "Ignoring {:q}gpu device (device: {:d}, name: {name} compute capability: {:v}) with Cuda compute capability "
        "{has:v}. The minimum required Cuda capability is {least:v}"
    ),
    "requires minimum CUDA compute capability {least:v}",
    "StreamExecutor {:w} {name} is of insufficient compute capability: {least:v} required, device is {has:v}",
    seen="0.5-2.21",
)
DEVICE_CREATED = FAMILY.sign(
    "device_created",
    (
        "{thread:d} gpu_device.cc:{:d}] Created device {:s}device:GPU:{number:d} with {mib:d} MB memory:{} pci bus id: "
        "{pci:b}"
    ),
    "Created device {:s}device:GPU:{number:d} with {mib:d} MB memory:{} pci bus id: {pci:b}",
    (
        "Creat{:w} TensorFlow device ({:s}device:GPU:{number:d} with {mib:d} MB memory) -> physical GPU {} pci bus id: "
        "{pci:b}"
    ),
)
DEVICE_BUSY = FAMILY.fault(
    "device_busy",
    "CUDA-capable device(s) is/are busy or unavailable",
    "CUDA_ERROR_DEVICE_UNAVAILABLE",
    "cudaErrorDevicesUnavailable",
    "busy or unavailable",
    meaning="another process holds the GPU, which is set to serve only one process (compute mode), or"
    " the GPU is in a bad state",
    fix=(
        nvidia_smi("shows the compute mode, and the process that holds the GPU"),
        configure("sudo nvidia-smi -c DEFAULT", "lets many processes use it"),
        reset_gpu("GPU", "if no process uses the failing GPU; or reboot"),
    ),
    stage=Stage.CONTEXT,
)
SYSTEM_NOT_READY = FAMILY.fault(
    "system_not_ready",
    "CUDA_ERROR_SYSTEM_NOT_READY",
    "cudaErrorSystemNotReady",
    "system not yet initialized",
    meaning="the GPUs are connected by NVSwitch, but the fabric manager does not run, or its version "
    "differs from the driver's",
    fix=(
        configure(
            "sudo systemctl enable --now nvidia-fabricmanager", "needs the fabric manager in the driver's version"
        ),
        check("nvidia-smi -q | grep -A2 -i fabric", "must say Completed"),
    ),
)
DRIVER_TOO_OLD = FAMILY.fault(
    "old_driver",
    "driver version is insufficient for CUDA runtime version",
    "cudaErrorInsufficientDriver",
    "The NVIDIA driver on your system is too old (found version {found:d})",
    "NVIDIA driver on your system is too old",
    meaning="the driver is older than the CUDA of the program needs",
)
GPU_FAILED = FAMILY.fault(
    "gpu_failed",
    "CUDA_ERROR_ECC_UNCORRECTABLE",
    "cudaErrorECCUncorrectable",
    "uncorrectable ECC error encountered",
    "GPU is lost",
    "fallen off the bus",
    meaning="the GPU, its memory, its power or its connection has failed",
    fix=(
        reboot(),
        check("sudo dmesg | grep -i -e nvrm -e xid; nvidia-smi -q -d ECC,ROW_REMAPPER"),
        reset_gpu("GPU", "if no process uses the failing GPU", role=Role.ALTERNATIVE),
        note(
            "if it comes again: check power, seat and temperature, and have the GPU replaced",
            kind=Kind.REPLACE_HARDWARE,
        ),
    ),
)
CUDA_UNKNOWN = FAMILY.fault(
    "cuda_unknown",
    "CUDA_ERROR_UNKNOWN",
    "cudaErrorUnknown",
    meaning="the driver is in an unknown state: after sleep, with a module in a bad state, wrong "
    "device files, or a failed GPU",
    fix=(
        reload_uvm("if the machine was suspended, and no GPU is in use; or reboot"),
        configure("ls -l /dev/nvidia*; sudo nvidia-modprobe -u -c 0", "device files"),
        kernel_log(),
    ),
    confidence=Confidence.POSSIBLE,
)
