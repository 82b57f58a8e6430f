"""The reports of the plugin: JUnit properties of each test, a section of the terminal summary, leaks."""

from __future__ import annotations

import os
import sys
from collections.abc import Generator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest

from gpudiag.pytest_plugin import settings
from gpudiag.pytest_plugin.assign import RUN, AssigningSession
from gpudiag.pytest_plugin.gpus import ask, labels, of, size_text
from gpudiag.pytest_plugin.markers import NEED

if TYPE_CHECKING:
    from gpudiag.model.facts import GpuProcess

DEVICE, PEAK_BYTES, CPU_FALLBACKS = "gpudiag_device", "gpudiag_peak_bytes", "gpudiag_cpu_fallbacks"
"""The names of user properties. Fixtures record the last two, each as a whole number."""

MOST_TESTS = 20
"""The most lines of the summary; the other tests are in the JUnit file, or shown with -v."""


@dataclass
class Told:
    """Data collected from the reports of a session's tests."""

    tests: dict[str, dict[str, Any]] = field(default_factory=dict)
    leaks: list[str] = field(default_factory=list)
    codes: dict[str, str] = field(default_factory=dict)
    """The codes of errors in what failed tests show, with their meanings."""
    lack: str = ""
    """Why a run has failed although no test did."""


TOLD = pytest.StashKey[Told]()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, object, object]:
    """Record which device a test used, and the most memory its tensors took there."""
    if not settings.of(item.config).on and NEED not in item.stash:
        return (yield)
    before = _start_measuring()
    try:
        return (yield)
    finally:
        peaks = _peaks()
        used = [index for index, peak in enumerate(peaks) if peak > (before[index] if before else 0)]
        recorded = {name for name, _ in item.user_properties}
        devices = of(item.config).devices
        if NEED in item.stash and len(devices) == item.stash[NEED].count:
            label = ", ".join(device.label for device in devices)
        elif used:
            label = labels(used, devices)
        else:
            label = devices[0].label if NEED in item.stash and devices else ""
        if label and DEVICE not in recorded:
            item.user_properties.append((DEVICE, label))
        if any(peaks) and label and PEAK_BYTES not in recorded:
            item.user_properties.append((PEAK_BYTES, max(peaks)))


@pytest.hookimpl(trylast=True)
def pytest_configure(config: pytest.Config) -> None:
    if RUN in config.stash:
        config.stash[TOLD] = Told()
        config.pluginmanager.register(_Reports(config.stash[TOLD]), "gpudiag.pytest_plugin.reports")


class _Reports:
    """Collects the reports of all tests, including those that ran in workers."""

    def __init__(self, told: Told) -> None:
        self._told = told

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        own = {name: value for name, value in report.user_properties if name in (DEVICE, PEAK_BYTES, CPU_FALLBACKS)}
        if own and not report.skipped:
            self._told.tests[report.nodeid] = own
        if report.failed:
            from gpudiag.knowledge.codes import meanings

            self._told.codes |= meanings(report.longreprtext)


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """Search for leaks after xdist has ended its workers; fail a run whose GPU tests did not run."""
    run, collected = session.config.stash.get(RUN, None), session.config.stash.get(TOLD, None)
    if run is None or collected is None:
        return
    if run.plan.devices:
        collected.leaks = _leaks(run)
    fine = session.exitstatus in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED)
    if run.settings.require_gpus and fine and not any(DEVICE in own for own in collected.tests.values()):
        collected.lack = f"no GPU test ran, but --gpudiag-require-gpus={run.settings.require_gpus} requires one"
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    collected = config.stash.get(TOLD, None)
    if collected is None or not (collected.tests or collected.leaks or collected.codes or collected.lack):
        return
    terminalreporter.section("GPUs (gpudiag)")
    if collected.tests:
        order = sorted(collected.tests.items(), key=lambda item: -int(item[1].get(PEAK_BYTES, 0)))
        shown = order if config.option.verbose > 0 else order[:MOST_TESTS]
        for line in _table(shown):
            terminalreporter.write_line(line)
        if len(shown) < len(order):
            terminalreporter.write_line(f"... and {len(order) - len(shown)} more tests (-v shows all)")
    for leak in collected.leaks:
        terminalreporter.write_line(f"LEAK: {leak}", red=True)
    for code, meaning in collected.codes.items():
        terminalreporter.write_line(f"{code}: {meaning}")
    if collected.lack:
        terminalreporter.write_line(f"FAILED: {collected.lack}", red=True)


def _table(tests: list[tuple[str, dict[str, Any]]]) -> list[str]:
    """Return the lines of a table without columns that hold no measurement."""
    from tabulate import tabulate

    columns: dict[str, list[object]] = {
        "device": [own.get(DEVICE, "") for _, own in tests],
        "peak": [_peak_text(own.get(PEAK_BYTES)) for _, own in tests],
        "on CPU": [own.get(CPU_FALLBACKS, "") for _, own in tests],
        "test": [nodeid for nodeid, _ in tests],
    }
    columns = {name: column for name, column in columns.items() if any(cell != "" for cell in column)}
    sides = ["right" if name in ("peak", "on CPU") else "left" for name in columns]
    table = tabulate(columns, headers="keys", tablefmt="simple", colalign=sides, disable_numparse=True)
    return [line.rstrip() for line in table.splitlines()]


def _peak_text(size: int | None) -> str:
    if size is None:
        return ""
    return size_text(size) if size >= 1 << 20 else f"{size / (1 << 10):.1f} KiB"


def _gpus() -> list[str]:
    """Return TensorFlow's names of the GPUs that it has made devices on; does not initialise TensorFlow."""
    if "tensorflow.python.eager.context" not in sys.modules:
        return []
    from tensorflow.python.eager import context

    existing = context._context
    if existing is None or existing._context_handle is None:
        return []
    return [device.name for device in existing.list_logical_devices("GPU")]


def _start_measuring() -> list[int]:
    """Return the memory of tensors on each GPU now, and reset the peak."""
    gpus = _gpus()
    if gpus:
        from tensorflow.python.eager import context

        for name in gpus:
            context.context().reset_memory_stats(name)
    return _peaks()


def _peaks() -> list[int]:
    gpus = _gpus()
    if not gpus:
        return []
    from tensorflow.python.eager import context

    return [int(context.context().get_memory_info(name)["peak"]) for name in gpus]


def _leaks(run: AssigningSession) -> list[str]:
    """Name the processes of this session that still hold GPU memory."""
    if sys.platform != "linux":
        return []  # no process of the session uses a GPU
    from gpudiag.isolate import linux

    mark = f"{settings.SESSION_VARIABLE}={run.folder.name}"
    now = ask()
    return [
        f"GPU {device.index}: {_held(process)}"
        for device in (() if now.nvml is None else now.nvml.devices)
        for process in device.processes
        if process.pid != os.getpid() and linux.environment_holds(process.pid, mark)
    ]


def _held(process: GpuProcess) -> str:
    import psutil

    held = "memory" if process.used_bytes is None else size_text(process.used_bytes)
    try:
        handle = psutil.Process(process.pid)
        command, test = " ".join(handle.cmdline())[:80], handle.environ().get("PYTEST_CURRENT_TEST", "")
    except psutil.Error:
        command, test = "", ""
    who = f"{test.rpartition(' (')[0]} started" if test else "a test started"
    return f"{held} still held by process {process.pid} ({command}), which {who}"
