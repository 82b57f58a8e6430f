"""``gpudiag.check`` and ``gpudiag.why`` as programs call them: they do not disturb the program, and it not them."""

from __future__ import annotations

import inspect
import json
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest

import gpudiag
import user_program
from conftest import DEADLINE_S, Gpudiag
from gpudiag import cli
from gpudiag.cli.help import OTHERS, groups

pytestmark = pytest.mark.starts

NOT_OF_PYTHON = {"format", "output", "mask", "verbose", "quiet", "exit_scheme", "debug", "help"}
"""Options that say how a report is written; ``render`` and ``save`` have them."""

UNTYPED: Any = gpudiag
"""As a program without types sees it."""

HOSTILE = """
import asyncio, json, os, signal, sys, tempfile, threading
import tensorflow as tf

assert "GPU" in (tf.constant(1.0) + 1).device  # this process now has all memory of the GPU
sys.argv = ["train.py", "--level", "nonsense"]
os.environ["TF_DETERMINISTIC_OPS"] = "1"  # after everything was imported
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
signal.signal(signal.SIGTERM, lambda *_: None)
os.close(0)
os.chdir(tempfile.mkdtemp())
os.rmdir(os.getcwd())

import gpudiag

def state():
    handlers = {number: signal.getsignal(number) for number in range(1, 65) if number not in (32, 33)}
    return handlers, dict(os.environ), list(sys.path), sys.argv, threading.active_count()

def check(_):
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM, signal.SIGCHLD, signal.SIGUSR1})
    return gpudiag.check(["host.environment", "discovery.logical_devices"])

async def main():
    before = state()
    here = gpudiag.check(["host.environment", "discovery.logical_devices"])  # this blocks the loop
    after = state()
    both = await asyncio.gather(*(asyncio.to_thread(check, number) for number in range(2)))
    return before == after, [here, *both]

unchanged, reports = asyncio.run(main())
print(json.dumps({
    "unchanged": unchanged,
    "me": os.getpid(),
    "children": open(f"/proc/self/task/{os.getpid()}/children").read(),
    "device": (tf.constant(1.0) + 1).device,
    "verdicts": [report.verdict.value for report in reports],
    "causes": [[cause.cause_id for cause in report.causes] for report in reports],
    "notes": [report.notes for report in reports],
    "seen": ["TF_DETERMINISTIC_OPS" in report.facts.variables for report in reports],
    "commands": [report.command for report in reports],
}))
"""


@pytest.fixture(autouse=True)
def _own_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("GPUDIAG_BISECT", "0")


def run(program: str, *flags: str, path: list[str] | None = None) -> subprocess.CompletedProcess[str]:
    boot = f"import sys; sys.path[:] = {path!r}\n" if path else ""
    command = [sys.executable, *flags, "-c", boot + program]
    return subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE_S, check=False)


def test_a_program_that_holds_the_gpu_checks_it_from_a_loop_and_from_threads(gpudiag: Gpudiag) -> None:
    """All that makes it hard at once: signals ignored and blocked, standard input closed, no working directory."""
    done = gpudiag("simulate", "1x2GiB", "--", sys.executable, "-c", HOSTILE, flags=())
    said = json.loads(done.stdout)
    assert said["unchanged"]
    assert said["children"].split() == []
    assert said["device"].endswith("GPU:0")
    assert said["verdicts"] == ["FAIL"] * 3
    assert said["causes"] == [["memory_held_by_others"]] * 3
    for notes in said["notes"]:
        assert any(f"process {said['me']}, which uses GPU 0, is the one that called" in note for note in notes)
    assert said["seen"] == [True] * 3
    command = "gpudiag simulate 1x2GiB -- gpudiag check host.environment discovery.logical_devices"
    assert said["commands"] == [command.split()] * 3


def test_a_user_s_program_runs_and_prints_nothing(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGCHLD)}
    summary, *lines = user_program.gate(tmp_path / "report.json")
    assert "PASS" in summary.splitlines()[-1]
    assert lines == ["discovery.logical_devices: pass", "Simulated GPU 16 GiB"]
    assert capfd.readouterr() == ("", "")
    assert handlers == {number: signal.getsignal(number) for number in handlers}
    assert not (tmp_path / "state").exists()


