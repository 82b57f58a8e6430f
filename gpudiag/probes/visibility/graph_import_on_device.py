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
What to do
    Clear the devices before the import, `for node in graph_def.node: node.device = ""`, or export with
    `clear_devices=True` (`tf.compat.v1.train.export_meta_graph`, `tf.compat.v1.train.import_meta_graph`). Then
    `with tf.device("/device:GPU:1"): tf.graph_util.import_graph_def(graph_def)`.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from gpudiag import fix, probe
from gpudiag.knowledge.placement import created_devices
from gpudiag.knowledge.variables import FORCE_GROWTH
from gpudiag.probe import FILLED_BYTES, Context, Findings, Kernel, Work, fail, warn
from gpudiag.probes.common import MATRIX, devices_in_graphs, gpus_of_graph_devices, is_square, rises

PROBE = probe.Probe(
    needs=probe.Needs(gpus=1),
    scope=probe.Scope.ALL_GPUS,
    exclusive=True,
    # Devices are under test. Without growth a session would take nearly all memory of every GPU.
    env={FORCE_GROWTH: "true"},
)


class Fault(probe.WorkFaults):
    other_device = fail(
        "a GraphDef without devices, imported under /device:{scope}, ran on {device}",
        means="A GraphDef without devices, imported under tf.device, ran on another device.",
        do=fix.edit(
            "for node in graph_def.node: node.device = '/device:{scope}'",
            "set the device of each node before the import",
        ),
    )
    node_overruled = warn(
        "nodes that name /device:{named}, imported under /device:{scope}, ran on {device}",
        means="A node's own device did not win over the one that it was imported under.",
        do="Do not rely on either device: clear those of the nodes before the import, "
        "for node in graph_def.node: node.device = ''",
    )


COPIES = ("GPU:0", "GPU:1")
NAMED, SCOPE = "GPU:0", "GPU:1"
"""The device that the nodes of the second GraphDef name, and the device that it is imported under."""


class Reading(probe.GpuReading):
    """The device of each imported copy."""

    copies: tuple[Work, ...]
    """The copies of a GraphDef without devices, imported under each of :data:`COPIES`."""
    named: Kernel
    """The product of the GraphDef whose nodes name :data:`NAMED`, imported under :data:`SCOPE`."""

    def figure(self) -> str:
        ran_on = ", ".join(work.kernel.device for work in self.copies)
        one_gpu = " (one GPU)" if len(self.given) == 1 else ""
        return f"copies on {ran_on}; own device {self.named.device}{one_gpu}"


def measure(ctx: Context) -> Reading:
    tf, v1 = ctx.tf, ctx.tf.compat.v1
    ctx.list_gpus()

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
    ran_on = {placement.name: placement.device for placement in log.placements}
    kernels, copies = {}, []
    for name in imports:
        device = ran_on.get(f"{name}/product", "")
        kernels[name] = Kernel(device, created.get(device, ""), is_square(products[name]))
    for number in range(len(COPIES)):
        fill = partial(session.run, f"copy{number}/large:0", {f"copy{number}/elements:0": [FILLED_BYTES // 4]})
        copies.append(Work(kernels[f"copy{number}"], rises(ctx, fill)))
    session.close()
    return Reading(tuple(copies), kernels["named"])


def judge(reading: Reading) -> Findings:
    expected = dict(zip(COPIES, gpus_of_graph_devices(reading.given), strict=False))
    for scope, copy in zip(COPIES, reading.copies, strict=True):
        if copy.kernel.device != scope:
            yield Fault.other_device.found(scope=scope, device=copy.kernel.device or "(not logged)")
        else:
            yield from copy.verified_on(expected[scope])
    if reading.named.device != NAMED:
        yield Fault.node_overruled.found(named=NAMED, scope=SCOPE, device=reading.named.device or "(not logged)")
    else:
        yield from reading.named.verified_on(expected[NAMED])
