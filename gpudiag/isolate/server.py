"""A fork server: an interpreter that preloads once, and forks one child per job.

The server uses one socket, with the messages of :mod:`gpudiag.isolate.protocol`. A job's order is in a separate file,
because it can be larger than a message. When the other end closes, because the supervisor is done or was killed, the
server kills all that it started and exits.

The server is the *subreaper* of its descendants: a grandchild that outlives its job, even by ``setsid``, becomes a
child of the server, which recognises it as no job and kills it. So a probe must not daemonise its helpers. A *keeper*,
the parent of the server and a subreaper too, does the same for the server: see :func:`keep`.
"""

from __future__ import annotations

import contextlib
import errno
import gc
import os
import resource
import select
import signal
import socket
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

from gpudiag import folders
from gpudiag.errors import shortage
from gpudiag.isolate import linux, worker
from gpudiag.isolate.job import scratch_folder
from gpudiag.isolate.protocol import (
    JOB_FDS,
    FromServer,
    JobEnded,
    JobException,
    Kill,
    Output,
    Preload,
    PreloadFailed,
    Ready,
    Refused,
    Start,
    Started,
    ToServer,
    readable,
    receive_from_supervisor,
    send,
)
from gpudiag.model.report import NoReading

SWEEP_S = 1.0
PARTING_S = 3.0
"""How long a server may take to clean up after its supervisor has died."""
_MOST_CHARACTERS = 2000
"""The most characters of an error in a message."""

Guard = Callable[[], str | None]


