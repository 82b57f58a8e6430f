"""Graphs that each name their own device compute and take memory there, in one process.

What it does
    Builds a graph for every GPU under `tf.device("/device:GPU:n")` and opens a `tf.compat.v1.Session` for each, all
    with the same `ConfigProto` and all open at once. Each computes a matrix product and fills a tensor of 64 MiB. Where
    the product ran is read from TensorFlow's placement log; which GPU that is, from the PCI bus id in its `Created
    device` line and from the GPU whose memory rose by NVML. A single GPU is split into two logical devices.
Why it matters
    It is the way to give each graph of a process its GPU: sessions that each have their own `visible_device_list` are
    refused (visibility.list_session_conflict). A graph on the wrong device shares a GPU while another is idle.
What to do
    Name the device within each graph: `with graph.as_default(), tf.device("/device:GPU:1"):`, and give every session
    the same options: `tf.compat.v1.Session(graph=graph, config=config)`. Without sessions: `with tf.device("GPU:1"):`.
"""

from __future__ import annotations

from contextlib import ExitStack, closing
from functools import partial

from gpudiag import fix, probe
from gpudiag.knowledge.placement import created_devices, devices_of
from gpudiag.knowledge.variables import FORCE_GROWTH
from gpudiag.probe import FILLED_BYTES, MIB, Context, Findings, Kernel, Work, fail
from gpudiag.probes.common import MATRIX, devices_in_graphs, gpus_of_graph_devices, is_square, rises

PROBE = probe.Probe(
    needs=probe.Needs(gpus=1, free_bytes=256 * MIB),
    scope=probe.Scope.ALL_GPUS,
    sampled=True,
    exclusive=True,
    # Devices are under test. Without growth a session would take nearly all memory of every GPU.
    env={FORCE_GROWTH: "true"},
)


class Fault(probe.WorkFaults):
    other_device = fail(
        "a graph under /device:{named} ran its matrix product on {device}",
        means="A graph under tf.device ran its matrix product on another device.",
        do=fix.edit(
            "print([op.device for op in graph.get_operations()])",
            "look for what changes its devices (an importer, a wrapper)",
        ),
    )


class Reading(probe.GpuReading):
    """The device and memory of each graph."""

    graphs: tuple[Work, ...]
    """The work of both graphs, the one under ``/device:GPU:0`` first."""

    def figure(self) -> str:
        devices = {work.kernel.device for work in self.graphs}
        return f"{len(self.graphs)} graphs on {len(devices)} devices" + (" of one GPU" if len(self.given) == 1 else "")


def measure(ctx: Context) -> Reading:
    tf, v1 = ctx.tf, ctx.tf.compat.v1
    ctx.list_gpus()
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
    return Reading(tuple(graphs))


def judge(reading: Reading) -> Findings:
    for number, (work, expected) in enumerate(zip(reading.graphs, gpus_of_graph_devices(reading.given), strict=True)):
        if work.kernel.device != f"GPU:{number}":
            yield Fault.other_device.found(named=f"GPU:{number}", device=work.kernel.device or "(not logged)")
        else:
            yield from work.verified_on(expected)
