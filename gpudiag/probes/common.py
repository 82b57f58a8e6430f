"""What several probes share: a kernel whose result is known, the faults any GPU probe can meet, and memory taken."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
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


class Kernel(Record):
    """A matrix product computed on a GPU."""

    device: str
    """TensorFlow's name of the device that holds the result, such as ``GPU:0``."""
    pci_bus_id: str
    """The GPU behind it by TensorFlow's own description; empty where it gave none."""
    correct: bool
    """True: the product equals the one known beforehand."""


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


_CEILING = re.compile(r"Created device \S*/device:(GPU:\d+) with (\d+) MB memory:")


def ceilings(lines: Iterable[str]) -> dict[str, int]:
    """Map each GPU device that TensorFlow says it created (``GPU:0``) to the most it will take, in MiB.

    It is not what is taken. The line says MB and means MiB; ``TF_PER_DEVICE_MEMORY_LIMIT_MB`` does not show in it.
    """
    return {found[1]: int(found[2]) for line in lines if (found := _CEILING.search(line))}
