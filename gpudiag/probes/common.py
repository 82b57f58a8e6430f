"""What several probes share: a kernel whose result is known, the faults any GPU probe can meet, and memory taken."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from gpudiag.errors import Disturbed
from gpudiag.model import Severity
from gpudiag.probe import Context, Judgement, Kind, MemoryUse, Verified
from gpudiag.record import Record

MATRIX = [[1.0, 2.0], [3.0, 4.0]]
SQUARE = [[7.0, 10.0], [15.0, 22.0]]
"""``MATRIX`` times itself; exact in every floating-point format of a GPU, TF32 included."""

MIB = 1 << 20
SLACK_BYTES = 64 * MIB
"""Device memory that is not asked for and yet taken: streams, and code of kernels, which CUDA loads at first use."""

GPU_NOT_SEEN = Kind(
    "gpu_not_seen",
    Severity.FAIL,
    "TensorFlow lists {seen} of the {given} GPUs that NVML reports and this probe was given",
    "Read the first error of: python -c \"import tensorflow as tf; tf.config.list_physical_devices('GPU')\". "
    "Most often CUDA libraries are missing: pip install 'tensorflow[and-cuda]'",
)
OTHER_GPU = Kind(
    "other_gpu",
    Severity.FAIL,
    "{device} is the GPU {found} by TensorFlow's own description, it should be {expected}",
    "Choose GPUs by UUID, which no order changes: export CUDA_VISIBLE_DEVICES=GPU-... (see nvidia-smi -L)",
)
WRONG_RESULT = Kind(
    "wrong_result",
    Severity.FAIL,
    "a matrix product on {device} ({pci_bus_id}) is wrong",
    "Trust no result of this GPU. Look for its errors in `nvidia-smi -q -d ECC` and `dmesg | grep Xid`.",
)

MEMORY_ELSEWHERE = Kind(
    "memory_elsewhere",
    Severity.FAIL,
    "a tensor of {wanted_mib:.0f} MiB on {device} raised the memory of {pci_bus_id} by {taken_mib:.0f} MiB; "
    "the memory that rose most was that of {most}",
    "Choose GPUs by UUID, which no order changes: export CUDA_VISIBLE_DEVICES=GPU-... (see nvidia-smi -L)",
)
FILLED_BYTES = 64 * MIB
"""The tensor by whose memory a :class:`Work` shows its GPU."""


class Kernel(Record):
    """A matrix product computed on a GPU."""

    device: str
    """TensorFlow's name of the device that holds the result, such as ``GPU:0``."""
    pci_bus_id: str
    """The GPU behind it by TensorFlow's own description; empty where it gave none."""
    correct: bool
    """True: the product equals the one known beforehand."""


class Work(Record):
    """What one device did: a matrix product, and a tensor of :data:`FILLED_BYTES`."""

    kernel: Kernel
    rose: dict[str, int]
    """By how many bytes the memory of each GPU (PCI bus id) rose with the tensor."""


def without_allocation_retry(ctx: Context) -> None:
    """Let an allocation in eager mode that fails raise at once: TensorFlow otherwise tries again for 10 s.

    Call it first: it is the only way to this option outside a session, and only before anything else.
    """
    v1 = ctx.tf.compat.v1
    options = v1.GPUOptions()
    options.experimental.disallow_retry_on_allocation_failure = True
    v1.disable_eager_execution()
    v1.enable_eager_execution(config=v1.ConfigProto(gpu_options=options))


def is_square(product: Any, factor: float = 1.0) -> bool:
    """Return True where ``product`` (a tensor or an array) is :data:`SQUARE` times ``factor``; waits for the device."""
    values = product.numpy() if hasattr(product, "numpy") else product
    return bool((values == [[factor * value for value in row] for row in SQUARE]).all())


def judge_kernel(kernel: Kernel, expected: str) -> Iterator[Judgement]:
    """Judge a kernel that should have run on the GPU with the PCI bus id ``expected``."""
    if kernel.pci_bus_id != expected:
        yield OTHER_GPU.found(device=kernel.device, found=kernel.pci_bus_id or "(not named)", expected=expected)
    elif not kernel.correct:
        yield WRONG_RESULT.found(device=kernel.device, pci_bus_id=expected)
    else:
        yield Verified(expected)


def taken(before: MemoryUse, after: MemoryUse) -> int:
    """Return by how many bytes the use of the device rose."""
    return after.used_bytes - before.used_bytes


def refuse_disturbance(before: MemoryUse, *later: MemoryUse) -> None:
    """Raise :class:`Disturbed` where the device's use changed by more than this process's own, or fell."""
    for after in later:
        rise = others = taken(before, after)
        if before.own_bytes is not None and after.own_bytes is not None:
            others = rise - (after.own_bytes - before.own_bytes)
        elif rise >= 0:
            continue  # NVML does not tell whose it is, and nothing speaks against its being ours
        if abs(others) > SLACK_BYTES:
            raise Disturbed(f"another process changed its memory on this GPU by {others / MIB:.0f} MiB meanwhile")


def rises(ctx: Context, call: Callable[[], object]) -> dict[str, int]:
    """Return by how many bytes the memory of each GPU (PCI bus id) rose with ``call``."""
    before = [ctx.memory(gpu) for gpu in ctx.gpus]
    call()
    after = [ctx.memory(gpu) for gpu in ctx.gpus]
    for earlier, later in zip(before, after, strict=True):
        refuse_disturbance(earlier, later)
    return dict(zip((gpu.pci_bus_id for gpu in ctx.gpus), map(taken, before, after), strict=True))


def judge_work(work: Work, expected: str) -> Iterator[Judgement]:
    """Judge what should have been done on the GPU with the PCI bus id ``expected``."""
    most = max(work.rose, key=lambda bus_id: work.rose[bus_id])
    confirmed = most == expected and work.rose[expected] >= FILLED_BYTES / 2
    if work.kernel.pci_bus_id == expected and not confirmed:
        yield MEMORY_ELSEWHERE.found(
            wanted_mib=FILLED_BYTES / MIB,
            device=work.kernel.device,
            pci_bus_id=expected,
            taken_mib=work.rose[expected] / MIB,
            most=most,
        )
    else:
        yield from judge_kernel(work.kernel, expected)


def devices_in_graphs(ctx: Context) -> tuple[Any, int]:
    """Return options for every session of a process, and how many GPU devices it has under them.

    One for each GPU; a single GPU is split in two. Ask only where TensorFlow lists every GPU.
    """
    v1 = ctx.tf.compat.v1
    options, count = v1.GPUOptions(), len(ctx.gpus)
    if count == 1:
        limit_mib = 2 * FILLED_BYTES // MIB
        options.experimental.virtual_devices.add(memory_limit_mb=[limit_mib, limit_mib])
        count = 2
    return v1.ConfigProto(gpu_options=options, log_device_placement=True), count


def gpus_of_graph_devices(given: Sequence[str]) -> tuple[str, ...]:
    """Return the PCI bus id that each device of :func:`devices_in_graphs` should be on."""
    return tuple(given) * 2 if len(given) == 1 else tuple(given)
