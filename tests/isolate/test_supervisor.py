"""The Linux supervisor against every way in which a child can misbehave."""

from __future__ import annotations

import ctypes
import itertools
import json
import os
import resource
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from unittest.mock import Mock

import msgspec
import psutil
import pytest

from gpudiag.hardware import starvation
from gpudiag.isolate import Bounds, Job, JobResult, ServerSpec, linux, polling, server
from gpudiag.isolate import supervisor as supervisor_module
from gpudiag.isolate.protocol import JobEnded, Refused, Started
from gpudiag.isolate.supervisor import Supervisor
from gpudiag.model.report import NoReading

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="fork servers need Linux")

SERVERS = {
    "plain": ServerSpec(),
    "threaded": ServerSpec(preload="processes.preloads:starts_a_thread"),
    "guarded": ServerSpec(preload="processes.preloads:refuses_to_fork"),
    "talkative": ServerSpec(preload="processes.preloads:talks"),
    "harmless": ServerSpec(preload="processes.preloads:kills_nothing"),
    "ahead": ServerSpec(ahead="processes.preloads:talks"),
    "ahead in vain": ServerSpec(ahead="processes.preloads:raises"),
    "slow to remove": ServerSpec(preload="processes.preloads:removes_slowly"),
    **{
        name: ServerSpec(preload=f"processes.preloads:{name}", what=f"the preload that {name}")
        for name in ("raises", "segfaults", "hangs", "floods")
    },
}
FAULTS = Path(__file__).parent.parent / "faults" / "injected"
BOUNDS = Bounds(preload_s=5.0, term_grace_s=0.3, kill_grace_s=3.0)


@pytest.fixture(autouse=True)
def _nothing_is_left_behind() -> Iterator[None]:
    before = running()
    yield
    assert running() <= before


def running() -> set[int]:
    """Return the descendants of this process that have not ended; one that nobody has waited for holds nothing."""
    found = psutil.Process().children(recursive=True)
    return {process.pid for process in found if process.is_running() and process.status() != psutil.STATUS_ZOMBIE}


@pytest.fixture
def pid_file(tmp_path: Path) -> Path:
    return tmp_path / "pid"


def job(
    function: str,
    *,
    key: str = "job",
    deadline_s: float = 30.0,
    server: str = "plain",
    fresh: bool = False,
    pid_file: Path | None = None,
    env: dict[str, str | None] | None = None,
    **argument: object,
) -> Job:
    if pid_file is not None:
        argument["pid_file"] = str(pid_file)
    return Job(key, f"processes.illbehaved:{function}", argument, deadline_s, server, fresh, env or {})


def run(*jobs: Job, bounds: Bounds = BOUNDS, at_most_s: float = 60.0) -> dict[str, JobResult]:
    ended: dict[str, JobResult] = {}
    until = time.monotonic() + at_most_s
    with Supervisor(SERVERS, bounds) as supervisor:
        for job in jobs:
            supervisor.start(job)
        while len(ended) < len(jobs) and time.monotonic() < until:
            ended.update({result.key: result for result in supervisor.wait(0.5)})
    assert set(ended) == {job.key for job in jobs}, "a job did not end"
    return ended


def run_one(job: Job, bounds: Bounds = BOUNDS) -> JobResult:
    return run(job, bounds=bounds)[job.key]


def is_gone(pid_file: Path) -> bool:
    pid = int(pid_file.read_text())
    until = time.monotonic() + 300
    while time.monotonic() < until:
        try:
            if psutil.Process(pid).status() == psutil.STATUS_ZOMBIE:
                return True
        except psutil.NoSuchProcess:
            return True
        time.sleep(0.02)
    return False


@pytest.mark.parametrize("fresh", [False, True])
def test_a_value_and_both_streams_come_back(fresh: bool) -> None:
    ended = run_one(job("well", fresh=fresh))
    assert ended.cause is None
    assert ended.value is not None
    assert msgspec.json.decode(ended.value)["pid"] != os.getpid()
    assert (ended.stdout, ended.stderr) == ("a line to stdout\n", "a line to stderr\n")


