"""The engine ``slurm``: ``salloc`` for the nodes that Slurm can give now, and in it a step of ``srun`` for each node.

A wide ``srun`` is as strong as its weakest node: with Slurm 22.05 it ends with 0 when a node dies, and takes the other
nodes with it. A step for each node has its own deadline and its own reason. A wide step of 64 nodes costs a third of 64
single ones, so above 256 nodes wide steps come first, and single ones ask the nodes without a report once more.

The idle nodes of one partition with as many GPUs are one allocation. If Slurm does not give it in time, or takes it
back (a prolog that fails, preemption, its time limit), each of its nodes is asked for alone, as are nodes that jobs use
in part: one node that is not given keeps no other from being checked.
"""

from __future__ import annotations

import argparse
import asyncio
import base64
import binascii
import contextlib
import math
import re
import shlex
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import replace

from gpudiag.errors import UsageError
from gpudiag.fleet.allocation import JOB_NAME, Allocation
from gpudiag.fleet.engines import EngineOptions, Roster, Rule
from gpudiag.fleet.launcher import Done, launch
from gpudiag.fleet.names import expand, hostlist
from gpudiag.fleet.process import GRACE_S
from gpudiag.fleet.slurm_nodes import (
    SlurmNode,
    answer,
    ask,
    environment,
    listed_nodes,
    refuse_without_slurm,
    unknown_name,
)
from gpudiag.model.fleet import NoReport
from gpudiag.model.frame import WORD
from gpudiag.text import one_line

WAIT_S = 60.0
"""How long Slurm may take to give nodes that look free: its backfill scheduler looks at the queue every 30 s."""
WIDE = 64
"""How many nodes a wide step has."""
WIDE_ABOVE = 256
"""How many nodes a fleet has at most without wide steps."""
CPUS_PER_GPU = 4
"""How many processors are asked for on a node that jobs use in part: for each GPU, if they are free."""
SLACK_S = 90.0
"""What starting and ending a step may take, beside the deadline of its check."""

_WRAPPER = 'echo "$SLURMD_NODENAME"; "$@" | base64 -w 768'
"""A task of a wide step: its lines are short, because srun mixes those of all nodes and breaks long ones."""
_LABEL = re.compile(rb"^ *(\d+): (.*)$", re.MULTILINE)
_NOISE = re.compile(
    r"(?:Job step aborted: Waiting up to|Force Terminated|Terminating StepId|Timed out waiting for job step|"
    r"error: Timed out waiting|_step_signal|task \d+: (?:Killed|Terminated|Exited with exit code)|"
    r"Exited with exit code \d+$|lacks support for cpu binding)"
)
"""Lines of srun that say that a step ended, and not why."""
_CANCELLED = re.compile(r"CANCELLED AT \S+ \*\*\*")
"""Without ``DUE TO``: by scancel, not by Slurm itself."""
_PENDING = "queued and waiting for resources"
_SAYS = r"(?m)^(?:srun|salloc|slurmstepd(?:-\S+)?): .*"


def _rule(reason: NoReport, *texts: str) -> Rule:
    return Rule(reason, f"{_SAYS}(?:{'|'.join(texts)})")


