"""Messages of AMD's ROCm: HIP, the HSA runtime, rocBLAS and MIOpen, which the package tensorflow-rocm uses."""

from __future__ import annotations

from gpudiag.fix import Kind, check, configure, export, run, run_container, unset
from gpudiag.knowledge.fault import Confidence, Stage
from gpudiag.knowledge.message import MessageFamily

FAMILY = MessageFamily(
    "AMD's ROCm",
    stage=Stage.CONTEXT,
    seen="ROCm, tensorflow-rocm",
    url="https://rocm.docs.amd.com/projects/install-on-linux/en/latest/reference/system-requirements.html",
)

_NAMES = check(
    "rocminfo | grep -i gfx",
    "shows the GPU's name, such as gfx1032; ROCm has code for gfx1030, gfx1100, gfx90a and gfx942",
)
_OVERRIDE = export(
    "HSA_OVERRIDE_GFX_VERSION",
    "10.3.0",
    "runs the code of the nearest GPU that ROCm supports: this value is for RX 5000 and 6000 "
    "(gfx10xx); for RX 7000 use 11.0.0, for Vega graphics 9.0.0",
)
_GROUPS = configure("sudo usermod -a -G render,video $USER", "then log in again")
_DEVICES = run_container(
    "--device=/dev/kfd",
    "--device=/dev/dri",
    "--group-add video",
    "--group-add render",
    note="if it runs in a container",
)
_FITTING = check(
    "pip list | grep -i rocm; cat /opt/rocm/.info/version",
    "compare the releases: each tensorflow-rocm 2.X is made for one ROCm",
)

