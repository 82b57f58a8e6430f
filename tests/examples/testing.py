"""Examples of causes: tests that use GPUs, and tests that only seem to."""

from __future__ import annotations

from examples import Example
from examples.facts import example, example_with_gpus
from gpudiag.cause import TRACE, Evidence
from gpudiag.causes.configuration.workers_share_gpus import _WORKER, _WORKERS
from gpudiag.model.facts import EnvironmentFacts, Facts
from gpudiag.model.report import Judged, Row
from gpudiag.probes.discovery import trace


def _worker(gpus: int = 2, count: str = "4", **variables: str) -> Evidence:
    own = {_WORKER: "gw1", _WORKERS: count, **variables}
    return Evidence(example_with_gpus(gpus, environment=EnvironmentFacts(own)))


def _log(*log: str, facts: Facts | None = None, listed: int = 0) -> Evidence:
    reading = trace.Reading(listed, None, (), {}, ())
    return Evidence(facts or example_with_gpus(2), rows=(Row(TRACE, (), Judged(), 0.0, reading),), lines=log)


def _made(thread: int) -> str:
    return (
        f"I0000 00:00:1.2 {thread} gpu_device.cc:2043] Created device /job:localhost/replica:0/task:0/device:GPU:0 "
        f"with 38000 MB memory:  -> device: 0, name: NVIDIA A100, pci bus id: 0000:01:00.0, compute capability: 8.0"
    )


_TWO = (
    "[gw0] linux -- Python 3.11.7 /venv/bin/python",
    "[gw1] [ 50%] FAILED tests/test_model.py::test_fit",
)
_OOM = (
    "E   tensorflow.python.framework.errors_impl.InternalError: cudaSetDevice() on GPU:0 failed. Status: out of memory"
)
_SKIP = "SKIPPED [3] tests/test_model.py:12: no GPU"
EXAMPLES: dict[str, tuple[Example, ...]] = {
    "workers_share_gpus": (
        Example("in a worker", _worker()),
        Example("in a log: two processes on one GPU", _log(*_TWO, _made(7), _made(8))),
        Example("in a log: out of memory", _log(*_TWO, _OOM)),
        Example("a mask for each worker", _worker(CUDA_VISIBLE_DEVICES="1"), fires=False),
        Example("growth", _worker(TF_FORCE_GPU_ALLOW_GROWTH="true"), fires=False),
        Example("one worker", _worker(count="1"), fires=False),
        Example("no worker", Evidence(example_with_gpus(2)), fires=False),
        Example("no GPU", _worker(gpus=0), fires=False),
        Example("a log without a fault", _log(*_TWO, _made(7)), fires=False),
        Example("a log of one process", _log(_TWO[0], _OOM), fires=False),
    ),
    "gpu_tests_skipped": (
        Example("pytest -rs", _log(_SKIP)),
        Example("pytest -v", _log("tests/test_model.py::test_fit SKIPPED (requires CUDA)  [ 50%]")),
        Example("unittest", _log("test_fit (tests.TestModel.test_fit) ... skipped 'no GPU'")),
        Example(
            "a container that was to have one",
            _log(_SKIP, facts=example(environment=EnvironmentFacts({"NVIDIA_VISIBLE_DEVICES": "all"}))),
        ),
        Example("without a GPU, as expected", _log(_SKIP, facts=example()), fires=False),
        Example("skipped for another reason", _log("SKIPPED [1] tests/test_io.py:3: needs network"), fires=False),
        Example("none skipped", _log("tests/test_model.py::test_gpu_fit PASSED"), fires=False),
    ),
}
