"""What several probes share: a kernel whose result is known, the faults any GPU probe can meet, and memory taken."""

from __future__ import annotations

import math
import re
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import msgspec

from gpudiag.errors import Disturbed, NoContext
from gpudiag.hostfacts import Facts, NvmlFacts, example_gpu, example_with_gpus
from gpudiag.model import Severity
from gpudiag.placement import created_devices, short_device
from gpudiag.probe import Context, Judgement, Kind, MemoryUse, Raised, Verified
from gpudiag.record import Record

MATRIX = [[1.0, 2.0], [3.0, 4.0]]
SQUARE = [[7.0, 10.0], [15.0, 22.0]]
"""``MATRIX`` times itself; exact in every floating-point format of a GPU, TF32 included."""

MIB = 1 << 20
SLACK_BYTES = 64 * MIB
"""Device memory that is not asked for and yet taken: streams, and code of kernels, which CUDA loads at first use."""

CUDNN_NEEDED = "9.3.0"
"""Of TensorFlow 2.18-2.21, by its own words: "Loaded runtime CuDNN library: 9.1.0 but source was compiled with: 9.3.0.
CuDNN library needs to have matching major version and equal or higher minor version." (simulated)"""

SEE_THE_CAUSE = "See the cause at the top of the report; where none is named: gpudiag explain discovery.trace"
"""The advice where the diagnosis says more than a probe can."""

