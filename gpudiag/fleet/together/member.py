"""What a node does: it takes its port, adds alone, meets the others, and adds with them. Returns what it saw."""

from __future__ import annotations

import asyncio
import json
import os
import re
import time
from typing import Any
from urllib.parse import unquote

import msgspec

from gpudiag.errors import UsageError
from gpudiag.fleet.together import training
from gpudiag.fleet.together.judging import summarized
from gpudiag.fleet.together.meeting import CONNECT_S, Meeting
from gpudiag.fleet.together.planning import unpacked
from gpudiag.fleet.together.surroundings import interfaces, proxy, variables, without_passwords
from gpudiag.fleet.together.trainer import EndedError, Trainer
from gpudiag.model.frame import SUMMARY, framed
from gpudiag.model.together import Place, Stage, Sum, Task, Witness

IMPORT_S = 120.0
ALONE_S = 120.0
"""The most that a node may take to import TensorFlow and to add alone; the others wait as long."""
CLUSTER_S = 60.0
"""How long TensorFlow may take to connect to all."""
PROXY_S = 20.0
"""The same where gRPC is told a proxy, which it asks even for 127.0.0.1: not connected after 60 s (measured, 2.21)."""
FIRST_S = 45.0
"""How long the first exchange of a way may take: NCCL may take 25 s to begin."""
STEP_S = 20.0
"""How long another step may take. TensorFlow names a stopped process after 10 s (measured, 2.21)."""
ALONE_TIMES = 3
"""How often a node adds each vector alone."""
LOOK_S = 1.0
"""Between two looks whether the others' TensorFlow listens."""
SILENT_S = 10.0
"""How long the port of a node may be closed before it counts as having left: importing is done by then."""
_TASK = re.compile(r"/job:worker/(?:replica:0/)?task:(\d+)")
_LEADER = re.compile(r"coordination service.{0,200}(?:leader|not reachable)|[Ee]ither the leader task", re.DOTALL)


def report_of(node: str, word: str) -> str:
    """Run this node's part of the task in a word of a command line; return its summary as a framed line.

    Raises :class:`gpudiag.errors.UsageError` if there is no such task, or if this node is not in it.
    """
    task = unpacked(word)
    if node not in [place.node for place in task.places]:
        raise UsageError(f"{node!r} is not a node of this task.")
    began = time.monotonic()
    witness = testify(task, node)
    return framed(msgspec.json.encode(summarized(witness, task, time.monotonic() - began)), SUMMARY)


def testify(task: Task, node: str) -> Witness:
    """Run this node's part of a task, and return what it saw."""
    index = next(number for number, place in enumerate(task.places) if place.node == node)
    alone, together = Trainer(), Trainer()  # forked before there is a loop or a thread
    try:
        return asyncio.run(_Member(task, index, alone, together).run())
    finally:
        alone.end()
        together.end()


