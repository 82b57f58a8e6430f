"""Messages that look like errors but are harmless."""

from __future__ import annotations

from gpudiag.knowledge.message import MessageFamily

FAMILY = MessageFamily("lines that look like errors but are harmless")

FAMILY.harmless(
    "no_hadoop",
    "HadoopFileSystem load error: libhdfs.so: cannot open shared object file",
    meaning="it concerns only files in Hadoop (HDFS)",
    seen="1.x-2.3",
)
NOT_A_FAILURE = FAMILY.harmless(
    "allocation_not_a_failure",
    "ran out of memory trying to allocate {} The caller indicates that this is not a failure",
    meaning="TensorFlow tried a faster way that needs more memory, and took another",
)
FAMILY.harmless(
    "registered_twice",
    (
        "Unable to register {factory:w} factory: Attempting to register factory for plugin {:w} when one has "
        "already been "
        "registered"
    ),
    "computation placer already registered",
    meaning="the build registers it twice and the first one is used; a missing GPU has another cause",
)
FAMILY.harmless(
    "saved_before_25",
    "SavedModel saved prior to TF 2.5 detected when loading Keras model",
    meaning="an older release saved the model; it can still be read",
    seen="2.5-2.15",
)
FAMILY.harmless(
    "no_tensorrt",
    "TF-TRT Warning: Could not find TensorRT",
    "Cannot dlopen some TensorRT libraries",
    "Could not load dynamic library 'libnvinfer{:q}'",
    meaning="TensorRT is optional, and TensorFlow's own wheels are built without it",
)
FAMILY.harmless(
    "no_numa_node",
    "successful NUMA node read from SysFS had negative value",
    "could not open file to read NUMA node",
    "Your kernel may have been built without NUMA support",
    "ARM64 does not support NUMA - returning NUMA node zero",
    meaning="the machine, often a virtual one, does not say which processor is nearest to the GPU; node 0 is assumed",
)
FAMILY.harmless(
    "cpu_instructions",
    "This TensorFlow binary is optimized to use available CPU instructions",
    "This TensorFlow binary is optimized with oneAPI",
    "To enable the following instructions: {:w}",
    meaning="it concerns the speed of operations on the CPU",
)
FAMILY.harmless(
    "onednn_on",
    "oneDNN custom operations are on",
    "ZenDNN custom operations are on",
    meaning="it concerns operations on the CPU; TF_ENABLE_ONEDNN_OPTS=0 (TF_ENABLE_ZENDNN_OPTS=0) ends it",
)
FAMILY.harmless(
    "logged_before_absl",
    "All log messages before absl::InitializeLog() is called are written to STDERR",
    meaning="it says where the following log lines go",
)
FAMILY.harmless(
    "end_of_data",
    "Local rendezvous is aborting with status: OUT_OF_RANGE: End of",
    "BaseCollectiveExecutor::StartAbort Out of range",
    "BaseCollectiveExecutor::StartAbort OUT_OF_RANGE: End of sequence",
    meaning="a data set has ended",
)
FAMILY.harmless(
    "performance_gains",
    "The caller indicates that this is not a failure, but this may mean that there could be performance gains",
    meaning="an algorithm that needs less memory is used instead",
)
FAMILY.harmless(
    "no_delay_kernel",
    "Skipping the delay kernel, measurement accuracy will be reduced",
    meaning="it concerns the choice of algorithms",
)
FAMILY.harmless(
    "no_crash_reproducer",
    "disabling MLIR crash reproducer",
    meaning="it concerns reports on crashes of the compiler",
)
FAMILY.harmless(
    "registers_spilled",
    "Registers are spilled to local memory",
    "Compilation result discarded due to register spilling",
    meaning="it concerns the speed of one compiled function",
)

