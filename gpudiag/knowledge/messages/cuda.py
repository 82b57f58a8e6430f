"""CUDA's error codes: ``CUresult`` of the driver and ``cudaError`` of the runtime, by name, by words and by number.

Names and numbers are those of CUDA 11 to 13. A code that another family has a message for is in :data:`ELSEWHERE`.
"""

from __future__ import annotations

from typing import NamedTuple

from gpudiag.fix import (
    Action,
    Kind,
    Role,
    Where,
    ask,
    check,
    configure,
    edit,
    edit_note,
    export,
    install,
    install_driver,
    kernel_log,
    note,
    nvidia_smi,
    reboot,
    reload_uvm,
    run,
    run_container,
    unset,
)
from gpudiag.knowledge.fault import Confidence, Stage
from gpudiag.knowledge.message import Message, MessageFamily
from gpudiag.knowledge.messages.code import NO_CODE_FOR_GPU, PTX_REFUSED, STRAY_ACCESS
from gpudiag.knowledge.messages.memory import DEVICE_FULL
from gpudiag.knowledge.messages.way import CUDA_UNKNOWN, DEVICE_BUSY, DRIVER_TOO_OLD, GPU_FAILED, SYSTEM_NOT_READY

FAMILY = MessageFamily(
    "error codes of CUDA",
    stage=Stage.FIRST_OP,
    seen="CUDA 11-13",
    url="https://docs.nvidia.com/cuda/cuda-driver-api/group__CUDA__TYPES.html",
)

_DMESG = kernel_log("shows what the kernel reports about the GPU")
_BUG = note("update the library or program that made the call, which is at fault, and report the line before this one")
_ABOVE = note("look at the first error above this line: this one follows from it")
_BLOCKING = check("CUDA_LAUNCH_BLOCKING=1 python program.py", "makes the traceback name the operation")
_DRIVER = (
    nvidia_smi("shows the driver's version and the newest CUDA that it supports"),
    install_driver("or install a newer driver in your distribution's way; then reboot"),
)


class Code(NamedTuple):
    number: int
    name: str
    """The name of the error without ``CUDA_ERROR_``."""
    runtime: str
    """The name of the runtime's error without ``cudaError``; "" if it has none."""
    said: str
    """CUDA's text for the error, if no other code and no other program uses it."""
    meaning: str
    fix: tuple[Action, ...] = (_BUG,)
    confidence: Confidence = Confidence.POSSIBLE
    stage: Stage | None = None


