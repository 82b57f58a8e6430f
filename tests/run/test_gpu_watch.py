"""A GPU that hangs is waited for once: what is asked of it, and what follows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import pytest

from gpudiag.isolate import Job, JobResult
from gpudiag.model.facts import TimedCall, Unknown
from gpudiag.model.report import RUN_ENDED, Gpu, NoReading
from gpudiag.run import gathering, gpu_watch
from gpudiag.run.gpu_watch import GpuWatch, Silence
from gpudiag.run.jobs import Jobs
from reports import GPUS

FIRST, SECOND = GPUS


class Children:
    """Notes the jobs that are begun."""

    def __init__(self) -> None:
        self.jobs: list[Job] = []
        self.results: list[JobResult] = []

    def wait(self, _: float) -> list[JobResult]:
        results, self.results = self.results, []
        return results

    def start(self, job: Job) -> None:
        self.jobs.append(job)


class Watched:
    """A watch of GPUs that are asked by nobody: a test says what they answer."""

    def __init__(self, *, timeout_s: float | None = None) -> None:
        self.children = Children()
        supervision: Any = self.children
        self._jobs = Jobs(supervision)
        self.watch = GpuWatch(self._jobs, "plain", timeout_s)

    def answer(self, gpu: Gpu, cause: NoReading | None = None, stderr: str = "", detail: str = "") -> None:
        """Let the job end that asks ``gpu``."""
        self.children.results = [result(gpu.uuid, cause, stderr, detail)]
        self._jobs.poll()

    def silent(self) -> list[Gpu]:
        return [gpu for gpu in GPUS if self.watch.silence((gpu,)) is not None]

    def silence(self, gpu: Gpu) -> Silence:
        silence = self.watch.silence((gpu,))
        assert silence is not None
        return silence


def result(key: str, cause: NoReading | None = None, stderr: str = "", detail: str = "") -> JobResult:
    return JobResult(key, None if cause else b"[]", cause, detail, "", stderr, 10.0)


def keys(jobs: Sequence[Job]) -> list[str]:
    return [job.key for job in jobs]


def test_a_gpu_that_does_not_answer_is_silent_and_the_call_is_known() -> None:
    gpus = Watched()
    gpus.watch.on_timeout("memory.growth", (FIRST,))
    gpus.watch.on_timeout("memory.limit", (FIRST,))  # it is being asked already
    (job,) = gpus.children.jobs
    assert (job.env, job.deadline_s) == ({"CUDA_VISIBLE_DEVICES": FIRST.uuid}, gpu_watch.ANSWER_S)
    assert (gpus.watch.is_asked((FIRST,)), gpus.watch.is_asked((SECOND,))) == (True, False)
    gpus.answer(FIRST, NoReading.TIMEOUT, "gpudiag call: cuInit\ngpudiag call: cuInit 0.1\ngpudiag call: x\n")
    assert not gpus.watch.is_asking
    silence = gpus.silence(FIRST)
    assert silence.why == "GPU 0 hangs, as memory.growth showed first: x did not return within 10 s"
    assert silence.call is not None
    assert (silence.call.name, silence.call.gpu, silence.call.seconds) == ("x", FIRST.uuid, None)
    gpus.watch.on_timeout("memory.fraction", (FIRST, SECOND))
    assert keys(gpus.children.jobs) == [FIRST.uuid, SECOND.uuid]


def test_a_gpu_that_answers_late_is_slow_and_does_not_hang() -> None:
    gpus = Watched()
    gpus.watch.on_timeout("discovery.first_op", (SECOND,))
    said = "gpudiag call: cuInit\ngpudiag call: cuInit 0.1\ngpudiag call: retain\ngpudiag call: retain 25.0\n"
    gpus.answer(SECOND, stderr=said)
    assert not gpus.silent()
    assert [(call.name, call.gpu, call.seconds) for call in gpus.watch.calls] == [("retain", SECOND.uuid, 25.0)]
    assert gpu_watch.longest(gpus.watch.slow_calls) == gpus.watch.calls[0]


def test_a_call_that_a_probe_is_stuck_in_makes_its_gpus_silent() -> None:
    gpus = Watched()
    slow = TimedCall("cudnnCreate", 12.0, FIRST.uuid, probe="libraries.cudnn")
    gpus.watch.record_slow_call(slow)
    gpus.watch.record_slow_call(msgspec.structs.replace(slow, seconds=11.0))
    assert (gpus.watch.slow_calls, gpus.watch.calls) == ((slow,), (slow,))
    library = msgspec.structs.replace(slow, seconds=None, waited_s=35.2)
    assert gpus.watch.give_up(library, GPUS) == "cudnnCreate did not return within 35 s"
    assert gpus.silent() == [FIRST, SECOND], "a library is the same for all GPUs"
    assert "as libraries.cudnn showed first" in gpus.silence(SECOND).why
    assert gpus.watch.calls == (library,), "it is not slow, too"


def test_of_a_call_of_the_driver_the_gpu_alone_is_silent() -> None:
    gpus = Watched()
    gpus.watch.give_up(TimedCall("cuMemAlloc", None, SECOND.uuid, 35.2, "memory.growth"), GPUS)
    assert gpus.silent() == [SECOND]
    gpus.watch.give_up(TimedCall("", None, "", 35.2, "placement.log"), (FIRST,))
    assert gpus.silence(FIRST).why.endswith("a process did nothing within 35 s")
    assert [call.name for call in gpus.watch.calls] == ["cuMemAlloc"]


@pytest.mark.parametrize("cause", [None, NoReading.EXCEPTION, NoReading.SIGNAL, NoReading.INTERRUPTED])
def test_a_gpu_that_answers_is_given_up_after_the_second_probe(cause: NoReading | None) -> None:
    gpus = Watched()
    gpus.watch.on_timeout("memory.growth", (FIRST,))
    gpus.answer(FIRST, cause)
    assert not gpus.silent()
    gpus.watch.on_timeout("memory.limit", (FIRST,))
    assert gpus.silence(FIRST).call is None, "no call is known that hangs"
    assert gpus.silence(FIRST).why.startswith("two probes on GPU 0 got no result in time, last memory.limit")


def test_a_gpu_is_asked_early_once_and_that_is_no_offence() -> None:
    gpus = Watched()
    gpus.watch.on_long_run("discovery.first_op", (FIRST,), 19.9)
    assert not gpus.children.jobs
    gpus.watch.on_long_run("discovery.first_op", (FIRST,), 20.0)
    gpus.answer(FIRST)
    gpus.watch.on_long_run("discovery.first_op", (FIRST,), 21.0)
    gpus.watch.on_timeout("discovery.first_op", (FIRST,))
    assert keys(gpus.children.jobs) == [FIRST.uuid] * 2
    assert not gpus.silent()


def test_the_end_of_the_run_says_nothing_of_a_gpu() -> None:
    gpus = Watched()
    gpus.watch.on_timeout("memory.growth", (FIRST,))
    detail = f"the deadline of 2 s {RUN_ENDED}"
    gpus.answer(FIRST, NoReading.TIMEOUT, detail=detail)
    assert not gpus.silent()
    calls = result("calls", NoReading.TIMEOUT, detail=detail)
    assert gathering._family(calls) == Unknown(f"gathering it failed: {detail}")


def test_a_slow_driver_gets_time() -> None:
    gpus = Watched(timeout_s=3.0)
    gpus.watch.driver_s = 25.0
    gpus.watch.on_timeout("memory.growth", (FIRST,))
    assert gpus.children.jobs[0].deadline_s == 53.0
