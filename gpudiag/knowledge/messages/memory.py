"""Messages about a GPU's memory that is used up."""

from __future__ import annotations

from gpudiag.fix import Kind, Role, check, edit, edit_note, export, nvidia_smi, run
from gpudiag.knowledge.fault import Confidence, Stage
from gpudiag.knowledge.message import MessageFamily

_REFUSED = ("NOT_INITIALIZED", "ALLOC_FAILED", "INTERNAL_ERROR")
"""The statuses with which a library refuses a handle."""

FAMILY = MessageFamily("memory", stage=Stage.MEMORY)

DEVICE_FULL = FAMILY.fault(
    "device_full",
    # A GPU that fails refuses memory, too, by another code.
    pattern=r"failed to allocate \S{1,40} \(\d{1,30} bytes\) from device(?!.{0,120}?CUDA_ERROR_(?!OUT_OF_MEMORY))|"
    r"failed\. Status: out of memory|\bCUDA_ERROR_OUT_OF_MEMORY\b|\bcudaErrorMemoryAllocation\b",
    words=("allocate", "status", "cuda_error_out_of_memory", "cudaerrormemoryallocation"),
    meaning="the GPU itself has no memory left",
    fix=(
        nvidia_smi("shows which processes hold it; a notebook keeps its memory until its kernel is restarted"),
        export("TF_FORCE_GPU_ALLOW_GROWTH", "true", "makes TensorFlow take memory only as needed"),
        edit_note("use a smaller batch, or smaller inputs"),
    ),
)
HOST_FULL = FAMILY.fault(
    "host_full",
    meaning="a tensor does not fit into the computer's memory (TensorFlow's allocator {code}); GPU "
    "memory is not what is missing",
    in_general="a tensor does not fit into the computer's memory; GPU memory is not what is missing",
    fix=(
        edit_note(
            "use a smaller batch, and read data piece by piece: tf.data.Dataset.from_generator "
            "instead of from_tensor_slices of a whole array; no cache() in memory"
        ),
        check("free -h; ulimit -v", "shows the computer's free memory, and the program's limit"),
    ),
    stage=Stage.PROGRAM,
    url="https://www.tensorflow.org/guide/data_performance#reducing_memory_footprint",
)
_OF_THE_HOST = dict.fromkeys(("cpu", "mklcpu", "cuda_host_bfc", "gpu_host_bfc"), HOST_FULL)
"""Names of TensorFlow's allocators of host memory; those of GPU memory have names such as GPU_0_bfc."""
POOL_FULL = FAMILY.fault(
    "pool_full",
    "OOM when allocating tensor{:m} by allocator {code:w}",
    "OOM when allocating tensor",
    "Allocator ({code:w}) ran out of memory trying to allocate",
    ") ran out of memory trying to allocate",
    "bfc_allocator.cc:{:d}] Sum Total of in-use chunks: {}",
    "failed to allocate memory [Op:{}",
    "RESOURCE_EXHAUSTED: failed to allocate memory",
    "ResourceExhaustedError: failed to allocate memory",
    meaning="the GPU memory that TensorFlow took is used up",
    fix=(
        edit_note("use a smaller batch, or smaller inputs: memory grows with the batch"),
        nvidia_smi("shows whether another process takes GPU memory"),
        edit("tf.keras.mixed_precision.set_global_policy('mixed_float16')", "activations take half the memory"),
    ),
    codes=_OF_THE_HOST,
    needs_device=True,
)
OOM_HINT = FAMILY.fault(
    "oom_hint",
    "Hint: If you want to see a list of allocated tensors when OOM happens",
    meaning="the model, its batch or its data need more memory than TensorFlow has on the GPU",
    fix=POOL_FULL.fix,
    symptom=True,
    needs_device=True,
)
FAMILY.fault(
    "pool_tiny",
    pattern=r"(?:total_region_allocated_bytes_|Total bytes in pool): \d{1,20} memory_limit_: (?P<bytes>\d{1,8}) "
    r"available bytes: \d{1,20}(?: curr_region_allocation_bytes_: \d{1,20})?|"
    r"Created (?:TensorFlow )?device \(?\S{1,200} with (?P<mib>\d{1,2}) MB memory(?!\) -> physical PluggableDevice)",
    words=("memory_limit_", "created"),
    meaning="TensorFlow got less than 100 MB of the GPU's memory: other processes hold the rest",
    fix=(
        nvidia_smi(
            "shows which processes hold it: end them; a notebook keeps its memory until its kernel is restarted"
        ),
        export("TF_FORCE_GPU_ALLOW_GROWTH", "true", "set it for each program that shares the GPU"),
    ),
    needs_device=True,
    seen="1.x-2.21",
)
LIMIT_REACHED = FAMILY.fault(
    "limit_reached",
    "Not enough memory to allocate {} within provided limit",
)
NO_HANDLE = FAMILY.fault(
    "no_handle",
    "{:w} create {:w} handle: CUBLAS_STATUS_NOT_INITIALIZED",
    "{:w} create {:w} handle: CUBLAS_STATUS_ALLOC_FAILED",
    "{:w} create {:w} handle: CUDNN_STATUS_NOT_INITIALIZED",
    "{:w} create {:w} handle: CUDNN_STATUS_ALLOC_FAILED",
    "{:w} create {:w} handle: CUDNN_STATUS_INTERNAL_ERROR",
    "failed to create cublas handle: the library was not initialized",
    "failed to create cublas handle: the resource allocation failed",
    "failed to create cublas handle: an internal operation failed",
    "{:w} create {:w} handle: CUBLAS_STATUS_INTERNAL_ERROR",
    meaning="a library of NVIDIA's could not start on the GPU",
)
JAX_FULL = FAMILY.fault(
    "jax_full",
    "XlaRuntimeError: RESOURCE_EXHAUSTED",
    "JaxRuntimeError: RESOURCE_EXHAUSTED",
    seen="JAX",
)
TORCH_FULL = FAMILY.fault(
    "torch_full",
    "RuntimeError: CUDA out of memory",
    "OutOfMemoryError: CUDA out of memory",
    "CUDA out of memory. Tried to allocate",
    "OutOfMemoryError: Allocation on device",
    "RuntimeError: CUDA error: CUBLAS_STATUS_NOT_INITIALIZED",
    "RuntimeError: CUDA error: CUBLAS_STATUS_ALLOC_FAILED",
    meaning="PyTorch finds too little free memory on the GPU: the program needs more than the GPU has, or another "
    "process holds it",
    fix=(
        edit_note("use a smaller batch, smaller inputs, or a model of half precision"),
        nvidia_smi(
            "shows memory and processes: end the others; a notebook keeps its memory until its kernel is restarted"
        ),
    ),
    confidence=Confidence.POSSIBLE,
    seen="PyTorch",
)
FAMILY.fault(
    "torch_full_by_another",
    "CUDA out of memory. Tried to allocate {}Process {pid:d} has {held:v} GiB memory in use. {}this process has",
    meaning="another process, {pid}, holds {held} GiB of the GPU's memory, and PyTorch finds too little",
    in_general="another process holds the GPU's memory, and PyTorch finds too little",
    fix=(
        run("kill {pid}", "if it is yours and no longer needed: ps -p {pid} shows what it is", kind=Kind.END_PROCESS),
        export("CUDA_VISIBLE_DEVICES", "1", "or another GPU that is free, by nvidia-smi"),
        edit_note("or use a smaller batch beside it"),
    ),
    seen="PyTorch",
)
FAMILY.fault(
    "torch_fragmented",
    "CUDA out of memory. Tried to allocate {} and {pieces:v} GiB is reserved by PyTorch but unallocated",
    meaning="PyTorch holds {pieces} GiB of the GPU's memory that no tensor uses: it is fragmented into pieces that "
    "are too small",
    in_general="PyTorch holds memory of the GPU that no tensor uses, fragmented into pieces that are too small",
    fix=(
        export("PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:True", "lets PyTorch join the pieces; Linux"),
        export("PYTORCH_CUDA_ALLOC_CONF", "max_split_size_mb:128", "with PyTorch before 2.1", role=Role.ALTERNATIVE),
        edit_note("or use a smaller batch, or smaller inputs"),
    ),
    confidence=Confidence.POSSIBLE,
    seen="PyTorch",
)
JAX_AT_WORK = FAMILY.sign("jax_at_work", "-packages/jax/", "-packages/jaxlib/", "-packages\\jax\\", seen="JAX")
TORCH_AT_WORK = FAMILY.sign("torch_at_work", "-packages/torch/", "-packages\\torch\\", seen="PyTorch")
