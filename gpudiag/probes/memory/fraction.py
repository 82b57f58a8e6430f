"""`per_process_gpu_memory_fraction` caps what TensorFlow takes of a GPU, and all of it is taken at once.

What it does
    Opens a `tf.compat.v1.Session` with a fraction that stands for 256 MiB, copies one small tensor to the GPU, and then
    asks for 512 MiB. NVML tells the memory in use on the device before the first tensor (the CUDA context exists by
    then), after it, and after the large one. A matrix product is computed and checked on the GPU at the end.
Why it matters
    The fraction is how several programs share one GPU. It is a share of the total memory, whatever is free, and it caps
    TensorFlow's pool alone: the CUDA context and the libraries' own memory come on top.
What a failure means
    `cap_ignored`: TensorFlow took more than the cap, or gave out memory beyond it.
    `no_cap`: the same, because `TF_GPU_ALLOCATOR` in your environment chooses an allocator that knows no cap.
    `not_at_once`: the first tensor took less than the cap: the GPU was nearly full, or growth was on.
    `other_error`: asking for too much raised something else than `tf.errors.ResourceExhaustedError`.
    `overridden`: `TF_FORCE_GPU_ALLOW_GROWTH` in your environment makes the pool grow up to the cap instead.
    `gpu_not_seen`, `other_gpu`, `wrong_result`: TensorFlow does not use the GPU that it was given, or not correctly.
What to do
    Set the fraction in the first session of the process; another one in a later session is ignored without a word. In
    TensorFlow 2 rather set a limit in MiB: `tf.config.set_logical_device_configuration(gpu,
    [tf.config.LogicalDeviceConfiguration(memory_limit=4096)])`.
"""

from __future__ import annotations

from collections.abc import Iterator

from gpudiag import hostfacts, probe
from gpudiag.hostfacts import EnvironmentFacts, Facts
from gpudiag.model import Limits, Severity
from gpudiag.placement import short_device
from gpudiag.probe import Case, Context, Judgement, Kind, MemoryUse, Needs, Raised, Scope
from gpudiag.probes.common import (
    GPU_NOT_SEEN,
    MATRIX,
    MIB,
    OTHER_GPU,
    SLACK_BYTES,
    WRONG_RESULT,
    Kernel,
    is_partitioned,
    is_square,
    judge_kernel,
    partitioned,
    refuse_disturbance,
    taken,
)
from gpudiag.record import Record

PROBE = probe.Probe(
    needs=Needs(gpus=1, free_bytes=256 * MIB),
    scope=Scope.EACH_GPU,
    exclusive=True,
    # Were the fraction ignored, TensorFlow would take all that is free; this makes it stop at 1 GiB.
    env={"TF_PER_DEVICE_MEMORY_LIMIT_MB": "1024"},
)

CAP_IGNORED = Kind(
    "cap_ignored",
    Severity.FAIL,
    "took {taken_mib:.0f} MiB, the cap was {cap_mib:.0f} MiB; a tensor of {beyond_mib:.0f} MiB {ended}",
    "Cap it in MiB: tf.config.set_logical_device_configuration(gpu, "
    "[tf.config.LogicalDeviceConfiguration(memory_limit=4096)])",
)
NOT_AT_ONCE = Kind(
    "not_at_once",
    Severity.WARNING,
    "the first tensor took {taken_mib:.0f} MiB of the {cap_mib:.0f} MiB that the fraction stands for",
    "Look in nvidia-smi for what else fills this GPU. If it is empty, look for code that sets allow_growth.",
)
OTHER_ERROR = Kind(
    "other_error",
    Severity.FAIL,
    "asking for {beyond_mib:.0f} MiB under a cap of {cap_mib:.0f} MiB raised {error}",
    "Programs that catch tf.errors.ResourceExhaustedError miss this error: look up its text.",
)
NO_CAP = Kind(
    "no_cap",
    Severity.WARNING,
    "TF_GPU_ALLOCATOR={allocator} knows no cap: {beyond_mib:.0f} MiB were given out under a cap of {cap_mib:.0f} MiB",
    "To have the fraction and memory limits honoured: unset TF_GPU_ALLOCATOR",
)
OVERRIDDEN = Kind(
    "overridden",
    Severity.NOTE,
    "TF_FORCE_GPU_ALLOW_GROWTH=true decides when memory is taken: "
    "the first tensor took {taken_mib:.0f} MiB of the {cap_mib:.0f} MiB",
    "To have the whole share taken at once: unset TF_FORCE_GPU_ALLOW_GROWTH",
)

CAP_BYTES = 256 * MIB
BEYOND_BYTES = 2 * CAP_BYTES


class Pool(Record):
    """What the session took, by NVML."""

    before: MemoryUse
    """After the CUDA context was made, before the first tensor."""
    first: MemoryUse
    """After the first tensor, of 16 bytes."""
    last: MemoryUse
    """After :data:`BEYOND_BYTES` were asked for."""
    exceeded: Raised | None
    """What asking for them raised."""
    kernel: Kernel


class Reading(probe.Reading):
    """What was asked for, and what was taken."""

    pci_bus_id: str
    """Of the GPU that the probe was given."""
    fraction: float
    """Of the device's total memory, 0 to 1."""
    pool: Pool | None
    """None where TensorFlow lists no GPU."""

    def figure(self) -> str:
        if self.pool is None:
            return "TensorFlow lists 0 of 1 GPUs"
        return f"{taken(self.pool.before, self.pool.first) / MIB:.0f} MiB at once, cap {CAP_BYTES / MIB:.0f} MiB"


