"""The Linux supervisor: fork servers, children under deadlines, every wait bounded."""

from __future__ import annotations

import contextlib
import errno
import os
import signal
import time
from types import TracebackType

from gpudiag.errors import shortage
from gpudiag.hardware.starvation import MOST, Starvation
from gpudiag.isolate import linux, worker
from gpudiag.isolate.child import RESULT, STREAMS, Child
from gpudiag.isolate.job import Bounds, Job, JobResult, ServerSpec, how_it_ended, one_line
from gpudiag.isolate.polling import Polling, read
from gpudiag.isolate.protocol import (
    FromServer,
    JobEnded,
    JobException,
    Kill,
    PreloadFailed,
    Ready,
    Refused,
    Start,
    Started,
    receive_from_server,
    send,
)
from gpudiag.isolate.server_process import PARTING_S, ServerProcess
from gpudiag.model.report import NoReading

_STALL_S = 1.0
"""A wait that ends this much late shows that this process was stopped or starved, and perhaps its children too."""
_PASSING = (errno.EAGAIN, errno.EMFILE, errno.ENFILE, errno.ENOMEM)
"""Errors that may disappear when other jobs end."""
_NOT_STARTED = "gpudiag could not start a process"
_LOOK_S = 0.5
"""Seconds between two checks of how long a process is kept from running."""
_FROM_OUTSIDE = (-signal.SIGKILL, -signal.SIGTERM)
"""Ends that no preload causes; a server that ended like this is started once more."""