@pytest.mark.parametrize("fresh", [False, True])
@pytest.mark.parametrize(
    ("function", "cause", "detail"),
    [
        ("raises", NoReading.EXCEPTION, "ValueError: nothing works"),
        ("is_disturbed", NoReading.DISTURBED, "another process changed its memory by 100 MiB"),
        ("exits_from_python", NoReading.EXCEPTION, "SystemExit: 7"),
        ("segfaults", NoReading.SIGNAL, "killed by SIGSEGV"),
        ("aborts", NoReading.SIGNAL, "killed by SIGABRT"),
        ("leaves_without_a_word", NoReading.NO_RESULT, "exited with status 0 without a result"),
        (
            "writes_half_a_record",
            NoReading.BAD_RESULT,
            "exited with status 0 after 9 of 1000 bytes of its record",
        ),
        ("raises_what_cannot_be_told", NoReading.EXCEPTION, "UntellableError: (its text cannot be read)"),
        ("writes_nonsense", NoReading.BAD_RESULT, "its record is malformed"),
        ("returns_100_mb", NoReading.BAD_RESULT, "its record is larger than 16 MiB"),
        ("floods", NoReading.OUTPUT_FLOOD, "wrote more than 8 MiB"),
        (
            "floods_what_is_captured",
            NoReading.OUTPUT_FLOOD,
            "wrote more than 16 MiB to stderr while it was captured",
        ),
    ],
)
def test_a_death_is_a_result_of_its_own_kind(function: str, cause: NoReading, detail: str, fresh: bool) -> None:
    ended = run_one(job(function, fresh=fresh))
    assert (ended.cause, ended.value) == (cause, None)
    assert detail in ended.detail


@pytest.mark.parametrize(
    "record",
    [
        b"{}",
        b"[]",
        b"5",
        b'{"raised":5}',
        b'{"raised":{"type":"A","message":"b","cause":"c"}}',
        b'{"value":{"x":"\xff"}}',
        b'{"value":' + b"[" * 100000 + b"]" * 100000 + b"}",
    ],
)
def test_a_malformed_record_breaks_its_own_job(record: bytes) -> None:
    ended = run(job("writes_its_own_record", key="bad", record=record.hex()), job("well", key="well"))
    assert ended["bad"].cause is NoReading.BAD_RESULT
    assert ended["well"].cause is None


def test_the_traceback_of_an_exception_is_kept() -> None:
    assert "in raises\n" in run_one(job("raises")).stderr


def test_of_a_flood_the_beginning_and_the_end_are_kept() -> None:
    stderr = run_one(job("floods"), Bounds(output_bytes=1 << 40)).stderr
    assert "line 0\n" in stderr[:200]
    assert "bytes dropped]" in stderr
    assert stderr.endswith("line 4999\n")
    assert len(stderr) < 200_000


def test_a_child_that_was_kept_from_running_is_not_one_that_hangs(pid_file: Path) -> None:
    ended: list[JobResult] = []
    with Supervisor(SERVERS, BOUNDS) as supervisor:
        supervisor.start(job("waits", deadline_s=4.0, pid_file=pid_file))
        while not pid_file.exists():
            supervisor.wait(0.05)
        pid = int(pid_file.read_text())
        os.kill(pid, signal.SIGSTOP)
        while supervisor._children["job"].starvation._stopped_s < 2.1:  # type: ignore[union-attr]
            supervisor.wait(0.05)
        os.kill(pid, signal.SIGCONT)
        while not ended:
            ended = supervisor.wait(0.5)
    assert ended[0].cause is NoReading.BUSY
    assert ended[0].detail.startswith("no result within 4 s, it was stopped for 2")


