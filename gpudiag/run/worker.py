"""The far side of a probe: in a child process, run one ``measure`` and return its reading as JSON.

The child was forked from a server that ran :func:`preload`, or it is a new interpreter. Exceptions propagate: the
isolation layer makes them an outcome.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import msgspec

from gpudiag import catalogue
from gpudiag.errors import NoMemory, OperationFailed
from gpudiag.hardware import nvml
from gpudiag.model.report import Gpu
from gpudiag.probe import FewerListed, GpuReading, Measurement
from gpudiag.run import first_use
from gpudiag.run.context import ChildContext, has_queried_devices, raised, refuse_what_is_no_result
from gpudiag.run.rendezvous import Meeting


def run_probe(argument: dict[str, Any]) -> bytes:
    """Run ``argument["probe"]`` on ``argument["gpus"]`` (a list of :class:`Gpu` as JSON); return its ``Measurement``.

    Raises the probe's exceptions, and ``ValueError`` for a NaN or an infinity in the reading: JSON has neither.
    """
    name = argument["probe"]
    entry = catalogue.get(name)
    ctx = context(argument, own="probe", other="peer")
    with _refusals_of_gpus(on_gpus=bool(ctx.gpus)):
        try:
            with ctx.timelines.running() if entry.probe.exclusive else nullcontext():
                reading = entry.module.measure(ctx)
        except FewerListed as fewer:
            complete, reading = False, GpuReading(given=ctx.given, seen=fewer.seen)
        else:
            complete = True
            if isinstance(reading, GpuReading):
                reading = msgspec.structs.replace(reading, given=ctx.given, seen=len(ctx.gpus))
        measurement = Measurement(msgspec.Raw(_encoded(reading, name)), complete, ctx.timelines.taken())
        return msgspec.json.encode(measurement)


def run_peer(argument: dict[str, Any]) -> bytes:
    """Run the second process of a probe; ``argument`` is the same as for :func:`run_probe`."""
    # A GPU that is not listed is for the probe itself to report: it finds as many.
    with _refusals_of_gpus(), contextlib.suppress(FewerListed):
        catalogue.get(argument["probe"]).module.peer(context(argument, own="peer", other="probe"))
    Meeting(Path(argument["meeting"]), "peer", "probe").leave()  # where it raises, the runner ends the other
    return b"null"


def run_apart(argument: dict[str, Any]) -> bytes:
    """Call ``argument["call"]`` in its own process, for :meth:`ChildContext.apart`."""
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
        refuse_what_is_no_result(error)
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
    load = None
    if "load" in argument:
        from gpudiag.run.load import Company

        load = Company(**argument["load"])
    return ChildContext(msgspec.convert(argument["gpus"], tuple[Gpu, ...]), peer, load)


def preload() -> Callable[[], str | None]:
    """Import TensorFlow for a fork server; return the guard to call before each fork.

    The guard returns why the process must not fork any more, or None. It looks at Python state only: asking TensorFlow
    would itself query the devices.
    """
    guard = _import()
    first_use.compute()
    return guard


def _import() -> Callable[[], str | None]:
    import numpy.random  # noqa: F401  # 25 ms in each of the eleven children that draw numbers
    import tensorflow  # noqa: F401

    first_use.register_kernels_of_xla()
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


def preload_simulated() -> Callable[[], str | None]:
    """Do as :func:`preload`, on a simulated machine: forward TensorFlow's kernels once for all children."""
    from gpudiag import simulator

    guard = _import()
    simulator.preload()
    first_use.compute()  # not before, because TensorFlow arranges its kernels at the first one that it looks for
    return guard