def measure(ctx: Context) -> Reading:
    tf, v1 = ctx.tf, ctx.tf.compat.v1
    (gpu,) = ctx.gpus
    fraction = CAP_BYTES / gpu.memory_total_bytes
    if not tf.config.list_physical_devices("GPU"):
        return Reading(gpu.pci_bus_id, fraction, None)
    options = v1.GPUOptions(per_process_gpu_memory_fraction=fraction)
    # An allocation that fails is otherwise tried again for 10 s.
    options.experimental.disallow_retry_on_allocation_failure = True
    with tf.Graph().as_default(), tf.device("/GPU:0"):
        matrix = v1.placeholder(tf.float32, [2, 2])
        copied = tf.identity(matrix)
        product = tf.matmul(matrix, matrix)
        elements = v1.placeholder(tf.int32, [1])
        large = tf.fill(elements, 1.0)[0]
        with v1.Session(config=v1.ConfigProto(gpu_options=options)) as session:
            before = ctx.memory(gpu)
            session.run(copied, {matrix: MATRIX})
            first = ctx.memory(gpu)
            exceeded = ctx.attempt(lambda: session.run(large, {elements: [BEYOND_BYTES // 4]}))
            last = ctx.memory(gpu)
            # Not before: the matrix library takes memory of its own beside the pool.
            correct = is_square(session.run(product, {matrix: MATRIX}))
    refuse_disturbance(before, first, last)
    device = short_device(product.device)
    kernel = Kernel(device, ctx.pci_bus_ids().get(device, ""), correct)
    return Reading(gpu.pci_bus_id, fraction, Pool(before, first, last, exceeded, kernel))


def judge(reading: Reading, facts: Facts, limits: Limits) -> Iterator[Judgement]:
    pool = reading.pool
    if pool is None:
        yield GPU_NOT_SEEN.found(seen=0, given=1)
        return
    first, last = taken(pool.before, pool.first), taken(pool.before, pool.last)
    figures = {"cap_mib": CAP_BYTES / MIB, "beyond_mib": BEYOND_BYTES / MIB}
    allocator = facts.variables.get("TF_GPU_ALLOCATOR", "")
    # Of a MIG instance the fraction is smaller than was meant: NVML tells the memory of the whole GPU.
    least = 0 if is_partitioned(facts, reading.pci_bus_id) else CAP_BYTES - SLACK_BYTES
    if facts.variables.get("TF_FORCE_GPU_ALLOW_GROWTH") == "true":
        yield OVERRIDDEN.found(**figures, taken_mib=first / MIB)
    elif allocator not in _WITHOUT_POOL and first < least:
        yield NOT_AT_ONCE.found(**figures, taken_mib=first / MIB)
    if pool.exceeded is None or max(first, last) > CAP_BYTES + SLACK_BYTES:
        if allocator in _WITHOUT_POOL:
            yield NO_CAP.found(**figures, allocator=allocator)
        else:
            ended = "was refused" if pool.exceeded else "was given out"
            yield CAP_IGNORED.found(**figures, taken_mib=max(first, last) / MIB, ended=ended)
    elif pool.exceeded.type != "ResourceExhaustedError":
        yield OTHER_ERROR.found(**figures, error=pool.exceeded.brief)
    yield from judge_kernel(pool.kernel, reading.pci_bus_id)


# They hand each tensor's memory through to CUDA; measured on 2.21.0: neither cap nor limit holds.
_WITHOUT_POOL = {"cuda_malloc", "cuda_malloc_async"}

_PCI = "0000:3b:00.0"
_OOM = Raised("ResourceExhaustedError", "OOM when allocating tensor with shape[134217728] and type float")


def _case(
    name: str,
    *expect: str,
    first_mib: int = 256,
    last_mib: int = 256,
    exceeded: Raised | None = _OOM,
    kernel: Kernel = Kernel("GPU:0", _PCI, True),  # noqa: B008  # immutable
    variables: dict[str, str] | None = None,
    facts: Facts | None = None,
) -> Case:
    before, first, last = (MemoryUse((450 + mib) * MIB, None) for mib in (0, first_mib, last_mib))
    reading = Reading(_PCI, 0.01, Pool(before, first, last, exceeded, kernel))
    facts = facts or hostfacts.example(environment=EnvironmentFacts(variables or {}))
    verified = (_PCI,) if kernel.correct and kernel.pci_bus_id == _PCI else ()
    return Case(name, expect, reading, facts, verified=verified)


CASES = (
    _case("the cap holds"),
    _case("took all it was let", CAP_IGNORED.name, first_mib=1024, last_mib=1024, exceeded=None),
    _case("gave out more than the cap", CAP_IGNORED.name, last_mib=512, exceeded=None),
    _case("a GPU nearly full", NOT_AT_ONCE.name, first_mib=120, last_mib=120),
    _case("an instance of a GPU", first_mib=36, last_mib=36, facts=partitioned(_PCI)),
    _case(
        "growth forced by the environment",
        OVERRIDDEN.name,
        first_mib=2,
        variables={"TF_FORCE_GPU_ALLOW_GROWTH": "true"},
    ),
    _case(
        "an allocator without cap",
        NO_CAP.name,
        first_mib=0,
        last_mib=512,
        exceeded=None,
        variables={"TF_GPU_ALLOCATOR": "cuda_malloc_async"},
    ),
    _case("an unknown error", OTHER_ERROR.name, exceeded=Raised("InternalError", "CUDA error")),
    _case("another GPU", OTHER_GPU.name, kernel=Kernel("GPU:0", "0000:af:00.0", True)),
    _case("a GPU without a name", OTHER_GPU.name, kernel=Kernel("GPU:0", "", True)),
    _case("a wrong product", WRONG_RESULT.name, kernel=Kernel("GPU:0", _PCI, False)),
    Case("TensorFlow without GPU", (GPU_NOT_SEEN.name,), Reading(_PCI, 0.01, None)),
)