@pytest.mark.parametrize("function", ["is_deaf_to_term", "stops_itself", "hangs_in_native_code", "waits"])
def test_a_child_past_its_deadline_is_killed(function: str, pid_file: Path) -> None:
    ended = run_one(job(function, deadline_s=1.0, pid_file=pid_file))
    assert (ended.cause, ended.detail) == (NoReading.TIMEOUT, "no result within 1 s")
    assert is_gone(pid_file)


@pytest.mark.parametrize(
    "function",
    ["leaves_a_grandchild", "leaves_a_grandchild_in_its_own_session", "leaves_a_daemon"],
)
@pytest.mark.parametrize("fresh", [False, True])
def test_what_outlives_a_child_is_killed_and_its_result_counts(function: str, fresh: bool, pid_file: Path) -> None:
    ended = run_one(job(function, fresh=fresh, pid_file=pid_file))
    assert ended.value == b'"done"'
    assert is_gone(pid_file)
    if function != "leaves_a_grandchild":  # that one died with its process group
        assert "killed 1 process left by it" in ended.stderr


def test_a_killed_server_breaks_its_row_and_is_started_again(pid_file: Path) -> None:
    ended = run(
        job("kills_its_server", key="lost", pid_file=pid_file), *(job("well", key=f"well{n}") for n in range(3))
    )
    assert ended["lost"].cause is NoReading.SERVER_LOST
    assert "killed by SIGKILL" in ended["lost"].detail
    assert is_gone(pid_file)
    # Jobs that the server was running when it died are lost with it; those it had not begun are run by the next.
    with Supervisor(SERVERS, BOUNDS) as supervisor:
        supervisor.start(job("kills_its_server", key="lost", pid_file=pid_file))
        assert [result.cause for result in _until_ended(supervisor)] == [NoReading.SERVER_LOST]
        supervisor.start(job("well", key="after"))
        assert [result.cause for result in _until_ended(supervisor)] == [None]


def test_a_server_that_keeps_dying_is_given_up(pid_file: Path) -> None:
    with Supervisor(SERVERS, Bounds(restarts=2)) as supervisor:
        for number in range(3):
            supervisor.start(job("kills_its_server", key=f"lost{number}", pid_file=pid_file))
            _until_ended(supervisor)
        supervisor.start(job("well", key="after"))
        (ended,) = _until_ended(supervisor)
    assert ended.cause is NoReading.SERVER_LOST
    assert "died 3 times" in ended.detail


@pytest.mark.parametrize(
    ("server", "cause", "detail"),
    [
        ("raises", NoReading.EXCEPTION, "raised ImportError: libtensorflow_framework.so.2"),
        ("segfaults", NoReading.SIGNAL, "killed by SIGSEGV"),
        ("hangs", NoReading.TIMEOUT, "did not finish within 2 s"),
        ("floods", NoReading.OUTPUT_FLOOD, "wrote more than 8 MiB"),
    ],
)
def test_a_preload_that_fails_breaks_every_job_of_its_server(server: str, cause: NoReading, detail: str) -> None:
    ended = run(
        job("well", key="one", server=server),
        job("well", key="two", server=server),
        job("well", key="other"),
        bounds=Bounds(preload_s=2.0 if cause is NoReading.TIMEOUT else 60.0),  # a flood takes time on a busy machine
    )
    for key in ("one", "two"):
        assert ended[key].cause is cause
        assert detail in ended[key].detail
    assert ended["other"].cause is None


def test_a_server_whose_guard_refuses_does_not_fork_but_still_runs_fresh_jobs() -> None:
    ended = run(job("well", key="forked", server="guarded"), job("well", key="fresh", server="guarded", fresh=True))
    assert ended["forked"].cause is NoReading.EXCEPTION
    assert ended["forked"].detail == "a device was queried in the fork server"
    assert ended["fresh"].cause is None


def test_a_fork_knows_what_its_server_printed_while_it_preloaded() -> None:
    ended = run_one(job("reports_preload_output", server="talkative"))
    assert ended.value is not None
    assert msgspec.json.decode(ended.value) == "é" * (16 << 10)


