"""Lines that look like errors and are none."""

from __future__ import annotations

from gpudiag.knowledge.message import Family, Text, Worth

FAMILY = Family("what looks like an error and is none")

FAMILY.harmless(
    "no_hadoop",
    Text(
        "HadoopFileSystem load error: libhdfs.so: cannot open shared object file",
        "https://github.com/piwheels/packages/issues/78",
    ),
    meaning="it is about files in Hadoop (HDFS) alone",
    seen="1.x-2.3",
)
NOT_A_FAILURE = FAMILY.harmless(
    "allocation_not_a_failure",
    Text(
        "ran out of memory trying to allocate {} The caller indicates that this is not a failure",
        "tensorflow 2.21 xla/tsl/framework/bfc_allocator.cc:311",
    ),
    meaning="TensorFlow tried a faster way that needs more memory, and took another",
)
FAMILY.harmless(
    "registered_twice",
    Text(
        "Unable to register {factory:w} factory: Attempting to register factory for plugin {:w} when one has "
        "already been "
        "registered",
        "https://github.com/tensorflow/tensorflow/issues/85604",
    ),
    Text("computation placer already registered", "https://github.com/tensorflow/tensorflow/issues/90790"),
    meaning="the build registers it twice and the first one is used; a missing GPU has another cause",
)
FAMILY.harmless(
    "saved_before_25",
    Text(
        "SavedModel saved prior to TF 2.5 detected when loading Keras model",
        "tensorflow 2.21 tensorflow/python/keras/saving/saved_model/load.py:134",
    ),
    meaning="an older release saved the model: it is read all the same",
    seen="2.5-2.15",
)
FAMILY.harmless(
    "no_tensorrt",
    Text("TF-TRT Warning: Could not find TensorRT", "https://github.com/tensorflow/tensorflow/issues/64809"),
    Text("Cannot dlopen some TensorRT libraries", "https://github.com/jupyter/docker-stacks/issues/1002"),
    Text("Could not load dynamic library 'libnvinfer{:q}'", "https://github.com/yekaizhou/duet/issues/9"),
    meaning="TensorRT is optional, and TensorFlow's own wheels are built without it",
)
FAMILY.harmless(
    "no_numa_node",
    Text(
        "successful NUMA node read from SysFS had negative value",
        "tensorflow 2.21 xla/stream_executor/gpu/read_numa_node.cc:68",
    ),
    Text("could not open file to read NUMA node", "tensorflow 2.21 xla/stream_executor/gpu/read_numa_node.cc:53"),
    Text(
        "Your kernel may have been built without NUMA support",
        "tensorflow 2.21 xla/stream_executor/gpu/read_numa_node.cc:54",
    ),
    Text(
        "ARM64 does not support NUMA - returning NUMA node zero",
        "https://github.com/NVIDIA-AI-IOT/tf_to_trt_image_classification/issues/5",
    ),
    meaning="the machine, often a virtual one, does not say which processor is nearest to the GPU; node 0 is assumed",
)
FAMILY.harmless(
    "cpu_instructions",
    Text(
        "This TensorFlow binary is optimized to use available CPU instructions",
        "tensorflow 2.21 tensorflow/core/platform/cpu_feature_guard.cc:210",
    ),
    Text("This TensorFlow binary is optimized with oneAPI", "https://github.com/yekaizhou/duet/issues/9"),
    Text("To enable the following instructions: {:w}", "https://github.com/tensorflow/tensorflow/issues/62987"),
    meaning="it concerns the speed of operations on the CPU",
)
FAMILY.harmless(
    "onednn_on",
    Text("oneDNN custom operations are on", "tensorflow 2.21 tensorflow/core/util/port.cc:153"),
    Text("ZenDNN custom operations are on", "tensorflow 2.21 tensorflow/core/util/port.cc:180"),
    meaning="it concerns operations on the CPU; TF_ENABLE_ONEDNN_OPTS=0 (TF_ENABLE_ZENDNN_OPTS=0) ends it",
)
FAMILY.harmless(
    "logged_before_absl",
    Text(
        "All log messages before absl::InitializeLog() is called are written to STDERR",
        "https://github.com/tensorflow/tensorflow/issues/85604",
    ),
    meaning="it says where the lines below it go",
)
FAMILY.harmless(
    "end_of_data",
    Text(
        "Local rendezvous is aborting with status: OUT_OF_RANGE: End of sequence",
        "https://github.com/tensorflow/tensorflow/issues/62963",
    ),
    Text("BaseCollectiveExecutor::StartAbort Out of range", "https://github.com/tensorflow/tensorflow/issues/35314"),
    "BaseCollectiveExecutor::StartAbort OUT_OF_RANGE: End of sequence",
    meaning="a data set has come to its end",
)
FAMILY.harmless(
    "performance_gains",
    Text(
        "The caller indicates that this is not a failure, but this may mean that there could be performance gains",
        "tensorflow 2.21 xla/tsl/framework/bfc_allocator.cc:311",
    ),
    meaning="an algorithm that needs less memory is used instead",
)
FAMILY.harmless(
    "no_delay_kernel",
    Text(
        "Skipping the delay kernel, measurement accuracy will be reduced",
        "https://github.com/tensorflow/tensorflow/issues/73487",
    ),
    meaning="it concerns the choice of algorithms",
)
FAMILY.harmless(
    "no_crash_reproducer",
    Text(
        "disabling MLIR crash reproducer",
        "tensorflow 2.21 tensorflow/compiler/mlir/tensorflow/utils/dump_mlir_util.cc:269",
    ),
    meaning="it concerns reports on crashes of the compiler",
)
FAMILY.harmless(
    "registers_spilled",
    Text("Registers are spilled to local memory", "https://github.com/tensorflow/tensorflow/issues/89272"),
    Text("Compilation result discarded due to register spilling", "tensorflow 2.15.1 libtensorflow_cc.so.2"),
    meaning="it concerns the speed of one compiled function",
)

