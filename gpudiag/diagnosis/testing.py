"""Tests that use GPUs, and tests that only seem to."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator
from typing import Any

from gpudiag.diagnosis.rule import TRACE, Evidence, Match, Rule, RuleCase
from gpudiag.hostfacts import EnvironmentFacts, Facts, example, example_with_gpus
from gpudiag.knowledge.log import DEVICE_CREATED, DEVICE_FULL, NO_HANDLE, POOL_FULL, TEST_SKIPPED
from gpudiag.model import Judged, Row, Stage, Sure
from gpudiag.scope import gpus_in_scope

_WORKER = "PYTEST_XDIST_WORKER"
_WORKERS = "PYTEST_XDIST_WORKER_COUNT"


def _workers_share_gpus(evidence: Evidence) -> Iterator[Match]:
    gpus = gpus_in_scope(evidence.facts)
    variables = evidence.facts.variables
    count = variables.get(_WORKERS, "")
    workers = int(count) if _WORKER in variables and count.isdecimal() else 0
    shown = [f"{_WORKER}={variables[_WORKER]}, {_WORKERS}={workers}"] if workers > 1 else []
    if shown:
        # Its own mask, or growth, is what keeps a worker to its part.
        if "CUDA_VISIBLE_DEVICES" in variables or variables.get("TF_FORCE_GPU_ALLOW_GROWTH") == "true":
            return
        shown.append(f"CUDA_VISIBLE_DEVICES is not set: this worker sees {len(gpus)} GPU(s)")
    failed = evidence.program.said(DEVICE_FULL, POOL_FULL, NO_HANDLE, most=1)
    made = _made_by_several(evidence)
    in_log = evidence.program.workers
    if in_log > 1 and (failed or made):
        workers = max(workers, in_log)
        shown += [f"the log has lines of {in_log} workers", *made, *failed]
    if not shown or not gpus:
        return
    yield Match(
        evidence=tuple(shown),
        sure=Sure.PROVED if made else Sure.LIKELY,
        figures={"workers": workers, "gpus": len(gpus), "uuids": str([gpu.uuid for gpu in gpus])},
    )


def _made_by_several(evidence: Evidence) -> tuple[str, ...]:
    """Say which GPU several processes of the log made a device on."""
    makers = defaultdict(set)
    for made in evidence.program.all(DEVICE_CREATED):
        if made["thread"]:
            makers[made["pci"].lower()].add(made["thread"])
    return tuple(
        f"{len(threads)} of its processes created a device on the GPU at {pci}"
        for pci, threads in makers.items()
        if len(threads) > 1
    )


_GIVEN = re.compile(r"SLURM_(?:GPUS\w*|JOB_GPUS|STEP_GPUS)")


def _gpu_expected(facts: Facts) -> str:
    """Say what shows that there ought to be a GPU; "" where nothing does."""
    if not facts.without_gpu:
        return "the machine has an NVIDIA GPU" if facts.nvml_devices else "whether there is a GPU is not known"
    given = facts.variables.get("NVIDIA_VISIBLE_DEVICES", "void")
    if given not in ("", "none", "void"):
        return f"NVIDIA_VISIBLE_DEVICES={given}"
    return next((f"{name}={value}" for name, value in facts.variables.items() if _GIVEN.fullmatch(name)), "")


def _gpu_tests_skipped(evidence: Evidence) -> Iterator[Match]:
    found = evidence.program.all(TEST_SKIPPED)
    expected = _gpu_expected(evidence.facts)
    if not found or not expected or evidence.trace is None:
        return
    listed = evidence.trace.listed
    summary = [int(event["count"]) for event in found if event["count"]]  # of tests that -v names, too
    yield Match(
        evidence=(
            *evidence.program.said(TEST_SKIPPED),
            f"{expected}, and TensorFlow lists {listed or 'none'} here",
        ),
        sure=Sure.LIKELY if listed else Sure.PROVED,
        figures={"count": sum(summary) or len(found)},
    )


# --- examples --------------------------------------------------------------------------------------------------------


def _worker(gpus: int = 2, count: str = "4", **variables: str) -> Evidence:
    own = {_WORKER: "gw1", _WORKERS: count, **variables}
    return Evidence(example_with_gpus(gpus, environment=EnvironmentFacts(own)))


def _log(*log: str, facts: Facts | None = None, listed: int = 0) -> Evidence:
    reading: dict[str, Any] = {"listed": listed, "raised": None, "opened": [], "unopened": {}, "lines": []}
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

RULES = (
    Rule(
        id="workers_share_gpus",
        stage=Stage.CONFIGURATION,
        cause="each of {workers} workers of pytest-xdist sees every one of the {gpus} GPU(s) and takes its memory",
        why="""
        pytest -n starts a process for each worker, with `-n auto` as many as there are processor cores, and none of
        them hides a GPU. The first that computes takes nearly all memory of every GPU, and the others fail at random:
        out of memory, CUBLAS_STATUS_NOT_INITIALIZED, only ever with -n.
        """,
        fix=(
            "# first lines of conftest.py:",
            "import os; worker = os.environ.get('PYTEST_XDIST_WORKER', 'gw0'); "
            "os.environ['CUDA_VISIBLE_DEVICES'] = {uuids}[int(worker[2:]) % {gpus}]",
            "pytest -n {gpus}",
            "TF_FORCE_GPU_ALLOW_GROWTH=true pytest -n ...  # or more workers than GPUs, where their tests are small",
        ),
        url="https://pytest-xdist.readthedocs.io/en/stable/how-to.html#identifying-the-worker-process-during-a-test",
        find=_workers_share_gpus,
        cases=(
            RuleCase("in a worker", _worker()),
            RuleCase("in a log: two processes on one GPU", _log(*_TWO, _made(7), _made(8))),
            RuleCase("in a log: out of memory", _log(*_TWO, _OOM)),
            RuleCase("a mask for each worker", _worker(CUDA_VISIBLE_DEVICES="1"), fires=False),
            RuleCase("growth", _worker(TF_FORCE_GPU_ALLOW_GROWTH="true"), fires=False),
            RuleCase("one worker", _worker(count="1"), fires=False),
            RuleCase("no worker", Evidence(example_with_gpus(2)), fires=False),
            RuleCase("no GPU", _worker(gpus=0), fires=False),
            RuleCase("a log without a fault", _log(*_TWO, _made(7)), fires=False),
            RuleCase("a log of one process", _log(_TWO[0], _OOM), fires=False),
        ),
    ),
    Rule(
        id="gpu_tests_skipped",
        stage=Stage.CONFIGURATION,
        cause="{count} test(s) were skipped for want of a GPU, and the run passed without them",
        why="""
        Marks such as skipif(not tf.config.list_physical_devices('GPU')) are right on a laptop. On a runner that is
        there for its GPU they turn a broken driver or a container without one into a green run, in which no GPU test
        ran. Why TensorFlow lists none is another cause, named before this one where it was found.
        """,
        fix=(
            "gpudiag check --require-gpus 1  # as a step before the tests: it fails without a GPU",
            "# in conftest.py, for the runner that has one:",
            "if os.environ.get('REQUIRE_GPU') and not "
            "tf.config.list_physical_devices('GPU'): pytest.exit('no GPU', returncode=1)",
            "pytest -rs  # names each skipped test and the reason",
        ),
        url="https://docs.pytest.org/en/stable/how-to/skipping.html",
        find=_gpu_tests_skipped,
        needs_gpu=False,
        cases=(
            RuleCase("pytest -rs", _log(_SKIP)),
            RuleCase("pytest -v", _log("tests/test_model.py::test_fit SKIPPED (requires CUDA)  [ 50%]")),
            RuleCase("unittest", _log("test_fit (tests.TestModel.test_fit) ... skipped 'no GPU'")),
            RuleCase(
                "a container that was to have one",
                _log(_SKIP, facts=example(environment=EnvironmentFacts({"NVIDIA_VISIBLE_DEVICES": "all"}))),
            ),
            RuleCase("without a GPU, as expected", _log(_SKIP, facts=example()), fires=False),
            RuleCase("skipped for another reason", _log("SKIPPED [1] tests/test_io.py:3: needs network"), fires=False),
            RuleCase("none skipped", _log("tests/test_model.py::test_gpu_fit PASSED"), fires=False),
        ),
    ),
)
