"""GPUs whose memory is somebody else's, or less than a program assumes."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

import msgspec

from gpudiag.diagnosis.machine import failing_gpus, hidden_and_free, reset_command
from gpudiag.diagnosis.rule import Evidence, Match, Rule, RuleCase
from gpudiag.diagnosis.steps import cuinit_error
from gpudiag.hostfacts import (
    EnvironmentFacts,
    Facts,
    GpuProcess,
    NvmlDevice,
    NvmlFacts,
    example_gpu,
    example_with_gpus,
)
from gpudiag.knowledge.log import (
    CUDA_UNKNOWN,
    CUDNN_OLDER,
    DEVICE_CREATED,
    DEVICE_FULL,
    GPU_FAILED,
    JAX_AT_WORK,
    JAX_FULL,
    LIMIT_REACHED,
    NO_HANDLE,
    POOL_FULL,
    STRAY_ACCESS,
    TORCH_AT_WORK,
    TORCH_FULL,
    Message,
)
from gpudiag.log import Log, ended_by, text
from gpudiag.model import Broken, Figure, Finding, Judged, Row, Severity, Stage, Sure
from gpudiag.scope import IDLE_BYTES, gpus_in_scope

_RESERVE = "TF_DEVICE_MIN_SYS_MEMORY_IN_MB"
_LIMIT = "TF_PER_DEVICE_MEMORY_LIMIT_MB"
_LITTLE = 1 / 8
"""Part of a GPU's memory; where less is free, hardly any program does what it was made for."""
_ROOM_BYTES = 1 << 30
"""Free memory in which a CUDA context fits."""
_HANDLE_BYTES = 500 << 20
"""What cuBLAS and cuDNN need beside TensorFlow's pool, roughly."""
_GROW = (
    "for gpu in tf.config.list_physical_devices('GPU'): tf.config.experimental.set_memory_growth(gpu, True)"
    "  # before the first operation"
)
_GROW_BY_VARIABLE = "export TF_FORCE_GPU_ALLOW_GROWTH=true  # the same with no change to the program"

_OF_FRAMEWORKS = (JAX_FULL, TORCH_FULL, JAX_AT_WORK, TORCH_AT_WORK)


def _gib(size: float) -> str:
    return f"{size / (1 << 30):.1f} GiB"


def _devices(evidence: Evidence) -> tuple[NvmlDevice, ...]:
    """Return the GPUs in scope whose memory NVML tells; it does not tell that of a single MIG instance."""
    chosen = {gpu.pci_bus_id for gpu in gpus_in_scope(evidence.facts)}
    return tuple(
        device
        for device in evidence.facts.nvml_devices
        if device.pci_bus_id in chosen and device.memory_total_bytes and device.mig_mode != "enabled"
    )


def _free(device: NvmlDevice) -> int:
    return device.memory_total_bytes - device.memory_used_bytes


def _holders(device: NvmlDevice) -> str:
    """Say who holds memory of a GPU."""
    known = [
        f"{'process' if one.computes else 'the drawing process'} {one.pid} holds "
        + ("some, NVML does not tell how much" if one.used_bytes is None else _gib(one.used_bytes))
        for one in sorted(device.processes, key=lambda one: -(one.used_bytes or 0))
    ]
    if not known and device.memory_used_bytes > IDLE_BYTES:
        known = ["a process that NVML does not list holds the rest"]
    return "; ".join([f"GPU {device.index}: {_gib(_free(device))} of {_gib(device.memory_total_bytes)} free", *known])


def _checked(evidence: Evidence, message: Message) -> tuple[str, ...]:
    """Return who said ``message`` of what discovery's probes, which fill no memory, met."""
    met = []
    for row in evidence.rows:
        if row.area == "discovery":
            met += [row.outcome.detail] if isinstance(row.outcome, Broken) else [one.message for one in row.findings]
            met += row.log if isinstance(row.outcome, Broken) or row.findings else ()
    return Log(met).said(message, most=1)


def _shared_otherwise(evidence: Evidence) -> bool:
    """Return True where the log shows who it shares the GPU with: another framework, or other workers of its tests."""
    return evidence.program.first(*_OF_FRAMEWORKS) is not None or evidence.program.workers > 1


