"""The fixtures of the plugin: the devices of this process, where operations ran, and how much memory they took."""

from __future__ import annotations

import contextlib
import os
import re
import sys
import warnings
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, Protocol

import pytest

from gpudiag.pytest_plugin import isolated, settings
from gpudiag.pytest_plugin.gpus import MASK, Device, labels, of, size_text
from gpudiag.pytest_plugin.isolated import RunIsolated
from gpudiag.pytest_plugin.summary import CPU_FALLBACKS, DEVICE, PEAK_BYTES

if TYPE_CHECKING:
    from gpudiag.knowledge.placement import Placement
    from gpudiag.model.facts import Facts
    from gpudiag.tracing.part import Traced

__all__ = [
    "CapturePlacement",
    "Device",
    "Facts",
    "MeasureMemory",
    "MemoryPeak",
    "Operations",
    "PlacementLog",
    "RunIsolated",
    "Simulate",
    "SimulatedMachine",
    "Traced",
]
"""The types of the fixtures and of their values, for annotations."""

_NEVER_ON_A_GPU = (  # not compiled here: that is a millisecond of every session
    r"_?(Arg|Retval|DeviceArg|DeviceRetval|HostSend|HostRecv|Send|Recv|EagerConst|Const|NoOp|Identity|IdentityN|Shape|ShapeN|Size|Rank)"
    r"|(?s:.*(Dataset|Iterator|Summary|Checkpoint).*)"
)
"""Operations that compute nothing: arguments and results, queries of a shape, inputs of a model, writers of files."""
_LOG_LEVEL = "TF_CPP_MIN_LOG_LEVEL"
_LOG_IS_ON = pytest.StashKey[bool]()
"""Stash key of a session in whose process TensorFlow logs placements."""


@pytest.fixture
def gpudiag_devices(pytestconfig: pytest.Config) -> tuple[Device, ...]:
    """The GPUs that this process may use, in TensorFlow's numbering; empty if there is none."""
    return of(pytestconfig).devices


@pytest.fixture(scope="session")
def gpudiag_facts() -> Facts:
    """The facts about this machine without TensorFlow: driver, NVML, libraries, environment, packages."""
    from gpudiag.pytest_plugin.preflight import Unobserved
    from gpudiag.run import runner
    from gpudiag.run.machine import start_machine
    from gpudiag.run.options import Options
    from gpudiag.run.signals import Signals

    with contextlib.ExitStack() as stack:
        options = Options(entries=(), machine=start_machine(None, (), stack))
        return runner.gather(options, Unobserved(), Signals())


@pytest.fixture
def gpudiag_trace() -> Callable[[], AbstractContextManager[Traced]]:
    """Watch a part of a test: ``with gpudiag_trace() as report: ...``, then ``assert not report.causes``."""
    from gpudiag.tracing.part import trace

    return trace


@dataclass(frozen=True)
class Operations:
    """The operations of one type that ran; there may be none."""

    op: str
    placements: tuple[Placement, ...]

    @property
    def devices(self) -> tuple[str, ...]:
        """The devices on which the operations ran, such as ``GPU:0``; each once."""
        return tuple(dict.fromkeys(placement.device for placement in self.placements))

    def on(self, device: str) -> Literal[True]:
        """Return True; raises ``AssertionError`` unless operations ran and all of them ran on ``device``, such as
        ``GPU:1``."""
        __tracebackhide__ = True
        wanted = device.removeprefix("/").removeprefix("device:")
        if not self.placements:
            raise AssertionError(f"{self.op} on {wanted}: no {self.op} ran")
        if self.devices != (wanted,):
            raise AssertionError(f"{self.op} on {wanted}: it was {_text(self.placements)}")
        return True


@dataclass
class PlacementLog:
    """Where TensorFlow ran operations inside a ``with`` block; complete when the block has ended.

    A function that TensorFlow compiled before the block is not placed again, so its operations do not appear.
    """

    placements: tuple[Placement, ...] = ()
    gpus: tuple[str, ...] = ()
    """TensorFlow's GPUs, such as ``GPU:0``."""

    def ops(self, op: str) -> Operations:
        """Return the operations of type ``op``, such as ``MatMul``, including replacements by other libraries."""
        return Operations(op, tuple(placement for placement in self.placements if _plain(placement.op) == op))

    @property
    def cpu_fallbacks(self) -> tuple[Placement, ...]:
        """Operations computed on the CPU, except those that always run there (datasets, arguments, shapes,
        summaries)."""
        found: dict[tuple[str, str, str], Placement] = {}
        eager = {(_plain(placement.op), placement.device) for placement in self.placements if not placement.name}
        for placement in self.placements:
            op = _plain(placement.op)
            # TensorFlow logs an eager operation once more as the only node of a graph, and oneDNN's in place of it too.
            if placement.device.startswith("CPU:") and (not placement.name or (op, placement.device) not in eager):
                found.setdefault((op, placement.device, _plain(placement.name)), placement)
        return tuple(placement for (op, *_), placement in found.items() if not re.fullmatch(_NEVER_ON_A_GPU, op))

    def assert_no_cpu_fallback(self, allow: Iterable[str] = ()) -> None:
        """Raise ``AssertionError`` if an operation of a type that is not in ``allow`` computed on the CPU."""
        __tracebackhide__ = True
        allowed = {allow} if isinstance(allow, str) else set(allow)
        fallbacks = [placement for placement in self.cpu_fallbacks if _plain(placement.op) not in allowed]
        if fallbacks:
            raise AssertionError(f"ran on the CPU: {_text(fallbacks)} (GPUs: {', '.join(self.gpus) or 'none'})")
        if not self.placements:
            raise AssertionError("no operation ran at all, so it is not known where operations would run")


