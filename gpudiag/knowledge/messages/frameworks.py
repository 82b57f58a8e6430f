"""Messages of other frameworks and runtimes: JAX, PyTorch, ONNX Runtime, PaddlePaddle and TensorFlow Lite."""

from __future__ import annotations

from gpudiag.fix import Kind, Role, ask, check, edit, edit_note, export, install, note, run, unset
from gpudiag.knowledge.fault import Confidence, Stage
from gpudiag.knowledge.message import MessageFamily
from gpudiag.knowledge.owner import JAX, TORCH

FAMILY = MessageFamily("other frameworks", stage=Stage.BUILD, seen="JAX")

_WITH_CUDA = (
    *JAX.newer,
    ask("python -c 'import jax; print(jax.devices())'", "must list the GPU"),
)
JAX_WITHOUT_CUDA = FAMILY.fault(
    "jax_without_cuda",
    "Unable to initialize backend 'cuda': module 'jaxlib.xla_extension' has no attribute",
    "Unable to initialize backend 'gpu': module 'jaxlib.xla_extension' has no attribute",
    meaning="JAX runs on the CPU: the jaxlib that is installed was built without CUDA",
    fix=_WITH_CUDA,
    url="https://docs.jax.dev/en/latest/installation.html",
)
FAMILY.fault(
    "jax_on_cpu",
    "No GPU/TPU found, falling back to CPU",
    "An NVIDIA GPU may be present on this machine, but a CUDA-enabled jaxlib is not installed",
    meaning="JAX runs on the CPU: its build without CUDA is installed, or its CUDA plug-in did not start",
    fix=(
        *_WITH_CUDA,
        note("if the program computes with another framework, such as PyTorch, this line needs nothing"),
    ),
    symptom=True,
    url="https://docs.jax.dev/en/latest/installation.html",
)
JAX_BACKEND_PASSED_OVER = FAMILY.harmless(
    "jax_backend_passed_over",
    pattern=r"(?<!Error: )Unable to initialize backend '(?!cuda|gpu)\w{1,20}'"
    r"(?!: \w{1,20}: The TPU is already).{0,300}",
    words=("initialize",),
    meaning="JAX tries every kind of device in turn and goes on with the next one",
)
FAMILY.fault(
    "jax_cuda_not_loaded",
    "CUDA backend failed to initialize: {why}",
    "Unable to initialize backend 'cuda': {why}",
    meaning="JAX runs on the CPU: its part for CUDA did not start: {why}",
    in_general="JAX runs on the CPU: its part for CUDA did not start",
    fix=(*_WITH_CUDA, unset("LD_LIBRARY_PATH", note="if it puts another CUDA before the one that jax[cuda12] brings")),
    symptom=True,
    url="https://docs.jax.dev/en/latest/installation.html",
)
FAMILY.fault(
    "native_library_missing",
    "Unable to load DLL 'tensorflow'",
    "Unable to load shared library 'tensorflow'",
    "no jnitensorflow in java.library.path",
    "Could not find jnitensorflow in class, module, and library paths",
    "Cannot find TensorFlow native library for OS: {system:w}, architecture: {machine:s}",
    meaning="the program does not find the library tensorflow, which has a package of its own for each kind of machine",
    fix=(
        install("--upgrade", "tensorflow", note="has the library, for programs of Python"),
        note("there is none for 32 bits: where the line names x86, i386 or win32, use a 64-bit Java or .NET"),
    ),
    seen="TensorFlow.NET, TensorFlow for Java",
    stage=Stage.PACKAGE,
)
FAMILY.fault(
    "native_library_of_another_release",
    "Unable to find an entry point named '{function:q}' in DLL 'tensorflow'",
    meaning="the library tensorflow lacks {function}: it is of another release than the one that this program "
    "was built for",
    in_general="the library tensorflow is of another release than the one that the program was built for",
    fix=(
        # https://github.com/dotnet/machinelearning-samples/issues/1031: 2.4 took TF_StringEncodedSize away
        run(
            "dotnet add package SciSharp.TensorFlow.Redist",
            "of the release in the table of https://github.com/SciSharp/TensorFlow.NET: 2.3.1 if TF_StringEncodedSize "
            "is missing, 2.4 or newer if TF_StringInit is",
            kind=Kind.INSTALL,
        ),
        note("one Redist package alone: take SciSharp.TensorFlow.Redist out beside Redist-Windows-GPU or -Linux-GPU"),
    ),
    seen="TensorFlow.NET",
    stage=Stage.PACKAGE,
)
FAMILY.fault(
    "torch_not_contiguous",
    "CUDNN_STATUS_NOT_SUPPORTED. This error may appear if you passed in a non-contiguous input",
    meaning="cuDNN does not support this input of PyTorch: it is not contiguous, or too large",
    fix=(
        edit("x = x.contiguous()", "before the layer that the traceback names"),
        edit("torch.backends.cudnn.enabled = False", "or without cuDNN, if it is contiguous"),
    ),
    seen="PyTorch",
    stage=Stage.FIRST_OP,
)
FAMILY.fault(
    "jax_platform_demanded",
    pattern=r"Error: Unable to initialize backend '(?P<backend>(?!cuda|gpu)\w{1,20})': (?P<why>[^(]{0,200}[^( ])|"
    r"Requested backend (?P<asked>\w{1,20}), but it failed to initialize",
    words=("initialize",),
    meaning="JAX was asked for the back end {backend}{asked}, and it does not start: {why}",
    in_general="JAX was asked for a back end, by JAX_PLATFORMS or in the program, that does not start",
    fix=(
        unset("JAX_PLATFORMS", note="lets JAX choose; the program may set it, too, or jax_platforms in jax.config"),
        export("JAX_PLATFORMS", "cuda,cpu", "to ask for an NVIDIA GPU", role=Role.ALTERNATIVE),
        install("--upgrade", "jax[tpu]", note="on a TPU machine: brings libtpu", role=Role.ALTERNATIVE),
    ),
    url="https://docs.jax.dev/en/latest/config_options.html#jax_platforms",
)
FAMILY.fault(
    "tpu_in_use",
    "The TPU is already in use by process with pid {pid:d}",
    "libtpu.so already in use by another process",
    meaning="the TPU is in use by another process, and one process alone can have it",
    fix=(
        check("sudo lsof -w /dev/accel* /dev/vfio/*", "shows the process that holds the TPU: end it if it is yours"),
        note("a notebook keeps the TPU until its kernel is restarted"),
    ),
    seen="libtpu",
    stage=Stage.CONTEXT,
)
FAMILY.fault(
    "torch_without_code",
    "with CUDA capability {capability:w} is not compatible with the current PyTorch installation",
    meaning="PyTorch has no code for this GPU ({capability}): its wheel was built for other compute capabilities",
    in_general="PyTorch has no code for the GPU: its wheel was built for other compute capabilities",
    fix=TORCH.newer,
    seen="PyTorch",
    url="https://pytorch.org/get-started/locally/",
)
FAMILY.fault(
    "torch_async_allocator",
    "free_upper_bound + pytorch_used_bytes[device] <= device_total INTERNAL ASSERT FAILED",
    meaning="PyTorch's allocator cudaMallocAsync counts more memory than the GPU has",
    fix=(
        export("PYTORCH_CUDA_ALLOC_CONF", "backend:native", "uses PyTorch's own allocator"),
        note("ComfyUI chooses the allocator itself: start it with --disable-cuda-malloc"),
    ),
    seen="PyTorch",
    stage=Stage.MEMORY,
)
FAMILY.fault(
    "dll_needs_another",
    pattern=r"LoadLibrary failed with error 126 .{0,40}when trying to load \W?"
    r"(?:[^\"]{0,300}[\\/])?(?P<library>[\w.-]{1,80}\.dll)",
    words=("loadlibrary",),
    meaning="{library} is there, but Windows does not find a DLL that it needs: one of CUDA or cuDNN, of the release "
    "that it was built for, in a folder of PATH",
    in_general="Windows does not find a DLL that a runtime's own DLL needs",
    fix=(
        ask("where cudart64_*.dll cublasLt64_*.dll cudnn64_*.dll", "shows which CUDA and cuDNN are on PATH"),
        note("the table of releases: https://onnxruntime.ai/docs/execution-providers/CUDA-ExecutionProvider.html"),
    ),
    seen="ONNX Runtime on Windows",
    stage=Stage.RUNTIME_LIBRARY,
)
FAMILY.fault(
    "library_of_program_missing",
    "Library {library:s} is not found or cannot be loaded",
    'which depends on "{library:q}" which is missing',
    "Could not locate {library:s}. Please make sure it is in your library path",
    meaning="{library} was not found: the program was built for the CUDA or cuDNN of this number, and no other helps",
    in_general="a library of CUDA was not found: the program was built for the release in its number",
    fix=(ask("pip list", "shows which CUDA the installed packages bring: nvidia-...-cu11, cu12, or no suffix for 13"),),
    seen="CTranslate2, ONNX Runtime, cuDNN",
    stage=Stage.RUNTIME_LIBRARY,
)
FAMILY.fault(
    "onnx_provider_not_created",
    "Failed to create CUDAExecutionProvider. Require cuDNN {}.* and CUDA {}.*",
    "Failed to create CUDAExecutionProvider",
    meaning="ONNX Runtime cannot use CUDA: it does not find the CUDA and cuDNN of the releases that it was built for",
    fix=(ask("python -c 'import onnxruntime as o; o.preload_dlls(); o.print_debug_info()'", "shows what it loads"),),
    seen="ONNX Runtime",
    symptom=True,
    stage=Stage.LIBRARIES,
)
FAMILY.fault(
    "library_of_jax_too_old",
    "Found {library:w} version {:d}, but JAX was built against version {:d}, which is newer",
    "Outdated {library:w} installation found",
    meaning="JAX finds an older {library} than the one it was built with: another copy comes first, or JAX is newer",
    in_general="JAX finds an older library of CUDA than the one it was built with",
    fix=(
        *JAX.newer,
        unset("LD_LIBRARY_PATH", note="if it puts another CUDA before the one that jax[cuda12] brings"),
        check("pip list | grep -i -e jax -e nvidia", "the releases of jax, jaxlib and JAX's plug-in must be the same"),
    ),
    stage=Stage.BUILD,
)
FAMILY.fault(
    "bitsandbytes_without_cuda",
    "CUDA Setup failed despite GPU being available",
    "libcudart.so not found in any environmental path",
    meaning="bitsandbytes does not find CUDA's runtime library, and loads its build for the CPU",
    fix=(
        install("--upgrade", "bitsandbytes", note="newer releases load their build for the CUDA of PyTorch"),
        ask("python -m bitsandbytes", "shows where it looks, and what it finds"),
        note("or put the folder of libcudart.so, such as /usr/local/cuda/lib64, on LD_LIBRARY_PATH"),
    ),
    seen="bitsandbytes",
)
FAMILY.fault(
    "numba_finds_no_nvvm",
    "libNVVM cannot be found",
    "library nvvm not found",
    meaning="Numba does not find CUDA's compiler (libNVVM), which the driver does not bring",
    fix=(ask("numba -s", "shows under CUDA Information where it looks, and what it finds"),),
    seen="Numba",
    stage=Stage.RUNTIME_LIBRARY,
)
FAMILY.fault(
    "cupy_not_imported",
    "Failed to import CuPy",
    meaning="CuPy cannot be imported: the libraries of the CUDA that it was built for were not found",
    fix=(ask("pip list", "must have one cupy alone"),),
    seen="CuPy",
    symptom=True,
    stage=Stage.RUNTIME_LIBRARY,
)
FAMILY.fault(
    "uuid_taken_for_number",
    pattern=r"invalid literal for int\(\) with base 10: '(?P<uuid>(?P<kind>MIG|GPU)-[\w/-]{1,80})'",
    words=("literal",),
    meaning="the program takes CUDA_VISIBLE_DEVICES for numbers, but it has the UUID {uuid}",
    in_general="the program takes CUDA_VISIBLE_DEVICES for numbers, but it has a UUID",
    fix=(
        export("CUDA_VISIBLE_DEVICES", "0", "if the process sees this device alone, as in a container or a job"),
        edit_note("or use a release of the program that accepts UUIDs of GPUs and MIG instances"),
        ask("nvidia-smi -L", "lists GPUs and MIG instances with their UUIDs"),
    ),
    seen="Python",
    stage=Stage.CONFIGURATION,
    url="https://docs.nvidia.com/datacenter/tesla/mig-user-guide/",
)
FAMILY.fault(
    "paddle_library_missing",
    "The third-party dynamic library ({library:s}) that Paddle depends on",
    "Failed to find dynamic library: {library:s} (",
    "Cannot load {library:w} shared library. Cannot invoke method",
    meaning="PaddlePaddle does not find {library}: it is not installed, or its folder is not on the loader's path",
    in_general="PaddlePaddle does not find a library of CUDA",
    fix=(
        check(
            "ldconfig -p | grep -e cudnn -e cublas; echo $LD_LIBRARY_PATH", "the folder of the library must be there"
        ),
        note("newer releases of paddlepaddle-gpu bring cuDNN and CUDA: https://www.paddlepaddle.org.cn/install/quick"),
        ask("python -c 'import paddle; paddle.utils.run_check()'", "must find the GPU"),
    ),
    seen="PaddlePaddle",
    stage=Stage.RUNTIME_LIBRARY,
)
FAMILY.fault(
    "delegate_not_applied",
    "Internal error: Failed to apply delegate: {why}",
    "Internal error: Failed to run on the given Interpreter: {why}",
    meaning="TensorFlow Lite's delegate for the GPU cannot be used on this device: {why}",
    in_general="TensorFlow Lite's delegate for the GPU cannot be used on this device",
    fix=(
        edit_note("ask CompatibilityList().isDelegateSupportedOnThisDevice, and run the model on the CPU if it is not"),
        edit_note(
            'on Android 12 and newer, write <uses-library android:name="libOpenCL.so" android:required="false"/> '
            "in the manifest: without it an application may not open OpenCL"
        ),
    ),
    confidence=Confidence.LIKELY,
    seen="TensorFlow Lite",
    stage=Stage.CONTEXT,
    url="https://ai.google.dev/edge/litert/android/gpu",
)
FAMILY.harmless(
    "opengl_in_place_of_opencl",
    pattern=r"(?<!elegate: )(?<!reter: )Can not open OpenCL library on this device - .{0,200}",
    words=("opencl",),
    meaning="TensorFlow Lite tries OpenGL next",
    seen="TensorFlow Lite",
)