class Supervisor:
    """Runs jobs on fork servers; see :class:`gpudiag.isolate.Supervision`."""

    def __init__(self, servers: dict[str, ServerSpec], bounds: Bounds) -> None:
        self._bounds = bounds
        self._servers = {name: ServerProcess(name, spec, bounds) for name, spec in servers.items()}
        self._children: dict[str, Child] = {}
        self._ended: list[JobResult] = []
        self._crowded = False
        """True if there is no room for another job until one ends."""
        self._looked = 0.0
        self._had_s = self._starved_s = 0.0
        """Seconds for which ended jobs were observed, and seconds of these for which they were kept from running."""
        self._polling = Polling()
        self._wake_read = self.wakeup_fd = -1
        with contextlib.suppress(OSError):  # it only makes things quicker; what needs a descriptor will say so
            self._wake_read, self.wakeup_fd = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
            self._polling.watch(self._wake_read, lambda: read(self._wake_read))

    def __enter__(self) -> Supervisor:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # What callers use

    def prepare(self, server: str) -> None:
        """Start the server now, so that it is ready when the first job needs it."""
        prepared = self._servers[server]
        if prepared.process is None and prepared.failure is None:
            self._launch(prepared)

    def start(self, job: Job) -> None:
        """Begin ``job`` as soon as its server is ready."""
        self._children[job.key] = Child(job, self._bounds)
        self.prepare(job.server)

    def kill(self, key: str, cause: NoReading, detail: str) -> None:
        """End the job ``key`` now, if it has not ended; ``wait`` reports it with this cause."""
        if key in self._children:
            self._condemn(self._children[key], cause, detail)

    def pid(self, key: str) -> int | None:
        """Return the process of the job ``key``; None before it has begun, and while it is being killed."""
        child = self._children.get(key)
        return None if child is None or child.cause is not None else child.pid

    def allow(self, key: str, seconds: float) -> None:
        """Extend the deadline of the job ``key`` by this many seconds."""
        if (child := self._children.get(key)) is not None:
            child.more_s += seconds

    def starved_s(self, key: str) -> float:
        """Return for how many seconds the job ``key`` was kept from running so far."""
        child = self._children.get(key)
        return 0.0 if child is None or child.starvation is None else child.starvation.seconds

    def busy(self) -> str:
        """Return a sentence on how long the jobs were kept from running, if that was most of their time; else ""."""
        current = [child.starvation for child in self._children.values() if child.starvation is not None]
        current += [server.starvation for server in self._servers.values() if server.is_starting]
        had_s = self._had_s + sum(starvation.watched_s for starvation in current)
        starved_s = self._starved_s + sum(starvation.seconds for starvation in current)
        return f"jobs waited {starved_s:.2g} of {had_s:.2g} s for a processor" if starved_s > MOST * had_s else ""

    def _count(self, starvation: Starvation) -> None:
        """Add an ended job to the sums of all jobs."""
        self._had_s += starvation.watched_s
        self._starved_s += starvation.seconds

    def said(self, key: str) -> str:
        """Return the kept part of the standard error of the job ``key``."""
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
        for server in self._servers.values():
            server.close_control(self._polling)
        until = time.monotonic() + PARTING_S
        for server in self._servers.values():
            if server.ready:
                server.wait(max(0.01, until - time.monotonic()))
            server.dismantle(self._polling)
        self._polling.close()
        if self.wakeup_fd >= 0:
            os.close(self.wakeup_fd)
        self._children.clear()

    # The loop

    def _turn(self, timeout_s: float) -> bool:
        """Handle all ready descriptors; return True if ``wakeup_fd`` was written to."""
        until = time.monotonic() + timeout_s
        ready = self._polling.wait(timeout_s)
        late_s = time.monotonic() - until
        if late_s > _STALL_S:  # as in a frozen cgroup: the children had no time either
            for child in self._children.values():
                child.sent_at = None if child.sent_at is None else child.sent_at + late_s
            for server in self._servers.values():
                server.started_at += late_s
        self._polling.call(ready)
        return any(key.fd == self._wake_read for key in ready)

    def _due_times(self) -> list[float]:
        times = [server.start_due for server in self._servers.values() if server.is_starting]
        return times + [child.due for child in self._children.values() if child.due is not None]

    def _look(self, now: float) -> None:
        """Check regularly for how long running processes were kept from running, and what they captured."""
        if now - self._looked < _LOOK_S:
            return
        self._looked = now
        for server in self._servers.values():
            if server.process is not None and not server.ready:
                server.starvation.look(server.process.pid, now)
        for child in self._children.values():
            if child.starvation is not None and child.pid is not None and child.cause is None:
                child.starvation.look(child.pid, now)
                if flood := child.flood:
                    self._condemn(child, NoReading.OUTPUT_FLOOD, flood)

    def _keep_deadlines(self, now: float) -> None:
        """Act on deadlines that have passed by ``now``; all messages were read before."""
        for server in self._servers.values():
            if server.process is not None and not server.ready and now >= server.start_due:
                seconds = server.start_due - server.started_at
                server.starvation.look(server.process.pid, now)
                self._fail(server, *_late(f"{server.spec.what} did not finish within {seconds:g} s", server.starvation))
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

    def _launch(self, server: ServerProcess) -> None:
        server.starts += 1
        try:
            server.start(self._polling, lambda: self._read_server_output(server), lambda: self._hear(server))
        except OSError as error:
            self._fail(server, NoReading.NOT_STARTED, f"{_NOT_STARTED}: {shortage(error)}")

    def _read_server_output(self, server: ServerProcess) -> None:
        server.read_output(self._polling)
        if server.is_flood:
            flood = f"{server.spec.what} wrote more than {self._bounds.output_bytes >> 20} MiB"
            self._fail(server, NoReading.OUTPUT_FLOOD, flood)

    def _hear(self, server: ServerProcess) -> None:
        """Read all messages of the server."""
        while server.control is not None:
            try:
                message = receive_from_server(server.control)
            except BlockingIOError:
                return
            if message is None:
                self._lost(server)
            else:
                self._take_in(server, message)

    def _take_in(self, server: ServerProcess, message: FromServer) -> None:
        """Act on a server's message; a message about a job that was given up is ignored."""
        match message:
            case Ready():
                self._count(server.starvation)
                server.on_ready(message, self._polling)
            case PreloadFailed(raised):
                self._failed(server, raised)
            case Started(key, pid):
                if (child := self._children.get(key)) is not None:
                    child.pid = pid
            case Refused():
                if (child := self._children.get(message.key)) is not None:
                    self._refused(child, message.cause, message.why, message.errno)
            case JobEnded():
                if (child := self._children.get(message.key)) is not None:
                    child.code = message.code
                    child.leftovers, child.unkillable = message.leftovers, message.unkillable
                    child.close_at = time.monotonic() + self._bounds.drain_s

    def _failed(self, server: ServerProcess, raised: JobException) -> None:
        """Give up a server whose preload raised, or that could not start."""
        text = one_line(raised.message)
        if raised.cause is NoReading.NOT_STARTED:
            self._fail(server, raised.cause, f"{_NOT_STARTED}: {text}")
        else:
            self._fail(server, NoReading.EXCEPTION, f"{server.spec.what} raised {raised.type}: {text}")

    def _refused(self, child: Child, cause: NoReading, why: str, number: int | None) -> None:
        """Handle a job that could not begin: it waits until another one ends, if that may help, or fails."""
        if number in _PASSING and child.job.may_wait and child.cause is None and self._others_run(child):
            child.close(self._polling)
            child.sent_at = None
            self._crowded = True
            return
        if child.cause is None:
            child.cause = cause
            child.detail = f"{_NOT_STARTED}: {why}" if cause is NoReading.NOT_STARTED else why
        self._finish(child)

    def _others_run(self, child: Child) -> bool:
        return any(other.sent_at is not None for other in self._children.values() if other is not child)

    def _lost(self, server: ServerProcess) -> None:
        """Handle a server that has closed its socket because it died, or that is to be killed."""
        was_ready = server.ready
        status = server.dismantle(self._polling, may_die=True)
        if not was_ready and status in _FROM_OUTSIDE and server.starts == 1:
            return  # started again if a job needs it
        if not was_ready:
            cause = NoReading.SIGNAL if status is not None and status < 0 else NoReading.NO_RESULT
            last = f", its last line: {server.last_line}" if server.last_line else ""
            self._fail(server, cause, f"{server.spec.what}: {how_it_ended(status)}{last}")
            return
        for child in self._children.values():
            if child.job.server == server.name and child.sent_at is not None:
                child.cause = child.cause or NoReading.SERVER_LOST
                child.detail = child.detail or f"the fork server died ({how_it_ended(status)}) while this ran"
                child.streams["stderr"].feed(server.output.text().encode())  # its last words
                child.close_at = time.monotonic() + self._bounds.drain_s
        if server.starts > self._bounds.restarts:
            often = f"the fork server died {server.starts} times, last: {how_it_ended(status)}"
            self._fail(server, NoReading.SERVER_LOST, often)

    def _fail(self, server: ServerProcess, cause: NoReading, detail: str) -> None:
        """Give up a server for the rest of the run: every job that needs it ends with this cause."""
        other_causes = (NoReading.NOT_STARTED, NoReading.SERVER_LOST, NoReading.BUSY)
        if server.spec.preload is None and cause not in other_causes:  # only Python ran there
            cause, detail = NoReading.NOT_STARTED, f"{_NOT_STARTED}: {detail}"
        server.failure = (cause, detail)
        server.dismantle(self._polling)

    # Jobs

    def _dispatch(self) -> None:
        """Send waiting jobs to ready servers, start needed servers, and end jobs that have no server."""
        for child in list(self._children.values()):
            if child.sent_at is not None:
                continue
            server = self._servers[child.job.server]
            if server.failure is not None:
                child.cause, child.detail = server.failure
                child.streams["stderr"].feed(server.output.text().encode())
                self._finish(child)
            elif child.cause is not None:  # condemned before it began
                self._finish(child)
            elif server.process is None:
                self._launch(server)
            elif server.ready and not (self._crowded and child.job.may_wait):
                self._send(server, child)

    def _send(self, server: ServerProcess, child: Child) -> None:
        """Send a job to its server, with the far ends of its pipes."""
        assert server.control is not None
        child.sent_at = time.monotonic()
        child.starvation = Starvation(child.sent_at)
        theirs = list[int]()
        try:
            child.order = linux.anonymous_file()
            with open(child.order, "wb", closefd=False) as file:
                child.order_bytes = file.write(worker.order(child.job.target, child.job.argument, child.job.env))
            for what in (RESULT, *STREAMS):
                ours, write = os.pipe2(os.O_CLOEXEC)
                os.set_blocking(ours, False)
                child.open[ours] = what
                theirs.append(write)
                self._polling.watch(ours, lambda fd=ours: self._read_child(child, fd))  # type: ignore[misc]
            send(server.control, Start(child.job.key, child.job.fresh), [child.order, *theirs])
        except ConnectionError:
            pass  # the server has died; its closed socket is the next thing that is heard
        except OSError as error:
            self._refused(child, NoReading.NOT_STARTED, shortage(error), error.errno)
        finally:
            for fd in theirs:
                os.close(fd)

    def _read_child(self, child: Child, fd: int) -> None:
        """Read a job's output; a job that writes too much is ended."""
        if (chunk := read(fd)) is None:
            return
        if not chunk:
            self._drop_pipe(child, fd)
            return
        child.feed(child.open[fd], chunk)
        if flood := child.flood:
            self._condemn(child, NoReading.OUTPUT_FLOOD, flood)
        elif len(child.record) > self._bounds.record_bytes:
            large = f"its record is larger than {self._bounds.record_bytes >> 20} MiB"
            self._condemn(child, NoReading.BAD_RESULT, large)
            child.record.clear()

    def _condemn(self, child: Child, cause: NoReading, detail: str) -> None:
        """Begin to kill a child; the first cause given counts."""
        if child.cause is None:
            child.cause, child.detail = cause, detail
            child.kill_at = time.monotonic()
            if child.sent_at is not None:
                self._climb(child)

    def _climb(self, child: Child) -> None:
        """Take the next step of killing: TERM, then KILL, then giving up."""
        server = self._servers[child.job.server]
        if server.is_stopped:  # it would pass no signal on
            self._lost(server)
            return
        rungs = ((signal.SIGTERM, self._bounds.term_grace_s), (signal.SIGKILL, self._bounds.kill_grace_s))
        if child.rung == len(rungs):
            if child.pid is None and server.process is not None:
                child.detail = f"{child.detail}; its fork server has not answered"
                self._lost(server)
                return
            child.detail = f"{child.detail}; process {child.pid} did not die of SIGKILL"
            child.cause = NoReading.UNKILLABLE
            self._finish(child)
            return
        number, grace = rungs[child.rung]
        child.rung += 1
        child.kill_at = time.monotonic() + grace
        server.send(Kill(child.job.key, int(number)))

    def _finish(self, child: Child) -> None:
        """Close the job's files and make its :class:`JobResult`."""
        child.close(self._polling)
        del self._children[child.job.key]
        self._crowded = False
        if child.starvation is not None:
            self._count(child.starvation)
        self._ended.append(child.result(time.monotonic()))

    def _drop_pipe(self, child: Child, fd: int) -> None:
        self._polling.close_fd(fd)
        del child.open[fd]


def _late(what: str, starvation: Starvation) -> tuple[NoReading, str]:
    """Return the cause, and in words why it did not end in time: the machine may have been busy."""
    if starvation.is_most:
        return NoReading.BUSY, f"{what}, {starvation}"
    return NoReading.TIMEOUT, what
