"""The engine ``dask``: a Dask cluster that is there. One worker of each host starts the check as a child.

No worker imports TensorFlow for it, and none needs a gpudiag among its modules: the function that starts the child
travels by value.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import platform
import re
import sys
import time
import uuid
import warnings
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import msgspec

from gpudiag.errors import UsageError, shortage
from gpudiag.fleet import process
from gpudiag.fleet.engines import EngineOptions, Roster, Rule
from gpudiag.fleet.launcher import Done
from gpudiag.fleet.names import is_name
from gpudiag.fleet.process import run_program
from gpudiag.model.fleet import NoReport
from gpudiag.text import listed, one_line

ADDRESS = "DASK_SCHEDULER_ADDRESS"
"""The variable from which Dask's own clients take the address of a scheduler."""
CONNECT_S = 10
ANSWER_S = 30.0
"""The most seconds for an answer that needs no work. A worker whose tasks hold the interpreter's lock answers late."""
_MASK = "CUDA_VISIBLE_DEVICES"


class Engine:
    """Asks one worker of each host of a Dask cluster."""

    reasons: Sequence[Rule] = ()
    most_at_once = 50
    """Dask times out while it connects to more than about 100 workers at once (dask/distributed issue 5095), and half
    of them are for short questions."""

    def __init__(self, options: EngineOptions) -> None:
        self._address = options.address or os.environ.get(ADDRESS, "")
        self._hosts: frozenset[str] = frozenset()
        self._workers: dict[str, list[str]] = {}
        """For each host and each worker's name, the addresses of the host's workers; the one that is asked is first."""
        self._client: Any = None
        self._questions = asyncio.Semaphore(self.most_at_once)

    async def roster(self, names: tuple[str, ...]) -> Roster:
        """Return the hosts of the cluster, or those of these names; a worker's name stands for its host as well.

        Hosts whose workers have one address, as behind a tunnel, are told apart by the names of workers alone.
        """
        async with self._connected() as hosts:
            pass
        if not hosts:
            raise UsageError(f"the Dask scheduler at {self._address} has no workers.")
        why = f"the Dask scheduler at {self._address} has no host and no worker of this name"
        not_usable = {name: why for name in names if name not in self._workers}
        not_usable |= {
            host: "no name of a node; give the name of one of its workers"
            for host in hosts
            if not names and not is_name(host)
        }
        return Roster(names or hosts, not_usable, {})

    async def addresses(self, nodes: Sequence[str]) -> dict[str, str]:
        """Return the address of each host by which the workers of Dask reach each other."""
        hosts = {node: urlsplit(self._workers[node][0]).hostname for node in nodes if node in self._workers}
        return {node: host for node, host in hosts.items() if host}

    @contextlib.asynccontextmanager
    async def opened(self, nodes: Sequence[str], deadline_s: float) -> AsyncIterator[None]:
        """Keep a connection to the scheduler."""
        del nodes, deadline_s
        async with self._connected():
            yield

    async def run(self, node: str, argv: Sequence[str], deadline_s: float, given: bytes | None = None) -> Done:
        """Run a command on a host, with all GPUs that the workers there have."""
        began = time.monotonic()
        workers = self._workers.get(node, [])
        token = uuid.uuid4().hex
        begun = False
        try:
            if not workers:
                raise _NoAnswerError(NoReport.NOT_USABLE, f"the Dask scheduler at {self._address} no longer has it")
            async with self._questions:
                seen = await asyncio.gather(*(self._call(worker, ANSWER_S, _machine_and_mask) for worker in workers))
            machines = sorted({machine for machine, _ in seen})
            if node in self._hosts and len(machines) > 1:  # behind a tunnel, all have its address
                text = f"its workers are on {listed(machines, 4)}; give the names of workers, one on each"
                raise _NoAnswerError(NoReport.NOT_USABLE, one_line(text))
            command = [*_unmasked([mask for machine, mask in seen if machine == seen[0][0]]), *argv]
            begun = True
            limit_s = deadline_s + 3 * process.GRACE_S
            return Done.of(*await self._call(workers[0], limit_s, _run_on_worker, token, command, deadline_s, given))
        except _NoAnswerError as error:
            lost = begun and error.reason is NoReport.UNREACHABLE
            reason = NoReport.LOST if lost else error.reason
            return Done(None, b"", str(error), time.monotonic() - began, reason=reason)
        except asyncio.CancelledError:
            if begun:
                with contextlib.suppress(_NoAnswerError):
                    await self._call(workers[0], process.GRACE_S, _end_on_worker, token)
            raise

    async def _call(self, worker: str, limit_s: float, function: Callable[..., Any], *arguments: object) -> Any:
        """Call a function on a worker; raises :class:`_NoAnswerError`.

        ``client.run`` itself waits for ever for a worker that is frozen, or that is no longer there.
        """
        try:
            running = self._client.run(function, *arguments, workers=[worker], on_error="return")
            answer = (await asyncio.wait_for(running, limit_s))[worker]
        except (asyncio.TimeoutError, KeyError):
            raise _NoAnswerError(NoReport.NO_ANSWER, f"worker {worker} has not answered within {limit_s:g} s") from None
        except Exception as error:
            answer = error
        if isinstance(answer, OSError):  # CommClosedError is one of them
            raise _NoAnswerError(NoReport.UNREACHABLE, one_line(f"worker {worker}: {answer}"))
        if isinstance(answer, Exception):
            text = f"worker {worker}: {type(answer).__name__}: {answer}"
            if function is _run_on_worker:
                theirs = await self._call(worker, ANSWER_S, platform.python_version)
                if theirs.split(".")[:2] != platform.python_version().split(".")[:2]:
                    text = f"the workers have Python {theirs}, and this is {platform.python_version()}: {text}"
            raise _NoAnswerError(NoReport.NOT_STARTED, one_line(text))
        return answer

    @contextlib.asynccontextmanager
    async def _connected(self) -> AsyncIterator[tuple[str, ...]]:
        """Keep a connection, and yield the hosts; raises :class:`UsageError` if the scheduler does not answer."""
        try:
            import cloudpickle
            from distributed import Client
        except ModuleNotFoundError:
            raise UsageError("the engine 'dask' needs the package distributed: pip install distributed") from None
        cloudpickle.register_pickle_by_value(process)
        cloudpickle.register_pickle_by_value(sys.modules[__name__])
        logging.getLogger("distributed").setLevel(logging.CRITICAL)
        address = self._scheduler()
        client = None
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # versions that differ: a worker that cannot run it says so
                client = Client(  # type: ignore[no-untyped-call]
                    address, asynchronous=True, timeout=CONNECT_S, set_as_default=False
                )
                self._client = await asyncio.wait_for(client, 2 * CONNECT_S)
            facts = await asyncio.wait_for(_workers_of(self._client), ANSWER_S)
        except Exception as error:
            await _close(client)
            text = one_line(str(error)) or type(error).__name__
            raise UsageError(f"the Dask scheduler at {address} does not answer: {text}") from None
        try:
            yield self._take(facts)
        finally:
            await _close(client)

    def _scheduler(self) -> str:
        """Return the address of the scheduler, which may be in its file; raises :class:`UsageError`."""
        address = self._address
        if not address:
            raise UsageError(
                f"which scheduler? Give --address tcp://HOST:8786, or its scheduler file, or set {ADDRESS}."
            )
        if "://" in address or not ("/" in address or address.endswith(".json")):
            return address
        try:
            content = msgspec.json.decode(Path(address).read_bytes(), type=_SchedulerFile)
        except OSError as error:
            raise UsageError(f"{address}: cannot be read: {shortage(error)}.") from None
        except msgspec.MsgspecError as error:
            raise UsageError(f"{address}: is not the file of a Dask scheduler: {error}.") from None
        return content.address

    def _take(self, workers: dict[str, dict[str, Any]]) -> tuple[str, ...]:
        """Take what the scheduler says of its workers, by their addresses, and return the hosts."""
        hosts: dict[str, list[str]] = {}
        for address, facts in sorted(workers.items()):
            hosts.setdefault(str(facts["host"]), []).append(address)
        self._workers = {
            str(facts["name"]): [address, *(other for other in hosts[str(facts["host"])] if other != address)]
            for address, facts in workers.items()
        } | hosts
        self._hosts = frozenset(hosts)
        return tuple(hosts)


