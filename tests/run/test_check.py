"""``gpudiag check`` end to end, on the real TensorFlow and on broken ones, as a user runs it."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import cast
from unittest.mock import Mock

import psutil
import pytest

from conftest import Gpudiag
from examples.facts import example
from gpudiag import catalogue
from gpudiag.isolate import Supervision
from gpudiag.knowledge.placement import devices_of
from gpudiag.model import codec
from gpudiag.model.report import Broken, Judged, Limits, NoReading, Report, Row, Skipped, Verdict
from gpudiag.probe import Scope
from gpudiag.report import words
from gpudiag.run import judgement
from gpudiag.run.options import Observer, Options
from gpudiag.run.plan import planned
from gpudiag.run.probe_run import ProbeRun
from gpudiag.run.servers import PLAIN, TENSORFLOW
from gpudiag.run.session import Session
from gpudiag.run.signals import Signals

pytestmark = [
    pytest.mark.usefixtures("no_child_left"),
    pytest.mark.skipif(Path("/dev/nvidiactl").exists(), reason="what is asserted holds on a machine without a GPU"),
]

ON_THE_CPU = ("placement.hard_error", "placement.log", "placement.soft_fallback")
"""Probes that run wherever TensorFlow does."""
HANGS = "import time\ntime.sleep(3600)\n"


def report_of(text: str) -> Report:
    return codec.decode(text, "standard output")


def rows_of(report: Report) -> dict[str, Row]:
    return {row.probe: row for row in report.rows}


def needs_gpu(name: str) -> bool:
    return catalogue.get(name).probe.scope is not Scope.HOST


def test_a_machine_without_a_gpu_is_not_verified(gpudiag: Gpudiag) -> None:
    done = gpudiag("check", "--format", "json")
    assert done.returncode == 5, done.stderr
    report = report_of(done.stdout)
    assert report.verdict is Verdict.NOT_VERIFIED
    assert [row.probe for row in report.rows] == [it.name for it in catalogue.entries() if not it.probe.stress]
    for row in report.rows:
        if needs_gpu(row.probe):
            assert row.outcome == Skipped("no GPU")
        else:
            assert isinstance(row.outcome, Judged), row
            assert row.status == "pass", row
    assert list(gpudiag.temporary.iterdir()) == [], "a file was left behind"


def test_the_placement_is_logged_in_the_row(gpudiag: Gpudiag) -> None:
    row = rows_of(report_of(gpudiag("check", "placement.log", "--format", "json").stdout))["placement.log"]
    assert devices_of("MatMul", row.placements) == ("CPU:1",)


def test_no_gpu_can_be_allowed(gpudiag: Gpudiag) -> None:
    assert gpudiag("check", "host", "--allow-no-gpu").returncode == 0


def test_required_gpus_that_are_not_there_are_a_failure_that_says_where_was_looked(gpudiag: Gpudiag) -> None:
    done = gpudiag("check", "placement.log", "--require-gpus", "1", "--allow-no-gpu", "--format", "json")
    assert done.returncode == 1
    report = report_of(done.stdout)
    (finding,) = rows_of(report)["host.gpus"].findings
    assert finding.kind == "too_few"
    looked = [cause.evidence for cause in report.diagnosis.causes if cause.cause_id == "fewer_gpus_than_required"]
    for place in ("NVML", "/dev/nvidia", "CUDA_VISIBLE_DEVICES"):
        assert place in str(looked)


def test_fork_and_spawn_give_the_same_outcomes(gpudiag: Gpudiag) -> None:
    forked, spawned = (
        rows_of(
            report_of(gpudiag("check", "host", "placement.log", "--isolation", isolation, "--format", "json").stdout)
        )
        for isolation in ("fork", "spawn")
    )
    assert {name: row.outcome for name, row in forked.items()} == {name: row.outcome for name, row in spawned.items()}


@pytest.mark.parametrize(("isolation", "expected"), [("fork", (TENSORFLOW, False)), ("spawn", (PLAIN, True))])
def test_a_spawned_probe_has_a_new_interpreter(isolation: str, expected: tuple[str, bool]) -> None:
    children = Mock(spec=Supervision)
    session = Session(Options((), isolation=isolation), children, Mock(spec=Observer), Signals(), None)
    (task,) = planned((catalogue.get("placement.log"),), ())
    ProbeRun(task).start(session.jobs, session.options, 0.0)
    job = children.start.call_args.args[0]
    assert (job.server, job.fresh) == expected


def test_warnings_as_errors_change_nothing(gpudiag: Gpudiag) -> None:
    done = gpudiag("check", "placement.log", flags=("-W", "error"), PYTHONWARNINGS="error")
    assert done.returncode == 5
    assert "Warning" not in done.stderr + done.stdout


def test_without_tensorflow_its_probes_are_skipped_and_its_absence_is_a_failure(gpudiag: Gpudiag) -> None:
    done = gpudiag.without("tensorflow")("check", "--format", "json")
    assert done.returncode == 1, done.stderr
    rows = rows_of(report_of(done.stdout))
    assert rows["placement.log"].outcome == Skipped("TensorFlow is not installed")
    (finding,) = rows["host.tensorflow"].findings
    assert "pip install" in words.advice(finding)


@pytest.mark.parametrize("isolation", ["fork", "spawn"])
@pytest.mark.parametrize(
    ("source", "cause", "detail"),
    [
        (
            "raise ImportError('libtensorflow_framework.so.2: cannot open')",
            NoReading.EXCEPTION,
            "libtensorflow_framework",
        ),
        ("import ctypes\nctypes.string_at(0)", NoReading.SIGNAL, "SIGSEGV"),
        (HANGS, NoReading.TIMEOUT, "within"),
    ],
    ids=["raises", "segfaults", "hangs"],
)
def test_a_tensorflow_that_cannot_be_imported_breaks_each_of_its_rows(
    source: str, cause: NoReading, detail: str, isolation: str, gpudiag: Gpudiag
) -> None:
    arguments = ("check", *ON_THE_CPU, "host", "--timeout", "2", "--isolation", isolation, "--format", "json")
    done = gpudiag.with_tensorflow(source)(*arguments)
    assert done.returncode in {1, 3}, done.stderr
    rows = rows_of(report_of(done.stdout))
    for name, row in rows.items():
        if name.startswith(("placement.", "discovery.trace")):
            assert isinstance(row.outcome, Broken), row
            assert row.outcome.cause is cause
            assert detail in row.outcome.detail
        else:
            assert isinstance(row.outcome, Judged)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGQUIT])
def test_a_signal_ends_the_run_with_a_partial_report(
    number: signal.Signals, gpudiag: Gpudiag, wait_until: Callable[[Callable[[], bool]], None]
) -> None:
    process = gpudiag.with_tensorflow(HANGS).start("check", "host", "placement", "-o", "partial.json", "-v")
    with process:
        wait_until(lambda: bool(_descendants(process.pid)))
        children = _descendants(process.pid)
        process.send_signal(number)
        out, _ = process.communicate(timeout=30)
    assert process.returncode == 128 + number
    assert not any(child.is_running() for child in children)
    report = codec.load(gpudiag.folder / "partial.json")
    assert (report.signal, report.exit_code) == (number, 128 + number)
    assert [row.probe for row in report.rows] == [entry.name for entry in catalogue.select(["host", "placement"])]
    assert number.name in out
    for row in report.rows:
        if row.probe.startswith("placement."):
            assert row.status == "interrupted"
    assert (report.verdict, report.counts.get("broken")) == (Verdict.NOT_VERIFIED, None)


def test_a_killed_gpudiag_leaves_no_child(gpudiag: Gpudiag, wait_until: Callable[[Callable[[], bool]], None]) -> None:
    process = gpudiag.with_tensorflow(HANGS).start("check", "placement")
    with process:
        wait_until(lambda: len(_descendants(process.pid)) >= 2)
        children = _descendants(process.pid)
        process.kill()
        process.communicate(timeout=30)
    wait_until(lambda: not any(child.is_running() and child.status() != psutil.STATUS_ZOMBIE for child in children))


@pytest.mark.parametrize(
    ("selection", "deadline"), [(ON_THE_CPU, "1.5"), (("host", "--allow-no-gpu"), "0.001")], ids=["probes", "facts"]
)
def test_the_deadline_of_a_run_breaks_what_had_not_finished(
    selection: tuple[str, ...], deadline: str, gpudiag: Gpudiag
) -> None:
    done = gpudiag.with_tensorflow(HANGS)("check", *selection, "--deadline", deadline, "--format", "json")
    causes = set()
    for row in report_of(done.stdout).rows:
        assert isinstance(row.outcome, Broken), row
        assert f"the deadline of {deadline} s for the run passed" in row.outcome.detail
        causes.add(row.outcome.cause)
    # What a busy machine stops is nobody's fault: the run is not verified then, and not broken.
    assert (causes, done.returncode) in [({NoReading.TIMEOUT}, 3), ({NoReading.BUSY}, 5)]


def test_a_short_timeout_of_the_probes_does_not_cut_the_facts(gpudiag: Gpudiag) -> None:
    assert gpudiag("check", "host", "--timeout", "0.01").returncode == 5


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_after_the_last_probe_does_not_cost_the_report(number: signal.Signals, gpudiag: Gpudiag) -> None:
    count = len(catalogue.select(["host"]))
    with gpudiag.start("check", "host", "-o", "r.json") as process:
        assert process.stderr is not None
        assert any(line.startswith(f"[{count}/{count}]") for line in iter(process.stderr.readline, ""))
        process.send_signal(number)
        process.communicate(timeout=30)
    report = codec.load(gpudiag.folder / "r.json")
    assert process.returncode == report.exit_code
    assert len(report.rows) == count


def test_files_are_written_where_standard_output_cannot_be(gpudiag: Gpudiag) -> None:
    check = shlex.join(gpudiag.command("check", "host", "-q", "-o"))
    for name, rest, status in (("full", ">/dev/full", 3), ("closed", ">&-", 5), ("none", "<&- >&- 2>&-", 5)):
        done = subprocess.run(["/bin/sh", "-c", f"{check} {name}.json {rest}"], cwd=gpudiag.folder, check=False)
        assert done.returncode == status, name
        assert codec.load(gpudiag.folder / f"{name}.json").exit_code == 5
    with gpudiag.start("check", "host", "-q", "-o", "pipe.json") as process:
        assert process.stdout is not None
        process.stdout.close()
    assert process.returncode == 5, "the status is the report's, whoever reads"
    assert (gpudiag.folder / "pipe.json").exists()


@pytest.mark.parametrize("fault", [lambda: sys.exit(0), lambda: 1 / 0])
def test_a_judge_that_fails_breaks_its_own_row(fault: Callable[[], object]) -> None:
    entry = catalogue.get("host.gpus")
    module = SimpleNamespace(figure=lambda _: fault())
    row = Row("host.gpus", (), Skipped(""), 0.0)
    judged = judgement.judged(row, replace(entry, module=cast("ModuleType", module)), example(), Limits())
    assert isinstance(judged.outcome, Broken)
    assert judged.outcome.cause is NoReading.EXCEPTION


def test_several_files_are_written_in_the_format_of_their_suffix(gpudiag: Gpudiag) -> None:
    names = ["r.json", "r.md", "r.xml", "r.txt"]
    done = gpudiag("check", "host", *(word for name in names for word in ("-o", name)))
    assert done.returncode == 5
    starts = ["{", "# ", "<?xml", ""]
    for name, start in zip(names, starts, strict=True):
        assert (gpudiag.folder / name).read_text().startswith(start)
    again = gpudiag("show", "r.json", "--rejudge", "--format", "json")
    assert again.returncode == 0
    assert report_of(again.stdout) == codec.load(gpudiag.folder / "r.json")


def _descendants(pid: int) -> list[psutil.Process]:
    return psutil.Process(pid).children(recursive=True)


def test_a_run_in_the_background_is_not_ended_by_the_interrupt_that_its_caller_ignores(
    gpudiag: Gpudiag, wait_until: Callable[[Callable[[], bool]], None]
) -> None:
    modules = {**gpudiag.environment, "PYTHONPATH": os.pathsep.join(gpudiag.path)}
    check = shlex.join([sys.executable, "-m", "gpudiag", "check", "host", "-q", "-o", "r.json"])
    ignoring = f"trap '' INT; exec {check}"  # as a shell without job control starts what ends in &
    with subprocess.Popen(["/bin/sh", "-c", ignoring], cwd=gpudiag.folder, env=modules) as process:
        wait_until(lambda: bool(_descendants(process.pid)))
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 5
    assert codec.load(gpudiag.folder / "r.json").signal is None