FAMILY.harmless(
    "cost_not_predicted",
    Text("Error in PredictCost() for the op: {}", "https://github.com/moojink/openvla-oft/issues/1"),
    Text(
        "Einsum with malformed equation",
        "tensorflow 2.21 tensorflow/core/grappler/costs/op_level_cost_estimator.cc:284",
    ),
    Text(
        "Unknown device type: {:w}, assuming PCIe between CPU and GPU",
        "tensorflow 2.21 tensorflow/core/grappler/costs/op_level_cost_estimator.cc:788",
    ),
    Text(
        "half_pixel_centers attr not set for ResizeBilinear",
        "tensorflow 2.21 tensorflow/core/grappler/costs/op_level_cost_estimator.cc:2610",
    ),
    meaning="an optimiser cannot estimate how long an operation takes, and leaves the graph as it is",
    seen="2.1-2.21",
)
FAMILY.harmless(
    "sharded_by_data",
    Text(
        "AUTO sharding policy will apply DATA sharding policy",
        "tensorflow 2.21 tensorflow/core/grappler/optimizers/data/auto_shard.cc:798",
    ),
    Text(
        "In AUTO-mode, and switching to DATA-based sharding, instead of FILE-based sharding",
        "tensorflow 2.4.4 _pywrap_tensorflow_internal.so",
    ),
    Text(
        "Found an unshardable source dataset",
        "tensorflow 2.21 tensorflow/core/grappler/optimizers/data/auto_shard.cc:568",
    ),
    Text(
        "Did not find a shardable source, walked to a node which is not a dataset",
        "tensorflow 2.21 tensorflow/core/grappler/optimizers/data/auto_shard.cc:642",
    ),
    Text(
        "Consider either turning off auto-sharding or switching the auto_shard_policy to DATA",
        "tensorflow 2.21 tensorflow/core/grappler/optimizers/data/auto_shard.cc:642",
    ),
    Text(
        "The `assert_cardinality` transformation is currently not handled by the auto-shard rewrite and will be "
        "removed",
        "tensorflow 2.21 tensorflow/core/grappler/optimizers/data/auto_shard.cc:558",
    ),
    meaning="data that is not in files is divided between workers by elements; with one worker nothing is divided",
    seen="2.0-2.21",
)
FAMILY.harmless(
    "reduction_on_one_device",
    Text(
        "NCCL is not supported when using virtual GPUs, falling{:s} to reduction to one device",
        "tensorflow 2.21 tensorflow/python/distribute/cross_device_ops.py:1371",
    ),
    Text(
        "Efficient allreduce is not supported for {:d} IndexedSlices",
        "tensorflow 2.21 tensorflow/python/distribute/cross_device_ops.py:933",
    ),
    Text(
        "Collective ops is not configured at program startup. Some performance features may not be enabled",
        "tensorflow 2.21 tensorflow/python/distribute/collective_all_reduce_strategy.py:442",
    ),
    "Using MultiDeviceIterator",
    meaning="replicas add up in another way, which is slower and as right",
    seen="1.13-2.21",
)
FAMILY.harmless(
    "compiled_otherwise",
    Text("Ignoring Assert operator {}", "https://github.com/tensorflow/tensorflow/issues/82832"),
    Text(
        "Using tf.random.{:s} with XLA compilation will ignore seeds",
        "tensorflow 2.21 tensorflow/compiler/tf2xla/kernels/categorical_op.cc:132",
    ),
    Text(
        "TensorListSetItem: ignoring set item because the update dim",
        "tensorflow 2.21 tensorflow/compiler/tf2xla/kernels/tensor_list_utils.cc:514",
    ),
    "The operation {} is not supported by XLA {} auto-clustering",
    Text(
        "(One-time warning): Not using XLA:CPU for cluster because {}",
        "tensorflow 1.15 (NVIDIA) tensorflow/compiler/jit/mark_for_compilation_pass.cc:1821",
    ),
    meaning="XLA compiles the operation in its own way",
    seen="1.13-2.21",
)
FAMILY.harmless(
    "graph_left_as_it_is",
    Text(
        "Skipping loop optimization for Merge node {}",
        "tensorflow 2.21 tensorflow/core/grappler/optimizers/loop_optimizer.cc:939",
    ),
    Text(
        "Found no node from which a control edge can be added to scoped allocator node",
        "tensorflow 2.21 tensorflow/core/grappler/optimizers/scoped_allocator_optimizer.cc:597",
    ),
    Text("graph optimizer FAILED", "tensorflow 2.21 tensorflow/core/grappler/optimizers/auto_mixed_precision.cc:2339"),
    Text(
        "Failed to convert graph to MLIR: {}, continuing without MlirOptimizationPass",
        "tensorflow 2.21 tensorflow/compiler/mlir/mlir_graph_optimization_pass.cc:275",
    ),
    Text(
        "Input of {:w} will not be optimized because the dataset does not implement the AsGraphDefInternal() method",
        "tensorflow 2.21 tensorflow/core/framework/dataset.cc:994",
    ),
    "Optimization loop failed: {}",
    Text(
        "Type inference failed. This indicates an invalid graph that escaped type checking",
        "tensorflow 2.21 tensorflow/core/common_runtime/type_inference.cc:341",
    ),
    Text(
        "Importing a graph with a lower producer version {:d} into an existing graph with producer version {:d}",
        "tensorflow 2.21 tensorflow/core/common_runtime/graph_constructor.cc:1695",
    ),
    Text(
        "NodeDef mentions attribute {:w} which is not in the op definition",
        "tensorflow 2.21 tensorflow/core/framework/node_def_util.cc:681",
    ),
    Text(
        "Graph contains node {} that feeds into node {}",
        "tensorflow 2.21 tensorflow/compiler/tf2xla/functionalize_cond.cc:692",
    ),
    "Ignoring multi-device function optimization failure: {}",
    "Running all optimization passes in grouping {:d}. If you see this a lot",
    "function_optimizer failed: {}",
    "Node {} should have an ambiguous type",
    meaning="a graph, or a data set, is run as it is, without a step that would make it faster",
    seen="1.13-2.21",
)