class Engine:
    """Starts the command by ``srun``, in an allocation of its own or beside a job of the user."""

    reasons: Sequence[Rule] = (
        _rule(NoReport.TIMED_OUT, "DUE TO TIME LIMIT"),
        _rule(NoReport.NOT_STARTED, "[Pp]rolog (?:failure|failed|error)", "are still not ready"),
        _rule(
            NoReport.UNREACHABLE,
            "Communication connection failure",
            r"Task launch for \S+ failed on node",
            "Can't find an address",
        ),
        _rule(
            NoReport.LOST,
            "Node failure on",
            "DUE TO NODE FAILURE",
            "DUE TO PREEMPTION",
            "CANCELLED AT",
            "Job/step already completing",
            "was cancelled",
        ),
        _rule(
            NoReport.REFUSED,
            "Invalid account",
            "not permitted",
            "[Pp]ermission denied",
            "Access denied",
            "Invalid user id",
            "Invalid qos",
            "violates accounting/QOS policy",
            "time limit is invalid",
            "breached requested QOS",
            "Only batch jobs are accepted",
            "Protocol authentication error",
            "[Ii]nvalid (?:authentication|job) credential",
        ),
        _rule(
            NoReport.NOT_USABLE,
            "nodes are busy",
            "configuration is not available",
            "configuration not available",
            "not in this partition",
            "Required (?:node|partition) not available",
            "Partition in DOWN state",
            "Invalid (?:node name|partition name|feature|generic resource)",
            "Immediate",
            "can not start immediately",
            "Node count specification invalid",
            "Memory required by task",
            "More processors requested",
            "Insufficient GRES",
        ),
        _rule(NoReport.NOT_STARTED, "Unable to contact slurm controller", "Socket timed out", "Zero Bytes"),
    )
    most_at_once = 64
    most_batches = 16

    def __init__(self, options: EngineOptions) -> None:
        self._options = options
        self._job = options.jobid
        parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
        parser.add_argument("-p", "--partition", default="")
        parser.add_argument("--reservation")
        self._chosen, _ = parser.parse_known_args(list(options.options))
        self._nodes: dict[str, SlurmNode] = {}
        self._listed_at = 0.0
        """When :attr:`_nodes` were listed, by the monotonic clock."""
        self._listing = asyncio.Lock()
        self._shared: dict[str, tuple[Allocation, asyncio.Task[None]]] = {}
        """The allocation that each idle node is in, and the task that waits for it."""
        self._cancelled: set[str] = set()
        """Jobs that somebody cancelled: their nodes are not asked for again."""
        self._minutes = 0

    async def roster(self, names: tuple[str, ...]) -> Roster:
        """Return the nodes that these names mean; without names, those of the job or the partition, or all."""
        refuse_without_slurm()
        if self._job is not None:
            held = await self._nodes_of_job()
            await self._try_options()
            outside = {name: f"is not a node of job {self._job}" for name in names if name not in held}
            return Roster(names or held, outside, {})
        await self._list()
        await self._try_options()
        if not names:
            names = tuple(
                name for name, node in self._nodes.items() if not self._partitions or node.partition in self._partitions
            )
        if not names:
            raise UsageError("Slurm has no nodes: sinfo lists none.")
        unknown = [name for name in names if name not in self._nodes]
        refusals = {name: unknown_name(name, self._nodes, suggest=len(unknown) <= 20) for name in unknown}
        known = {name: self._nodes[name].refusal for name in names if name in self._nodes}
        refusals |= {name: refusal for name, refusal in known.items() if refusal}
        return Roster(names, refusals, {})

    async def _try_options(self) -> None:
        """Raise :class:`UsageError` if Slurm does not take the user's options; nothing is started."""
        options = self._options.options
        if not options:
            return
        program = "salloc" if self._job is None else "srun"
        # A word that is no option would be a command: there is no node on which it could start.
        done = await ask(program, "--nodelist=gpudiag-no-such-node", *options, "--help")
        if done.status != 0:
            line = done.first_error or f"it ended with {done.status}"
            raise UsageError(
                f"{program} does not take {shlex.join(options)}: {line}. An --engine-option is one word, such as "
                "--engine-option=--partition=gpu."
            )

    async def addresses(self, nodes: Sequence[str]) -> dict[str, str]:
        """Return the address that Slurm itself reaches each node by; raises :class:`UsageError`."""
        text = await answer("scontrol", "--oneliner", "show", "node")
        known = {}
        for line in text.splitlines():
            # What an administrator wrote, such as Reason=, comes after the fields of Slurm: the first of a name counts.
            fields = dict(reversed([word.split("=", 1) for word in line.split() if "=" in word]))
            known[fields.get("NodeName")] = fields.get("NodeAddr")
        return {node: known.get(node) or node for node in nodes}

    def opened(self, nodes: Sequence[str], deadline_s: float) -> AbstractAsyncContextManager[None]:
        """Return what holds the idle ones of these nodes; it asks for them, and :meth:`run` waits for them."""
        return self._opened(nodes, deadline_s)

    async def run(self, node: str, argv: Sequence[str], deadline_s: float, given: bytes | None = None) -> Done:
        """Run a command on a node, in the shared allocation, or else in one of its own."""
        if self._job is not None:
            return await self._step(self._job, [node], argv, deadline_s, gpus=self._options.gpus or 0, given=given)
        slurm_node = self._nodes.get(node)
        if slurm_node is None:
            return _refused(unknown_name(node, self._nodes, suggest=True))
        began = time.monotonic()
        lost: Done | None = None
        if node in self._shared:
            allocation, waiting = self._shared[node]
            await asyncio.shield(waiting)
            if allocation.job:
                gpus = self._gpus(slurm_node)
                done = await self._step(allocation.job, [node], argv, deadline_s, gpus=gpus, given=given)
                if WORD.encode() in done.output:
                    return done
                if allocation.job in self._cancelled:
                    await allocation.wait_for_end(GRACE_S)  # srun may end before salloc
                if allocation.is_open:
                    return done
                if allocation.job in self._cancelled:
                    return _with_line(done, f"srun: job {allocation.job} was cancelled")
                lost = done if "DUE TO" in done.errors else None
            slurm_node = await self._node_since(node, began)
        if slurm_node.refusal:
            return lost or _refused(slurm_node.refusal)
        done = await self._run_alone(slurm_node, argv, deadline_s, given)
        return lost if lost is not None and isinstance(done, _NotGiven) else done

    def batches(self, nodes: Sequence[str]) -> list[tuple[str, ...]]:
        """Return the nodes in groups that a wide step may ask; groups of one if the fleet is small."""
        if len(nodes) <= WIDE_ABOVE or self._job is not None:
            return [(node,) for node in nodes]
        groups: dict[int, list[str]] = {}
        alone = [node for node in nodes if node not in self._shared]
        for node in nodes:
            if node in self._shared:
                groups.setdefault(id(self._shared[node][0]), []).append(node)
        wide = [tuple(group[at : at + WIDE]) for group in groups.values() for at in range(0, len(group), WIDE)]
        return [*wide, *((node,) for node in alone)]

    async def run_batch(self, nodes: Sequence[str], argv: Sequence[str], deadline_s: float) -> dict[str, Done]:
        """Run a command on all nodes of a batch by one step, and return what came back from each that wrote."""
        allocation, waiting = self._shared[nodes[0]]
        await asyncio.shield(waiting)
        if not allocation.is_open:
            return {}
        gpus = self._gpus(self._nodes[nodes[0]])
        wrapped = ["sh", "-c", _WRAPPER, "sh", *argv]
        done = await self._step(allocation.job, nodes, wrapped, deadline_s, gpus=gpus)
        return {
            node: replace(done, output=output) for node, output in outputs_by_node(done.output).items() if node in nodes
        }

    @property
    def _partitions(self) -> tuple[str, ...]:
        return tuple(filter(None, self._chosen.partition.split(",")))

    def _gpus(self, node: SlurmNode) -> int:
        return node.gpus if self._options.gpus is None else self._options.gpus

    @contextlib.asynccontextmanager
    async def _opened(self, nodes: Sequence[str], deadline_s: float) -> AsyncIterator[None]:
        if self._job is not None:
            yield
            return
        refuse_without_slurm()
        # Not as the roster has them: a run may be resumed, and nodes are asked once more to confirm.
        await self._list()
        self._minutes = math.ceil((deadline_s + SLACK_S) / 60)
        groups: dict[tuple[str, int], list[SlurmNode]] = {}
        for name in nodes:
            node = self._nodes.get(name)
            if node is not None and not node.refusal and node.is_idle:
                groups.setdefault((node.partition, self._gpus(node)), []).append(node)
        try:
            for group in groups.values():
                allocation = self._allocation(group)
                waiting = asyncio.ensure_future(allocation.open(WAIT_S))
                self._shared |= {node.name: (allocation, waiting) for node in group}
            yield
        finally:
            shared = {id(allocation): (allocation, waiting) for allocation, waiting in self._shared.values()}
            self._shared = {}
            for _, waiting in shared.values():
                waiting.cancel()
            await asyncio.gather(*(waiting for _, waiting in shared.values()), return_exceptions=True)
            await asyncio.gather(*(allocation.close() for allocation, _ in shared.values()))

    def _allocation(self, nodes: Sequence[SlurmNode]) -> Allocation:
        """Return an allocation for nodes of one partition with as many GPUs; it is not asked for yet.

        Idle nodes are taken whole, as a job gets them that runs where no other does.
        """
        first = nodes[0]
        gpus = self._gpus(first)
        at_once = self.most_batches * WIDE if len(nodes) > WIDE_ABOVE else self.most_at_once
        minutes = min(self._minutes * math.ceil(len(nodes) / at_once), first.most_minutes)
        words = [f"--partition={first.partition}", f"--time={max(math.floor(minutes), 1)}"]
        words.append("--exclusive" if first.is_idle else f"-c{max(1, min(first.idle_cpus, CPUS_PER_GPU * gpus))}")
        if gpus:
            words.append(f"--gres=gpu:{gpus}")
        return Allocation([node.name for node in nodes], [*words, *self._options.options])

    async def _run_alone(self, node: SlurmNode, argv: Sequence[str], deadline_s: float, given: bytes | None) -> Done:
        """Run a command in an allocation of one node."""
        began = time.monotonic()
        allocation = self._allocation([node])
        try:
            await allocation.open(WAIT_S)
            if allocation.job:
                return await self._step(
                    allocation.job, [node.name], argv, deadline_s, gpus=self._gpus(node), given=given
                )
        finally:
            await allocation.close()
        seconds = time.monotonic() - began
        node = await self._node_since(node.name, began)
        if node.refusal:
            return _refused(node.refusal, seconds)
        if _PENDING in allocation.errors or " error: " not in allocation.errors:
            return _refused(f"{node.state}: Slurm did not give it within {seconds:.0f} s", seconds)
        return _NotGiven(1, b"", _last_error(allocation.errors), seconds)

    async def _step(
        self,
        job: str,
        nodes: Sequence[str],
        argv: Sequence[str],
        deadline_s: float,
        *,
        gpus: int,
        given: bytes | None = None,
    ) -> Done:
        """Run a command as a step of a job, a task on each node."""
        size = len(nodes)
        words = ["srun", f"--jobid={job}", "-Q", f"-N{size}", f"-n{size}", "-w", hostlist(nodes)]
        words += ["--overlap", f"--job-name={JOB_NAME}", "--mpi=none", "--cpu-bind=none"]
        if size > 1:
            words += ["--ntasks-per-node=1", "--no-kill", "--kill-on-bad-exit=0", "--wait=0", "--label"]
        if gpus:
            words.append(f"--gres=gpu:{gpus}")
        if self._job is not None:
            words += self._options.options
        done = await launch([*words, *argv], deadline_s, environ=environment(), given=given)
        if _CANCELLED.search(done.errors):
            self._cancelled.add(job)
        kept = [line for line in done.errors.splitlines() if not _NOISE.search(line)]
        return replace(done, errors="\n".join(kept))

    async def _list(self) -> None:
        self._nodes = await listed_nodes(self._partitions, reserved=bool(self._chosen.reservation))
        self._listed_at = time.monotonic()

    async def _node_since(self, name: str, moment: float) -> SlurmNode:
        """Return a node as it was listed after a moment; as it was before if Slurm does not answer now."""
        before = self._nodes[name]
        async with self._listing:
            if self._listed_at < moment:
                with contextlib.suppress(UsageError):
                    await self._list()
        return self._nodes.get(name, before)

    async def _nodes_of_job(self) -> tuple[str, ...]:
        job = str(self._job)
        if not re.fullmatch(r"\d+(?:[_+]\d+)?", job):
            raise UsageError(f"--jobid is {one_line(job)!r}: a job of Slurm has a number, such as 4711.")
        done = await ask("squeue", "-h", "-j", job, "-o", "%T|%N")
        if done.status != 0 and "Invalid job id" not in done.errors:
            await answer("sinfo", "-h", "-o", "%N")  # says what is wrong with Slurm
        state, _, nodes = done.output.decode(errors="replace").strip().partition("|")
        if done.status != 0 or not state:
            raise UsageError(f"Slurm has no job {job} that has not ended: squeue --me lists yours.")
        if state != "RUNNING":
            raise UsageError(f"job {job} is {state.lower()}: a check beside it needs a job that runs.")
        return expand([nodes])


def outputs_by_node(output: bytes) -> dict[str, bytes]:
    """Return what each task of a wide step wrote: the first line names its node, the rest is in base64.

    A task whose text was broken off has as much of it as can be decoded.
    """
    lines: dict[bytes, list[bytes]] = {}
    for label, line in _LABEL.findall(output):
        lines.setdefault(label, []).append(line)
    outputs: dict[str, bytes] = {}
    for name, *rest in lines.values():
        text = b"".join(rest)
        with contextlib.suppress(binascii.Error):
            outputs[name.decode(errors="replace")] = base64.b64decode(text[: len(text) // 4 * 4])
    return outputs


class _NotGiven(Done):
    """A node on which nothing was started, because Slurm did not give it."""


def _refused(text: str, seconds: float = 0.0) -> Done:
    return _NotGiven(1, b"", text, seconds, reason=NoReport.NOT_USABLE)


def _last_error(text: str) -> str:
    """Return the last line that says why; lines that only say that a job ended follow it."""
    return next(line for line in reversed(text.splitlines()) if " error: " in line)


def _with_line(done: Done, line: str) -> Done:
    return replace(done, errors=f"{done.errors.rstrip()}\n{line}".lstrip())
