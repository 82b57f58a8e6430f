"""The check before the first test, in the process that started the session, and the header line."""

from __future__ import annotations

import contextlib
import os
from collections import Counter
from collections.abc import Generator
from dataclasses import replace
from datetime import datetime, timezone
from typing import TYPE_CHECKING

import pytest

from gpudiag.pytest_plugin.assign import RUN, AssigningSession
from gpudiag.pytest_plugin.gpus import size_text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpudiag.model.expectations import Expectations
    from gpudiag.model.facts import Facts
    from gpudiag.model.report import Gpu, Report, Row

REPORT = pytest.StashKey["Report"]()
"""The report of the check that was made before the tests."""
NOTES = pytest.StashKey[tuple[str, ...]]()
"""Notes about the expectations that the check used."""


class Unobserved:
    """Ignores the progress of the check: pytest's own output has not begun."""

    def machine(self, facts: Facts, gpus: tuple[Gpu, ...]) -> None: ...

    def phase(self, text: str, probes: Sequence[str] | None = None) -> None: ...

    def note(self, text: str) -> None: ...

    def started(self, label: str) -> None: ...

    def finished(self, row: Row, label: str) -> None: ...

    def tick(self) -> None: ...


def pytest_sessionstart(session: pytest.Session) -> None:
    """Check the GPUs once, and end the session if the check fails; workers already have their devices."""
    run = session.config.stash.get(RUN, None)
    if run is None or not run.settings.checks:
        return
    report = session.config.stash[REPORT] = _check(run)
    if report.signal is not None:
        pytest.exit(f"gpudiag: stopped by signal {report.signal}", returncode=128 + report.signal)
    if report.exit_code and not run.settings.warn:
        terminal = session.config.pluginmanager.getplugin("terminalreporter")
        for line in _failure(report) if terminal is not None else ():
            terminal.write_line(line)
        pytest.exit(f"{_verdict(report)}; to run the tests anyway, add --gpudiag-warn", returncode=1)


def pytest_report_header(config: pytest.Config) -> list[str] | None:
    """Name the GPUs on which the tests run."""
    run = config.stash.get(RUN, None)
    if run is None:
        return None
    lines = [f"gpudiag: {'; '.join(_machine(run))}", *(f"gpudiag: {note}" for note in run.notes)]
    if run.plan.slots:
        lines.append(f"gpudiag: {_workers(run)}")
    if REPORT in config.stash:
        report = config.stash[REPORT]
        if report.exit_code:
            lines += [*_failure(report), "gpudiag: the tests run anyway (--gpudiag-warn)"]
        else:
            lines.append(_verdict(report))
        lines += [f"gpudiag: note: {note}" for note in config.stash[NOTES]]
    return lines


def _check(run: AssigningSession) -> Report:
    """Run the quick check on everything that the caller's own mask lets through."""
    from gpudiag import catalogue, isolate
    from gpudiag.errors import UsageError
    from gpudiag.model.report import Limits
    from gpudiag.run import runner
    from gpudiag.run.options import Options
    from gpudiag.run.signals import Signals

    own = run.settings
    options = Options(
        entries=catalogue.entries(),
        level="quick",
        isolation="fork" if isolate.fork_refusal() is None else "spawn",
        limits=Limits(
            require_gpus=own.require_gpus,
            count_simulated=own.simulate_asked,
            allow_no_gpu=not own.require_gpus,
            by_plugin=True,
        ),
        command=("pytest", *map(str, run.config.invocation_params.args)),
        machine=replace(run.machine, locks=run.folder),  # the session itself holds those of its devices
    )
    try:
        expected, run.config.stash[NOTES] = _expected(run)
        with Signals() as signals, _as_called(run):
            report = runner.run(options, Unobserved(), signals)
    except UsageError as error:
        raise pytest.UsageError(f"gpudiag: {error}") from None
    if expected is None:
        return report
    from gpudiag.expectations.judging import NOT_JUDGED, judged

    report = judged(report, expected, datetime.now(timezone.utc).date())
    left_out = (found.message for row in report.rows for found in row.findings if found.kind == NOT_JUDGED)
    run.config.stash[NOTES] = (*run.config.stash[NOTES], *left_out)
    return report