def _held_by_others(evidence: Evidence) -> Iterator[Match]:
    here = _checked(evidence, DEVICE_FULL)
    said = evidence.program.said(DEVICE_FULL)
    if (not here and (not said or _shared_otherwise(evidence))) or _refused_with_room(evidence):
        return
    taken = [device for device in _devices(evidence) if device.memory_used_bytes > device.memory_total_bytes / 2]
    free = [device for device in _devices(evidence) if device.memory_used_bytes < device.memory_total_bytes / 4]
    pids = [str(one.pid) for device in taken for one in device.processes]
    uuids = ",".join(
        gpu.uuid for gpu in gpus_in_scope(evidence.facts) if gpu.pci_bus_id in {d.pci_bus_id for d in free}
    )
    other = f"export CUDA_VISIBLE_DEVICES={uuids}  # or another GPU" if uuids else hidden_and_free(evidence)
    yield Match(
        evidence=(*(here or said), *(map(_holders, taken) if taken else ["NVML shows nobody who holds it now"])),
        sure=(Sure.PROVED if here else Sure.LIKELY) if taken else Sure.POSSIBLE,
        figures={
            "who": f"process {', '.join(dict.fromkeys(pids))}" if pids else "another process",
            "look": f"ps -o pid,user,etime,args -p {','.join(dict.fromkeys(pids))}" if pids else "nvidia-smi",
            "grow": _GROW,
            "variable": _GROW_BY_VARIABLE,
            "other": other if taken else "",
        },
        change={"CUDA_VISIBLE_DEVICES": uuids} if here and taken and uuids else None,
    )


def _refused_with_room(evidence: Evidence) -> tuple[str, ...]:
    """Return the refusals that discovery's probes met for want of memory, where NVML shows room on every GPU."""
    devices = _devices(evidence)
    room = bool(devices) and all(_free(device) > max(_ROOM_BYTES, device.memory_total_bytes / 2) for device in devices)
    return _checked(evidence, DEVICE_FULL) if room else ()


def _refused_without_reason(evidence: Evidence) -> Iterator[Match]:
    if refused := _refused_with_room(evidence):
        yield Match(
            evidence=(*refused, *map(_holders, _devices(evidence))),
            sure=Sure.POSSIBLE,
            figures={"reset": reset_command(evidence, [gpu.index for gpu in failing_gpus(evidence)])},
            stage=Stage.DRIVER if "OUT_OF_MEMORY" in cuinit_error(evidence) else None,
        )


def _little_left(evidence: Evidence) -> Iterator[Match]:
    if any(_held_by_others(evidence)):
        return
    yield from _little_now(evidence) or _little_then(evidence)


def _little_now(evidence: Evidence) -> list[Match]:
    value = evidence.facts.variables.get(_RESERVE, "")
    reserve = int(value) << 20 if value.isdecimal() else 0
    left = {}
    for device in _devices(evidence):
        free = _free(device) - (reserve if reserve < _free(device) else 0)
        if free < device.memory_total_bytes * _LITTLE:
            left[device] = free
    if not left:
        return []
    device = min(left, key=lambda one: left[one])
    reserved = left[device] < _free(device)
    seen = [*map(_holders, left), *([f"{_RESERVE}={value}"] if reserved else [])]
    first = f"unset {_RESERVE}" if reserved else "nvidia-smi  # then end what holds the memory, or wait for it"
    return [
        Match(
            evidence=(*seen, *evidence.unprovoked.said(DEVICE_CREATED, most=1)),
            figures=_left(device, left[device], first),
            change={_RESERVE: None} if reserved else None,
        )
    ]


def _little_then(evidence: Evidence) -> list[Match]:
    """Look for a program that ran out of memory with much less than the GPU has."""
    failed = evidence.program.said(POOL_FULL, most=1)
    if not failed or _shared_otherwise(evidence):
        return []
    devices = {device.pci_bus_id: device for device in _devices(evidence)}
    for made in evidence.program.all(DEVICE_CREATED):
        device = devices.get(made["pci"].lower())
        if device is None or int(made["mib"]) << 20 >= device.memory_total_bytes * _LITTLE:
            continue
        first = "nvidia-smi  # while the program runs; or raise the limit that it sets itself"
        seen = (text(made.line), *failed, _holders(device))
        return [Match(seen, Sure.POSSIBLE, _left(device, int(made["mib"]) << 20, first))]
    return []