class _Member:
    def __init__(self, task: Task, index: int, alone: Trainer, together: Trainer) -> None:
        self._task, self._index = task, index
        self._alone, self._together = alone, together
        self._meeting = Meeting(task, index)
        addresses = [place.address for number, place in enumerate(task.places) if number != index]
        self._seen: dict[str, Any] = {
            "variables": variables(),
            "proxy": proxy(addresses),
            "interfaces": interfaces(),
        }
        self._ready_at: float | None = None
        """When this node had added alone."""
        self._began = time.monotonic()
        self._closed: dict[int, str] = {}
        """Nodes whose port is closed when TensorFlow connects to them, and what a connection ends with."""

    async def run(self) -> Witness:
        met_from = time.time()
        await self._meeting.listen()
        lonely = asyncio.ensure_future(self._add_alone())
        try:
            there = await self._meeting.hold(self._left_s)
        finally:
            lonely.cancel()
            await self._meeting.close()
        own = self._meeting.states[self._index]
        self._seen["met_at"] = (round(met_from, 1), round(time.time(), 1))
        self._seen |= {"fault": own.fault, "kind": own.kind, "route": self._route(self._meeting.route)}
        stage = Stage.MEETING
        if own.fault:
            stage = Stage.PORT if own.kind.startswith("port") else Stage.ALONE if own.kind == "alone" else stage
        elif self._ready_at is None:
            stage = Stage.ALONE
        self._seen["told"] = {
            self._task.places[other].node: state.fault
            for other, state in self._meeting.states.items()
            if other != self._index and state.fault
        }
        self._seen["peers"] = self._meeting.unanswered() if not there else ()
        gpus = {self._task.places[other].node: state.gpus for other, state in self._meeting.states.items()}
        if there and len(set(gpus.values())) > 1:
            self._seen["unlike"] = gpus
        elif there:
            real = all(state.real for state in self._meeting.states.values())
            stage = await self._add_together([training.RING, *([training.NCCL] if real else [])], real)
        if stage is Stage.MEETING:
            self._seen["waited_s"] = round(time.monotonic() - (self._ready_at or self._began), 1)
        return Witness(self._task.places[self._index].node, self._index, stage, **self._seen)

    def _left_s(self) -> float:
        """Return how long this node still waits for the others: longer while it, or another, adds alone."""
        now = time.monotonic()
        if self._ready_at is None:
            return self._began + IMPORT_S + ALONE_S + self._task.wait_s - now
        busy = any(state.alone and not state.fault for state in self._meeting.states.values())
        return self._ready_at + max(self._task.wait_s, (IMPORT_S + ALONE_S) * busy) - now

    async def _add_alone(self) -> None:
        """Import TensorFlow in both processes, and add alone in one."""
        try:
            self._alone.order()
            self._seen["tensorflow"] = (await self._alone.note(IMPORT_S))["version"]
            self._alone.order(ways=[training.RING], sizes=(), times=ALONE_TIMES, environ=_environ({}))
            sums = []
            while (note := await self._alone.note(ALONE_S))["step"] != "done":
                if note["step"] == "gpus":
                    self._seen["models"] = tuple(note["models"])
                elif note["step"] == "sum":
                    sums.append(_sum(note))
                elif note["step"] == "error":
                    raise EndedError(f"{note['type']}: {note['message']}")
            self._seen["alone"] = tuple(sums)
            self._alone.end()
            self._together.order()
            await self._together.note(IMPORT_S)
        except asyncio.TimeoutError:
            self._fail("TensorFlow hung when this node added alone")
        except (EndedError, KeyError) as error:
            self._fail(f"TensorFlow failed when this node added alone: {_first_line(str(error))}")
            self._seen["error"] = _tail(str(error), self._alone.output)
        else:
            if any(total.wrong or total.own_wrong for total in self._seen["alone"]):
                self._fail("the sums of this node alone are wrong")
            models = self._seen["models"]
            self._ready_at = time.monotonic()
            real = training.sizes_on(models) == training.SIZES
            self._meeting.change(alone=False, gpus=len(models), tensorflow=self._seen["tensorflow"], real=real)

    def _fail(self, fault: str) -> None:
        if not self._meeting.states[self._index].fault:
            self._meeting.change(fault=fault, kind="alone")

    async def _add_together(self, ways: list[str], real: bool) -> Stage:
        """Add with the others, and return how far that came."""
        cluster = {"worker": [place.target for place in self._task.places]}
        config = json.dumps({"cluster": cluster, "task": {"type": "worker", "index": self._index}})
        sizes = training.SIZES if real else training.SMALL_SIZES
        planned = training.planned(ways, self._task.times)
        self._seen["planned"] = planned
        self._together.order(ways=ways, sizes=sizes, times=self._task.times, environ=_environ({"TF_CONFIG": config}))
        counts = dict.fromkeys(("begin", "ready", "end"), 0)
        sums: list[Sum] = []
        cluster_s = PROXY_S if self._seen["proxy"] else CLUSTER_S
        stage, limit_s, began = Stage.CLUSTER, cluster_s, time.monotonic()
        watch = asyncio.ensure_future(self._watch_ports())
        try:
            while (note := await self._together.note(limit_s))["step"] != "done":
                began = time.monotonic()
                if note["step"] == "made":
                    stage = Stage.SUMS
                    watch.cancel()
                if note["step"] in counts:
                    counts[note["step"]] += 1
                elif note["step"] == "sum":
                    sums.append(_sum(note))
                elif note["step"] == "error":
                    raise EndedError(f"{note['type']}: {note['message']}")
                first = counts["end"] % (planned // len(ways)) == 0
                limit_s = cluster_s if stage is Stage.CLUSTER else FIRST_S if first else STEP_S
            stage = Stage.DONE
            await self._leave()
        except asyncio.TimeoutError:
            self._seen |= {"error": f"nothing happened for {limit_s:.0f} s", "by_limit": True}
            if self._together.is_stopped:
                self._seen |= {
                    "fault": "TensorFlow's process is stopped, by a signal such as SIGSTOP",
                    "kind": "stopped",
                }
        except EndedError as error:
            text = _tail(str(error), self._together.output)
            self._seen |= {"error": text, "accused": accused(text, self._task.places, self._index)}
        finally:
            watch.cancel()
        if self._closed:
            names = tuple(self._task.places[other].node for other in self._closed)
            text = "; ".join(f"{self._task.places[other].target}: {why}" for other, why in self._closed.items())
            self._seen |= {"error": f"TensorFlow does not listen at {text}", "accused": names, "by_limit": False}
        self._seen |= {"begun": counts["begin"], "ready": counts["ready"], "ended": counts["end"], "sums": tuple(sums)}
        self._seen |= {"log": tuple(self._together.nccl), "waited_s": round(time.monotonic() - began, 1)}
        return stage

    async def _watch_ports(self) -> None:
        """End TensorFlow here if that of another node does not listen: it would wait for it, without a word."""
        since: dict[int, float] = {}
        others = [other for other in range(len(self._task.places)) if other != self._index]
        while not self._closed:
            await asyncio.sleep(LOOK_S)
            answers = dict(zip(others, await asyncio.gather(*map(self._knock, others)), strict=True))
            now = time.monotonic()
            since = {other: since.get(other, now) for other, answer in answers.items() if answer}
            self._closed = {other: answers[other] for other, began in since.items() if now - began > SILENT_S}
        self._together.end()

    async def _knock(self, other: int) -> str:
        """Return "" if a connection to another node's port is accepted, or why it is not."""
        place = self._task.places[other]
        try:
            _, writer = await asyncio.wait_for(asyncio.open_connection(place.address, place.port), CONNECT_S)
        except asyncio.TimeoutError:
            return "no answer"
        except OSError as error:
            return os.strerror(error.errno) if error.errno else str(error)
        writer.close()
        return ""

    async def _leave(self) -> None:
        """Wait until the others have added all, too; what goes wrong then is of no importance."""
        try:
            await self._together.note(STEP_S)
        except (asyncio.TimeoutError, EndedError):
            return

    def _route(self, address: str) -> str:
        name = next((each.name for each in self._seen["interfaces"] if address in each.addresses), "")
        return f"{address} ({name})" if name else address


def accused(text: str, places: tuple[Place, ...], index: int) -> tuple[str, ...]:
    """Return the other nodes that an error of TensorFlow names, by their task or their address.

    An error that one node hands on to the next names the first to fail first.
    """
    text = unquote(text)  # gRPC writes the brackets of IPv6 as %5B and %5D
    mentions = [(match.start(), int(match[1])) for match in _TASK.finditer(text)]
    for number, place in enumerate(places):
        target = rf"(?<![\w.-]){re.escape(place.target)}(?!\d)"
        mentions += [(match.start(), number) for match in re.finditer(target, text)]
    tasks = dict.fromkeys(task for _, task in sorted(mentions) if task != index and task < len(places))
    if not tasks and index and _LEADER.search(text):
        tasks = {0: None}
    return tuple(places[task].node for task in tasks)


def _environ(more: dict[str, str]) -> dict[str, str]:
    """Return variables for TensorFlow; NCCL says which interface it takes only if it is asked."""
    debug = {} if "NCCL_DEBUG" in os.environ else {"NCCL_DEBUG": "INFO", "NCCL_DEBUG_SUBSYS": "INIT,NET"}
    return {"TF_FORCE_GPU_ALLOW_GROWTH": "true", **debug, **more}


def _sum(note: dict[str, Any]) -> Sum:
    return Sum(note["way"], note["bytes"], note["seconds"], note["wrong"], tuple(note["devices"]), note["own_wrong"])


def _first_line(text: str) -> str:
    return next((line.strip() for line in text.splitlines() if line.strip()), "")[:300]


def _tail(error: str, log: str) -> str:
    """Return an error, and the lines of the log that say more: those of level E and F."""
    lines = [line for line in log.splitlines() if re.search(r": [EF] |^[EF]\d{4} ", line[:60])]
    return without_passwords("\n".join([error[:4000], *(line[:500] for line in lines[-5:])]))