class Server:
    """The loop of a fork server."""

    def __init__(self, control: socket.socket, keeper: int, supervisor: int) -> None:
        self._control = control
        self._keeper = keeper
        linux.looker = supervisor
        self._jobs: dict[int, str] = {}
        self._removers = set[int]()
        """Forks that delete the temporary files of ended jobs."""
        self._unkillable = set[int]()
        """Orphans that this user may not kill."""
        self._stuck = set[int]()
        """Orphans that did not die of SIGKILL in time, as with a driver that hangs."""
        self._guard: Guard | None = None
        self._folder: folders.Folder | None = None
        self._scratch = ""
        self._wake_read, self._wake_write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)

    def run(self) -> NoReturn:
        """Preload, then serve until the other end closes."""
        linux.adopt_orphans()
        first, _ = receive_from_supervisor(self._control)
        if not isinstance(first, Preload):
            os._exit(0)
        self._preload(first)
        # From here on the closed socket shows the supervisor's death, and what was started can be killed first. The
        # keeper's death only wakes a server that was stopped.
        for number in (signal.SIGCHLD, signal.SIGCONT):
            signal.signal(number, lambda *_: None)
        signal.set_wakeup_fd(self._wake_write, warn_on_full_buffer=False)
        linux.die_with_parent(self._keeper, signal.SIGCONT)
        with contextlib.suppress(OSError):  # no folder takes any: a job may never ask
            self._folder = scratch_folder()
            self._scratch = str(self._folder.path)
        sys.stdout.flush()  # with this the supervisor has all that was printed
        self._send(Ready(self._scratch, os.getpid()))
        while True:
            ready, _, _ = select.select([self._control.fileno(), self._wake_read], [], [])
            if self._wake_read in ready:
                with contextlib.suppress(BlockingIOError):
                    os.read(self._wake_read, 4096)
                if os.getppid() != self._keeper:
                    self._shut_down()
                self._reap()
            if self._control.fileno() in ready:
                self._take_in(*receive_from_supervisor(self._control))

    def _take_in(self, message: ToServer | None, fds: list[int]) -> None:
        """Act on a message; None means that the supervisor is done or has died."""
        match message:
            case None:
                self._shut_down()
            case Output(text):
                worker.preload_output = text
            case Start(key, fresh):
                self._start(key, fresh, fds)
            case Kill(key, number):
                self._kill(key, number)

    def _preload(self, asked: Preload) -> None:
        """Do the work that is done once for all jobs."""
        gc.disable()  # collections find nothing while modules are made, and are a sixth of TensorFlow's import
        try:
            if asked.preload:
                self._guard = worker.resolve(asked.preload)()
        except BaseException as error:
            fail(self._control, worker.raised(error))
        if asked.ahead:
            with contextlib.suppress(Exception):
                worker.resolve(asked.ahead)()
        # A full collection walks all that TensorFlow's import made: 0.17 s, and copies those pages, in every child.
        gc.freeze()
        gc.enable()

    def _start(self, key: str, fresh: bool, fds: list[int]) -> None:
        try:
            refusal = None if fresh or self._guard is None else self._guard()
            if refusal is not None:
                self._send(Refused(key, readable(refusal), NoReading.EXCEPTION))
                return
            if len(fds) < JOB_FDS:  # the kernel drops those for which there is no room
                raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
            pid = self._fork(fresh, fds)
        except OSError as error:
            self._send(Refused(key, readable(shortage(error)), NoReading.NOT_STARTED, error.errno))
        else:
            self._jobs[pid] = key
            self._send(Started(key, pid))
        finally:
            for fd in fds:
                os.close(fd)

    def _fork(self, fresh: bool, fds: list[int]) -> int:
        parent = os.getpid()
        sys.stdout.flush()
        sys.stderr.flush()
        pid = worker.fork()
        if pid:
            return pid
        order, result, out, err = fds
        try:
            linux.die_with_parent(parent)
            linux.let_look()
            os.setsid()
            signal.set_wakeup_fd(-1)
            for number in (signal.SIGCHLD, signal.SIGCONT, signal.SIGINT, signal.SIGTERM, signal.SIGQUIT):
                signal.signal(number, signal.SIG_DFL)
            self._control.close()
            os.close(self._wake_read)
            os.close(self._wake_write)
            if self._folder is not None:
                self._folder.forget()
            for source, target in ((out, 1), (err, 2), (os.open(os.devnull, os.O_RDONLY), 0)):
                os.dup2(source, target)
                os.close(source)
            self._enter(result, order, fresh=fresh)
        except BaseException as error:
            worker.not_started(error, result)
        finally:  # nothing may ever return into the server's loop in the child
            os._exit(1)

    def _enter(self, result: int, order: int, *, fresh: bool) -> NoReturn:
        """Become the job in its new process."""
        scratch = {}
        if self._scratch:
            folder = self._scratch_of(os.getpid())
            os.mkdir(folder, 0o700)  # noqa: PTH102
            scratch["TMPDIR"] = folder
        tempfile.tempdir = None  # the server's own choice, remembered
        job = worker.read_order(order)
        worker.order_files[os.getpid()] = order
        for name, value in {**scratch, **job["env"]}.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
        if fresh:
            os.set_inheritable(order, True)
            os.set_inheritable(result, True)
            command = worker.command(worker.__name__, str(order), str(result))
            os.execv(command[0], command)
        worker.call(job["target"], job["argument"], result)

    def _kill(self, key: str, number: int) -> None:
        for pid, running in self._jobs.items():
            if running == key:
                linux.kill_group(pid, number)

    def _reap(self) -> None:
        """Report every job that has ended, after killing the processes it left."""
        while (ended := self._next_ended()) is not None:
            if ended not in self._jobs:
                os.waitpid(ended, 0)
                for known in (self._removers, self._unkillable, self._stuck):
                    known.discard(ended)
                continue
            leftovers = self._orphans()
            # The zombie still holds its process group's number, so the group cannot be somebody else's by now.
            linux.kill_group(ended, signal.SIGKILL)
            _, status = os.waitpid(ended, 0)
            key = self._jobs.pop(ended)
            self._sweep()
            code = os.waitstatus_to_exitcode(status)
            self._send(JobEnded(key, code, len(leftovers), len(leftovers & self._unkillable)))
            self._remove(self._scratch_of(ended))

    @staticmethod
    def _next_ended() -> int | None:
        """Return a child that has ended and was not reaped yet; None if there is none."""
        try:
            result = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        except ChildProcessError:
            return None
        return result.si_pid if result else None

    def _orphans(self) -> set[int]:
        """Return the children that a job left, that are alive and can be killed; reap the dead ones."""
        own = self._jobs.keys() | self._removers | self._unkillable | self._stuck
        return {pid for pid in linux.children() - own if not linux.has_ended(pid)}

    def _sweep(self) -> None:
        """Kill and reap every orphan; an orphan that does not die in time is waited for only once."""
        until = time.monotonic() + SWEEP_S
        while (orphans := self._orphans()) and time.monotonic() < until:
            self._unkillable |= {pid for pid in orphans if not linux.was_killed(pid)}
            time.sleep(0.002)
        self._stuck |= {pid for pid in orphans if linux.was_killed(pid)}

    def _remove(self, scratch: str) -> None:
        """Delete a job's temporary files, in a fork if there are any, so that nothing waits for it."""
        if self._scratch and not folders.remove_empty(Path(scratch)):
            with contextlib.suppress(OSError):  # no process can be had: they go with the server
                self._removers.add(_forked(lambda: folders.remove(Path(scratch))))

    def _shut_down(self) -> NoReturn:
        for pid in self._jobs:
            linux.kill_group(pid, signal.SIGKILL)
        self._jobs.clear()
        self._sweep()
        if self._folder is not None:
            self._folder.close()
        os._exit(0)

    def _scratch_of(self, pid: int) -> str:
        """Return the folder for a child's temporary files; the child never deletes them itself, as AutoGraph would
        at exit."""
        return f"{self._scratch}/{pid}"

    def _send(self, message: FromServer) -> None:
        try:
            send(self._control, message)
        except OSError:
            self._shut_down()


