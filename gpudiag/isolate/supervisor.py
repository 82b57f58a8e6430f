"""The Linux supervisor: fork servers, children under deadlines, every wait bounded."""

from __future__ import annotations

import contextlib
import errno
import os
import selectors
import signal
import socket
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any

from gpudiag import folders
from gpudiag.errors import shortage
from gpudiag.hardware.starvation import MOST, Starvation, is_stopped
from gpudiag.isolate import linux, server, worker
from gpudiag.isolate.job import Bounds, Captured, Job, JobResult, ServerSpec, child_outcome, how_it_ended, one_line
from gpudiag.model.report import Cause
from gpudiag.text import counted

_CHUNK = 1 << 18
_MOST_CHUNKS = 64
"""Of a pipe that is read to its end: more is not in it, unless somebody writes on."""
_START_S = 30.0
"""How long an interpreter may take to start that preloads nothing."""
_TOLD_CHARACTERS = 16 << 10
"""Most of what a server printed while it preloaded that its children are sent; a message holds six times that."""
_PARTING_S = 3.0
"""How long a server may take to go, or what it left may."""
_STALL_S = 1.0
"""A wait that ends so much later than asked: this process was stopped, or starved, and so perhaps its children."""
_PASSING = (errno.EAGAIN, errno.EMFILE, errno.ENFILE, errno.ENOMEM)
"""What is lacking only for as long as other jobs run."""
_DYING_S = 0.5
"""How long a server may take to die that has closed its socket, or whose socket was closed."""
_NOT_STARTED = "gpudiag could not start a process"
_LOOK_S = 0.5
"""Between two looks at how long a process is kept from running."""
_FROM_OUTSIDE = (-signal.SIGKILL, -signal.SIGTERM)
"""Ends that no preload brings about; a server that met one is started once more."""


@dataclass
class _Child:
    """A job on its way: waiting for its server, running, being killed."""

    job: Job
    streams: dict[str, Captured]
    record: bytearray = field(default_factory=bytearray)
    open: dict[int, str] = field(default_factory=dict)
    """Read ends of its pipes and what they carry."""
    pid: int | None = None
    sent_at: float | None = None
    """When the job was handed to its server; the deadline counts from here."""
    starvation: Starvation | None = None
    """None: it was not handed to its server."""
    more_s: float = 0.0
    """By how much its deadline was moved."""
    kill_at: float | None = None
    """When the next rung of the ladder TERM, KILL, given up is due."""
    rung: int = 0
    cause: Cause | None = None
    """Why it is being killed; a child that ends by itself has none."""
    detail: str = ""
    code: int | None = None
    """Exit code in the sense of ``subprocess``; None while it runs, and if it was given up."""
    close_at: float | None = None
    """When its pipes are closed although somebody still holds them."""
    left: int = 0
    immune: int = 0
    """Processes that it left and that this user may not kill."""

    @property
    def due(self) -> float | None:
        """When the next thing is to be done about it, if it has said nothing until then."""
        if self.close_at is not None:
            return self.close_at
        if self.kill_at is not None:
            return self.kill_at
        return None if self.sent_at is None else self.sent_at + self.job.deadline_s + self.more_s


@dataclass
class _Server:
    """A fork server, or the reason why there is none."""

    name: str
    spec: ServerSpec
    process: subprocess.Popen[bytes] | None = None
    pid: int | None = None
    """Of the server itself; ``process`` is its keeper."""
    control: socket.socket | None = None
    output: Captured | None = None
    output_fd: int = -1
    ready: bool = False
    started_at: float = 0.0
    starvation: Starvation = field(default_factory=lambda: Starvation(0.0))
    """While it starts and preloads."""
    starts: int = 0
    scratch: str = ""
    """Its folder for temporary files."""
    failure: tuple[Cause, str] | None = None


