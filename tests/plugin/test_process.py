"""The plugin leaves the process that it runs in as it found it."""

from __future__ import annotations

from suites import Suite

STATE = """
    import ctypes, os, pathlib, signal, subprocess, sys, threading, time, warnings
    import psutil, pytest

    def reaps():
        answer = ctypes.c_int()
        ctypes.CDLL(None).prctl(37, ctypes.byref(answer), 0, 0, 0)  # PR_GET_CHILD_SUBREAPER
        return answer.value

    def umask():
        before = os.umask(0)
        os.umask(before)
        return before

    def descriptors():
        names = {}
        for one in pathlib.Path("/proc/self/fd").iterdir():
            try:
                names[one.name] = os.readlink(one)
            except OSError:
                pass  # of the folder that is read
        return names

    def state():
        return {
            "signals": {number: signal.getsignal(number) for number in signal.valid_signals()},
            "wakeup": signal.set_wakeup_fd(-1),
            "timer": signal.getitimer(signal.ITIMER_REAL),
            "blocked": signal.pthread_sigmask(signal.SIG_BLOCK, ()),
            "reaper": reaps(),
            "environment": {name: value for name, value in os.environ.items() if name != "PYTEST_CURRENT_TEST"},
            "directory": os.getcwd(),
            "path": list(sys.path),
            "warnings": list(warnings.filters),
            "threads": sorted(one.name for one in threading.enumerate()),
            "umask": umask(),
            "limits": [psutil.Process().rlimit(number) for number in range(16)],
            "hooks": (sys.excepthook, sys.unraisablehook, sys.stdout, sys.stderr, threading.excepthook),
            "tracing": (sys.gettrace(), sys.getprofile(), sys.getrecursionlimit()),
        }

    BEFORE = {}

    def test_before():
        BEFORE.update(state(), descriptors=descriptors())

    @pytest.mark.gpudiag_isolated
    def test_isolated(tmp_path):
        os.chdir(tmp_path)
        os.umask(0o777)
        os.environ["LEFT"] = "behind"

    @pytest.mark.gpudiag_isolated
    def test_crashes():
        os.abort()

    def test_after():
        after = state()
        differing = {name: (BEFORE[name], after[name]) for name in after if after[name] != BEFORE[name]}
        assert not differing

    def test_descriptors_stay_few():
        \"\"\"What the fork server is talked to by is open until the session ends; nothing is left for each test.\"\"\"
        new = {name: kind for name, kind in descriptors().items() if name not in BEFORE["descriptors"]}
        assert len(new) <= 8, new

    def test_a_daemon_vanishes_when_it_ends():
        \"\"\"As it does where init, or whoever was to adopt it, reaps it.\"\"\"
        daemon = int(subprocess.run(["sh", "-c", "sleep 0.2 >/dev/null 2>&1 & echo $!"], capture_output=True).stdout)
        until = time.monotonic() + 300
        while psutil.pid_exists(daemon):
            process = psutil.Process(daemon)
            if process.status() == psutil.STATUS_ZOMBIE and process.ppid() != os.getpid():
                break  # of a machine whose first process reaps nobody
            assert time.monotonic() < until, process
            time.sleep(0.02)
"""


def test_the_process_is_left_as_it_was(suite: Suite, plain: None, no_child_left: None) -> None:
    suite.write("test_state.py", STATE)
    ran = suite("-v")
    outcomes = ran.outcomes()
    assert outcomes.pop("test_crashes") == "failure"
    assert set(outcomes.values()) == {"passed"}, ran
    assert len(outcomes) == 5