NO_CODE_FOR_AMD_GPU = FAMILY.fault(
    "rocm_no_code",
    "hipErrorNoBinaryForGpu",
    "Unable to find code object for all current devices",
    "hipErrorInvalidDeviceFunction",
    "HIP error: invalid device function",
    "HIP error: no kernel image is available",
    "hipErrorSharedObjectInitFailed",
    "HSA_STATUS_ERROR_INVALID_ISA",
    "HSA_STATUS_ERROR_INVALID_CODE_OBJECT",
    "Cannot read {file:s}TensileLibrary{:s} for GPU arch : {gpu:w}",
    "Could not initialize Tensile host: No devices found",
    "Ignoring visible gpu device {} with AMDGPU version : {gpu:w}. The supported AMDGPU versions are {}",
    "Cannot read {file:s}TensileLibrary{:s} No such file or directory for GPU arch : {gpu:w}",
    meaning="ROCm's libraries have no code for this AMD GPU",
    fix=(_OVERRIDE, _NAMES, _FITTING),
    stage=Stage.FIRST_OP,
)
FAMILY.fault(
    "rocm_bitcode_missing",
    "bitcode module is required by this HLO module but was not found at",
    meaning="XLA does not find ROCm's bitcode files: the package rocm-device-libs is missing, or ROCm lies elsewhere",
    fix=(
        run(
            "sudo apt install rocm-device-libs",
            "puts them into /opt/rocm/amdgcn/bitcode; they must be of the installed ROCm",
            kind=Kind.INSTALL_AS_ROOT,
        ),
        export("ROCM_PATH", "/opt/rocm", "or the folder that has amdgcn/bitcode, if ROCm is installed elsewhere"),
        _FITTING,
    ),
    stage=Stage.FIRST_OP,
)
FAMILY.fault(
    "rocblas_files_elsewhere",
    "rocBLAS error: Cannot read {folder:s}/TensileLibrary.dat: No such file or directory{}",
    "rocBLAS error: Cannot read {folder:s}/TensileLibrary.dat: Illegal seek{}",
    meaning="rocBLAS's kernel files were not found in {folder}: a rocBLAS of another ROCm is loaded, "
    "or this ROCm has them in another folder",
    in_general="rocBLAS's kernel files were not found: a rocBLAS of another ROCm is loaded, or this "
    "ROCm has them in another folder",
    fix=(
        export(
            "ROCBLAS_TENSILE_LIBPATH",
            "/opt/rocm/lib/rocblas/library",
            "name the folder that contains the TensileLibrary files",
        ),
        check(
            "echo $LD_LIBRARY_PATH; ls -d /opt/rocm*",
            "remove the folders of another ROCm from it (/opt/rocm/rocblas/lib is an old place)",
        ),
        run(
            "sudo apt install --reinstall rocblas",
            "must be of the same release as the rest of ROCm",
            kind=Kind.INSTALL_AS_ROOT,
        ),
    ),
    stage=Stage.FIRST_OP,
)
FAMILY.fault(
    "rocm_memory_fault",
    "Memory access fault by GPU node{}",
    "HSA_STATUS_ERROR_MEMORY_APERTURE_VIOLATION",
    "HSA_STATUS_ERROR_MEMORY_FAULT",
    "HSA_STATUS_ERROR_ILLEGAL_INSTRUCTION",
    "HSA_STATUS_ERROR_EXCEPTION: {}",
    "hipErrorIllegalAddress",
    "hipErrorLaunchFailure",
    "HW Exception by GPU node{}",
    meaning="code for another AMD GPU runs on this one: HSA_OVERRIDE_GFX_VERSION names a GPU that is "
    "too different, or ROCm does not support this GPU",
    fix=(
        unset("HSA_OVERRIDE_GFX_VERSION", note="if ROCm supports the GPU; otherwise set the value of its family"),
        _NAMES,
        check("sudo dmesg | grep -i -e amdgpu -e kfd", "shows what the kernel reports about it"),
    ),
    confidence=Confidence.POSSIBLE,
    stage=Stage.FIRST_OP,
)
FAMILY.fault(
    "rocm_no_access",
    "Unable to open /dev/kfd read-write: Permission denied",
    "Failed to get user name to check for video group membership",
    'is not member of "{group:q}" group',
    meaning="this user may not open the AMD GPU's device files (/dev/kfd, /dev/dri/render*)",
    fix=(_GROUPS, _DEVICES),
    stage=Stage.DRIVER,
)
FAMILY.fault(
    "rocm_no_device",
    "Unable to open /dev/kfd read-write: {why}",
    "ROCk module is NOT loaded, possibly no GPU devices",
    "failed call to hipInit: {code}",
    "hipErrorNoDevice",
    "no ROCm-capable device is detected",
    "hipGetDevice() failed. Status: {error}",
    "hipSetDevice() on GPU:{:d} failed. Status: {error}",
    "ROCm runtime implicit initialization on GPU:{:d} failed. Status: {error}",
    "HIP_ERROR_NoDevice",
    "hsa_init Failed, possibly no supported GPU devices",
    meaning="ROCm sees no AMD GPU: its kernel module amdgpu is not loaded, or a container was not given the GPU",
    fix=(
        configure("sudo modprobe amdgpu; ls -l /dev/kfd /dev/dri; rocminfo", "must list the GPU"),
        _DEVICES,
        check(
            "grep -rn VISIBLE_DEVICES *.py; env | grep VISIBLE_DEVICES",
            "look whether the program or the shell hides it",
        ),
        _GROUPS,
    ),
    stage=Stage.DRIVER,
)
FAMILY.fault(
    "rocm_out_of_memory",
    "hipErrorOutOfMemory",
    "HSA_STATUS_ERROR_OUT_OF_RESOURCES",
    "HIP out of memory",
    "failed to allocate {size} from device: hipError{}",
    meaning="the AMD GPU has no memory left, or ROCm was refused some",
    fix=(
        check("rocm-smi --showmeminfo vram --showpids", "shows which process holds it"),
        export(
            "TF_FORCE_GPU_ALLOW_GROWTH", "true", "makes TensorFlow take memory only as needed; or use a smaller batch"
        ),
    ),
    confidence=Confidence.POSSIBLE,
    stage=Stage.MEMORY,
)
FAMILY.fault(
    "rocm_library",
    "MIOpen Error: {what}",
    *(
        f"miopenStatus{unsupported_op}"
        for unsupported_op in ("UnknownError", "InternalError", "NotInitialized", "AllocFailed", "UnsupportedOp")
    ),
    "rocblas_status_internal_error",
    "rocblas_status_not_implemented",
    "rocblas_status_memory_error",
    "rocblas_status_arch_mismatch",
    "HIPBLAS_STATUS_INTERNAL_ERROR",
    "HIPBLAS_STATUS_NOT_SUPPORTED",
    "HIPBLAS_STATUS_ALLOC_FAILED",
    "HIPBLAS_STATUS_EXECUTION_FAILED",
    "HIPBLAS_STATUS_NOT_INITIALIZED",
    "HIPBLAS_STATUS_ARCH_MISMATCH",
    "MIOpen(HIP): Error {what}",
    meaning="a library of ROCm fails or is missing: ROCm is not of the release that this tensorflow-rocm is made for, "
    "or does not support the GPU",
    fix=(
        _FITTING,
        _NAMES,
        run("sudo apt install rocm", "install the release of ROCm that it needs", kind=Kind.INSTALL_AS_ROOT),
    ),
    symptom=True,
    stage=Stage.FIRST_OP,
)
