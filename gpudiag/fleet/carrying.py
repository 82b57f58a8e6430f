"""Carries the check to the nodes, and turns what came back into answers, each kept as soon as it came."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import signal
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TypeVar

from gpudiag.fleet.engines import BatchEngine, Engine, Rule
from gpudiag.fleet.folder import RunFolder
from gpudiag.fleet.launcher import Done
from gpudiag.fleet.shipping import Shipped
from gpudiag.fleet.summary import answer_in, answer_with, summaries_in
from gpudiag.model import codec
from gpudiag.model.fleet import Answer, NoReport
from gpudiag.model.frame import CutShortError, OtherVersionError, reports_in

GRACE_S = 15.0
"""How much longer than its deadline the check on a node may take before ``timeout`` ends it there."""
COLLECTOR_GRACE_S = 30.0
"""How much longer than that the collector waits."""
GPUDIAG = ("gpudiag",)
"""How gpudiag is started on a node, unless the user says."""
_KILLED = 128 + signal.SIGKILL

_RULES = (
    Rule(
        NoReport.OTHER_VERSION,
        r"'frame' is not one of|no command is called '(?:fleet|member)'|"
        r"no option of 'gpudiag check' is called '--(?:deadline|quiet)'",
    ),
    Rule(NoReport.NOT_STARTED, r"gpudiag: error: ", status=2),
    Rule(NoReport.NO_GPUDIAG, r"No module named|gpudiag\S*: (?:command )?not found"),
    Rule(NoReport.NO_GPUDIAG, status=127),
    Rule(NoReport.NOT_STARTED, status=126),
    Rule(NoReport.TIMED_OUT, status=124),  # of timeout(1)
)
"""Tried after those of the engine."""

Answered = Callable[[Answer], None]
_Item = TypeVar("_Item")


@dataclass(frozen=True)
class Check:
    """The check that each node runs."""

    words: tuple[str, ...]
    """How gpudiag is started there, such as ``gpudiag`` or ``python3 -m gpudiag``; of a shipped one, its Python."""
    arguments: tuple[str, ...]
    """The arguments of ``gpudiag check``; ``{node}`` in them is the name of the node."""
    deadline_s: float
    shipped: Shipped | None = None
    task: str = ""
    """The packed task of nodes that train together; "" for a check."""

    @property
    def limit_s(self) -> float:
        """How long the collector waits for a node."""
        return self.node_limit_s + COLLECTOR_GRACE_S

    @property
    def node_limit_s(self) -> float:
        """After how long ``timeout`` ends the check on a node."""
        return self.deadline_s + GRACE_S

    @property
    def is_same_everywhere(self) -> bool:
        """Whether all nodes run the same command and get no input."""
        return self.shipped is None and not self.task and not any("{node}" in argument for argument in self.arguments)

    def command(self, node: str) -> tuple[str, ...]:
        """Return the command for a node, with a deadline that holds there without the collector."""
        arguments = [argument.replace("{node}", node) for argument in self.arguments]
        limit = ("timeout", "-k", "5", f"{self.node_limit_s:g}")
        check = ("check", *arguments, "--deadline", f"{self.deadline_s:g}", "--format", "frame", "--quiet")
        if self.task:
            check = ("fleet", "member", node, self.task)
        if self.shipped is not None:
            return self.shipped.command(limit, check, () if self.words == GPUDIAG else self.words)
        return (*limit, *self.words, *check)


async def carry(
    engine: Engine,
    folder: RunFolder,
    nodes: Sequence[str],
    check: Check,
    *,
    attempts: dict[str, int],
    parallel: int | None,
    answered: Answered,
) -> signal.Signals | None:
    """Ask the nodes, at most ``parallel`` at a time, and keep each answer in the folder.

    ``attempts`` is the number of each node's attempts before; without ``parallel`` the engine says how many at a time.
    Returns the signal that stopped it, or None; nodes without an answer have one then that says so. Raises
    :class:`gpudiag.errors.OutputError`.
    """
    round_ = _Round(engine, folder, check, attempts, answered, dict.fromkeys(nodes))
    with _stopped_by_signals() as stop:
        asking = asyncio.ensure_future(round_.ask_all(parallel))
        stopping = asyncio.ensure_future(stop.event.wait())
        try:
            await asyncio.wait({asking, stopping}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (asking, stopping):
                task.cancel()
            (failed, _) = await asyncio.gather(asking, stopping, return_exceptions=True)
        if isinstance(failed, Exception):
            raise failed
        if stop.signal is not None:
            round_.give_up(f"{stop.signal.name} stopped the collector")
    return stop.signal


@dataclass
class _Round:
    """Nodes that are asked once each."""

    engine: Engine
    folder: RunFolder
    check: Check
    attempts: dict[str, int]
    answered: Answered
    waiting: dict[str, None]
    """Nodes that have not been asked; a set that keeps their order."""
    under_way: set[str] = field(default_factory=set)

    async def ask_all(self, parallel: int | None) -> None:
        """Ask all nodes: those that one command may ask together first, then each that has not answered alone."""
        engine = self.engine
        async with engine.opened(tuple(self.waiting), self.check.deadline_s):
            if isinstance(engine, BatchEngine) and self.check.is_same_everywhere:
                batches = [
                    batch for batch in engine.batches(tuple(self.waiting)) if 1 < len(batch) <= (parallel or len(batch))
                ]
                at_once = engine.most_batches
                if batches and parallel is not None:
                    at_once = parallel // max(map(len, batches))
                await _at_once(self._ask_batch, batches, at_once)
            await _at_once(self._ask_node, tuple(self.waiting), parallel or engine.most_at_once)

    def give_up(self, why: str) -> None:
        """Keep an answer for each node that has none."""
        for node in (*sorted(self.under_way), *self.waiting):
            before = "" if node in self.under_way else " before this node was asked"
            self._keep(Answer(node, self.attempts.get(node, 0) + 1, NoReport.INTERRUPTED, f"{why}{before}"))

    async def _ask_node(self, node: str) -> None:
        self._begin(node)
        given = None if self.check.shipped is None else self.check.shipped.content
        done = await self.engine.run(node, self.check.command(node), self.check.limit_s, given)
        self._end(*self._answer_of(node, done))

    async def _ask_batch(self, nodes: tuple[str, ...]) -> None:
        """Ask nodes by one command; those without a report wait again."""
        assert isinstance(self.engine, BatchEngine)
        self._begin(*nodes)
        results = await self.engine.run_batch(nodes, self.check.command(""), self.check.limit_s)
        for node in nodes:
            answer, report = self._answer_of(node, results[node]) if node in results else (None, None)
            if answer is not None and report is not None:
                self._end(answer, report)
            else:
                self.under_way.discard(node)
                self.waiting[node] = None

    def _answer_of(self, node: str, done: Done) -> tuple[Answer, bytes | None]:
        if done.status == _KILLED and done.seconds >= self.check.node_limit_s:
            done = dataclasses.replace(done, timed_out=True)  # timeout(1) kills itself, too
        return answer_of(node, self.attempts.get(node, 0) + 1, done, self.engine.reasons)

    def _begin(self, *nodes: str) -> None:
        for node in nodes:
            del self.waiting[node]
        self.under_way |= {*nodes}

    def _end(self, answer: Answer, report: bytes | None) -> None:
        self._keep(answer, report)
        self.under_way.discard(answer.node)

    def _keep(self, answer: Answer, report: bytes | None = None) -> None:
        self.folder.write(answer, report)
        self.answered(answer)


async def _at_once(call: Callable[[_Item], Awaitable[None]], items: Sequence[_Item], most: int) -> None:
    """Call a function for each item, at most so many at a time; if one raises, the others are cancelled."""
    left = list(reversed(items))

    async def call_in_turn() -> None:
        while left:
            await call(left.pop())

    tasks = [asyncio.ensure_future(call_in_turn()) for _ in range(min(most, len(left)))]
    try:
        await asyncio.gather(*tasks)
    finally:  # one of them may have failed, such as on a full disk
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def answer_of(node: str, attempt: int, done: Done, rules: Sequence[Rule] = ()) -> tuple[Answer, bytes | None]:
    """Return the answer in what a node's command wrote, and the JSON of its report, if there is one."""
    seconds = round(done.seconds, 2)

    def without(reason: NoReport, last_line: str = "") -> tuple[Answer, None]:
        return Answer(node, attempt, reason, last_line or done.last_line or _end_of(done), seconds=seconds), None

    try:
        reports = reports_in(done.output)
        summaries = [] if reports else summaries_in(done.output)
    except OtherVersionError as error:
        return without(NoReport.OTHER_VERSION, str(error))
    except CutShortError as error:
        return without(NoReport.TIMED_OUT if done.timed_out else NoReport.CUT_SHORT, str(error))
    if len(reports) > 1:
        return without(NoReport.DUPLICATE, "different reports came back from one node")
    if not reports and not summaries:
        return without(*reason_of(done, rules))
    if not reports:
        return answer_with(node, summaries[0], attempt, seconds), None
    answer = answer_in(node, partial(codec.decode, reports[0], f"the report of {node}"), attempt, seconds)
    is_report = answer.summary is not None or answer.reason is NoReport.NO_TENSORFLOW
    return answer, reports[0] if is_report else None


