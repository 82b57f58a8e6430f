"""Examples of causes: memory that is somebody else's, or less than a program assumes."""

from __future__ import annotations

import msgspec

from examples import Example
from examples.facts import example_gpu, example_with_gpus
from examples.machines import example_driver, example_evidence
from gpudiag.cause import Evidence
from gpudiag.model.facts import (
    ContainerFacts,
    EnvironmentFacts,
    Facts,
    GpuProcess,
    MpsFacts,
    NvmlFacts,
    TriedFacts,
)
from gpudiag.model.report import Finding, Judged, Row, Severity


def _machine(*used_gib: float, pid: int | None = 4711, computes: bool = True, **variables: str) -> Facts:
    """Return a machine with a GPU of 40 GiB for each of ``used_gib``, held by one process; None: NVML lists none."""
    devices = []
    for index, used in enumerate(used_gib):
        size = int(used * (1 << 30))
        processes = (GpuProcess(pid, size, computes),) if pid is not None and size else ()
        devices.append(msgspec.structs.replace(example_gpu(index), memory_used_bytes=size, processes=processes))
    return example_with_gpus(
        len(devices),
        nvml=NvmlFacts(None, "535.104.05", "12.2", tuple(devices)),
        environment=EnvironmentFacts(variables),
    )


def _failed(facts: Facts, message: str, kind: str = "creation_failed") -> Evidence:
    """Return a machine on which the check's own device could not be created."""
    finding = Finding(kind, Severity.FAIL, message)
    return Evidence(facts, rows=(Row("discovery.logical_devices", (), Judged((finding,)), 0.0),))


def _limited(address_space_bytes: int | None, used_gib: float = 0) -> Facts:
    container = ContainerFacts(None, (), False, None, address_space_bytes=address_space_bytes)
    return msgspec.structs.replace(_machine(used_gib), container=container)


def _by_mps(daemon: MpsFacts) -> Facts:
    return msgspec.structs.replace(_machine(0), tried=TriedFacts(mps=daemon))


def _not_started(facts: Facts, error: str) -> Evidence:
    return example_evidence(facts, cuinit=error)


def _log(facts: Facts, *log: str) -> Evidence:
    return Evidence(facts, lines=log)


def _made(mib: int, thread: int = 7) -> str:
    return (
        f"I0000 00:00:1.2 {thread} gpu_device.cc:2043] Created device /job:localhost/replica:0/task:0/device:GPU:0 "
        f"with {mib} MB memory:  -> device: 0, name: NVIDIA A100, pci bus id: 0000:01:00.0, compute capability: 8.0"
    )


