"""The engine ``kubernetes``: a Job for each node, by the user's kubectl.

One ``kubectl get`` asks for the Jobs and pods of all nodes at a time. Jobs end by themselves and are removed by the
cluster if the collector dies; otherwise the collector deletes them.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import math
import re
import secrets
import shlex
import time
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import msgspec

from gpudiag.errors import GpudiagError, UsageError
from gpudiag.fleet.engines import EngineOptions, Roster, Rule
from gpudiag.fleet.kubernetes import manifests
from gpudiag.fleet.kubernetes.kubectl import AT_ONCE, Kubectl, Together, explained, fault_of
from gpudiag.fleet.kubernetes.nodes import JSONPATH, ClusterNode, parsed, roster
from gpudiag.fleet.kubernetes.pods import CONTAINER, Item, PodState, items_in, newest, state_of
from gpudiag.fleet.launcher import Done
from gpudiag.model.fleet import NoReport
from gpudiag.model.frame import reports_in
from gpudiag.text import one_line, say

_TOGETHER = 10
"""The most Jobs that one kubectl creates, reads the logs of, or deletes."""
_PREFIXED = re.compile(rb"\[pod/([\w.-]+)/[\w-]+\] (.*)", re.DOTALL)
"""A line of ``kubectl logs --prefix``."""
_CLEANUP_S = 60
"""How much longer than its node's limit a Job may live; one that ended stays ten times as long if nobody deletes it."""


@dataclass
class _Watched:
    """A Job that is waited for."""

    node: str
    over: asyncio.Future[PodState]
    began: float
    pod: Item | None = None
    state: PodState = field(default_factory=lambda: PodState("it has no pod yet", NoReport.NOT_STARTED))
    stuck_since: float | None = None


