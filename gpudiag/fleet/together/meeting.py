"""The nodes meet before TensorFlow is started: each listens on the port that TensorFlow will take, and connects to all.

What TensorFlow says if a node is missing, cannot take its port, or has another address, is nothing: it waits (measured,
2.21). Here each node knows within seconds. The nodes exchange what they know of all (a state for each), so that a node
that cannot listen, or that only some can reach, is known to the others all the same.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import socket
import time
from collections.abc import Callable

import msgspec

from gpudiag.hardware.ports import listening
from gpudiag.model.together import NOT_TRIED, Peer, Task
from gpudiag.record import Record

CONNECT_S = 3.0
AGAIN_S = 0.2
"""Between two tries to reach a node."""
ONE_WAY_S = 10.0
"""How long a node is tried that is known to be there."""
LINGER_S = 1.0
"""How long a node stays when it knows of a fault, so that it hears of others."""
NEWS_S = 20.0
"""How much longer a node stays that has a fault itself, and has not told it to all: others may start later."""
MOST_MESSAGE = 8 << 20
MOST_AT_ONCE = 64


class State(Record):
    """What a node says of itself."""

    number: int
    """Grows with each change."""
    fault: str = ""
    kind: str = ""
    alone: bool = False
    """True as long as it trains alone, before it can go on."""
    reached_all: bool = False
    gpus: int = 0
    tensorflow: str = ""
    real: bool = False
    """True if all its GPUs are real."""


class Message(Record):
    """What two nodes tell each other."""

    run: str
    index: int
    states: dict[int, State]


class Meeting:
    """One node's part in the meeting."""

    def __init__(self, task: Task, index: int) -> None:
        self._task, self._index = task, index
        self._place = task.places[index]
        self._others = [other for other in range(len(task.places)) if other != index]
        self.states: dict[int, State] = {index: State(1, alone=True)}
        self.answers: dict[int, str] = dict.fromkeys(self._others, NOT_TRIED)
        """What the last connection to each other node ended with; "" if it answered."""
        self.route = ""
        self._told = dict.fromkeys(self._others, 0)
        """The number of this node's state that each other node has."""
        self._turn = 0
        self._known_since: dict[int, float] = {}
        self._server: asyncio.Server | None = None
        self._gate = asyncio.Semaphore(MOST_AT_ONCE)

    def change(self, **changes: object) -> None:
        """Change what this node says of itself."""
        own = self.states[self._index]
        self.states[self._index] = msgspec.structs.replace(own, number=own.number + 1, **changes)

    async def listen(self) -> None:
        """Take the port, as TensorFlow will: on all addresses. A port that is not free becomes this node's fault."""
        port = self._place.port
        try:
            self._server = await asyncio.start_server(self._answer, None, port, limit=MOST_MESSAGE)
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                _, pid = listening(port)
                who = f"process {pid} ({_words(pid)})" if pid else "a process that this user cannot see"
                self.change(fault=f"port {port} is taken by {who}", kind="port_taken")
            else:
                reason = os.strerror(error.errno) if error.errno else str(error)
                self.change(fault=f"cannot listen on port {port}: {reason}", kind="port_refused")

    async def close(self) -> None:
        """Give the port back."""
        if self._server is not None:
            self._server.close()
            self._server = None

    async def hold(self, limit_s: Callable[[], float]) -> bool:
        """Meet until all have reached all and are ready, or a fault is known; return whether all are there.

        ``limit_s`` says how many seconds this node will go on waiting.
        """
        stop_at = None
        while True:
            left_s = limit_s()
            await self._visit(self._next(), min(CONNECT_S, left_s))
            if not self.states[self._index].reached_all and not any(self.answers.values()):
                self.change(reached_all=True)
                continue
            if self._all_are_ready():
                await self._visit(self._others, CONNECT_S)  # the last to know are told; who has left knows
                return True
            self._find_one_way()
            now = time.monotonic()
            if any(state.fault for state in self.states.values()) and stop_at is None:
                stop_at = now + LINGER_S
            has_news = self.states[self._index].fault and min(self._told.values(), default=1) == 0
            if left_s <= 0 or (stop_at is not None and now > stop_at + NEWS_S * bool(has_news)):
                return False
            await asyncio.sleep(AGAIN_S)

    def _next(self) -> list[int]:
        """Return the nodes to visit now: those that did not answer, those that lack this node's news, and one more in
        turn, which may have heard of a third."""
        number = self.states[self._index].number
        others = [other for other in self._others if self.answers[other] or self._told[other] < number]
        if self._others:
            self._turn = (self._turn + 1) % len(self._others)
            others.append(self._others[self._turn])
        return list(dict.fromkeys(others))

    def _all_are_ready(self) -> bool:
        ready = [state.reached_all and not state.alone and not state.fault for state in self.states.values()]
        return len(ready) == len(self._task.places) and all(ready)

    def _find_one_way(self) -> None:
        """Make it a fault if a node is known to be there, and cannot be reached for :data:`ONE_WAY_S`."""
        now = time.monotonic()
        for other, answer in self.answers.items():
            state = self.states.get(other)
            if state is None or state.fault or not answer:
                continue
            if now - self._known_since.setdefault(other, now) > ONE_WAY_S and not self.states[self._index].fault:
                place = self._task.places[other]
                self.change(fault=f"cannot connect to {place.node} at {place.target}: {answer}", kind="cannot_connect")

    def unanswered(self) -> tuple[Peer, ...]:
        """Return the nodes that this one did not reach."""
        return tuple(
            Peer(self._task.places[other].node, answer, other in self.states)
            for other, answer in self.answers.items()
            if answer
        )

    async def _visit(self, others: list[int], limit_s: float) -> None:
        await asyncio.gather(*(self._exchange(other, max(limit_s, 0.1)) for other in others))

    async def _exchange(self, other: int, limit_s: float) -> None:
        place, number = self._task.places[other], self.states[self._index].number
        async with self._gate:
            try:
                answer = await asyncio.wait_for(self._talk(place.address, place.port), limit_s)
            except asyncio.TimeoutError:
                if limit_s >= CONNECT_S:  # else it was cut short by the end of this node's waiting, and shows nothing
                    self.answers[other] = f"no answer in {limit_s:.0f} s"
            except socket.gaierror:
                self.answers[other] = f"the name {place.address} is not known here"
            except (OSError, EOFError, ValueError) as error:
                self.answers[other] = _reason(error)
            else:
                if answer is None:
                    self.answers[other] = "another program answers there"
                elif answer.run != self._task.run:
                    self.answers[other] = "another run of gpudiag answers there"
                elif answer.index != other:
                    stranger = self._task.places[answer.index].node if answer.index < len(self._task.places) else "?"
                    self.answers[other] = f"{stranger} answers there"
                    if not self.states[self._index].fault:
                        text = f"{place.target} should be {place.node}, and is {stranger}"
                        self.change(fault=text, kind="wrong_address")
                else:
                    self.answers[other] = ""
                    self._told[other] = max(number, self._told[other])
                    self._learn(answer)

    async def _talk(self, address: str, port: int) -> Message | None:
        reader, writer = await asyncio.open_connection(address, port, limit=MOST_MESSAGE)
        try:
            self.route = self.route or str(writer.get_extra_info("sockname")[0])
            writer.write(self._message())
            await writer.drain()
            return _message_in(await reader.readline())
        finally:
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, ValueError, asyncio.TimeoutError):
            message = _message_in(await asyncio.wait_for(reader.readline(), CONNECT_S))
            if message is not None and message.run == self._task.run:
                self._learn(message)
                writer.write(self._message())
                await writer.drain()
        writer.close()

    def _message(self) -> bytes:
        return msgspec.json.encode(Message(self._task.run, self._index, self.states)) + b"\n"

    def _learn(self, message: Message) -> None:
        for index, state in message.states.items():
            known = self.states.get(index)
            if 0 <= index < len(self._task.places) and (known is None or known.number < state.number):
                self.states[index] = state


def _message_in(line: bytes) -> Message | None:
    try:
        return msgspec.json.decode(line, type=Message)
    except msgspec.MsgspecError:
        return None


def _reason(error: Exception) -> str:
    if isinstance(error, OSError) and error.errno:
        return os.strerror(error.errno)
    return "the connection was closed" if isinstance(error, EOFError) else str(error) or type(error).__name__


def _words(pid: int) -> str:
    with contextlib.suppress(OSError), open(f"/proc/{pid}/cmdline", "rb") as file:  # noqa: PTH123
        return file.read(200).replace(b"\0", b" ").decode(errors="replace").strip()
    return "?"
