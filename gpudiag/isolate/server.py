"""A fork server: an interpreter that preloads once, and forks one child per job.

It talks over one ``SOCK_SEQPACKET`` socket, JSON messages with file descriptors beside them. It receives ``preload``
(first), ``output``, ``start`` and ``kill``; it sends ``ready`` or ``failed``, ``started`` and ``ended``. When the other
end closes, because the supervisor is done or was killed, the server kills whatever it started and leaves.

It is the *subreaper* of its descendants: a grandchild that outlives its job, also one that called ``setsid``, becomes a
child of the server, which knows that it is no job and kills it. So a probe must not daemonise a helper it still needs.
"""

from __future__ import annotations

import contextlib
import gc
import os
import select
import shutil
import signal
import socket
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from typing import Any, NoReturn

import msgspec

from gpudiag.isolate import farside, linux

MESSAGE_BYTES = 1 << 17
SWEEP_S = 1.0

Guard = Callable[[], str | None]


def send(control: socket.socket, message: dict[str, Any], fds: list[int] | None = None) -> None:
    """Send one message, with ``fds`` passed along."""
    socket.send_fds(control, [msgspec.json.encode(message)], fds or [])


def receive(control: socket.socket) -> tuple[dict[str, Any] | None, list[int]]:
    """Return the next message and the file descriptors that came with it; None where the other end has closed."""
    try:
        content, fds, _, _ = socket.recv_fds(control, MESSAGE_BYTES, 8)
    except ConnectionError:
        return None, []
    return (msgspec.json.decode(content) if content else None), list(fds)


