"""A GPU that hangs is waited for once: what is asked of it, and what follows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import msgspec
import pytest

from gpudiag.isolate import Ended, Job
from gpudiag.model.facts import Call, Unknown
from gpudiag.model.report import RUN_ENDED, Cause
from gpudiag.run import answers, gathering
from gpudiag.run.answers import Answers
from reports import GPUS

FIRST, SECOND = GPUS


class Children:
    """Notes the jobs that are begun."""

    def __init__(self) -> None:
        self.jobs: list[Job] = []

    def start(self, job: Job) -> None:
        self.jobs.append(job)


def ended(key: str, cause: Cause | None = None, stderr: str = "") -> Ended:
    return Ended(key, None if cause else b"[]", cause, "", "", stderr, 10.0)


def asked(*, timeout_s: float | None = None) -> tuple[Answers, Children]:
    children = Children()
    return Answers(children, "plain", timeout_s), children  # type: ignore[arg-type]


def keys(jobs: Sequence[Job]) -> list[str]:
    return [job.key for job in jobs]


def test_a_gpu_that_does_not_answer_is_silent_and_the_call_is_known() -> None:
    gpus, children = asked()
    gpus.late("memory.growth", (FIRST,))
    gpus.late("memory.limit", (FIRST,))  # it is being asked already
    (job,) = children.jobs
    assert (job.env, job.deadline_s) == ({"CUDA_VISIBLE_DEVICES": FIRST.uuid}, answers.ANSWER_S)
    assert gpus.asked == (FIRST.uuid,)
    why = gpus.hear(
        ended(FIRST.uuid, Cause.TIMEOUT, "gpudiag call: cuInit\ngpudiag call: cuInit 0.1\ngpudiag call: x\n")
    )
    assert why == "GPU 0 hangs, as memory.growth showed first: x did not return within 10 s"
    call, _ = gpus.silent[FIRST.uuid]
    assert call is not None
    assert (call.name, call.gpu, call.seconds) == ("x", FIRST.uuid, None)
    gpus.late("memory.fraction", (FIRST, SECOND))
    assert keys(children.jobs) == [FIRST.uuid, SECOND.uuid]


def test_a_gpu_that_answers_late_is_slow_and_does_not_hang() -> None:
    gpus, _ = asked()
    gpus.late("discovery.first_op", (SECOND,))
    said = "gpudiag call: cuInit\ngpudiag call: cuInit 0.1\ngpudiag call: retain\ngpudiag call: retain 25.0\n"
    assert gpus.hear(ended(SECOND.uuid, stderr=said)) is None
    assert [(one.name, one.gpu) for one in gpus.calls] == [("retain", SECOND.uuid)]
    assert gpus.slowest is not None
    assert gpus.slowest.seconds == 25.0


def test_a_call_that_a_probe_is_stuck_in_makes_its_gpus_silent() -> None:
    gpus, _ = asked()
    slow = Call("cudnnCreate", 12.0, FIRST.uuid, probe="libraries.cudnn")
    gpus.took(slow)
    gpus.took(msgspec.structs.replace(slow, seconds=11.0))
    assert (gpus.slowest, gpus.calls) == (slow, (slow,))
    library = msgspec.structs.replace(slow, seconds=None, waited_s=35.2)
    assert gpus.stuck(library, GPUS) == "cudnnCreate did not return within 35 s"
    assert gpus.silent.keys() == {FIRST.uuid, SECOND.uuid}, "a library is the same for all GPUs"
    assert "as libraries.cudnn showed first" in gpus.silent[SECOND.uuid][1]
    assert gpus.calls == (library,), "it is not slow, too"


def test_of_a_call_of_the_driver_the_gpu_alone_is_silent() -> None:
    gpus, _ = asked()
    gpus.stuck(Call("cuMemAlloc", None, SECOND.uuid, 35.2, "memory.growth"), GPUS)
    assert gpus.silent.keys() == {SECOND.uuid}
    gpus.stuck(Call("", None, "", 35.2, "placement.log"), (FIRST,))
    assert gpus.silent[FIRST.uuid][1].endswith("a process did nothing within 35 s")
    assert [call.name for call in gpus.calls] == ["cuMemAlloc"]


@pytest.mark.parametrize("cause", [None, Cause.EXCEPTION, Cause.SIGNAL, Cause.INTERRUPTED])
def test_a_gpu_that_answers_is_given_up_after_the_second_probe(cause: Cause | None) -> None:
    gpus, _ = asked()
    gpus.late("memory.growth", (FIRST,))
    assert gpus.hear(ended(FIRST.uuid, cause)) is None
    assert not gpus.silent
    gpus.late("memory.limit", (FIRST,))
    call, why = gpus.silent[FIRST.uuid]
    assert call is None, "no call is known that hangs"
    assert why.startswith("two probes on GPU 0 got no result in time, memory.limit the second")


def test_a_gpu_is_asked_early_once_and_that_is_no_offence(monkeypatch: pytest.MonkeyPatch) -> None:
    gpus, children = asked()
    gpus.begun("a")
    gpus.waits("a", "discovery.first_op", (FIRST,))
    assert not children.jobs
    monkeypatch.setattr(answers, "SUSPECT_S", 0.0)
    gpus.waits("a", "discovery.first_op", (FIRST,))
    assert gpus.hear(ended(FIRST.uuid)) is None
    gpus.waits("a", "discovery.first_op", (FIRST,))
    gpus.late("discovery.first_op", (FIRST,))
    assert keys(children.jobs) == [FIRST.uuid] * 2
    assert not gpus.silent


def test_the_end_of_the_run_says_nothing_of_a_gpu() -> None:
    gpus, _ = asked()
    gpus.late("memory.growth", (FIRST,))
    by_the_run = replace(ended(FIRST.uuid, Cause.TIMEOUT), detail=f"the deadline of 2 s {RUN_ENDED}")
    assert gpus.hear(by_the_run) is None
    assert not gpus.silent
    assert gathering._family(replace(by_the_run, key="calls")) == Unknown(f"gathering it failed: {by_the_run.detail}")


def test_a_slow_driver_gets_time() -> None:
    gpus, children = asked(timeout_s=3.0)
    gpus.driver_s = 25.0
    gpus.late("memory.growth", (FIRST,))
    assert children.jobs[0].deadline_s == 53.0