class Engine:
    """Checks nodes by Jobs in the namespace of the user's kubectl."""

    reasons: Sequence[Rule] = ()
    takes_input = False
    most_at_once = 200
    poll_s = 2.0
    patience_s = 60.0
    """How long a pod may be unable to go on, for a reason that seldom passes by itself."""

    def __init__(self, options: EngineOptions) -> None:
        self._gpus = options.gpus
        self._run = options.run or "by-hand"
        self._base = manifests.base_job(options.image, None if options.manifest is None else Path(options.manifest))
        # Jobs are looked for and deleted where they are created: the namespace of a file becomes that of every command.
        namespace = self._base.setdefault("metadata", {}).pop("namespace", "")
        self._kubectl = Kubectl((*((f"--namespace={namespace}",) if namespace else ()), *options.options))
        if options.manifest is None:
            self._base["spec"]["ttlSecondsAfterFinished"] = 10 * _CLEANUP_S
        self._nodes: dict[str, ClusterNode] = {}
        self._watched: dict[str, _Watched] = {}
        self._fault = ""
        """Why the last look at the pods failed."""
        self._start = secrets.token_hex(2)
        """A word of this process: a Job of a collector that was killed may still be there while it is deleted."""
        self._number = 0
        self._created: set[str] = set()
        """The Jobs that are not deleted yet."""
        self._create = Together(self._create_jobs, _TOGETHER)
        self._read = Together(self._read_logs, _TOGETHER)
        self._delete = Together(self._delete_jobs, _TOGETHER)
        self._alone = asyncio.Semaphore(AT_ONCE)

    async def roster(self, names: tuple[str, ...]) -> Roster:
        """Return the nodes with these names, or all that have GPUs; raises :class:`UsageError`."""
        await self._look_at_nodes()
        await self._refuse_missing_rights()
        return roster(self._nodes, names, self._gpus, manifests.tolerations(self._base))

    async def _look_at_nodes(self) -> None:
        done = await self._kubectl("get", "nodes", "-o", JSONPATH)
        if fault := fault_of(done):
            raise UsageError(f"{fault}.")
        self._nodes = parsed(done.output.decode(errors="replace"))

    async def _refuse_missing_rights(self) -> None:
        """Raise :class:`UsageError` if this user may not do what a check needs."""
        rights = (("create", "jobs.batch"), ("delete", "jobs.batch"), ("list", "pods"), ("get", "pods", "log"))
        answers = await asyncio.gather(
            *(
                self._kubectl("auth", "can-i", *right[:2], *(f"--subresource={word}" for word in right[2:]))
                for right in rights
            )
        )
        missing = [
            " ".join((right[0], "/".join(right[1:])))
            for right, answer in zip(rights, answers, strict=True)
            if answer.output.split()[:1] == [b"no"]
        ]
        if missing:
            raise UsageError(
                f"this user of the cluster may not {', '.join(missing)} in this namespace: 'gpudiag fleet manifest "
                "rbac' prints the role that is needed, and --engine-option=--namespace=NAME takes another namespace."
            )

    @contextlib.asynccontextmanager
    async def opened(self, nodes: Sequence[str], deadline_s: float) -> AsyncIterator[None]:
        """Watch the pods of this run, and delete its Jobs at the end, also those of a collector that was killed."""
        del nodes, deadline_s
        if not self._nodes:
            await self._look_at_nodes()
        selector = f"{manifests.RUN_LABEL}={self._run}"
        deletion = ("delete", "jobs", "-l", selector, "--ignore-not-found", "--wait=false")
        if fault := fault_of(await self._kubectl(*deletion, deadline_s=_CLEANUP_S * 5)):
            raise UsageError(f"{fault}.")
        watching = asyncio.ensure_future(self._watch(selector))
        try:
            yield
        finally:
            watching.cancel()
            await asyncio.gather(watching, return_exceptions=True)
            for together in (self._create, self._read, self._delete):
                await together.close()
            await asyncio.gather(*map(self._delete, tuple(self._created)))
            if fault := fault_of(await self._kubectl(*deletion)):
                command = (*self._kubectl.words, *deletion[:4])
                say(f"gpudiag: Jobs may be left over: {fault}. To delete them: {shlex.join(command)}")

    async def run(self, node: str, argv: Sequence[str], deadline_s: float, given: bytes | None = None) -> Done:
        """Run a command on a node; raises nothing of the engine."""
        began = time.monotonic()
        self._number += 1
        name = f"gpudiag-{self._run}-{self._start}-{self._number}"

        def done(state: PodState, output: bytes = b"") -> Done:
            seconds = time.monotonic() - began
            return Done(state.exit_status, output, state.text, seconds, reason=state.reason)

        assert given is None, "takes_input"
        tolerations = manifests.tolerations(self._base)
        if fault := roster(self._nodes, [node], self._gpus, tolerations).not_usable.get(node):
            return done(PodState(fault, NoReport.NOT_USABLE))  # it may be so since the plan was made
        gpus = self._nodes[node].allocatable_gpus if self._gpus is None else self._gpus
        job = manifests.placed(
            *(self._base, name, node, argv),
            gpus=gpus,
            labels={"app": CONTAINER, manifests.RUN_LABEL: self._run, manifests.JOB_LABEL: name},
        )
        job["spec"]["activeDeadlineSeconds"] = math.ceil(deadline_s) + _CLEANUP_S
        if fault := await self._create(job):
            refused = "forbidden" in fault.lower()
            return done(PodState(fault, NoReport.REFUSED if refused else NoReport.NOT_STARTED))
        watched = _Watched(node, asyncio.get_running_loop().create_future(), time.monotonic())
        self._watched[name] = watched
        try:
            state = await asyncio.wait_for(watched.over, deadline_s)
        except asyncio.TimeoutError:
            state = watched.state
            if self._fault:
                state = PodState(f"kubectl does not answer any more: {self._fault}", NoReport.LOST)
        finally:
            del self._watched[name]
        output = b""
        if watched.pod is not None and watched.pod.has_begun:
            output, state = await self._log(watched.pod, state)
        await self._delete(name)
        return done(state, output)

    async def _log(self, pod: Item, state: PodState) -> tuple[bytes, PodState]:
        """Return the log of a pod and its termination message, and its state with the last line that was seen."""
        log = await self._read(pod)
        more = ""
        if not _has_report(log):
            async with self._alone:
                done = await self._kubectl("logs", pod.metadata.name, "-c", CONTAINER)
            fault = fault_of(done)
            log, more = done.output, f"its log cannot be read: {fault}" if fault else done.last_line
        terminated = pod.container.terminated
        message = terminated.message.encode() if terminated is not None else b""
        text = state.text if more in state.text else f"{state.text}; {more}"
        return log + b"\n" + message, replace(state, text=text)

    async def _read_logs(self, pods: list[Item]) -> list[bytes]:
        """Return the logs of pods, those that can be read by one command; one alone is read by :meth:`_log`."""
        if len(pods) == 1:
            return [b""]
        jobs = ",".join(pod.metadata.labels.get(manifests.JOB_LABEL, "") for pod in pods)
        selector = f"{manifests.JOB_LABEL} in ({jobs})"
        done = await self._kubectl(
            *("logs", "-l", selector, "-c", CONTAINER, "--prefix", "--tail=-1", "--ignore-errors")
        )
        logs: dict[str, list[bytes]] = {}
        for line in done.output.split(b"\n"):
            if prefixed := _PREFIXED.fullmatch(line):
                logs.setdefault(prefixed[1].decode(), []).append(prefixed[2])
        return [b"\n".join(logs.get(pod.metadata.name, [])) for pod in pods]

    async def _create_jobs(self, jobs: list[manifests.Document]) -> list[str]:
        """Create Jobs; return for each why it was not created, or ""."""
        names = [job["metadata"]["name"] for job in jobs]
        self._created |= {*names}  # it may be so, also if kubectl is ended before it says so
        items = {"apiVersion": "v1", "kind": "List", "items": jobs}
        done = await self._kubectl(
            "create", "-f", "-", "--validate=false", "-o", "name", given=json.dumps(items).encode()
        )
        created = {line.rpartition("/")[2] for line in done.output.decode(errors="replace").split()}
        faults = []
        for name in names:
            line = next((line for line in done.errors.splitlines() if f'"{name}"' in line), "")
            fault = explained(line) if line else fault_of(done) or "kubectl did not say that it was created"
            faults.append("" if name in created else fault)
        return faults

    async def _delete_jobs(self, names: list[str]) -> list[None]:
        """Delete Jobs whose answers were taken, so that each look at the pods lists only what still runs."""
        done = await self._kubectl("delete", "jobs", *names, "--ignore-not-found", "--wait=false")
        if not fault_of(done):
            self._created -= {*names}
        return [None] * len(names)

    async def _watch(self, selector: str) -> None:
        """Look at the Jobs and pods of this run, and end the wait for those that are over or cannot go on."""
        while True:
            await asyncio.sleep(self.poll_s)
            if not self._watched:
                continue
            asked = dict(self._watched)
            done = await self._kubectl("get", "jobs,pods", "-l", selector, "-o", "json")
            self._fault = fault_of(done)
            if self._fault:
                continue
            try:
                items = items_in(done.output)
            except msgspec.MsgspecError as error:
                self._fault = f"'kubectl get jobs,pods' printed no list: {error}"
                continue
            jobs = {item.metadata.name: item for item in items if item.kind == "Job"}
            pods = newest(item for item in items if item.kind == "Pod")
            for name, watched in asked.items():
                self._look(name, watched, jobs.get(name), pods.get(name))
            await self._ask_events(asked)

    def _look(self, name: str, watched: _Watched, job: Item | None, pod: Item | None) -> None:
        """Note what a Job does now."""
        failed = job.condition("Failed") if job is not None else None
        if pod is not None:
            watched.state, watched.pod = state_of(pod), pod
            if pod.spec.nodeName not in ("", watched.node):
                text = f"its pod was scheduled on {pod.spec.nodeName}: something changed the affinity of {name}"
                watched.state, watched.pod = PodState(text, NoReport.NOT_STARTED, is_over=True), None
        elif failed is not None and failed.status == "True":
            late = failed.reason == "DeadlineExceeded"
            text = one_line(f"{failed.reason}: {failed.message}")
            watched.state = PodState(text, NoReport.TIMED_OUT if late else NoReport.LOST, is_over=True)
        elif job is None:
            watched.state = PodState(f"its Job {name} was deleted by somebody", NoReport.LOST, is_over=True)
        elif watched.pod is not None:
            watched.state = PodState("its pod was deleted by somebody", NoReport.LOST, is_over=True)
        now = time.monotonic()
        if not watched.state.is_stuck:
            watched.stuck_since = None
        elif watched.stuck_since is None:
            watched.stuck_since = now
        is_hopeless = watched.stuck_since is not None and now - watched.stuck_since > self.patience_s
        if (watched.state.is_over or is_hopeless) and not watched.over.done():
            watched.over.set_result(watched.state)

    async def _ask_events(self, asked: dict[str, _Watched]) -> None:
        """End the wait for Jobs that get no pod, and find out why: a quota, a policy for pods, a missing account."""
        late = time.monotonic() - self.patience_s
        without = {name: watched for name, watched in asked.items() if watched.pod is None and watched.began < late}
        if not without:
            return
        done = await self._kubectl(
            *("get", "events", "--field-selector", "involvedObject.kind=Job", "-o"),
            'jsonpath={range .items[*]}{.involvedObject.name}{"\\t"}{.reason}: {.message}{"\\n"}{end}',
        )
        events = dict(line.split("\t", 1) for line in done.output.decode(errors="replace").splitlines() if "\t" in line)
        for name, watched in without.items():
            if not watched.over.done():
                text = events.get(name, f"its Job got no pod within {self.patience_s:.0f} s")
                watched.over.set_result(PodState(one_line(text), NoReport.NOT_STARTED, is_over=True))


def _has_report(log: bytes) -> bool:
    """Return whether a log has a whole report."""
    try:
        return bool(reports_in(log))
    except GpudiagError:
        return False
