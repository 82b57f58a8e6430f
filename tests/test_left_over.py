"""What the tests' own fixtures do about processes that a test leaves, and about signals that the caller ignores."""

from __future__ import annotations

import re
import signal
from pathlib import Path

import psutil
import pytest

from conftest import Gpudiag
from suites import Suite

TESTS = """
import os
import pathlib
import signal
import subprocess
import time

import pytest

KEPT = []

def start(folder, *command):
    process = subprocess.Popen(command)
    KEPT.append(process)
    folder.joinpath("pid").write_text(str(process.pid))
    wait_for_sleep(process.pid)

def wait_for_sleep(pid):
    # /proc has neither arguments nor an environment of a program that is just being started.
    while not pathlib.Path(f"/proc/{pid}/cmdline").read_text().startswith("sleep\\0"):
        time.sleep(0.01)

def test_fails(tmp_path):
    start(tmp_path, "sleep", "1001")
    assert False

@pytest.mark.usefixtures("no_child_left")
def test_leaves_a_child(tmp_path):
    start(tmp_path, "sleep", "1002")

@pytest.mark.usefixtures("no_child_left")
def test_leaves_an_orphan(tmp_path):
    script = f"setsid sleep 1003 & echo $! > {tmp_path}/pid"
    subprocess.run(["sh", "-c", script], env={**os.environ, "TMPDIR": f"{tmp_path}/tmp"}, check=True)
    wait_for_sleep(int(tmp_path.joinpath("pid").read_text()))

@pytest.mark.usefixtures("no_child_left")
def test_kills_what_it_started(tmp_path):
    start(tmp_path, "sleep", "1004")
    KEPT[-1].kill()

def test_is_well(tmp_path):
    start(tmp_path, "sleep", "1005")

@pytest.mark.parametrize("name", ["SIGINT", "SIGHUP", "SIGQUIT"])
def test_a_signal_reaches_what_is_started(name):
    process = subprocess.Popen(["sleep", "1006"])
    process.send_signal(signal.Signals[name])
    try:
        assert process.wait(10) == -signal.Signals[name]
    finally:
        process.kill()
        process.wait()
"""


@pytest.fixture
def suite(gpudiag: Gpudiag) -> Suite:
    suite = Suite(gpudiag)
    suite.write("test_left.py", TESTS)
    return suite


def test_what_a_test_leaves_is_named_and_ended(suite: Suite) -> None:
    done = suite("-p", "conftest", f"--basetemp={suite.folder / 'base'}", "-k", "not signal", TMPDIR=str(suite.folder))
    assert done.outcomes() == {
        "test_fails": "failure",
        "test_leaves_a_child": "error",
        "test_leaves_an_orphan": "error",
        "test_kills_what_it_started": "passed",
        "test_is_well": "passed",
    }, done
    for name, own in (("test_leaves_a_child", "1002"), ("test_leaves_an_orphan", "1003")):
        assert set(re.findall(r"sleep (\d+)", done.tests[name].message)) == {own}
    pids = {pid.parent.name.rstrip("0"): int(pid.read_text()) for pid in suite.folder.glob("base/*0/pid")}
    well = psutil.Process(pids.pop("test_is_well"))
    assert well.cmdline() == ["sleep", "1005"], "nobody has asked about it"
    well.kill()
    assert {name: _state(pid) for name, pid in pids.items()} == dict.fromkeys(pids, "gone")


def test_tests_in_the_background_send_signals_all_the_same(suite: Suite) -> None:
    ignored = {number: signal.signal(number, signal.SIG_IGN) for number in (signal.SIGINT, signal.SIGHUP)}
    try:
        done = suite("-p", "conftest", "-k", "signal", TMPDIR=str(suite.folder))
    finally:
        for number, handler in ignored.items():
            signal.signal(number, handler)
    assert set(done.outcomes().values()) == {"passed"}, done
    assert len(done.outcomes()) == 3


def test_without_tensorflow_the_reason_is_one_sentence(gpudiag: Gpudiag, tmp_path: Path) -> None:
    gpudiag.without("tensorflow")
    suite = Suite(gpudiag)
    suite.write("test_any.py", "def test_any(): pass")
    done = suite("-p", "conftest")
    assert done.status == pytest.ExitCode.USAGE_ERROR
    assert done.err == (
        "ERROR: the tests run TensorFlow, which is not installed here: pip install '.[tensorflow,test]'\n\n"
    )


def _state(pid: int) -> str:
    try:
        process = psutil.Process(pid)
        return "gone" if process.status() == psutil.STATUS_ZOMBIE else " ".join(process.cmdline())
    except psutil.NoSuchProcess:
        return "gone"
