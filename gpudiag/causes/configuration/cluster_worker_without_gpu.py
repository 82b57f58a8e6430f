"""a worker of the cluster has no GPU: workers that have one wait for it, or run at its speed

MultiWorkerMirroredStrategy exchanges gradients after each step. A worker whose TensorFlow found no GPU falls back to
the CPU without an error, and the cluster hangs, or is as slow as that worker, and none of them says why. From one
machine the others cannot be seen, so the check belongs on every worker, before training. The worker without a GPU may
log "TensorFlow device GPU:0 was not registered".
"""

from __future__ import annotations

from gpudiag.cause import Cause, Match, Matches, Program
from gpudiag.fix import ask, note
from gpudiag.knowledge.messages.collectives import NOT_REGISTERED
from gpudiag.model.diagnosis import Confidence, Stage
from gpudiag.model.facts import Facts
from gpudiag.model.report import Severity
from gpudiag.model.visibility import gpus_in_scope
from gpudiag.probes.discovery import trace
from gpudiag.probes.host import collectives

CAUSE = Cause(
    title="{who} has no GPU: workers that have one wait for it, or run at its speed",
    severity=Severity.WARNING,
    fix=(
        ask("gpudiag check --require-gpus 1", "on every worker, before training"),
        note("apply the fix that the report of a failing worker names"),
    ),
    url="https://www.tensorflow.org/tutorials/distribute/multi_worker_with_keras",
    needs_gpu=False,
    views=("host.collectives.other_workers",),
)


def find(facts: Facts, program: Program, traced: trace.Reading | None) -> Matches:
    workers, own = collectives.training_workers(facts), collectives.own_task(facts)
    refused = program.first(NOT_REGISTERED)
    listed = traced.listed if traced else len(gpus_in_scope(facts))
    here = len(workers) > 1 and own in workers and not listed
    if not here and not refused:
        return
    seen = [
        f"TF_CONFIG: {own} of {len(workers)} workers" if len(workers) > 1 else None,
        f"GPUs that TensorFlow lists here: {listed}" if here else None,
        f"log: {refused.line.strip()}" if refused else None,
    ]
    yield Match(
        evidence=tuple(filter(None, seen)),
        confidence=Confidence.LIKELY if refused else Confidence.POSSIBLE,
        figures={"who": f"this worker, {own} of {len(workers)}," if here else "a worker of the cluster"},
        stage=Stage.DEVICE_FILTER if here else None,
        about=("TF_CONFIG",) if here else (),
    )
