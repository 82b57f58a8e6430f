"""What TensorFlow does in a process of its own: adds vectors over the replicas of this node, or of all.

Each step is a line of JSON on a pipe, so that of a process that hangs or dies it is known how far it came.
"""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Callable, Sequence
from typing import Any

from gpudiag.model.report import SIMULATED

SIZES = (4 << 10, 1 << 20, 64 << 20)
"""Bytes of a replica's vector on real GPUs: latency, and the bandwidth of the network."""
SMALL_SIZES = (4 << 10, 256 << 10, 4 << 20)
"""The same on simulated GPUs and on the CPU."""
RING, NCCL = "RING", "NCCL"

_STACK = re.compile(
    r'^ *File "[^"\n]*", line \d+, in .*\n+|^Detected at node .*\n+|^Graph execution error:\s*|'
    r"<stack traces unavailable>\s*",
    re.MULTILINE,
)

Note = Callable[..., None]


def planned(ways: Sequence[str], times: int) -> int:
    """Return how many exchanges a node comes to."""
    return len(ways) * len(SIZES) * times


def models_of_gpus() -> list[str]:
    """Return the models of the GPUs that TensorFlow lists; makes no device."""
    import tensorflow as tf

    details = map(tf.config.experimental.get_device_details, tf.config.list_physical_devices("GPU"))
    return [detail.get("device_name", "unknown") for detail in details]


def sizes_on(models: Sequence[str]) -> tuple[int, ...]:
    """Return the sizes of vectors for GPUs of these models."""
    return SIZES if models and not any(model.startswith(SIMULATED) for model in models) else SMALL_SIZES


def add(ways: Sequence[str], sizes: Sequence[int], times: int, note: Note) -> None:
    """Add vectors over all replicas, in each way and size so often, and note each step.

    With ``TF_CONFIG`` in the environment these are the replicas of all its workers. ``begin`` is noted before an
    exchange, ``ready`` when this node's own devices have computed what they add, and ``end`` after it. Vectors and sums
    are compared on the host: a device that computes wrong would compare wrong, too.
    """
    import numpy as np
    import tensorflow as tf

    note("cluster")
    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    replicas = strategy.num_replicas_in_sync
    note("made", replicas=replicas)
    communication = tf.distribute.experimental.CommunicationImplementation
    for way in ways:
        options = tf.distribute.experimental.CommunicationOptions(implementation=getattr(communication, way))
        for size in sizes:
            own, exchange = _functions(tf, strategy, size // 4, options)
            ramp: Any = (np.arange(size // 4) % 1000).astype(np.float32)
            total = ramp * replicas + np.float32(replicas * (replicas - 1) / 2)
            seconds: list[float] = []
            devices: tuple[str, ...] = ()
            wrong = own_wrong = 0
            for _ in range(times):
                note("begin")
                values = own()
                sources = strategy.experimental_local_results(values)
                first = (strategy.cluster_resolver.task_id or 0) * len(sources)
                for replica, value in enumerate(sources, first):  # waits for the devices
                    own_wrong += int(np.count_nonzero(value.numpy() != ramp + np.float32(replica)))
                note("ready")
                began = time.perf_counter()
                sums = strategy.experimental_local_results(exchange(values))
                for value in sums:
                    value[0].numpy()  # waits for the device
                seconds.append(time.perf_counter() - began)
                wrong += sum(int(np.count_nonzero(value.numpy() != total)) for value in sums)
                devices = tuple(value.backing_device.rpartition("/device:")[2] for value in sources)
                note("end")
            figures = {"seconds": min(seconds), "wrong": wrong, "own_wrong": own_wrong, "devices": devices}
            note("sum", way=way, bytes=size, **figures)
    note("done")
    if replicas > 1:  # nobody leaves while another still adds
        own, exchange = _functions(tf, strategy, 1, tf.distribute.experimental.CommunicationOptions())
        exchange(own())


def _functions(tf: Any, strategy: Any, length: int, options: Any) -> tuple[Callable[[], Any], Callable[[Any], Any]]:
    """Return a function that makes each replica's vector, and one that adds them.

    They are whole numbers that float32 adds in any order without rounding.
    """

    def vector() -> Any:
        ramp = tf.cast(tf.range(length) % 1000, tf.float32)
        return ramp + tf.cast(tf.distribute.get_replica_context().replica_id_in_sync_group, tf.float32)

    def total(values: Any) -> Any:
        return tf.distribute.get_replica_context().all_reduce("sum", tf.identity(values), options)

    @tf.function(autograph=False)  # type: ignore[untyped-decorator]
    def own() -> Any:
        return strategy.run(vector)

    @tf.function(autograph=False)  # type: ignore[untyped-decorator]
    def exchange(values: Any) -> Any:
        return strategy.run(total, args=(values,))

    return own, exchange


LEAVE_S = 4.0
"""How long a process stays after an error: as soon as it ends, TensorFlow elsewhere names it instead of the first to
fail."""


def run(orders: int, notes: int) -> None:
    """Run in a forked child: take orders from one pipe, write notes to another.

    The first order is ``{}``: to import TensorFlow; the second has ``ways``, ``sizes``, ``times`` and ``environ``.
    """

    def note(step: str, **figures: object) -> None:
        os.write(notes, (json.dumps({"step": step, **figures}) + "\n").encode())

    with os.fdopen(orders) as lines:
        if not lines.readline():
            os._exit(0)
        try:
            import tensorflow as tf

            note("imported", version=tf.__version__)
            line = lines.readline()
            if not line:
                os._exit(0)
            order = json.loads(line)
            os.environ.update(order["environ"])
            models = models_of_gpus()
            note("gpus", models=models)
            add(order["ways"], order["sizes"] or sizes_on(models), order["times"], note)
        except BaseException as error:
            message = _STACK.sub("", str(error))  # of the graph's operation, which is gpudiag's own
            note("error", type=type(error).__name__, message=message[:16384])
            time.sleep(LEAVE_S)
            os._exit(1)
        note("left")
        time.sleep(LEAVE_S)
        os._exit(0)
