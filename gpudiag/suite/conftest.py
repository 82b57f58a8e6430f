"""Collects the items of the suite and runs their probes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gpudiag.folders import Folder
from gpudiag.model.report import Broken, Interrupted, Limits, Report, Row, Skipped, Verdict
from gpudiag.pytest_plugin import preflight, settings
from gpudiag.pytest_plugin.assign import RUN, WORKER
from gpudiag.pytest_plugin.gpus import MASK, Device, found
from gpudiag.pytest_plugin.summary import DEVICE

REPORT = pytest.StashKey[Report]()
"""The report of the session's run of the probes."""


def pytest_collect_file(file_path: Path, parent: pytest.Collector) -> pytest.Collector | None:
    if file_path == Path(__file__).with_name("catalogue.py"):
        return Catalogue.from_parent(parent, path=file_path)
    return None


class Catalogue(pytest.File):
    """Collects an item for every probe and, for probes that run on each GPU, for every GPU."""

    def collect(self) -> Iterator[pytest.Item]:
        from gpudiag import catalogue
        from gpudiag.probe import Scope

        devices = _devices(self.config)
        for entry in catalogue.entries():
            if entry.probe.scope is Scope.EACH_GPU and devices:
                for device in devices:
                    yield ProbeItem.from_parent(
                        self, name=f"{entry.name}[{device.label}]", probe=entry.name, uuid=device.uuid
                    )
            else:
                yield ProbeItem.from_parent(self, name=entry.name, probe=entry.name, uuid=None)
        yield VerdictItem.from_parent(self, name="verdict")


_WITHOUT = "This machine has no GPU, so nothing was verified. If you expect none, deselect this item: -k 'not verdict'"


class _Item(pytest.Item):
    """An item of the suite."""

    def reportinfo(self) -> tuple[Path, None, str]:
        return self.path, None, f"gpudiag: {self.name}"

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None) -> Any:
        """Describe the failure without the lines of this file."""
        return (
            excinfo.getrepr(style="value")
            if excinfo.errisinstance(ProbeFindings)
            else super().repr_failure(excinfo, style)
        )


class ProbeFindings(AssertionError):  # noqa: N818  # a report writes the name before the text
    """Raised for the findings of a probe."""


class ProbeItem(_Item):
    """A probe on a device, or on none in particular."""

    def __init__(self, *, probe: str, uuid: str | None, **given: Any) -> None:
        super().__init__(**given)
        self.probe = probe
        self._uuid = uuid

    def runtest(self) -> None:
        """Pass, fail or be skipped as the probe's row says."""
        from gpudiag.report import words

        report = _report(self.session)
        row = self._row(report)
        if row is None:
            other = (
                "not in the sample of the GPUs"
                if any(row.probe == self.probe for row in report.rows)
                else "not in scope"
            )
            pytest.skip(f"level {report.level.name}: {report.level.reason}" if report.level.reason else other)
        if isinstance(row.outcome, Skipped | Interrupted):
            pytest.skip(words.figure(row))
        if row.devices:
            self.user_properties.append((DEVICE, report.device_label(row)))
        failing = [finding for finding in row.findings if finding.severity in report.limits.failing]
        others = [words.finding(finding) for finding in row.findings if finding not in failing]
        self.add_report_section("call", "gpudiag", "\n".join([words.figure(row), *others]))
        if isinstance(row.outcome, Broken):
            raise ProbeFindings("\n".join([f"broken: {words.figure(row)}", *row.log]))
        if failing:
            raise ProbeFindings("\n".join(map(words.finding, failing)))

    def _row(self, report: Report) -> Row | None:
        rows = (row for row in report.rows if row.probe == self.probe)
        return next((row for row in rows if self._uuid is None or self._uuid in row.devices), None)


class VerdictItem(_Item):
    """The result of the whole run: items that were all skipped must not make a green suite."""

    def runtest(self) -> None:
        """Pass if every GPU was verified and nothing failed."""
        from gpudiag.report import words

        report = _report(self.session)
        summary = f"{report.verdict.value}: {words.outcome_counts(report)}"
        self.add_report_section("call", "gpudiag", summary)
        if report.exit_code:
            causes = [str(line) for cause in report.diagnosis.causes for line in words.cause(cause)]
            items = {item.probe for item in self.session.items if isinstance(item, ProbeItem)}
            # That of a requirement is run also where -k leaves its item out.
            others = [
                words.finding(finding) for row in report.rows if row.probe not in items for finding in row.findings
            ]
            cure = _WITHOUT if report.verdict is Verdict.NOT_VERIFIED and report.facts.without_gpu else ""
            sentences = [summary, words.headline(report), *causes, *others, cure or words.next_step(report)]
            raise ProbeFindings("\n".join(filter(None, sentences)))


def _devices(config: pytest.Config) -> tuple[Device, ...]:
    """Return the devices of the session, the same in every worker, whatever each worker was given."""
    if WORKER in config.stash:
        return config.stash[WORKER].plan.devices
    return found(config).devices


def _report(session: pytest.Session) -> Report:
    """Return the report of the session's probes, made when any worker runs the session's first item."""
    from filelock import FileLock

    from gpudiag.model import codec

    stash = session.config.stash
    if REPORT not in stash:
        if not hasattr(session.config, "workerinput"):
            stash[REPORT] = _run(session)
        else:
            # The folder of all workers, as pytest-xdist's manual has it.
            factory: Any = session.config._tmp_path_factory  # type: ignore[attr-defined]
            shared = factory.getbasetemp().parent / "gpudiag-suite.json"
            with FileLock(f"{shared}.lock"):
                if not shared.exists():
                    shared.write_text(codec.encode(_run(session)))
                stash[REPORT] = codec.load(shared)
    return stash[REPORT]


def _run(session: pytest.Session) -> Report:
    from gpudiag import catalogue, isolate
    from gpudiag.run import runner
    from gpudiag.run.machine import start_machine
    from gpudiag.run.options import Options
    from gpudiag.run.signals import Signals

    config = session.config
    own = settings.of(config)
    chosen = {item.probe for item in session.items if isinstance(item, ProbeItem)}
    with ExitStack() as stack:
        machine = start_machine(None, (), stack)
        if RUN in config.stash or WORKER in config.stash:
            # The plugin has given this process some of the devices, and holds the locks of all that the session uses.
            locks = stack.enter_context(Folder("locks"))
            mask = {MASK: ",".join(device.uuid for device in _devices(config))} if _devices(config) else {}
            machine = replace(machine, locks=locks, environment={**machine.environment, **mask})
        options = Options(
            entries=tuple(entry for entry in catalogue.entries() if entry.name in chosen),
            isolation="fork" if isolate.fork_refusal() is None else "spawn",
            # A session in which simulated GPUs do not count was refused when it began.
            limits=Limits(require_gpus=own.require_gpus, count_simulated=own.simulate is not None),
            command=("pytest", *map(str, config.invocation_params.args)),
            machine=machine,
        )
        return runner.run(options, preflight.Unobserved(), stack.enter_context(Signals()))