GPU_NOT_SEEN = Kind(
    "gpu_not_seen",
    Severity.FAIL,
    "TensorFlow lists {seen} of the {given} GPUs that NVML reports and this probe was given",
    SEE_THE_CAUSE,
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
"""Of the tensor by which :func:`work` tells a GPU from the others."""


class Kernel(Record):
    """A matrix product computed on a GPU."""

    device: str
    """TensorFlow's name of the device that holds the result, such as ``GPU:0``."""
    pci_bus_id: str
    """The GPU behind it by TensorFlow's own description; empty where it gave none."""
    correct: bool
    """True: the product equals the one known beforehand."""


class Work(Record):
    """What was stored and computed on one device."""

    kernel: Kernel
    rose: dict[str, int]
    """By how many bytes the memory of each GPU (PCI bus id) rose while a tensor was filled on the device."""


def without_allocation_retry(ctx: Context) -> None:
    """Let an allocation in eager mode that fails raise at once: TensorFlow otherwise tries again for 10 s.

    Call it first: it is the only way to this option outside a session, and only before anything else.
    """
    v1 = ctx.tf.compat.v1
    options = v1.GPUOptions()
    options.experimental.disallow_retry_on_allocation_failure = True
    v1.disable_eager_execution()
    v1.enable_eager_execution(config=v1.ConfigProto(gpu_options=options))


def attempt_context(ctx: Context, call: Callable[[], object]) -> Raised | None:
    """Return what ``call`` raised, as ``ctx.attempt`` does, also where no CUDA context could be made.

    Touch TensorFlow no more then: its next call may never return (measured, 2.21).
    """
    try:
        return ctx.attempt(call)
    except NoContext as refused:
        return Raised("RuntimeError", str(refused))


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


def work(ctx: Context, device: str, bus_ids: dict[str, str]) -> Work:
    """Fill a tensor of :data:`FILLED_BYTES` on ``device`` and multiply; ``bus_ids`` is what TensorFlow says it is.

    Memory growth must be on, or the tensor finds memory that was taken before.
    """
    tf = ctx.tf
    with tf.device(device):
        rose = rises(ctx, lambda: tf.zeros([FILLED_BYTES // 4]))  # the pool keeps what the tensor took
        product = tf.matmul(MATRIX, MATRIX)
    name = short_device(product.device)
    return Work(Kernel(name, bus_ids.get(name, ""), is_square(product)), rose)


def judge_work(done: Work, expected: str) -> Iterator[Judgement]:
    """Judge work that should have been done on the GPU with the PCI bus id ``expected``."""
    most = max(done.rose, key=lambda pci_bus_id: done.rose[pci_bus_id])
    confirmed = most == expected and done.rose[expected] >= FILLED_BYTES / 2
    if done.kernel.pci_bus_id != expected or confirmed:
        yield from judge_kernel(done.kernel, expected)
        return
    yield MEMORY_ELSEWHERE.found(
        wanted_mib=FILLED_BYTES / MIB,
        device=done.kernel.device,
        pci_bus_id=expected,
        taken_mib=done.rose[expected] / MIB,
        most=most,
    )


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


_JIT_COMPILED = re.compile(r"not built with CUDA kernel binaries compatible with compute capability (\d+\.\d+)")


def without_machine_code(lines: Iterable[str]) -> tuple[str, ...]:
    """Return the compute capabilities that TensorFlow's log (``lines``) says it brings no machine code for."""
    return tuple(dict.fromkeys(found[1] for found in map(_JIT_COMPILED.search, lines) if found))


Numbers = tuple[float | None, ...]
"""What was computed, row by row; None for NaN and infinity, which a reading cannot hold."""


def numbers(computed: Any) -> Numbers:
    """Return the values of ``computed`` (a tensor or an array); waits for the device."""
    values = computed.numpy() if hasattr(computed, "numpy") else computed
    return tuple(value if math.isfinite(value) else None for value in values.ravel().tolist())


REPLICA_BYTES = 128 * MIB
"""Memory limit of each device of :func:`make_replicas`."""


class Replicas(Record):
    """The logical GPUs that a program for several GPUs is tried on."""

    given: tuple[str, ...]
    """PCI bus ids of the GPUs that the probe was given, in the order of ``CUDA_VISIBLE_DEVICES``."""
    seen: int
    """GPUs that TensorFlow lists."""
    made: dict[str, str]
    """Device (``GPU:0``) to PCI bus id by TensorFlow's ``Created device`` line; empty where it lists too few GPUs."""

    @property
    def expected(self) -> tuple[str, ...]:
        """PCI bus ids of the devices asked for: one on each GPU, and two where there is only one GPU."""
        return self.given if len(self.given) > 1 else self.given * 2

    @property
    def where(self) -> str:
        """In a few words, where they are."""
        if not self.made:
            return f"TensorFlow lists {self.seen} of {len(self.given)} GPUs"
        return f"{len(self.made)} GPUs" if len(self.given) > 1 else f"{len(self.made)} logical devices on 1 GPU"


def make_replicas(ctx: Context) -> Replicas:
    """Let TensorFlow make a device on every GPU, two where there is only one, and switch soft placement off.

    Each has a memory limit and not growth, which a variable of the environment can take away.
    """
    tf = ctx.tf
    given = tuple(gpu.pci_bus_id for gpu in ctx.gpus)
    physical = tf.config.list_physical_devices("GPU")
    if len(physical) < len(given):
        return Replicas(given, len(physical), {})
    for device in physical:
        part = tf.config.LogicalDeviceConfiguration(memory_limit=REPLICA_BYTES // MIB)
        tf.config.set_logical_device_configuration(device, [part] * (1 if len(given) > 1 else 2))
    tf.config.set_soft_device_placement(False)
    with ctx.placements() as log:
        logical = [short_device(device.name) for device in tf.config.list_logical_devices("GPU")]
    created = created_devices(log.lines)
    return Replicas(given, len(physical), {name: created.get(name, "") for name in logical})


def judge_replicas(replicas: Replicas) -> Iterator[Judgement]:
    """Find where they are not the devices asked for: nothing else can be judged then."""
    if replicas.seen < len(replicas.given):
        yield GPU_NOT_SEEN.found(seen=replicas.seen, given=len(replicas.given))
    elif tuple(replicas.made.values()) != replicas.expected:
        found = ", ".join(bus_id or "(not named)" for bus_id in replicas.made.values())
        yield OTHER_GPU.found(device=", ".join(replicas.made), found=found, expected=", ".join(replicas.expected))


def in_time(ctx: Context, seconds: float, call: Callable[[], object]) -> Raised | None:
    """Return what ``call`` raised; ``TimeoutError`` where it has not ended within ``seconds``, and never may.

    A collective that waits for a GPU cannot be ended. After a ``TimeoutError`` touch TensorFlow no more.
    """
    ended: list[Raised | None] = []
    thread = threading.Thread(target=lambda: ended.append(ctx.attempt(call)), daemon=True)
    thread.start()
    thread.join(seconds)
    return ended[0] if ended else Raised("TimeoutError", f"it had not ended after {seconds:.0f} s")


def is_partitioned(facts: Facts, pci_bus_id: str) -> bool:
    """Return True where MIG mode is on: TensorFlow is given an instance, and NVML tells the memory of the whole GPU."""
    return any(gpu.pci_bus_id == pci_bus_id and gpu.mig_mode == "enabled" for gpu in facts.nvml_devices)


def partitioned(pci_bus_id: str) -> Facts:
    """Return the facts of a machine whose one GPU, ``pci_bus_id``, is in MIG mode: for CASES."""
    gpu = msgspec.structs.replace(example_gpu(), pci_bus_id=pci_bus_id, mig_mode="enabled")
    return example_with_gpus(1, nvml=NvmlFacts(None, "535.104.05", "12.2", (gpu,)))


_CEILING = re.compile(r"Created device \S*/device:(?P<device>GPU:\d+) with (?P<mib>\d+) MB memory")


def ceilings_mib(lines: Iterable[str]) -> dict[str, int]:
    """Map each GPU device that TensorFlow says it created (``GPU:0``) to the most memory it may take, in MiB.

    It is not what is taken; ``TF_PER_DEVICE_MEMORY_LIMIT_MB`` does not show in it. The line says MB and means MiB.
    """
    return {found["device"]: int(found["mib"]) for line in lines if (found := _CEILING.search(line))}


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


def cudnn_serves(version: str) -> bool:
    """Return True where TensorFlow takes this cuDNN: one of the same major version that is not older."""
    found, needed = (tuple(map(int, re.findall(r"\d+", one)[:2])) for one in (version, CUDNN_NEEDED))
    return found[:1] == needed[:1] and found >= needed
