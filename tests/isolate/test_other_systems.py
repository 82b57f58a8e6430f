"""Where there is no Linux: jobs run one by one, and no command fails for what Windows lacks."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from gpudiag.isolate import Bounds, Job, JobResult, ServerSpec
from gpudiag.isolate.one_by_one import OneByOne
from gpudiag.model.report import NoReading
from processes import elsewhere


def job(function: str, deadline_s: float = 60.0, **argument: object) -> Job:
    return Job(function, f"processes.illbehaved:{function}", argument, deadline_s, "plain")


def run(asked: Job) -> JobResult:
    with OneByOne({"plain": ServerSpec()}, Bounds()) as jobs:
        jobs.start(asked)
        [ended] = jobs.wait(0.1)
        assert jobs.wait(0.0) == []
    return ended


def test_a_value_and_both_streams_come_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    ended = run(job("well"))
    assert ended.cause is None
    assert ended.value is not None
    assert (ended.stdout, ended.stderr) == ("a line to stdout\n", "a line to stderr\n")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("function", "cause", "detail"),
    [
        ("raises", NoReading.EXCEPTION, "ValueError: nothing works"),
        ("leaves_without_a_word", NoReading.NO_RESULT, "exited with status 0 without a result"),
    ],
)
def test_a_job_without_a_value_says_why(function: str, cause: NoReading, detail: str) -> None:
    ended = run(job(function))
    assert (ended.cause, ended.value) == (cause, None)
    assert detail in ended.detail


def test_a_job_has_a_deadline(tmp_path: Path) -> None:
    ended = run(job("is_deaf_to_term", deadline_s=1.0, pid_file=str(tmp_path / "pid")))
    assert (ended.cause, ended.detail) == (NoReading.TIMEOUT, "no result within 1 s")


def test_a_job_that_is_killed_first_never_runs() -> None:
    with OneByOne({"plain": ServerSpec()}, Bounds()) as jobs:
        jobs.start(job("well"))
        jobs.kill("well", NoReading.INTERRUPTED, "stopped by SIGINT")
        [ended] = jobs.wait(0.1)
    assert (ended.cause, ended.detail, ended.stdout) == (NoReading.INTERRUPTED, "stopped by SIGINT", "")


def under_windows(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, elsewhere.__file__, *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)


def test_a_check_under_windows_looks_at_the_host_and_says_where_its_probes_run() -> None:
    done = under_windows("check", "host", "discovery", "--format", "json", "--no-keep-last-pass", "-q")
    assert done.returncode == 5, done.stderr
    report = json.loads(done.stdout)
    kinds = {row["probe"]: row["outcome"] for row in report["rows"]}
    assert kinds["host.tensorflow"]["outcome"] == "judged"
    skipped = {name: outcome["reason"] for name, outcome in kinds.items() if outcome["outcome"] == "skipped"}
    assert set(skipped) == {name for name in kinds if not name.startswith("host.")} != set()
    assert set(skipped.values()) == {"TensorFlow has no CUDA on Windows: run gpudiag in WSL 2 (wsl --install)"}


@pytest.mark.parametrize(
    ("arguments", "status", "words"),
    [
        (("check", "--isolation", "fork"), 2, "--isolation fork needs Linux"),
        (("simulate", "1", "--", "python"), 2, "GPUs can be simulated on Linux only"),
        (("simulate", "--list"), 2, "GPUs can be simulated on Linux only"),
        (("check", "--simulate", "1"), 2, "GPUs can be simulated on Linux only"),
        (("trace", "--", "python"), 2, "gpudiag trace works on Linux only"),
    ],
)
def test_what_needs_linux_is_refused_in_a_sentence(arguments: tuple[str, ...], status: int, words: str) -> None:
    done = under_windows(*arguments)
    assert (done.returncode, words in done.stderr, "bug" in done.stderr) == (status, True, False), done.stderr
