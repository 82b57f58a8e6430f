"""A GraphDef imported under a device runs there, unless its nodes name a device themselves.

What it does
    Imports one GraphDef, whose nodes name no device, twice into one graph: under `tf.device("/device:GPU:0")` and under
    `/device:GPU:1`. Each copy computes a matrix product and fills a tensor of 64 MiB. Then it imports one whose nodes
    name `/device:GPU:0` under `/device:GPU:1`. Where the products ran is read from TensorFlow's placement log; which
    GPU that is, from the PCI bus id in its `Created device` line and from the GPU whose memory rose by NVML. A single
    GPU is split into two logical devices.
Why it matters
    A saved model is often served by one copy on each GPU. Nodes that were exported with a device keep it: every copy
    then runs on the same GPU, whatever device it was imported under, and nothing is said.
What a failure means
    `other_device`: a copy whose nodes name no device ran on another one than it was imported under.
    `node_overruled`: a node's own device did not win over the one that it was imported under.
    `other_gpu`: TensorFlow says that a device is another GPU than the one of its number.
    `memory_elsewhere`: the tensor of a copy took memory of another GPU, or of none.
    `gpu_not_seen`, `wrong_result`: TensorFlow does not use the GPUs that it was given, or not correctly.
What to do
    Clear the devices before the import, `for node in graph_def.node: node.device = ""`, or export with
    `clear_devices=True` (`tf.compat.v1.train.export_meta_graph`, `tf.compat.v1.train.import_meta_graph`). Then
    `with tf.device("/device:GPU:1"): tf.graph_util.import_graph_def(graph_def)`.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

from gpudiag import probe
from gpudiag.hostfacts import Facts
from gpudiag.model import Limits, Severity
from gpudiag.placement import created_devices
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
    judge_kernel,
    judge_work,
    rises,
)

PROBE = probe.Probe(
    needs=Needs(gpus=1),
    scope=Scope.ALL_GPUS,
    exclusive=True,
    # Devices are under test. Without growth a session would take nearly all memory of every GPU, and other allocators
    # give memory back before it can be measured.
    env={"TF_FORCE_GPU_ALLOW_GROWTH": "true", "TF_GPU_ALLOCATOR": None},
)

OTHER_DEVICE = Kind(
    "other_device",
    Severity.FAIL,
    "a GraphDef without devices, imported under /device:{scope}, ran on {device}",
    "Set the device of each node before the import: for node in graph_def.node: node.device = '/device:{scope}'",
)
NODE_OVERRULED = Kind(
    "node_overruled",
    Severity.WARNING,
    "nodes that name /device:{named}, imported under /device:{scope}, ran on {device}",
    "Do not rely on either device: clear those of the nodes before the import, "
    "for node in graph_def.node: node.device = ''",
)

COPIES = ("GPU:0", "GPU:1")
NAMED, SCOPE = "GPU:0", "GPU:1"
"""Device that the nodes of the second GraphDef name, and the one that it is imported under."""


class Reading(probe.Reading):
    """Where each copy ran."""

    given: tuple[str, ...]
    """PCI bus ids of the GPUs that the probe was given, in the order of ``CUDA_VISIBLE_DEVICES``."""
    seen: int
    """GPUs that TensorFlow lists."""
    copies: tuple[Work, ...]
    """Without devices, imported under each of :data:`COPIES`; empty where TensorFlow lists too few GPUs."""
    named: Kernel | None = None
    """Of the GraphDef whose nodes name :data:`NAMED`, imported under :data:`SCOPE`."""

    def figure(self) -> str:
        if self.named is None:
            return f"TensorFlow lists {self.seen} of {len(self.given)} GPUs"
        ran_on = ", ".join(work.kernel.device for work in self.copies)
        one_gpu = " (one GPU)" if len(self.given) == 1 else ""
        return f"copies on {ran_on}; own device {self.named.device}{one_gpu}"


def measure(ctx: Context) -> Reading:
    tf, v1 = ctx.tf, ctx.tf.compat.v1
    given = tuple(gpu.pci_bus_id for gpu in ctx.gpus)
    seen = len(tf.config.list_physical_devices("GPU"))
    if seen < len(given):
        return Reading(given, seen, ())

    def definition(device: str) -> Any:
        with tf.Graph().as_default() as graph, tf.device(device):
            matrix, elements = v1.placeholder(tf.float32, [2, 2], "matrix"), v1.placeholder(tf.int32, [1], "elements")
            tf.matmul(matrix, matrix, name="product")
            tf.identity(tf.fill(elements, 1.0)[0], name="large")
        return graph.as_graph_def()

    imports = {f"copy{number}": (definition(""), scope) for number, scope in enumerate(COPIES)}
    imports["named"] = (definition(f"/device:{NAMED}"), SCOPE)
    with tf.Graph().as_default() as graph:
        for name, (graph_def, scope) in imports.items():
            with tf.device(f"/device:{scope}"):
                tf.graph_util.import_graph_def(graph_def, name=name)
    config, _ = devices_in_graphs(ctx)
    with ctx.placements() as log:
        session = v1.Session(graph=graph, config=config)
        matrices = {f"{name}/matrix:0": MATRIX for name in imports}
        products = session.run({name: f"{name}/product:0" for name in imports}, matrices)
    created = created_devices(log.lines)
    ran_on = {one.name: one.device for one in log.placements}
    kernels, copies = {}, []
    for name in imports:
        device = ran_on.get(f"{name}/product", "")
        kernels[name] = Kernel(device, created.get(device, ""), is_square(products[name]))
    for number in range(len(COPIES)):
        fill = partial(session.run, f"copy{number}/large:0", {f"copy{number}/elements:0": [FILLED_BYTES // 4]})
        copies.append(Work(kernels[f"copy{number}"], rises(ctx, fill)))
    session.close()
    return Reading(given, seen, tuple(copies), kernels["named"])


def judge(reading: Reading, facts: Facts, limits: Limits) -> Iterator[Judgement]:
    if reading.seen < len(reading.given) or reading.named is None:
        yield GPU_NOT_SEEN.found(seen=reading.seen, given=len(reading.given))
        return
    expected = dict(zip(COPIES, gpus_of_graph_devices(reading.given), strict=False))
    for scope, copy in zip(COPIES, reading.copies, strict=True):
        if copy.kernel.device != scope:
            yield OTHER_DEVICE.found(scope=scope, device=copy.kernel.device or "(not logged)")
        else:
            yield from judge_work(copy, expected[scope])
    if reading.named.device != NAMED:
        yield NODE_OVERRULED.found(named=NAMED, scope=SCOPE, device=reading.named.device or "(not logged)")
    else:
        yield from judge_kernel(reading.named, expected[NAMED])


_FIRST, _SECOND = "0000:3b:00.0", "0000:af:00.0"
_NAMED = Kernel("GPU:0", _FIRST, True)


def _copy(number: int, pci_bus_id: str, rose_on: str = "", *, correct: bool = True) -> Work:
    rose = {bus_id: 64 * MIB if bus_id == (rose_on or pci_bus_id) else 0 for bus_id in (_FIRST, _SECOND)}
    return Work(Kernel(f"GPU:{number}", pci_bus_id, correct), rose)


def _case(name: str, *expect: str, second: Work, named: Kernel = _NAMED, verified: tuple[str, ...] = (_FIRST,)) -> Case:
    return Case(name, expect, Reading((_FIRST, _SECOND), 2, (_copy(0, _FIRST), second), named), verified=verified)


CASES = (
    _case("each on its own", second=_copy(1, _SECOND), verified=(_FIRST, _SECOND)),
    Case(
        "two halves of one GPU",
        (),
        Reading((_FIRST,), 1, (_copy(0, _FIRST), _copy(1, _FIRST)), _NAMED),
        verified=(_FIRST,),
    ),
    _case("the device of the import is ignored", OTHER_DEVICE.name, second=_copy(0, _FIRST)),
    _case(
        "the device of the nodes is ignored",
        NODE_OVERRULED.name,
        second=_copy(1, _SECOND),
        named=Kernel("GPU:1", _SECOND, True),
        verified=(_FIRST, _SECOND),
    ),
    _case("one GPU behind two numbers", OTHER_GPU.name, second=_copy(1, _FIRST)),
    _case("memory of another GPU", MEMORY_ELSEWHERE.name, second=_copy(1, _SECOND, _FIRST)),
    _case("a wrong product", WRONG_RESULT.name, second=_copy(1, _SECOND, correct=False)),
    Case("TensorFlow lists one of two", (GPU_NOT_SEEN.name,), Reading((_FIRST, _SECOND), 1, ())),
)
