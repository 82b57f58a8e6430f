"""What a supervisor, a fork server and a job say to each other.

A message is one packet of a ``SOCK_SEQPACKET`` socket, JSON with file descriptors beside it. The record of a job is on
a separate pipe: a length and that many bytes of JSON.
"""

from __future__ import annotations

import contextlib
import socket
from typing import TypeVar

import msgspec

from gpudiag.model.report import NoReading

MESSAGE_BYTES = 1 << 17
JOB_FDS = 4
"""The descriptors beside a :class:`Start`: the order, the result, stdout and stderr."""
LENGTH_BYTES = 8
"""Size of the little-endian length before a record; it shows whether a record is complete."""


class JobException(msgspec.Struct, frozen=True):
    """An exception, as text."""

    type: str
    message: str
    cause: NoReading


class JobRecord(msgspec.Struct, frozen=True, omit_defaults=True):
    """The result of a job: a value or an exception."""

    value: msgspec.Raw = msgspec.Raw()
    raised: JobException | None = None


class ServerMessage(msgspec.Struct, tag_field="message", tag=True):
    """Base of the messages between a supervisor and a fork server."""


class Preload(ServerMessage):
    """The first message: the functions (``module:function``) that the server calls to preload, and before its jobs."""

    preload: str | None
    ahead: str | None


class Output(ServerMessage):
    """The server's output while it preloaded."""

    text: str


class Start(ServerMessage):
    """Begin a job; its descriptors are beside the message."""

    key: str
    fresh: bool


class Kill(ServerMessage):
    """Send a signal to a job and all processes that it started."""

    key: str
    number: int


ToServer = Preload | Output | Start | Kill


class Ready(ServerMessage):
    """The server has preloaded."""

    scratch: str
    """The folder for temporary files of the job; "" for none."""
    pid: int


class PreloadFailed(ServerMessage):
    """The preload raised: there will be no server."""

    raised: JobException


class Started(ServerMessage):
    """A job has begun."""

    key: str
    pid: int


class Refused(ServerMessage):
    """A job could not begin."""

    key: str
    why: str
    cause: NoReading
    errno: int | None = None


class JobEnded(ServerMessage):
    """A job's process has ended, and the processes that it left were killed."""

    key: str
    code: int
    """Exit code in the sense of ``subprocess``: negative for a signal."""
    leftovers: int
    """Processes that outlived the job."""
    unkillable: int
    """How many of the leftover processes this user may not kill."""


FromServer = Ready | PreloadFailed | Started | Refused | JobEnded

_Received = TypeVar("_Received", ToServer, FromServer)
_FROM_SUPERVISOR = msgspec.json.Decoder(ToServer)
_FROM_SERVER = msgspec.json.Decoder(FromServer)


def send(control: socket.socket, message: ToServer | FromServer, fds: list[int] | None = None) -> None:
    """Send one message, with ``fds`` passed along."""
    socket.send_fds(control, [msgspec.json.encode(message)], fds or [])


def receive_from_supervisor(control: socket.socket) -> tuple[ToServer | None, list[int]]:
    """Return the next message to a server and its descriptors; see :func:`_receive`."""
    return _receive(control, _FROM_SUPERVISOR)


def receive_from_server(control: socket.socket) -> FromServer | None:
    """Return the next message of a server; see :func:`_receive`."""
    return _receive(control, _FROM_SERVER)[0]


def _receive(control: socket.socket, decoder: msgspec.json.Decoder[_Received]) -> tuple[_Received | None, list[int]]:
    """Return the next message and the file descriptors that came with it; None if the other end has closed.

    Raises ``BlockingIOError`` if the socket does not block and nothing is there.
    """
    for _ in range(2):  # an end that closed with unread messages is reported first, and its own last message after that
        with contextlib.suppress(ConnectionError):
            content, fds, _, _ = socket.recv_fds(control, MESSAGE_BYTES, JOB_FDS)
            return (decoder.decode(content) if content else None), list(fds)
    return None, []


def readable(text: str) -> str:
    """Return ``text`` in a form that can be sent: parts that are not UTF-8, as in a file name, become ``?``."""
    return text.encode("utf-8", "replace").decode()
