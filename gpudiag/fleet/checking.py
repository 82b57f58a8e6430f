"""A fleet check from the plan to the merged report."""

from __future__ import annotations

import asyncio
import resource
import secrets
import signal
import sys
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path

from msgspec.structs import replace

import gpudiag
from gpudiag.errors import UsageError
from gpudiag.fleet import engines
from gpudiag.fleet.carrying import GPUDIAG, Check, carry
from gpudiag.fleet.expecting import FleetExpectations
from gpudiag.fleet.folder import RunFolder
from gpudiag.fleet.merge import merged
from gpudiag.fleet.names import expand
from gpudiag.fleet.shipping import Shipped
from gpudiag.fleet.sources import Source, racks_in
from gpudiag.fleet.together.planning import PORT, addresses_in, packed, planned
from gpudiag.model.fleet import SCHEMA_VERSION, Answer, FleetReport, NodeVerdict, NoReport, Plan
from gpudiag.model.report import Verdict
from gpudiag.model.together import Task
from gpudiag.text import counted, one_line

_TAKEN = ("--deadline", "--format", "--exit-scheme")
"""Options of ``gpudiag check`` that a fleet check gives itself."""
DEADLINE_S = 600.0
_LINES = 20
"""How many lines of progress a run writes at most, and how many more of nodes that do not pass."""

_FILES_OF_A_NODE, _OTHER_FILES = 4, 64
"""Open files of the collector: pipes and a descriptor of each program that it runs, and all else."""

Say = Callable[[str], None]


@dataclass(frozen=True)
class Request:
    """What the user asks of a fleet check."""

    nodes: tuple[str, ...]
    """Words such as ``node[1-100]``."""
    arguments: tuple[str, ...]
    """The arguments of ``gpudiag check`` on each node."""
    engine: str | None
    folder: Path
    options: engines.EngineOptions
    resume: bool = False
    confirm: bool = False
    deadline_s: float | None = None
    """None: that of the run that goes on, or :data:`DEADLINE_S`; so is ``words``."""
    parallel: int | None = None
    words: tuple[str, ...] | None = None
    ship: Path | None = None
    racks: Path | None = None
    allow_missing: int = 0
    expected: FleetExpectations | None = None
    together: Together | None = None


@dataclass(frozen=True)
class Together:
    """What the user says of nodes that train together."""

    port: int = PORT
    addresses: str = ""
    """A pattern such as ``{node}-ib0``, or a file; "": as the engine says."""
    wait_s: float = 60.0
    times: int = 3


def run(request: Request, say: Say) -> FleetReport:
    """Run a fleet check and return its report; after a signal its exit status is that of the process, 128 + N.

    Raises :class:`UsageError` before anything starts, and :class:`gpudiag.errors.OutputError` if an answer cannot be
    kept.
    """
    return asyncio.run(_run(request, say))


async def _run(request: Request, say: Say) -> FleetReport:
    _refuse_arguments(request.arguments)
    most = _most_at_once()
    if request.parallel is not None and request.parallel > most:
        raise UsageError(
            f"--parallel {request.parallel} needs more open files than are allowed: raise 'ulimit -n', or take "
            f"--parallel {most}."
        )
    shipped = None if request.ship is None else Shipped.of(request.ship)
    engine, folder = await _opened(request, shipped)
    plan = folder.plan
    with folder.held():
        parallel = most if request.parallel is None and most < engine.most_at_once else request.parallel
        session = _Session(engine, folder, shipped, parallel, say)
        session.leave_out()
        left_out = session.verdicts if request.resume else plan.not_usable
        nodes = [node for node in plan.nodes if node not in left_out]
        number = counted(len(nodes), "node") if nodes else "no node"
        say(f"gpudiag: {number} to check by {plan.engine}; answers go to {folder.path}")
        stopped = await session.ask(nodes)
        if request.confirm and stopped is None:
            again = session.to_confirm()
            say(f"gpudiag: {counted(len(again), 'node') if again else 'no node'} to check once more")
            stopped = await session.ask(again)
    report = merged(Source.of(folder), allow_missing=request.allow_missing, expected=request.expected)
    return report if stopped is None else replace(report, exit_code=128 + stopped)


async def _opened(request: Request, shipped: Shipped | None) -> tuple[engines.Engine, RunFolder]:
    """Return the engine and the folder of a run: a new one with its plan, or one that is resumed."""
    if request.resume:
        folder = RunFolder.open(request.folder)
        if folder.plan.together is not None:
            raise UsageError("nodes that train together begin at once: start the run anew, in a new folder.")
        if request.engine not in (None, folder.plan.engine):
            raise UsageError(f"{folder.path}: was begun by --engine {folder.plan.engine}: leave out --engine.")
        folder.plan = replace(
            folder.plan,
            deadline_s=request.deadline_s or folder.plan.deadline_s,
            command=request.words or folder.plan.command,
        )
        return _made(folder.plan.engine, folder.plan.options, shipped), folder
    assert request.engine is not None
    options = replace(request.options, run=secrets.token_hex(4))
    engine = _made(request.engine, options, shipped)
    roster = await engine.roster(expand(request.nodes))
    plan = Plan(
        SCHEMA_VERSION,
        gpudiag.__version__,
        options.run,
        datetime.now(timezone.utc).isoformat(timespec="seconds"),
        request.engine,
        roster.nodes,
        request.arguments,
        request.deadline_s or DEADLINE_S,
        request.words or GPUDIAG,
        options,
        roster.not_usable,
        {**roster.racks, **racks_in(request.racks)},
        await _task(request, engine, roster, options.run),
    )
    return engine, RunFolder.create(request.folder, plan)


