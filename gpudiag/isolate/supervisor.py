"""The Linux supervisor: fork servers, children under deadlines, every wait bounded."""

from __future__ import annotations

import contextlib
import os
import secrets
import selectors
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any

from gpudiag.isolate import farside, linux, server
from gpudiag.isolate.job import Bounds, Captured, Ended, Job, ServerSpec, child_outcome, how_it_ended, one_line
from gpudiag.model import Cause

_CHUNK = 1 << 18
_MARK = "_GPUDIAG_SERVED_BY"
_START_S = 30.0
"""How long an interpreter may take to start that preloads nothing."""
_TOLD_CHARACTERS = 16 << 10
"""Most of what a server printed while it preloaded that its children are told; a message holds six times that."""
_PARTING_S = 3.0
"""How long a server may take to go, or what it left may."""
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
    kill_at: float | None = None
    """When the next rung of the ladder TERM, KILL, given up is due."""
    rung: int = 0
    cause: Cause | None = None
    """Why it is being killed; a child that ends by itself has none."""
    detail: str = ""
    code: int | None = None
    """Exit code in the sense of ``subprocess``; None while it runs, and where it was given up."""
    close_at: float | None = None
    """When its pipes are closed although somebody still holds them."""
    left: int = 0


@dataclass
class _Server:
    """A fork server, or the reason why there is none."""

    name: str
    spec: ServerSpec
    process: subprocess.Popen[bytes] | None = None
    control: socket.socket | None = None
    output: Captured | None = None
    output_fd: int = -1
    ready: bool = False
    started_at: float = 0.0
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
        self._ended: list[Ended] = []
        self._mark = secrets.token_hex(16)
        self._adopted_before = linux.adopts_orphans()
        linux.adopt_orphans()  # of a server that dies; they are told by the mark in their environment
        self._selector = selectors.DefaultSelector()
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

    def wait(self, timeout_s: float) -> list[Ended]:
        """Work until a job ends, a byte is written to ``wakeup_fd``, or ``timeout_s`` seconds have passed."""
        until = time.monotonic() + timeout_s
        woken = False
        while True:
            self._dispatch()
            now = time.monotonic()
            due = min([until, *self._due_times()])
            woken |= self._turn(max(0.0, due - now) if not self._ended else 0.0)
            self._keep_deadlines()
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
            if not one.ready:
                one.process.kill()
            try:
                one.process.wait(max(0.01, until - time.monotonic()))
            except subprocess.TimeoutExpired:
                one.process.kill()
                with contextlib.suppress(subprocess.TimeoutExpired):
                    one.process.wait(_PARTING_S)
            self._dismantle(one)
        for fd in [key.fd for key in self._selector.get_map().values()]:
            self._forget(fd)
            os.close(fd)
        self._selector.close()
        os.close(self.wakeup_fd)
        self._children.clear()
        linux.adopt_orphans(self._adopted_before)

    # The loop

    def _turn(self, timeout_s: float) -> bool:
        """Handle what is ready; return True where ``wakeup_fd`` was written to."""
        woken = False
        for key, _ in self._selector.select(timeout_s):
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
        for child in self._children.values():
            if child.close_at is not None:
                times.append(child.close_at)
            elif child.kill_at is not None:
                times.append(child.kill_at)
            elif child.sent_at is not None:
                times.append(child.sent_at + child.job.deadline_s)
        return times

    def _keep_deadlines(self) -> None:
        now = time.monotonic()
        for one in self._servers.values():
            if one.process is not None and not one.ready and now >= (due := self._start_due(one)):
                seconds = f"{due - one.started_at:g}"
                self._fail(one, Cause.TIMEOUT, f"{one.spec.what} did not finish within {seconds} s")
        for child in list(self._children.values()):
            if child.close_at is not None:
                if now >= child.close_at or not child.open:
                    self._finish(child)
            elif child.kill_at is not None:
                if now >= child.kill_at:
                    self._climb(child)
            elif child.sent_at is not None and now >= child.sent_at + child.job.deadline_s:
                self._condemn(child, Cause.TIMEOUT, f"no result within {child.job.deadline_s:g} s")

    # Servers

    def _start_due(self, one: _Server) -> float:
        """Return when the server must have said that it is ready."""
        return one.started_at + (self._bounds.preload_s if one.spec.preload else _START_S)

    def _launch(self, one: _Server) -> None:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        output_read, output_write = os.pipe2(os.O_CLOEXEC)
        environment = dict(os.environ)
        # Warnings as errors are meant for the caller's own code; TensorFlow's import raises under them.
        for name, value in {**one.spec.env, "PYTHONWARNINGS": None, _MARK: self._mark}.items():
            if value is None:
                environment.pop(name, None)
            else:
                environment[name] = value
        try:
            one.process = subprocess.Popen(
                farside.command(server.__name__, str(theirs.fileno()), str(os.getpid())),
                stdin=subprocess.DEVNULL,
                stdout=output_write,
                stderr=output_write,
                pass_fds=[theirs.fileno()],
                env=environment,
                start_new_session=True,  # a Ctrl-C at the terminal is for gpudiag, which then ends its children
            )
        finally:
            theirs.close()
            os.close(output_write)
        one.starts += 1
        one.ready = False
        one.started_at = time.monotonic()
        one.control = ours
        one.output = Captured(self._bounds.kept_bytes)
        one.output_fd = output_read
        os.set_blocking(output_read, False)
        self._watch(output_read, lambda: self._read_server_output(one))
        self._watch(ours.fileno(), lambda: self._hear(one))
        server.send(ours, {"preload": one.spec.preload})

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
        assert one.control is not None
        message, _ = server.receive(one.control)
        if message is None:
            self._lost(one)
        elif "ready" in message:
            one.ready, one.scratch = True, message["scratch"]
            if one.output_fd >= 0:  # else the preload has closed its streams
                self._read_server_output(one)  # written before it said so
            assert one.output is not None
            with contextlib.suppress(OSError):  # it has died; its closed socket is the next thing that is heard
                server.send(one.control, {"output": one.output.text()[:_TOLD_CHARACTERS]})
        elif "failed" in message:
            failed = message["failed"]
            self._fail(one, Cause.EXCEPTION, f"{one.spec.what} raised {failed['type']}: {one_line(failed['message'])}")
        elif "started" in message:
            child = self._children.get(message["started"])
            if child is not None:
                child.pid = message["pid"]
        elif "refused" in message:
            child = self._children[message["refused"]]
            child.cause, child.detail = Cause.EXCEPTION, message["why"]
            self._finish(child)
        elif "ended" in message:
            child = self._children.get(message["ended"])
            if child is not None:
                child.code, child.left = message["code"], message["left"]
                child.close_at = time.monotonic() + self._bounds.drain_s

    def _lost(self, one: _Server, *, kill: bool = False) -> None:
        """The server has closed its socket, because it died; or it is to be killed."""
        assert one.process is not None
        if kill:
            one.process.kill()
        status = _reaped(one.process, _PARTING_S)
        if not one.ready and status in _FROM_OUTSIDE and one.starts == 1:
            self._dismantle(one)  # started again where a job needs it
            return
        if not one.ready:
            cause = Cause.SIGNAL if status is not None and status < 0 else Cause.NO_RESULT
            self._fail(one, cause, f"{one.spec.what}: {how_it_ended(status)}")
            return
        self._dismantle(one)
        for child in self._on(one):
            if child.sent_at is not None:
                if child.pid is not None:
                    linux.kill_group(child.pid, signal.SIGKILL)
                child.cause = child.cause or Cause.SERVER_LOST
                child.detail = child.detail or f"the fork server died ({how_it_ended(status)}) while this ran"
                child.close_at = time.monotonic() + self._bounds.drain_s
        if one.starts > self._bounds.restarts:
            self._fail(one, Cause.SERVER_LOST, f"the fork server died {one.starts} times, last: {how_it_ended(status)}")

    def _fail(self, one: _Server, cause: Cause, detail: str) -> None:
        """Give the server up for the rest of the run: every job that needs it ends with this cause."""
        one.failure = (cause, detail)
        self._dismantle(one)

    def _dismantle(self, one: _Server) -> None:
        if one.process is not None:
            if one.process.poll() is None:  # else its number may be somebody else's by now
                linux.kill_group(one.process.pid, signal.SIGKILL)
            _reaped(one.process, _PARTING_S)
            one.process = None
        if one.control is not None:
            self._forget(one.control.fileno())
            one.control.close()
            one.control = None
        if one.output_fd >= 0:
            with contextlib.suppress(OSError):
                while chunk := _read(one.output_fd):
                    assert one.output is not None
                    one.output.feed(chunk)
            self._forget(one.output_fd)
            os.close(one.output_fd)
            one.output_fd = -1
        one.ready = False
        self._sweep()
        if one.scratch:
            shutil.rmtree(one.scratch, ignore_errors=True)
            one.scratch = ""

    def _sweep(self) -> None:
        """Kill what a server left when it died: its orphans are this process's children now."""
        alive = {one.process.pid for one in self._servers.values() if one.process is not None}
        killed = set[int]()
        until = time.monotonic() + _PARTING_S
        while time.monotonic() < until:
            marked = f"{_MARK}={self._mark}"
            left = {pid for pid in linux.children() - alive - killed if linux.environment_holds(pid, marked)}
            for pid in left:
                os.kill(pid, signal.SIGKILL)
            killed |= left
            killed -= {pid for pid in killed if os.waitpid(pid, os.WNOHANG) != (0, 0)}
            if not killed:
                return
            time.sleep(0.002)

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
            elif one.ready:
                self._send(one, child)

    def _send(self, one: _Server, child: _Child) -> None:
        job = child.job
        writes = []
        for what in ("result", "stdout", "stderr"):
            read, write = os.pipe2(os.O_CLOEXEC)
            os.set_blocking(read, False)
            child.open[read] = what
            writes.append(write)
            self._watch(read, lambda fd=read: self._read_child(child, fd))  # type: ignore[misc]
        message: dict[str, Any] = {
            "key": job.key,
            "target": job.target,
            "argument": job.argument,
            "env": dict(job.env),
            "fresh": job.fresh,
        }
        assert one.control is not None
        try:
            server.send(one.control, {"start": message}, writes)
        except OSError:
            pass  # the server has died; its closed socket is the next thing that is heard
        finally:
            for fd in writes:
                os.close(fd)
        child.sent_at = time.monotonic()

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
        if one.process is not None and linux.is_stopped(one.process.pid):  # it would pass no signal on
            self._lost(one, kill=True)
            return
        rungs = ((signal.SIGTERM, self._bounds.term_grace_s), (signal.SIGKILL, self._bounds.kill_grace_s))
        if child.rung == len(rungs):
            pid = f"process {child.pid}" if child.pid is not None else "its process"
            child.detail = f"{child.detail}; {pid} did not die of SIGKILL"
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
        """Close what is open and turn what is known into an :class:`Ended`."""
        for fd in list(child.open):
            while fd in child.open and (chunk := _read(fd)) is not None:
                if not chunk:
                    break
                if child.open[fd] == "result":
                    child.record += chunk[: self._bounds.record_bytes - len(child.record) + 1]
                else:
                    child.streams[child.open[fd]].feed(chunk)
            if fd in child.open:
                self._drop_pipe(child, fd)
        del self._children[child.job.key]
        if child.pid is not None:
            with contextlib.suppress(ChildProcessError):  # its server has reaped it, as long as there was one
                os.waitpid(child.pid, os.WNOHANG)
        value, cause, detail = child_outcome(
            bytes(child.record),
            child.code,
            child.cause,
            child.detail,
        )
        if child.left:
            child.streams["stderr"].feed(b"\n[gpudiag: killed %d process(es) that outlived it]\n" % child.left)
        now = time.monotonic()
        self._ended.append(
            Ended(
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


def _read(fd: int) -> bytes | None:
    """Return what can be read now: b"" at the end of the stream, None where nothing is there yet."""
    try:
        return os.read(fd, _CHUNK)
    except BlockingIOError:
        return None


def _reaped(process: subprocess.Popen[bytes], within_s: float) -> int | None:
    try:
        return process.wait(within_s)
    except subprocess.TimeoutExpired:
        return None