CODES = (
    Code(1, "INVALID_VALUE", "InvalidValue", "", "CUDA was called with an invalid value"),
    Code(
        3,
        "NOT_INITIALIZED",
        "InitializationError",
        "",
        "CUDA is used in a process that was forked after CUDA had been used, or the driver did not start",
        (
            edit("import multiprocessing; multiprocessing.set_start_method('spawn')", "before TensorFlow is imported"),
            edit_note("or neither use nor list GPUs before the processes are started"),
            nvidia_smi("shows the newest CUDA that the driver supports: it must not be older than the program's CUDA"),
            reload_uvm("if every program fails, and no GPU is in use"),
        ),
        confidence=Confidence.LIKELY,
        stage=Stage.DRIVER,
    ),
    Code(
        4,
        "DEINITIALIZED",
        "CudartUnloading",
        "driver shutting down",
        "CUDA is called while the process ends",
        (edit_note("end threads and data pipelines before the program exits"),),
    ),
    *(
        Code(number, f"PROFILER_{name}", f"Profiler{runtime}", "", f"CUDA's profiler {state}")
        for number, name, runtime, state in (
            (5, "DISABLED", "Disabled", "is switched off, or another one is in use"),
            (6, "NOT_INITIALIZED", "NotInitialized", "was not started"),
            (7, "ALREADY_STARTED", "AlreadyStarted", "was started twice"),
            (8, "ALREADY_STOPPED", "AlreadyStopped", "was stopped twice"),
        )
    ),
    Code(
        34,
        "STUB_LIBRARY",
        "StubLibrary",
        "CUDA driver is a stub library",
        "the stub of libcuda is loaded in place of the driver's library",
        (
            run(
                'export LD_LIBRARY_PATH="$(echo "$LD_LIBRARY_PATH" | tr : "\\n" | grep -v stubs | paste -sd:)"',
                kind=Kind.SET_VARIABLE,
            ),
            check("ldconfig -p | grep libcuda.so.1", "it must be the driver's, not .../stubs/libcuda.so"),
        ),
        confidence=Confidence.LIKELY,
        stage=Stage.DRIVER_LIBRARY,
    ),
    Code(
        36,
        "CALL_REQUIRES_NEWER_DRIVER",
        "CallRequiresNewerDriver",
        "API call is not supported in the installed CUDA driver",
        "the driver is older than a function of CUDA that the program calls",
        _DRIVER,
        confidence=Confidence.LIKELY,
    ),
    Code(
        100,
        "NO_DEVICE",
        "NoDevice",
        "no CUDA-capable device is detected",
        "CUDA shows this process no GPU: CUDA_VISIBLE_DEVICES hides all, or the process was given none",
        (
            check(
                "echo $CUDA_VISIBLE_DEVICES",
                "the variable, and what the program sets in os.environ, must name a GPU of this machine",
            ),
            nvidia_smi("lists the GPUs of this machine; CUDA_VISIBLE_DEVICES counts from 0", "-L"),
            run_container("--gpus all", note="if it runs in a container; in a batch job, request a GPU"),
        ),
        confidence=Confidence.LIKELY,
        stage=Stage.DRIVER,
    ),
    Code(
        101,
        "INVALID_DEVICE",
        "InvalidDevice",
        "invalid device ordinal",
        "the program asks for a GPU number that this process does not have",
        (
            check("nvidia-smi -L; echo $CUDA_VISIBLE_DEVICES", "the visible GPUs are numbered from 0"),
            note("start no more processes or ranks than there are GPUs", kind=Kind.START_CONTAINER),
        ),
        confidence=Confidence.LIKELY,
        stage=Stage.DEVICE_COUNT,
    ),
    Code(
        102,
        "DEVICE_NOT_LICENSED",
        "DeviceNotLicensed",
        "device doesn't have valid Grid license",
        "the vGPU has no licence",
        (
            check("nvidia-smi -q | grep -i -A2 licen"),
            configure(
                "sudo systemctl restart nvidia-gridd; journalctl -u nvidia-gridd | tail",
                "look whether it reaches its licence server",
            ),
        ),
        confidence=Confidence.LIKELY,
        stage=Stage.CONTEXT,
    ),
    Code(
        200,
        "INVALID_IMAGE",
        "InvalidKernelImage",
        "device kernel image is invalid",
        "a library has code that this driver or GPU cannot load: it is damaged, or made by a newer CUDA",
        (install("--force-reinstall", "--no-cache-dir", "tensorflow[and-cuda]"), *_DRIVER),
    ),
    Code(
        201,
        "INVALID_CONTEXT",
        "DeviceUninitialized",
        "invalid device context",
        "CUDA's context of the process is gone: after a fork, an earlier error, or another library that reset the GPU",
        (_ABOVE, edit_note("after a fork: start processes with 'spawn'")),
        stage=Stage.CONTEXT,
    ),
    Code(202, "CONTEXT_ALREADY_CURRENT", "", "", "CUDA's context is in use already", stage=Stage.CONTEXT),
    Code(205, "MAP_FAILED", "MapBufferObjectFailed", "", "memory could not be mapped", (_DMESG,), stage=Stage.MEMORY),
    Code(
        206,
        "UNMAP_FAILED",
        "UnmapBufferObjectFailed",
        "",
        "memory could not be unmapped",
        (_DMESG,),
        stage=Stage.MEMORY,
    ),
    Code(207, "ARRAY_IS_MAPPED", "ArrayIsMapped", "", "an array of CUDA is mapped"),
    Code(208, "ALREADY_MAPPED", "AlreadyMapped", "", "a resource of CUDA is mapped twice"),
    Code(210, "ALREADY_ACQUIRED", "AlreadyAcquired", "", "a resource of CUDA is acquired twice"),
    Code(211, "NOT_MAPPED", "NotMapped", "", "a resource of CUDA is not mapped"),
    Code(212, "NOT_MAPPED_AS_ARRAY", "NotMappedAsArray", "", "a resource is not mapped as an array"),
    Code(213, "NOT_MAPPED_AS_POINTER", "NotMappedAsPointer", "", "a resource is not mapped as memory"),
    Code(215, "UNSUPPORTED_LIMIT", "UnsupportedLimit", "", "this GPU has no such limit"),
    Code(
        216,
        "CONTEXT_ALREADY_IN_USE",
        "DeviceAlreadyInUse",
        "exclusive-thread device already in use",
        "another process holds the GPU, which is set to serve only one process (compute mode)",
        (
            nvidia_smi("shows the process that holds it"),
            configure("sudo nvidia-smi -c DEFAULT", "or lets many processes use it", role=Role.ALTERNATIVE),
        ),
        confidence=Confidence.LIKELY,
        stage=Stage.CONTEXT,
    ),
    Code(
        217,
        "PEER_ACCESS_UNSUPPORTED",
        "PeerAccessUnsupported",
        "peer access is not supported between these two devices",
        "these two GPUs cannot read each other's memory",
        (
            nvidia_smi("shows which pairs of GPUs can", "topo -p2p r"),
            export("NCCL_P2P_DISABLE", "1", "makes NCCL go through the host"),
        ),
        confidence=Confidence.LIKELY,
        stage=Stage.CONFIGURATION,
    ),
    Code(219, "INVALID_GRAPHICS_CONTEXT", "InvalidGraphicsContext", "", "a context of OpenGL or DirectX"),
    Code(
        220,
        "NVLINK_UNCORRECTABLE",
        "NvlinkUncorrectable",
        "uncorrectable NVLink error",
        "an NVLink between GPUs has failed",
        (nvidia_smi("shows the errors of each link", "nvlink -e"), reboot(), _DMESG),
        confidence=Confidence.LIKELY,
    ),
    Code(
        221,
        "JIT_COMPILER_NOT_FOUND",
        "JitCompilerNotFound",
        "PTX JIT compiler library not found",
        "the driver's compiler libnvidia-ptxjitcompiler.so.1 is missing",
        (
            check(
                "ls /usr/lib*/*/libnvidia-ptxjitcompiler.so.1",
                "must exist: it belongs to the driver, and has the same version",
            ),
            run_container("--gpus all", "-e NVIDIA_DRIVER_CAPABILITIES=compute,utility", note="in a container"),
        ),
        confidence=Confidence.LIKELY,
    ),
    Code(
        223,
        "JIT_COMPILATION_DISABLED",
        "JitCompilationDisabled",
        "PTX JIT compilation was disabled",
        "CUDA_DISABLE_PTX_JIT forbids the driver to compile, and there is no machine code for this GPU",
        (unset("CUDA_DISABLE_PTX_JIT"),),
        confidence=Confidence.LIKELY,
    ),
    Code(
        224,
        "UNSUPPORTED_EXEC_AFFINITY",
        "UnsupportedExecAffinity",
        "",
        "MPS shares of a GPU are not possible",
        (),
    ),
    Code(225, "UNSUPPORTED_DEVSIDE_SYNC", "UnsupportedDevSideSync", "", "code on the GPU waits for itself"),
    Code(
        226,
        "CONTAINED",
        "Contained",
        "Invalid access of peer GPU memory over nvlink or a hardware error",
        "memory of the GPU, or a link to another one, has failed; the fault is contained in this process",
        (
            run("sudo nvidia-smi --gpu-reset -i GPU", "if no process uses the failing GPU", kind=Kind.RESET_GPU),
            nvidia_smi(options="-q -d ECC,ROW_REMAPPER"),
            _DMESG,
        ),
        confidence=Confidence.LIKELY,
    ),
    Code(
        300,
        "INVALID_SOURCE",
        "InvalidSource",
        "",
        "code for the GPU is invalid",
    ),
    Code(
        301,
        "FILE_NOT_FOUND",
        "FileNotFound",
        "",
        "CUDA does not find a file, often because device files are missing or not given to this container",
        (
            check("ls -l /dev/nvidia* /proc/driver/nvidia", "must list nvidia0, nvidiactl and nvidia-uvm"),
            configure("sudo nvidia-modprobe -u -c 0"),
        ),
        stage=Stage.DRIVER,
    ),
    Code(
        302,
        "SHARED_OBJECT_SYMBOL_NOT_FOUND",
        "SharedObjectSymbolNotFound",
        "shared object symbol not found",
        "the driver's library lacks a function: it is older than the program's CUDA, or not the driver's",
        (
            check("ldconfig -p | grep libcuda.so.1", "must list one file, of the driver version that nvidia-smi shows"),
            *_DRIVER,
        ),
        confidence=Confidence.LIKELY,
        stage=Stage.DRIVER_LIBRARY,
    ),
    Code(
        303,
        "SHARED_OBJECT_INIT_FAILED",
        "SharedObjectInitFailed",
        "shared object initialization failed",
        "the driver's library libcuda.so.1 could not be opened: there is no NVIDIA driver where the program ran",
        (
            nvidia_smi("must work here; if the machine has no NVIDIA GPU, there is nothing to fix"),
            run_container("--gpus all", note="if it runs in a container, which gets the library from the host"),
            install_driver("or install the driver in your distribution's way; then reboot"),
        ),
        confidence=Confidence.LIKELY,
        stage=Stage.DRIVER_LIBRARY,
    ),
    Code(
        304,
        "OPERATING_SYSTEM",
        "OperatingSystem",
        "OS call failed or operation not supported on this OS",
        "the operating system refused what the driver asked for: device files, permissions, seccomp, limits",
        (check("ls -l /dev/nvidia*; ulimit -a", "each device file must be readable and writable"), _DMESG),
        stage=Stage.DRIVER,
    ),
    Code(
        400,
        "INVALID_HANDLE",
        "InvalidResourceHandle",
        "invalid resource handle",
        "a CUDA call uses a resource that another call failed to create, or one that belongs to another GPU",
        (_ABOVE,),
    ),
    Code(401, "ILLEGAL_STATE", "IllegalState", "", "a CUDA resource is in the wrong state for this call"),
    Code(402, "LOSSY_QUERY", "LossyQuery", "", "CUDA's answer would lose information that the caller needs"),
    Code(
        500,
        "NOT_FOUND",
        "SymbolNotFound",
        "named symbol not found",
        "a function or variable was not found in the loaded CUDA code: libraries of two CUDA "
        "releases are mixed, or the driver is too old",
        (install("--force-reinstall", "tensorflow[and-cuda]"), *_DRIVER),
    ),
    Code(600, "NOT_READY", "NotReady", "", "the GPU's work is not finished yet"),
    Code(
        701,
        "LAUNCH_OUT_OF_RESOURCES",
        "LaunchOutOfResources",
        "too many resources requested for launch",
        "a kernel needs more registers or threads than this GPU has",
        (
            edit_note(
                "your own operation, or one of an extension: launch fewer threads per block, or compile it for this GPU"
            ),
        ),
    ),
    Code(
        702,
        "LAUNCH_TIMEOUT",
        "LaunchTimeout",
        "the launch timed out and was terminated",
        "the display's watchdog ended a kernel that ran for seconds",
        (
            edit_note("use a GPU without a display, or a smaller batch"),
            note(
                "Windows: raise TdrDelay in HKLM\\SYSTEM\\CurrentControlSet\\Control\\GraphicsDrivers, and reboot",
                kind=Kind.REBOOT,
            ),
        ),
        confidence=Confidence.LIKELY,
    ),
    Code(703, "LAUNCH_INCOMPATIBLE_TEXTURING", "LaunchIncompatibleTexturing", "", "textures of two modes"),
    Code(
        704,
        "PEER_ACCESS_ALREADY_ENABLED",
        "PeerAccessAlreadyEnabled",
        "",
        "two libraries enable peer access",
        (),
        confidence=Confidence.LIKELY,
    ),
    Code(
        705,
        "PEER_ACCESS_NOT_ENABLED",
        "PeerAccessNotEnabled",
        "",
        "a copy between GPUs that are not connected",
    ),
    Code(
        708,
        "PRIMARY_CONTEXT_ACTIVE",
        "SetOnActiveProcess",
        "cannot set while device is active in this process",
        "the program used the GPU before setting it up",
        (edit_note("configure GPUs at the start of the program, before other libraries use CUDA"),),
        stage=Stage.CONTEXT,
    ),
    Code(
        709,
        "CONTEXT_IS_DESTROYED",
        "ContextIsDestroyed",
        "context is destroyed",
        "CUDA's context is gone",
    ),
    Code(
        710,
        "ASSERT",
        "Assert",
        "device-side assert triggered",
        "an assertion in code of the GPU failed: an index or a label out of range most often",
        (_BLOCKING, edit_note("check labels and indices against the number of classes")),
        confidence=Confidence.LIKELY,
    ),
    Code(711, "TOO_MANY_PEERS", "TooManyPeers", "", "a GPU is connected to as many others as possible"),
    Code(
        712,
        "HOST_MEMORY_ALREADY_REGISTERED",
        "HostMemoryAlreadyRegistered",
        "",
        "memory is pinned twice",
    ),
    Code(713, "HOST_MEMORY_NOT_REGISTERED", "HostMemoryNotRegistered", "", "memory is not pinned"),
    Code(
        714,
        "HARDWARE_STACK_ERROR",
        "HardwareStackError",
        "hardware stack error",
        "the GPU's stack is damaged: by a kernel, or by a fault of the GPU",
        (_BLOCKING, _DMESG),
    ),
    Code(
        720,
        "COOPERATIVE_LAUNCH_TOO_LARGE",
        "CooperativeLaunchTooLarge",
        "too many blocks in cooperative launch",
        "a kernel needs more of the GPU at once than is available, as under MIG or MPS",
        (nvidia_smi("use a whole GPU, or a larger MIG instance", "-L"),),
    ),
    Code(721, "TENSOR_MEMORY_LEAK", "TensorMemoryLeak", "", "a kernel did not give tensor memory back"),
    Code(
        800,
        "NOT_PERMITTED",
        "NotPermitted",
        "",
        "the driver forbids this call here: a missing permission, confidential computing, or MPS",
        (
            check("ls -l /dev/nvidia*; ulimit -a"),
            run_container("--gpus all", "--cap-add SYS_ADMIN", note="if you use a profiler or IPC"),
        ),
    ),
    Code(
        801,
        "NOT_SUPPORTED",
        "NotSupported",
        "",
        "this GPU, driver or virtual machine does not support what was requested: memory pools, managed memory, IPC",
        (
            unset("TF_GPU_ALLOCATOR", note="many virtual machines and WSL 1 do not support memory pools"),
            *_DRIVER,
        ),
    ),
    Code(
        803,
        "SYSTEM_DRIVER_MISMATCH",
        "SystemDriverMismatch",
        "system has unsupported display driver / cuda driver combination",
        "the driver's libraries and its kernel module are of different versions",
        (
            reboot("if the driver was upgraded, the old kernel module stays loaded until the reboot"),
            check("cat /proc/driver/nvidia/version; ldconfig -p | grep libcuda.so.1", "compare the two versions"),
            note("remove driver libraries (libcuda.so.*, libnvidia-*) from a container's image"),
        ),
        confidence=Confidence.LIKELY,
        stage=Stage.DRIVER,
    ),
    Code(
        804,
        "COMPAT_NOT_SUPPORTED_ON_DEVICE",
        "CompatNotSupportedOnDevice",
        "forward compatibility was attempted on non supported HW",
        "libcuda is newer than the kernel module, which this GPU does not support",
        (
            reboot("if the driver was upgraded, the old kernel module stays loaded until the reboot"),
            run(
                'export LD_LIBRARY_PATH="$(echo "$LD_LIBRARY_PATH" | tr : "\\n" | grep -v compat | paste -sd:)"',
                kind=Kind.SET_VARIABLE,
            ),
            install_driver("install a driver as new as the image's CUDA", where=Where.HOST),
        ),
        confidence=Confidence.LIKELY,
        stage=Stage.DRIVER,
    ),
    Code(
        805,
        "MPS_CONNECTION_FAILED",
        "MpsConnectionFailed",
        "MPS client failed to connect to the MPS control daemon or the MPS server",
        "the MPS daemon does not answer this process",
        (
            check("echo get_server_list | nvidia-cuda-mps-control", "must answer, and run as this user"),
            unset(
                "CUDA_MPS_PIPE_DIRECTORY",
                note="runs without MPS; to use MPS in a container, share /tmp/nvidia-mps and use --ipc=host",
            ),
        ),
        confidence=Confidence.LIKELY,
        stage=Stage.CONTEXT,
    ),
    *(
        Code(
            number,
            f"MPS_{name}",
            f"Mps{runtime}",
            words,
            f"the MPS server {meaning}",
            (configure("echo quit | nvidia-cuda-mps-control", "then start it again: nvidia-cuda-mps-control -d"),),
            confidence=Confidence.LIKELY,
            stage=Stage.CONTEXT,
        )
        for number, name, runtime, words, meaning in (
            (806, "RPC_FAILURE", "RpcFailure", "", "does not answer calls"),
            (
                807,
                "SERVER_NOT_READY",
                "ServerNotReady",
                "MPS server is not ready to accept new MPS client requests",
                "is still starting, or recovers from a fault",
            ),
            (808, "MAX_CLIENTS_REACHED", "MaxClientsReached", "", "serves as many processes as it can"),
            (809, "MAX_CONNECTIONS_REACHED", "MaxConnectionsReached", "", "has as many connections as it can"),
            (810, "CLIENT_TERMINATED", "ClientTerminated", "", "ended this process with another one that failed"),
        )
    ),
    Code(
        811,
        "CDP_NOT_SUPPORTED",
        "CdpNotSupported",
        "",
        "kernels that start kernels are not supported here",
    ),
    Code(
        812,
        "CDP_VERSION_MISMATCH",
        "CdpVersionMismatch",
        "",
        "kernels that start kernels were compiled by two CUDA releases",
    ),
    *(
        Code(
            number,
            f"STREAM_CAPTURE_{name}",
            f"StreamCapture{runtime}",
            "",
            "a CUDA graph could not be recorded",
            fix,
        )
        for fix in [(export("XLA_FLAGS", "--xla_gpu_enable_command_buffer=", "switches CUDA graphs off"), _BUG)]
        for number, name, runtime in (
            (900, "UNSUPPORTED", "Unsupported"),
            (901, "INVALIDATED", "Invalidated"),
            (902, "MERGE", "Merge"),
            (903, "UNMATCHED", "Unmatched"),
            (904, "UNJOINED", "Unjoined"),
            (905, "ISOLATION", "Isolation"),
            (906, "IMPLICIT", "Implicit"),
            (908, "WRONG_THREAD", "WrongThread"),
        )
    ),
    Code(907, "CAPTURED_EVENT", "CapturedEvent", "", "an event of a CUDA graph is used outside of it"),
    Code(909, "TIMEOUT", "Timeout", "", "a wait for the GPU took too long", (_DMESG,)),
    Code(
        910,
        "GRAPH_EXEC_UPDATE_FAILURE",
        "GraphExecUpdateFailure",
        "",
        "a CUDA graph could not be changed",
    ),
    Code(
        911,
        "EXTERNAL_DEVICE",
        "ExternalDevice",
        "",
        "a device beside the GPU failed, such as a network card that reads its memory",
        (_DMESG,),
    ),
    Code(912, "INVALID_CLUSTER_SIZE", "InvalidClusterSize", "", "a kernel's clusters do not fit this GPU"),
    Code(913, "FUNCTION_NOT_LOADED", "FunctionNotLoaded", "", "a kernel is not loaded"),
    Code(914, "INVALID_RESOURCE_TYPE", "InvalidResourceType", "", "a part of the GPU has another type than expected"),
    Code(
        915,
        "INVALID_RESOURCE_CONFIGURATION",
        "InvalidResourceConfiguration",
        "",
        "parts of the GPU do not fit together",
    ),
)


