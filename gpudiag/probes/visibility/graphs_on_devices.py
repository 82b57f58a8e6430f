"""Graphs that each name a device of their own compute and take memory there, in one process.

What it does
    Builds a graph for every GPU under `tf.device("/device:GPU:n")` and opens a `tf.compat.v1.Session` for each, all
    with the same `ConfigProto` and all open at once. Each computes a matrix product and fills a tensor of 64 MiB. Where
    the product ran is read from TensorFlow's placement log; which GPU that is, from the PCI bus id in its `Created
    device` line and from the GPU whose memory rose by NVML. A single GPU is split into two logical devices.
Why it matters
    It is the way to give each graph of a process its GPU: sessions that each have their own `visible_device_list` are
    refused (visibility.list_session_conflict). A graph on the wrong device shares a GPU while another is idle.
What a failure means
    `other_device`: a graph ran on another device than the one it names.
    `other_gpu`: TensorFlow says that a device is another GPU than the one of its number.
    `memory_elsewhere`: the tensor of a graph took memory of another GPU, or of none.
    `gpu_not_seen`, `wrong_result`: TensorFlow does not use the GPUs that it was given, or not correctly.
What to do
    Name the device within each graph: `with graph.as_default(), tf.device("/device:GPU:1"):`, and give every session
    the same options: `tf.compat.v1.Session(graph=graph, config=config)`. Without sessions: `with tf.device("GPU:1"):`.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, closing
from functools import partial

from gpudiag import probe
from gpudiag.hostfacts import Facts
from gpudiag.model import Limits, Severity
from gpudiag.placement import created_devices, devices_of
from gpudiag.probe import Case, Context, Judgement, Kind, Needs, Scope
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
    devices_in_graphs,
    gpus_of_graph_devices,
    is_square,
    judge_work,
    rises,
)

PROBE = probe.Probe(
    needs=Needs(gpus=1, free_bytes=256 * MIB),
    scope=Scope.ALL_GPUS,
    exclusive=True,
    # Devices are under test. Without growth a session would take nearly all memory of every GPU, and other allocators
    # give memory back before it can be measured.
    env={"TF_FORCE_GPU_ALLOW_GROWTH": "true", "TF_GPU_ALLOCATOR": None},
)

OTHER_DEVICE = Kind(
    "other_device",
    Severity.FAIL,
    "a graph under /device:{named} ran its matrix product on {device}",
    "Look for what changes its devices (an importer, a wrapper): print([op.device for op in graph.get_operations()])",
)


class Reading(probe.Reading):
    """What each graph did."""

    given: tuple[str, ...]
    """PCI bus ids of the GPUs that the probe was given, in the order of ``CUDA_VISIBLE_DEVICES``."""
    seen: int
    """GPUs that TensorFlow lists."""
    graphs: tuple[Work, ...]
    """That under ``/device:GPU:0`` first; empty where TensorFlow lists too few GPUs."""

    def figure(self) -> str:
        if not self.graphs:
            return f"TensorFlow lists {self.seen} of {len(self.given)} GPUs"
        devices = {work.kernel.device for work in self.graphs}
        return f"{len(self.graphs)} graphs on {len(devices)} devices" + (" of one GPU" if len(self.given) == 1 else "")


def measure(ctx: Context) -> Reading:
    tf, v1 = ctx.tf, ctx.tf.compat.v1
    given = tuple(gpu.pci_bus_id for gpu in ctx.gpus)
    seen = len(tf.config.list_physical_devices("GPU"))
    if seen < len(given):
        return Reading(given, seen, ())
    config, count = devices_in_graphs(ctx)
    graphs = []
    created: dict[str, str] = {}
    with ExitStack() as sessions:
        for number in range(count):
            with tf.Graph().as_default() as graph, tf.device(f"/device:GPU:{number}"):
                matrix, elements = v1.placeholder(tf.float32, [2, 2]), v1.placeholder(tf.int32, [1])
                product, large = tf.matmul(matrix, matrix), tf.fill(elements, 1.0)[0]
            with ctx.placements() as log:
                session = sessions.enter_context(closing(v1.Session(graph=graph, config=config)))
                correct = is_square(session.run(product, {matrix: MATRIX}))
            created |= created_devices(log.lines)  # a device is created once: in the first session that has it
            (device,) = devices_of("MatMul", log.placements) or ("",)
            rose = rises(ctx, partial(session.run, large, {elements: [FILLED_BYTES // 4]}))
            graphs.append(Work(Kernel(device, created.get(device, ""), correct), rose))
    return Reading(given, seen, tuple(graphs))


def judge(reading: Reading, facts: Facts, limits: Limits) -> Iterator[Judgement]:
    if reading.seen < len(reading.given):
        yield GPU_NOT_SEEN.found(seen=reading.seen, given=len(reading.given))
        return
    for number, (work, expected) in enumerate(zip(reading.graphs, gpus_of_graph_devices(reading.given), strict=True)):
        if work.kernel.device != f"GPU:{number}":
            yield OTHER_DEVICE.found(named=f"GPU:{number}", device=work.kernel.device or "(not logged)")
        else:
            yield from judge_work(work, expected)


_FIRST, _SECOND = "0000:3b:00.0", "0000:af:00.0"


def _work(number: int, pci_bus_id: str, rose_on: str = "", *, mib: int = 64, correct: bool = True) -> Work:
    rose = {bus_id: mib * MIB if bus_id == (rose_on or pci_bus_id) else 0 for bus_id in (_FIRST, _SECOND)}
    return Work(Kernel(f"GPU:{number}", pci_bus_id, correct), rose)


def _case(name: str, *expect: str, second: Work, verified: tuple[str, ...] = (_FIRST,)) -> Case:
    return Case(name, expect, Reading((_FIRST, _SECOND), 2, (_work(0, _FIRST), second)), verified=verified)


CASES = (
    _case("each on its own", second=_work(1, _SECOND), verified=(_FIRST, _SECOND)),
    Case(
        "two halves of one GPU",
        (),
        Reading((_FIRST,), 1, (_work(0, _FIRST), _work(1, _FIRST))),
        verified=(_FIRST,),
    ),
    _case("both on the first", OTHER_DEVICE.name, second=_work(0, _FIRST)),
    _case("one GPU behind two numbers", OTHER_GPU.name, second=_work(1, _FIRST)),
    _case("memory of another GPU", MEMORY_ELSEWHERE.name, second=_work(1, _SECOND, _FIRST)),
    _case("memory of none", MEMORY_ELSEWHERE.name, second=_work(1, _SECOND, mib=0)),
    _case("a wrong product", WRONG_RESULT.name, second=_work(1, _SECOND, correct=False)),
    Case("TensorFlow lists one of two", (GPU_NOT_SEEN.name,), Reading((_FIRST, _SECOND), 1, ())),
)
