"""Jobs that misbehave in every way that has been seen of a process using a broken GPU driver."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import stat
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, NoReturn

from gpudiag.errors import Disturbed
from gpudiag.isolate import worker

Argument = dict[str, Any]


def well(argument: Argument) -> bytes:
    print("a line to stdout")
    print("a line to stderr", file=sys.stderr)
    return b'{"pid":%d}' % os.getpid()


def raises(argument: Argument) -> bytes:
    raise ValueError("nothing works")


def is_disturbed(argument: Argument) -> bytes:
    raise Disturbed("another process changed its memory by 100 MiB")


def exits_from_python(argument: Argument) -> bytes:
    sys.exit(7)


def segfaults(argument: Argument) -> bytes:
    ctypes.string_at(0)
    return b"null"


def aborts(argument: Argument) -> bytes:
    os.abort()


def leaves_without_a_word(argument: Argument) -> bytes:
    os._exit(0)


def writes_half_a_record(argument: Argument) -> bytes:
    os.write(_result_fd(), (1000).to_bytes(8, "little") + b'{"value":')
    os._exit(0)


def writes_nonsense(argument: Argument) -> bytes:
    return b"not json"


def writes_its_own_record(argument: Argument) -> bytes:
    record = bytes.fromhex(argument["record"])
    os.write(_result_fd(), len(record).to_bytes(8, "little") + record)
    os._exit(0)


def raises_what_cannot_be_told(argument: Argument) -> bytes:
    class UntellableError(Exception):
        def __str__(self) -> str:
            raise RuntimeError("no text")

    raise UntellableError


def leaves_a_daemon_and_kills_its_server(argument: Argument) -> bytes:
    leaves_a_daemon(argument)
    os.kill(os.getppid(), signal.SIGKILL)
    _sleep_for_ever()


def stops_its_server(argument: Argument) -> bytes:
    _tell_pid(argument, os.getpid())
    os.kill(os.getppid(), signal.SIGSTOP)
    _sleep_for_ever()


def returns_100_mb(argument: Argument) -> bytes:
    return b'"' + b"x" * 100_000_000 + b'"'


def floods(argument: Argument) -> bytes:
    block = b"".join(b"failed to allocate 38.50GiB from device: out of memory, line %d\n" % n for n in range(5000))
    for _ in range(1000):
        os.write(2, block)
    return b'"five million lines"'


def floods_what_is_captured(argument: Argument) -> bytes:
    os.ftruncate(worker.order_files[os.getpid()], worker.CAPTURE_BYTES)
    _sleep_for_ever()


def is_deaf_to_term(argument: Argument) -> bytes:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    _tell_pid(argument, os.getpid())
    _sleep_for_ever()


def stops_itself(argument: Argument) -> bytes:
    _tell_pid(argument, os.getpid())
    os.kill(os.getpid(), signal.SIGSTOP)
    return b"null"


def hangs_in_native_code(argument: Argument) -> bytes:
    _tell_pid(argument, os.getpid())
    ctypes.PyDLL(None).sleep(3600)  # PyDLL keeps the GIL: no Python handler can run
    return b"null"


def leaves_a_grandchild(argument: Argument) -> bytes:
    _tell_pid(argument, subprocess.Popen(["sleep", "3600"]).pid)
    return b'"done"'


def leaves_a_grandchild_in_its_own_session(argument: Argument) -> bytes:
    _tell_pid(argument, subprocess.Popen(["sleep", "3600"], start_new_session=True).pid)
    return b'"done"'


def leaves_a_daemon(argument: Argument) -> bytes:
    if os.fork() == 0:
        os.setsid()
        if os.fork():
            os._exit(0)
        _tell_pid(argument, os.getpid())
        _sleep_for_ever()
    os.wait()
    while not Path(argument["pid_file"]).exists():
        time.sleep(0.01)
    return b'"done"'


def leaves_what_cannot_be_killed(argument: Argument) -> bytes:
    """As a test that starts ``sudo``: a process of another user, which writes for as long as it lives."""
    if os.fork() == 0:
        os.setsid()
        os.setresuid(12345, 12345, 12345)
        _tell_pid(argument, os.getpid())
        until = time.monotonic() + 20
        while time.monotonic() < until:
            with contextlib.suppress(OSError):  # nobody reads any more
                os.write(1, b"x")
        os._exit(0)
    while not Path(argument["pid_file"]).exists():
        time.sleep(0.01)
    return b'"done"'


def returns_its_argument(argument: Argument) -> bytes:
    import json

    seen = json.dumps([argument, {name: os.environ.get(name) for name in argument.get("names", ())}])
    return json.dumps(seen).encode()  # as a text: a record has no lone surrogates


def sleeps(argument: Argument) -> bytes:
    time.sleep(argument["seconds"])
    return b'"slept"'


def tells_its_keeper(argument: Argument) -> bytes:
    import psutil

    return b"%d" % psutil.Process(os.getppid()).ppid()


def leaves_a_temporary_file(argument: Argument) -> bytes:
    descriptor, name = tempfile.mkstemp()
    os.close(descriptor)
    return b'"%s"' % name.encode()


def kills_its_server(argument: Argument) -> bytes:
    _tell_pid(argument, os.getpid())
    os.kill(os.getppid(), signal.SIGKILL)
    _sleep_for_ever()


def waits(argument: Argument) -> bytes:
    _tell_pid(argument, os.getpid())
    _sleep_for_ever()


def reports_environment(argument: Argument) -> bytes:
    shown = {name: os.environ.get(name) for name in argument["names"]}
    blocked = signal.pthread_sigmask(signal.SIG_BLOCK, ())
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGCHLD)
    ignored = [int(signum) for signum in numbers if signal.getsignal(signum) is signal.SIG_IGN or signum in blocked]
    import msgspec

    seen = {"environment": shown, "ignored": ignored, "fds": sorted(_open_fds()), "path": sys.path}
    return msgspec.json.encode(seen)


def reports_preload_output(argument: Argument) -> bytes:
    import msgspec

    from gpudiag.isolate import worker

    return msgspec.json.encode(worker.preload_output)


def _result_fd() -> int:
    return next(fd for fd in sorted(_open_fds()) if fd > 2 and stat.S_ISFIFO(os.fstat(fd).st_mode))


def _open_fds() -> list[int]:
    found = []
    for link in Path("/proc/self/fd").iterdir():
        try:
            os.fstat(int(link.name))
        except OSError:  # the descriptor of the listing itself
            continue
        found.append(int(link.name))
    return found


def _tell_pid(argument: Argument, pid: int) -> None:
    temporary = Path(argument["pid_file"] + ".new")
    temporary.write_text(str(pid))
    temporary.rename(argument["pid_file"])


def _sleep_for_ever() -> NoReturn:
    while True:
        time.sleep(3600)


def leaves_a_daemon_and_waits(argument: Argument) -> bytes:
    leaves_a_daemon(argument)
    _sleep_for_ever()