_RUNTIME_ALONE = "CALL_REQUIRES_NEWER_DRIVER"


def _added(code: Code) -> Message:
    return FAMILY.fault(
        f"cuda_{code.name.lower()}",
        *([f"CUDA_ERROR_{code.name}"] if code.name != _RUNTIME_ALONE else []),
        *([f"cudaError{code.runtime}"] if code.runtime else []),
        *([code.said] if code.said else []),
        meaning=code.meaning,
        fix=code.fix,
        confidence=code.confidence,
        symptom=_ABOVE in code.fix[:1],
        stage=code.stage,
    )


_RUNTIME_ONLY = (
    (
        "cuda_runtime_argument",
        "a call of the CUDA runtime has an invalid argument",
        "InvalidPitchValue InvalidSymbol InvalidHostPointer InvalidDevicePointer InvalidTexture InvalidTextureBinding "
        "InvalidChannelDescriptor InvalidMemcpyDirection InvalidFilterSetting InvalidNormSetting InvalidSurface",
    ),
    (
        "cuda_runtime_duplicate",
        "two parts of the program define a GPU variable, texture or surface with the same name",
        "DuplicateVariableName DuplicateTextureName DuplicateSurfaceName",
    ),
    (
        "cuda_runtime_other_context",
        "the CUDA runtime is called in a context that another CUDA created, or before a kernel was configured",
        "IncompatibleDriverContext MissingConfiguration",
    ),
    (
        "cuda_runtime_nested_launch",
        "a kernel that starts kernels reached a limit, or used something that is not allowed there",
        "LaunchMaxDepthExceeded LaunchFileScopedTex LaunchFileScopedSurf SyncDepthExceeded LaunchPendingCountExceeded",
    ),
    (
        "cuda_runtime_obsolete",
        "no CUDA since 4.1 returns this code: the program or one of its libraries is older, or "
        "the number is not CUDA's",
        "AddressOfConstant TextureFetchFailed TextureNotBound SynchronizationError MixedDeviceExecution "
        "NotYetImplemented MemoryValueTooLarge PriorLaunchFailure ApiFailureBase",
    ),
    (
        "cuda_runtime_startup",
        "the CUDA runtime could not start: an error inside it, or its library is damaged",
        "StartupFailure SoftwareValidityNotEstablished",
    ),
)
for _name, _meaning, _codes in _RUNTIME_ONLY:
    FAMILY.fault(
        _name,
        *(f"cudaError{code}" for code in _codes.split()),
        meaning=_meaning,
        fix=(_BUG,),
        confidence=Confidence.POSSIBLE,
    )