FAMILY.harmless(
    "cost_not_predicted",
    "Error in PredictCost() for the op: {}",
    "Einsum with malformed equation",
    "Unknown device type: {:w}, assuming PCIe between CPU and GPU",
    "half_pixel_centers attr not set for ResizeBilinear",
    meaning="an optimiser cannot estimate how long an operation takes, and leaves the graph as it is",
    seen="2.1-2.21",
)
FAMILY.harmless(
    "sharded_by_data",
    "AUTO sharding policy will apply DATA sharding policy",
    "In AUTO-mode, and switching to DATA-based sharding, instead of FILE-based sharding",
    "Found an unshardable source dataset",
    "Did not find a shardable source, walked to a node which is not a dataset",
    "Consider either turning off auto-sharding or switching the auto_shard_policy to DATA",
    ("The `assert_cardinality` transformation is currently not handled by the auto-shard rewrite and will be removed"),
    meaning="data that is not in files is divided between workers by elements; with one worker nothing is divided",
    seen="2.0-2.21",
)
FAMILY.harmless(
    "reduction_on_one_device",
    "NCCL is not supported when using virtual GPUs, falling{:s} to reduction to one device",
    "Efficient allreduce is not supported for {:d} IndexedSlices",
    "Collective ops is not configured at program startup. Some performance features may not be enabled",
    meaning="replicas sum gradients in another way, which is slower but correct",
    seen="1.13-2.21",
)
FAMILY.harmless(
    "compiled_otherwise",
    "Ignoring Assert operator {}",
    "Using tf.random.{:s} with XLA compilation will ignore seeds",
    "TensorListSetItem: ignoring set item because the update dim",
    "(One-time warning): Not using XLA:CPU for cluster because {}",
    meaning="XLA compiles the operation in its own way",
    seen="1.13-2.21",
)
FAMILY.harmless(
    "graph_left_as_it_is",
    "Skipping loop optimization for Merge node {}",
    "Found no node from which a control edge can be added to scoped allocator node",
    "graph optimizer FAILED",
    "Failed to convert graph to MLIR: {}, continuing without MlirOptimizationPass",
    "Input of {:w} will not be optimized because the dataset does not implement the AsGraphDefInternal() method",
    "Optimization loop failed: {}",
    "Type inference failed. This indicates an invalid graph that escaped type checking",
    "Importing a graph with a lower producer version {:d} into an existing graph with producer version {:d}",
    "NodeDef mentions attribute {:w} which is not in the op definition",
    "Graph contains node {} that feeds into node {}",
    "Ignoring multi-device function optimization failure: {}",
    "function_optimizer failed: {}",
    meaning="a graph or data set runs as it is, without an optional optimisation",
    seen="1.13-2.21",
)

# --- about the program, its data and its graphs ---------------------------------------------------------------