# --- about the program, its data and its graphs ---------------------------------------------------------------

FAMILY.harmless(
    "executor_aborting",
    Text(
        "Executor start aborting (this does not indicate an error and you can ignore this message)",
        "https://github.com/stardist/stardist/issues/228",
    ),
    Text(
        "Error occurred when finalizing GeneratorDataset iterator: {}", "https://github.com/talmolab/sleap/issues/365"
    ),
    Text("Local rendezvous recv item cancelled", "tensorflow 2.21 tensorflow/core/framework/local_rendezvous.cc:426"),
    Text("Local rendezvous send item cancelled", "tensorflow 2.21 tensorflow/core/framework/local_rendezvous.cc:430"),
    Text("Your input ran out of data", "tensorflow 2.21 tensorflow/python/keras/engine/data_adapter.py:1237"),
    meaning="a data set has come to its end, or a step was stopped; an error that matters is raised as well",
    seen="2.11-2.21",
)
FAMILY.harmless(
    "layout_failed",
    Text("layout failed: {}", "https://github.com/tensorflow/tensorflow/issues/58621"),
    "remapper failed: {}",
    "constant_folding failed: {}",
    "model_pruner failed: {}",
    "arithmetic_optimizer failed: {}",
    "auto_mixed_precision failed: {}",
    "Graph Optimizer failed: {}",
    meaning="an optimiser leaves this graph as it is; results are the same, perhaps slower",
)
FAMILY.harmless(
    "no_autotune_memory",
    Text(
        "Failed to allocate memory for convolution redzone checking; skipping this check",
        "tensorflow 2.21 tensorflow/core/kernels/gpu_utils.cc:68",
    ),
    Text(
        "Failed to check cudnn convolutions for out-of-bounds reads and writes with an error message",
        "tensorflow 2.21 tensorflow/core/kernels/gpu_utils.cc:88",
    ),
    Text(
        "Failed to find best cuBLAS algorithm, GEMM performance might be suboptimal",
        "tensorflow 2.21 xla/service/gpu/autotuning/gemm_algorithm_picker.cc:419",
    ),
    Text(
        "Delay kernel timed out: measured time has sub-optimal accuracy",
        "tensorflow 2.21 xla/stream_executor/cuda/cuda_timer.cc:86",
    ),
    Text(
        "Autotuning candidate failed with out of memory error",
        "tensorflow 2.21 xla/service/gpu/autotuning/gemm_fusion_autotuner.cc:1190",
    ),
    Text("Slow kernel for {} took: {}", "tensorflow 2.21 xla/service/gpu/autotuning/gemm_fusion_autotuner.cc:1133"),
    Text(
        "As a result, convolution performance may be suboptimal",
        "tensorflow 2.21 xla/service/gpu/autotuning/conv_algorithm_picker.cc:1078",
    ),
    Text(
        "Omitted potentially buggy algorithm {} for conv",
        "tensorflow 2.21 xla/service/gpu/autotuning/conv_algorithm_picker.cc:546",
    ),
    Text(
        "Retry CUDA graph instantiation after OOM error",
        "tensorflow 2.21 xla/stream_executor/cuda/cuda_command_buffer.cc:740",
    ),
    "Compilation failed: {} Falling back to TF function call",
    Text(
        "Unable to copy dynamic shape buffer of size {:d} to host using pinned memory",
        "tensorflow 2.21 xla/service/gpu/gpu_transfer_manager.cc:199",
    ),
    Text(
        "All configs were filtered out because none of them sufficiently match the hints",
        "tensorflow 2.21 xla/service/gpu/autotuning/dot_search_space.cc:208",
    ),
    Text("Cudnn version is too old", "tensorflow 2.21 xla/backends/gpu/autotuner/cudnn.cc:87"),
    Text("Fusion is not supported by cudnn", "tensorflow 2.21 xla/backends/gpu/autotuner/cudnn.cc:100"),
    Text("Couldn't read CUDA driver version", "tensorflow 2.21 xla/service/gpu/nvptx_compiler.cc:513"),
    Text(
        "Overriding allow_growth setting because force_memory_growth was requested by the device",
        "tensorflow 2.21 tensorflow/core/common_runtime/pluggable_device/pluggable_device_bfc_allocator.cc:35",
    ),
    Text(
        "Could not query stream priority range. Returning default priority",
        "tensorflow 2.21 xla/stream_executor/cuda/cuda_stream.cc:77",
    ),
    Text(
        "To denylist this algorithm for this convolution",
        "tensorflow 2.21 xla/service/gpu/autotuning/conv_algorithm_picker.cc:713",
    ),
    Text(
        "This triggers a copy which can be a performance bottleneck",
        "tensorflow 2.21 tensorflow/core/common_runtime/eager/execute.cc:197",
    ),
    Text(
        "already exists. This usually only happens in unit tests",
        "tensorflow 2.21 tensorflow/core/common_runtime/gpu/gpu_device.cc:540",
    ),
    Text(
        "A PjRt GPU Client was previously created, but the addressable device count",
        "tensorflow 2.21 tensorflow/core/common_runtime/gpu/gpu_device.cc:1750",
    ),
    Text(
        "Unexpectedly returning OK STATUS in BaseGPUDeviceFactory::CreateDevices",
        "tensorflow 2.21 tensorflow/core/common_runtime/gpu/gpu_device.cc:1955",
    ),
    Text(
        "Ignoring error status when releasing multi-device function handle",
        "tensorflow 2.21 tensorflow/core/common_runtime/eager/kernel_and_device.cc:100",
    ),
    Text(
        "Unable to destroy server_ object, so releasing instead",
        "tensorflow 2.21 tensorflow/core/common_runtime/eager/context.cc:647",
    ),
    Text(
        "perhaps it wasn't enabled at process startup",
        "tensorflow 2.21 tensorflow/compiler/jit/mark_for_compilation_pass.cc:1870",
    ),
    "to take effect must be set at process startup",
    Text("Not loading plugin library {}", "tensorflow 2.21 tensorflow/core/framework/op_kernel.cc:1249"),
    Text("Cancellation callback {} is triggered due to a", "tensorflow 2.21 xla/tsl/framework/cancellation.cc:79"),
    Text("Loading UNSAFE library {}", "tensorflow 2.21 tensorflow/core/framework/op_kernel.cc:1240"),
    Text("Overriding double buffering set via", "tensorflow 2.21 xla/service/gpu/gpu_compiler.cc:1153"),
    Text(
        "Trying algorithm {} is taking a while",
        "tensorflow 2.21 xla/service/gpu/autotuning/conv_algorithm_picker.cc:588",
    ),
    Text("Very slow compile? If you want to file a bug", "tensorflow 2.21 xla/service/slow_operation_alarm.cc:169"),
    Text("The operation took {:s}", "tensorflow 2.21 xla/service/slow_operation_alarm.cc:140"),
    Text(
        "Constant folding an instruction is taking > {:s}",
        "tensorflow 2.21 xla/hlo/transforms/simplifiers/hlo_constant_folding.cc:391",
    ),
    Text(
        "Compiling {:d} configs for {} on a single thread",
        "tensorflow 2.21 xla/service/gpu/autotuning/gemm_fusion_autotuner.cc:1020",
    ),
    meaning="it concerns the choice or the compilation of algorithms: the first step is slower, results are right",
)
FAMILY.harmless(
    "compiled_cluster",
    Text(
        "Compiled cluster using XLA! This line is logged at most once for the lifetime of the process",
        "tensorflow 2.21 tensorflow/compiler/jit/device_compiler.h:208",
    ),
    Text("XLA service {:s} initialized for platform {}", "tensorflow 2.21 xla/service/service.cc:164"),
    Text(
        "XLA service {:s} executing computations on platform {}",
        "https://github.com/tensorflow/tensorflow/issues/39926",
    ),
    Text("StreamExecutor device ({:d}): {}", "tensorflow 2.21 xla/service/service.cc:171"),
    "StreamExecutor [{:d}]: {}",
    Text(
        "Not creating XLA devices, tf_xla_enable_xla_devices not set",
        "tensorflow 2.21 tensorflow/compiler/jit/xla_cpu_device.cc:49",
    ),
    Text("Using nvlink for parallel linking", "tensorflow 2.21 xla/stream_executor/cuda/subprocess_compilation.cc:487"),
    Text("Fallback to op-by-op mode because {}", "https://github.com/keras-team/keras/issues/19081"),
    "Used ptxas at {:s}",
    meaning="XLA says that it is used",
    seen="2.0-2.21",
)
FAMILY.harmless(
    "old_driver_jit",
    Text(
        "Your CUDA software stack is old. We fallback to the NVIDIA driver for some compilation",
        "https://github.com/microsoft/WSL/issues/6187",
    ),
    Text(
        "Falling back to the CUDA driver for PTX compilation; ptxas does not support CC {:v}",
        "tensorflow 2.21 xla/stream_executor/cuda/subprocess_compilation.cc:237",
    ),
    Text(
        "Falling back to compilation by driver",
        "tensorflow 2.21 tensorflow/compiler/mlir/tools/kernel_gen/transforms/gpu_kernel_to_blob_pass.cc:188",
    ),
    Text("Relying on driver to perform ptx compilation", "https://github.com/tensorflow/tensorflow/issues/50562"),
    Text(
        "redzone_allocator.cc:{:d}] {:w}: ptxas exited with non-zero error code {}",
        "https://github.com/tensorflow/tensorflow/issues/50562",
    ),
    "redzone_allocator.cc:{:d}] Not found: ./bin/ptxas not found",
    "redzone_allocator.cc:{:d}] {:w}: Failed to launch ptxas",
    "redzone_allocator.cc:{:d}] UNIMPLEMENTED: {}",
    Text("Modify $PATH to customize ptxas location", "https://github.com/tensorflow/tensorflow/issues/50562"),
    Text(
        "Invoking GPU asm compilation is supported on Cuda non-Windows platforms only",
        "https://github.com/tensorflow/models/issues/7640",
    ),
    meaning="ptxas is older than the GPU and the driver compiles in its place, which works and is slower",
    seen="2.4-2.21",
)
FAMILY.harmless(
    "older_than_ptx_compiler",
    "The NVIDIA driver's CUDA version is {driver:v} which is older than the PTX compiler version {ptxas:v}",
    meaning="the driver is older than ptxas, so XLA compiles one part after the other: this works and is slower",
    seen="2.10-2.18",
)
FAMILY.harmless(
    "loaded_cudnn",
    Text("Loaded cuDNN version {version:s}", "https://github.com/tianshilu/pMTnet/issues/11"),
    Text(
        "TensorFloat-32 will be used for the matrix multiplication",
        "https://github.com/tensorflow/tensorflow/issues/58859",
    ),
    Text(
        "Using CUDA malloc Async allocator for GPU",
        "tensorflow 2.21 tensorflow/core/common_runtime/gpu/gpu_process_state.cc:208",
    ),
    Text(
        "Using CUDA malloc allocator for GPU",
        "tensorflow 2.21 tensorflow/core/common_runtime/gpu/gpu_process_state.cc:200",
    ),
    Text("CPU Frequency: {:d} Hz", "tensorflow 2.21 xla/tsl/platform/profile_utils/cpu_utils.cc:114"),
    Text("Adding visible gpu devices: {}", "tensorflow 2.21 tensorflow/core/common_runtime/gpu/gpu_device.cc:2461"),
    Text("Found device {:d} with properties", "tensorflow 2.21 tensorflow/core/common_runtime/gpu/gpu_device.cc:2341"),
    Text(
        "Device interconnect StreamExecutor with strength {:d} edge matrix",
        "https://github.com/tensorflow/tensorflow/issues/22385",
    ),
    meaning="it says what was found or chosen",
    seen="1.x-2.21",
)
OPTIONAL_SYMBOL = FAMILY.harmless(
    "optional_symbol",
    Text("Could not load symbol {symbol:w} from {}", "https://github.com/nanoporetech/medaka/issues/472"),
    Text("undefined symbol: cublasGetSmCountTarget", "https://github.com/nanoporetech/medaka/issues/472"),
    meaning="cuDNN asks for a function that this cuBLAS does not have yet, and does without it",
    seen="cuDNN 8",
)
NO_GPU_AS_MEANT = FAMILY.harmless(
    "no_gpu_as_meant",
    Text("Could not load dynamic library 'cudart64_{:q}.dll'", "https://github.com/volotat/DiffMorph/issues/19"),
    Text("Could not load dynamic library 'libcudart.so.{:v}'", "https://github.com/yekaizhou/duet/issues/9"),
    Text(
        "Ignore above cudart dlerror if you do not have a GPU set up on your machine",
        "https://github.com/thanh-guong/master-thesis/issues/7",
    ),
    Text("cudart64_{:w}.dll not found", "https://github.com/tensorflow/tensorflow/issues/42811"),
    meaning="without a GPU it is nothing: TensorFlow uses the CPU. To use a GPU it needs its own CUDA",
    seen="2.0-2.10",
)
FAMILY.harmless(
    "fragmentation_advice",
    Text(
        "Garbage collection: deallocate free memory regions", "tensorflow 2.21 xla/tsl/framework/bfc_allocator.cc:382"
    ),
    Text(
        "Allocation of {:d} exceeds {:d}% of free system memory",
        "tensorflow 2.21 xla/tsl/framework/cpu_allocator_impl.cc:84",
    ),
    Text(
        "Allocation of {:d} exceeds {:d}% of system memory", "https://github.com/kalaspuffar/tensorflow-data/issues/9"
    ),
    Text(
        "Total allocated memory {:s}exceeds {:d}% of free system memory",
        "tensorflow 2.21 xla/tsl/framework/cpu_allocator_impl.cc:103",
    ),
    Text("Converting sparse IndexedSlices", "tensorflow 2.21 tensorflow/python/framework/indexed_slices.py:447"),
    Text(
        "Filling up shuffle buffer (this may take a while)",
        "tensorflow 2.21 tensorflow/core/kernels/data/shuffle_dataset_op.cc:455",
    ),
    Text("Shuffle buffer filled", "tensorflow 2.21 tensorflow/core/kernels/data/shuffle_dataset_op.cc:483"),
    Text(
        "The calling iterator did not fully read the dataset being cached",
        "tensorflow 2.21 tensorflow/core/kernels/data/cache_dataset_ops.cc:74",
    ),
    Text(
        "This can happen if you have an input pipeline similar to `dataset.cache().take(k).repeat()`",
        "tensorflow 2.21 tensorflow/core/kernels/data/cache_dataset_ops.cc:74",
    ),
    Text(
        "The CUDA FFT plan cache capacity of {:d} has been exceeded",
        "tensorflow 2.21 tensorflow/core/kernels/fft_ops.cc:552",
    ),
    meaning="it concerns memory of the computer or speed, not a fault",
    seen="2.0-2.21",
)
NO_CUDNN_KERNEL = FAMILY.harmless(
    "no_cudnn_kernel",
    Text(
        "will not use cuDNN kernels since it doesn't meet the",
        "https://github.com/JaeBinCHA7/Nested-U-Net-based-Real-time-Speech-Enhancement-Mobile-App/issues/5",
    ),
    Text(
        "will not use cuDNN kernel since it doesn't meet the", "https://github.com/tensorflow/tensorflow/issues/40944"
    ),
    meaning="the layer's arguments allow no kernel of cuDNN: the GPU is used, with a slower one",
    seen="2.0-2.15",
)
FAMILY.harmless(
    "metal_found",
    Text("Metal device set to: {device}", "https://github.com/tensorflow/tensorflow/issues/52672"),
    Text(
        "physical PluggableDevice (device: {:d}, name: METAL", "https://github.com/tensorflow/tensorflow/issues/52672"
    ),
    "runs slowly on M1/M2 Macs, please use the legacy",
    "There is a known slowdown when using v2.11+ Keras optimizers on M1/M2 Macs",
    Text("Plugin optimizer for device_type GPU is enabled", "https://github.com/rstudio/tensorflow/issues/558"),
    meaning="Apple's plug-in has found the GPU, and it is used",
    seen="tensorflow-metal",
)
FAMILY.harmless(
    "of_other_parts",
    Text(
        "Created TensorFlow Lite XNNPACK delegate for CPU",
        "tensorflow 2.21 tensorflow/lite/delegates/xnnpack/xnnpack_delegate.cc:612",
    ),
    Text(
        "Attempting to use a delegate that only supports static-sized tensors",
        "tensorflow 2.21 tensorflow/lite/core/subgraph.cc:2506",
    ),
    "tcmalloc: large alloc {:d} bytes",
    Text("Corrupt JPEG data: {}", "tensorflow 2.4.4 _pywrap_tensorflow_internal.so"),
    Text("libpng warning: {}", "tensorflow 2.4.4 _pywrap_tensorflow_internal.so"),
    Text("Found untraced functions such as {}", "tensorflow 2.21 tensorflow/python/saved_model/save.py:291"),
    Text(
        "Limited tf.compat.v2.summary API due to missing TensorBoard installation",
        "tensorflow 2.4.4 tensorflow/_api/v2/compat/v2/__init__.py:337",
    ),
    Text(
        "Limited tf.summary API due to missing TensorBoard installation", "tensorflow 2.4.4 tensorflow/__init__.py:370"
    ),
    Text(
        "TensorFlow Addons (TFA) has ended development and introduction of new features",
        "https://github.com/wwfish/tflite-model-maker-workaround/issues/2",
    ),
    Text(
        "Model was constructed with shape {} but it was called on an input with incompatible shape",
        "tensorflow 2.21 tensorflow/python/keras/engine/functional.py:633",
    ),
    Text(
        "The TensorFlow contrib module will not be included in TensorFlow 2.0",
        "tensorflow 2.21 tensorflow/api_template_v1.__init__.py:85",
    ),
    Text(
        "Error in loading the saved optimizer state. As a result, your model is starting with a freshly initialized",
        "tensorflow 2.21 tensorflow/python/keras/saving/hdf5_format.py:216",
    ),
    "Could not find TPU",
    "Unable to initialize backend 'tpu': {}",
    Text("Unable to initialize backend 'tpu_driver': {}", "https://github.com/nf-core/proteinfold/issues/284"),
    "Unable to initialize backend 'rocm': {}",
    "Unable to initialize backend 'interpreter': {}",
    "libprotobuf WARNING {}",
    Text(
        "Skipping full serialization of Keras layer",
        "tensorflow 2.21 tensorflow/python/keras/saving/saved_model/save_impl.py:76",
    ),
    Text(
        "compiletime version {:v} of module {:s} does not match runtime version {:v}",
        "tensorflow 2.4.4 fast_tensor_util.so",
    ),
    Text("Unexpectedly high number of iterations in HLO passes", "tensorflow 2.21 xla/hlo/pass/hlo_pass_fix.h:93"),
    Text("An interactive session is already active", "tensorflow 2.21 tensorflow/python/client/session.py:1799"),
    Text(
        "Results do not match the reference. This is likely a bug/unexpected loss of precision",
        "tensorflow 2.21 xla/service/gpu/autotuning/gemm_fusion_autotuner.cc:1067",
    ),
    meaning="it is of another part of the program than the GPU, which goes on",
    seen="all",
)
FAMILY.harmless(
    "searched_for_cuda",
    Text("Searched for CUDA in the following directories", "tensorflow 2.21 xla/pjrt/triton_cuda.cc:128"),
    Text(
        "You can choose the search directory by setting xla_gpu_cuda_data_dir",
        "tensorflow 2.21 xla/service/gpu/llvm_gpu_backend/nvptx_utils.cc:29",
    ),
    meaning="it says where XLA looks for the CUDA toolkit",
    seen="1.13-2.21",
)
FAMILY.add(
    Worth.HARMLESS,
    "searched_folder",
    pattern=r"(?:nvptx_compiler|gpu_backend_lib|cuda_libdevice_path|llvm_gpu_backend)\.cc:\d{1,5}\]\s{1,9}[./]\S{0,200}$",
    witness="https://github.com/tensorflow/tensorflow/issues/48810",
    words=("nvptx_compiler", "gpu_backend_lib", "cuda_libdevice_path", "llvm_gpu_backend"),
    meaning="a folder in which XLA looks for the CUDA toolkit",
    seen="1.13-2.14",
)
FAMILY.harmless(
    "driver_compiles",
    Text("Will back to the GPU driver for PTX", "https://github.com/tensorflow/tensorflow/issues/48810"),
    Text(
        "This is OK so long as you don't see a warning below about an out-of-date driver version",
        "https://github.com/tensorflow/tensorflow/issues/48810",
    ),
    Text("Couldn't read CUDA driver version", "tensorflow 2.21 xla/service/gpu/nvptx_compiler.cc:513"),
    meaning="the driver compiles in place of ptxas, which works and is slower",
    seen="1.13-2.3",
)
FAMILY.harmless(
    "retracing",
    Text(
        "triggered tf.function retracing",
        "tensorflow 2.21 tensorflow/python/eager/polymorphic_function/polymorphic_function.py:158",
    ),
    Text(
        "The following Variables were used a Lambda layer's call",
        "tensorflow 2.21 tensorflow/python/keras/layers/core.py:937",
    ),
    Text("AutoGraph could not transform", "tensorflow 2.21 tensorflow/python/autograph/impl/api.py:467"),
    Text(
        "Please report this to the TensorFlow team. When filing the bug, set the verbosity to 10",
        "tensorflow 2.21 tensorflow/python/autograph/impl/api.py:480",
    ),
    Text(
        "Callback method `{:w}` is slow compared to the batch time",
        "tensorflow 2.21 tensorflow/python/keras/callbacks.py:347",
    ),
    "Method (on_{:w}) is slow compared to the batch update",
    Text(
        "multiprocessing can interact badly with TensorFlow, causing nondeterministic deadlocks",
        "tensorflow 2.4.4 tensorflow/python/keras/utils/data_utils.py:534",
    ),
    Text(
        "Entity {} could not be transformed and will be executed as-is",
        "https://github.com/hill-a/stable-baselines/issues/574",
    ),
    Text(
        "The structure of `inputs` doesn't match the expected structure",
        "keras 3.15 keras/src/models/functional_test.py:242",
    ),
    Text("Do not pass an `input_shape`/`input_dim` argument to a layer", "keras 3.15 keras/src/layers/layer.py:287"),
    Text("Skipping variable loading for optimizer", "keras 3.15 keras/src/optimizers/base_optimizer.py:763"),
    Text("You are saving your model as an HDF5 file", "keras 3.15 keras/src/saving/saving_api.py:85"),
    Text(
        "Compiled the loaded model, but the compiled metrics have yet to be built",
        "tensorflow 2.21 tensorflow/python/keras/saving/saving_utils.py:318",
    ),
    Text(
        "No training configuration found in the save file",
        "tensorflow 2.21 tensorflow/python/keras/saving/hdf5_format.py:192",
    ),
    Text(
        "Detecting that an object or model or tf.train.Checkpoint is being deleted with unrestored values",
        "tensorflow 2.21 tensorflow/python/checkpoint/checkpoint.py:225",
    ),
    Text(
        "Value in checkpoint could not be found in the restored object",
        "tensorflow 2.21 tensorflow/python/checkpoint/checkpoint.py:234",
    ),
    Text("Gradients do not exist for variables", "tensorflow 2.21 tensorflow/python/keras/optimizer_v2/utils.py:79"),
    Text("Using a while_loop for converting {}", "tensorflow 2.21 tensorflow/python/ops/parallel_for/pfor.py:1129"),
    "Failed to load model specs proto",
    meaning="it concerns how the program is written, or its speed; the GPU is still used",
    seen="2.0-2.21",
)
FAMILY.harmless(
    "deprecated",
    Text(
        "is deprecated and will be removed in a future version",
        "tensorflow 2.21 tensorflow/python/keras/mixed_precision/loss_scale_optimizer.py:891",
    ),
    Text(
        "The name {:s} is deprecated. Please use {:s} instead",
        "tensorflow 2.21 tensorflow/python/util/deprecation.py:249",
    ),
    Text("Instructions for updating:", "tensorflow 2.21 tensorflow/python/util/deprecation.py:60"),
    Text(
        "will be removed in a future version. Instructions for updating",
        "tensorflow 2.21 tensorflow/python/util/deprecation_test.py:238",
    ),
    meaning="it concerns a later release",
    seen="all",
)
FAMILY.harmless(
    "slow_operation_alarm",
    "Slow Operation Alarm",
    "*** WARNING *** Invoking {:s} with version {:v}, which corresponds to a CUDA version <=12.6.2",
    Text(
        "(Note that this warning may be shown spuriously for CUDA 12.6",
        "tensorflow 2.21 xla/stream_executor/cuda/ptx_compiler_helpers.cc:140",
    ),
    Text(
        "Using fallback sort algorithm rather than SortRewriter", "tensorflow 2.21 xla/service/gpu/gpu_compiler.cc:735"
    ),
    meaning="it concerns compilation; it goes on",
)
FAMILY.harmless(
    "no_profiler",
    Text("Could not load dynamic library 'libcupti{:q}'", "https://github.com/openxla/xprof/issues/209"),
    "function cupti_interface_->{:s} failed with error CUPTI",
    Text(
        "CUPTI could not be loaded or symbol could not be found",
        "tensorflow 1.15 (NVIDIA) tensorflow/stream_executor/cuda/cupti_10_0.inc:10",
    ),
    "CUPTI initialization failed",
    "failed to open libcupti",
    "Could not find CUPTI",
    meaning="it concerns the profiler alone, which needs CUDA's extras/CUPTI/lib64 on LD_LIBRARY_PATH",
    seen="2.0-2.21",
)
FAMILY.harmless(
    "libraries_optional",
    Text(
        "Could not load dynamic library 'libnvinfer_plugin{:q}'", "https://github.com/jupyter/docker-stacks/issues/1002"
    ),
    "Could not load dynamic library 'libnccl{:q}'",
    "Could not load dynamic library 'libcusparseLt{:q}'",
    Text("NVSHMEM symbol {:s} not found in DSO", "tensorflow 2.21 xla/tsl/cuda/nvshmem_stub.cc:67"),
    "Could not load NVSHMEM",
    "NVSHMEM library is not available",
    Text(
        "TF-TRT Warning: Cannot dlopen some TensorRT", "https://github.com/TheLastBen/fast-stable-diffusion/issues/1580"
    ),
    Text(
        "If you would like to use Nvidia GPU with TensorRT, please make sure the missing libraries mentioned above",
        "https://github.com/jupyter/docker-stacks/issues/1002",
    ),
    Text("Linked TensorRT version: {}", "tensorflow 2.21 tensorflow/python/compiler/tensorrt/trt_convert.py:234"),
    Text("Loaded TensorRT version: {}", "tensorflow 2.21 tensorflow/python/compiler/tensorrt/trt_convert.py:235"),
    meaning="the library is optional",
    seen="2.0-2.21",
)
FAMILY.harmless(
    "cpu_notices",
    Text(
        "Your CPU supports instructions that this TensorFlow binary was not compiled to use",
        "https://github.com/tensorflow/tensorflow/issues/30594",
    ),
    Text(
        "The TensorFlow library wasn't compiled to use {:s} instructions, but these are available on your machine",
        "https://github.com/tensorflow/tensorflow/issues/7652",
    ),
    Text(
        "could not convert SysFS file contents to integral NUMA node value",
        "tensorflow 2.21 xla/stream_executor/gpu/read_numa_node.cc:81",
    ),
    Text("no PCI bus ID for device ordinal", "tensorflow 2.21 xla/stream_executor/gpu/read_numa_node.cc:41"),
    Text(
        "None of the MLIR Optimization Passes are enabled",
        "tensorflow 2.21 tensorflow/compiler/mlir/mlir_graph_optimization_pass.cc:222",
    ),
    Text("None of the MLIR optimization passes are enabled", "https://github.com/fubarlabs/foocars/issues/66"),
    Text(
        "MLIR V1 optimization pass is not enabled",
        "tensorflow 2.21 tensorflow/compiler/mlir/mlir_graph_optimization_pass.cc:437",
    ),
    "Tuning is enabled for the dataset",
    Text(
        "Creating new thread pool with default inter op setting",
        "tensorflow 2.21 tensorflow/core/common_runtime/process_util.cc:147",
    ),
    "libpng warning: iCCP: known incorrect sRGB profile",
    "TensorFlow was not built with TensorRT support",
    "User settings: KMP_AFFINITY",
    Text("Failed to find bogomips {}", "tensorflow 2.21 xla/tsl/platform/profile_utils/cpu_utils.cc:119"),
    Text("Failed to get CPU frequency: {:d} Hz", "tensorflow 2.21 xla/tsl/platform/profile_utils/cpu_utils.cc:145"),
    Text(
        "Could not identify NUMA node",
        "tensorflow 2.21 tensorflow/core/common_runtime/pluggable_device/pluggable_device_factory.cc:305",
    ),
    "Could not determine NUMA node of device ordinal {:d}",
    Text(
        "OMP_NUM_THREADS is no longer used by the default Keras config",
        "tensorflow 2.21 tensorflow/python/keras/backend.py:800",
    ),
    Text("Number of outputs changed between runs", "tensorflow 2.21 tensorflow/core/util/stat_summarizer.cc:50"),
    meaning="it concerns the CPU, its threads or the nearness of memory",
    seen="1.x-2.21",
)
FAMILY.harmless(
    "autograph_pydot",
    Text("You must install pydot", "tensorflow 2.21 tensorflow/python/keras/utils/vis_utils.py:102"),
    Text(
        "TensorFlow Addons (TFA) has ended development",
        "https://github.com/wwfish/tflite-model-maker-workaround/issues/2",
    ),
    Text(
        "The versions of TensorFlow you are currently using is {} and is not supported",
        "https://github.com/wwfish/tflite-model-maker-workaround/issues/2",
    ),
    "TensorFlow GPU support is not available on native Windows for TensorFlow >= 2.11",
    Text("pkg_resources is deprecated as an API", "uv 0.12.5 test/ecosystem/home-assistant-core/pyproject.toml:527"),
    "NotOpenSSLWarning: urllib3 v2 only supports OpenSSL",
    "Unable to import tensorflow_text",
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
