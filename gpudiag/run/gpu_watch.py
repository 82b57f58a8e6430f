"""Which GPUs answer: a GPU that hangs is waited for once, and not by each probe again.

If a probe on a GPU gets no result for long, a separate process asks the GPU for a context and copies to it and back. If
that never returns either, no probe on this GPU is waited for any more.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial

from gpudiag.facts import calls
from gpudiag.isolate import Job, JobResult
from gpudiag.model.facts import SLOW_S, TimedCall
from gpudiag.model.report import RUN_ENDED, Gpu, NoReading
from gpudiag.run.jobs import Jobs

SUSPECT_S = 20.0
"""Seconds without a result after which a GPU is asked whether it answers.

A GPU is not asked while a probe measures its memory, because the test context itself takes memory.
"""
ANSWER_S = 35.0
"""How long a GPU may take to answer: one that makes its first context in 25 s is slow, and does not hang."""


def is_hang(result: JobResult) -> bool:
    """Return whether a job did not end in time; the end of the whole run does not count."""
    return result.cause in (NoReading.TIMEOUT, NoReading.UNKILLABLE) and RUN_ENDED not in result.detail


def longest(slow_calls: Iterable[TimedCall]) -> TimedCall | None:
    """Return the call that took longest; None if there is no call."""
    return max(slow_calls, key=lambda call: call.seconds or 0.0, default=None)


@dataclass(frozen=True)
class Silence:
    """Why gpudiag no longer waits for a GPU."""

    call: TimedCall | None
    """The call that never returned; None if unknown."""
    why: str


@dataclass
class WatchedGpu:
    """The state of a GPU that kept a probe waiting."""

    is_being_asked: bool = False
    was_asked_early: bool = False
    """True once the GPU was asked before the time of a probe had passed; this happens once for each GPU."""
    answered_after_timeout: bool = False
    slow_call: TimedCall | None = None
    """The slowest call while the GPU was being asked."""
    silence: Silence | None = None


class GpuWatch:
    """The GPUs that kept a probe waiting, and the calls in which probes wait for long."""

    def __init__(self, jobs: Jobs, server: str, timeout_s: float | None) -> None:
        self._jobs = jobs
        self._server = server
        self._answer_s = min(ANSWER_S, timeout_s or ANSWER_S)
        self._gpus: dict[str, WatchedGpu] = {}
        """The state of each GPU, by UUID."""
        self._slow_in_probes: dict[tuple[str, str], TimedCall] = {}
        """Name and GPU of each call that returned late to a probe, with the longest time."""
        self.driver_s = 0.0
        """Seconds that a process waits until the driver has started."""

    @property
    def is_asking(self) -> bool:
        """True while a GPU is being asked."""
        return any(gpu.is_being_asked for gpu in self._gpus.values())

    def is_asked(self, gpus: tuple[Gpu, ...]) -> bool:
        """Return whether one of ``gpus`` is being asked: nothing is begun on it until it answers."""
        return any(self._of(gpu).is_being_asked for gpu in gpus)

    def silence(self, gpus: tuple[Gpu, ...]) -> Silence | None:
        """Return why gpudiag no longer waits for one of ``gpus``; None if all of them may still answer."""
        return next((silence for gpu in gpus if (silence := self._of(gpu).silence) is not None), None)

    @property
    def slow_calls(self) -> tuple[TimedCall, ...]:
        """The calls that took long and returned."""
        asked = (gpu.slow_call for gpu in self._gpus.values() if gpu.slow_call is not None)
        return (*asked, *self._slow_in_probes.values())

    @property
    def calls(self) -> tuple[TimedCall, ...]:
        """The calls that never returned on a GPU, and the slow ones."""
        silences = (gpu.silence for gpu in self._gpus.values())
        hung = dict.fromkeys(
            silence.call for silence in silences if silence is not None and silence.call and silence.call.name
        )
        slow = (gpu.slow_call for gpu in self._gpus.values() if gpu.slow_call and gpu.silence is None)
        return (*hung, *slow, *self._slow_in_probes.values())

    def record_slow_call(self, call: TimedCall) -> None:
        """Note how long a probe waited in a call that has returned."""
        known = self._slow_in_probes.get((call.name, call.gpu))
        if known is None or (known.seconds or 0.0) < (call.seconds or 0.0):
            self._slow_in_probes[call.name, call.gpu] = call

    def give_up(self, call: TimedCall, gpus: tuple[Gpu, ...]) -> str:
        """Wait no more for the GPUs on which a probe waits in a call that does not return; return why.

        A call into a library concerns all GPUs; for a call into the driver the one affected GPU may be known.
        """
        for key in [key for key in self._slow_in_probes if key[0] == call.name]:
            del self._slow_in_probes[key]
        where = f"{call.name or 'a process'} {'did not return' if call.name else 'did nothing'}"
        for gpu in gpus:
            watched = self._of(gpu)
            if watched.silence is None and (gpu.uuid == call.gpu or not call.gpu or not call.of_driver):
                watched.silence = Silence(call, _hangs(gpu, call.probe, where, call.waited_s))
        return f"{where} within {call.waited_s:.0f} s"

    def on_long_run(self, probe: str, gpus: tuple[Gpu, ...], seconds: float) -> None:
        """Ask the GPUs of a probe that has run for ``seconds`` without a result, if that is long enough."""
        if seconds >= SUSPECT_S + 2 * self.driver_s:
            self.suspect(probe, gpus)

    def suspect(self, probe: str, gpus: tuple[Gpu, ...]) -> None:
        """Ask the GPUs of a probe before its time has passed; each GPU is asked once so early."""
        for gpu in gpus:
            if not self._of(gpu).was_asked_early:
                self._of(gpu).was_asked_early = True
                self._ask(gpu, probe, after_timeout=False)

    def on_timeout(self, probe: str, gpus: tuple[Gpu, ...]) -> None:
        """Ask the GPUs of a probe that timed out; a second timeout on a GPU counts as an answer by itself."""
        for gpu in gpus:
            watched = self._of(gpu)
            if watched.answered_after_timeout and watched.silence is None:
                why = f"two probes on GPU {gpu.index} got no result in time, last {probe}, though the GPU answers"
                watched.silence = Silence(None, why)
            else:
                self._ask(gpu, probe, after_timeout=True)

    def _of(self, gpu: Gpu) -> WatchedGpu:
        return self._gpus.setdefault(gpu.uuid, WatchedGpu())

    def _ask(self, gpu: Gpu, probe: str, *, after_timeout: bool) -> None:
        watched = self._of(gpu)
        if watched.is_being_asked or watched.silence is not None:
            return
        watched.is_being_asked = True
        env = {"CUDA_VISIBLE_DEVICES": gpu.uuid}
        deadline_s = self._answer_s + 2 * self.driver_s
        job = Job(gpu.uuid, "gpudiag.facts.calls:use_gpu", {}, deadline_s, self._server, env=env)
        self._jobs.start(job, partial(self._on_answer, gpu, probe, after_timeout))

    def _on_answer(self, gpu: Gpu, probe: str, after_timeout: bool, result: JobResult) -> None:
        """Record that a GPU has answered, or that it hangs."""
        watched = self._of(gpu)
        watched.is_being_asked = False
        if is_hang(result):
            hung = calls.of_a_child(result.stderr, gpu.uuid, result.duration_s).hung
            call = hung[0] if hung else TimedCall("a call of the driver", None, gpu.uuid, round(result.duration_s, 1))
            watched.silence = Silence(call, _hangs(gpu, probe, f"{call.name} did not return", call.waited_s))
            return
        if after_timeout and result.cause is not NoReading.BUSY:
            watched.answered_after_timeout = True
        slowest = longest(calls.of_a_child(result.stderr, gpu.uuid).calls)
        if slowest is not None and (slowest.seconds or 0.0) >= SLOW_S:
            watched.slow_call = slowest


def _hangs(gpu: Gpu, probe: str, where: str, waited_s: float) -> str:
    return f"GPU {gpu.index} hangs, as {probe} showed first: {where} within {waited_s:.0f} s"
