"""Carries the check to the nodes, and turns what came back into answers, each kept as soon as it came."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from gpudiag.errors import ReportError
from gpudiag.fleet.engines import Engine, Rule
from gpudiag.fleet.folder import RunFolder
from gpudiag.fleet.launcher import Done
from gpudiag.fleet.shipping import Shipped
from gpudiag.fleet.summary import NO_MODULE, summarized
from gpudiag.model import codec
from gpudiag.model.fleet import Answer, NoReport
from gpudiag.model.frame import CutShortError, OtherVersionError, reports_in
from gpudiag.text import one_line

GRACE_S = 15.0
"""How much longer than its deadline the check on a node may take before ``timeout`` ends it there."""
COLLECTOR_GRACE_S = 30.0
"""How much longer than that the collector waits."""

_RULES = (
    Rule(NoReport.OTHER_VERSION, r"'frame' is not one of|no such option"),
    Rule(NoReport.NO_GPUDIAG, r"No module named '?gpudiag|gpudiag\S*: (?:command )?not found"),
    Rule(NoReport.NO_GPUDIAG, status=127),
    Rule(NoReport.TIMED_OUT, status=124),  # of timeout(1)
)
"""Tried after those of the engine."""

Answered = Callable[[Answer], None]


@dataclass(frozen=True)
class Check:
    """The check that each node runs."""

    words: tuple[str, ...]
    """How gpudiag is started there, such as ``gpudiag`` or ``python3 -m gpudiag``."""
    arguments: tuple[str, ...]
    """The arguments of ``gpudiag check``; ``{node}`` in them is the name of the node."""
    deadline_s: float
    shipped: Shipped | None = None

    def command(self, node: str) -> tuple[str, ...]:
        """Return the command for a node, with a deadline that holds there without the collector."""
        arguments = [argument.replace("{node}", node) for argument in self.arguments]
        limit = ("timeout", "-k", "5", f"{self.deadline_s + GRACE_S:g}")
        check = ("check", *arguments, "--deadline", f"{self.deadline_s:g}", "--format", "frame", "--quiet")
        if self.shipped is not None:
            return self.shipped.command(limit, check)
        return (*limit, *self.words, *check)


async def carry(
    engine: Engine,
    folder: RunFolder,
    nodes: Sequence[str],
    check: Check,
    *,
    attempts: dict[str, int],
    parallel: int,
    answered: Answered,
) -> signal.Signals | None:
    """Ask the nodes, at most ``parallel`` at a time, and keep each answer in the folder.

    ``attempts`` is the number of each node's attempts before. Returns the signal that stopped it, or None; nodes
    without an answer have one then that says so. Raises :class:`gpudiag.errors.OutputError`.
    """
    waiting = list(reversed(nodes))
    under_way: set[str] = set()

    def keep(answer: Answer, report: bytes | None = None) -> None:
        folder.write(answer, report)
        answered(answer)

    async def ask_in_turn() -> None:
        while waiting:
            node = waiting.pop()
            under_way.add(node)
            limit_s = check.deadline_s + GRACE_S + COLLECTOR_GRACE_S
            given = None if check.shipped is None else check.shipped.content
            done = await engine.run(node, check.command(node), limit_s, given)
            answer, report = answer_of(node, attempts.get(node, 0) + 1, done, engine.reasons)
            keep(answer, report)
            under_way.discard(node)

    async def ask_all() -> None:
        async with engine.opened(nodes, check.deadline_s):
            askers = [asyncio.ensure_future(ask_in_turn()) for _ in range(min(parallel, len(nodes)))]
            try:
                await asyncio.gather(*askers)
            finally:  # one of them may have failed, such as on a full disk
                for asker in askers:
                    asker.cancel()
                await asyncio.gather(*askers, return_exceptions=True)

    with _stopped_by_signals() as stop:
        asking = asyncio.ensure_future(ask_all())
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
            name = stop.signal.name
            for node in (*sorted(under_way), *reversed(waiting)):
                reason = NoReport.INTERRUPTED if node in under_way else NoReport.NOT_STARTED
                keep(Answer(node, attempts.get(node, 0) + 1, reason, f"{name} stopped the collector"))
    return stop.signal


def answer_of(node: str, attempt: int, done: Done, rules: Sequence[Rule] = ()) -> tuple[Answer, bytes | None]:
    """Return the answer in what a node's command wrote, and the JSON of its report, if there is one."""
    seconds = round(done.seconds, 2)

    def without(reason: NoReport, last_line: str = "") -> tuple[Answer, None]:
        return Answer(node, attempt, reason, last_line or done.last_line, seconds=seconds), None

    try:
        reports = reports_in(done.output)
    except OtherVersionError as error:
        return without(NoReport.OTHER_VERSION, str(error))
    except CutShortError as error:
        return without(NoReport.TIMED_OUT if done.timed_out else NoReport.CUT_SHORT, str(error))
    if len(reports) > 1:
        return without(NoReport.DUPLICATE, f"{len(reports)} reports came back from one node")
    if not reports:
        return without(reason_of(done, rules))
    try:
        summary = summarized(codec.decode(reports[0], f"the report of {node}"))
    except ReportError as error:
        other = "schema version" in str(error)
        return without(NoReport.OTHER_VERSION if other else NoReport.NOT_A_REPORT, one_line(str(error)))
    missing = next((cause for cause in summary.causes if cause.cause_id in NO_MODULE), None)
    if missing is not None:
        return Answer(node, attempt, NoReport.NO_TENSORFLOW, missing.cause, seconds=seconds), reports[0]
    return Answer(node, attempt, summary=summary, seconds=seconds), reports[0]


def reason_of(done: Done, rules: Sequence[Rule]) -> NoReport:
    """Return why there is no report in a result."""
    if done.timed_out:
        return NoReport.TIMED_OUT
    if done.status is None:
        return NoReport.NOT_STARTED
    for rule in (*rules, *_RULES):
        if rule.fits(done):
            return rule.reason
    return NoReport.NOT_A_REPORT if done.output.strip() else NoReport.NO_ANSWER


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
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    for number in numbers:
        loop.add_signal_handler(number, stop, number)
    try:
        yield stop
    finally:
        for number in numbers:
            loop.remove_signal_handler(number)
