"""each worker of pytest-xdist sees all GPUs and takes their memory

pytest -n starts a process for each worker, with `-n auto` as many as there are processor cores, and none of them hides
a GPU. The first that computes takes nearly all memory of every GPU, and the others fail at random: out of memory,
CUBLAS_STATUS_NOT_INITIALIZED, and only with -n.
"""

from __future__ import annotations

from collections import defaultdict

from gpudiag.cause import Cause, Match, Matches, Program
from gpudiag.fix import Kind, Role, edit, edit_note, run
from gpudiag.knowledge.messages.memory import DEVICE_FULL, NO_HANDLE, POOL_FULL
from gpudiag.knowledge.messages.way import DEVICE_CREATED
from gpudiag.model.diagnosis import Confidence
from gpudiag.model.facts import Facts
from gpudiag.model.report import Severity
from gpudiag.model.visibility import gpus_in_scope
from gpudiag.text import counted

CAUSE = Cause(
    title="each of {workers} workers of pytest-xdist sees all GPUs and takes their memory",
    severity=Severity.WARNING,
    fix=(
        edit_note("put these lines first into conftest.py:"),
        edit(
            "import os; worker = os.environ.get('PYTEST_XDIST_WORKER', 'gw0'); "
            "os.environ['CUDA_VISIBLE_DEVICES'] = {uuids}[int(worker[2:]) % {gpus}]"
        ),
        run("pytest -n {gpus}"),
        run(
            "TF_FORCE_GPU_ALLOW_GROWTH=true pytest -n ...",
            "if the tests are small, several workers can share a GPU",
            role=Role.ALTERNATIVE,
            kind=Kind.SET_VARIABLE,
        ),
    ),
    url="https://pytest-xdist.readthedocs.io/en/stable/how-to.html#identifying-the-worker-process-during-a-test",
)
_WORKER = "PYTEST_XDIST_WORKER"
_WORKERS = "PYTEST_XDIST_WORKER_COUNT"


def find(facts: Facts, program: Program) -> Matches:
    gpus = gpus_in_scope(facts)
    variables = facts.variables
    count = variables.get(_WORKERS, "")
    workers = int(count) if _WORKER in variables and count.isdecimal() else 0
    shown = [f"{_WORKER}={variables[_WORKER]}, {_WORKERS}={workers}"] if workers > 1 else []
    if shown:
        # Its own mask, or growth, is what keeps a worker to its part.
        if "CUDA_VISIBLE_DEVICES" in variables or variables.get("TF_FORCE_GPU_ALLOW_GROWTH") == "true":
            return
        shown.append(f"CUDA_VISIBLE_DEVICES is not set: this worker sees {counted(len(gpus), 'GPU')}")
    failed = program.said(DEVICE_FULL, POOL_FULL, NO_HANDLE, most=1)
    made = _made_by_several(program)
    in_log = program.workers
    if in_log > 1 and (failed or made):
        workers = max(workers, in_log)
        shown += [f"the log has lines of {in_log} workers", *made, *failed]
    if not shown or not gpus:
        return
    yield Match(
        evidence=tuple(shown),
        confidence=Confidence.PROVED if made else Confidence.LIKELY,
        figures={"workers": workers, "gpus": len(gpus), "uuids": str([gpu.uuid for gpu in gpus])},
        fix=CAUSE.fix[2:] if len(gpus) == 1 else (),
    )


def _made_by_several(program: Program) -> tuple[str, ...]:
    """Return evidence of the GPU on which several processes of the log made a device."""
    makers = defaultdict(set)
    for made in program.all(DEVICE_CREATED):
        if made["thread"]:
            makers[made["pci"].lower()].add(made["thread"])
    return tuple(
        f"{len(threads)} of its processes created a device on the GPU at {pci}"
        for pci, threads in makers.items()
        if len(threads) > 1
    )