class CapturePlacement(Protocol):
    """The type of the fixture ``gpudiag_placement``."""

    def __call__(self) -> AbstractContextManager[PlacementLog]:
        """Record where TensorFlow runs operations inside the block."""


@pytest.fixture
def gpudiag_placement(request: pytest.FixtureRequest) -> CapturePlacement:
    """Records where operations run: ``with gpudiag_placement() as placement: ...``, and after the block
    ``placement.ops("MatMul").on("GPU:1")`` and ``placement.assert_no_cpu_fallback()``.

    TensorFlow logs placements only if the log was switched on before it made its devices, and then until the process
    ends (measured: 2.21). So use it in isolated tests; elsewhere the log is switched on before the first test, for all
    tests of the process, if TensorFlow was imported and no tensor was made by then. What it logs is left out of the
    captured output that pytest shows.
    """
    _switch_log_on(request.config)

    @contextlib.contextmanager
    def capture() -> Generator[PlacementLog, None, None]:
        import tensorflow as tf

        from gpudiag.knowledge.placement import short_device
        from gpudiag.run.context import ChildContext

        log = PlacementLog()
        with ChildContext(()).placements() as captured:
            yield log
            with tf.device("CPU:0"):
                tf.raw_ops.NoOp()  # if even this is not logged, the log is switched off
        log.placements = captured.placements
        log.gpus = tuple(short_device(device.name) for device in tf.config.list_logical_devices("GPU"))
        if not any(placement.op == "NoOp" and not placement.name for placement in log.placements):
            if level := os.environ.get(_LOG_LEVEL, "0").strip("0"):
                raise RuntimeError(f"{_LOG_LEVEL}={level} hides TensorFlow's placements. Unset it before the import.")
            raise RuntimeError(
                "TensorFlow logs no placements: its devices were made before the log was switched on. Mark the test "
                "@pytest.mark.gpudiag_isolated, or import TensorFlow in the test's module and make no tensor there."
            )
        fallbacks = sum(placement.count for placement in log.cpu_fallbacks)
        _record(request, CPU_FALLBACKS, lambda before: before + fallbacks)

    return capture


@pytest.hookimpl(trylast=True)
def pytest_collection_finish(session: pytest.Session) -> None:
    """Switch TensorFlow's placement log on before the first test if a test needs it."""
    if "tensorflow" in sys.modules and any(
        "gpudiag_placement" in getattr(item, "fixturenames", ())
        and (isolated.is_far_side(session.config) or item.get_closest_marker(isolated.MARKER) is None)
        for item in session.items
    ):
        _switch_log_on(session.config)


def _switch_log_on(config: pytest.Config) -> None:
    import tensorflow as tf

    tf.debugging.set_log_device_placement(True)
    config.stash[_LOG_IS_ON] = True


@pytest.hookimpl(wrapper=True, trylast=True)  # while pytest captures
def _flushed(item: pytest.Item) -> Generator[None, object, object]:
    """Flush C's buffer of stdout, which would be written into another test's output, or when pytest has ended.

    TensorFlow prints the placements of graphs to it.
    """
    try:
        return (yield)
    finally:
        if _LOG_IS_ON in item.config.stash:
            import ctypes

            ctypes.CDLL(None).fflush(None)


pytest_runtest_setup = pytest_runtest_call = pytest_runtest_teardown = _flushed


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Leave TensorFlow's placements, several lines for each operation, out of the captured output of a report."""
    report = yield
    if _LOG_IS_ON in item.config.stash:
        from gpudiag.knowledge.placement import without_placements

        sections = ((title, without_placements(text)) for title, text in report.sections)
        report.sections = [section for section in sections if section[1]]
    return report


@dataclass
class MemoryPeak:
    """The memory that tensors took on a device inside a ``with`` block; complete when the block has ended."""

    device: str
    before_bytes: int = 0
    """Bytes in use when the block began; they are part of the peak."""
    peak_bytes: int = 0

    def assert_peak_below(self, limit: str | int) -> None:
        """Raise ``AssertionError`` unless the peak was less than ``limit``: ``2GiB``, ``512MiB`` or bytes."""
        __tracebackhide__ = True
        limit_bytes = limit if isinstance(limit, int) else settings.size(limit)
        if self.peak_bytes >= limit_bytes:
            raise AssertionError(
                f"peak of {_bytes(self.peak_bytes)} on {self.device}, {_bytes(self.before_bytes)} of it held before; "
                f"the limit is {_bytes(limit_bytes)}"
            )


