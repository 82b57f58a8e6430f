"""What TensorFlow and XLA say when an operation on the GPU fails: libraries, compilers, memory, devices."""

from __future__ import annotations

from gpudiag.fix import Kind, Role, check, edit, export, install, note, prepend, run, start, unset
from gpudiag.knowledge.message import Family, Text, Worth

FAMILY = Family(
    "TensorFlow and XLA on the GPU",
    stage="FIRST_OP",
    seen="2.4-2.21",
    url="https://www.tensorflow.org/guide/gpu",
)

_GROWTH = export(
    "TF_FORCE_GPU_ALLOW_GROWTH", "true", "leaves memory to NVIDIA's libraries; nvidia-smi: who else holds some"
)
_CUDA = install(
    "--upgrade", "--force-reinstall", "tensorflow[and-cuda]", note="libraries of the release that it was built for"
)
_PATH = unset("LD_LIBRARY_PATH", note="other copies of CUDA's libraries come first by it")
_ABOVE = note("the errors above this line name the fault")
_NVCC = install("nvidia-cuda-nvcc-cu12", note="ptxas, nvlink and libdevice of CUDA 12")
_DRIVER = run(
    "sudo apt install nvidia-driver-580",
    "or another way to a newer driver of this distribution; then reboot",
    kind=Kind.CHANGE_DRIVER,
)
_DMESG = check("sudo dmesg | grep -i -e nvrm -e xid")

# --- cuDNN, cuBLAS and others ----------------------------------------------------------------------------------------

DNN_FAILED = FAMILY.fault(
    "dnn_not_there",
    Text("DNN library is not found", "https://github.com/tensorflow/tensorflow/issues/56135"),
    Text("DNN library initialization failed", "tensorflow 2.21 xla/service/gpu/stream_executor_util.cc:82"),
    Text("No DNN in stream executor", "tensorflow 2.21 tensorflow/core/kernels/conv_ops_gpu.cc:100"),
    Text("No DNN for stream", "tensorflow 2.21 tensorflow/core/kernels/cudnn_rnn_ops.cc:144"),
    Text("No dnn in the executor", "tensorflow 2.21 tensorflow/core/kernels/cudnn_rnn_ops.cc:721"),
    Text("No DNN support for stream", "tensorflow 2.21 tensorflow/core/kernels/fused_batch_norm_op.cc:984"),
    Text("Dnn is not supported", "tensorflow 2.21 tensorflow/core/kernels/cudnn_rnn_ops.cc:1294"),
    Text(
        "Failed to get convolution algorithm. This is probably because cuDNN failed to initialize",
        "https://github.com/matterport/Mask_RCNN/issues/1620",
    ),
    Text(
        "Failed to get convolution algorithm. This is probably because MIOpen failed to initialize",
        "tensorflow 2.21 tensorflow/core/kernels/conv_ops_gpu.cc:367",
    ),
    Text("cudnn library could not create a handle", "tensorflow 2.21 xla/stream_executor/cuda/cuda_dnn.cc:498"),
    Text("could not create cudnn handle", "https://github.com/microsoft/AutonomousDrivingCookbook/issues/17"),
    Text("Creation of compilation cudnn handle failed", "tensorflow 2.21 xla/stream_executor/cuda/cuda_dnn.cc:258"),
    "Creation of local cudnn handle failed",
    Text("Unable to retrieve DNN factory", "tensorflow 2.21 xla/stream_executor/cuda/cuda_executor.cc:1162"),
    Text(
        "Memory usage: {free:d} bytes free, {total:d} bytes total",
        "tensorflow 2.21 xla/stream_executor/cuda/cuda_dnn.cc:482",
    ),
    "Possibly insufficient driver version: {driver:s}",
    Text("No algorithm worked!", "tensorflow 2.21 tensorflow/core/kernels/cudnn_rnn_ops.cc:2022"),
    Text("No Rnn algorithm found", "tensorflow 2.21 tensorflow/core/kernels/cudnn_rnn_ops.cc:1906"),
    Text(
        "Failed to call ThenRnnForward with model config",
        "tensorflow 1.15 (NVIDIA) tensorflow/core/kernels/cudnn_rnn_ops.cc:840",
    ),
    Text(
        "Failed to call DoRnnForward with model config", "tensorflow 2.21 tensorflow/core/kernels/cudnn_rnn_ops.cc:866"
    ),
    Text(
        "Failed to call DoRnnBackward with model config",
        "tensorflow 2.21 tensorflow/core/kernels/cudnn_rnn_ops.cc:1045",
    ),
    "Failed to find the dnn implementation",
    Text(
        "Fail to find the dnn implementation",
        "tensorflow 1.15 (NVIDIA) tensorflow/stream_executor/stream_executor_pimpl.cc:382",
    ),
    Text("Failed to initialize DNN support", "tensorflow 2.21 xla/backends/gpu/runtime/command_buffer_cmd.cc:1411"),
    Text("Cudnn graph failed to build", "tensorflow 2.21 xla/stream_executor/cuda/cuda_dnn.cc:5661"),
    Text(
        "No suitable {:w} plugin registered. Have you linked in a {:w}-providing plugin",
        "tensorflow 2.21 xla/stream_executor/plugin_registry.cc:126",
    ),
    meaning="cuDNN cannot be used: its version does not fit, a part of it is missing, or no memory was left for it",
    fix=(_GROWTH, _CUDA, _PATH, _ABOVE),
    follows=True,
)
BLAS_FAILED = FAMILY.fault(
    "blas_failed",
    Text("Blas GEMM launch failed", "https://github.com/taoqi98/KIM/issues/7"),
    Text("Blas xGEMM launch failed", "https://github.com/tensorflow/tensorflow/issues/44832"),
    Text("Blas xGEMV launch failed", "tensorflow 2.21 tensorflow/core/kernels/matmul_op_impl.h:815"),
    Text(
        "Blas SGEMM launch failed",
        "tensorflow 1.15 (NVIDIA) tensorflow/contrib/image/kernels/adjust_hsv_in_yiq_op_gpu.cu.cc:79",
    ),
    Text("Blas GEMV launch failed", "tensorflow 1.15 (NVIDIA) tensorflow/core/kernels/matmul_op.cc:179"),
    Text("Blas xGEMMBatched launch failed", "tensorflow 2.21 tensorflow/core/kernels/matmul_op_impl.h:733"),
    Text(
        "Blas xGEMMStridedBatched launch failed",
        "tensorflow 1.15 (NVIDIA) tensorflow/core/kernels/batch_matmul_op_impl.h:438",
    ),
    "Blas scal failed",
    Text(
        "Attempting to perform BLAS operation using StreamExecutor without BLAS support",
        "tensorflow 2.15.1 libtensorflow_cc.so.2",
    ),
    Text("No BLAS for stream", "tensorflow 2.21 tensorflow/core/kernels/conv_grad_filter_ops_3d.cc:712"),
    Text("No blas support for stream", "tensorflow 2.21 tensorflow/core/kernels/matmul_op_impl.h:724"),
    Text("Unable to retrieve BLAS factory", "tensorflow 2.21 xla/stream_executor/cuda/cuda_executor.cc:1143"),
    Text("BlasLt is unavailable", "tensorflow 2.21 xla/stream_executor/gpu/gpu_blas_lt.cc:272"),
    Text("failed BLAS call, see log for details", "tensorflow 2.21 xla/stream_executor/cuda/cuda_blas.cc:1010"),
    Text(
        "failed to create cublas handle: {status}", "https://github.com/microsoft/AutonomousDrivingCookbook/issues/17"
    ),
    Text("failed to run cuBLAS routine: {status}", "https://github.com/weizhepei/CasRel/issues/62"),
    Text("failed to run cuBLAS routine {routine:w}: {status:w}", "https://github.com/qqwweee/keras-yolo3/issues/332"),
    Text("Failed setting cuBlas workspace", "tensorflow 2.21 xla/stream_executor/cuda/cuda_blas.cc:386"),
    Text("failed to set stream for cuBLAS calls", "tensorflow 2.21 xla/stream_executor/cuda/cuda_blas.cc:240"),
    "failed to initialize cublas handle",
    Text("failed to get old cublas pointer mode", "tensorflow 2.21 xla/stream_executor/cuda/cuda_blas.cc:97"),
    Text("failed to set new cublas pointer mode", "tensorflow 2.21 xla/stream_executor/cuda/cuda_blas.cc:103"),
    Text("failed to set former cublas pointer mode", "tensorflow 2.21 xla/stream_executor/cuda/cuda_blas.cc:116"),
    Text("failed to get old cublas math mode", "tensorflow 2.21 xla/stream_executor/cuda/cuda_blas.cc:154"),
    Text("failed to set new cublas math mode", "tensorflow 2.21 xla/stream_executor/cuda/cuda_blas.cc:160"),
    Text("failed to set former cublas math mode", "tensorflow 2.21 xla/stream_executor/cuda/cuda_blas.cc:172"),
    Text("No Blas support for stream", "tensorflow 2.21 xla/service/gpu/matmul_utils.cc:552"),
    Text("No BLAS support for stream", "tensorflow 2.21 xla/service/gpu/autotuning/gemm_algorithm_picker.cc:253"),
    Text("Failed to getBlas support", "tensorflow 2.21 xla/backends/gpu/autotuner/cublas.cc:94"),
    Text("No Blas for stream", "tensorflow 2.21 tensorflow/core/kernels/fft_ops.cc:823"),
    Text("Failed to initialize BLAS support", "tensorflow 2.21 xla/backends/gpu/runtime/gemm_thunk.cc:81"),
    Text(
        "Failed to initialize BLASLT support", "tensorflow 2.21 xla/backends/gpu/runtime/gpublas_lt_matmul_thunk.cc:166"
    ),
    Text("Unable to get Blas support", "tensorflow 2.21 xla/backends/gpu/runtime/fft_thunk.cc:90"),
    Text("failed to get the current stream value", "tensorflow 2.21 xla/stream_executor/cuda/cuda_blas.cc:252"),
    Text("Failed initializing math mode", "tensorflow 2.21 xla/stream_executor/cuda/cuda_blas.cc:398"),
    Text("BlasScal failed", "tensorflow 2.21 tensorflow/core/kernels/fft_ops.cc:827"),
    meaning="cuBLAS failed: no memory left for it, another process on the GPU, or a GPU that this CUDA is too old for",
    fix=(
        check("nvidia-smi", "another process, such as a notebook that still runs, holds the memory: end it"),
        _GROWTH,
        check("nvidia-smi --query-gpu=name,compute_cap --format=csv", "from 8.0 on: CUDA 11 (TensorFlow 2.4) or newer"),
        _CUDA,
    ),
    possible=True,
    follows=True,
)
FFT_FAILED = FAMILY.fault(
    "fft_failed",
    Text(
        "failed to create cuFFT batched plan",
        "tensorflow 1.15 (NVIDIA) tensorflow/stream_executor/cuda/cuda_fft.cc:198",
    ),
    Text("Failed to make cuFFT batched plan", "tensorflow 2.21 xla/stream_executor/cuda/cuda_fft.cc:256"),
    Text("Failed to initialize batched cufft plan", "tensorflow 2.21 xla/stream_executor/cuda/cuda_fft.cc:333"),
    Text("Failed to run cuFFT routine", "tensorflow 2.21 xla/stream_executor/cuda/cuda_fft.cc:400"),
    "Failed to create cufft 1d plan",
    Text("Unable to retrieve FFT factory", "tensorflow 2.21 xla/stream_executor/cuda/cuda_executor.cc:1183"),
    Text("fft failed : type={type:s}", "tensorflow 2.21 tensorflow/core/kernels/fft_ops.cc:816"),
    Text("Failed to create cuFFT {:d}d plan", "tensorflow 2.21 xla/stream_executor/cuda/cuda_fft.cc:141"),
    Text("Failed to make cuFFT {:d}d plan", "tensorflow 2.21 xla/stream_executor/cuda/cuda_fft.cc:187"),
    Text("Failed to create cuFFT plan", "tensorflow 2.21 xla/stream_executor/cuda/cuda_fft.cc:173"),
    Text("No FFT for stream", "tensorflow 2.21 tensorflow/core/kernels/fft_ops.cc:731"),
    Text("Failed to set auto allocation for cuFFT", "tensorflow 2.21 xla/stream_executor/cuda/cuda_fft.cc:178"),
    Text("Failed to set work area for cuFFT", "tensorflow 2.21 xla/stream_executor/cuda/cuda_fft.cc:280"),
    Text(
        "Failed to update custom allocator for cufft plan", "tensorflow 2.21 xla/stream_executor/cuda/cuda_fft.cc:346"
    ),
    "Failed to set stream for cuFFT plan",
    Text("Unable to get fft support", "tensorflow 2.21 xla/backends/gpu/runtime/fft_thunk.cc:98"),
    Text("Unable to launch fft with type", "tensorflow 2.21 xla/backends/gpu/runtime/fft_thunk.cc:269"),
    meaning="cuFFT failed: no memory left for it, most often",
    fix=(_GROWTH, note("a smaller batch", kind=Kind.EDIT_PROGRAM), _CUDA),
    possible=True,
    follows=True,
)
SOLVER_FAILED = FAMILY.fault(
    "solver_failed",
    Text("cuSolverDN call failed with status ={status}", "tensorflow 2.21 tensorflow/core/util/cuda_solvers.cc:152"),
    Text(
        "cusolverDnCreate(&cusolver_dn_handle) == CUSOLVER_STATUS_SUCCESS",
        "https://github.com/tensorflow/tensorflow/issues/48041",
    ),
    Text("Failed to create cuSolverDN instance", "tensorflow 2.21 tensorflow/core/util/cuda_solvers.cc:112"),
    Text("Failed to create cuBlas instance", "tensorflow 2.21 tensorflow/core/util/cuda_solvers.cc:117"),
    "cuSparse call failed with status {status:w}",
    "Failed to create cuSolver instance",
    Text("cuSolver has not been initialized", "tensorflow 2.21 xla/stream_executor/cuda/cuda_solver_context.cc:92"),
    Text("cuSolver architecture mismatch error", "tensorflow 2.21 xla/stream_executor/cuda/cuda_solver_context.cc:98"),
    Text("cuSolver internal error", "tensorflow 2.21 xla/stream_executor/cuda/cuda_solver_context.cc:104"),
    "gpusolverDnCreate",
    Text("cuSolver execution failed", "tensorflow 2.21 xla/stream_executor/cuda/cuda_solver_context.cc:102"),
    Text("cuSolver allocation failed", "tensorflow 2.21 xla/stream_executor/cuda/cuda_solver_context.cc:94"),
    Text("cuSolver mapping error", "tensorflow 2.21 xla/stream_executor/cuda/cuda_solver_context.cc:100"),
    "Failed to initialize cuSPARSE",
    meaning="cuSOLVER or cuSPARSE cannot be used: no memory left for it, or a library that does not fit",
    fix=(_GROWTH, _CUDA, _PATH),
    possible=True,
)
FAMILY.fault(
    "no_workspace",
    "Failed to allocate scratch buffer for device {device}",
    Text(
        "CUDNN failed to allocate the scratch space for the runner",
        "tensorflow 2.21 tensorflow/core/kernels/conv_ops_gpu.h:155",
    ),
    Text("Failed to allocate work area", "tensorflow 2.21 xla/stream_executor/cuda/cuda_fft.cc:272"),
    "Failed to allocate memory for autotuning",
    "Autotuning failed for HLO",
    Text("All algorithms tried for {what} failed", "tensorflow 2.21 xla/service/gpu/stream_executor_util.cc:654"),
    Text(
        "All algorithms tried for convolution",
        "tensorflow 1.15 (NVIDIA) tensorflow/compiler/xla/service/gpu/gpu_conv_algorithm_picker.cc:640",
    ),
    Text(
        "Failed to determine best cudnn convolution algorithm",
        "tensorflow 2.21 xla/service/gpu/autotuning/conv_algorithm_picker.cc:1065",
    ),
    Text(
        "use XLA_FLAGS=--xla_gpu_strict_conv_algorithm_picker=false",
        "tensorflow 2.21 xla/service/gpu/autotuning/conv_algorithm_picker.cc:1071",
    ),
    Text(
        "cudnnGetConvolution{:w}Algorithm_v7 returned no suitable algorithms",
        "tensorflow 1.15 (NVIDIA) tensorflow/stream_executor/cuda/cuda_dnn.cc:2648",
    ),
    Text(
        "The primary convolution algorithm failed memory allocation",
        "tensorflow 1.15 (NVIDIA) tensorflow/stream_executor/cuda/cuda_dnn.cc:2978",
    ),
    Text(
        "None of the algorithms provided by cuDNN heuristics worked",
        "tensorflow 2.21 xla/service/gpu/autotuning/conv_algorithm_picker.cc:848",
    ),
    Text(
        "None of the algorithms provided by cuDNN frontend heuristics worked",
        "tensorflow 2.21 tensorflow/core/kernels/conv_ops_gpu.cc:148",
    ),
    Text(
        "Failed to find fastest kernel",
        "tensorflow 2.21 xla/service/gpu/autotuning/custom_kernel_fusion_autotuner.cc:120",
    ),
    Text(
        "No engine configurations found for this opGraph", "tensorflow 2.21 xla/stream_executor/cuda/cuda_dnn.cc:3947"
    ),
    Text(
        "Failed to generate cuDNN execution plan for opGraph",
        "tensorflow 2.21 xla/stream_executor/cuda/cuda_dnn.cc:3967",
    ),
    meaning="no algorithm could be tried: no memory left for the libraries, most often",
    fix=(
        _GROWTH,
        note("a smaller batch", kind=Kind.EDIT_PROGRAM),
        export("XLA_FLAGS", "--xla_gpu_autotune_level=0", "XLA: no trials"),
    ),
    possible=True,
    follows=True,
)
FAMILY.fault(
    "wrong_results",
    Text(
        "Results mismatch between different convolution algorithms",
        "tensorflow 2.21 xla/service/gpu/autotuning/conv_algorithm_picker.cc:754",
    ),
    Text(
        "Results mismatch between different GEMM algorithms",
        "tensorflow 2.21 xla/service/gpu/autotuning/gemm_algorithm_picker.cc:381",
    ),
    Text(
        "Detected cudnn out-of-bounds write in conv",
        "tensorflow 2.21 xla/service/gpu/autotuning/conv_algorithm_picker.cc:357",
    ),
    Text(
        "Detected out-of-bounds write in gemm buffer",
        "tensorflow 2.21 xla/service/gpu/autotuning/gemm_algorithm_picker.cc:363",
    ),
    Text(
        "Detected cudnn out-of-bounds write in convolution buffer",
        "tensorflow 2.21 tensorflow/core/kernels/gpu_utils.cc:105",
    ),
    Text("Red zone modified", "tensorflow 2.21 xla/backends/gpu/autotuner/gpu_profiler.cc:168"),
    meaning="algorithms of a library give different results, or write to memory that is not theirs",
    fix=(_CUDA, note("if it goes on with a newer cuDNN: test the GPU: sudo dcgmi diag -r 3")),
    possible=True,
)
FAMILY.fault(
    "numeric_check",
    "InvalidArgumentError: {}: Tensor had NaN and Inf values",
    Text("Tensor had NaN values", "tensorflow 2.21 tensorflow/compiler/mlir/tensorflow/ir/tf_generated_ops.td:2124"),
    "Tensor had Inf and NaN values",
    Text(
        "Detected Infinity or NaN in output",
        "tensorflow 2.4.4 tensorflow/python/debug/lib/check_numerics_callback.py:164",
    ),
    meaning="an operation gave NaN or infinity",
    fix=(
        edit("tf.debugging.enable_check_numerics()", "names the first operation"),
        note("lower learning rate; loss scaling with float16", kind=Kind.EDIT_PROGRAM),
    ),
    possible=True,
)

