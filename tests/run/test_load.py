"""A load is the user's: it spares GPUs that others use, ends within seconds, and loses nothing of what it measured."""

from __future__ import annotations

import re
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from conftest import Gpudiag
from gpudiag import catalogue
from gpudiag.model import codec
from gpudiag.model.report import Broken, Interrupted, NoReading, Report, Row, Skipped, Verdict
from gpudiag.probe import LoadReading

PACE = """[[gpu]]
kernel_us = 8000
copy_mb_s = 200
{more}
"""
MANY_THREADS = 4
"""A process in which TensorFlow computes has more, and no other of a run."""
SECONDS = 10.0
"""Within this time a run must have ended that was told to; on an idle machine it takes 1 s."""


def machine(*more: str) -> str:
    """Return a machine with a GPU for each of these lines."""
    return "".join(PACE.format(more=line) for line in more)


def started(gpudiag: Gpudiag, spec: str, *arguments: str, seconds: str = "40") -> subprocess.Popen[str]:
    arguments = ("--level", "stress", "--for", seconds, "--format", "json", *arguments)
    return gpudiag.start("check", "load.gpus", *gpudiag.simulated(spec), *arguments)


def under_load(gpudiag: Gpudiag, count: int) -> Callable[[], bool]:
    """Return a function that says whether so many processes have noted something."""

    def have_noted() -> bool:
        try:
            return sum(notes.stat().st_size > 0 for notes in gpudiag.temporary.rglob("notes.*")) >= count
        except FileNotFoundError:  # a folder of another job was removed meanwhile
            return False

    return have_noted


def report_of(process: subprocess.Popen[str]) -> Report:
    out, err = process.communicate(timeout=120)
    assert out, err
    return codec.decode(out, "standard output")


def loads(report: Report) -> list[Row]:
    return [row for row in catalogue.decode_readings(report.rows) if row.probe == "load.gpus"]


def left_in(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file()]


@pytest.mark.usefixtures("no_child_left")
def test_a_gpu_that_others_use_is_spared_and_the_others_do_not_wait_for_it(gpudiag: Gpudiag) -> None:
    process = started(gpudiag, machine("", 'taken = "2GiB"', ""), seconds="4")
    report = report_of(process)
    first, taken, last = loads(report)
    assert isinstance(taken.outcome, Skipped)
    assert "--disturb" in taken.outcome.reason
    assert [row.status for row in (first, last)] == ["pass", "pass"]
    assert isinstance(first.reading, LoadReading)
    assert any(part.alone for part in first.reading.slices)
    assert report.verdict is Verdict.NOT_VERIFIED
    assert process.returncode == 5
    assert left_in(gpudiag.temporary) == []


@pytest.mark.usefixtures("no_child_left")
def test_a_user_may_disturb_others(gpudiag: Gpudiag) -> None:
    process = started(gpudiag, machine('taken = "2GiB"'), "--disturb", seconds="4")
    (row,) = loads(report_of(process))
    assert row.status == "pass"


@pytest.mark.usefixtures("no_child_left")
def test_ctrl_c_ends_a_load_and_keeps_what_was_measured(
    gpudiag: Gpudiag, wait_until: Callable[[Callable[[], bool]], None]
) -> None:
    process = started(gpudiag, machine("", ""), seconds="20")
    wait_until(under_load(gpudiag, 2))
    since = time.monotonic()
    process.send_signal(signal.SIGINT)
    report = report_of(process)
    assert time.monotonic() - since < SECONDS
    assert process.returncode == 128 + signal.SIGINT
    assert report.verdict is Verdict.NOT_VERIFIED
    for row in loads(report):
        assert isinstance(row.outcome, Interrupted)
        assert isinstance(row.reading, LoadReading)
        assert row.reading.slices
    assert left_in(gpudiag.temporary) == []


@pytest.mark.usefixtures("no_child_left")
def test_the_deadline_ends_a_load_and_keeps_what_was_measured(gpudiag: Gpudiag) -> None:
    process = started(gpudiag, machine("", ""), "--deadline", "40", seconds="39.9")
    report = report_of(process)
    assert report.duration_s < 40 + SECONDS
    causes = set()
    for row in loads(report):
        assert isinstance(row.outcome, Broken), row
        causes.add(row.outcome.cause)
        assert isinstance(row.reading, LoadReading)
        assert row.reading.slices
    # What a busy machine stops is nobody's fault: the run is not verified then, and not broken.
    assert causes
    assert causes <= {NoReading.TIMEOUT, NoReading.BUSY}
    assert process.returncode == (3 if NoReading.TIMEOUT in causes else 5)


@pytest.mark.usefixtures("no_child_left")
def test_a_gpu_that_dies_costs_only_its_own_row(gpudiag: Gpudiag) -> None:
    machine_with_fault = gpudiag.simulated(machine("", ""), ("dies_after=4@1",))
    done = gpudiag("check", "load.gpus", *machine_with_fault, "--for", "8", "--format", "json")
    report = codec.decode(done.stdout, "standard output")
    whole, dead = loads(report)
    assert (whole.status, dead.status) == ("pass", "fail")
    assert isinstance(whole.reading, LoadReading)
    assert whole.reading.measured_s > 7
    assert done.returncode == 1


@pytest.mark.slow
@pytest.mark.usefixtures("no_child_left")
def test_a_gpu_that_hangs_costs_its_own_row_after_35_s(
    gpudiag: Gpudiag, wait_until: Callable[[Callable[[], bool]], None]
) -> None:
    process = started(gpudiag, machine("", ""), seconds="20")
    wait_until(under_load(gpudiag, 2))
    children = psutil.Process(process.pid).children(recursive=True)
    computing = [child for child in children if child.num_threads() > MANY_THREADS]
    assert len(computing) == 2, "one of each GPU"
    computing[0].send_signal(signal.SIGSTOP)
    report = report_of(process)
    hung, whole = sorted(loads(report), key=lambda row: row.status)
    assert (hung.status, whole.status, process.returncode) == ("fail", "pass", 1)
    (finding,) = hung.findings
    assert finding.kind == "ended"
    assert re.search(r"after \d+\.\d of 20\.0 s under load: .* has not returned for 3[5-9] s", finding.message)
    assert isinstance(hung.reading, LoadReading)
    assert hung.reading.slices
    assert isinstance(whole.reading, LoadReading)
    assert whole.reading.measured_s > 18
    assert left_in(gpudiag.temporary) == []


def test_nothing_computes_after_gpudiag_was_killed(
    gpudiag: Gpudiag, wait_until: Callable[[Callable[[], bool]], None]
) -> None:
    process = started(gpudiag, machine("", ""))
    wait_until(under_load(gpudiag, 1))
    children = psutil.Process(process.pid).children(recursive=True)
    assert len(children) > 3
    process.kill()
    process.communicate()
    wait_until(lambda: not any(child.is_running() and child.status() != psutil.STATUS_ZOMBIE for child in children))


@pytest.mark.usefixtures("no_child_left")
def test_a_load_runs_as_a_job_of_cron(gpudiag: Gpudiag) -> None:
    """Without HOME, terminal and locale, in a session of its own, as cron and Slurm start a program."""
    command = gpudiag.command("check", *gpudiag.simulated(machine("")), "--level", "stress", "--for", "3")
    environment = {"PATH": "/usr/bin:/bin", "LC_ALL": "C", "TMPDIR": str(gpudiag.temporary)}
    done = subprocess.run(
        command,
        cwd=gpudiag.folder,
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        start_new_session=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert b"under load for 3 s" in done.stderr
    assert b"PASS" in done.stdout
    assert left_in(gpudiag.temporary) == []