def _forked(work: Callable[[], object]) -> int:
    """Run ``work`` in a fork of this process that has only the standard streams open; return its process id."""
    parent = os.getpid()
    pid = worker.fork()
    if pid:
        return pid
    try:
        linux.die_with_parent(parent)
        signal.set_wakeup_fd(-1)
        work()
    finally:
        os._exit(0)


def fail(control: socket.socket, raised: JobException) -> NoReturn:
    """Report why there will be no server, and exit."""
    short = JobException(raised.type, raised.message[:_MOST_CHARACTERS], raised.cause)
    with contextlib.suppress(OSError):
        send(control, PreloadFailed(short))
    worker.leave(1)


def keep(server: int, supervisor: int) -> NoReturn:
    """Run the keeper, the process that the supervisor started: wait for the server, kill what it left, and exit like
    it.

    A subreaper gets every orphan of its descendants. The supervisor's process may be the user's own pytest session,
    which must not get foreign orphans, so the keeper does. SIGTERM ends the server at once. The supervisor's death
    wakes the server, if it was stopped, and gives it a while to clean up.
    """
    until = float("inf")
    signals = {signal.SIGCHLD, signal.SIGTERM, signal.SIGUSR1}
    while True:
        ended, status = os.waitpid(-1, os.WNOHANG)
        if ended == server:
            break
        if ended:
            continue
        left_s = min(1.0, until - time.monotonic())
        got = signal.sigtimedwait(signals, left_s) if left_s > 0 else None
        if left_s <= 0 or (got is not None and got.si_signo == signal.SIGTERM):
            linux.was_killed(server)
            until = float("inf")
        # The parent's death is also reported if only the thread has ended that started this process.
        elif os.getppid() != supervisor and until == float("inf"):
            os.kill(server, signal.SIGCONT)
            until = time.monotonic() + PARTING_S
    unkillable = set[int]()
    until = time.monotonic() + SWEEP_S
    while time.monotonic() < until:
        leftovers = {pid for pid in linux.children() - unkillable if not linux.has_ended(pid)}
        unkillable |= {pid for pid in leftovers if not linux.was_killed(pid)}
        if not leftovers:
            break
        time.sleep(0.002)
    code = os.waitstatus_to_exitcode(status)
    if code < 0:
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # the server has left one, if one was wanted
        signal.pthread_sigmask(signal.SIG_SETMASK, [])
        signal.signal(-code, signal.SIG_DFL) if -code not in (signal.SIGKILL, signal.SIGSTOP) else None
        os.kill(os.getpid(), -code)
    os._exit(max(code, 0))


def main() -> NoReturn:
    """Entry of the interpreter: the keeper, which forks the server; arguments: the socket, the supervisor's process."""
    control_fd, supervisor = map(int, sys.argv[1:])
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCHLD, signal.SIGTERM, signal.SIGUSR1})
    with socket.socket(fileno=control_fd) as control:
        linux.die_with_parent(supervisor, signal.SIGUSR1)
        linux.adopt_orphans()
        keeper = os.getpid()
        try:
            server = os.fork()
        except OSError as error:
            fail(control, worker.raised(error, NoReading.NOT_STARTED))
        if server:
            control.close()
            keep(server, supervisor)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGCHLD, signal.SIGTERM, signal.SIGUSR1})
        linux.die_with_parent(keeper)
        Server(control, keeper, supervisor).run()