# --- compilers -------------------------------------------------------------------------------------------------------

FAMILY.fault(
    "no_ptxas",
    "Couldn't find ptxas",
    "Can't find ptxas binary in ${{CUDA_DIR}}/bin. Custom ptxas location",
    Text("Can't find ptxas binary. You can pass the flag", "tensorflow 2.4.4 _pywrap_tensorflow_internal.so"),
    "Couldn't find a suitable version of ptxas",
    "Couldn't find a suitable version of nvlink",
    Text(
        "Couldn't find a suitable version of {tool:s} The following locations were considered",
        "tensorflow 2.21 xla/stream_executor/cuda/subprocess_compilation.cc:202",
    ),
    Text("Couldn't get ptxas version string", "tensorflow 2.10.1 libtensorflow_framework.so.2"),
    Text(
        "Couldn't get ptxas/nvlink version string",
        "tensorflow 2.21 xla/stream_executor/cuda/subprocess_compilation.cc:97",
    ),
    Text("Failed to launch ptxas", "tensorflow 2.21 xla/stream_executor/cuda/subprocess_compilation.cc:316"),
    Text("Not found: ./bin/ptxas not found", "https://github.com/tensorflow/models/issues/9847"),
    "NOT_FOUND: ./bin/ptxas not found",
    Text(
        "No PTX compilation provider is available",
        "tensorflow 2.21 xla/stream_executor/cuda/assemble_compilation_provider.cc:282",
    ),
    Text(
        "Couldn't parse ptxas/nvlink version in output",
        "tensorflow 2.21 xla/stream_executor/cuda/subprocess_compilation.cc:109",
    ),
    Text("Failed to launch fatbinary", "tensorflow 2.21 xla/stream_executor/cuda/subprocess_compilation.cc:434"),
    Text("Couldn't invoke {tool:s} --version", "tensorflow 2.21 xla/stream_executor/cuda/subprocess_compilation.cc:78"),
    meaning="XLA finds no ptxas or nvlink, which compile for the GPU",
    fix=(
        _NVCC,
        prepend("PATH", "/usr/local/cuda/bin", "or of a toolkit that is installed"),
    ),
)
FAMILY.fault(
    "no_temporary_file",
    Text("couldn't get temp CUBIN file name", "tensorflow 2.21 xla/stream_executor/cuda/subprocess_compilation.cc:286"),
    Text("couldn't get temp PTX file name", "tensorflow 2.21 xla/stream_executor/cuda/subprocess_compilation.cc:272"),
    Text("Could not get temporary filename", "tensorflow 2.21 xla/stream_executor/cuda/subprocess_compilation.cc:402"),
    meaning="XLA compiles for the GPU in temporary files, and there is no folder where it may write one",
    fix=(
        run(
            "mkdir -p ~/tmp && export TMPDIR=~/tmp",
            "or give room and rights back to the folder of now",
            kind=Kind.SET_VARIABLE,
        ),
        check("df -h /tmp $TMPDIR; df -i /tmp $TMPDIR; ls -ld /tmp $TMPDIR", "full, or not writable"),
    ),
)
FAMILY.fault(
    "ptxas_failed",
    Text(
        "ptxas exited with non-zero error code {code:d}",
        "tensorflow 2.21 xla/stream_executor/cuda/subprocess_compilation.cc:340",
    ),
    Text(
        "nvlink exited with non-zero error code {code:d}",
        "tensorflow 2.21 xla/stream_executor/cuda/subprocess_compilation.cc:537",
    ),
    Text(
        "fatbinary exited with non-zero error code {code:d}",
        "tensorflow 2.21 xla/stream_executor/cuda/subprocess_compilation.cc:441",
    ),
    Text(
        "Running {tool:s} --version returned {code:d}",
        "tensorflow 2.21 xla/stream_executor/cuda/subprocess_compilation.cc:86",
    ),
    Text("Linked libnvptxcompiler is too old for", "tensorflow 2.21 xla/stream_executor/cuda/ptx_compiler_impl.cc:141"),
    Text("ptxas fatal : {reason}", "tensorflow 2.21 xla/stream_executor/cuda/ptx_compiler_helpers.cc:101"),
    "ptxas fatal: {reason}",
    Text(
        "ptxas too old. Falling back to the driver to compile",
        "tensorflow 2.21 xla/stream_executor/cuda/subprocess_compilation.cc:331",
    ),
    Text("Loaded PTX assembler is too old for", "tensorflow 2.21 xla/stream_executor/cuda/ptx_compiler_helpers.cc:104"),
    Text(
        "Unsupported .version {ptx:v}; current version is '{:q}'",
        "nvidia-cuda-nvcc-cu12 12.9 nvidia/cuda_nvcc/bin/ptxas",
    ),
    "nvlink fatal : {reason}",
    Text(
        "PTX compilation failed with error code {code:d}",
        "tensorflow 2.21 xla/stream_executor/cuda/ptx_compiler_impl.cc:148",
    ),
    meaning="ptxas or nvlink cannot compile for this GPU: it is older than the GPU or than the code, most often",
    fix=(
        install(
            "--upgrade", "nvidia-cuda-nvcc-cu12", note="the ptxas that XLA finds first; Blackwell needs 12.8 or newer"
        ),
        check("which ptxas; ptxas --version", "an older one in PATH or /usr/local/cuda comes first"),
    ),
    follows=True,
)
FAMILY.fault(
    "driver_link_failed",
    Text(
        "cuLinkAddData fails. This is usually caused by stale driver version",
        "tensorflow 2.21 xla/stream_executor/cuda/driver_compilation.cc:69",
    ),
    Text("The CUDA linking API did not work", "tensorflow 2.21 xla/service/gpu/gpu_compiler.cc:2370"),
    Text("Failed to load in-memory CUBIN", "tensorflow 2.21 xla/stream_executor/cuda/cuda_executor.cc:206"),
    Text("failed to load PTX", "tensorflow 2.21 xla/stream_executor/cuda/cuda_executor.cc:166"),
    "Invoking the PTX->SASS JIT from driver version {driver:s} which is older",
    meaning="the driver cannot load the code that was compiled: it is older than this CUDA",
    fix=(
        _DRIVER,
        export("XLA_FLAGS", "--xla_gpu_enable_llvm_module_compilation_parallelism=false", "for a while"),
        _CUDA,
    ),
    possible=True,
)
FAMILY.fault(
    "not_for_xla",
    Text(
        "Detected unsupported operations when trying to compile graph {where:s} on {:w}: {what}",
        "tensorflow 2.21 tensorflow/compiler/tf2xla/xla_compiler.cc:1334",
    ),
    Text(
        "Detected unsupported operations when trying to compile graph on {:w}: {what}",
        "https://github.com/tensorflow/tensorflow/issues/99385",
    ),
    Text(
        "Detected unsupported operations when trying to compile graph",
        "tensorflow 2.21 tensorflow/compiler/tf2xla/xla_compiler.cc:1334",
    ),
    meaning="XLA cannot compile an operation of this function for the GPU; the line names it",
    fix=(
        note(
            "without XLA: model.compile(..., jit_compile=False), tf.function without jit_compile=True",
            kind=Kind.EDIT_PROGRAM,
        ),
        edit("tf.config.optimizer.set_jit(False)", "if XLA was switched on for all"),
        note(
            "recurrent layers (CudnnRNN...): use_cudnn=False of the layer, which XLA can compile",
            kind=Kind.EDIT_PROGRAM,
        ),
    ),
    stage="CONFIGURATION",
    seen="2.1-2.21",
)
FAMILY.fault(
    "kernel_not_jitted",
    Text(
        "JIT compilation failed",
        "tensorflow 2.21 tensorflow/compiler/mlir/tools/kernel_gen/tf_framework_c_interface.cc:329",
    ),
    "JIT-compilation failed",
    meaning="an operation could not be compiled for this GPU: TensorFlow did not find libdevice.10.bc (or ptxas) of "
    "CUDA, most often",
    fix=(
        export(
            "XLA_FLAGS",
            "--xla_gpu_cuda_data_dir=/usr/local/cuda",
            "the folder that has nvvm/libdevice; conda: $CONDA_PREFIX",
        ),
        install("nvidia-cuda-nvcc-cu12", note="2.15 and newer; before: conda install -c nvidia cuda-nvcc=11.8"),
        _ABOVE,
    ),
    follows=True,
    seen="2.5-2.21",
)
FAMILY.fault(
    "session_not_made",
    Text("Failed to create session", "tensorflow 2.21 tensorflow/core/grappler/clusters/single_machine.cc:384"),
    meaning="TensorFlow could not make its devices: another process has the GPU (compute mode), no memory is left, or "
    "the driver does not work",
    fix=(
        check("nvidia-smi", "memory, processes, and 'E. Process': then one process alone may use that GPU"),
        export(
            "CUDA_VISIBLE_DEVICES", "1", "another GPU, one that nobody uses; in a batch job: the one that was given"
        ),
        _ABOVE,
    ),
    follows=True,
    stage="CONTEXT",
    seen="1.x-2.21",
)
FAMILY.fault(
    "size_not_for_cudnn",
    Text(
        "could not convert BatchDescriptor {descriptor} to cudnn tensor descriptor: CUDNN_STATUS_BAD_PARAM",
        "https://github.com/tensorpack/tensorpack/issues/713",
    ),
    "Could not set cudnn tensor descriptor: CUDNN_STATUS_BAD_PARAM",
    "Could not set cudnn filter descriptor: CUDNN_STATUS_BAD_PARAM",
    "Check failed: cudnnSetTensorNdDescriptor{}",
    meaning="a tensor of the program has a size that cuDNN does not take: a dimension is 0 (an empty batch, no "
    "channels, an image that is smaller than its layers need), or it is too large",
    fix=(
        note("look at count, feature_map_count and spatial in the line: none may be 0"),
        note(
            "dataset.batch(n, drop_remainder=True), larger images or fewer strides; a smaller batch if it is too large",
            kind=Kind.EDIT_PROGRAM,
        ),
    ),
    seen="0.8-2.17",
)
FAMILY.fault(
    "jit_failed",
    Text(
        "bitcode module is required by this HLO module but was not found at",
        "tensorflow 2.21 xla/service/gpu/llvm_gpu_backend/gpu_backend_lib.cc:157",
    ),
    Text(
        "Failed to compile generated PTX with ptxas",
        "tensorflow 2.21 tensorflow/compiler/mlir/tools/kernel_gen/transforms/gpu_kernel_to_blob_pass.cc:188",
    ),
    Text(
        "Generating device code failed",
        "tensorflow 2.21 tensorflow/compiler/mlir/tools/kernel_gen/kernel_creator.cc:391",
    ),
    Text(
        "Lowering to GPU kernels failed",
        "tensorflow 2.21 tensorflow/compiler/mlir/tools/kernel_gen/kernel_creator.cc:307",
    ),
    meaning="a function could not be compiled for the GPU; the lines above say why",
    fix=(
        _NVCC,
        note(
            "or without XLA: model.compile(..., jit_compile=False), tf.config.optimizer.set_jit(False)",
            kind=Kind.EDIT_PROGRAM,
        ),
        _ABOVE,
    ),
    follows=True,
)
# --- devices and drivers ---------------------------------------------------------------------------------------------