class Server:
    """The loop of a fork server."""

    def __init__(self, control: socket.socket) -> None:
        self._control = control
        self._jobs: dict[int, str] = {}
        self._guard: Guard | None = None
        self._scratch = ""
        self._wake_read, self._wake_write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)

    def run(self) -> NoReturn:
        """Preload, then serve until the other end closes."""
        linux.adopt_orphans()
        first, _ = receive(self._control)
        if first is None:
            os._exit(0)
        gc.disable()  # collections find nothing while modules are made, and are a sixth of TensorFlow's import
        try:
            if first["preload"]:
                self._guard = farside.resolve(first["preload"])()
        except BaseException as error:
            send(self._control, {"failed": farside.raised(error)})
            farside.leave(1)
        # A full collection walks all that TensorFlow's import made: 0.17 s, and copies those pages, in every child.
        gc.freeze()
        gc.enable()
        # From here on the closed socket tells of the supervisor's death, and what was started can be killed first.
        linux.outlive_parent()
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(self._wake_write, warn_on_full_buffer=False)
        self._scratch = tempfile.mkdtemp(prefix="gpudiag-")
        sys.stdout.flush()  # with this the supervisor has all that was printed
        self._send({"ready": True, "scratch": self._scratch})
        while True:
            ready, _, _ = select.select([self._control.fileno(), self._wake_read], [], [])
            if self._wake_read in ready:
                with contextlib.suppress(BlockingIOError):
                    os.read(self._wake_read, 4096)
                self._reap()
            if self._control.fileno() in ready:
                message, fds = receive(self._control)
                if message is None:
                    self._shut_down()
                elif "output" in message:
                    farside.preload_output = message["output"]
                elif "start" in message:
                    self._start(message["start"], fds)
                elif "kill" in message:
                    self._kill(**message["kill"])

    def _start(self, job: dict[str, Any], fds: list[int]) -> None:
        refusal = None if job["fresh"] or self._guard is None else self._guard()
        if refusal is None:
            pid = self._fork(job, fds)
            self._jobs[pid] = job["key"]
            self._send({"started": job["key"], "pid": pid})
        else:
            self._send({"refused": job["key"], "why": refusal})
        for fd in fds:
            os.close(fd)

    def _fork(self, job: dict[str, Any], fds: list[int]) -> int:
        parent = os.getpid()
        sys.stdout.flush()
        sys.stderr.flush()
        with warnings.catch_warnings():
            # Python 3.12+ warns of any thread. TensorFlow's are idle: its device and executor pools start with the
            # first device query, which the guard forbids here.
            warnings.simplefilter("ignore", DeprecationWarning)
            pid = os.fork()
        if pid:
            return pid
        try:
            linux.die_with_parent(parent)
            os.setsid()
            signal.set_wakeup_fd(-1)
            for number in (signal.SIGCHLD, signal.SIGINT, signal.SIGTERM):
                signal.signal(number, signal.SIG_DFL)
            self._control.close()
            os.close(self._wake_read)
            os.close(self._wake_write)
            null = os.open(os.devnull, os.O_RDONLY)
            result, out, err = fds
            for source, target in ((null, 0), (out, 1), (err, 2)):
                os.dup2(source, target)
                os.close(source)
            scratch = self._scratch_of(os.getpid())
            os.mkdir(scratch, 0o700)  # noqa: PTH102
            tempfile.tempdir = None  # the server's own choice, remembered
            for name, value in {"TMPDIR": scratch, **job["env"]}.items():
                if value is None:
                    os.environ.pop(name, None)
                else:
                    os.environ[name] = value
            if job["fresh"]:
                os.set_inheritable(result, True)
                argument = msgspec.json.encode(job["argument"]).decode()
                command = farside.command(farside.__name__, job["target"], argument, str(result))
                os.execv(command[0], command)
            farside.call(job["target"], job["argument"], result)
        finally:  # an error here must never return into the server's loop in the child
            os._exit(1)

    def _kill(self, key: str, number: int) -> None:
        for pid, running in self._jobs.items():
            if running == key:
                linux.kill_group(pid, number)

    def _reap(self) -> None:
        """Report every job that has ended, after killing what it left behind."""
        while (ended := self._next_ended()) is not None:
            if ended not in self._jobs:
                os.waitpid(ended, 0)
                continue
            left = self._orphans()
            # The zombie still holds its process group's number, so the group cannot be somebody else's by now.
            linux.kill_group(ended, signal.SIGKILL)
            _, status = os.waitpid(ended, 0)
            key = self._jobs.pop(ended)
            self._sweep()
            shutil.rmtree(self._scratch_of(ended), ignore_errors=True)
            self._send({"ended": key, "code": os.waitstatus_to_exitcode(status), "left": len(left)})

    @staticmethod
    def _next_ended() -> int | None:
        """Return a child that has ended, not reaped yet; None where there is none."""
        try:
            result = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        except ChildProcessError:
            return None
        return result.si_pid if result else None

    def _orphans(self) -> set[int]:
        """Return the children that are no job but were left by one, and are alive; reap those that are not."""
        return {pid for pid in linux.children() - self._jobs.keys() if os.waitpid(pid, os.WNOHANG) == (0, 0)}

    def _sweep(self) -> None:
        """Kill and reap every orphan."""
        until = time.monotonic() + SWEEP_S
        while (orphans := self._orphans()) and time.monotonic() < until:
            for pid in orphans:
                os.kill(pid, signal.SIGKILL)
            time.sleep(0.002)

    def _shut_down(self) -> NoReturn:
        for pid in self._jobs:
            linux.kill_group(pid, signal.SIGKILL)
        self._jobs.clear()
        self._sweep()
        shutil.rmtree(self._scratch, ignore_errors=True)
        os._exit(0)

    def _scratch_of(self, pid: int) -> str:
        """Return the folder for a child's temporary files, which it never gets to remove: AutoGraph does so at exit."""
        return f"{self._scratch}/{pid}"

    def _send(self, message: dict[str, Any]) -> None:
        try:
            send(self._control, message)
        except OSError:
            self._shut_down()


def main(control_fd: str, parent: str) -> NoReturn:
    """Entry of the server's interpreter."""
    linux.die_with_parent(int(parent))
    with socket.socket(fileno=int(control_fd)) as control:
        Server(control).run()