async def _task(request: Request, engine: engines.Engine, roster: engines.Roster, run: str) -> Task | None:
    """Return what the nodes are told if they train together; raises :class:`UsageError`."""
    asked = request.together
    if asked is None:
        return None
    nodes = [node for node in roster.nodes if node not in roster.not_usable]
    if request.confirm or request.arguments:
        what = "--confirm" if request.confirm else "arguments after '--'"
        raise UsageError(f"--together checks nothing but the training: leave out {what}.")
    if request.parallel is not None and request.parallel < len(nodes):
        raise UsageError(f"nodes that train together begin at once: --parallel {request.parallel} is too few.")
    if asked.addresses:
        addresses = addresses_in(asked.addresses, nodes)
    elif isinstance(engine, engines.AddressedEngine):
        addresses = await engine.addresses(nodes)
    elif request.engine == "kubernetes":
        raise UsageError("the address of a pod is not known before it runs: --together needs --addresses there.")
    else:
        addresses = {}
    return replace(planned(run, nodes, addresses, asked.port, asked.wait_s), times=asked.times)


def _made(name: str, options: engines.EngineOptions, shipped: Shipped | None) -> engines.Engine:
    """Return the engine; raises :class:`UsageError` if it cannot carry a file and has to."""
    engine = engines.made(name, options)
    if shipped is not None and not getattr(engine, "takes_input", True):
        raise UsageError(f"--ship cannot be used with {name}: its image must have gpudiag.")
    return engine


def _refuse_arguments(arguments: tuple[str, ...]) -> None:
    for argument in arguments:
        name = argument.partition("=")[0]
        if name in _TAKEN:
            instead = "before the '--'" if name == "--deadline" else "for the merged report, before the '--'"
            raise UsageError(f"{name} is set by the fleet check on every node: give it {instead}.")


def _most_at_once() -> int:
    """Return how many nodes can be asked at the same time within the limit of open files."""
    allowed = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    if allowed == resource.RLIM_INFINITY:
        return sys.maxsize
    return max((allowed - _OTHER_FILES) // _FILES_OF_A_NODE, 1)


class _Session:
    """A check while it runs: the engine, the folder, and what is known of each node."""

    def __init__(
        self,
        engine: engines.Engine,
        folder: RunFolder,
        shipped: Shipped | None,
        parallel: int | None,
        say: Say,
    ) -> None:
        plan = folder.plan
        task = "" if plan.together is None else packed(plan.together)
        self._engine = engine
        self._folder = folder
        self._check = Check(plan.command, plan.arguments, plan.deadline_s, shipped, task)
        self._parallel = parallel
        self._say = say
        self._attempts: dict[str, int] = {}
        self.verdicts: dict[str, NodeVerdict] = {}
        """The last verdict of each node that gave a report."""
        for answer in folder.answers():
            self._take(answer)

    def leave_out(self) -> None:
        """Keep an answer for each node that the engine gives to nobody now."""
        for node, why in self._folder.plan.not_usable.items():
            if node not in self._attempts:
                answer = Answer(node, 1, NoReport.NOT_USABLE, why)
                self._folder.write(answer)
                self._take(answer)

    async def ask(self, nodes: list[str]) -> signal.Signals | None:
        """Ask nodes once, and return the signal that stopped it."""
        if not nodes:
            return None
        progress = _Progress(len(nodes), self._say)

        def answered(answer: Answer) -> None:
            self._take(answer)
            progress.take(answer)

        return await carry(
            self._engine,
            self._folder,
            nodes,
            self._check,
            attempts=dict(self._attempts),
            parallel=self._parallel if self._folder.plan.together is None else len(nodes),
            answered=answered,
        )

    def to_confirm(self) -> list[str]:
        """Return the nodes that failed and were checked once, and as many that passed."""
        once = [node for node in self.verdicts if self._attempts[node] == 1]
        failed = [node for node in once if self.verdicts[node] is not NodeVerdict.PASS]
        passed = [node for node in once if self.verdicts[node] is NodeVerdict.PASS]
        return [*failed, *passed[: len(failed)]]

    def _take(self, answer: Answer) -> None:
        self._attempts[answer.node] = max(answer.attempt, self._attempts.get(answer.node, 0))
        if answer.summary is not None:
            self.verdicts[answer.node] = NodeVerdict.of(answer.summary.verdict)


class _Progress:
    """Says in a few lines how many nodes have answered, and names the first ones that do not pass."""

    def __init__(self, total: int, say: Say) -> None:
        self._total = total
        self._done = 0
        self._bad = 0
        self._say = say

    def take(self, answer: Answer) -> None:
        self._done += 1
        is_bad = answer.summary is None or answer.summary.verdict is not Verdict.PASS
        self._bad += is_bad
        every = max(self._total // _LINES, 1)
        if self._done % every and self._done != self._total and not (is_bad and self._bad <= _LINES):
            return
        if answer.summary is not None:
            word, text = answer.summary.verdict.value, answer.summary.headline
        else:
            word, text = f"NO REPORT: {answer.reason.value if answer.reason else ''}", answer.last_line
        self._say(one_line(f"[{self._done}/{self._total}] {answer.node}: {word}{f': {text}' if text else ''}")[:200])
