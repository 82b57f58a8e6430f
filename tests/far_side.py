"""Runs functions on the far side, in children of a fork server that has imported TensorFlow, for tests of probes."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import msgspec

from conftest import clean
from examples.facts import example, example_gpu
from gpudiag import catalogue
from gpudiag.isolate import Bounds, Job, JobResult, ServerSpec, Supervision, supervise
from gpudiag.model.facts import Facts
from gpudiag.model.report import Gpu, Judged
from gpudiag.probe import GpuReading, Measurement
from gpudiag.run.servers import LOG_LEVELS

# Whatever the caller's variables are, they are not under test.
_CLEARED: dict[str, str | None] = dict.fromkeys(os.environ.keys() - clean(os.environ).keys())
_CLEARED |= LOG_LEVELS

ABSENT = Gpu.of(example_gpu(), example_gpu().uuid)
"""A GPU that this machine does not have, or that the children cannot see."""


class Children:
    """Calls functions in child processes, one at a time."""

    def __init__(self, supervision: Supervision) -> None:
        self._supervision = supervision

    def call(
        self, target: str, argument: dict[str, Any], *, fresh: bool = False, env: dict[str, str | None] | None = None
    ) -> JobResult:
        """Call ``module:function`` and return how it ended; it sees no GPU."""
        env = {"CUDA_VISIBLE_DEVICES": "-1", **(env or {})}
        server = "plain" if fresh else "tensorflow"
        self._supervision.start(Job(target, target, argument, 60.0, server, fresh, env))
        while not (ended := self._supervision.wait(60.0)):
            pass
        return ended[0]

    def measure(self, probe: str, *gpus: Gpu, target: str = "gpudiag.run.worker:run_probe", fresh: bool = False) -> Any:
        """Return the reading of a probe."""
        argument = {"probe": probe, "gpus": [msgspec.to_builtins(gpu) for gpu in gpus]}
        ended = self.call(target, argument, fresh=fresh, env=catalogue.get(probe).probe.variables)
        assert ended.value is not None, ended
        measurement = msgspec.json.decode(ended.value, type=Measurement)
        kind: Any = catalogue.get(probe).reading if measurement.complete else GpuReading
        return msgspec.json.decode(measurement.reading, type=kind)


def judge(probe: str, reading: Any, facts: Facts | None = None) -> Judged:
    """Judge ``reading`` on an ordinary machine, or under ``facts``."""
    return catalogue.get(probe).judge(reading, facts or example())


def kinds(judged: Judged) -> list[str]:
    """Return the kinds of the findings, one for each finding."""
    return [finding.kind for finding in judged.findings]


@contextmanager
def children() -> Iterator[Children]:
    """Import TensorFlow once; every call is a fork of that."""
    servers = {
        "plain": ServerSpec(env=_CLEARED),
        "tensorflow": ServerSpec(preload="gpudiag.run.worker:preload", what="import tensorflow", env=_CLEARED),
    }
    with supervise(servers, Bounds()) as supervision:
        supervision.prepare("tensorflow")
        yield Children(supervision)