class _SchedulerFile(msgspec.Struct):
    address: str


class _NoAnswerError(Exception):
    """A worker did not do what it was asked."""

    def __init__(self, reason: NoReport, text: str) -> None:
        super().__init__(text)
        self.reason = reason


async def _workers_of(client: Any) -> dict[str, dict[str, Any]]:
    """Return what the scheduler knows of each worker, by its address."""
    try:
        identity = await client.scheduler.identity(n_workers=-1)
    except TypeError:  # as of distributed 2024.8, which takes no number and returns all
        identity = await client.scheduler.identity()
    workers: dict[str, dict[str, Any]] = identity["workers"]
    return workers


async def _close(client: Any) -> None:
    with contextlib.suppress(Exception):
        await asyncio.wait_for(client.close(), process.GRACE_S)


def _unmasked(masks: Sequence[str | None]) -> list[str]:
    """Return the words that give a command all GPUs of a host.

    dask-cuda starts a worker for each GPU, and each has another ``CUDA_VISIBLE_DEVICES``: the host's list is what these
    have together. If all workers have the same, it is the host's own and stays as it is, also if it hides GPUs.
    """
    if len(set(masks)) < 2:
        return []
    if None in masks:  # a worker without a mask has them all
        return ["env", "-u", _MASK]
    gpus = dict.fromkeys(gpu for mask in masks if mask for gpu in re.findall(r"[^,\s]+", mask))
    if all(gpu.isdecimal() for gpu in gpus):  # otherwise UUIDs, whose order is as good as any
        gpus = dict.fromkeys(sorted(gpus, key=int))
    return ["env", f"{_MASK}={','.join(gpus)}"]


def _machine_and_mask() -> tuple[str, str | None]:
    return platform.node(), os.environ.get(_MASK)


async def _run_on_worker(
    token: str, argv: Sequence[str], deadline_s: float, given: bytes | None, dask_worker: Any
) -> tuple[int | None, bytes, str, float, str]:
    """Run a command as a child of a worker, whose event loop goes on meanwhile; :func:`_end_on_worker` ends it."""
    tasks = dask_worker.__dict__.setdefault("_gpudiag_tasks", {})
    tasks[token] = asyncio.current_task()
    try:
        return await run_program(argv, deadline_s, given=given)
    finally:
        del tasks[token]


def _end_on_worker(token: str, dask_worker: Any) -> None:
    """End what :func:`_run_on_worker` runs: a worker does not notice that its client has gone."""
    task = dask_worker.__dict__.get("_gpudiag_tasks", {}).get(token)
    if task is not None:
        task.cancel()