class Supervisor:
    """Runs jobs on fork servers; see :class:`gpudiag.isolate.Supervision`."""

    def __init__(self, servers: dict[str, ServerSpec], bounds: Bounds) -> None:
        self._bounds = bounds
        self._servers = {name: _Server(name, spec) for name, spec in servers.items()}
        self._children: dict[str, _Child] = {}
        self._ended: list[JobResult] = []
        self._crowded = False
        """True: there is no room for another job until one ends."""
        self._looked = 0.0
        self._had_s = self._starved_s = 0.0
        """For how long jobs that have ended were looked at, and for how long of that they were kept from running."""
        self._selector = selectors.DefaultSelector()
        self._wake_read = self.wakeup_fd = -1
        with contextlib.suppress(OSError):  # it only makes things quicker; what needs a descriptor will say so
            self._wake_read, self.wakeup_fd = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
            self._watch(self._wake_read, lambda: self._drop(self._wake_read))

    def __enter__(self) -> Supervisor:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # What callers use

    def prepare(self, server: str) -> None:
        """Start the server now, so that it is ready when the first job needs it."""
        one = self._servers[server]
        if one.process is None and one.failure is None:
            self._launch(one)

    def start(self, job: Job) -> None:
        """Begin ``job``, as soon as its server is ready."""
        kept = self._bounds.kept_bytes
        self._children[job.key] = _Child(job, {"stdout": Captured(kept), "stderr": Captured(kept)})
        self.prepare(job.server)

    def kill(self, key: str, cause: Cause, detail: str) -> None:
        """End the job ``key`` now, if it has not ended; ``wait`` reports it with this cause."""
        if key in self._children:
            self._condemn(self._children[key], cause, detail)

    def pid(self, key: str) -> int | None:
        """Return the process of the job ``key``; None if it has not begun, or is being killed."""
        child = self._children.get(key)
        return None if child is None or child.cause is not None else child.pid

    def allow(self, key: str, seconds: float) -> None:
        """Move the deadline of the job ``key`` by so much."""
        if (child := self._children.get(key)) is not None:
            child.more_s += seconds

    def starved_s(self, key: str) -> float:
        """Return for how long the job ``key`` was kept from running so far."""
        child = self._children.get(key)
        return 0.0 if child is None or child.starvation is None else child.starvation.seconds

    def busy(self) -> str:
        """Return in words for how long the jobs were kept from running, if that was most of their time, else ""."""
        current = [child.starvation for child in self._children.values() if child.starvation is not None]
        current += [one.starvation for one in self._servers.values() if one.process is not None and not one.ready]
        had_s = self._had_s + sum(starvation.watched_s for starvation in current)
        starved_s = self._starved_s + sum(starvation.seconds for starvation in current)
        return f"jobs waited {starved_s:.2g} of {had_s:.2g} s for a processor" if starved_s > MOST * had_s else ""

    def _count(self, starvation: Starvation) -> None:
        """Add what has ended to the sums of all jobs."""
        self._had_s += starvation.watched_s
        self._starved_s += starvation.seconds

    def said(self, key: str) -> str:
        """Return what the job ``key`` has written to its standard error so far, as far as that is kept."""
        child = self._children.get(key)
        return "" if child is None else child.streams["stderr"].text()

    def wait(self, timeout_s: float) -> list[JobResult]:
        """Work until a job ends, a byte is written to ``wakeup_fd``, or ``timeout_s`` seconds have passed."""
        until = time.monotonic() + timeout_s
        woken = False
        while True:
            self._dispatch()
            due = min([until, *self._due_times()])
            woken |= self._turn(max(0.0, due - time.monotonic()) if not self._ended else 0.0)
            now = time.monotonic()
            if any(due <= now for due in self._due_times()):
                # What ended in time may have said so since: this process can be stopped at any moment.
                woken |= self._turn(0.0)
            self._look(now)
            self._keep_deadlines(now)
            if self._ended or woken or time.monotonic() >= until:
                ended, self._ended = self._ended, []
                return ended

    def close(self) -> None:
        """Kill every child and every server; none is left when this returns."""
        for one in self._servers.values():
            if one.control is not None:
                self._forget(one.control.fileno())
                one.control.close()  # the server's signal to kill what it started, and leave
        until = time.monotonic() + _PARTING_S
        for one in self._servers.values():
            if one.process is None:
                continue
            if one.ready:
                _reaped(one.process, max(0.01, until - time.monotonic()))
            self._dismantle(one)
        for fd in [key.fd for key in self._selector.get_map().values()]:
            self._forget(fd)
            os.close(fd)
        self._selector.close()
        if self.wakeup_fd >= 0:
            os.close(self.wakeup_fd)
        self._children.clear()

    # The loop

    def _turn(self, timeout_s: float) -> bool:
        """Handle what is ready; return True if ``wakeup_fd`` was written to."""
        woken = False
        began = time.monotonic()
        ready = self._selector.select(timeout_s)
        late_s = time.monotonic() - began - timeout_s
        if late_s > _STALL_S:  # as in a frozen cgroup: the children had no time either
            for child in self._children.values():
                child.sent_at = None if child.sent_at is None else child.sent_at + late_s
            for one in self._servers.values():
                one.started_at += late_s
        for key, _ in ready:
            woken |= key.fd == self._wake_read
            if key.fd in self._selector.get_map():  # an earlier callback may have closed it
                key.data()
        return woken

    def _watch(self, fd: int, callback: Callable[[], object]) -> None:
        self._selector.register(fd, selectors.EVENT_READ, callback)

    def _forget(self, fd: int) -> None:
        with contextlib.suppress(KeyError, ValueError):
            self._selector.unregister(fd)

    def _due_times(self) -> list[float]:
        times = [self._start_due(one) for one in self._servers.values() if one.process is not None and not one.ready]
        return times + [child.due for child in self._children.values() if child.due is not None]

    def _look(self, now: float) -> None:
        """See, now and then, for how long what runs was kept from running."""
        if now - self._looked < _LOOK_S:
            return
        self._looked = now
        for one in self._servers.values():
            if one.process is not None and not one.ready:
                one.starvation.look(one.process.pid, now)
        for child in self._children.values():
            if child.starvation is not None and child.pid is not None and child.cause is None:
                child.starvation.look(child.pid, now)

    def _keep_deadlines(self, now: float) -> None:
        """Do what was due by ``now``, of which all news is read."""
        for one in self._servers.values():
            if one.process is not None and not one.ready and now >= (due := self._start_due(one)):
                seconds = due - one.started_at
                one.starvation.look(one.process.pid, now)
                self._fail(one, *_late(f"{one.spec.what} did not finish within {seconds:g} s", one.starvation))
        for child in list(self._children.values()):
            if child.close_at is not None and not child.open:
                self._finish(child)
            elif child.due is None or now < child.due:
                continue
            elif child.close_at is not None:
                self._finish(child)
            elif child.kill_at is not None:
                self._climb(child)
            else:
                assert child.starvation is not None
                if child.pid is not None:
                    child.starvation.look(child.pid, now)
                seconds = child.job.deadline_s + child.more_s
                self._condemn(child, *_late(f"no result within {seconds:.4g} s", child.starvation))

    # Servers

    def _start_due(self, one: _Server) -> float:
        """Return when the server must have said that it is ready."""
        return one.started_at + (self._bounds.preload_s if one.spec.preload else _START_S)

    def _launch(self, one: _Server) -> None:
        one.starts += 1
        try:
            self._start_server(one)
        except OSError as error:
            self._fail(one, Cause.NOT_STARTED, f"{_NOT_STARTED}: {shortage(error)}")

    def _start_server(self, one: _Server) -> None:
        environment = dict(os.environ)
        # Warnings as errors are meant for the caller's own code; TensorFlow's import raises under them.
        for name, value in {**one.spec.env, "PYTHONWARNINGS": None}.items():
            if value is None:
                environment.pop(name, None)
            else:
                environment[name] = value
        with contextlib.ExitStack() as unless_started, contextlib.ExitStack() as theirs_only:
            one.control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            theirs_only.callback(theirs.close)
            unless_started.callback(one.control.close)
            output_read, output_write = os.pipe2(os.O_CLOEXEC)
            theirs_only.callback(os.close, output_write)
            unless_started.callback(os.close, output_read)
            one.process = subprocess.Popen(
                worker.command(server.__name__, str(theirs.fileno()), str(os.getpid())),
                stdin=subprocess.DEVNULL,
                stdout=output_write,
                stderr=output_write,
                pass_fds=[theirs.fileno()],
                env=environment,
                start_new_session=True,  # a Ctrl-C at the terminal is for gpudiag, which then ends its children
            )
            unless_started.pop_all()
        one.ready = False
        one.started_at = time.monotonic()
        one.starvation = Starvation(one.started_at)
        one.control.setblocking(False)  # a server that is stopped reads nothing
        one.output = Captured(self._bounds.kept_bytes)
        one.output_fd = output_read
        os.set_blocking(output_read, False)
        self._watch(output_read, lambda: self._read_server_output(one))
        self._watch(one.control.fileno(), lambda: self._hear(one))
        with contextlib.suppress(ConnectionError):  # it has died; its closed socket is the next thing that is heard
            server.send(one.control, {"preload": one.spec.preload, "ahead": one.spec.ahead})

    def _read_server_output(self, one: _Server) -> None:
        chunk = _read(one.output_fd)
        if chunk is None:
            return
        if not chunk:
            self._forget(one.output_fd)
            os.close(one.output_fd)
            one.output_fd = -1
            return
        assert one.output is not None
        one.output.feed(chunk)
        if not one.ready and one.output.total > self._bounds.output_bytes:
            self._fail(
                one, Cause.OUTPUT_FLOOD, f"{one.spec.what} wrote more than {self._bounds.output_bytes >> 20} MiB"
            )

    def _hear(self, one: _Server) -> None:
        """Read all that the server has to say."""
        while one.control is not None:
            try:
                message, _ = server.receive(one.control)
            except BlockingIOError:
                return
            if message is None:
                self._lost(one)
            else:
                self._take_in(one, message)

    def _take_in(self, one: _Server, message: dict[str, Any]) -> None:
        if "ready" in message:
            self._count(one.starvation)
            one.ready, one.scratch, one.pid = True, message["scratch"], message["pid"]
            if one.output_fd >= 0:  # else the preload has closed its streams
                self._read_server_output(one)  # written before it said so
            assert one.output is not None
            assert one.control is not None
            with contextlib.suppress(OSError):  # it has died; its closed socket is the next thing that is heard
                server.send(one.control, {"output": one.output.text()[:_TOLD_CHARACTERS]})
        elif "failed" in message:
            failed = message["failed"]
            cause = Cause(failed["cause"])
            said = one_line(failed["message"])
            if cause is Cause.NOT_STARTED:
                self._fail(one, cause, f"{_NOT_STARTED}: {said}")
            else:
                self._fail(one, Cause.EXCEPTION, f"{one.spec.what} raised {failed['type']}: {said}")
        elif "started" in message:
            child = self._children.get(message["started"])
            if child is not None:
                child.pid = message["pid"]
        elif "refused" in message:
            child = self._children.get(message["refused"])
            if child is not None:
                self._refused(child, Cause(message["cause"]), message["why"], message.get("errno"))
        elif "ended" in message:
            child = self._children.get(message["ended"])
            if child is not None:
                child.code, child.left, child.immune = message["code"], message["left"], message["immune"]
                child.close_at = time.monotonic() + self._bounds.drain_s

    def _refused(self, child: _Child, cause: Cause, why: str, number: int | None) -> None:
        """A job was not begun: it waits until another one ends, if that may help, or ends with this cause."""
        if number in _PASSING and child.job.may_wait and child.cause is None and self._others_run(child):
            for fd in list(child.open):
                self._drop_pipe(child, fd)
            child.sent_at = None
            self._crowded = True
            return
        if child.cause is None:
            child.cause = cause
            child.detail = f"{_NOT_STARTED}: {why}" if cause is Cause.NOT_STARTED else why
        self._finish(child)

    def _others_run(self, child: _Child) -> bool:
        return any(one.sent_at is not None for one in self._children.values() if one is not child)

    def _lost(self, one: _Server) -> None:
        """The server has closed its socket, because it died; or it is to be killed."""
        assert one.process is not None
        was_ready = one.ready
        stopped = one.pid is not None and is_stopped(one.pid)
        status = self._dismantle(one, 0.0 if stopped else _DYING_S)
        if not was_ready and status in _FROM_OUTSIDE and one.starts == 1:
            return  # started again if a job needs it
        if not was_ready:
            cause = Cause.SIGNAL if status is not None and status < 0 else Cause.NO_RESULT
            assert one.output is not None
            last = one_line(one.output.text()[-_TOLD_CHARACTERS:].rstrip().rpartition("\n")[2])
            ending = f"{how_it_ended(status)}, its last line: {last}" if last else how_it_ended(status)
            self._fail(one, cause, f"{one.spec.what}: {ending}")
            return
        assert one.output is not None
        for child in self._on(one):
            if child.sent_at is not None:
                child.cause = child.cause or Cause.SERVER_LOST
                child.detail = child.detail or f"the fork server died ({how_it_ended(status)}) while this ran"
                child.streams["stderr"].feed(one.output.text().encode())  # its last words
                child.close_at = time.monotonic() + self._bounds.drain_s
        if one.starts > self._bounds.restarts:
            self._fail(one, Cause.SERVER_LOST, f"the fork server died {one.starts} times, last: {how_it_ended(status)}")

    def _fail(self, one: _Server, cause: Cause, detail: str) -> None:
        """Give the server up for the rest of the run: every job that needs it ends with this cause."""
        if one.spec.preload is None and cause not in (
            Cause.NOT_STARTED,
            Cause.SERVER_LOST,
            Cause.BUSY,
        ):  # only Python ran there
            cause, detail = Cause.NOT_STARTED, f"{_NOT_STARTED}: {detail}"
        one.failure = (cause, detail)
        self._dismantle(one)

    def _dismantle(self, one: _Server, dying_s: float = 0.0) -> int | None:
        """End a server and all that it started; return how its process ended, None if that is not known.

        ``dying_s`` is how long it may take to end by itself.
        """
        status = None
        if one.control is not None:
            self._forget(one.control.fileno())
            one.control.close()
            one.control = None
        if one.process is not None:
            status = _ended_status(one.process, dying_s)
            one.process = one.pid = None
        if one.output_fd >= 0:
            for _ in range(_MOST_CHUNKS):
                if not (chunk := _read(one.output_fd)):
                    break
                assert one.output is not None
                one.output.feed(chunk)
            self._forget(one.output_fd)
            os.close(one.output_fd)
            one.output_fd = -1
        one.ready = False
        if one.scratch:
            folders.remove(Path(one.scratch))
            one.scratch = ""
        return status

    def _on(self, one: _Server) -> list[_Child]:
        return [child for child in self._children.values() if child.job.server == one.name]

    # Jobs

    def _dispatch(self) -> None:
        """Hand waiting jobs to servers that are ready; start servers that are needed; end jobs that have no server."""
        for child in list(self._children.values()):
            if child.sent_at is not None:
                continue
            one = self._servers[child.job.server]
            if one.failure is not None:
                child.cause, child.detail = one.failure
                if one.output is not None:
                    child.streams["stderr"].feed(one.output.text().encode())
                self._finish(child)
            elif child.cause is not None:  # condemned before it began
                self._finish(child)
            elif one.process is None:
                self._launch(one)
            elif one.ready and not (self._crowded and child.job.may_wait):
                self._send(one, child)

    def _send(self, one: _Server, child: _Child) -> None:
        assert one.control is not None
        child.sent_at = time.monotonic()
        child.starvation = Starvation(child.sent_at)
        theirs = list[int]()
        try:
            theirs.append(linux.anonymous_file())
            with open(theirs[0], "wb", closefd=False) as file:
                file.write(worker.order(child.job.target, child.job.argument, child.job.env))
            for what in ("result", "stdout", "stderr"):
                read, write = os.pipe2(os.O_CLOEXEC)
                os.set_blocking(read, False)
                child.open[read] = what
                theirs.append(write)
                self._watch(read, lambda fd=read: self._read_child(child, fd))  # type: ignore[misc]
            server.send(one.control, {"start": {"key": child.job.key, "fresh": child.job.fresh}}, theirs)
        except ConnectionError:
            pass  # the server has died; its closed socket is the next thing that is heard
        except OSError as error:
            self._refused(child, Cause.NOT_STARTED, shortage(error), error.errno)
        finally:
            for fd in theirs:
                os.close(fd)

    def _read_child(self, child: _Child, fd: int) -> None:
        chunk = _read(fd)
        if chunk is None:
            return
        what = child.open[fd]
        if not chunk:
            self._drop_pipe(child, fd)
        elif what != "result":
            child.streams[what].feed(chunk)
            if sum(stream.total for stream in child.streams.values()) > self._bounds.output_bytes:
                flood = f"wrote more than {self._bounds.output_bytes >> 20} MiB to stdout and stderr"
                self._condemn(child, Cause.OUTPUT_FLOOD, flood)
        else:
            child.record += chunk
            if len(child.record) > self._bounds.record_bytes:
                self._condemn(
                    child, Cause.BAD_RESULT, f"its record is larger than {self._bounds.record_bytes >> 20} MiB"
                )
                child.record.clear()

    def _condemn(self, child: _Child, cause: Cause, detail: str) -> None:
        """Begin to kill a child, for the first cause that is given."""
        if child.cause is None:
            child.cause, child.detail = cause, detail
            child.kill_at = time.monotonic()
            if child.sent_at is not None:
                self._climb(child)

    def _climb(self, child: _Child) -> None:
        """Take the next rung: TERM, then KILL, then give the child up."""
        one = self._servers[child.job.server]
        if one.pid is not None and is_stopped(one.pid):  # it would pass no signal on
            self._lost(one)
            return
        rungs = ((signal.SIGTERM, self._bounds.term_grace_s), (signal.SIGKILL, self._bounds.kill_grace_s))
        if child.rung == len(rungs):
            if child.pid is None and one.process is not None:
                child.detail = f"{child.detail}; its fork server has not answered"
                self._lost(one)
                return
            child.detail = f"{child.detail}; process {child.pid} did not die of SIGKILL"
            child.cause = Cause.UNKILLABLE
            self._finish(child)
            return
        number, grace = rungs[child.rung]
        child.rung += 1
        child.kill_at = time.monotonic() + grace
        if one.control is not None:
            with contextlib.suppress(OSError):
                server.send(one.control, {"kill": {"key": child.job.key, "number": int(number)}})

    def _finish(self, child: _Child) -> None:
        """Close what is open and turn what is known into an :class:`JobResult`."""
        for fd, what in list(child.open.items()):
            for _ in range(_MOST_CHUNKS):
                if not (chunk := _read(fd)):
                    break
                if what == "result":
                    child.record += chunk[: self._bounds.record_bytes - len(child.record) + 1]
                else:
                    child.streams[what].feed(chunk)
            self._drop_pipe(child, fd)
        del self._children[child.job.key]
        self._crowded = False
        value, cause, detail = child_outcome(
            bytes(child.record),
            child.code,
            child.cause,
            child.detail,
        )
        if killed := child.left - child.immune:
            child.streams["stderr"].feed(f"\n[gpudiag: killed {counted(killed, 'process')} left by it]\n".encode())
        if child.immune:
            left = counted(child.immune, "process")
            note = f"\n[gpudiag: it left {left} of another user, which this user may not kill]\n"
            child.streams["stderr"].feed(note.encode())
        now = time.monotonic()
        if child.starvation is not None:
            self._count(child.starvation)
        self._ended.append(
            JobResult(
                key=child.job.key,
                value=value,
                cause=cause,
                detail=detail,
                stdout=child.streams["stdout"].text(),
                stderr=child.streams["stderr"].text(),
                duration_s=now - child.sent_at if child.sent_at is not None else 0.0,
                left=child.left,
            )
        )

    def _drop_pipe(self, child: _Child, fd: int) -> None:
        self._forget(fd)
        os.close(fd)
        del child.open[fd]

    @staticmethod
    def _drop(fd: int) -> None:
        with contextlib.suppress(BlockingIOError):
            os.read(fd, 4096)


def _late(what: str, starvation: Starvation) -> tuple[Cause, str]:
    """Return why something did not end in time, and that in words: the machine may have been busy."""
    if starvation.is_most:
        return Cause.BUSY, f"{what}, {starvation}"
    return Cause.TIMEOUT, what


def _read(fd: int) -> bytes | None:
    """Return what can be read now: b"" at the end of the stream, None if there is nothing yet."""
    try:
        return os.read(fd, _CHUNK)
    except BlockingIOError:
        return None


def _reaped(process: subprocess.Popen[bytes], within_s: float) -> int | None:
    try:
        return process.wait(within_s)
    except subprocess.TimeoutExpired:
        return None


def _ended_status(process: subprocess.Popen[bytes], dying_s: float) -> int | None:
    """End the process of a server; return its status, None if it does not end.

    The keeper ends the server at SIGTERM, and what the server left; only one that does not answer is killed itself.
    """
    if (status := _reaped(process, dying_s)) is None:
        process.terminate()
        status = _reaped(process, _PARTING_S)
    if status is None:
        linux.kill_group(process.pid, signal.SIGKILL)
        status = _reaped(process, _PARTING_S)
    return status
