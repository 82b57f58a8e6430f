"""The user's own kubectl, and its errors in words that say what to do."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Generic, TypeVar

from gpudiag.fleet.launcher import Done, launch
from gpudiag.text import one_line

_PATIENCE_S = 60.0
"""The most time of one command; a list of 10,000 nodes takes seconds."""
AT_ONCE = 4
"""The most kubectls for one purpose at the same time: each takes 50 MB of memory."""
_ROLE = "'gpudiag fleet manifest rbac' prints the role that is needed"
_FAULTS = (
    ("localhost:8080", "kubectl knows no cluster: set KUBECONFIG, or give --engine-option=--context=NAME"),
    ("(Forbidden)", f"this user lacks a permission; {_ROLE}"),
    (" is forbidden:", f"this user lacks a permission; {_ROLE}"),
    ("(Unauthorized)", "the API server does not accept the credentials of kubectl: log in again"),
    ("provide credentials", "the API server does not accept the credentials of kubectl: log in again"),
    ("was refused", "the API server does not answer: 'kubectl cluster-info' shows which one is asked"),
    ("Unable to connect", "the API server does not answer: 'kubectl cluster-info' shows which one is asked"),
)
"""What stands in an error of kubectl, and what that means."""


_Question = TypeVar("_Question")
_Answer = TypeVar("_Answer")


class Together(Generic[_Question, _Answer]):
    """Answers questions that many tasks ask at the same time by few calls: each kubectl costs 0.1 s of a processor.

    A kubectl that sends more than 10 requests for logs, or to delete, sends 5 in a second (1.20 to 1.33, measured), so
    that several with few questions each are quicker than one with many.
    """

    def __init__(self, call: Callable[[list[_Question]], Awaitable[Sequence[_Answer]]], most: int) -> None:
        self._call = call
        self._most = most
        self._waiting: list[tuple[_Question, asyncio.Future[_Answer]]] = []
        self._workers: set[asyncio.Task[None]] = set()

    async def __call__(self, question: _Question) -> _Answer:
        """Return the answer to one question."""
        answer: asyncio.Future[_Answer] = asyncio.get_running_loop().create_future()
        self._waiting.append((question, answer))
        if len(self._workers) < AT_ONCE:
            worker = asyncio.ensure_future(self._work())
            self._workers.add(worker)
            worker.add_done_callback(self._workers.discard)
        return await answer

    async def close(self) -> None:
        """End the calls that are under way; the tasks that wait for them were cancelled."""
        workers = tuple(self._workers)
        for worker in workers:
            worker.cancel()
        await asyncio.gather(*workers, return_exceptions=True)
        self._workers.clear()

    async def _work(self) -> None:
        while self._waiting:
            batch, self._waiting = self._waiting[: self._most], self._waiting[self._most :]
            try:
                answers = await self._call([question for question, _ in batch])
            except BaseException as error:  # whoever asks must not wait for ever
                for _, waiting in batch:
                    if not waiting.done():
                        waiting.set_exception(error)
                raise
            for (_, waiting), answer in zip(batch, answers, strict=True):
                if not waiting.done():
                    waiting.set_result(answer)


class Kubectl:
    """Runs kubectl with the user's options, such as ``--context=NAME`` or ``-n`` and ``NAMESPACE``."""

    def __init__(self, options: Sequence[str] = ()) -> None:
        self.words = ("kubectl", *options)

    async def __call__(self, *arguments: str, given: bytes | None = None, deadline_s: float = _PATIENCE_S) -> Done:
        """Run a command of kubectl; raises nothing."""
        return await launch((*self.words, *arguments), deadline_s, given=given)


def fault_of(done: Done) -> str:
    """Return why a command of kubectl failed, and what to do; "" if it did not fail."""
    if done.status == 0 and not done.timed_out:
        return ""
    if done.status is None:
        return (
            f"{done.errors}: install kubectl, such as by 'apt-get install kubernetes-client', or see "
            "https://kubernetes.io/docs/tasks/tools/"
        )
    if done.timed_out:
        return f"kubectl was ended after {done.seconds:.0f} s: {done.last_line or 'it wrote nothing'}"
    return explained(done.last_line or f"kubectl ended with {done.status}")


def explained(line: str) -> str:
    """Return a line of kubectl, after what it means, if that is known."""
    line = one_line(line)
    return next((f"{meaning}: {line}" for words, meaning in _FAULTS if words in line), line)
