"""Messages of TensorFlow and XLA about operations that fail on the GPU: libraries, compilers, memory, devices."""

from __future__ import annotations

from gpudiag.fix import (
    Kind,
    Role,
    ask,
    check,
    edit,
    edit_note,
    export,
    install,
    install_driver,
    kernel_log,
    note,
    nvidia_smi,
    prepend,
    run,
    run_container,
    unset,
)
from gpudiag.knowledge.fault import Confidence, Stage
from gpudiag.knowledge.message import MessageFamily
from gpudiag.knowledge.tensorflow_api import GROWTH_FOR_EACH

FAMILY = MessageFamily(
    "TensorFlow and XLA on the GPU",
    stage=Stage.FIRST_OP,
    seen="2.4-2.21",
    url="https://www.tensorflow.org/guide/gpu",
)

_GROWTH = export(
    "TF_FORCE_GPU_ALLOW_GROWTH", "true", "leaves memory to NVIDIA's libraries; nvidia-smi shows who else holds some"
)
_CUDA = install(
    "--upgrade",
    "--force-reinstall",
    "tensorflow[and-cuda]",
    note="installs libraries of the release that it was built for",
)
_PATH = unset("LD_LIBRARY_PATH", note="if it puts other copies of CUDA's libraries first")
_ABOVE = note("look at the errors above this line: they name the fault")
_NVCC = install("nvidia-cuda-nvcc-cu12", note="brings ptxas, nvlink and libdevice of CUDA 12")
_DRIVER = install_driver("or install a newer driver in your distribution's way; then reboot")
_DMESG = kernel_log()

# --- cuDNN, cuBLAS and others ----------------------------------------------------------------------------------------

DNN_FAILED = FAMILY.fault(
    "dnn_not_there",
    "DNN library is not found",
    "DNN library initialization failed",
    "No DNN in stream executor",
    "No DNN for stream",
    "No dnn in the executor",
    "No DNN support for stream",
    "Dnn is not supported",
    "Failed to get convolution algorithm. This is probably because cuDNN failed to initialize",
    "Failed to get convolution algorithm. This is probably because MIOpen failed to initialize",
    "cudnn library could not create a handle",
    "could not create cudnn handle",
    "Creation of compilation cudnn handle failed",
    "Creation of local cudnn handle failed",
    "Unable to retrieve DNN factory",
    "Memory usage: {free:d} bytes free, {total:d} bytes total",
    "Possibly insufficient driver version: {driver:s}",
    "No algorithm worked!",
    "No Rnn algorithm found",
    "Failed to call ThenRnnForward with model config",
    "Failed to call DoRnnForward with model config",
    "Failed to call DoRnnBackward with model config",
    "Fail to find the dnn implementation",
    "Failed to initialize DNN support",
    "Cudnn graph failed to build",
    "No suitable {:w} plugin registered. Have you linked in a {:w}-providing plugin",
    meaning="cuDNN cannot be used: its version does not fit, a part of it is missing, or no memory was left for it",
    fix=(_GROWTH, _CUDA, _PATH, _ABOVE),
    symptom=True,
)
BLAS_FAILED = FAMILY.fault(
    "blas_failed",
    "Blas GEMM launch failed",
    "Blas xGEMM launch failed",
    "Blas xGEMV launch failed",
    "Blas SGEMM launch failed",
    "Blas GEMV launch failed",
    "Blas xGEMMBatched launch failed",
    "Blas xGEMMStridedBatched launch failed",
    "Attempting to perform BLAS operation using StreamExecutor without BLAS support",
    "No BLAS for stream",
    "No blas support for stream",
    "Unable to retrieve BLAS factory",
    "BlasLt is unavailable",
    "failed BLAS call, see log for details",
    "failed to create cublas handle: {status}",
    "failed to run cuBLAS routine: {status}",
    "failed to run cuBLAS routine {routine:w}: {status:w}",
    "Failed setting cuBlas workspace",
    "failed to set stream for cuBLAS calls",
    "failed to get old cublas pointer mode",
    "failed to set new cublas pointer mode",
    "failed to set former cublas pointer mode",
    "failed to get old cublas math mode",
    "failed to set new cublas math mode",
    "failed to set former cublas math mode",
    "No Blas support for stream",
    "No BLAS support for stream",
    "Failed to getBlas support",
    "No Blas for stream",
    "Failed to initialize BLAS support",
    "Failed to initialize BLASLT support",
    "Unable to get Blas support",
    "failed to get the current stream value",
    "Failed initializing math mode",
    "BlasScal failed",
    meaning="cuBLAS failed: no memory left for it, another process on the GPU, or a GPU that this CUDA is too old for",
    fix=(
        nvidia_smi("if another process, such as a running notebook, holds the memory, end it"),
        _GROWTH,
        nvidia_smi(
            "if the compute capability is 8.0 or higher, the GPU needs CUDA 11 (TensorFlow 2.4) or newer",
            "--query-gpu=name,compute_cap --format=csv",
        ),
        _CUDA,
    ),
    symptom=True,
)
FFT_FAILED = FAMILY.fault(
    "fft_failed",
    "failed to create cuFFT batched plan",
    "Failed to make cuFFT batched plan",
    "Failed to initialize batched cufft plan",
    "Failed to run cuFFT routine",
    "Unable to retrieve FFT factory",
    "fft failed : type={type:s}",
    "Failed to create cuFFT {:d}d plan",
    "Failed to make cuFFT {:d}d plan",
    "Failed to create cuFFT plan",
    "No FFT for stream",
    "Failed to set auto allocation for cuFFT",
    "Failed to set work area for cuFFT",
    "Failed to update custom allocator for cufft plan",
    "Unable to get fft support",
    "Unable to launch fft with type",
    meaning="cuFFT failed: no memory left for it, most often",
    fix=(_GROWTH, edit_note("use a smaller batch"), _CUDA),
    symptom=True,
)
SOLVER_FAILED = FAMILY.fault(
    "solver_failed",
    "cuSolverDN call failed with status ={status}",
    "cusolverDnCreate(&cusolver_dn_handle) == CUSOLVER_STATUS_SUCCESS",
    "Failed to create cuSolverDN instance",
    "Failed to create cuBlas instance",
    "cuSparse call failed with status {status:w}",
    "cuSolver has not been initialized",
    "cuSolver architecture mismatch error",
    "cuSolver internal error",
    "gpusolverDnCreate",
    "cuSolver execution failed",
    "cuSolver allocation failed",
    "cuSolver mapping error",
    meaning="cuSOLVER or cuSPARSE cannot be used: no memory left for it, or a library that does not fit",
    fix=(_GROWTH, _CUDA, _PATH),
    confidence=Confidence.POSSIBLE,
)
FAMILY.fault(
    "no_workspace",
    "Failed to allocate scratch buffer for device {device}",
    "CUDNN failed to allocate the scratch space for the runner",
    "Failed to allocate work area",
    "Autotuning failed for HLO",
    "All algorithms tried for {what} failed",
    "All algorithms tried for convolution",
    "Failed to determine best cudnn convolution algorithm",
    "use XLA_FLAGS=--xla_gpu_strict_conv_algorithm_picker=false",
    "cudnnGetConvolution{:w}Algorithm_v7 returned no suitable algorithms",
    "The primary convolution algorithm failed memory allocation",
    "None of the algorithms provided by cuDNN heuristics worked",
    "None of the algorithms provided by cuDNN frontend heuristics worked",
    "Failed to find fastest kernel",
    "No engine configurations found for this opGraph",
    "Failed to generate cuDNN execution plan for opGraph",
    meaning="no algorithm could be tried: no memory left for the libraries, most often",
    fix=(
        _GROWTH,
        edit_note("use a smaller batch"),
        export("XLA_FLAGS", "--xla_gpu_autotune_level=0", "switches XLA's autotuning off"),
    ),
    symptom=True,
)
FAMILY.fault(
    "wrong_results",
    "Results mismatch between different convolution algorithms",
    "Results mismatch between different GEMM algorithms",
    "Detected cudnn out-of-bounds write in conv",
    "Detected out-of-bounds write in gemm buffer",
    "Detected cudnn out-of-bounds write in convolution buffer",
    "Red zone modified",
    meaning="a library's algorithms give different results, or write to memory that does not belong to them",
    fix=(_CUDA, note("if it continues with a newer cuDNN, test the GPU: sudo dcgmi diag -r 3")),
    confidence=Confidence.POSSIBLE,
)
FAMILY.fault(
    "numeric_check",
    "Tensor had NaN values",
    "Detected Infinity or NaN in output",
    "Tensor had Inf and NaN values",
    meaning="an operation gave NaN or infinity",
    fix=(
        edit("tf.debugging.enable_check_numerics()", "names the first operation that gave NaN or infinity"),
        edit_note("lower the learning rate; with float16, use loss scaling"),
    ),
    confidence=Confidence.POSSIBLE,
)

