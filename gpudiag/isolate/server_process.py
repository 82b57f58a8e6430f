"""A fork server, as its supervisor sees it: started, heard and ended."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

from gpudiag import folders
from gpudiag.hardware.starvation import Starvation, is_stopped
from gpudiag.isolate import linux, server, worker
from gpudiag.isolate.job import Bounds, Captured, ServerSpec, one_line
from gpudiag.isolate.polling import Polling, drain, read
from gpudiag.isolate.protocol import Output, Preload, Ready, ToServer, send
from gpudiag.model.report import NoReading

_START_S = 30.0
"""Time limit for starting an interpreter that preloads nothing."""
_SENT_CHARACTERS = 16 << 10
"""The most characters of a server's preload output that its children are sent; a message holds six times that."""
PARTING_S = 3.0
"""Time limit for a server, or the processes that it left, to exit."""
_DYING_S = 0.5
"""Time limit for a server to die after its socket was closed on either side."""


class ServerProcess:
    """A fork server, or the reason why there is none."""

    def __init__(self, name: str, spec: ServerSpec, bounds: Bounds) -> None:
        self.name = name
        self.spec = spec
        self._bounds = bounds
        self.process: subprocess.Popen[bytes] | None = None
        """The keeper of the fork server; None until it is started."""
        self.pid: int | None = None
        self.control: socket.socket | None = None
        self.output = Captured(bounds.kept_bytes)
        self._output_fd = -1
        self.ready = False
        self.started_at = 0.0
        self.starvation = Starvation(0.0)
        """The record of how long the server was kept from running while it starts and preloads."""
        self.starts = 0
        self._scratch = ""
        """The folder for temporary files of the fork server."""
        self.failure: tuple[NoReading, str] | None = None

    @property
    def is_starting(self) -> bool:
        """True from the server's start until it has preloaded."""
        return self.process is not None and not self.ready

    @property
    def start_due(self) -> float:
        """When the fork server must have reported that it is ready."""
        return self.started_at + (self._bounds.preload_s if self.spec.preload else _START_S)

    @property
    def is_flood(self) -> bool:
        """True if the server has written more than it may while it preloads."""
        return not self.ready and self.output.total > self._bounds.output_bytes

    @property
    def last_line(self) -> str:
        """The last line that the server wrote, cut; "" if it wrote none."""
        return one_line(self.output.text()[-_SENT_CHARACTERS:].rstrip().rpartition("\n")[2])

    def start(self, polling: Polling, on_output: Callable[[], object], on_message: Callable[[], object]) -> None:
        """Start the server; raises ``OSError``, also if the order to preload cannot be sent.

        The two functions are called when the server has written output, and when it has sent a message. If no process
        was started, ``OSError`` leaves nothing open.
        """
        environment = dict(os.environ)
        # Warnings as errors are meant for the caller's own code; TensorFlow's import raises under them.
        for name, value in {**self.spec.env, "PYTHONWARNINGS": None}.items():
            if value is None:
                environment.pop(name, None)
            else:
                environment[name] = value
        with contextlib.ExitStack() as unless_started, contextlib.ExitStack() as theirs_only:
            control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            theirs_only.callback(theirs.close)
            unless_started.callback(control.close)
            output_read, output_write = os.pipe2(os.O_CLOEXEC)
            theirs_only.callback(os.close, output_write)
            unless_started.callback(os.close, output_read)
            self.process = subprocess.Popen(
                worker.command(server.__name__, str(theirs.fileno()), str(os.getpid())),
                stdin=subprocess.DEVNULL,
                stdout=output_write,
                stderr=output_write,
                pass_fds=[theirs.fileno()],
                env=environment,
                start_new_session=True,  # a Ctrl-C at the terminal is for gpudiag, which then ends its children
            )
            unless_started.pop_all()
        self.ready = False
        self.started_at = time.monotonic()
        self.starvation = Starvation(self.started_at)
        control.setblocking(False)  # a server that is stopped reads nothing
        self.control = control
        self.output = Captured(self._bounds.kept_bytes)
        self._output_fd = output_read
        os.set_blocking(output_read, False)
        polling.watch(output_read, on_output)
        polling.watch(control.fileno(), on_message)
        with contextlib.suppress(ConnectionError):  # it has died: its closed socket is the next thing that is heard
            send(control, Preload(self.spec.preload, self.spec.ahead))

    def send(self, message: ToServer) -> None:
        """Send a message if the server lives; if it has died, its closed socket is reported next."""
        if self.control is not None:
            with contextlib.suppress(OSError):
                send(self.control, message)

    def read_output(self, polling: Polling) -> None:
        """Read the server's output; stop watching streams that it has closed."""
        if self._output_fd < 0 or (chunk := read(self._output_fd)) is None:
            return
        if chunk:
            self.output.feed(chunk)
        else:
            self._close_output(polling)

    def on_ready(self, message: Ready, polling: Polling) -> None:
        """Record that the server has preloaded, and send it the output of that time, for its children."""
        self.ready, self._scratch, self.pid = True, message.scratch, message.pid
        self.read_output(polling)  # written before it said so
        self.send(Output(self.output.text()[:_SENT_CHARACTERS]))

    @property
    def is_stopped(self) -> bool:
        """True if the server is stopped (SIGSTOP) and would pass on no signal."""
        return self.pid is not None and is_stopped(self.pid)

    def close_control(self, polling: Polling) -> None:
        """Close the server's socket, which makes it kill its processes and exit."""
        if self.control is not None:
            polling.forget(self.control.fileno())
            self.control.close()
            self.control = None

    def dismantle(self, polling: Polling, *, may_die: bool = False) -> int | None:
        """End the server and all processes that it started; return its exit status, None if unknown.

        With ``may_die`` the server gets time to end by itself.
        """
        status = None
        self.close_control(polling)
        if self.process is not None:
            status = _ended_status(self.process, _DYING_S if may_die and not self.is_stopped else 0.0)
            self.process = self.pid = None
        if self._output_fd >= 0:
            drain(self._output_fd, self.output.feed)
            self._close_output(polling)
        self.ready = False
        if self._scratch:
            folders.remove(Path(self._scratch))
            self._scratch = ""
        return status

    def wait(self, within_s: float) -> None:
        """Wait until the server's process has ended, up to a time limit."""
        if self.process is not None:
            _reaped(self.process, within_s)

    def _close_output(self, polling: Polling) -> None:
        polling.close_fd(self._output_fd)
        self._output_fd = -1


def _reaped(process: subprocess.Popen[bytes], within_s: float) -> int | None:
    try:
        return process.wait(within_s)
    except subprocess.TimeoutExpired:
        return None


def _ended_status(process: subprocess.Popen[bytes], dying_s: float) -> int | None:
    """End the process of a server; return its status, None if it does not end.

    At SIGTERM the keeper ends the server and the processes it left; the keeper itself is killed only if it does not
    react.
    """
    if (status := _reaped(process, dying_s)) is None:
        process.terminate()
        status = _reaped(process, PARTING_S)
    if status is None:
        linux.kill_group(process.pid, signal.SIGKILL)
        status = _reaped(process, PARTING_S)
    return status