def _expected(run: AssigningSession) -> tuple[Expectations | None, tuple[str, ...]]:
    """Return the expectations of the machine that ``gpudiag check`` would read here, and notes about them.

    Raises :class:`gpudiag.errors.UsageError`.
    """
    from gpudiag import configuration
    from gpudiag.expectations import file

    named = run.settings.expect
    found = (
        configuration.ConfigurationFile(named)
        if named is not None
        else configuration.find(run.config.invocation_params.dir)
    )
    return None if found.file is None else file.load(found.file, named=named is not None), found.ignored


@contextlib.contextmanager
def _as_called(run: AssigningSession) -> Generator[None, None, None]:
    """Undo this process's own device assignment, because the check is about the caller's devices."""
    names = ("CUDA_VISIBLE_DEVICES", "TF_FORCE_GPU_ALLOW_GROWTH", "TF_PER_DEVICE_MEMORY_LIMIT_MB")
    variables = {name: os.environ.pop(name) for name in names if name in os.environ}
    os.environ.update({name: run.caller[name] for name in names if name in run.caller})
    try:
        yield
    finally:
        for name in names:
            os.environ.pop(name, None)
        os.environ.update(variables)


def _verdict(report: Report) -> str:
    counted = ", ".join(f"{number} {status}" for status, number in report.counts.items())
    return f"gpudiag: check {report.verdict.value} ({counted}; {report.duration_s:.1f} s)"


def _failure(report: Report) -> list[str]:
    """Say which checks failed and why, causes first; then what the codes in these lines mean."""
    from gpudiag.knowledge.codes import meanings
    from gpudiag.model.report import Broken
    from gpudiag.report import words

    lines = [_verdict(report)]
    if headline := words.headline(report):
        lines.append(headline)
    for cause in report.diagnosis.causes:
        lines += [f"  {line.heading:<6}{line.text}" for line in words.cause(cause)]
    for row in report.rows:
        if isinstance(row.outcome, Broken):
            lines.append(f"  {words.label(report, row)}: {words.figure(row)}")
        for finding in row.findings:
            if finding.severity in report.limits.failing:
                lines += [
                    f"  {words.label(report, row)}",
                    *(f"    {line}" for line in words.finding(finding).splitlines()),
                ]
    if step := words.next_step(report):
        lines.append(step)
    return [*lines, *(f"  {code}: {meaning}" for code, meaning in meanings("\n".join(lines)).items())]


def _machine(run: AssigningSession) -> list[str]:
    found = run.found
    kinds = Counter((device.name, device.total_bytes) for device in run.plan.devices)
    gpus = [f"{number} x {name}" + (f", {size_text(size)}" if size else "") for (name, size), number in kinds.items()]
    driver = "no driver" if found.nvml is None else f"driver {found.nvml.driver_version or 'none'}"
    installed = found.tensorflow.distributions if found.tensorflow is not None else ()
    versions = (
        " and ".join(f"{distribution.name} {distribution.version}" for distribution in installed) or "no TensorFlow"
    )
    return [
        *(["SIMULATED GPUs"] if found.simulated else ["real GPUs"] if gpus else []),
        " + ".join(gpus) or found.lack,
        driver,
        versions,
    ]


def _workers(run: AssigningSession) -> str:
    from gpudiag.text import counted

    slots = run.plan.slots
    shared = [slot for slot in slots if slot.shared]
    limits = sorted({slot.limit_bytes for slot in slots if slot.limit_bytes is not None})
    devices = len({slot.devices for slot in slots})
    with_memory = f", {' or '.join(map(size_text, limits))} of memory each" if limits else ""
    workers, gpus = counted(len(slots), "worker"), counted(devices, "GPU")
    return f"{workers} share {gpus}{with_memory}" if shared else f"{workers}, each with a separate GPU{with_memory}"