FAMILY.harmless(
    "executor_aborting",
    "Executor start aborting (this does not indicate an error and you can ignore this message)",
    "Error occurred when finalizing GeneratorDataset iterator: {}",
    "Local rendezvous recv item cancelled",
    "Local rendezvous send item cancelled",
    "Your input ran out of data",
    meaning="a data set has ended, or a step was stopped; an error that matters is raised as well",
    seen="2.11-2.21",
)
FAMILY.harmless(
    "layout_failed",
    "layout failed: {}",
    "auto_mixed_precision failed: {}",
    "Graph Optimizer failed: {}",
    "remapper failed: {}",
    "constant_folding failed: {}",
    "model_pruner failed: {}",
    "arithmetic_optimizer failed: {}",
    meaning="an optimiser leaves this graph as it is; results are the same, perhaps slower",
)
FAMILY.harmless(
    "no_autotune_memory",
    "Failed to allocate memory for convolution redzone checking; skipping this check",
    "Failed to check cudnn convolutions for out-of-bounds reads and writes with an error message",
    "Failed to find best cuBLAS algorithm, GEMM performance might be suboptimal",
    "Delay kernel timed out: measured time has sub-optimal accuracy",
    "Autotuning candidate failed with out of memory error",
    "Slow kernel for {} took: {}",
    "As a result, convolution performance may be suboptimal",
    "Omitted potentially buggy algorithm {} for conv",
    "None of the algorithms provided by cuDNN heuristics worked; trying fallback algorithms",
    "Retry CUDA graph instantiation after OOM error",
    "Unable to copy dynamic shape buffer of size {:d} to host using pinned memory",
    "All configs were filtered out because none of them sufficiently match the hints",
    "Cudnn version is too old",
    "Fusion is not supported by cudnn",
    "Couldn't read CUDA driver version",
    "Overriding allow_growth setting because force_memory_growth was requested by the device",
    "Could not query stream priority range. Returning default priority",
    "To denylist this algorithm for this convolution",
    "This triggers a copy which can be a performance bottleneck",
    "already exists. This usually only happens in unit tests",
    "A PjRt GPU Client was previously created, but the addressable device count",
    "Unexpectedly returning OK STATUS in BaseGPUDeviceFactory::CreateDevices",
    "Ignoring error status when releasing multi-device function handle",
    "Unable to destroy server_ object, so releasing instead",
    "perhaps it wasn't enabled at process startup",
    "Not loading plugin library {}",
    "Cancellation callback {} is triggered due to a",
    "Loading UNSAFE library {}",
    "Overriding double buffering set via",
    "Trying algorithm {} is taking a while",
    "Very slow compile? If you want to file a bug",
    "The operation took {:s}",
    "Constant folding an instruction is taking > {:s}",
    "Compiling {:d} configs for {} on a single thread",
    "Compilation failed: {} Falling back to TF function call",
    meaning="it concerns the choice or the compilation of algorithms: the first step is slower, results are right",
)
FAMILY.harmless(
    "compiled_cluster",
    "Compiled cluster using XLA! This line is logged at most once for the lifetime of the process",
    "XLA service {:s} initialized for platform {}",
    "XLA service {:s} executing computations on platform {}",
    "StreamExecutor device ({:d}): {}",
    "StreamExecutor [{:d}]: {}",
    "Not creating XLA devices, tf_xla_enable_xla_devices not set",
    "Using nvlink for parallel linking",
    "Fallback to op-by-op mode because {}",
    "Used ptxas at {:s}",
    meaning="XLA says that it is used",
    seen="2.0-2.21",
)
FAMILY.harmless(
    "old_driver_jit",
    "Your CUDA software stack is old. We fallback to the NVIDIA driver for some compilation",
    "Falling back to the CUDA driver for PTX compilation; ptxas does not support CC {:v}",
    "Falling back to compilation by driver",
    "Relying on driver to perform ptx compilation",
    "redzone_allocator.cc:{:d}] {:w}: ptxas exited with non-zero error code {}",
    "Modify $PATH to customize ptxas location",
    "Invoking GPU asm compilation is supported on Cuda non-Windows platforms only",
    "redzone_allocator.cc:{:d}] Not found: ./bin/ptxas not found",
    "redzone_allocator.cc:{:d}] {:w}: Failed to launch ptxas",
    "redzone_allocator.cc:{:d}] {:w}: Invoking ptxas not supported on Windows",
    "redzone_allocator.cc:{:d}] UNIMPLEMENTED: {}",
    meaning="ptxas is older than the GPU and the driver compiles in its place, which works and is slower",
    seen="2.4-2.21",
)
FAMILY.harmless(
    "older_than_ptx_compiler",
    "The NVIDIA driver's CUDA version is {driver:v} which is older than the PTX compiler version {ptxas:v}",
    meaning="the driver is older than ptxas, so XLA compiles one part after the other: this works and is slower",
    seen="2.10-2.18",
)
LOADED_CUDNN = FAMILY.harmless(
    "loaded_cudnn",
    "Loaded cuDNN version {version:s}",
    "TensorFloat-32 will be used for the matrix multiplication",
    "Using CUDA malloc Async allocator for GPU",
    "Using CUDA malloc allocator for GPU",
    "CPU Frequency: {:d} Hz",
    "Adding visible gpu devices: {}",
    "Found device {:d} with properties",
    "Device interconnect StreamExecutor with strength {:d} edge matrix",
    meaning="it says what was found or chosen",
    seen="1.x-2.21",
)
OPTIONAL_SYMBOL = FAMILY.harmless(
    "optional_symbol",
    "Could not load symbol {symbol:w} from {}",
    "undefined symbol: cublasGetSmCountTarget",
    meaning="cuDNN looks for a function that this older cuBLAS does not have, and works without it",
    seen="cuDNN 8",
)
NO_GPU_AS_MEANT = FAMILY.harmless(
    "no_gpu_as_meant",
    "Could not load dynamic library 'cudart64_{:q}.dll'",
    "Could not load dynamic library 'libcudart.so.{:v}'",
    "Ignore above cudart dlerror if you do not have a GPU set up on your machine",
    "cudart64_{:w}.dll not found",
    meaning="harmless without a GPU: TensorFlow uses the CPU. To use a GPU it needs its own CUDA",
    seen="2.0-2.10",
)
FAMILY.harmless(
    "fragmentation_advice",
    "Garbage collection: deallocate free memory regions",
    "Allocation of {:d} exceeds {:d}% of free system memory",
    "Allocation of {:d} exceeds {:d}% of system memory",
    "Total allocated memory {:s}exceeds {:d}% of free system memory",
    "Converting sparse IndexedSlices",
    "Filling up shuffle buffer (this may take a while)",
    "Shuffle buffer filled",
    "The calling iterator did not fully read the dataset being cached",
    "This can happen if you have an input pipeline similar to `dataset.cache().take(k).repeat()`",
    "The CUDA FFT plan cache capacity of {:d} has been exceeded",
    meaning="it concerns memory of the computer or speed, not a fault",
    seen="2.0-2.21",
)
NO_CUDNN_KERNEL = FAMILY.harmless(
    "no_cudnn_kernel",
    "will not use cuDNN kernels since it doesn't meet the",
    "will not use cuDNN kernel since it doesn't meet the",
    meaning="the layer's arguments rule out cuDNN's kernel: the GPU is used with a slower one",
    seen="2.0-2.15",
)
FAMILY.harmless(
    "metal_found",
    "Metal device set to: {device}",
    "physical PluggableDevice (device: {:d}, name: METAL",
    "runs slowly on M1/M2 Macs, please use the legacy",
    "There is a known slowdown when using v2.11+ Keras optimizers on M1/M2 Macs",
    "Plugin optimizer for device_type GPU is enabled",
    meaning="Apple's plug-in has found the GPU, and it is used",
    seen="tensorflow-metal",
)
FAMILY.harmless(
    "of_other_parts",
    "Created TensorFlow Lite XNNPACK delegate for CPU",
    "Attempting to use a delegate that only supports static-sized tensors",
    "tcmalloc: large alloc {:d} bytes",
    "Corrupt JPEG data: {}",
    "DLC loaded in light mode; you cannot use any GUI",
    "libpng warning: {}",
    "Found untraced functions such as {}",
    "Limited tf.compat.v2.summary API due to missing TensorBoard installation",
    "Limited tf.summary API due to missing TensorBoard installation",
    "TensorFlow Addons (TFA) has ended development and introduction of new features",
    "Model was constructed with shape {} but it was called on an input with incompatible shape",
    "The TensorFlow contrib module will not be included in TensorFlow 2.0",
    "Error in loading the saved optimizer state. As a result, your model is starting with a freshly initialized",
    "libprotobuf WARNING {}",
    "Skipping full serialization of Keras layer",
    "compiletime version {:v} of module {:s} does not match runtime version {:v}",
    "Unexpectedly high number of iterations in HLO passes",
    "An interactive session is already active",
    meaning="it comes from another part of the program, and says nothing about TensorFlow's GPU",
    seen="all",
)
FAMILY.harmless(
    "autotuner_compares",
    "Results do not match the reference. This is likely a bug/unexpected loss of precision",
    "buffer_comparator.cc:{:d}] Difference at {:d}: {:s}, expected",
    meaning="XLA compares the results of the algorithms that it tries, and marks those that differ as wrong",
    seen="all",
)
FAMILY.harmless(
    "searched_for_cuda",
    "Searched for CUDA in the following directories",
    "You can choose the search directory by setting xla_gpu_cuda_data_dir",
    meaning="it says where XLA looks for the CUDA toolkit",
    seen="1.13-2.21",
)
FAMILY.harmless(
    "searched_folder",
    pattern=r"(?:nvptx_compiler|gpu_backend_lib|cuda_libdevice_path|llvm_gpu_backend)\.cc:\d{1,5}\]\s{1,9}[./]\S{0,200}$",
    words=("nvptx_compiler", "gpu_backend_lib", "cuda_libdevice_path", "llvm_gpu_backend"),
    meaning="a folder in which XLA looks for the CUDA toolkit",
    seen="1.13-2.14",
)
FAMILY.harmless(
    "driver_compiles",
    "Will back to the GPU driver for PTX",
    "This is OK so long as you don't see a warning below about an out-of-date driver version",
    "Couldn't read CUDA driver version",
    meaning="the driver compiles in place of ptxas, which works and is slower",
    seen="1.13-2.3",
)
FAMILY.harmless(
    "retracing",
    "triggered tf.function retracing",
    "The following Variables were used a Lambda layer's call",
    "AutoGraph could not transform",
    "Please report this to the TensorFlow team. When filing the bug, set the verbosity to 10",
    "Callback method `{:w}` is slow compared to the batch time",
    "Method (on_{:w}) is slow compared to the batch update",
    "multiprocessing can interact badly with TensorFlow, causing nondeterministic deadlocks",
    "Entity {} could not be transformed and will be executed as-is",
    "The structure of `inputs` doesn't match the expected structure",
    "Do not pass an `input_shape`/`input_dim` argument to a layer",
    "Skipping variable loading for optimizer",
    "You are saving your model as an HDF5 file",
    "Compiled the loaded model, but the compiled metrics have yet to be built",
    "No training configuration found in the save file",
    "Detecting that an object or model or tf.train.Checkpoint is being deleted with unrestored values",
    "Value in checkpoint could not be found in the restored object",
    "Gradients do not exist for variables",
    "Using a while_loop for converting {}",
    meaning="it concerns how the program is written, or its speed; the GPU is still used",
    seen="2.0-2.21",
)
FAMILY.harmless(
    "deprecated",
    "is deprecated and will be removed in a future version",
    "The name {:s} is deprecated. Please use {:s} instead",
    "Instructions for updating:",
    "will be removed in a future version. Instructions for updating",
    meaning="it concerns a later release",
    seen="all",
)
FAMILY.harmless(
    "slow_operation_alarm",
    "*** WARNING *** Invoking {:s} with version {:v}, which corresponds to a CUDA version <=12.6.2",
    "(Note that this warning may be shown spuriously for CUDA 12.6",
    "Using fallback sort algorithm rather than SortRewriter",
    meaning="it concerns compilation; it goes on",
)
FAMILY.harmless(
    "no_profiler",
    "Could not load dynamic library 'libcupti{:q}'",
    "CUPTI could not be loaded or symbol could not be found",
    "function cupti_interface_->{} failed with error {}",
    "CUPTI initialization failed",
    meaning="it concerns the profiler alone, which needs CUDA's extras/CUPTI/lib64 on LD_LIBRARY_PATH",
    seen="2.0-2.21",
)
FAMILY.harmless(
    "libraries_optional",
    "Could not load dynamic library 'libnvinfer_plugin{:q}'",
    "Could not load dynamic library 'libnccl{:q}'",
    "Could not load dynamic library 'libcusparseLt{:q}'",
    "NVSHMEM symbol {:s} not found in DSO",
    "TF-TRT Warning: Cannot dlopen some TensorRT",
    "If you would like to use Nvidia GPU with TensorRT, please make sure the missing libraries mentioned above",
    "Linked TensorRT version: {}",
    "Loaded TensorRT version: {}",
    meaning="the library is optional",
    seen="2.0-2.21",
)
FAMILY.harmless(
    "cpu_notices",
    "Your CPU supports instructions that this TensorFlow binary was not compiled to use",
    "The TensorFlow library wasn't compiled to use {:s} instructions, but these are available on your machine",
    "could not convert SysFS file contents to integral NUMA node value",
    "no PCI bus ID for device ordinal",
    "None of the MLIR Optimization Passes are enabled",
    "None of the MLIR optimization passes are enabled",
    "MLIR V1 optimization pass is not enabled",
    "Creating new thread pool with default inter op setting",
    "libpng warning: iCCP: known incorrect sRGB profile",
    "Failed to find bogomips {}",
    "Failed to get CPU frequency: {:d} Hz",
    "Could not identify NUMA node",
    "Could not determine NUMA node of device ordinal {:d}",
    "OMP_NUM_THREADS is no longer used by the default Keras config",
    "Number of outputs changed between runs",
    meaning="it concerns the CPU, its threads or NUMA",
    seen="1.x-2.21",
)
FAMILY.harmless(
    "autograph_pydot",
    "You must install pydot",
    "TensorFlow Addons (TFA) has ended development",
    "The versions of TensorFlow you are currently using is {} and is not supported",
    "TensorFlow GPU support is not available on native Windows for TensorFlow >= 2.11",
    "pkg_resources is deprecated as an API",
    "NotOpenSSLWarning: urllib3 v2 only supports OpenSSL",
    meaning="it concerns another package or another system",
    seen="Python",
)
FAMILY.harmless(
    "simulated_otherwise",
    "gpudiag simulated GPU: Keras {choice} cannot run on a simulated GPU",
    "gpudiag simulated GPU: XLA cannot run here",
    meaning="gpudiag's simulated GPUs do this in another way than real ones",
    seen="gpudiag",
)