def test_progress_and_the_command_in_a_shell_say_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(tmp_path / "summary.md"))
    monkeypatch.setenv("GPUDIAG_EXIT_SCHEME", "nagios")
    lines = list[str]()
    report = gpudiag.check("host.gpus", simulate="1x2GiB", progress=lines.append)
    assert "host facts" in lines
    assert "[1/1] host: 1 pass" in lines
    assert report.verdict is gpudiag.Verdict.NOT_VERIFIED
    assert str(report).splitlines()[-1].endswith("exit 5")
    assert "gpudiag check --simulate 1x2GiB host.gpus --failed" in str(report)
    assert not (tmp_path / "summary.md").exists()


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (
            lambda: gpudiag.check("memory.grwth"),
            "no probe or area matches 'memory.grwth'. Did you mean 'memory.growth'",
        ),
        (
            lambda: UNTYPED.check(level="fast"),
            "invalid value for 'level': 'fast' is not one of 'quick', 'full', 'stress'. See help(",
        ),
        (lambda: gpudiag.check(simulate="2xfoo"), "'foo' is not a size"),
        (lambda: gpudiag.check(fault="no_device"), "fault needs simulate"),
        (lambda: gpudiag.check("--format"), "no probe or area matches '--format'"),
        (lambda: UNTYPED.check(["host", 3]), "3 is not a name"),
        (lambda: gpudiag.check("a\0b"), "NUL"),
        (lambda: gpudiag.why("train.log"), "train.log: there is no such file"),
        (lambda: gpudiag.why(" \n"), "the log is empty"),
    ],
)
def test_what_cannot_be_used_is_an_exception_with_fault_and_cure(call: Callable[[], object], said: str) -> None:
    with pytest.raises(gpudiag.UsageError) as raised:
        call()
    assert said in str(raised.value)
    assert "gpudiag: error" not in str(raised.value)


def test_why_reads_a_text_a_file_and_the_name_of_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = "E0000 cuda_dnn.cc:522] Loaded runtime CuDNN library: 9.1.0 but source was compiled with: 9.3.0.\n"
    (tmp_path / "train.log").write_text(text)
    monkeypatch.chdir(tmp_path)
    for log in (text, text.strip(), tmp_path / "train.log", "train.log"):
        report = gpudiag.why(log)
        assert [cause.cause_id for cause in report.causes] == ["cudnn_too_old"], log
        assert report.lines


@pytest.mark.usefixtures("no_child_left")
@pytest.mark.parametrize("error", [KeyboardInterrupt, ZeroDivisionError])
def test_an_exception_ends_the_check_and_all_that_it_started(error: type[BaseException]) -> None:
    def interrupt(line: str) -> None:
        if line.startswith("probes"):
            if error is KeyboardInterrupt:
                signal.raise_signal(signal.SIGINT)
            raise error

    with pytest.raises(error):
        gpudiag.check("discovery.logical_devices", simulate=1, progress=interrupt)
    report = gpudiag.check(failed=True, simulate=1)
    assert "discovery.logical_devices" in {row.probe for row in report.rows if row.status == "pass"}


@pytest.mark.usefixtures("no_child_left")
def test_a_check_that_is_killed_is_an_error(wait_until: Callable[[Callable[[], bool]], None]) -> None:
    started = list[psutil.Process]()

    def kill(line: str) -> None:
        if not started:
            (check,) = psutil.Process().children()
            started.extend((check, *check.children(recursive=True)))
            check.kill()

    with pytest.raises(gpudiag.GpudiagError, match="'gpudiag check' was ended by SIGKILL before it had a report"):
        gpudiag.check("discovery", simulate=1, progress=kill)
    wait_until(lambda: not any(map(is_alive, started)))


def is_alive(process: psutil.Process) -> bool:
    return process.is_running() and process.status() != psutil.STATUS_ZOMBIE


def test_a_check_does_not_outlive_its_program(wait_until: Callable[[Callable[[], bool]], None]) -> None:
    program = "import gpudiag; gpudiag.check('discovery', simulate=1, progress=lambda line: print(line, flush=True))"
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        process.stdout.readline()
        started = psutil.Process(process.pid).children(recursive=True)
        process.kill()
    assert started
    wait_until(lambda: not any(map(is_alive, started)))


def test_without_tensorflow_that_is_what_the_report_says(gpudiag: Gpudiag) -> None:
    program = "import gpudiag; report = gpudiag.check(); print(report.verdict.value, report.causes[0].cause_id)"
    done = run(program, path=gpudiag.without("tensorflow").path)
    assert (done.stdout.strip(), done.stderr) == ("FAIL tensorflow_missing", "")


def test_importing_gpudiag_imports_nothing_else() -> None:
    program = "import sys; before = {*sys.modules}; import gpudiag; print(*{*sys.modules} - before)"
    assert {name for name in run(program).stdout.split() if name.partition(".")[0] not in sys.stdlib_module_names} == {
        "gpudiag"
    }
    program = "import gpudiag, sys; gpudiag.check; print('click' in sys.modules, 'tensorflow' in sys.modules)"
    assert run(program).stdout.split() == ["False", "False"]


@pytest.mark.parametrize("name", ["check", "why"])
def test_a_function_has_the_options_of_its_command(name: str) -> None:
    command = cli.command(name)
    options = {option.name for options in groups(command.params).values() for option in options} - NOT_OF_PYTHON
    parameters = {parameter.rstrip("_") for parameter in inspect.signature(getattr(gpudiag, name)).parameters}
    assert parameters - {"select", "log", "progress"} == options - {"log"}
    assert OTHERS in groups(command.params)


def test_every_name_of_the_package_is_there() -> None:
    assert {*gpudiag.__all__} <= {*dir(gpudiag)}
    for name in gpudiag.__all__:
        assert getattr(gpudiag, name).__doc__
    with pytest.raises(AttributeError, match="'gpudiag' has no attribute 'chek'"):
        gpudiag.chek  # noqa: B018
