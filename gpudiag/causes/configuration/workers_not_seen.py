"""TF_CONFIG names several workers; the GPUs of those on other machines cannot be checked from here

A worker without a GPU delays or stops all of them, and none says why. gpudiag sees one machine, so each worker needs
its own check before training. A worker listens as soon as its program runs; the note names those that accept no
connection when the machine is checked.
"""

from __future__ import annotations

from gpudiag.cause import Cause, Match, Matches
from gpudiag.fix import ask, unset
from gpudiag.model.facts import EnvironmentFacts, Facts
from gpudiag.model.report import Figure, Severity
from gpudiag.probes.host import collectives

CAUSE = Cause(
    title="TF_CONFIG: this is {task} of {workers} workers; {silent}the GPUs of the others cannot be checked from here",
    severity=Severity.NOTE,
    fix=(
        ask("gpudiag check --require-gpus 1", "on every worker, before training"),
        unset("TF_CONFIG", note="if this program is to train alone: its strategy waits for tasks that are not started"),
    ),
    url="https://www.tensorflow.org/tutorials/distribute/multi_worker_with_keras",
    finding="host.collectives.other_workers",
    row_only=True,
)
_MOST = 8


def find(facts: Facts, environment: EnvironmentFacts) -> Matches:
    workers, task = collectives.training_workers(facts), collectives.own_task(facts)
    if len(workers) > 1 and task in workers:
        answers = [f"{other} accepts no connection now ({why})" for other, why in environment.silent_tasks.items()]
        silent = f"{answers[0]}{' and others do not either' if answers[1:] else ''}; " if answers else ""
        figures: dict[str, Figure] = {"task": task, "workers": len(workers), "silent": silent}
        fix = (CAUSE.fix[0], *(CAUSE.fix[1:] if answers else ()))
        yield Match(evidence=(f"TF_CONFIG: {task}", *answers[:_MOST]), figures=figures, fix=fix)