def _left(device: NvmlDevice, left: int, first: str) -> dict[str, Figure]:
    return {"gpu": device.index, "left": _gib(left), "total": _gib(device.memory_total_bytes), "first": first}


_OTHER_REASONS = (CUDNN_OLDER, STRAY_ACCESS, GPU_FAILED, CUDA_UNKNOWN)
"""Of a library that does not start."""


def _no_room_for_libraries(evidence: Evidence) -> Iterator[Match]:
    said = evidence.program.said(NO_HANDLE) or _checked(evidence, NO_HANDLE)
    if not said or _shared_otherwise(evidence) or evidence.program.first(*_OTHER_REASONS):
        return
    full = evidence.program.said(DEVICE_FULL, most=1) or evidence.program.said(POOL_FULL, most=1)
    tight = [device for device in _devices(evidence) if _free(device) < _HANDLE_BYTES]
    totals = {device.pci_bus_id: device.memory_total_bytes for device in _devices(evidence)}
    whole = tuple(
        text(made.line)
        for made in evidence.program.all(DEVICE_CREATED)
        if (int(made["mib"]) << 20) > 0.75 * totals.get(made["pci"].lower(), int(made["mib"]) << 21)
    )
    shown = (*full, *map(_holders, tight), *whole[:1])
    yield Match(evidence=(*said, *shown), sure=Sure.LIKELY if shown else Sure.POSSIBLE, figures={"grow": _GROW})


def _more_than_the_limit(evidence: Evidence) -> Iterator[Match]:
    made: dict[tuple[str, str], dict[str, int]] = defaultdict(dict)
    for found in evidence.program.all(DEVICE_CREATED):
        if found["thread"]:
            made[found["pci"].lower(), found["thread"]][found["number"]] = int(found["mib"]) << 20
    for device in _devices(evidence):
        for process in device.processes:
            limit = sum(made.get((device.pci_bus_id, str(process.pid)), {}).values())
            if not 0 < limit < min(process.used_bytes or 0, device.memory_total_bytes / 2):
                continue
            over = (process.used_bytes or 0) - limit
            yield Match(
                evidence=(
                    *evidence.program.said(DEVICE_CREATED),
                    f"GPU {device.index}: process {process.pid} holds {(process.used_bytes or 0) >> 20} MiB",
                ),
                sure=Sure.LIKELY,
                figures={"limit": limit >> 20, "used": (process.used_bytes or 0) >> 20, "over": over >> 20},
            )
            return


_FRAMEWORKS = {
    "jax": ("JAX", "export XLA_PYTHON_CLIENT_PREALLOCATE=false  # JAX takes three quarters at its start otherwise"),
    "torch": ("PyTorch", "torch.cuda.set_per_process_memory_fraction(0.5)"),
}


def _shared_with_framework(evidence: Evidence) -> Iterator[Match]:
    failed = evidence.program.said(JAX_FULL, TORCH_FULL)
    made = evidence.program.said(DEVICE_CREATED, most=1)
    if not (failed and made):  # or TensorFlow is the one that found no memory
        failed = evidence.program.said(DEVICE_FULL, POOL_FULL, NO_HANDLE, most=1)
        if not failed or not evidence.program.first(JAX_AT_WORK, TORCH_AT_WORK):
            return
    found = evidence.program.first(*_OF_FRAMEWORKS)
    assert found is not None
    name, share = _FRAMEWORKS["jax" if found.message in (JAX_FULL, JAX_AT_WORK) else "torch"]
    other = () if found.message in (JAX_FULL, TORCH_FULL) else (text(found.line),)
    yield Match(evidence=(*made, *failed, *other), sure=Sure.LIKELY, figures={"name": name, "share": share})


def _do_not_fit(evidence: Evidence) -> Iterator[Match]:
    said = Log(line for line in evidence.lines if "this is not a failure" not in line).said(POOL_FULL)
    others = (_held_by_others, _little_left, _limited_by_variable, _no_room_for_libraries)
    if not said or _shared_otherwise(evidence) or any(match for find in others for match in find(evidence)):
        return
    made = evidence.program.said(DEVICE_CREATED, most=1)
    ended = ended_by(evidence.program, POOL_FULL)
    caught = () if ended else ("the log does not end with it: the program may have caught it",)
    yield Match(evidence=(*made, *said, *caught), sure=Sure.LIKELY if ended else Sure.POSSIBLE)


