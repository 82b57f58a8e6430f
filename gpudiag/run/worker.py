"""The far side of a probe: in a child process, run one ``measure`` and return its reading as JSON.

The child was forked from a server that ran :func:`preload`, or it is a new interpreter. Exceptions propagate: the
isolation layer makes them an outcome.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import msgspec

from gpudiag import catalogue
from gpudiag.errors import NoContext, NoMemory, OperationFailed
from gpudiag.hardware import nvml
from gpudiag.model.report import Gpu
from gpudiag.probe import (
    FewerListed,
    GpuReading,
)
from gpudiag.run.context import NO_CONTEXT, ChildContext, has_queried_devices, raised
from gpudiag.run.rendezvous import Meeting
from gpudiag.run.timelines import TIMELINES


def run_probe(argument: dict[str, Any]) -> bytes:
    """Run ``argument["probe"]`` on ``argument["gpus"]`` (a list of :class:`Gpu` as JSON) and return its reading.

    Beside the fields of the reading are the timelines of memory, as :data:`TIMELINES`, if there are any.
    Raises what the probe raises, and ``ValueError`` for a NaN or an infinity in the reading: JSON has neither.
    """
    name = argument["probe"]
    entry = catalogue.get(name)
    ctx = context(argument, own="probe", other="peer")
    with _refusals_of_gpus(on_gpus=bool(ctx.gpus)):
        try:
            with ctx.timelines.running() if entry.probe.exclusive else nullcontext():
                reading = entry.module.measure(ctx)
        except FewerListed as fewer:
            reading = GpuReading(given=ctx.given, seen=fewer.seen)
        else:
            if isinstance(reading, GpuReading):
                reading = msgspec.structs.replace(reading, given=ctx.given, seen=len(ctx.gpus))
        measured = msgspec.to_builtins(reading)
        if isinstance(measured, dict) and (timelines := ctx.timelines.taken()):
            measured[TIMELINES] = msgspec.to_builtins(timelines)
        return _encoded(measured, name)


def run_peer(argument: dict[str, Any]) -> bytes:
    """Run the second process of a probe; ``argument`` is the same as for :func:`run_probe`."""
    # A GPU that is not listed is for the probe itself to report: it finds as many.
    with _refusals_of_gpus(), contextlib.suppress(FewerListed):
        catalogue.get(argument["probe"]).module.peer(context(argument, own="peer", other="probe"))
    Meeting(Path(argument["meeting"]), "peer", "probe").leave()  # where it raises, the runner ends the other
    return b"null"


def run_apart(argument: dict[str, Any]) -> bytes:
    """Call ``argument["call"]``: the far side of :meth:`ChildContext.apart`."""
    with _refusals_of_gpus():
        try:
            answer = argument["call"]()
        except FewerListed as fewer:
            answer = fewer.seen  # a number, which no answer is
        return _encoded(answer, "a process apart")


_OF_THE_GPU = ("AbortedError", "DataLossError", "InternalError", "UnavailableError", "UnknownError")
"""TensorFlow's errors that no argument of a program causes: CUDA or one of its libraries answered with an error."""


@contextmanager
def _refusals_of_gpus(*, on_gpus: bool = True) -> Iterator[None]:
    """Distinguish a probe's own failure from a GPU that gives it no context, no memory or an error."""
    try:
        yield
    except Exception as error:
        if refused := NO_CONTEXT.search(str(error)):
            raise NoContext(refused[0]) from error
        if type(error).__name__ == "ResourceExhaustedError":
            raise NoMemory(raised(error).brief) from error
        if on_gpus and type(error).__name__ in _OF_THE_GPU:
            raise OperationFailed(raised(error).brief) from error
        raise


def _encoded(measured: Any, who: str) -> bytes:
    try:
        # Not msgspec's own encoder: it writes null for NaN and infinity.
        text = json.dumps(msgspec.to_builtins(measured), allow_nan=False, ensure_ascii=False)
        return text.encode(errors="replace")  # a text of the system may hold a byte that is not UTF-8
    except ValueError:
        raise ValueError(f"{who} measured a NaN or an infinity: {measured}") from None


def context(argument: dict[str, Any], own: str, other: str) -> ChildContext:
    folder = argument.get("meeting")
    peer = None if folder is None else Meeting(Path(folder), own, other)
    return ChildContext(msgspec.convert(argument["gpus"], tuple[Gpu, ...]), peer)


def preload() -> Callable[[], str | None]:
    """Import TensorFlow for a fork server; return the guard to call before each fork.

    The guard returns why the process must not fork any more, or None. It looks at Python state only: asking TensorFlow
    would itself query the devices.
    """
    guard = _import()
    _compute()
    return guard


def _import() -> Callable[[], str | None]:
    import tensorflow

    _register_kernels_of_xla(Path(tensorflow.__file__).parent)
    catalogue.entries()  # imports every probe once for all children, 30 ms
    with contextlib.suppress(ImportError):  # the children say what is missing
        nvml.preload()

    def guard() -> str | None:
        if not has_queried_devices():
            return None
        return (
            "TensorFlow has queried devices in the fork server: every child would inherit its device list, whatever "
            "CUDA_VISIBLE_DEVICES says, and hang at its first operation on a GPU."
        )

    return guard


def _register_kernels_of_xla(tensorflow: Path) -> None:
    """Let TensorFlow make the registrations that the first graph of each child would make.

    They take 7 ms, and TensorFlow builds its table of kernels again: pages that a child would have to copy. The first
    device and operation of a child on a simulated GPU took 10,950 page faults and 89 ms of processor time without this,
    and 6,605 and 66 ms with it (2.21.0). No device is made or looked for. A TensorFlow without the function goes on.
    """
    with contextlib.suppress(OSError, AttributeError):
        library = ctypes.CDLL(str(tensorflow / "libtensorflow_cc.so.2"), mode=os.RTLD_NOLOAD)
        register = library._ZN10tensorflow13XlaOpRegistry26RegisterCompilationKernelsEv
        register.restype = None
        register()


def _compute() -> None:
    """Let TensorFlow compute a matrix product now, so that no child needs to prepare what any first operation needs.

    oneDNN writes the machine code of its products at the first one, and TensorFlow arranges its kernels: 50 of the
    118 ms of processor time, and 1,790 of the 7,540 page faults, of a child that makes its devices, an operation and a
    ``tf.function`` (2.21.0). As it makes a graph, TensorFlow itself computes what is constant there, in the calling
    thread: no device is made or looked for. A TensorFlow that does it in another way goes on.
    """
    with contextlib.suppress(Exception):
        import tensorflow as tf
        from tensorflow.python.eager import context
        from tensorflow.python.framework import ops, tensor_util

        try:
            with tf.Graph().as_default() as graph:
                ones = tf.fill([2, 2], 1.0)
                tensor_util.try_evaluate_constant(tf.matmul(ones, ones))
            ops.dismantle_graph(graph)  # a graph is a cycle, and the server collects none
        finally:
            context._context = None  # no program begins with one: enable_eager_execution() refuses it


def preload_simulated() -> Callable[[], str | None]:
    """Do as :func:`preload`, on a simulated machine: forward TensorFlow's kernels once for all children."""
    from gpudiag import simulator

    guard = _import()
    simulator.preload()
    _compute()  # last, because TensorFlow arranges its kernels at the first one that it looks for
    return guard