class MeasureMemory(Protocol):
    """The type of the fixture ``gpudiag_memory``."""

    def __call__(self, device: str = "GPU:0") -> AbstractContextManager[MemoryPeak]:
        """Measure the memory of TensorFlow's device ``device`` inside the block."""


@pytest.fixture
def gpudiag_memory(request: pytest.FixtureRequest) -> MeasureMemory:
    """Measures the peak of memory on a GPU: ``with gpudiag_memory("GPU:0") as memory: ...``, then
    ``memory.assert_peak_below("2GiB")``.

    TensorFlow's allocator counts tensors and the libraries' workspaces. Memory that TensorFlow holds in reserve, and
    that of CUDA and of other processes, does not count.
    """

    @contextlib.contextmanager
    def measure(device: str = "GPU:0") -> Generator[MemoryPeak, None, None]:
        import tensorflow as tf

        peak = MemoryPeak(device)
        tf.config.experimental.reset_memory_stats(device)
        peak.before_bytes = int(tf.config.experimental.get_memory_info(device)["current"])
        try:
            yield peak
        finally:
            peak.peak_bytes = int(tf.config.experimental.get_memory_info(device)["peak"])
            _record(request, PEAK_BYTES, lambda before: max(before, peak.peak_bytes))
            _record_device(request, device)

    return measure


@dataclass(frozen=True)
class SimulatedMachine:
    """A machine with simulated GPUs that exists until the test ends."""

    run: RunIsolated
    """Call a function in a new interpreter on that machine, like ``gpudiag_run_isolated`` on this one."""
    environment: Mapping[str, str] = field(repr=False)
    """The environment of a process on that machine, for ``subprocess``."""


class Simulate(Protocol):
    """The type of the fixture ``gpudiag_simulated``."""

    def __call__(self, spec: str, faults: Iterable[str] = ()) -> SimulatedMachine:
        """Make a machine from a specification such as ``2x16GiB``, optionally with faults."""


@pytest.fixture
def gpudiag_simulated(request: pytest.FixtureRequest) -> Simulate:
    """Simulated GPUs on a machine that has none: ``gpudiag_simulated("2x16GiB").run(function, *args)``.

    The test is skipped if GPUs cannot be simulated, for example without TensorFlow's CUDA build.
    """
    own = MASK, "TF_FORCE_GPU_ALLOW_GROWTH", "TF_PER_DEVICE_MEMORY_LIMIT_MB"

    def simulate(spec: str, faults: Iterable[str] = ()) -> SimulatedMachine:
        from gpudiag import simulator

        try:
            simulator.require_cuda_wheel()
            made = simulator.Machine(spec, faults)
        except (simulator.SimulatorMissing, simulator.CudaWheelMissing) as missing:
            pytest.skip(str(missing))

        def end() -> None:
            without_effect = made.without_effect()
            made.__exit__(None, None, None)
            for fault in without_effect:
                warnings.warn(pytest.PytestWarning(simulator.no_effect(fault)), stacklevel=1)

        request.addfinalizer(end)
        environment = {name: value for name, value in made.__enter__().environment().items() if name not in own}
        return SimulatedMachine(isolated.caller(request, {**dict.fromkeys(own), **environment}), environment)

    return simulate


def _record(request: pytest.FixtureRequest, name: str, value: Callable[[int], int]) -> None:
    """Record a user property of the test once; ``value`` receives its old value, or 0."""
    properties = request.node.user_properties
    before = [entry for entry in properties if entry[0] == name]
    for entry in before:
        properties.remove(entry)
    properties.append((name, value(before[-1][1] if before else 0)))


def _record_device(request: pytest.FixtureRequest, name: str) -> None:
    """Record which GPU is TensorFlow's device ``name``, if this process was given that GPU."""
    number = name.removeprefix("/").removeprefix("device:").removeprefix("GPU:")
    label = labels([int(number)], of(request.config).devices) if number.isdecimal() else name
    if not any(key == DEVICE for key, _ in request.node.user_properties):
        request.node.user_properties.append((DEVICE, label))


def _plain(name: str) -> str:
    """Return the operation that oneDNN's operation replaces."""
    return name.removeprefix("_Mkl")


def _text(placements: Iterable[Placement]) -> str:
    """Return the operations in words: ``MatMul x3 on CPU:0, AddV2 on CPU:0``."""
    ran = Counter[tuple[str, str]]()
    for placement in placements:
        ran[_plain(placement.op), placement.device] += placement.count
    return ", ".join(f"{op}{f' x{count}' if count > 1 else ''} on {device}" for (op, device), count in ran.items())


def _bytes(size: int) -> str:
    return size_text(size) if size >= 1 << 20 else f"{size} bytes"