def _limited_by_variable(evidence: Evidence) -> Iterator[Match]:
    said = evidence.program.said(LIMIT_REACHED, most=1) or _checked(evidence, LIMIT_REACHED)
    if not said:
        return
    value = evidence.facts.variables.get(_LIMIT)
    known = f"{_LIMIT}={value}" if value else f"{_LIMIT} is not set here: the program sets it, or what starts it"
    yield Match(evidence=(*said, known), change={_LIMIT: None} if value else None)


# --- examples --------------------------------------------------------------------------------------------------------


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
    finding = Finding(kind, Severity.FAIL, message, "")
    return Evidence(facts, rows=(Row("discovery.logical_devices", (), Judged((finding,)), 0.0),))


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

RULES = (
    Rule(
        id="memory_held_by_others",
        stage=Stage.MEMORY,
        cause="the GPU's memory is held by {who}; there is none for this one",
        why="""
        TensorFlow takes nearly all free memory of every GPU that it sees when it first computes, whether it needs it
        or not, and keeps it until the process ends. A second process then fails: when its context is created
        ("cudaSetDevice() failed: out of memory", "Bad StatusOr access: RESOURCE_EXHAUSTED") or when it takes its own
        pool ("failed to allocate ... from device", in sizes that fall by a tenth, for ever where nothing is left). A
        notebook whose cell has ended holds its memory until its kernel is shut down.
        """,
        fix=("{look}", "# end it, or have it take what it needs:", "{grow}", "{variable}", "{other}"),
        url="https://www.tensorflow.org/guide/gpu#limiting_gpu_memory_growth",
        tried=4,
        find=_held_by_others,
        cases=(
            RuleCase("here, the other GPU is free", _failed(_machine(39.5, 0), _SET_DEVICE)),
            RuleCase("here", _failed(_machine(39.5), _SET_DEVICE)),
            RuleCase(
                "here, the other GPU is free and hidden",
                _failed(_machine(39.5, 0, CUDA_VISIBLE_DEVICES="0"), _SET_DEVICE),
            ),
            RuleCase("in the log, still held", _log(_machine(39.5), _FROM_DEVICE)),
            RuleCase("in the log, of another day", _log(_machine(0), _FROM_DEVICE)),
            RuleCase("held, and nothing failed", _log(_machine(39.5)), fires=False),
            RuleCase("another failure", _failed(_machine(39.5), "InternalError: device busy"), fires=False),
            RuleCase("NVML shows that nobody holds it", _failed(_machine(0, 2), _SET_DEVICE), fires=False),
            RuleCase("NVML tells no memory", _failed(_machine(), _SET_DEVICE)),
            RuleCase("JAX holds it", _log(_machine(0), _FROM_DEVICE, _JAX_FRAME), fires=False),
            RuleCase("other workers hold it", _log(_machine(0), _FROM_DEVICE, *_WORKERS), fires=False),
        ),
    ),
    Rule(
        id="out_of_memory_with_room",
        stage=Stage.MEMORY,
        cause='the driver answers "out of memory", and NVML shows that the memory of the GPUs is free',
        why="""
        CUDA_ERROR_OUT_OF_MEMORY is also the driver's answer where it lacks memory or addresses of the host: a limit
        of the container or of Slurm, `ulimit -v`, huge pages or locked memory. A GPU that failed gives it too; so does
        a client of MPS beyond its limit, and a program that has ended since.
        """,
        fix=(
            "ulimit -v -l; free -m   # limits of this shell, memory of the host",
            "sudo dmesg | grep -i -e nvrm -e xid -e oom",
            "nvidia-smi   # who is on the GPU now; end an MPS server: echo quit | nvidia-cuda-mps-control",
            "{reset}",
        ),
        url="https://docs.nvidia.com/deploy/xid-errors/index.html",
        find=_refused_without_reason,
        cases=(
            RuleCase("nobody holds any", _failed(_machine(0), _SET_DEVICE)),
            RuleCase("the display holds some", _failed(_machine(0, 2), _SET_DEVICE)),
            RuleCase("another process holds one", _failed(_machine(0, 39.5), _SET_DEVICE), fires=False),
            RuleCase("NVML tells no memory", _failed(_machine(), _SET_DEVICE), fires=False),
            RuleCase("another failure", _failed(_machine(0), "InternalError: device busy"), fires=False),
            RuleCase("in the log, of another day", _log(_machine(0), _FROM_DEVICE), fires=False),
        ),
    ),
    Rule(
        id="no_room_for_libraries",
        stage=Stage.MEMORY,
        cause="a library of NVIDIA's could not start on the GPU, most likely for want of memory beside the pool",
        why="""
        cuBLAS and cuDNN take memory of their own for their handles and workspaces, outside TensorFlow's pool. Where
        the pool of this or another process holds all, they answer CUBLAS_STATUS_NOT_INITIALIZED,
        CUBLAS_STATUS_ALLOC_FAILED or CUDNN_STATUS_INTERNAL_ERROR, which read like a broken installation. Where the
        log also says that the cuDNN loaded is older than the one TensorFlow was built with, that is the cause and not
        this.
        """,
        fix=(
            "{grow}",
            "# or leave room:",
            "tf.config.set_logical_device_configuration(gpu, [tf.config.LogicalDeviceConfiguration(memory_limit=...)])",
            "nvidia-smi  # and end what else holds the memory",
        ),
        url="https://www.tensorflow.org/guide/gpu#limiting_gpu_memory_growth",
        find=_no_room_for_libraries,
        cases=(
            RuleCase("cuBLAS, the pool has all", _log(_machine(0), _made(38000), _CUBLAS)),
            RuleCase("cuDNN, another process has all", _log(_machine(39.9), _CUDNN)),
            RuleCase("cuDNN, nothing else is known", _log(_machine(0), _CUDNN)),
            RuleCase("cuDNN of another version", _log(_machine(0), _CUDNN_VERSION, _CUDNN), fires=False),
            RuleCase("only the pool", _log(_machine(0), _made(38000)), fires=False),
        ),
    ),
    Rule(
        id="more_than_the_limit",
        stage=Stage.MEMORY,
        cause="the program limits TensorFlow to {limit} MiB and holds {used} MiB: {over} MiB are outside the limit",
        why="""
        memory_limit and per_process_gpu_memory_fraction bound TensorFlow's pool of tensors. The CUDA context, the
        code of kernels, and what cuBLAS and cuDNN take are outside it: some hundred MiB for each process and GPU,
        which nvidia-smi counts. Limits that add up to the whole memory do not leave room for it.
        """,
        fix=("# count {over} MiB beside each limit: memory of the GPU / programs - {over} MiB",),
        url="https://www.tensorflow.org/guide/gpu#limiting_gpu_memory_growth",
        find=_more_than_the_limit,
        cases=(
            RuleCase("a limit of 512", _log(_machine(0.9), _made(512, 4711))),
            RuleCase("another process", _log(_machine(0.9), _made(512, 7)), fires=False),
            RuleCase("within the limit", _log(_machine(0.4), _made(512, 4711)), fires=False),
            RuleCase("no limit of its own", _log(_machine(39), _made(38000, 4711)), fires=False),
        ),
    ),
    Rule(
        id="memory_shared_with_framework",
        stage=Stage.MEMORY,
        cause="TensorFlow and {name} are both at work on the GPU, and each takes more than its share",
        why="""
        TensorFlow takes nearly all memory of each GPU at its first operation, also where it only loads data (tf.data,
        tensorflow_datasets, TensorBoard), and JAX takes three quarters at its own. The one that comes second finds
        none, and the error is its own: RESOURCE_EXHAUSTED, CUDA out of memory or CUBLAS_STATUS_NOT_INITIALIZED.
        """,
        fix=(
            "tf.config.set_visible_devices([], 'GPU')  # right after the import, where TensorFlow only loads data",
            "export TF_FORCE_GPU_ALLOW_GROWTH=true  # where it computes, too",
            "{share}",
        ),
        url="https://docs.jax.dev/en/latest/gpu_memory_allocation.html",
        find=_shared_with_framework,
        cases=(
            RuleCase("JAX finds none", _log(_machine(0), _made(38000), _JAX)),
            RuleCase("PyTorch finds none", _log(_machine(0), _made(38000), _TORCH)),
            RuleCase("TensorFlow finds none", _log(_machine(0), _JAX_FRAME, _FROM_DEVICE)),
            RuleCase("JAX alone", _log(_machine(0), _JAX), fires=False),
            RuleCase("TensorFlow alone", _log(_machine(0), _made(38000), _FROM_DEVICE), fires=False),
        ),
    ),
    Rule(
        id="little_memory_left",
        stage=Stage.MEMORY,
        cause="GPU {gpu} has {left} of its {total} left for TensorFlow",
        why="""
        TensorFlow uses what is free when it makes its device, less a reserve: the display, another job or a small
        card leave little. "Created device ... with 100 MB memory" says it, as information, and programs run until
        their first large tensor. TF_DEVICE_MIN_SYS_MEMORY_IN_MB, where it is set, is the reserve.
        """,
        fix=("{first}", "# or another GPU, or smaller batches"),
        url="https://www.tensorflow.org/guide/gpu#limiting_gpu_memory_growth",
        find=_little_left,
        cases=(
            RuleCase("another job", _log(_machine(38))),
            RuleCase("the display", _log(_machine(38, computes=False))),
            RuleCase("nobody that NVML lists", _log(_machine(38, pid=None))),
            RuleCase("one of two", _log(_machine(0, 38))),
            RuleCase("a large reserve", _log(_machine(0, TF_DEVICE_MIN_SYS_MEMORY_IN_MB="38000"))),
            RuleCase("in the log, of another day", _log(_machine(0), _made(900), _OOM)),
            RuleCase("a small pool, and enough", _log(_machine(0), _made(900)), fires=False),
            RuleCase("half is left", _log(_machine(20)), fires=False),
            RuleCase("a small reserve", _log(_machine(0, TF_DEVICE_MIN_SYS_MEMORY_IN_MB="3000")), fires=False),
            RuleCase("hidden", _log(_machine(38, 0, CUDA_VISIBLE_DEVICES="1")), fires=False),
        ),
    ),
    Rule(
        id="tensors_do_not_fit",
        stage=Stage.MEMORY,
        cause="the program's tensors do not fit into the memory that TensorFlow took of the GPU",
        why="""
        "OOM when allocating tensor" is about TensorFlow's own pool: everything that the program holds on the GPU, or
        one tensor whose shape the line names. The number in "Created device ... with N MB memory" is the pool's
        ceiling: less than the card has where the program or another one limits it. TensorFlow tries for ten seconds
        before it raises.
        """,
        fix=(
            "# a smaller batch",
            "tf.keras.mixed_precision.set_global_policy('mixed_float16')  # or",
            "export TF_GPU_ALLOCATOR=cuda_malloc_async  # where free pieces would do together",
        ),
        url="https://www.tensorflow.org/guide/gpu_performance_analysis",
        find=_do_not_fit,
        cases=(
            RuleCase("a large tensor", _log(_machine(0), _made(38000), _OOM)),
            RuleCase("caught, it seems", _log(_machine(0), _made(38000), _OOM, "Epoch 1/10")),
            RuleCase("another process has all", _log(_machine(39), _made(38000), _OOM), fires=False),
            RuleCase("there was little", _log(_machine(0), _made(900), _OOM), fires=False),
            RuleCase("a variable limits it", _log(_machine(0), _PAST, _OOM), fires=False),
            RuleCase("TensorFlow says it is none", _log(_machine(0), _made(38000), _NO_FAILURE), fires=False),
            RuleCase("nothing failed", _log(_machine(0), _made(38000)), fires=False),
        ),
    ),
    Rule(
        id="limited_by_variable",
        stage=Stage.MEMORY,
        cause="TF_PER_DEVICE_MEMORY_LIMIT_MB bounds what TensorFlow may take of each GPU, and the program needs more",
        why="""
        The variable refuses every allocation past the limit; "Created device ... with N MB memory" shows the larger
        number without it. TensorFlow tries for ten seconds before it raises ResourceExhaustedError.
        """,
        fix=("unset TF_PER_DEVICE_MEMORY_LIMIT_MB", "# or raise it"),
        url="https://www.tensorflow.org/guide/gpu#limiting_gpu_memory_growth",
        find=_limited_by_variable,
        cases=(
            RuleCase("set here", _log(_machine(0, TF_PER_DEVICE_MEMORY_LIMIT_MB="1000"), _PAST)),
            RuleCase("set by the program", _log(_machine(0), _PAST)),
            RuleCase("set, and enough", _log(_machine(0, TF_PER_DEVICE_MEMORY_LIMIT_MB="1000")), fires=False),
        ),
    ),
)