# --- compilers -------------------------------------------------------------------------------------------------------

FAMILY.fault(
    "no_ptxas",
    "Can't find ptxas binary in ${{CUDA_DIR}}/bin. Custom ptxas location",
    "Can't find ptxas binary. You can pass the flag",
    "Couldn't find a suitable version of ptxas",
    "Couldn't find a suitable version of nvlink",
    "Couldn't find a suitable version of {tool:s} The following locations were considered",
    "Couldn't get ptxas version string",
    "Couldn't get ptxas/nvlink version string",
    "Failed to launch ptxas",
    "Not found: ./bin/ptxas not found",
    "No PTX compilation provider is available",
    "Couldn't parse ptxas/nvlink version in output",
    "Failed to launch fatbinary",
    "Couldn't invoke {tool:s} --version",
    meaning="ptxas or nvlink, which compile for the GPU, was not found by XLA",
    fix=(
        _NVCC,
        prepend("PATH", "/usr/local/cuda/bin", "or use those of an installed toolkit"),
    ),
)
FAMILY.fault(
    "no_temporary_file",
    "couldn't get temp CUBIN file name",
    "couldn't get temp PTX file name",
    "Could not get temporary filename",
    meaning="XLA needs temporary files to compile for the GPU, but no folder is writable",
    fix=(
        run(
            "mkdir -p ~/tmp && export TMPDIR=~/tmp",
            "or make room in the current folder and make it writable",
            kind=Kind.SET_VARIABLE,
        ),
        check(
            "df -h /tmp $TMPDIR; df -i /tmp $TMPDIR; ls -ld /tmp $TMPDIR",
            "shows whether the folder is full or not writable",
        ),
    ),
)
FAMILY.fault(
    "ptxas_failed",
    "ptxas exited with non-zero error code {code:d}",
    "nvlink exited with non-zero error code {code:d}",
    "fatbinary exited with non-zero error code {code:d}",
    "Running {tool:s} --version returned {code:d}",
    "Linked libnvptxcompiler is too old for",
    "ptxas fatal : {reason}",
    "ptxas too old. Falling back to the driver to compile",
    "Loaded PTX assembler is too old for",
    "Unsupported .version {ptx:v}; current version is '{:q}'",
    "PTX compilation failed with error code {code:d}",
    "ptxas fatal: {reason}",
    "nvlink fatal : {reason}",
    meaning="ptxas or nvlink cannot compile for this GPU: it is older than the GPU or than the code, most often",
    fix=(
        install(
            "--upgrade",
            "nvidia-cuda-nvcc-cu12",
            note="brings a ptxas that XLA finds first; Blackwell needs 12.8 or newer",
        ),
        check("which ptxas; ptxas --version", "must not be an older one in PATH or /usr/local/cuda"),
    ),
    symptom=True,
)
FAMILY.fault(
    "driver_link_failed",
    "cuLinkAddData fails. This is usually caused by stale driver version",
    "The CUDA linking API did not work",
    "Failed to load in-memory CUBIN",
    "failed to load PTX",
    "Invoking the PTX->SASS JIT from driver version {driver:s} which is older",
    meaning="the driver cannot load the code that was compiled: it is older than this CUDA",
    fix=(
        _DRIVER,
        export("XLA_FLAGS", "--xla_gpu_enable_llvm_module_compilation_parallelism=false", "as a temporary workaround"),
        _CUDA,
    ),
    confidence=Confidence.POSSIBLE,
)
FAMILY.fault(
    "not_for_xla",
    "Detected unsupported operations when trying to compile graph {where:s} on {:w}: {what}",
    "Detected unsupported operations when trying to compile graph on {:w}: {what}",
    "Detected unsupported operations when trying to compile graph",
    "No registered '{what:q}' OpKernel for XLA_{:w}_JIT devices compatible with node",
    meaning="XLA cannot compile an operation of this function for the GPU; the line names it",
    fix=(
        edit_note("run without XLA: model.compile(..., jit_compile=False), tf.function without jit_compile=True"),
        edit("tf.config.optimizer.set_jit(False)", "if XLA was switched on globally"),
        edit_note("for recurrent layers (CudnnRNN...), set use_cudnn=False on the layer: XLA can compile that"),
    ),
    stage=Stage.CONFIGURATION,
    seen="2.1-2.21",
)
FAMILY.fault(
    "kernel_not_jitted",
    "JIT compilation failed",
    meaning="an operation could not be compiled for this GPU: TensorFlow did not find libdevice.10.bc (or ptxas) of "
    "CUDA, most often",
    fix=(
        export(
            "XLA_FLAGS",
            "--xla_gpu_cuda_data_dir=/usr/local/cuda",
            "set the folder that has nvvm/libdevice; with conda: $CONDA_PREFIX",
        ),
        install(
            "nvidia-cuda-nvcc-cu12",
            note="for TensorFlow 2.15 and newer; before: conda install -c nvidia cuda-nvcc=11.8",
        ),
        _ABOVE,
    ),
    symptom=True,
    seen="2.5-2.21",
)
FAMILY.fault(
    "session_not_made",
    "Failed to create session",
    meaning="TensorFlow could not make its devices: another process has the GPU (compute mode), no memory is left, or "
    "the driver does not work",
    fix=(
        nvidia_smi("shows memory and processes; 'E. Process' means that only one process may use that GPU"),
        export(
            "CUDA_VISIBLE_DEVICES",
            "1",
            "set another GPU that nobody uses; in a batch job, the one that the job was given",
        ),
        _ABOVE,
    ),
    symptom=True,
    stage=Stage.CONTEXT,
    seen="1.x-2.21",
)
FAMILY.fault(
    "size_not_for_cudnn",
    "could not convert BatchDescriptor {descriptor} to cudnn tensor descriptor: CUDNN_STATUS_BAD_PARAM",
    "could not set cudnn tensor descriptor: CUDNN_STATUS_BAD_PARAM",
    "Could not set cudnn filter descriptor: CUDNN_STATUS_BAD_PARAM",
    "Check failed: cudnnSetTensorNdDescriptor{}",
    meaning="a tensor of the program has a size that cuDNN does not support: a dimension is 0 (an "
    "empty batch, no channels, an image smaller than its layers need), or it is too large",
    fix=(
        note("look at count, feature_map_count and spatial in the line: none may be 0"),
        edit_note(
            "use dataset.batch(n, drop_remainder=True), larger images or fewer strides; a smaller "
            "batch if it is too large"
        ),
    ),
    seen="0.8-2.17",
)
FAMILY.fault(
    "jit_failed",
    "Failed to compile generated PTX with ptxas",
    "Generating device code failed",
    "Lowering to GPU kernels failed",
    meaning="a function could not be compiled for the GPU; the lines above say why",
    fix=(
        _NVCC,
        edit_note("or run without XLA: model.compile(..., jit_compile=False), tf.config.optimizer.set_jit(False)"),
        _ABOVE,
    ),
    symptom=True,
)
# --- devices and drivers ---------------------------------------------------------------------------------------------