def test_what_is_done_ahead_is_done_once_and_costs_no_job_if_it_fails() -> None:
    ended = run(
        *(job("reports_preload_output", key=key, server="ahead") for key in ("one", "two")),
        job("well", key="in vain", server="ahead in vain"),
    )
    for key in ("one", "two"):
        assert msgspec.json.decode(ended[key].value or b"") == "é" * (16 << 10)
    assert ended["in vain"].cause is None


def test_forking_a_process_with_threads_warns_nobody() -> None:
    ended = run_one(job("well", server="threaded"))
    assert ended.value is not None
    assert "Warning" not in ended.stderr


@pytest.mark.parametrize("fresh", [False, True])
def test_a_child_gets_its_environment_and_no_stray_descriptor(
    fresh: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("GPUDIAG_TEST_CLEARED", "1")
    monkeypatch.setenv("PYTHONWARNINGS", "error")  # the caller's own code is meant, and TensorFlow's import may warn
    with (tmp_path / "lock").open("w") as lock:
        os.set_inheritable(lock.fileno(), True)
        ended = run_one(
            job(
                "reports_environment",
                fresh=fresh,
                env={"GPUDIAG_TEST_SET": "2", "GPUDIAG_TEST_CLEARED": None},
                names=["GPUDIAG_TEST_SET", "GPUDIAG_TEST_CLEARED", "PYTHONWARNINGS"],
            )
        )
    assert ended.value is not None
    seen = msgspec.json.decode(ended.value)
    assert seen["environment"] == {"GPUDIAG_TEST_SET": "2", "GPUDIAG_TEST_CLEARED": None, "PYTHONWARNINGS": None}
    assert len(seen["fds"]) == 5, "stdin, stdout, stderr, the record and the order"
    assert seen["path"] == sys.path


@pytest.mark.parametrize("fresh", [False, True])
def test_a_child_can_be_ended_by_the_signals_that_its_caller_ignores(fresh: bool) -> None:
    """As a script does for what it starts in the background."""
    before = {number: signal.signal(number, signal.SIG_IGN) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        ended = run_one(job("reports_environment", fresh=fresh, names=[]))
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    assert ended.value is not None
    assert msgspec.json.decode(ended.value)["ignored"] == []


@pytest.mark.parametrize("fresh", [False, True])
def test_temporary_files_of_a_child_go_with_it(fresh: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    ended = run_one(job("leaves_a_temporary_file", fresh=fresh))
    assert ended.value is not None
    assert Path(msgspec.json.decode(ended.value)).is_relative_to(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_jobs_run_at_the_same_time(pid_file: Path) -> None:
    with Supervisor(SERVERS, BOUNDS) as supervisor:
        supervisor.start(job("waits", key="long", pid_file=pid_file))
        supervisor.start(job("well", key="short"))
        assert [result.key for result in _until_ended(supervisor)] == ["short"]
        while not pid_file.exists():
            supervisor.wait(0.05)
        supervisor.kill("long", NoReading.INTERRUPTED, "stopped by SIGINT")
        (ended,) = _until_ended(supervisor)
    assert (ended.cause, ended.detail) == (NoReading.INTERRUPTED, "stopped by SIGINT")
    assert is_gone(pid_file)


def test_closing_kills_what_runs(pid_file: Path) -> None:
    with Supervisor(SERVERS, BOUNDS) as supervisor:
        supervisor.start(job("is_deaf_to_term", pid_file=pid_file))
        while not pid_file.exists():
            supervisor.wait(0.05)
    assert is_gone(pid_file)


def test_a_stopped_server_is_replaced(pid_file: Path) -> None:
    with Supervisor(SERVERS, Bounds(term_grace_s=0.2)) as supervisor:
        supervisor.start(job("stops_its_server", deadline_s=1.0, pid_file=pid_file))
        (ended,) = _until_ended(supervisor)
        assert (ended.cause, ended.detail) == (NoReading.TIMEOUT, "no result within 1 s")
        assert is_gone(pid_file)
        supervisor.start(job("well"))
        assert [result.cause for result in _until_ended(supervisor)] == [None]


def test_a_child_that_sigkill_does_not_end_is_given_up(pid_file: Path) -> None:
    """No process that is really unkillable can be made here, so its server kills nothing until it ends itself."""
    with Supervisor(SERVERS, Bounds(term_grace_s=0.1, kill_grace_s=0.1)) as supervisor:
        supervisor.start(job("waits", server="harmless", pid_file=pid_file))
        while not pid_file.exists():
            supervisor.wait(0.05)
        supervisor.kill("job", NoReading.INTERRUPTED, "stopped by SIGINT")
        (ended,) = _until_ended(supervisor)
    assert ended.cause is NoReading.UNKILLABLE
    assert ended.detail == f"stopped by SIGINT; process {pid_file.read_text()} did not die of SIGKILL"
    assert is_gone(pid_file)


def test_a_daemon_does_not_outlive_the_server_that_died(pid_file: Path) -> None:
    ended = run_one(job("leaves_a_daemon_and_kills_its_server", pid_file=pid_file))
    assert ended.cause is NoReading.SERVER_LOST
    assert is_gone(pid_file)


def test_a_server_that_is_killed_while_it_preloads_is_started_again(tmp_path: Path) -> None:
    servers = {
        "plain": ServerSpec(
            preload="processes.preloads:is_killed_once", env={"GPUDIAG_TEST_MARK": str(tmp_path / "mark")}
        )
    }
    with Supervisor(servers, BOUNDS) as supervisor:
        supervisor.start(job("well"))
        assert [result.cause for result in _until_ended(supervisor)] == [None]


@pytest.mark.parametrize("server_is_stopped", [False, True])
def test_no_child_outlives_a_supervisor_that_is_killed(server_is_stopped: bool, pid_file: Path, tmp_path: Path) -> None:
    orphan_file = tmp_path / "orphan"
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    script = (
        "import sys; from gpudiag.isolate import *; from gpudiag.isolate.supervisor import Supervisor\n"
        "supervisor = Supervisor({'plain': ServerSpec()}, Bounds())\n"
        f"supervisor.start(Job('a', 'processes.illbehaved:waits', {{'pid_file': {str(pid_file)!r}}}, 60, 'plain'))\n"
        "supervisor.start(Job('b', 'processes.illbehaved:leaves_a_daemon_and_waits',"
        f" {{'pid_file': {str(orphan_file)!r}}}, 60, 'plain'))\n"
        "while True: supervisor.wait(1)\n"
    )
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
        "TMPDIR": str(scratch),
    }
    with subprocess.Popen([sys.executable, "-c", script], env=environment) as process:
        until = time.monotonic() + 300
        while not (pid_file.exists() and orphan_file.exists()) and time.monotonic() < until:
            time.sleep(0.02)
        if server_is_stopped:
            os.kill(psutil.Process(int(pid_file.read_text())).ppid(), signal.SIGSTOP)
        process.kill()
    assert is_gone(pid_file)
    assert is_gone(orphan_file)
    until = time.monotonic() + 300
    while list(scratch.iterdir()) and time.monotonic() < until:
        time.sleep(0.02)
    assert list(scratch.iterdir()) == [], "temporary files were left behind"


def test_a_job_of_any_size_and_any_bytes_arrives() -> None:
    undecodable = os.fsdecode(b"caf\xe9")
    large = {f"GPUDIAG_TEST_{number}": "x" * 100_000 for number in range(4)}
    env: dict[str, str | None] = {**large, "GPUDIAG_TEST_NAME": undecodable}
    for fresh in (False, True):
        ended = run_one(
            job("returns_its_argument", fresh=fresh, env=env, text="y" * 300_000, name=undecodable, names=list(env))
        )
        assert ended.value is not None, ended
        argument, environment = json.loads(json.loads(ended.value))
        assert (argument["name"], len(argument["text"])) == (undecodable, 300_000)
        assert environment == env


def test_a_process_that_cannot_be_set_up_says_why() -> None:
    ended = run_one(job("well", fresh=True, env={"GPUDIAG_TEST_LARGE": "x" * 200_000}))
    assert ended.cause is NoReading.NOT_STARTED
    assert "Argument list too long (E2BIG)" in ended.detail


def test_jobs_wait_for_room_rather_than_fail() -> None:
    """Each takes four descriptors here; there are not enough for all at once."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with Supervisor(SERVERS, BOUNDS) as supervisor:
        supervisor.start(job("well", key="first"))
        _until_ended(supervisor)
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(_descriptors()) + 10, hard))
        try:
            for number in range(12):
                supervisor.start(job("sleeps", key=str(number), seconds=0.2))
            ended: list[JobResult] = []
            while len(ended) < 12:
                ended += _until_ended(supervisor)
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert [result.cause for result in ended] == [None] * 12


def test_a_job_that_another_waits_for_is_not_made_to_wait_for_that_one() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with Supervisor(SERVERS, BOUNDS) as supervisor:
        supervisor.start(job("well", key="first"))
        _until_ended(supervisor)
        supervisor.start(job("sleeps", key="waiting", seconds=5))
        supervisor.wait(0.2)
        free = next(number for number in itertools.count() if number not in _descriptors())
        resource.setrlimit(resource.RLIMIT_NOFILE, (free + 1, hard))  # room for one
        try:
            supervisor.start(replace(job("well", key="second"), may_wait=False))
            (ended,) = _until_ended(supervisor)
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert (ended.key, ended.cause) == ("second", NoReading.NOT_STARTED)
    assert "Too many open files (EMFILE)" in ended.detail


def test_what_ended_in_time_counts_although_the_supervisor_was_stopped() -> None:
    """As with Ctrl-Z, or in a frozen cgroup."""
    program = (
        "import time; from gpudiag.isolate import *; from gpudiag.isolate.supervisor import Supervisor\n"
        "with Supervisor({'plain': ServerSpec()}, Bounds()) as supervisor:\n"
        "    supervisor.start(Job('first', 'processes.illbehaved:well', {}, 30, 'plain'))\n"
        "    while not supervisor.wait(1): pass\n"
        "    for n in range(4):\n"
        "        supervisor.start(Job(str(n), 'processes.illbehaved:sleeps', {'seconds': 1 + n / 20}, 6, 'plain'))\n"
        "    supervisor.wait(0.3)\n"
        "    print('go', flush=True)\n"
        "    ended = []\n"
        "    while len(ended) < 4: ended += supervisor.wait(0.5)\n"
        "    print([one.detail for one in ended])\n"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    with subprocess.Popen(
        [sys.executable, "-c", program], env=environment, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "go\n"
        process.send_signal(signal.SIGSTOP)
        time.sleep(8)
        process.send_signal(signal.SIGCONT)
        assert process.stdout.readline() == "['', '', '', '']\n"


@pytest.mark.skipif(shutil.which("setpriv") is None or os.geteuid() != 0, reason="needs root and setpriv")
def test_what_may_not_be_killed_costs_no_other_job(pid_file: Path) -> None:
    program = (
        "from gpudiag.isolate import *; from gpudiag.isolate.supervisor import Supervisor\n"
        "with Supervisor({'plain': ServerSpec()}, Bounds()) as supervisor:\n"
        "    jobs = 'processes.illbehaved:'\n"
        "    supervisor.start(Job('other', jobs + 'sleeps', {'seconds': 3}, 30, 'plain'))\n"
        f"    argument = {{'pid_file': {str(pid_file)!r}}}\n"
        "    supervisor.start(Job('sudo', jobs + 'leaves_what_cannot_be_killed', argument, 30, 'plain'))\n"
        "    ended = {}\n"
        "    while len(ended) < 2: ended.update({one.key: one for one in supervisor.wait(1)})\n"
        "for key, one in sorted(ended.items()): print(key, one.value, one.left, 'another user' in one.stderr)\n"
    )
    pid_file.parent.chmod(0o777)
    capabilities = "+setuid,+dac_override,+dac_read_search"
    command = ["setpriv", "--reuid=65534", "--clear-groups", f"--inh-caps={capabilities}"]
    command += [f"--ambient-caps={capabilities}", sys.executable, "-c", program]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    try:
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=True)
    finally:
        os.kill(int(pid_file.read_text()), signal.SIGKILL)
    assert done.stdout == "other b'\"slept\"' 0 False\nsudo b'\"done\"' 1 True\n"


def test_what_does_not_die_is_waited_for_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """As a process inside of a driver that hangs: after each job the server would wait for it again."""
    ours, theirs = socket.socketpair()
    with ours, theirs, subprocess.Popen(["sleep", "10"]) as orphan:
        fork_server = server.Server(ours, os.getppid(), os.getpid())
        monkeypatch.setattr(server, "SWEEP_S", 0.05)
        monkeypatch.setattr(linux, "children", lambda: {orphan.pid})
        with monkeypatch.context() as patch:
            killed = Mock(return_value=True)
            patch.setattr(linux, "was_killed", killed)
            fork_server._sweep()
            killed.assert_called_with(orphan.pid)
            killed.reset_mock()
            assert fork_server._orphans() == set(), "the next job has not left it"
            fork_server._sweep()
            killed.assert_not_called()
        orphan.kill()
        os.waitid(os.P_PID, orphan.pid, os.WEXITED | os.WNOWAIT)
        fork_server._reap()
        assert fork_server._stuck == set()
        os.close(fork_server._wake_read)
        os.close(fork_server._wake_write)


def test_slow_removal_of_temporary_files_delays_nothing(pid_file: Path) -> None:
    with Supervisor(SERVERS, Bounds(term_grace_s=0.2)) as supervisor:
        supervisor.start(job("leaves_a_temporary_file", key="files", server="slow to remove"))
        assert [result.key for result in _until_ended(supervisor)] == ["files"]
        supervisor.start(job("is_deaf_to_term", server="slow to remove", deadline_s=1.0, pid_file=pid_file))
        (ended,) = _until_ended(supervisor)
    assert (ended.cause, ended.detail) == (NoReading.TIMEOUT, "no result within 1 s"), "SIGKILL was passed on in time"


def test_a_late_word_about_a_job_that_was_given_up_is_nothing() -> None:
    with Supervisor(SERVERS, BOUNDS) as supervisor:
        server = supervisor._servers["plain"]
        for message in (
            Refused("gone", "", NoReading.NOT_STARTED),
            Started("gone", 1),
            JobEnded("gone", 0, 0, 0),
        ):
            supervisor._take_in(server, message)
        supervisor.start(job("well"))
        assert [result.cause for result in _until_ended(supervisor)] == [None]


def test_a_writer_that_never_pauses_is_not_read_for_ever(
    monkeypatch: pytest.MonkeyPatch, wait_until: Callable[[Callable[[], bool]], None]
) -> None:
    """As what may not be killed can be: it has the pipes of its job, or of the server, and writes on."""
    read, reads = polling.read, dict[int, int]()

    def refilled(fd: int) -> bytes | None:
        reads[fd] = reads.get(fd, 0) + 1
        assert reads[fd] < 1000, "it is read for ever"
        chunk = read(fd)
        return b"more" if chunk is None else chunk

    with Supervisor(SERVERS, Bounds(drain_s=0.1)) as supervisor:
        supervisor.start(job("sleeps", seconds=1.0))
        while (pid := supervisor._children["job"].pid) is None:
            supervisor.wait(0.05)
        of_job, of_server = (Path(f"/proc/{of}/fd/1") for of in (pid, supervisor._servers["plain"].pid))
        wait_until(lambda: of_job.readlink() != of_server.readlink())  # it has begun with the server's
        held = [os.open(fd, os.O_WRONLY) for fd in (of_job, of_server)]
        for module in (polling, supervisor_module):
            monkeypatch.setattr(module, "read", refilled)
        (ended,) = _until_ended(supervisor)
        assert (ended.cause, ended.stdout[:8]) == (None, "moremore")
    assert max(reads.values()) > 10
    for fd in held:
        os.close(fd)


def test_a_ctrl_c_at_the_terminal_reaches_no_server() -> None:
    """The terminal sends it to the group in its foreground; gpudiag then ends what it started, in order."""
    with Supervisor(SERVERS, BOUNDS) as supervisor:
        supervisor.start(job("tells_its_keeper"))
        (ended,) = _until_ended(supervisor)
        server = supervisor._servers["plain"].pid
        assert ended.value is not None
        assert server is not None
        assert os.getpgrp() not in (os.getpgid(server), os.getpgid(int(ended.value)))


def test_without_proc_no_child_is_known_and_no_server_dies_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (linux, starvation):
        monkeypatch.setattr(module, "Path", lambda path: Path(path.replace("/proc", "/nowhere")))
    assert linux.children() == set()
    assert not starvation.is_stopped(os.getpid())
    assert not linux.environment_holds(os.getpid(), "A=b")


def test_the_callers_process_adopts_nobody() -> None:
    """It may be the user's own, a session of pytest; the orphans of servers go to their keepers."""
    answer = ctypes.c_int(-1)
    with Supervisor(SERVERS, BOUNDS) as supervisor:
        supervisor.start(job("well"))
        _until_ended(supervisor)
        ctypes.CDLL(None).prctl(37, ctypes.byref(answer), 0, 0, 0)  # PR_GET_CHILD_SUBREAPER
    assert answer.value == 0


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_server_whose_keeper_is_killed_goes_with_all_that_it_started(number: int, pid_file: Path) -> None:
    with Supervisor(SERVERS, BOUNDS) as supervisor:
        supervisor.start(job("leaves_a_daemon_and_waits", key="lost", pid_file=pid_file))
        while not pid_file.exists():
            supervisor.wait(0.05)
        supervisor.start(job("tells_its_keeper"))
        (ended,) = _until_ended(supervisor)
        assert ended.value is not None
        os.kill(int(ended.value), number)
        assert [result.cause for result in _until_ended(supervisor)] == [NoReading.SERVER_LOST]
        assert is_gone(pid_file)
        supervisor.start(job("well"))
        assert [result.cause for result in _until_ended(supervisor)] == [None]


def test_the_last_words_of_a_server_stand_with_the_jobs_that_it_lost(tmp_path: Path) -> None:
    fault = {"FAULT_INJECT": "server:select.select:ENOMEM:all", "PYTHONPATH": str(FAULTS)}
    with Supervisor({"plain": ServerSpec(env=fault)}, Bounds(restarts=0)) as supervisor:
        supervisor.start(job("well"))
        (ended,) = _until_ended(supervisor)
    assert ended.cause is NoReading.SERVER_LOST
    assert "[Errno 12] Cannot allocate memory" in ended.stderr


def test_what_a_server_said_stands_with_the_job_that_it_was_running(pid_file: Path) -> None:
    ended = run_one(job("kills_its_server", server="talkative", pid_file=pid_file))
    assert ended.cause is NoReading.SERVER_LOST
    assert "é" * 100 in ended.stderr


def _descriptors() -> list[int]:
    return [int(link.name) for link in Path("/proc/self/fd").iterdir()]


def _until_ended(supervisor: Supervisor) -> list[JobResult]:
    until = time.monotonic() + 300
    while time.monotonic() < until:
        if ended := supervisor.wait(0.5):
            return ended
    raise AssertionError("nothing ended")