FAMILY.fault(
    "forked_context",
    Text("Failed setting context: {error}", "https://github.com/tensorflow/tensorflow/issues/57877"),
    "failed to set context: {error}",
    "Could not set the current context: {error}",
    "Cannot re-initialize CUDA in forked subprocess",
    "os.fork() was called. os.fork() is incompatible with multithreaded code",
    meaning="the process was forked from one that had used the GPU, and CUDA does not work in it",
    fix=(
        edit("import multiprocessing; multiprocessing.set_start_method('spawn')", "before TensorFlow is imported"),
        note("or use no GPU, and list none, before the processes are started"),
    ),
    stage="CONTEXT",
    possible=True,
)
FAMILY.fault(
    "foreign_context",
    Text(
        "current context was not created by the StreamExecutor cuda_driver API",
        "tensorflow 2.21 xla/stream_executor/cuda/cuda_context.cc:81",
    ),
    Text(
        "A non-primary context {:s} for device {:d} exists before initializing the StreamExecutor",
        "tensorflow 2.21 xla/stream_executor/cuda/cuda_context.cc:164",
    ),
    Text(
        "The primary context is active and has a different flag set",
        "tensorflow 2.21 xla/stream_executor/cuda/cuda_context.cc:142",
    ),
    Text(
        "Failed to get the device of the current context",
        "tensorflow 2.21 xla/stream_executor/cuda/cuda_context.cc:172",
    ),
    meaning="another library in the program (PyTorch, PyCUDA, Numba) made its own context on the GPU",
    fix=(edit("import tensorflow as tf; tf.config.list_logical_devices()", "before the other library uses the GPU"),),
    possible=True,
    stage="CONTEXT",
)
FAMILY.fault(
    "stream_failed",
    "Unable to create stream: {error}",
    "failed to create stream: {error}",
    "could not create CUDA stream",
    Text(
        "could not allocate CUDA stream for context",
        "tensorflow 1.15 (NVIDIA) tensorflow/stream_executor/cuda/cuda_driver.cc:705",
    ),
    "Could not create event: {error}",
    "failed to allocate GPU context",
    Text("failed call to cuDevicePrimaryCtxRetain: {error}", "https://github.com/horovod/horovod/issues/639"),
    "failed call to cuCtxCreate: {error}",
    "failed to get device for ordinal {:d}: {error}",
    Text("cudaGetDevice() failed. Status: {error}", "https://github.com/jade-hpc-gpu/jade-hpc-gpu.github.io/issues/81"),
    "cudaSetDevice() on GPU:{:d} failed. Status: {error}",
    "cudaGetDeviceCount() failed. Status: {error}",
    "cudaDeviceGetStreamPriorityRange() on GPU:{:d} failed. Status: {error}",
    "Failed to query available memory for GPU {:d}",
    "failed to query total available memory: {error}",
    Text(
        "CUDA runtime implicit initialization on GPU:{:d} failed. Status: {error}",
        "https://github.com/tensorflow/tensorflow/issues/41132",
    ),
    Text("GPU sync failed", "tensorflow 2.21 tensorflow/core/common_runtime/gpu/gpu_util.cc:545"),
    "Failed to get StreamExecutor for device {:d}",
    Text(
        "Failed to get memory allocator for TF GPU {:d} with {:d} bytes of memory",
        "tensorflow 2.21 tensorflow/core/common_runtime/gpu/gpu_device.cc:1782",
    ),
    Text(
        "Failed to find supported priority range for GPU device",
        "tensorflow 2.21 tensorflow/core/common_runtime/gpu/gpu_device.cc:1133",
    ),
    Text("Cannot get GPUMachineManager", "tensorflow 2.21 tensorflow/core/common_runtime/gpu/gpu_device.cc:1376"),
    Text("No gpu stream is available", "tensorflow 2.21 tensorflow/core/common_runtime/gpu/gpu_util.cc:102"),
    "Failed to query device memory",
    "failed to query device memory info: {error}",
    "failed to query ECC status: {error}",
    "failed to query PCI bus id for device: {error}",
    "failed to detect peer access capability: {error}",
    "failed to resolve 'from' peer access context to a device: {error}",
    "failed to resolve 'to' peer access context to a device: {error}",
    Text("Failed to query available memory from device {:d}", "tensorflow 2.21 xla/pjrt/gpu/gpu_helpers.cc:120"),
    "Error retrieving driver version: {error}",
    "failed to Push CUDA context; leaking: {error}",
    "failed to release CUDA context; leaking: {error}",
    "Not able to get the device_ordinal for ptr: {:s} Error: {error}",
    "StreamExecutor device {:d} is not available",
    meaning="TensorFlow cannot use the GPU; the error of CUDA says why",
    fix=(
        check("nvidia-smi", "does the GPU answer; memory and processes on it"),
        _DMESG,
        note("end the other processes on the GPU, or choose another one: CUDA_VISIBLE_DEVICES"),
    ),
    stage="CONTEXT",
    follows=True,
)
FAMILY.fault(
    "launch_failed",
    Text("failed to query event: {error}", "https://github.com/tensorflow/tensorflow/issues/41169"),
    Text("Error polling for event status: {error}", "https://github.com/rwth-i6/returnn/issues/1124"),
    "Error recording CUDA event: {error}",
    Text(
        "could not synchronize on CUDA context: {error}",
        "tensorflow 1.15 (NVIDIA) tensorflow/stream_executor/cuda/cuda_driver.cc:921",
    ),
    "Could not synchronize CUDA stream: {error}",
    Text("could not synchronize on CUDA stream", "tensorflow 1.8 tensorflow/stream_executor/cuda/cuda_driver.cc:1123"),
    Text("failed to synchronize the stop event: {error}", "https://github.com/tensorflow/tensorflow/issues/23123"),
    Text("Failed to launch CUDA kernel: {kernel}", "tensorflow 2.21 xla/stream_executor/cuda/cuda_stream.cc:390"),
    Text("failed to enqueue async memcpy from {}", "tensorflow 2.21 xla/stream_executor/rocm/rocm_stream.cc:161"),
    "failed to enqueue async memset operation: {error}",
    "failed to free device memory at {:s} result: {error}",
    "failed to unload module {:s} leaking: {error}",
    Text("GPU->CPU Memcpy failed", "tensorflow 2.21 tensorflow/core/common_runtime/gpu/gpu_util.cc:404"),
    Text("CPU->GPU Memcpy failed", "tensorflow 2.21 tensorflow/core/common_runtime/gpu/gpu_util.cc:506"),
    Text("GPU->GPU Memcpy failed", "tensorflow 2.21 tensorflow/core/common_runtime/gpu/gpu_util.cc:299"),
    Text("SetProtoFromGPU: GPU Memcpy failed", "tensorflow 2.21 tensorflow/core/common_runtime/gpu/gpu_util.cc:202"),
    Text("Unexpected Event status: {:d}", "https://github.com/rwth-i6/returnn/issues/1124"),
    "failed to memcpy",
    Text(
        "failed to synchronous memcpy from {} size: {:s}",
        "tensorflow 2.21 xla/stream_executor/cuda/cuda_executor.cc:1114",
    ),
    Text(
        "stream did not block host until done; was already in an error state",
        "tensorflow 1.15 (NVIDIA) tensorflow/stream_executor/stream.cc:6096",
    ),
    "Host callback failed: {error}",
    "Failed to copy data from device to host: {error}",
    "Failed to wait for stream to finish: {error}",
    "stream->Memcpy failed: {error}",
    "stream->BlockHostUntilDone failed: {error}",
    "DoHostCallback failed: {error}",
    "D2D copy failed. dst: {} status: {error}",
    "Calling RunAsync failed for executable {} status = {error}",
    "BlockHostUntilDone failed for executable {} status = {error}",
    Text(
        "failed to destroy CUDA stream for executor {}", "tensorflow 2.21 xla/stream_executor/cuda/cuda_stream.cc:238"
    ),
    Text("Memcpy to device address {:s} failed", "tensorflow 2.21 xla/stream_executor/cuda/cuda_executor.cc:999"),
    Text("Could not launch {:w}", "tensorflow 2.21 tensorflow/core/kernels/topk_op_gpu.h:584"),
    Text("Failed to launch gpuprim::{}", "tensorflow 2.21 tensorflow/core/kernels/dynamic_partition_op_gpu.cu.cc:437"),
    Text("CUB segmented reduce error", "tensorflow 2.21 tensorflow/core/kernels/reduction_gpu_kernels.cu.h:747"),
    Text("Failed to get device properties", "tensorflow 2.21 tensorflow/core/grappler/clusters/utils.cc:80"),
    "CUDA Runtime error: {error}",
    Text(
        "Failed to complete all kernels launched on stream {}: {error}",
        "tensorflow 2.21 xla/backends/gpu/runtime/ragged_all_to_all_thunk.cc:102",
    ),
    Text(
        "Failed to complete data transfer on stream {}: {error}",
        "tensorflow 2.21 xla/backends/gpu/runtime/infeed_thunk.cc:80",
    ),
    Text(
        "Failed to retrieve branch_index value on stream {}: {error}",
        "tensorflow 2.21 xla/backends/gpu/runtime/conditional_thunk.cc:121",
    ),
    Text(
        "Failed to synchronize GPU for autotuning",
        "tensorflow 2.21 xla/service/gpu/autotuning/custom_kernel_fusion_autotuner.cc:156",
    ),
    Text("Unable to launch convolution with type {}", "tensorflow 2.21 xla/service/gpu/gpu_conv_runner.cc:299"),
    Text("Unable to launch triangular solve", "tensorflow 2.21 xla/backends/gpu/runtime/triangular_solve_thunk.cc:271"),
    Text(
        "Failed to synchronize device activity on rank {:d}",
        "tensorflow 2.21 xla/backends/gpu/collectives/gpu_cliques.cc:278",
    ),
    Text("CustomCall failed: {error}", "tensorflow 2.21 xla/backends/gpu/runtime/custom_call_thunk.cc:215"),
    Text(
        "failed to synchronize send operation with a stream: {error}",
        "tensorflow 2.21 tensorflow/compiler/jit/xla_host_recv_device_context.cc:48",
    ),
    Text(
        "There was an error before calling cuModuleGetFunction",
        "tensorflow 2.21 xla/stream_executor/cuda/cuda_executor.cc:220",
    ),
    "failed to free unified memory at {:s} result: {error}",
    "failed to free collective memory at {:s} result: {error}",
    Text(
        "failed to free device memory at {:s} result", "tensorflow 2.21 xla/stream_executor/cuda/cuda_executor.cc:526"
    ),
    Text("CUB reduce error", "tensorflow 2.21 tensorflow/core/kernels/reduction_gpu_kernels.cu.h:704"),
    meaning="an operation on the GPU failed, and with it every later one of the process",
    fix=(
        check("CUDA_LAUNCH_BLOCKING=1 python program.py", "the traceback names the operation then"),
        _DMESG.replaced(
            note="Xid 13 and 31 are faults of the program; 48, 74, 79, 94, 95 and 119 are faults of the GPU"
        ),
        note(
            "Windows, or a display on the GPU: update the driver, raise the TDR delay, smaller batches",
            kind=Kind.EDIT_PROGRAM,
        ),
    ),
    possible=True,
    follows=True,
)
FAMILY.fault(
    "memory_for_pinning",
    Text("failed to alloc {bytes:d} bytes on host: {error}", "https://github.com/talmolab/sleap/issues/2001"),
    Text("could not allocate pinned host memory of size: {bytes:d}", "https://github.com/talmolab/sleap/issues/2001"),
    "could not allocate pinned host of size: {bytes:d}",
    Text(
        "Failed to allocate pinned host memory of size {bytes:d}",
        "tensorflow 2.21 xla/stream_executor/cuda/cuda_executor.cc:564",
    ),
    "failed to allocate {size:s} ({bytes:d} bytes) of host memory",
    Text(
        "Failed to allocate host memory of size {bytes:d} pinned to NUMA node",
        "tensorflow 2.21 xla/stream_executor/cuda/cuda_executor.cc:544",
    ),
    "Failed to allocate HostMemory of size {bytes:d}",
    "Failed to allocate host memory: {error}",
    "could not allocate CUDA host memory of size {bytes:d}",
    "Out of host memory while trying to allocate {bytes:d} bytes",
    Text("error registering host memory at", "tensorflow 2.21 xla/stream_executor/cuda/cuda_executor.cc:478"),
    Text(
        "Failed to register host memory of size {bytes:d} pinned to NUMA node",
        "tensorflow 2.21 xla/stream_executor/cuda/cuda_executor.cc:550",
    ),
    Text("Failed to register host memory at address", "tensorflow 2.21 xla/pjrt/gpu/tfrt/tfrt_gpu_client.cc:2245"),
    meaning="memory of the computer itself cannot be pinned: too little is free, or a limit forbids it",
    fix=(
        check("free -m; ulimit -l -v", "memory of the computer, and limits of this shell"),
        note("smaller batches; tf.data in place of whole arrays; Windows: a larger page file", kind=Kind.EDIT_PROGRAM),
        export(
            "TF_GPU_HOST_MEM_LIMIT_IN_MB", "4096", "caps what TensorFlow pins (XLA: XLA_PJRT_GPU_HOST_MEMORY_LIMIT_GB)"
        ),
    ),
    stage="MEMORY",
)
FAMILY.fault(
    "dst_not_initialised",
    Text("Dst tensor is not initialized", "tensorflow 2.21 tensorflow/core/common_runtime/gpu/gpu_util.cc:120"),
    Text("Src tensor is not initialized", "tensorflow 2.21 tensorflow/core/common_runtime/gpu/gpu_util.cc:117"),
    Text(
        "Failed copying input tensor from {source:s} to {target:s} in order to run {op:w}",
        "tensorflow 2.21 tensorflow/core/common_runtime/eager/execute.cc:223",
    ),
    Text(
        "SameWorkerRecvDone unable to allocate output tensor",
        "tensorflow 2.21 tensorflow/core/common_runtime/rendezvous_mgr.cc:120",
    ),
    Text(
        "EigenAllocator for GPU ran out of memory when allocating",
        "tensorflow 2.21 tensorflow/core/common_runtime/gpu/gpu_device.cc:198",
    ),
    Text(
        "Ran out of GPU memory when allocating {:d} bytes",
        "tensorflow 2.21 tensorflow/core/common_runtime/gpu/gpu_device.cc:194",
    ),
    Text(
        "Failed to allocate request for {size:s} ({:d}B) on device ordinal {:d}",
        "tensorflow 2.21 xla/stream_executor/stream_executor_memory_allocator.cc:60",
    ),
    "Failed to allocate request for {size:s} on device ordinal {:d}",
    Text(
        "Out of memory while trying to allocate {bytes:d} bytes",
        "tensorflow 1.15 (NVIDIA) tensorflow/stream_executor/tf_allocator_adapter.cc:50",
    ),
    Text("Out of memory allocating {bytes:d} bytes", "tensorflow 2.21 xla/pjrt/cpu/tracked_cpu_device_buffer.cc:127"),
    "could not allocate device of size: {bytes:d}",
    "could not allocate unified of size: {bytes:d}",
    "could not allocate collective of size: {bytes:d}",
    "Resource exhausted: Out of memory while trying to allocate",
    Text("Sum Total of in-use chunks: {used:s}", "https://github.com/talmolab/sleap/issues/1412"),
    Text(
        "total_region_allocated_bytes_: {pool:d} memory_limit_: {limit:d} available bytes: {:s}",
        "https://github.com/jkjung-avt/jetson_nano/issues/18",
    ),
    Text(
        "Total bytes in pool: {pool:d} memory_limit_: {limit:d} available bytes",
        "tensorflow 2.21 xla/tsl/framework/bfc_allocator.cc:1119",
    ),
    Text(
        "If the cause is memory fragmentation maybe the environment variable",
        "tensorflow 2.21 xla/tsl/framework/bfc_allocator.cc:502",
    ),
    Text(
        "cuMemAllocAsync failed to allocate {bytes:d} bytes",
        "tensorflow 2.21 xla/stream_executor/gpu/gpu_cudamallocasync_allocator.cc:361",
    ),
    Text(
        "cuMemAlloc failed to allocate {bytes:d}",
        "tensorflow 2.21 tensorflow/core/common_runtime/gpu/gpu_cudamalloc_allocator.cc:47",
    ),
    Text(
        "cuMemFree failed to free", "tensorflow 2.21 tensorflow/core/common_runtime/gpu/gpu_cudamalloc_allocator.cc:75"
    ),
    Text(
        "cudaFreeAsync failed to free", "tensorflow 2.21 xla/stream_executor/gpu/gpu_cudamallocasync_allocator.cc:416"
    ),
    "Failed to allocate collective memory: {error}",
    Text(
        "Allocating {bytes:d} bytes exceeds the memory limit of {limit:d} bytes",
        "tensorflow 2.21 xla/service/gpu/autotuning/conv_algorithm_picker.cc:142",
    ),
    Text(
        "Failed to allocate {bytes:d} bytes for new constant",
        "tensorflow 2.21 xla/stream_executor/cuda/cuda_executor.cc:990",
    ),
    "Out of {:s} memory while trying to allocate {bytes:d} bytes",
    Text(
        "Failed to allocate scratch memory for the CuDNN CTC Loss",
        "tensorflow 2.21 xla/stream_executor/cuda/cuda_dnn.cc:6476",
    ),
    Text(
        "Failed to allocate output offsets buffer",
        "tensorflow 2.21 xla/backends/gpu/runtime/ragged_all_to_all_thunk.cc:495",
    ),
    "Failed to allocate {bytes:s} bytes from NVSHMEM memory",
    Text(
        "OOM when allocating temporary tensor with shape", "tensorflow 2.21 tensorflow/core/framework/op_kernel.cc:299"
    ),
    meaning="the model, its batch or its data need more memory than TensorFlow has on the GPU",
    fix=(
        note("a smaller batch, or smaller inputs: memory grows with the batch", kind=Kind.EDIT_PROGRAM),
        check("nvidia-smi", "another process on the GPU takes some; a notebook keeps it until its kernel is restarted"),
        edit("tf.keras.mixed_precision.set_global_policy('mixed_float16')", "half of it for activations"),
        export("TF_GPU_ALLOCATOR", "cuda_malloc_async", "if the pool is in pieces"),
    ),
    needs_device=True,
    stage="MEMORY",
)
FAMILY.fault(
    "graphs_too_large",
    Text(
        "Underlying backend ran out of memory trying to instantiate command buffer",
        "tensorflow 2.21 xla/stream_executor/gpu/gpu_command_buffer.cc:568",
    ),
    "Underlying backend ran out of memory trying to instantiate graph",
    "CUDA driver ran out of memory trying to instantiate CUDA graph",
    Text("Failed to capture gpu graph", "tensorflow 2.21 xla/stream_executor/cuda/cuda_command_buffer.cc:617"),
    Text("Failed to instantiate CUDA graph", "tensorflow 2.21 xla/stream_executor/cuda/cuda_command_buffer.cc:140"),
    meaning="CUDA graphs of XLA need memory beside TensorFlow's",
    fix=(export("XLA_FLAGS", "--xla_gpu_enable_command_buffer="), _GROWTH),
    stage="MEMORY",
)
FAMILY.fault(
    "second_configuration",
    Text(
        "is being mapped to multiple devices ({:d} now, and {:d} previously), which is not supported",
        "tensorflow 2.21 xla/tsl/framework/device_id_manager.cc:55",
    ),
    Text(
        "is being mapped to multiple {:w} devices",
        "tensorflow 1.15 (NVIDIA) tensorflow/core/common_runtime/gpu/gpu_id_manager.cc:46",
    ),
    Text(
        "TensorFlow device ({}) is being mapped to multiple",
        "tensorflow 2.21 xla/tsl/framework/device_id_manager.cc:55",
    ),
    meaning="the program configures GPUs differently in two sessions or servers of one process",
    fix=(
        note(
            "the same visible_device_list everywhere; set CUDA_VISIBLE_DEVICES for the process instead",
            kind=Kind.EDIT_PROGRAM,
        ),
    ),
    stage="CONFIGURATION",
)
FAMILY.fault(
    "virtual_devices_wrong",
    Text(
        "Not enough GPUs to create virtual devices",
        "tensorflow 2.21 tensorflow/core/common_runtime/gpu/gpu_device.cc:1059",
    ),
    Text(
        "The number of GPUs in visible_device_list doesn't match the number of elements in the virtual_devices list",
        "tensorflow 2.21 tensorflow/core/common_runtime/gpu/gpu_device.cc:1066",
    ),
    Text(
        "The number of valid GPUs doesn't match the number of elements in the virtual_devices list",
        "tensorflow 2.21 tensorflow/core/common_runtime/gpu/gpu_device.cc:1073",
    ),
    Text(
        "Setting memory limit is required for GPU virtual devices",
        "tensorflow 2.21 tensorflow/python/eager/context.py:2041",
    ),
    Text(
        "priority must be specified for all virtual devices", "tensorflow 2.21 tensorflow/python/eager/context.py:1465"
    ),
    Text(
        "device_ordinals must be specified for all virtual devices",
        "tensorflow 2.21 tensorflow/python/eager/context.py:1470",
    ),
    Text(
        "Device ordinals must be set for all virtual devices or none",
        "tensorflow 2.21 tensorflow/core/common_runtime/gpu/gpu_device.cc:1083",
    ),
    Text(
        "Priority must be set for all virtual devices or none",
        "tensorflow 2.21 tensorflow/core/common_runtime/gpu/gpu_device.cc:1115",
    ),
    Text(
        "is outside the range of supported priorities",
        "tensorflow 2.21 tensorflow/core/common_runtime/gpu/gpu_device.cc:1142",
    ),
    Text("visible_device_list contained a duplicate entry", "tensorflow 2.21 xla/tsl/framework/device_id_utils.cc:113"),
    Text("Virtual devices are not supported for {}", "tensorflow 2.21 tensorflow/python/eager/context.py:2045"),
    Text(
        "Setting memory limit on CPU virtual devices is currently not supported",
        "tensorflow 2.21 tensorflow/python/eager/context.py:2024",
    ),
    Text("Virtual CPUs already set, cannot modify again", "tensorflow 2.21 tensorflow/python/eager/context.py:2088"),
    Text(
        "Unified memory on GPUs with compute capability lower than 6.0",
        "tensorflow 2.21 tensorflow/core/common_runtime/gpu/gpu_device.cc:1224",
    ),
    meaning="logical devices are configured in a way that TensorFlow does not take",
    fix=(
        edit(
            "tf.config.set_logical_device_configuration(gpu, "
            "[tf.config.LogicalDeviceConfiguration(memory_limit=1024)])",
            "a list for each GPU, each with a limit in MiB",
        ),
    ),
    stage="CONFIGURATION",
)
FAMILY.fault(
    "growth_differs",
    Text("Memory growth cannot differ between GPU devices", "tensorflow 2.21 tensorflow/python/eager/context.py:1485"),
    meaning="memory growth is set for some of the visible GPUs; it must be the same for all",
    fix=(
        edit("for gpu in tf.config.list_physical_devices('GPU'): tf.config.experimental.set_memory_growth(gpu, True)"),
    ),
    stage="CONFIGURATION",
)
FAMILY.fault(
    "device_argument_wrong",
    Text("Unrecognized device: {device}", "tensorflow 2.21 tensorflow/python/eager/context.py:1934"),
    Text(
        "device must be a tf.config.PhysicalDevice, but got: {}",
        "tensorflow 2.21 tensorflow/python/eager/context.py:1833",
    ),
    Text(
        "The PhysicalDevice must be one obtained from calling `tf.config.list_physical_devices`",
        "tensorflow 2.21 tensorflow/python/eager/context.py:1840",
    ),
    Text(
        "Cannot set memory growth on non-GPU and non-Pluggable devices",
        "tensorflow 2.21 tensorflow/python/eager/context.py:1991",
    ),
    Text("Invalid visible device index: {index}", "tensorflow 2.21 tensorflow/python/eager/context.py:1896"),
    "Failed to parse device name: {}",
    Text(
        "Malformed device specification '{device:q}'",
        "tensorflow 2.21 tensorflow/core/common_runtime/colocation_graph.cc:204",
    ),
    Text("Expecting a string device name. Got {}", "tensorflow 2.21 tensorflow/python/eager/context.py:2449"),
    meaning="the program names a device that is not one of this process",
    fix=(edit("tf.config.list_physical_devices('GPU')", "the devices that there are, to be handed on"),),
    stage="CONFIGURATION",
)
FAMILY.fault(
    "conflicting_devices",
    Text(
        "Tensors on conflicting devices: cannot compute {op:w} as input #{:d} was expected to be on {}",
        "tensorflow 2.21 tensorflow/core/common_runtime/eager/execute.cc:186",
    ),
    Text("Tensors on conflicting devices", "tensorflow 2.21 tensorflow/core/common_runtime/eager/execute.cc:186"),
    meaning="an operation is given tensors of two devices, and copies are forbidden",
    fix=(
        edit("tf.config.experimental.set_device_policy('silent')", "copies them"),
        edit("with tf.device(...):", "or make them there", role=Role.ALTERNATIVE),
    ),
    stage="CONFIGURATION",
)
FAMILY.fault(
    "no_determinism",
    Text(
        "A deterministic GPU implementation of {op} is not currently available",
        "tensorflow 2.21 tensorflow/core/kernels/image/adjust_contrast_op.cc:72",
    ),
    Text(
        "A deterministic GPU implementation of {op} is not available",
        "tensorflow 2.21 tensorflow/core/kernels/depthwise_conv_op_gpu.h:1735",
    ),
    Text(
        "Determinism is not yet supported in GPU implementation of {op}",
        "tensorflow 2.21 tensorflow/core/kernels/bincount_op_gpu.cu.cc:59",
    ),
    Text(
        "Deterministic GPU implementation of {op} not available",
        "tensorflow 2.21 tensorflow/core/kernels/image/crop_and_resize_op.cc:422",
    ),
    Text(
        "When determinism is enabled, random ops must have a seed specified",
        "tensorflow 2.21 tensorflow/core/util/guarded_philox_random.cc:32",
    ),
    Text(
        "Random ops require a seed to be set when determinism is enabled",
        "tensorflow 2.21 tensorflow/python/framework/random_seed.py:85",
    ),
    meaning="deterministic operations are asked for, and an operation of the program has no such form on the GPU",
    fix=(
        edit("tf.keras.utils.set_random_seed(1)", "if a seed is what is missing"),
        edit("with tf.device('/CPU:0'):", "this operation on the CPU; or without enable_op_determinism"),
    ),
    stage="CONFIGURATION",
)
FAMILY.fault(
    "no_determinism_in_xla",
    Text(
        "GPU {op} ops do not yet have a deterministic XLA implementation",
        "tensorflow 2.21 tensorflow/compiler/tf2xla/kernels/pooling_ops.cc:370",
    ),
    meaning="deterministic operations are asked for, but XLA has no deterministic {op} for the GPU",
    seen="2.8-2.21; Keras 3 compiles with XLA by itself (jit_compile='auto')",
    fix=(
        note("without XLA it has one: model.compile(..., jit_compile=False)", kind=Kind.EDIT_PROGRAM),
        unset(
            "TF_DETERMINISTIC_OPS",
            note="or without determinism; likewise without enable_op_determinism",
            role=Role.ALTERNATIVE,
        ),
    ),
    stage="CONFIGURATION",
)
FAMILY.fault(
    "layout_needs_gpu",
    Text(
        "The Conv2D op currently only supports the NHWC tensor format on the CPU",
        "tensorflow 2.21 tensorflow/core/kernels/conv_ops_impl.h:567",
    ),
    Text("Default MaxPoolingOp only supports NHWC", "tensorflow 2.21 tensorflow/core/kernels/pooling_ops_common.h:100"),
    Text("Default AvgPoolingOp only supports NHWC", "tensorflow 2.21 tensorflow/core/kernels/avgpooling_op.cc:66"),
    "only supports NHWC tensor format on the CPU",
    "The Conv3D op currently only supports the NDHWC tensor format on the CPU",
    Text(
        "Conv2DBackpropInputOp [CPU or GPU(int32)] only supports NHWC data format",
        "tensorflow 2.21 tensorflow/core/kernels/conv_grad_input_ops.h:338",
    ),
    Text(
        "The CPU implementation of FusedBatchNorm only supports NHWC",
        "tensorflow 1.15 (NVIDIA) tensorflow/core/kernels/fused_batch_norm_op.cc:255",
    ),
    meaning="the model is made for a GPU (channels first), and TensorFlow uses the CPU",
    fix=(
        check("gpudiag check", "why there is no GPU"),
        edit("tf.keras.backend.set_image_data_format('channels_last')", "for the CPU"),
    ),
    stage="CONFIGURATION",
    possible=True,
)
FAMILY.fault(
    "no_nccl_kernel",
    *(
        f"No OpKernel was registered to support Op '{op}'"
        for op in ("NcclAllReduce", "_NcclReduceSend", "NcclReduce", "NcclBroadcast", "_NcclBroadcastSend")
    ),
    "Could not find device for node: {:s} Nccl{:w}",
    meaning="this TensorFlow has no NCCL, with which GPUs add up: the one for Windows has none, nor has a build "
    "without CUDA",
    fix=(
        edit("tf.distribute.MirroredStrategy(cross_device_ops=tf.distribute.HierarchicalCopyAllReduce())"),
        edit("tf.config.list_physical_devices('GPU')", "Linux: must list the GPUs; NCCL comes with a build for CUDA"),
    ),
    stage="CONFIGURATION",
    seen="1.13-2.21",
)
FAMILY.fault(
    "cudnn_rnn_needs_gpu",
    Text(
        "No OpKernel was registered to support Op '{op:q}' used by {}Registered devices: [{devices:l}]",
        "tensorflow 2.21 tensorflow/core/common_runtime/colocation_graph.cc:1518",
    ),
    Text(
        "No OpKernel was registered to support Op '{op:q}'",
        "tensorflow 2.21 tensorflow/core/common_runtime/colocation_graph.cc:1518",
    ),
    Text("Could not find device for node: {}", "tensorflow 2.21 tensorflow/core/common_runtime/eager/context.cc:345"),
    Text(
        "No supported device found in available devices",
        "tensorflow 2.21 tensorflow/core/common_runtime/eager/context.cc:386",
    ),
    Text(
        "No registered '{op:q}' OpKernel for '{device:q}' devices compatible with node",
        "tensorflow 2.21 tensorflow/core/framework/op_kernel.cc:1726",
    ),
    meaning="an operation has no form for the devices that TensorFlow has here: it needs a GPU, or the CPU",
    fix=(
        edit("tf.config.set_soft_device_placement(True)"),
        check("gpudiag check", "if it needs a GPU: why there is none"),
    ),
    stage="CONFIGURATION",
    possible=True,
)
FAMILY.fault(
    "capabilities_of_binary",
    Text(
        "No supported cuda capabilities in binary",
        "tensorflow 2.21 tensorflow/core/common_runtime/gpu/gpu_device.cc:2373",
    ),
    "Cannot use GPU when TensorFlow was built without GPU support",
    Text(
        "GPUAllocator unavailable. Not compiled with --config=cuda",
        "tensorflow 2.21 tensorflow/core/common_runtime/gpu/gpu_process_state.cc:258",
    ),
    Text(
        "environment found, but TensorFlow was not compiled with CUDA support",
        "tensorflow 2.21 tensorflow/core/common_runtime/gpu/gpu_process_state.cc:83",
    ),
    "Not compiled with CUDA",
    Text(
        "Neither TENSORFLOW_USE_ROCM nor GOOGLE_CUDA are defined",
        "tensorflow 2.21 tensorflow/compiler/mlir/tools/kernel_gen/kernel_creator.cc:317",
    ),
    Text(
        "GPU is not currently supported without cudnn",
        "tensorflow 2.21 tensorflow/core/kernels/conv_ops_fused_impl.h:343",
    ),
    Text(
        "XLA was built without libnvptxcompiler support",
        "tensorflow 2.21 xla/stream_executor/cuda/ptx_compiler_stub.cc:32",
    ),
    Text(
        "XLA compiled without GPU collectives support",
        "tensorflow 2.21 xla/backends/gpu/collectives/gpu_collectives_stub.h:81",
    ),
    meaning="this TensorFlow was built without CUDA",
    fix=(run("pip uninstall -y tensorflow-cpu tensorflow && pip install 'tensorflow[and-cuda]'", kind=Kind.REMOVE),),
    stage="BUILD",
)
DIRECTML_ADAPTER = FAMILY.add(
    Worth.SIGN,
    "directml_adapter",
    pattern=r"DirectML: creating device on adapter (?P<number>\d{1,2}) \((?P<name>.{1,120})\)\s*$",
    witness="tensorflow-directml-plugin 0.3 tfdml/core/dml_device_cache.cc:234",
    words=("directml",),
    seen="tensorflow-directml",
)
FAMILY.fault(
    "variable_of_another_device",
    Text("Trying to access resource {resource:s}", "tensorflow 2.21 tensorflow/core/framework/dataset.cc:1068"),
    meaning="a function that XLA compiles uses a variable of another device: XLA cannot",
    fix=(
        note(
            "make and use the model under the same device: both in one with tf.device(...), or neither",
            kind=Kind.EDIT_PROGRAM,
        ),
        note(
            "or without XLA: model.compile(..., jit_compile=False), no @tf.function(jit_compile=True); in "
            "Keras 2.11 "
            "and newer the optimizer, too, or one of tf.keras.optimizers.legacy",
            kind=Kind.EDIT_PROGRAM,
        ),
    ),
)
NO_XLA_COMPILER = FAMILY.fault(
    "no_xla_compiler",
    Text("could not find registered compiler for platform {platform:w}", "tensorflow 2.21 xla/service/compiler.cc:130"),
    Text(
        "Could not find compiler for platform {platform:w}",
        "tensorflow 2.21 tensorflow/compiler/jit/xla_platform_info.cc:273",
    ),
    meaning="this TensorFlow was built without XLA for {platform}: jit_compile=True cannot be had",
    fix=(
        note(
            "model.compile with jit_compile=False, no @tf.function(jit_compile=True), no TF_XLA_FLAGS",
            kind=Kind.EDIT_PROGRAM,
        ),
        install("tensorflow[and-cuda]", note="the wheels of pypi.org have it; in conda: a newer build"),
    ),
    seen="2.4-2.21",
)
PLATFORM_MISSING = FAMILY.fault(
    "platform_missing",
    Text(
        'Could not find registered platform with name: "{platform:q}"',
        "tensorflow 2.21 xla/stream_executor/platform_manager.cc:201",
    ),
    Text("could not find registered platform with id", "tensorflow 2.21 xla/stream_executor/platform_manager.cc:213"),
    Text("no supported devices found for platform CUDA", "https://github.com/tensorflow/tensorflow/issues/57385"),
    Text("Could not find Platform with name", "tensorflow 2.21 xla/stream_executor/gpu/gpu_init.cc:39"),
    "failed to initialize GPU machine manager",
    Text("No visible GPU devices", "tensorflow 2.21 xla/pjrt/gpu/gpu_helpers.cc:61"),
    Text("No executors registered for ordinal {:d}", "tensorflow 2.21 xla/stream_executor/executor_cache.cc:60"),
    Text(
        "Either GPU has to be attached, or --xla_gpu_target_config_filename has to be specified",
        "tensorflow 2.21 xla/service/gpu/gpu_compiler.cc:1881",
    ),
    "Invalid device index: {:d}",
    meaning="XLA has no platform for GPUs here: TensorFlow found no GPU, or was built without CUDA",
    fix=(check("gpudiag check", "why there is no GPU"),),
    follows=True,
    stage="DEVICE_COUNT",
)
FAMILY.fault(
    "skipping_gpus",
    Text(
        "Skipping registering GPU devices...", "tensorflow 2.21 tensorflow/core/common_runtime/gpu/gpu_device.cc:2358"
    ),
    "This may be caused by a missing {:w} library",
    meaning="TensorFlow leaves the GPUs out, since a library of CUDA is missing; the lines above may name it",
    fix=(
        install(
            "tensorflow[and-cuda]",
            note="brings all CUDA libraries (2.14 and newer; 2.16.1 does not find them: use 2.17)",
        ),
        check(
            "TF_CPP_VMODULE=dso_loader=1 python -c 'import tensorflow as tf; tf.config.list_physical_devices()'",
            "the log names the missing libraries",
        ),
    ),
    follows=True,
    stage="LIBRARIES",
)
FAMILY.fault(
    "garbage_collection_value",
    Text(
        "The TF_ENABLE_GPU_GARBAGE_COLLECTION environment variable is set but could not be parsed",
        "tensorflow 2.21 tensorflow/core/common_runtime/gpu/gpu_bfc_allocator.cc:77",
    ),
    Text(
        "Invalid minimum GPU multiprocessor count: [{value:q}]",
        "tensorflow 2.21 tensorflow/core/common_runtime/gpu/gpu_device.cc:2223",
    ),
    "Unable to read TF_FORCE_UNIFIED_MEMORY: {value}",
    Text(
        "Illegal GPUOptions.experimental.num_dev_to_dev_copy_streams={value:d}",
        "tensorflow 2.21 tensorflow/core/common_runtime/gpu/gpu_device.cc:339",
    ),
    Text(
        "Unknown option for environment variable TF_CUDA_PLATFORM_GPU_DEVICE_SCHEDULE {value}",
        "tensorflow 2.21 xla/stream_executor/cuda/cuda_context.cc:57",
    ),
    Text("Invalid value for env-var {value}", "tensorflow 2.21 tensorflow/core/kernels/conv_ops.cc:231"),
    "Invalid allocator type: {value}",
    "Invalid value for TF_CUBLAS_WORKSPACE_LIMIT_IN_MB: {value}",
    Text(
        "Invalid value for TF_MATMUL_AUTOTUNE_MAX_ALGORITHMS: {value}",
        "tensorflow 2.21 tensorflow/core/kernels/matmul_util.cc:87",
    ),
    meaning="an environment variable or an option has a value that TensorFlow does not take",
    fix=(check("env | grep -e ^TF_ -e ^XLA_ -e ^CUDA_", "the line names it: unset it, or give it another value"),),
    stage="CONFIGURATION",
)
FAMILY.fault(
    "reserved_too_much",
    Text(
        "The requested reserved device memory {:s} is larger than the available memory",
        "tensorflow 2.21 tensorflow/core/common_runtime/gpu/gpu_device.cc:1248",
    ),
    Text(
        "The requested reserved device memory {:s} is invalid",
        "tensorflow 2.21 tensorflow/core/common_runtime/gpu/gpu_device.cc:1270",
    ),
    meaning="TF_DEVICE_MIN_SYS_MEMORY_IN_MB asks to leave more memory than the GPU has; it is ignored",
    fix=(unset("TF_DEVICE_MIN_SYS_MEMORY_IN_MB"),),
    stage="CONFIGURATION",
)
FAMILY.fault(
    "peer_access_failed",
    Text(
        "Unable to enable peer access between device ordinals {first:d} and {second:d}",
        "tensorflow 2.21 tensorflow/core/common_runtime/gpu/gpu_device.cc:2292",
    ),
    Text(
        "Unable to enable peer access between GPUs {first:d} and {second:d}",
        "tensorflow 2.21 xla/pjrt/gpu/gpu_helpers.cc:80",
    ),
    Text("failed to enable peer access from {} to {}", "tensorflow 2.21 xla/stream_executor/cuda/cuda_executor.cc:420"),
    Text(
        "potential peer access pairs were reported by the driver, but no peering could be enabled",
        "tensorflow 2.21 tensorflow/core/common_runtime/gpu/gpu_device.cc:2308",
    ),
    meaning="GPUs cannot reach each other's memory; copies go through the host",
    fix=(check("nvidia-smi topo -p2p r", "which pairs can"), export("NCCL_P2P_DISABLE", "1", "if exchanges hang")),
    possible=True,
    stage="CONFIGURATION",
)
FAMILY.fault(
    "tensorrt_not_opened",
    Text("getInferLibVersion symbol not found", "https://github.com/google/automl/issues/406"),
    Text(
        "Failed to initialize TensorRT. This is either because the TensorRT installation path is not in "
        "LD_LIBRARY_PATH",
        "https://github.com/tensorflow/tensorflow/issues/22855",
    ),
    meaning="the program uses TensorRT, and the release of it that this TensorFlow was built for is not there, or not "
    "whole",
    fix=(
        check("ldconfig -p | grep -e nvinfer -e nvrtc", "libnvinfer.so must have the number that the log names"),
        note(
            "install that release of TensorRT (libnvinfer.so.5: TensorRT 5), or a TensorFlow for the one that is there",
            kind=Kind.INSTALL,
        ),
        run(
            "sudo apt install cuda-nvrtc-11-1",
            "if the log says that libnvrtc.so.11.1 cannot be opened: TensorRT needs it",
            kind=Kind.INSTALL,
        ),
    ),
    url="https://docs.nvidia.com/deeplearning/tensorrt/latest/getting-started/support-matrix.html",
)
DIAGNOSTICS = FAMILY.sign(
    "diagnostics",
    Text("retrieving CUDA diagnostic information for host: {host}", "https://github.com/ritchieng/dlami/issues/5"),
    Text("hostname: {host}", "https://github.com/tensorflow/tensorflow/issues/4349"),
    Text("libcuda reported version is: {library}", "https://github.com/ritchieng/dlami/issues/5"),
    Text("kernel reported version is: {module}", "https://github.com/ritchieng/dlami/issues/5"),
    Text("kernel version seems to match DSO: {version}", "https://github.com/tensorflow/tensorflow/issues/62494"),
    Text(
        "verbose logging is disabled. Rerun with verbose logging",
        "tensorflow 2.21 xla/stream_executor/cuda/cuda_diagnostics.cc:171",
    ),
    Text(
        "could not open driver version path for reading",
        "tensorflow 2.21 xla/stream_executor/cuda/cuda_diagnostics.cc:299",
    ),
    Text(
        "was unable to find libcuda.so DSO loaded into this program",
        "tensorflow 2.21 xla/stream_executor/cuda/cuda_diagnostics.cc:207",
    ),
    meaning="what TensorFlow says of the driver after cuInit failed",
)
NO_KERNEL_DRIVER = FAMILY.fault(
    "no_kernel_driver",
    Text(
        "kernel driver does not appear to be running on this host",
        "tensorflow 2.21 xla/stream_executor/cuda/cuda_diagnostics.cc:145",
    ),
    Text(
        "no NVIDIA GPU device is present: /dev/nvidia0 does not exist",
        "https://github.com/tensorflow/tensorflow/issues/41785",
    ),
    meaning="no NVIDIA driver runs where the program ran: none is installed, or the container was given no GPU",
    fix=(
        check("nvidia-smi", "does the driver answer; without an NVIDIA GPU there is nothing to fix"),
        start("docker run --gpus all ...", "in a container"),
        _DRIVER,
    ),
    stage="DRIVER",
    follows=True,
)
FAMILY.fault(
    "library_not_opened_by_xla",
    Text("Unable to load {library:w} library", "tensorflow 2.21 xla/tsl/cuda/nccl_stub.cc:72"),
    "Failed to open {library:w} library",
    meaning="a library of CUDA cannot be opened",
    fix=(_CUDA, _PATH),
    possible=True,
    stage="LIBRARIES",
)
FAMILY.fault(
    "determinism_or_cudnn_newer",
    Text(
        "is only supported on GPUs with compute capability {needed:v} or later",
        "tensorflow 2.21 tensorflow/core/kernels/conv_ops_fused_int8.cc:369",
    ),
    Text(
        "is only supported with cuDNN on Ampere GPUs or later",
        "tensorflow 2.21 tensorflow/core/kernels/conv_grad_filter_ops_3d.cc:706",
    ),
    Text("kernels require cuDNN {needed:v} or higher", "tensorflow 2.21 xla/stream_executor/cuda/cuda_dnn.cc:5884"),
    Text("require cublasLt >= {needed:v}", "tensorflow 2.21 xla/stream_executor/cuda/cuda_blas_lt.cc:140"),
    meaning="an operation needs a newer GPU or a newer library",
    fix=(check("nvidia-smi --query-gpu=name,compute_cap --format=csv"), install("--upgrade", "tensorflow[and-cuda]")),
)
FAMILY.sign(
    "op_requires",
    Text("OP_REQUIRES failed at {place:s} : {error}", "https://github.com/keras-team/keras-core/issues/77"),
    "Compute status: {error}",
    meaning="the place in TensorFlow's source that found an error",
)
FAMILY.sign(
    "allocator_dump",
    "BFCAllocator dump for {allocator:w}",
    Text(
        "Bin ({:d}): Total Chunks: {:d}, Chunks in use: {:d}", "tensorflow 2.21 xla/tsl/framework/bfc_allocator.cc:1056"
    ),
    Text("Bin for {} was {}, Chunk State:", "tensorflow 2.21 xla/tsl/framework/bfc_allocator.cc:1072"),
    "Next region of size {:d}",
    Text("Summary of in-use Chunks by size", "tensorflow 2.21 xla/tsl/framework/bfc_allocator.cc:1110"),
    Text("Chunks of size {size:d} totalling {}", "https://github.com/hx173149/C3D-tensorflow/issues/51"),
    Text("Extending region {} of {} by {:d} bytes", "tensorflow 2.21 xla/tsl/framework/bfc_allocator.h:395"),
    Text(
        "Histogram of current allocation: (allocation_size_in_bytes",
        "tensorflow 2.21 xla/stream_executor/gpu/gpu_cudamallocasync_allocator.cc:70",
    ),
    Text(
        "CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT",
        "tensorflow 2.21 xla/stream_executor/gpu/gpu_cudamallocasync_allocator.cc:106",
    ),
    Text(
        "CU_MEMPOOL_ATTR_USED_MEM_CURRENT",
        "tensorflow 2.21 xla/stream_executor/gpu/gpu_cudamallocasync_allocator.cc:108",
    ),
    Text(
        "CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH",
        "tensorflow 2.21 xla/stream_executor/gpu/gpu_cudamallocasync_allocator.cc:109",
    ),
    Text(
        "CU_MEMPOOL_ATTR_USED_MEM_HIGH", "tensorflow 2.21 xla/stream_executor/gpu/gpu_cudamallocasync_allocator.cc:110"
    ),
    Text(
        "Error while fetching extra cudaMallocAsync pool attribute",
        "tensorflow 2.21 xla/stream_executor/gpu/gpu_cudamallocasync_allocator.cc:83",
    ),
    meaning="what the allocator of the GPU's memory holds, as it is printed when it runs out",
)
FAMILY.sign(
    "xla_allocates",
    Text(
        "XLA backend allocating {bytes:d} bytes on device {:d} for {:w}",
        "tensorflow 2.21 xla/pjrt/gpu/gpu_helpers.cc:136",
    ),
    Text(
        "XLA backend will use up to {bytes:d} bytes on device {:d} for {:w}",
        "tensorflow 2.21 xla/pjrt/gpu/gpu_helpers.cc:139",
    ),
    Text("Using BFC allocator.", "tensorflow 2.21 xla/pjrt/gpu/se_gpu_pjrt_client.cc:1373"),
    Text("Using platform allocator.", "tensorflow 2.21 xla/pjrt/gpu/se_gpu_pjrt_client.cc:1389"),
    Text(
        "TfrtGpuClient created with {:d} / {:d} addressable devices",
        "tensorflow 2.21 xla/pjrt/gpu/tfrt/tfrt_gpu_client.cc:1342",
    ),
    Text("TfrtGpuClient destroyed", "tensorflow 2.21 xla/pjrt/gpu/tfrt/tfrt_gpu_client.cc:1346"),
    meaning="how XLA or TensorFlow divides the GPU's memory",
)
FAMILY.sign(
    "xla_profiles",
    Text("Using PGLE profile from {}", "tensorflow 2.21 xla/service/gpu/gpu_hlo_schedule.cc:353"),
    Text("Found profile for module {}", "tensorflow 2.21 xla/service/gpu/gpu_hlo_schedule.cc:479"),
    Text("Attempting to parse as a binary proto", "tensorflow 2.21 xla/service/gpu/gpu_hlo_schedule.cc:342"),
    Text(
        "Not a binary proto, attempt to parse it as a text proto",
        "tensorflow 2.21 xla/service/gpu/gpu_hlo_schedule.cc:347",
    ),
    Text("Unable to parse fdo_profile", "tensorflow 2.21 xla/service/gpu/gpu_hlo_schedule.cc:356"),
    Text("PGLE profile file does not exist", "tensorflow 2.21 xla/service/gpu/gpu_hlo_schedule.cc:377"),
    Text("Tried but failed to parse PGLE proto", "tensorflow 2.21 xla/service/gpu/gpu_hlo_schedule.cc:373"),
    Text("Autotune cache {}", "tensorflow 2.21 xla/service/gpu/autotuning/autotuner_util.cc:396"),
    Text("In-memory autotune cache hit", "tensorflow 2.21 xla/service/gpu/autotuning/autotuner_util.cc:399"),
    Text("File-based autotune cache hit", "tensorflow 2.21 xla/service/gpu/autotuning/autotuner_util.cc:402"),
    Text("Autotune results serialized to file", "tensorflow 2.21 xla/service/gpu/autotuning/autotuner_util.cc:555"),
    Text("Autotune results loaded from file", "tensorflow 2.21 xla/service/gpu/autotuning/autotuner_util.cc:587"),
    Text(
        "Autotune logs serialized to file", "tensorflow 2.21 xla/service/gpu/autotuning/gemm_fusion_autotuner.cc:1218"
    ),
    meaning="files that XLA reads and writes to compile faster",
)
FAMILY.fault(
    "nothing_to_launch",
    "Check failed: work_element_count > 0 ({:d} vs. 0)",
    "Check failed: work_element_count >= 0 ({:d} vs. 0)",
    "gpu_launch_config.h:{:d}] Check failed: {}",
    meaning="an operation was given a tensor without elements, or one that is too large to be counted",
    fix=(
        note(
            "no empty batch: dataset.batch(n, drop_remainder=True); with several GPUs each must get a part "
            "of the last "
            "one",
            kind=Kind.EDIT_PROGRAM,
        ),
        note("if a tensor has more than 2147483647 elements: a smaller batch", kind=Kind.EDIT_PROGRAM),
    ),
    possible=True,
    seen="1.13-2.21",
)
FAMILY.fault(
    "no_tools_of_cuda",
    Text("nvcc: command not found", "https://github.com/NVlabs/stylegan2-ada/issues/11"),
    Text("nvcc: not found", "cmake 4.4 Modules/FindFLTK2.cmake:261"),
    "'nvcc' is not recognized as an internal or external command",
    Text("ptxas: not found", "cmake 4.4 Modules/FindFLTK2.cmake:261"),
    Text("ptxas: command not found", "cmake 4.4 Modules/FindFLTK2.cmake:261"),
    meaning="the CUDA toolkit is not installed, or not on PATH; TensorFlow itself needs its libraries alone",
    fix=(
        install(
            "tensorflow[and-cuda]",
            note="the libraries; python -c 'import tensorflow as tf; print(tf.config.list_physical_devices())'",
        ),
        prepend("PATH", "/usr/local/cuda/bin", "if nvcc itself is needed; pip install nvidia-cuda-nvcc-cu12"),
    ),
    possible=True,
    follows=True,
    stage="LIBRARIES",
    seen="Linux, Windows",
)
FAMILY.fault(
    "no_tensorrt_in_build",
    "TensorFlow has not been built with TensorRT support",
    "TensorRT library is not found, and therefore TensorFlow-TensorRT",
    meaning="this TensorFlow has no TensorRT: the wheels of 2.18 and newer are built without it, those for Windows "
    "always were",
    fix=(
        start("docker run --gpus all -it nvcr.io/nvidia/tensorflow:25.02-tf2-py3", "has it"),
        note("or convert the model with TensorRT itself, by ONNX: python -m tf2onnx.convert, trtexec"),
    ),
    stage="CONFIGURATION",
    seen="2.0-2.21",
)
FAMILY.fault(
    "grouped_convolution_on_cpu",
    Text(
        "Fused conv implementation does not support grouped convolutions for now",
        "tensorflow 2.21 tensorflow/core/kernels/conv_ops_fused_impl.h:216",
    ),
    Text(
        "The CPU implementation of {op:s} does not support",
        "tensorflow 2.21 tensorflow/core/kernels/fused_batch_norm_op.cc:109",
    ),
    "Conv2D on CPU does not support grouped convolutions",
    meaning="the CPU runs the model, and it has no grouped convolutions: TensorFlow uses no GPU, or the number of "
    "channels does not fit the layer",
    fix=(
        check("python -c 'import tensorflow as tf; print(tf.config.list_physical_devices())'", "GPU:0 must be there"),
        note(
            "give the layer an input with as many channels as it was made for, such as 3 and not 4 for images",
            kind=Kind.EDIT_PROGRAM,
        ),
    ),
    possible=True,
    seen="2.1-2.21",
)
FAMILY.add(
    Worth.FAULT,
    "multi_gpu_model_older_than_names",
    pattern=r"To call `multi_gpu_model` with `gpus=\d{1,3}`, we expect the following devices to be available: "
    r"\[[^\]]{0,2000}'/gpu:(?P<last>\d{1,3})'\]\. However this machine only has: \[[^\]]{0,2000}/device:GPU:(?P=last)'",
    witness="https://github.com/keras-team/keras/issues/8213",
    words=("multi_gpu_model",),
    meaning="this Keras is older than this TensorFlow: it looks for GPUs as /gpu:{last}, and they are now called "
    "/device:GPU:{last}; all of them are there",
    fix=(
        install("--upgrade", "keras==2.2.*", note="knows both names; or use tf.keras of the same TensorFlow"),
        install("tensorflow-gpu==1.4.*", note="or the TensorFlow that this Keras was made for"),
    ),
    stage="CONFIGURATION",
    seen="1.x",
)
FAMILY.add(
    Worth.FAULT,
    "multi_gpu_model_without_cpu",
    pattern=r"To call `multi_gpu_model` with `gpus=\d{1,3}`, we expect the following devices to be available: "
    r"\[[^\]]{0,2000}'/gpu:(?P<last>\d{1,3})'\]\. However this machine only has: \['/gpu:0'[^\]]{0,2000}"
    r"/gpu:(?P=last)'",
    witness="https://github.com/keras-team/keras/issues/13302",
    words=("multi_gpu_model",),
    meaning="this Keras leaves the CPU out of its list of devices, and looks for it there; all GPUs are in it, up to "
    "/gpu:{last}",
    fix=(
        install("--upgrade", "keras==2.3.*", note="has that corrected; or use tf.keras of the same TensorFlow"),
        note("or multi_gpu_model with cpu_merge=False: merges on a GPU", kind=Kind.EDIT_PROGRAM),
    ),
    stage="CONFIGURATION",
    seen="1.x",
)
MULTI_GPU_MODEL = FAMILY.fault(
    "multi_gpu_model_without_gpus",
    Text(
        "To call `multi_gpu_model` with `gpus={asked:d}`, we expect the following devices to be available",
        "https://github.com/keras-team/keras/issues/8213",
    ),
    meaning="the program asks Keras for {asked} GPUs, and TensorFlow has fewer",
    fix=(
        check(
            "python -c 'import tensorflow as tf; print(tf.test.is_built_with_cuda()); from "
            "tensorflow.python.client import "
            "device_lib; print(device_lib.list_local_devices())'",
            "what it has",
        ),
        check("nvidia-smi -L; echo $CUDA_VISIBLE_DEVICES", "what the machine has, and what is hidden"),
        note("gpus= as many as there are", kind=Kind.EDIT_PROGRAM),
    ),
    stage="CONFIGURATION",
    seen="1.x-2.3",
)
FAMILY.fault(
    "colocated_without_gpu_kernel",
    Text(
        "because the node was colocated with a group of nodes that required incompatible device '{device:q}'",
        "https://github.com/tensorflow/tensorflow/issues/1914",
    ),
    meaning="operations that must be on the same device are put on {device}, and one of them has no kernel for it",
    fix=(
        edit(
            "tf.config.set_soft_device_placement(True)", "1.x: tf.ConfigProto(allow_soft_placement=True) of the session"
        ),
        note("or put that part on the CPU: with tf.device('/CPU:0')", kind=Kind.EDIT_PROGRAM),
    ),
    stage="CONFIGURATION",
    seen="1.x-2.21",
)
FAMILY.fault(
    "device_not_registered",
    Text(
        "Could not satisfy explicit device specification '{device:q}' because no devices matching that specification "
        "are registered in this process",
        "https://github.com/tensorflow/tensorflow/issues/13793",
    ),
    meaning="the program puts an operation on {device}, which TensorFlow does not have here",
    fix=(
        check(
            "python -c 'from tensorflow.python.client import device_lib; print(device_lib.list_local_devices())'",
            "what it has",
        ),
        edit(
            "tf.config.set_soft_device_placement(True)", "1.x: tf.ConfigProto(allow_soft_placement=True) of the session"
        ),
    ),
    stage="CONFIGURATION",
    seen="0.6-2.2",
)