def _end_of(done: Done) -> str:
    """Return how a command that said nothing ended."""
    status = done.status or 0
    number = -status if status < 0 else status - 128 if 128 < status < 160 else None
    if number is None:
        return f"it ended with status {status}"
    with contextlib.suppress(ValueError):
        return f"it was ended by {signal.Signals(number).name}"
    return f"it was ended by signal {number}"


def reason_of(done: Done, rules: Sequence[Rule]) -> tuple[NoReport, str]:
    """Return why there is no report in a result, and the line that says so; "" if no line does."""
    if done.reason is not None:
        return done.reason, ""
    if done.timed_out:
        return NoReport.TIMED_OUT, ""
    if done.status is None:
        return NoReport.NOT_STARTED, ""
    for rule in (*rules, *_RULES):
        line = rule.line_in(done)
        if line is not None:
            return rule.reason, line
    return NoReport.NOT_A_REPORT if done.output.strip() else NoReport.NO_ANSWER, ""


class _Stop:
    """Whether a signal asked the collector to stop."""

    def __init__(self) -> None:
        self.event = asyncio.Event()
        self.signal: signal.Signals | None = None

    def __call__(self, number: signal.Signals) -> None:
        self.signal = self.signal or number
        self.event.set()


@contextlib.contextmanager
def _stopped_by_signals() -> Iterator[_Stop]:
    stop = _Stop()
    loop = asyncio.get_running_loop()
    wanted = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    numbers = [number for number in wanted if signal.getsignal(number) is not signal.SIG_IGN]  # by nohup
    for number in numbers:
        loop.add_signal_handler(number, stop, number)
    try:
        yield stop
    finally:
        for number in numbers:
            loop.remove_signal_handler(number)