FAMILY.fault(
    "forked_context",
    "Failed setting context: {error}",
    "os.fork() was called. os.fork() is incompatible with multithreaded code",
    "Cannot re-initialize CUDA in forked subprocess",
    meaning="the process was forked from one that had used the GPU, and CUDA does not work in it",
    fix=(
        edit("import multiprocessing; multiprocessing.set_start_method('spawn')", "before TensorFlow is imported"),
        edit_note("or neither use nor list GPUs before the processes are started"),
    ),
    stage=Stage.CONTEXT,
    confidence=Confidence.POSSIBLE,
)
FAMILY.fault(
    "foreign_context",
    "current context was not created by the StreamExecutor cuda_driver API",
    "A non-primary context {:s} for device {:d} exists before initializing the StreamExecutor",
    "The primary context is active and has a different flag set",
    "Failed to get the device of the current context",
    meaning="another library in the program (PyTorch, PyCUDA, Numba) created its own context on the GPU",
    fix=(
        edit(
            "import tensorflow as tf; tf.config.list_logical_devices()",
            "must come before the other library uses the GPU",
        ),
    ),
    confidence=Confidence.POSSIBLE,
    stage=Stage.CONTEXT,
)
FAMILY.fault(
    "stream_failed",
    "could not allocate CUDA stream for context",
    "failed call to cuDevicePrimaryCtxRetain: {error}",
    "failed call to cuCtxCreate: {error}",
    "cudaGetDevice() failed. Status: {error}",
    "cudaSetDevice() on GPU:{:d} failed. Status: {error}",
    "cudaDeviceGetStreamPriorityRange() on GPU:{:d} failed. Status: {error}",
    "Failed to query available memory for GPU {:d}",
    "failed to query total available memory: {error}",
    "CUDA runtime implicit initialization on GPU:{:d} failed. Status: {error}",
    "GPU sync failed",
    "Failed to get StreamExecutor for device {:d}",
    "Failed to get memory allocator for TF GPU {:d} with {:d} bytes of memory",
    "Failed to find supported priority range for GPU device",
    "Cannot get GPUMachineManager",
    "No gpu stream is available",
    "failed to query device memory info: {error}",
    "failed to query ECC status: {error}",
    "failed to query PCI bus id for device: {error}",
    "failed to detect peer access capability: {error}",
    "failed to resolve 'from' peer access context to a device: {error}",
    "failed to resolve 'to' peer access context to a device: {error}",
    "Failed to query available memory from device {:d}",
    "Error retrieving driver version: {error}",
    "failed to Push CUDA context; leaking: {error}",
    "failed to release CUDA context; leaking: {error}",
    "Not able to get the device_ordinal for ptr: {:s} Error: {error}",
    "Failed to create stream: {error}",
    "failed to query device memory",
    meaning="TensorFlow cannot use the GPU; the error of CUDA says why",
    fix=(
        nvidia_smi("must list the GPU; shows its memory and processes"),
        _DMESG,
        note("end the other processes on the GPU, or choose another one: CUDA_VISIBLE_DEVICES", kind=Kind.END_PROCESS),
    ),
    stage=Stage.CONTEXT,
    symptom=True,
)
_AFTER_LAUNCH = (
    check("CUDA_LAUNCH_BLOCKING=1 python program.py", "makes the traceback name the operation"),
    _DMESG.replaced(
        note="look for an Xid: 13 and 31 are faults of the program; 48, 74, 79, 94, 95 and 119 are faults of the GPU"
    ),
    edit_note(
        "update the driver, raise the TDR delay and use smaller batches on Windows, or if a display is on the GPU"
    ),
)
FAMILY.fault(
    "launch_failed",
    "failed to query event: {error}",
    "Error polling for event status: {error}",
    "could not synchronize on CUDA context: {error}",
    "could not synchronize on CUDA stream",
    "failed to synchronize the stop event: {error}",
    "Failed to launch CUDA kernel: {kernel}",
    "failed to enqueue async memcpy from {}",
    "failed to enqueue async memset operation: {error}",
    "failed to free device memory at {:s} result: {error}",
    "failed to unload module {:s} leaking: {error}",
    "GPU->CPU Memcpy failed",
    "CPU->GPU Memcpy failed",
    "GPU->GPU Memcpy failed",
    "SetProtoFromGPU: GPU Memcpy failed",
    "failed to memcpy",
    "failed to synchronous memcpy from {} size: {:s}",
    "stream did not block host until done; was already in an error state",
    "Host callback failed: {error}",
    "Failed to copy data from device to host: {error}",
    "Failed to wait for stream to finish: {error}",
    "stream->Memcpy failed: {error}",
    "stream->BlockHostUntilDone failed: {error}",
    "DoHostCallback failed: {error}",
    "D2D copy failed. dst: {} status: {error}",
    "Calling RunAsync failed for executable {} status = {error}",
    "BlockHostUntilDone failed for executable {} status = {error}",
    "failed to destroy CUDA stream for executor {}",
    "Memcpy to device address {:s} failed",
    "Could not launch {:w}",
    "Failed to launch gpuprim::{}",
    "CUB segmented reduce error",
    "Failed to get device properties",
    "CUDA Runtime error: {error}",
    "Failed to complete all kernels launched on stream {}: {error}",
    "Failed to complete data transfer on stream {}: {error}",
    "Failed to retrieve branch_index value on stream {}: {error}",
    "Failed to synchronize GPU for autotuning",
    "Unable to launch convolution with type {}",
    "Unable to launch triangular solve",
    "Failed to synchronize device activity on rank {:d}",
    "CustomCall failed: {error}",
    "failed to synchronize send operation with a stream: {error}",
    "There was an error before calling cuModuleGetFunction",
    "failed to free unified memory at {:s} result: {error}",
    "failed to free collective memory at {:s} result: {error}",
    "failed to free device memory at {:s} result",
    "CUB reduce error",
    "Error recording CUDA event: {error}",
    "Could not synchronize CUDA stream: {error}",
    meaning="an operation on the GPU failed, and every later one of the process fails too",
    fix=_AFTER_LAUNCH,
    symptom=True,
)
EVENT_FAILED = FAMILY.fault(
    "event_failed",
    "Unexpected Event status: {:d}",
    meaning="an operation on the GPU failed: cuEventQuery answered with an error, which TensorFlow does not name",
    fix=_AFTER_LAUNCH,
    symptom=True,
)
FAMILY.fault(
    "memory_for_pinning",
    "failed to alloc {bytes:d} bytes on host: {error}",
    "could not allocate pinned host memory of size: {bytes:d}",
    "could not allocate pinned host of size: {bytes:d}",
    "Failed to allocate pinned host memory of size {bytes:d}",
    "Failed to allocate host memory of size {bytes:d} pinned to NUMA node",
    "Failed to allocate HostMemory of size {bytes:d}",
    "Failed to allocate host memory: {error}",
    "Out of host memory while trying to allocate {bytes:d} bytes",
    "error registering host memory at",
    "Failed to register host memory of size {bytes:d} pinned to NUMA node",
    "Failed to register host memory at address",
    "Failed to allocate {size:s} ({bytes:d} bytes) of host memory",
    meaning="the computer's memory (not the GPU's) cannot be pinned: too little is free, or a limit forbids it",
    fix=(
        check("free -m; ulimit -l -v", "shows the computer's free memory and this shell's limits"),
        edit_note("use smaller batches, and tf.data instead of whole arrays; on Windows, a larger page file"),
        export(
            "TF_GPU_HOST_MEM_LIMIT_IN_MB", "4096", "caps what TensorFlow pins (XLA: XLA_PJRT_GPU_HOST_MEMORY_LIMIT_GB)"
        ),
    ),
    stage=Stage.MEMORY,
)
FAMILY.fault(
    "data_do_not_fit",
    "Failed copying input tensor from {source:s} to {target:s} in order to run {op:w}: Dst tensor is not initialized",
    meaning="an array of the program does not fit into the GPU's memory as a whole: a smaller batch does not help, "
    "because it is copied at once",
    fix=(
        edit(
            "with tf.device('/CPU:0'): data = tf.data.Dataset.from_tensor_slices((x, y)).batch(32)",
            "keeps them on the host and copies a batch at a time: pass data to fit() in place of the arrays",
        ),
        nvidia_smi("shows whether another process takes GPU memory; a notebook keeps it until its kernel is restarted"),
        export("TF_FORCE_GPU_ALLOW_GROWTH", "true", "if another program on the GPU needs memory, too"),
    ),
    needs_device=True,
    stage=Stage.MEMORY,
)
FAMILY.fault(
    "weights_do_not_fit",
    "__wrapped__Var{} Failed copying input tensor from {source:s} to {target:s} in order to run {op:w}: Dst tensor is "
    "not initialized",
    meaning="weights of the model do not fit into the GPU memory that is free: a smaller batch does not help",
    fix=(
        nvidia_smi("shows whether another process takes GPU memory: end it; a notebook keeps it until it is restarted"),
        edit("tf.keras.backend.clear_session()", "before the model is made, if the program made others before it"),
        edit_note("or use a smaller model, or one of half precision"),
    ),
    needs_device=True,
    stage=Stage.MEMORY,
)
FAMILY.fault(
    "dst_not_initialised",
    "Dst tensor is not initialized",
    "Src tensor is not initialized",
    "Failed copying input tensor from {source:s} to {target:s} in order to run {op:w}",
    "SameWorkerRecvDone unable to allocate output tensor",
    "EigenAllocator for GPU ran out of memory when allocating",
    "Ran out of GPU memory when allocating {:d} bytes",
    "Failed to allocate request for {size:s} ({:d}B) on device ordinal {:d}",
    "Failed to allocate request for {size:s} on device ordinal {:d}",
    "Out of memory while trying to allocate {size:s}",
    "Out of memory allocating {bytes:d} bytes",
    "could not allocate device of size: {bytes:d}",
    "could not allocate unified of size: {bytes:d}",
    "could not allocate collective of size: {bytes:d}",
    "Sum Total of in-use chunks: {used:s}",
    "total_region_allocated_bytes_: {pool:d} memory_limit_: {limit:d} available bytes: {:s}",
    "Total bytes in pool: {pool:d} memory_limit_: {limit:d} available bytes",
    "If the cause is memory fragmentation maybe the environment variable",
    "cuMemAllocAsync failed to allocate {bytes:d} bytes",
    "cuMemAlloc failed to allocate {bytes:d}",
    "cuMemFree failed to free",
    "cudaFreeAsync failed to free",
    "Failed to allocate collective memory: {error}",
    "Allocating {bytes:d} bytes exceeds the memory limit of {limit:d} bytes",
    "Failed to allocate {bytes:d} bytes for new constant",
    "Failed to allocate scratch memory for the CuDNN CTC Loss",
    "Failed to allocate output offsets buffer",
    "OOM when allocating temporary tensor with shape",
    "Out of {:s} memory while trying to allocate {bytes:d} bytes",
    meaning="the model, its batch or its data need more memory than TensorFlow has on the GPU",
    fix=(
        edit_note("use a smaller batch, or smaller inputs: memory grows with the batch"),
        nvidia_smi("shows whether another process takes GPU memory; a notebook keeps it until its kernel is restarted"),
        edit("tf.keras.mixed_precision.set_global_policy('mixed_float16')", "activations take half the memory"),
        export("TF_GPU_ALLOCATOR", "cuda_malloc_async", "if the pool is fragmented"),
    ),
    needs_device=True,
    stage=Stage.MEMORY,
)
FAMILY.fault(
    "graphs_too_large",
    "Underlying backend ran out of memory trying to instantiate command buffer",
    "Underlying backend ran out of memory trying to instantiate graph",
    "CUDA driver ran out of memory trying to instantiate CUDA graph",
    "Failed to capture gpu graph",
    "Failed to instantiate CUDA graph",
    meaning="CUDA graphs of XLA need memory beside TensorFlow's",
    fix=(export("XLA_FLAGS", "--xla_gpu_enable_command_buffer="), _GROWTH),
    stage=Stage.MEMORY,
)
FAMILY.fault(
    "second_configuration",
    "is being mapped to multiple devices ({:d} now, and {:d} previously), which is not supported",
    "is being mapped to multiple {:w} devices",
    "TensorFlow device ({}) is being mapped to multiple",
    meaning="the program configures GPUs differently in two sessions or servers of one process",
    fix=(
        edit_note("use the same visible_device_list everywhere, or set CUDA_VISIBLE_DEVICES for the process instead"),
    ),
    stage=Stage.CONFIGURATION,
)
FAMILY.fault(
    "virtual_devices_wrong",
    "Not enough GPUs to create virtual devices",
    "The number of GPUs in visible_device_list doesn't match the number of elements in the virtual_devices list",
    "The number of valid GPUs doesn't match the number of elements in the virtual_devices list",
    "Setting memory limit is required for GPU virtual devices",
    "priority must be specified for all virtual devices",
    "device_ordinals must be specified for all virtual devices",
    "Device ordinals must be set for all virtual devices or none",
    "Priority must be set for all virtual devices or none",
    "is outside the range of supported priorities",
    "visible_device_list contained a duplicate entry",
    "Virtual devices are not supported for {}",
    "Setting memory limit on CPU virtual devices is currently not supported",
    "Virtual CPUs already set, cannot modify again",
    "Unified memory on GPUs with compute capability lower than 6.0",
    meaning="logical devices are configured in a way that TensorFlow does not support",
    fix=(
        edit(
            "tf.config.set_logical_device_configuration(gpu, "
            "[tf.config.LogicalDeviceConfiguration(memory_limit=1024)])",
            "pass one list for each GPU, with a limit in MiB for each device",
        ),
    ),
    stage=Stage.CONFIGURATION,
)
FAMILY.fault(
    "growth_differs",
    "Memory growth cannot differ between GPU devices",
    meaning="memory growth is set for only some of the visible GPUs; it must be the same for all",
    fix=(edit(GROWTH_FOR_EACH),),
    stage=Stage.CONFIGURATION,
)
FAMILY.fault(
    "device_argument_wrong",
    "Unrecognized device: {device}",
    "device must be a tf.config.PhysicalDevice, but got: {}",
    "The PhysicalDevice must be one obtained from calling `tf.config.list_physical_devices`",
    "Cannot set memory growth on non-GPU and non-Pluggable devices",
    "Invalid visible device index: {index}",
    "Failed to parse device name: {}",
    "Malformed device specification '{device:q}'",
    "Expecting a string device name. Got {}",
    meaning="the program names a device that this process does not have",
    fix=(edit("tf.config.list_physical_devices('GPU')", "lists the devices of this process: pass these"),),
    stage=Stage.CONFIGURATION,
)
FAMILY.fault(
    "conflicting_devices",
    "Tensors on conflicting devices: cannot compute {op:w} as input #{:d} was expected to be on {}",
    "Tensors on conflicting devices",
    meaning="an operation gets tensors on two devices, and copying between them is disabled",
    fix=(
        edit("tf.config.experimental.set_device_policy('silent')", "copies them"),
        edit("with tf.device(...):", "or create the tensors on one device", role=Role.ALTERNATIVE),
    ),
    stage=Stage.CONFIGURATION,
)
FAMILY.fault(
    "no_determinism",
    "A deterministic GPU implementation of {op} is not currently available",
    "A deterministic GPU implementation of {op} is not available",
    "Determinism is not yet supported in GPU implementation of {op}",
    "Deterministic GPU implementation of {op} not available",
    "When determinism is enabled, random ops must have a seed specified",
    "Random ops require a seed to be set when determinism is enabled",
    meaning="deterministic operations are required, but an operation of the program has no "
    "deterministic version on the GPU",
    fix=(
        edit("tf.keras.utils.set_random_seed(1)", "if only the seed is missing"),
        edit("with tf.device('/CPU:0'):", "runs this operation on the CPU; or remove enable_op_determinism"),
    ),
    stage=Stage.CONFIGURATION,
)
FAMILY.fault(
    "no_determinism_in_xla",
    "GPU {op} ops do not yet have a deterministic XLA implementation",
    meaning="deterministic operations are required, but XLA has no deterministic {op} for the GPU",
    in_general="deterministic operations are required, but XLA has no deterministic version of an "
    "operation for the GPU",
    seen="2.8-2.21; Keras 3 compiles with XLA by itself (jit_compile='auto')",
    fix=(
        edit_note("run it without XLA, which has a deterministic version: model.compile(..., jit_compile=False)"),
        unset(
            "TF_DETERMINISTIC_OPS",
            note="or run without determinism; also remove enable_op_determinism",
            role=Role.ALTERNATIVE,
        ),
    ),
    stage=Stage.CONFIGURATION,
)
FAMILY.fault(
    "layout_needs_gpu",
    "The Conv2D op currently only supports the NHWC tensor format on the CPU",
    "Default MaxPoolingOp only supports NHWC",
    "Default AvgPoolingOp only supports NHWC",
    "Conv2DBackpropInputOp [CPU or GPU(int32)] only supports NHWC data format",
    "The CPU implementation of FusedBatchNorm only supports NHWC",
    meaning="the model needs a GPU (channels first), but TensorFlow uses the CPU",
    fix=(
        ask("gpudiag check", "says why there is no GPU"),
        edit("tf.keras.backend.set_image_data_format('channels_last')", "if the model must run on the CPU"),
    ),
    stage=Stage.CONFIGURATION,
    confidence=Confidence.POSSIBLE,
)
FAMILY.fault(
    "no_nccl_kernel",
    "No OpKernel was registered to support Op 'NcclAllReduce'",
    "No OpKernel was registered to support Op '_NcclReduceSend'",
    "No OpKernel was registered to support Op 'NcclReduce'",
    "No OpKernel was registered to support Op 'NcclBroadcast'",
    "No OpKernel was registered to support Op '_NcclBroadcastSend'",
    "Could not find device for node: {:s} Nccl{:w}",
    meaning="this TensorFlow has no NCCL, which GPUs need to exchange data: the Windows build has "
    "none, nor has a build without CUDA",
    fix=(
        edit("tf.distribute.MirroredStrategy(cross_device_ops=tf.distribute.HierarchicalCopyAllReduce())"),
        edit(
            "tf.config.list_physical_devices('GPU')", "must list the GPUs, on Linux; NCCL comes with a build for CUDA"
        ),
    ),
    stage=Stage.CONFIGURATION,
    seen="1.13-2.21",
)
FAMILY.fault(
    "cudnn_rnn_needs_gpu",
    "No OpKernel was registered to support Op '{op:q}' used by {}Registered devices: [{devices:l}]",
    "No OpKernel was registered to support Op '{op:q}'",
    "Could not find device for node: {}",
    "No supported device found in available devices",
    "No registered '{op:q}' OpKernel for '{device:q}' devices compatible with node",
    "No registered '{op:q}' OpKernel for {device:w} devices compatible with node",
    meaning="an operation has no kernel for the device and the type of data that the program asks for; 'device=' in "
    "the lines below it names those that have one",
    fix=(
        edit("tf.config.set_soft_device_placement(True)", "if only another device, such as the CPU, is listed"),
        edit("tf.cast(x, tf.float32)", "if your device is listed there with other types; x is no complex number"),
        ask("gpudiag check", "if it needs a GPU: says why there is none"),
    ),
    stage=Stage.CONFIGURATION,
    symptom=True,
    seen="1.x-2.21",
)
FAMILY.fault(
    "no_kernel_for_type",
    "(OpKernel was found, but attributes didn't match) Requested Attributes: {attributes}",
    "(OpKernel was found, but attributes didn't match)",
    meaning="the program calls an operation with a type or attribute for which TensorFlow has no kernel: the kernels "
    "of this operation are for others, and the GPU is not at fault",
    fix=(
        edit("tf.cast(x, tf.float32)", "the lines 'device=' below name the types that have a kernel"),
        edit("with tf.device('/CPU:0'):", "if only the CPU has a kernel for this type"),
    ),
    symptom=True,
    stage=Stage.CONFIGURATION,
    seen="1.10-2.21",
)
FAMILY.fault(
    "capabilities_of_binary",
    "No supported cuda capabilities in binary",
    "GPUAllocator unavailable. Not compiled with --config=cuda",
    "environment found, but TensorFlow was not compiled with CUDA support",
    "Neither TENSORFLOW_USE_ROCM nor GOOGLE_CUDA are defined",
    "GPU is not currently supported without cudnn",
    "XLA was built without libnvptxcompiler support",
    "XLA compiled without GPU collectives support",
    meaning="this TensorFlow was built without CUDA",
    fix=(run("pip uninstall -y tensorflow-cpu tensorflow", kind=Kind.REMOVE), install("tensorflow[and-cuda]")),
    stage=Stage.BUILD,
)
DIRECTML_ADAPTER = FAMILY.sign(
    "directml_adapter",
    pattern=r"DirectML: creating device on adapter (?P<number>\d{1,2}) \((?P<name>.{1,120})\)\s*$",
    words=("directml",),
    seen="tensorflow-directml",
)
FAMILY.fault(
    "variable_of_another_device",
    "Trying to access resource {resource:s}",
    meaning="a function that XLA compiles uses a variable on another device, which XLA does not support",
    fix=(
        edit_note("create and use the model on the same device: both inside one with tf.device(...), or neither"),
        edit_note(
            "or run without XLA: model.compile(..., jit_compile=False), no "
            "@tf.function(jit_compile=True); in Keras 2.11 and newer set it for the optimizer, too, "
            "or use one of tf.keras.optimizers.legacy"
        ),
    ),
)
NO_XLA_COMPILER = FAMILY.fault(
    "no_xla_compiler",
    "could not find registered compiler for platform {platform:w}",
    "Could not find compiler for platform {platform:w}",
    meaning="this TensorFlow was built without XLA for {platform}: jit_compile=True is not supported",
    in_general="this TensorFlow was built without XLA for the device: jit_compile=True is not supported",
    fix=(
        edit_note("use model.compile with jit_compile=False, no @tf.function(jit_compile=True), no TF_XLA_FLAGS"),
        install(
            "tensorflow[and-cuda]", note="installs a wheel of pypi.org, which has XLA; in conda, take a newer build"
        ),
    ),
    seen="2.4-2.21",
)
PLATFORM_MISSING = FAMILY.fault(
    "platform_missing",
    'Could not find registered platform with name: "{platform:q}"',
    "could not find registered platform with id",
    "no supported devices found for platform CUDA",
    "Could not find Platform with name",
    "No visible GPU devices",
    "No executors registered for ordinal {:d}",
    "Either GPU has to be attached, or --xla_gpu_target_config_filename has to be specified",
    "Invalid device index: {:d}",
    meaning="XLA has no platform for GPUs here: TensorFlow found no GPU, or was built without CUDA",
    fix=(ask("gpudiag check", "says why there is no GPU"),),
    symptom=True,
    stage=Stage.DEVICE_COUNT,
)
FAMILY.fault(
    "skipping_gpus",
    "Skipping registering GPU devices...",
    meaning="TensorFlow uses no GPU: a CUDA library is missing; the lines above may name it",
    fix=(
        install(
            "tensorflow[and-cuda]",
            note="brings all CUDA libraries (2.14 and newer; 2.16.1 does not find them: use 2.17)",
        ),
        check(
            "TF_CPP_VMODULE=dso_loader=1 python -c 'import tensorflow as tf; tf.config.list_physical_devices()'",
            "makes the log name the missing libraries",
        ),
    ),
    symptom=True,
    stage=Stage.LIBRARIES,
)
FAMILY.fault(
    "garbage_collection_value",
    "The TF_ENABLE_GPU_GARBAGE_COLLECTION environment variable is set but could not be parsed",
    "Invalid minimum GPU multiprocessor count: [{value:q}]",
    "Unable to read TF_FORCE_UNIFIED_MEMORY: {value}",
    "Illegal GPUOptions.experimental.num_dev_to_dev_copy_streams={value:d}",
    "Unknown option for environment variable TF_CUDA_PLATFORM_GPU_DEVICE_SCHEDULE {value}",
    "Invalid value for env-var {value}",
    "Invalid allocator type: {value}",
    "Invalid value for TF_CUBLAS_WORKSPACE_LIMIT_IN_MB: {value}",
    "Invalid value for TF_MATMUL_AUTOTUNE_MAX_ALGORITHMS: {value}",
    meaning="an environment variable or option has an invalid value",
    fix=(
        check(
            "env | grep -e ^TF_ -e ^XLA_ -e ^CUDA_",
            "look for the variable that the line names: unset it, or give it another value",
        ),
    ),
    stage=Stage.CONFIGURATION,
)
FAMILY.fault(
    "reserved_too_much",
    "The requested reserved device memory {:s} is larger than the available memory",
    "The requested reserved device memory {:s} is invalid",
    meaning="TF_DEVICE_MIN_SYS_MEMORY_IN_MB asks to leave more memory than the GPU has; it is ignored",
    fix=(unset("TF_DEVICE_MIN_SYS_MEMORY_IN_MB"),),
    stage=Stage.CONFIGURATION,
)
FAMILY.fault(
    "peer_access_failed",
    "Unable to enable peer access between device ordinals {first:d} and {second:d}",
    "Unable to enable peer access between GPUs {first:d} and {second:d}",
    "failed to enable peer access from {} to {}",
    "potential peer access pairs were reported by the driver, but no peering could be enabled",
    meaning="GPUs cannot reach each other's memory; copies go through the host",
    fix=(
        nvidia_smi("shows which pairs of GPUs can", "topo -p2p r"),
        export("NCCL_P2P_DISABLE", "1", "if exchanges hang"),
    ),
    confidence=Confidence.POSSIBLE,
    stage=Stage.CONFIGURATION,
)
FAMILY.fault(
    "tensorrt_not_opened",
    "getInferLibVersion symbol not found",
    ("Failed to initialize TensorRT. This is either because the TensorRT installation path is not in LD_LIBRARY_PATH"),
    meaning="the program uses TensorRT, but the TensorRT release that this TensorFlow was built for "
    "was not found, or is incomplete",
    fix=(
        check("ldconfig -p | grep -e nvinfer -e nvrtc", "must list libnvinfer.so with the number that the log names"),
        note(
            "install that release of TensorRT (libnvinfer.so.5: TensorRT 5), or a TensorFlow for the installed one",
            kind=Kind.INSTALL,
        ),
        run(
            "sudo apt install cuda-nvrtc-11-1",
            "if the log says that libnvrtc.so.11.1 cannot be opened: TensorRT needs it",
            kind=Kind.INSTALL_AS_ROOT,
        ),
    ),
    url="https://docs.nvidia.com/deeplearning/tensorrt/latest/getting-started/support-matrix.html",
)
DIAGNOSTICS = FAMILY.sign(
    "diagnostics",
    "retrieving CUDA diagnostic information for host: {host}",
    "hostname: {host}",
    "libcuda reported version is: {library}",
    "kernel reported version is: {module}",
    "kernel version seems to match DSO: {version}",
    "verbose logging is disabled. Rerun with verbose logging",
    "could not open driver version path for reading",
    "was unable to find libcuda.so DSO loaded into this program",
    meaning="what TensorFlow says of the driver after cuInit failed",
)
NO_KERNEL_DRIVER = FAMILY.fault(
    "no_kernel_driver",
    "kernel driver does not appear to be running on this host",
    "no NVIDIA GPU device is present: /dev/nvidia0 does not exist",
    meaning="no NVIDIA driver runs where the program ran: none is installed, or the container was given no GPU",
    fix=(
        nvidia_smi("must work; if the machine has no NVIDIA GPU, there is nothing to fix"),
        run_container("--gpus all", note="if it runs in a container"),
        _DRIVER,
    ),
    stage=Stage.DRIVER,
    symptom=True,
)
FAMILY.fault(
    "library_not_opened_by_xla",
    "Unable to load {library:w} library",
    meaning="a library of CUDA cannot be opened",
    fix=(_CUDA, _PATH),
    confidence=Confidence.POSSIBLE,
    stage=Stage.LIBRARIES,
)
FAMILY.fault(
    "determinism_or_cudnn_newer",
    "is only supported on GPUs with compute capability {needed:v} or later",
    "is only supported with cuDNN on Ampere GPUs or later",
    "kernels require cuDNN {needed:v} or higher",
    "require cublasLt >= {needed:v}",
    meaning="an operation needs a newer GPU or a newer library",
    fix=(nvidia_smi(options="--query-gpu=name,compute_cap --format=csv"), install("--upgrade", "tensorflow[and-cuda]")),
)
FAMILY.sign(
    "op_requires",
    "OP_REQUIRES failed at {place:s} : {error}",
    "Compute status: {error}",
    meaning="the place in TensorFlow's source that found an error",
)
FAMILY.sign(
    "allocator_dump",
    "BFCAllocator dump for {allocator:w}",
    "Bin ({:d}): Total Chunks: {:d}, Chunks in use: {:d}",
    "Bin for {} was {}, Chunk State:",
    "Next region of size {:d}",
    "Summary of in-use Chunks by size",
    "Chunks of size {size:d} totalling {}",
    "Extending region {} of {} by {:d} bytes",
    "Histogram of current allocation: (allocation_size_in_bytes",
    "CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT",
    "CU_MEMPOOL_ATTR_USED_MEM_CURRENT",
    "CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH",
    "CU_MEMPOOL_ATTR_USED_MEM_HIGH",
    "Error while fetching extra cudaMallocAsync pool attribute",
    meaning="what the allocator of the GPU's memory holds, as it is printed when it runs out",
)
FAMILY.sign(
    "xla_allocates",
    "XLA backend allocating {bytes:d} bytes on device {:d} for {:w}",
    "XLA backend will use up to {bytes:d} bytes on device {:d} for {:w}",
    "Using BFC allocator.",
    "Using platform allocator.",
    "TfrtGpuClient created with {:d} / {:d} addressable devices",
    "TfrtGpuClient destroyed",
    meaning="how XLA or TensorFlow divides the GPU's memory",
)
FAMILY.sign(
    "xla_profiles",
    "Using PGLE profile from {}",
    "Found profile for module {}",
    "Attempting to parse as a binary proto",
    "Not a binary proto, attempt to parse it as a text proto",
    "Unable to parse fdo_profile",
    "PGLE profile file does not exist",
    "Tried but failed to parse PGLE proto",
    "Autotune cache {}",
    "In-memory autotune cache hit",
    "File-based autotune cache hit",
    "Autotune results serialized to file",
    "Autotune results loaded from file",
    "Autotune logs serialized to file",
    meaning="files that XLA reads and writes to compile faster",
)
FAMILY.fault(
    "nothing_to_launch",
    "Check failed: work_element_count > 0 ({:d} vs. 0)",
    "gpu_launch_config.h:{:d}] Check failed: {}",
    "Check failed: work_element_count >= 0 ({} vs. 0)",
    meaning="an operation was given a tensor without elements, or one that is too large to be counted",
    fix=(
        edit_note(
            "avoid empty batches: dataset.batch(n, drop_remainder=True); with several GPUs, each must"
            " get a part of the last batch"
        ),
        edit_note("use a smaller batch if a tensor has more than 2147483647 elements"),
    ),
    confidence=Confidence.POSSIBLE,
    seen="1.13-2.21",
)
FAMILY.fault(
    "no_tools_of_cuda",
    "nvcc: command not found",
    "nvcc: not found",
    "'nvcc' is not recognized as an internal or external command",
    "ptxas: not found",
    "ptxas: command not found",
    meaning="the CUDA toolkit is not installed, or not on PATH; TensorFlow itself needs only its libraries",
    fix=(
        install(
            "tensorflow[and-cuda]",
            note="installs the libraries; to check: python -c 'import tensorflow as tf; "
            "print(tf.config.list_physical_devices())'",
        ),
        prepend("PATH", "/usr/local/cuda/bin", "if you need nvcc itself; or: pip install nvidia-cuda-nvcc-cu12"),
    ),
    symptom=True,
    stage=Stage.LIBRARIES,
    seen="Linux, Windows",
)
FAMILY.fault(
    "grouped_convolution_on_cpu",
    "Fused conv implementation does not support grouped convolutions for now",
    "The CPU implementation of {op:s} does not support",
    meaning="the model runs on the CPU, which does not support grouped convolutions: TensorFlow uses "
    "no GPU, or the number of channels does not fit the layer",
    fix=(
        ask("python -c 'import tensorflow as tf; print(tf.config.list_physical_devices())'", "must list GPU:0"),
        edit_note("give the layer an input with as many channels as it was made for, such as 3 and not 4 for images"),
    ),
    confidence=Confidence.POSSIBLE,
    seen="2.1-2.21",
)
FAMILY.fault(
    "multi_gpu_model_older_than_names",
    pattern=r"To call `multi_gpu_model` with `gpus=\d{1,3}`, we expect the following devices to be available: "
    r"\[[^\]]{0,2000}'/gpu:(?P<last>\d{1,3})'\]\. However this machine only has: \[[^\]]{0,2000}/device:GPU:(?P=last)'",
    words=("multi_gpu_model",),
    meaning="this Keras is too old for this TensorFlow: it looks for /gpu:{last}, but GPUs are now "
    "named /device:GPU:{last}; all of them are available",
    in_general="this Keras is too old for this TensorFlow: it looks for GPUs by their old names; all of "
    "them are available",
    fix=(
        install(
            "--upgrade",
            "keras==2.2.*",
            note="installs a Keras that knows both names; or use tf.keras of the same TensorFlow",
        ),
        install("tensorflow-gpu==1.4.*", note="or install the TensorFlow that this Keras was made for"),
    ),
    stage=Stage.CONFIGURATION,
    seen="1.x",
)
FAMILY.fault(
    "multi_gpu_model_without_cpu",
    pattern=r"To call `multi_gpu_model` with `gpus=\d{1,3}`, we expect the following devices to be available: "
    r"\[[^\]]{0,2000}'/gpu:(?P<last>\d{1,3})'\]\. However this machine only has: \['/gpu:0'[^\]]{0,2000}"
    r"/gpu:(?P=last)'",
    words=("multi_gpu_model",),
    meaning="this Keras looks for the CPU in its list of devices, which does not contain it; the list"
    " has all GPUs, up to /gpu:{last}",
    in_general="this Keras looks for the CPU in its list of devices, which does not contain it; the list has all GPUs",
    fix=(
        install(
            "--upgrade",
            "keras==2.3.*",
            note="installs a Keras without this bug; or use tf.keras of the same TensorFlow",
        ),
        edit_note("or use multi_gpu_model with cpu_merge=False: it merges on a GPU"),
    ),
    stage=Stage.CONFIGURATION,
    seen="1.x",
)
MULTI_GPU_MODEL = FAMILY.fault(
    "multi_gpu_model_without_gpus",
    "To call `multi_gpu_model` with `gpus={asked:d}`, we expect the following devices to be available",
    meaning="the program asks Keras for {asked} GPUs, but TensorFlow has fewer",
    in_general="the program asks Keras for more GPUs than TensorFlow has",
    fix=(
        ask(
            "python -c 'import tensorflow as tf; print(tf.test.is_built_with_cuda()); from "
            "tensorflow.python.client import "
            "device_lib; print(device_lib.list_local_devices())'",
            "shows what it contains",
        ),
        check("nvidia-smi -L; echo $CUDA_VISIBLE_DEVICES", "shows the machine's GPUs, and which are hidden"),
        edit_note("set gpus= to the number of available GPUs"),
    ),
    stage=Stage.CONFIGURATION,
    seen="1.x-2.3",
)
FAMILY.fault(
    "colocated_without_gpu_kernel",
    "because the node was colocated with a group of nodes that required incompatible device '{device:q}'",
    meaning="operations that must be on the same device are placed on {device}, but one of them has no kernel for it",
    in_general="operations that must be on the same device are placed on a GPU, but one of them has no kernel for it",
    fix=(
        edit(
            "tf.config.set_soft_device_placement(True)",
            "in TensorFlow 1: tf.ConfigProto(allow_soft_placement=True) for the session",
        ),
        edit_note("or place that part on the CPU: with tf.device('/CPU:0')"),
    ),
    stage=Stage.CONFIGURATION,
    seen="1.x-2.21",
)
FAMILY.fault(
    "device_not_registered",
    (
        "Could not satisfy explicit device specification '{device:q}' because no devices matching that specification "
        "are registered in this process"
    ),
    meaning="the program places an operation on {device}, which TensorFlow does not have here",
    in_general="the program places an operation on a device that TensorFlow does not have here",
    fix=(
        ask(
            "python -c 'from tensorflow.python.client import device_lib; print(device_lib.list_local_devices())'",
            "shows what it contains",
        ),
        edit(
            "tf.config.set_soft_device_placement(True)",
            "in TensorFlow 1: tf.ConfigProto(allow_soft_placement=True) for the session",
        ),
    ),
    stage=Stage.CONFIGURATION,
    seen="0.6-2.2",
)