CONTEXT_REFUSED = FAMILY.fault(
    "context_refused",
    "failed call to cuDevicePrimaryCtxRetain: CUDA_ERROR_INVALID_DEVICE",
    "failed call to cuDevicePrimaryCtxRetain: CUDA_ERROR_DEVICE_UNAVAILABLE",
    meaning="the GPU serves only one process (compute mode), and another one holds it: a program of "
    "yours, or another rank that takes every GPU",
    fix=(
        edit(
            "tf.config.set_visible_devices(gpus[hvd.local_rank()], 'GPU')",
            "gives each rank its own GPU; must come before anything uses a GPU",
        ),
        ask(
            "nvidia-smi -q -d COMPUTE; nvidia-smi",
            "if the mode is Exclusive_Process, shows who holds the GPU; end that process, or wait for it",
        ),
        configure(
            "sudo nvidia-smi -c DEFAULT",
            "or lets several processes in; on a cluster the administrators decide",
            role=Role.ALTERNATIVE,
        ),
    ),
    stage=Stage.CONTEXT,
    confidence=Confidence.POSSIBLE,
)
INVALID_CONFIGURATION = FAMILY.fault(
    "cuda_invalid_configuration",
    "cudaErrorInvalidConfiguration",
    meaning="a kernel was started with a size that the GPU does not support: a tensor is empty or "
    "very large, or the libraries are of another CUDA than the one this TensorFlow was built "
    "for",
    fix=(
        edit_note("avoid empty batches (dataset.batch(n, drop_remainder=True)), and use smaller ones"),
        install(
            "--upgrade",
            "--force-reinstall",
            "tensorflow[and-cuda]",
            note="installs libraries of the release it was built for",
        ),
        check("CUDA_LAUNCH_BLOCKING=1 python program.py", "makes the traceback name the operation"),
    ),
    confidence=Confidence.POSSIBLE,
)
ELSEWHERE: dict[int, Message] = {
    9: INVALID_CONFIGURATION,
    2: DEVICE_FULL,
    35: DRIVER_TOO_OLD,
    46: DEVICE_BUSY,
    209: NO_CODE_FOR_GPU,
    214: GPU_FAILED,
    218: PTX_REFUSED,
    222: PTX_REFUSED,
    700: STRAY_ACCESS,
    715: STRAY_ACCESS,
    716: STRAY_ACCESS,
    717: STRAY_ACCESS,
    718: STRAY_ACCESS,
    719: STRAY_ACCESS,
    802: SYSTEM_NOT_READY,
    999: CUDA_UNKNOWN,
}
BY_NUMBER = {str(code.number): _added(code) for code in CODES} | {
    str(number): what for number, what in ELSEWHERE.items()
}
FAMILY.sign(
    "cuda_number",
    pattern=r"(?:UNKNOWN ERROR|[Cc][Uu][Dd][Aa] (?:[Rr]untime )?(?:[Ee]rror|[Ff]ailure|[Rr]esult)(?: code)?|CUresult|"
    r"cudaError_t|cuInit returned):?(?: =)? \(?(?P<code>\d{1,4})\b",
    words=("unknown", "cuda", "curesult", "cudaerror_t", "cuinit"),
    codes=BY_NUMBER,
    meaning="an unknown CUDA error code",
)
_WORDS = {
    "invalid argument": 1,
    "out of memory": 2,
    "initialization error": 3,
    "invalid configuration argument": 9,
    "CUDA driver is a stub library": 34,
    "driver version is insufficient for CUDA runtime version": 35,
    "CUDA driver version is insufficient for CUDA runtime version": 35,
    "all CUDA-capable devices are busy or unavailable": 46,
    "no CUDA-capable device is detected": 100,
    "invalid device ordinal": 101,
    "device kernel image is invalid": 200,
    "invalid device context": 201,
    "no kernel image is available for execution on the device": 209,
    "uncorrectable ECC error encountered": 214,
    "peer access is not supported between these two devices": 217,
    "a PTX JIT compilation failed": 218,
    "shared object initialization failed": 303,
    "OS call failed or operation not supported on this OS": 304,
    "invalid resource handle": 400,
    "named symbol not found": 500,
    "an illegal memory access was encountered": 700,
    "too many resources requested for launch": 701,
    "the launch timed out and was terminated": 702,
    "device-side assert triggered": 710,
    "hardware stack error": 714,
    "an illegal instruction was encountered": 715,
    "misaligned address": 716,
    "invalid program counter": 718,
    "unspecified launch failure": 719,
    "too many blocks in cooperative launch": 720,
    "operation not permitted": 800,
    "operation not supported": 801,
    "system not yet initialized": 802,
    "unknown error": 999,
}
"""The texts of ``cudaGetErrorString``, each with its number; other programs print some of them, too."""
FAMILY.sign(
    "cuda_words",
    pattern=r"(?:[Ss]tatus: (?:(?:Internal|INTERNAL): )?|reason: |"
    r"[Cc][Uu][Dd][Aa] (?:[Rr]untime )?(?:[Ee]rror|ERROR)(?: ?[(\[]?\d{1,4}[)\]]?)?[:,]? ['\"]?)"
    rf"(?P<code>{'|'.join(sorted(_WORDS, key=len, reverse=True))})(?!\w)",
    words=("status", "reason", "cuda"),
    codes={said: BY_NUMBER[str(number)] for said, number in _WORDS.items() if str(number) in BY_NUMBER},
    meaning="words of CUDA for an error that this table does not know",
)
