"""Processes at the same time may each have a `visible_device_list` of their own.

What it does
    Two processes, alive at the same time, each open a `tf.compat.v1.Session`: one with `visible_device_list="0"`, the
    other with `1`. Each computes a matrix product on its `GPU:0` and fills a tensor of 64 MiB there. Which GPU that is
    is taken from two sources: the PCI bus id in TensorFlow's `Created device` line, and the GPU whose memory rose by
    NVML.
Why it matters
    Within a process a second list is refused (visibility.list_session_conflict). Workers that each pick a GPU by list
    are the common way around it, and where the list of one has no effect two workers share a GPU while another is idle.
What a failure means
    `other_gpu`: TensorFlow says that a process's `GPU:0` is another GPU than its list asked for.
    `memory_elsewhere`: the tensor of a process took memory of another GPU, or of none.
    `gpu_not_seen`, `wrong_result`: TensorFlow does not use the GPUs that it was given, or not correctly.
What to do
    Start each worker as a process of its own, not by `fork` after TensorFlow listed a GPU, and set its list in its
    first session: `GPUOptions(visible_device_list=str(rank))`. Better, let it see no other GPU:
    `os.environ["CUDA_VISIBLE_DEVICES"] = str(rank)` before TensorFlow lists GPUs.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from gpudiag import probe
from gpudiag.hostfacts import Facts
from gpudiag.model import Limits
from gpudiag.placement import created_devices
from gpudiag.probe import Case, Context, Judgement, Needs, Scope
from gpudiag.probes.common import (
    FILLED_BYTES,
    GPU_NOT_SEEN,
    MATRIX,
    MEMORY_ELSEWHERE,
    MIB,
    OTHER_GPU,
    WRONG_RESULT,
    Kernel,
    Work,
    is_square,
    judge_work,
    rises,
)

PROBE = probe.Probe(
    needs=Needs(gpus=2, free_bytes=256 * MIB),
    scope=Scope.ALL_GPUS,
    exclusive=True,
    # The list is under test. Without growth the session would take nearly all memory of its GPU, and other allocators
    # give memory back before it can be measured.
    env={"TF_FORCE_GPU_ALLOW_GROWTH": "true", "TF_GPU_ALLOCATOR": None},
)


class Reading(probe.Reading):
    """What each process did."""

    given: tuple[str, ...]
    """PCI bus ids of the GPUs that the probe was given, in the order of ``CUDA_VISIBLE_DEVICES``."""
    seen: int
    """GPUs that TensorFlow lists, in the process where it lists fewer."""
    processes: tuple[Work, ...]
    """That with the list ``0``, that with the list ``1``; empty where TensorFlow lists too few GPUs."""

    def figure(self) -> str:
        if not self.processes:
            return f"TensorFlow lists {self.seen} of {len(self.given)} GPUs"
        return ", ".join(f"'{number}' is {work.kernel.pci_bus_id}" for number, work in enumerate(self.processes))


def measure(ctx: Context) -> Reading:
    seen, own, others = _worker(ctx, 0)
    given = tuple(gpu.pci_bus_id for gpu in ctx.gpus)
    return Reading(given, seen, (own, others) if own and others else ())


def peer(ctx: Context) -> None:
    _worker(ctx, 1)


def _worker(ctx: Context, number: int) -> tuple[int, Work | None, Work | None]:
    """Return how many GPUs are listed, what this process did with the list ``number``, and what the other one did."""
    tf, v1 = ctx.tf, ctx.tf.compat.v1
    seen = len(tf.config.list_physical_devices("GPU"))
    seen = min(seen, ctx.peer.meet("listed", seen))
    if seen < len(ctx.gpus):
        return seen, None, None
    with tf.Graph().as_default(), tf.device("/device:GPU:0"):
        matrix, elements = v1.placeholder(tf.float32, [2, 2]), v1.placeholder(tf.int32, [1])
        product, large = tf.matmul(matrix, matrix), tf.fill(elements, 1.0)[0]
        options = v1.GPUOptions(visible_device_list=str(number))
        with ctx.placements() as log:
            session = v1.Session(config=v1.ConfigProto(gpu_options=options))
        with session:
            correct = is_square(session.run(product, {matrix: MATRIX}))
            kernel = Kernel("GPU:0", created_devices(log.lines).get("GPU:0", ""), correct)
            ctx.peer.meet("computed")
            # One after the other: what rises meanwhile is this process's own.
            if number == 1:
                ctx.peer.meet("filled 0")
            rose = rises(ctx, lambda: session.run(large, {elements: [FILLED_BYTES // 4]}))
            if number == 0:
                ctx.peer.meet("filled 0")
            own = Work(kernel, rose)
            others = msgspec.convert(ctx.peer.meet("filled 1", msgspec.to_builtins(own)), Work)
    return seen, own, others


def judge(reading: Reading, facts: Facts, limits: Limits) -> Iterator[Judgement]:
    if not reading.processes:
        yield GPU_NOT_SEEN.found(seen=reading.seen, given=len(reading.given))
        return
    for work, expected in zip(reading.processes, reading.given, strict=False):
        yield from judge_work(work, expected)


_FIRST, _SECOND = "0000:3b:00.0", "0000:af:00.0"


def _work(pci_bus_id: str, rose_on: str = "", *, mib: int = 64, correct: bool = True) -> Work:
    rose = {bus_id: mib * MIB if bus_id == (rose_on or pci_bus_id) else 0 for bus_id in (_FIRST, _SECOND)}
    return Work(Kernel("GPU:0", pci_bus_id, correct), rose)


def _case(name: str, *expect: str, second: Work, verified: tuple[str, ...] = (_FIRST,)) -> Case:
    return Case(name, expect, Reading((_FIRST, _SECOND), 2, (_work(_FIRST), second)), verified=verified)


CASES = (
    _case("each on its own", second=_work(_SECOND), verified=(_FIRST, _SECOND)),
    _case("both on the first", OTHER_GPU.name, second=_work(_FIRST)),
    _case("memory of another GPU", MEMORY_ELSEWHERE.name, second=_work(_SECOND, _FIRST)),
    _case("memory of none", MEMORY_ELSEWHERE.name, second=_work(_SECOND, mib=0)),
    _case("a wrong product", WRONG_RESULT.name, second=_work(_SECOND, correct=False)),
    Case("TensorFlow lists one of two", (GPU_NOT_SEEN.name,), Reading((_FIRST, _SECOND), 1, ())),
)