_SET_DEVICE = "InternalError: cudaSetDevice() on GPU:0 failed. Status: out of memory"
_FROM_DEVICE = (
    "I0000 00:00:1.2 7 cuda_executor.cc:1] failed to allocate 5.34GiB (5729419264 bytes) from device: "
    "RESOURCE_EXHAUSTED: : CUDA_ERROR_OUT_OF_MEMORY: out of memory"
)
_NO_FAILURE = (
    "W0000 00:00:1795261972.783104   16176 bfc_allocator.cc:310] Allocator (GPU_0_bfc) ran out of memory trying to "
    "allocate 2.01GiB with freed_by_count=0. The caller indicates that this is not a failure, but this may mean that "
    "there could be performance gains if more memory were available."
)
_OOM = (
    "ResourceExhaustedError: OOM when allocating tensor with shape[1024,1024,1024] and type float on "
    "/job:localhost/replica:0/task:0/device:GPU:0 by allocator GPU_0_bfc [Op:Fill]"
)
_CUBLAS = "E0000 00:00:1.2 7 cuda_blas.cc:9] failed to create cublas handle: CUBLAS_STATUS_NOT_INITIALIZED"
_CUDNN = "E0000 00:00:1.2 7 cuda_dnn.cc:9] Could not create cudnn handle: CUDNN_STATUS_INTERNAL_ERROR"
_CUDNN_VERSION = (
    "E0000 00:00:1.2 7 cuda_dnn.cc:9] Loaded runtime CuDNN library: 9.1.0 but source was compiled with: 9.3.0."
)
_JAX = (
    "jaxlib.xla_extension.XlaRuntimeError: RESOURCE_EXHAUSTED: Out of memory while trying to allocate 2147483648 bytes."
)
_TORCH = (
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 39.39 GiB"
)
_JAX_FRAME = '  File "/venv/lib/python3.11/site-packages/jax/_src/api.py", line 150, in cache_miss'
_PAST = (
    "W0000 00:00:1.2 7 cuda_executor.cc:1] Not enough memory to allocate 2000000000 on device 0 within provided limit."
    "  limit=1048576000]"
)
_WORKERS = ("[gw0] linux -- Python 3.11.7 /venv/bin/python", "[gw1] linux -- Python 3.11.7 /venv/bin/python")
EXAMPLES: dict[str, tuple[Example, ...]] = {
    "memory_held_by_others": (
        Example("here, the other GPU is free", _failed(_machine(39.5, 0), _SET_DEVICE)),
        Example("here", _failed(_machine(39.5), _SET_DEVICE)),
        Example(
            "here, the other GPU is free and hidden",
            _failed(_machine(39.5, 0, CUDA_VISIBLE_DEVICES="0"), _SET_DEVICE),
        ),
        Example("in the log, still held", _log(_machine(39.5), _FROM_DEVICE)),
        Example("in the log, of another day", _log(_machine(0), _FROM_DEVICE)),
        Example("held, and nothing failed", _log(_machine(39.5)), fires=False),
        Example("another failure", _failed(_machine(39.5), "InternalError: device busy"), fires=False),
        Example("NVML shows that nobody holds it", _failed(_machine(0, 2), _SET_DEVICE), fires=False),
        Example("NVML tells no memory", _failed(_machine(), _SET_DEVICE)),
        Example("JAX holds it", _log(_machine(0), _FROM_DEVICE, _JAX_FRAME), fires=False),
        Example("other workers hold it", _log(_machine(0), _FROM_DEVICE, *_WORKERS), fires=False),
    ),
    "address_space_limited": (
        Example("10 GiB", _failed(_limited(10 << 30), _SET_DEVICE)),
        Example(
            "the driver does not start", _not_started(_limited(10 << 30), "CUDA_ERROR_OUT_OF_MEMORY: out of memory")
        ),
        Example("no limit", _failed(_limited(None), _SET_DEVICE), fires=False),
        Example("it works", Evidence(_limited(10 << 30)), fires=False),
        Example("another code", _not_started(_limited(10 << 30), "CUDA_ERROR_UNKNOWN: unknown error"), fires=False),
        Example("the memory is taken", _failed(_limited(10 << 30, 39.5), _SET_DEVICE), fires=False),
    ),
    "mps_limits_memory": (
        Example("a client of MPS", _failed(_machine(0, CUDA_MPS_PINNED_DEVICE_MEM_LIMIT="0=200M"), _SET_DEVICE)),
        Example(
            "the GPU is full",
            _failed(_machine(39.5, CUDA_MPS_PINNED_DEVICE_MEM_LIMIT="0=2G"), _SET_DEVICE),
            fires=False,
        ),
        Example("no limit", _failed(_machine(0), _SET_DEVICE), fires=False),
        Example(
            "a limit in the daemon, as in https://github.com/NVIDIA/k8s-device-plugin/issues/764",
            _failed(_by_mps(MpsFacts(None, {"0": 4606 << 20}, "", "/mps/nvidia.com/gpu/log/control.log")), _SET_DEVICE),
        ),
        Example(
            "a daemon that cannot be asked",
            _failed(_by_mps(MpsFacts(why_not="nvidia-cuda-mps-control is not here")), _SET_DEVICE),
            fires=False,
        ),
        Example(
            "HAMi, as in https://github.com/Project-HAMi/HAMi/issues/662",
            _failed(_machine(0, CUDA_DEVICE_MEMORY_LIMIT_0="3000m"), _SET_DEVICE),
        ),
        Example(
            "HAMi's list of libraries may not be read by this user",
            _failed(
                msgspec.structs.replace(
                    _machine(0, CUDA_DEVICE_MEMORY_LIMIT_0="3000m"),
                    driver=msgspec.structs.replace(example_driver(), preload_error="EACCES"),
                ),
                _SET_DEVICE,
            ),
            fires=False,
        ),
        Example("HAMi, and nothing failed", Evidence(_machine(0, CUDA_DEVICE_MEMORY_LIMIT="3g")), fires=False),
    ),
    "out_of_memory_with_room": (
        Example("nobody holds any", _failed(_machine(0), _SET_DEVICE)),
        Example(
            "a daemon of MPS that cannot be asked",
            _failed(_by_mps(MpsFacts(why_not="nvidia-cuda-mps-control is not here")), _SET_DEVICE),
        ),
        Example("addresses are limited", _failed(_limited(10 << 30), _SET_DEVICE), fires=False),
        Example("the display holds some", _failed(_machine(0, 2), _SET_DEVICE)),
        Example("another process holds one", _failed(_machine(0, 39.5), _SET_DEVICE), fires=False),
        Example("NVML tells no memory", _failed(_machine(), _SET_DEVICE), fires=False),
        Example("another failure", _failed(_machine(0), "InternalError: device busy"), fires=False),
        Example("in the log, of another day", _log(_machine(0), _FROM_DEVICE), fires=False),
    ),
    "no_room_for_libraries": (
        Example("cuBLAS, the pool has all", _log(_machine(0), _made(38000), _CUBLAS)),
        Example("cuDNN, another process has all", _log(_machine(39.9), _CUDNN)),
        Example("cuDNN, nothing else is known", _log(_machine(0), _CUDNN)),
        Example("cuDNN of another version", _log(_machine(0), _CUDNN_VERSION, _CUDNN), fires=False),
        Example("only the pool", _log(_machine(0), _made(38000)), fires=False),
    ),
    "more_than_the_limit": (
        Example("a limit of 512", _log(_machine(0.9), _made(512, 4711))),
        Example("another process", _log(_machine(0.9), _made(512, 7)), fires=False),
        Example("within the limit", _log(_machine(0.4), _made(512, 4711)), fires=False),
        Example("no limit of its own", _log(_machine(39), _made(38000, 4711)), fires=False),
    ),
    "memory_shared_with_framework": (
        Example("JAX finds none", _log(_machine(0), _made(38000), _JAX)),
        Example("PyTorch finds none", _log(_machine(0), _made(38000), _TORCH)),
        Example("TensorFlow finds none", _log(_machine(0), _made(38000), _JAX_FRAME, _FROM_DEVICE)),
        Example(
            "JAX finds none, and TensorFlow is not there", _log(_machine(0), _JAX_FRAME, _FROM_DEVICE), fires=False
        ),
        Example("JAX alone", _log(_machine(0), _JAX), fires=False),
        Example("TensorFlow alone", _log(_machine(0), _made(38000), _FROM_DEVICE), fires=False),
    ),
    "little_memory_left": (
        Example("another job", _log(_machine(38))),
        Example("the display", _log(_machine(38, computes=False))),
        Example("nobody that NVML lists", _log(_machine(38, pid=None))),
        Example("one of two", _log(_machine(0, 38))),
        Example("a large reserve", _log(_machine(0, TF_DEVICE_MIN_SYS_MEMORY_IN_MB="38000"))),
        Example("in the log, of another day", _log(_machine(0), _made(900), _OOM)),
        Example("a small pool, and enough", _log(_machine(0), _made(900)), fires=False),
        Example("another job has three quarters", _log(_machine(30))),
        Example("half is left", _log(_machine(20)), fires=False),
        Example("the display has three quarters", _log(_machine(30, computes=False)), fires=False),
        Example("a small reserve", _log(_machine(0, TF_DEVICE_MIN_SYS_MEMORY_IN_MB="3000")), fires=False),
        Example("hidden", _log(_machine(38, 0, CUDA_VISIBLE_DEVICES="1")), fires=False),
    ),
    "tensors_do_not_fit": (
        Example("a large tensor", _log(_machine(0), _made(38000), _OOM)),
        Example("caught, it seems", _log(_machine(0), _made(38000), _OOM, "Epoch 1/10")),
        Example("another process has all", _log(_machine(39), _made(38000), _OOM), fires=False),
        Example("there was little", _log(_machine(0), _made(900), _OOM), fires=False),
        Example("a variable limits it", _log(_machine(0), _PAST, _OOM), fires=False),
        Example("TensorFlow says it is none", _log(_machine(0), _made(38000), _NO_FAILURE), fires=False),
        Example("nothing failed", _log(_machine(0), _made(38000)), fires=False),
    ),
    "limited_by_variable": (
        Example("set here", _log(_machine(0, TF_PER_DEVICE_MEMORY_LIMIT_MB="1000"), _PAST)),
        Example("set by the program", _log(_machine(0), _PAST)),
        Example("set, and enough", _log(_machine(0, TF_PER_DEVICE_MEMORY_LIMIT_MB="1000")), fires=False),
    ),
}
