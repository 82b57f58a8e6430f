"""A call in a process apart: what it sees, what comes back, and what it leaves alone."""

from __future__ import annotations

import json
import os
import signal
from contextlib import suppress
from functools import partial
from typing import Any

import msgspec
import pytest

from far_side import Children
from gpudiag.errors import Disturbed, NoContext
from gpudiag.hardware import cuda
from gpudiag.isolate import JobResult
from gpudiag.model.report import NoReading
from gpudiag.probes.common import attempt_context
from gpudiag.record import Record
from gpudiag.run import context

MODULE = "run.test_apart"
CONTEXT = context.ChildContext(())


class Seen(Record):
    """What a process apart saw."""

    pid: int
    variable: str | None
    gpus: int = 0


class ResourceExhaustedError(Exception):
    """Stands for TensorFlow's, which is known by its name."""


REFUSALS: dict[str, type[Exception]] = {
    "Bad StatusOr access: INTERNAL: CUDA error: : CUDA_ERROR_DEVICE_UNAVAILABLE": RuntimeError,
    "cudaSetDevice() on GPU:0 failed. Status: out of memory": ValueError,
    "OOM when allocating tensor with shape[16777216]": ResourceExhaustedError,
}


def call(children: Children, function: Any, **argument: Any) -> JobResult:
    """Call a function of this file in a child."""
    return children.call(f"{MODULE}:{function.__name__}", argument)


# What runs in a child


def look() -> Seen:
    return Seen(os.getpid(), os.environ.get("APART"), len(CONTEXT.tf.config.list_physical_devices("GPU")))


def looks_apart(_: dict[str, Any]) -> bytes:
    os.environ["APART"] = "own"
    changes: tuple[dict[str, str | None], ...] = ({"APART": "one"}, {"APART": None}, {})
    seen = [CONTEXT.apart(look, Seen, change) for change in changes]
    return msgspec.json.encode({"own": os.getpid(), "apart": seen, "left": os.environ["APART"]})


def looks_too_late(_: dict[str, Any]) -> bytes:
    look()
    return msgspec.json.encode(CONTEXT.attempt(partial(CONTEXT.apart, look, Seen, {})))


def raises_apart(_: dict[str, Any]) -> bytes:
    def fail() -> Seen:
        raise KeyError("of the probe")

    def die() -> Seen:
        os.kill(os.getpid(), signal.SIGSEGV)
        raise AssertionError

    return msgspec.json.encode([CONTEXT.attempt(partial(CONTEXT.apart, call, Seen, {})) for call in (fail, die)])


def is_refused_apart(argument: dict[str, Any]) -> bytes:
    def refuse() -> Seen:
        raise REFUSALS[argument["said"]](argument["said"])

    return msgspec.json.encode(CONTEXT.apart(refuse, Seen, {}))


def floods_apart(_: dict[str, Any]) -> bytes:
    def flood() -> Seen:
        with CONTEXT.placements():
            while True:
                with suppress(OSError):  # the file is full
                    os.write(2, b"failed to allocate\n" * 1000)

    return msgspec.json.encode(CONTEXT.apart(flood, Seen, {}))


def is_disturbed_apart(_: dict[str, Any]) -> bytes:
    def disturb() -> Seen:
        raise Disturbed("somebody else")

    return msgspec.json.encode(CONTEXT.apart(disturb, Seen, {}))


# What is expected of it


def test_a_process_apart_has_an_environment_of_its_own(tensorflow: Children) -> None:
    ended = call(tensorflow, looks_apart)
    assert ended.value is not None, ended
    found = json.loads(ended.value)
    assert [seen["variable"] for seen in found["apart"]] == ["one", None, "own"]
    assert len({found["own"], *(seen["pid"] for seen in found["apart"])}) == 4
    assert found["left"] == "own"


def test_a_process_that_has_queried_devices_is_not_copied(tensorflow: Children) -> None:
    ended = call(tensorflow, looks_too_late)
    assert ended.value is not None, ended
    assert "has queried devices" in json.loads(ended.value)["message"]


def test_how_a_process_apart_ended_is_told(tensorflow: Children) -> None:
    ended = call(tensorflow, raises_apart)
    assert ended.value is not None, ended
    messages = [raised["message"] for raised in json.loads(ended.value)]
    assert messages == ["in a process apart: KeyError: 'of the probe'", "in a process apart: killed by SIGSEGV"]


def test_a_disturbance_stays_one(tensorflow: Children) -> None:
    ended = call(tensorflow, is_disturbed_apart)
    assert (ended.cause, ended.detail) == (NoReading.DISTURBED, "somebody else")


def test_a_flood_in_what_a_process_apart_captures_is_ended(tensorflow: Children) -> None:
    ended = call(tensorflow, floods_apart)
    assert ended.cause is NoReading.OUTPUT_FLOOD, ended
    assert ended.stderr.startswith("failed to allocate\n")


@pytest.mark.parametrize("said", REFUSALS)
def test_a_gpu_that_refuses_stays_one(said: str, tensorflow: Children) -> None:
    ended = call(tensorflow, is_refused_apart, said=said)
    cause = NoReading.NO_MEMORY if said.startswith("OOM") else NoReading.NO_CONTEXT
    assert ended.cause is cause
    assert said in ended.detail


def test_an_attempt_ends_where_there_is_no_context() -> None:
    def refuse() -> None:
        raise RuntimeError("Bad StatusOr access: RESOURCE_EXHAUSTED: : CUDA_ERROR_OUT_OF_MEMORY: out of memory")

    with pytest.raises(NoContext, match="CUDA_ERROR_OUT_OF_MEMORY"):
        CONTEXT.attempt(refuse)
    raised = attempt_context(CONTEXT, refuse)
    assert raised is not None
    assert raised.brief.startswith("RuntimeError: Bad StatusOr access: RESOURCE_EXHAUSTED")


@pytest.mark.parametrize("library", ["libgpudiag-absent.so.1", "libc.so.6"])
def test_no_driver_shows_no_gpu(library: str) -> None:
    assert cuda.devices(library) == ()
