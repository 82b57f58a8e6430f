"""TF_CONFIG names several workers; the GPUs of those on other machines cannot be checked from here

A worker without a GPU delays or stops all of them, and none says why. gpudiag sees one machine, so each worker needs
its own check before training. The note says which tasks accept a connection when the machine is checked. One that
refuses it may not have been started yet, which is no fault; one whose name is not known, or to which there is no way,
cannot be reached when it runs either.
"""

from __future__ import annotations

from collections import defaultdict

from gpudiag.cause import Cause, Match, Matches
from gpudiag.fix import ask, edit_note, unset
from gpudiag.model.facts import EnvironmentFacts, Facts
from gpudiag.model.report import Figure, Severity
from gpudiag.probes.host import collectives
from gpudiag.text import listed

CAUSE = Cause(
    title="TF_CONFIG: this is {task} of {workers} workers; {answers}the GPUs of the others cannot be checked from here",
    severity=Severity.NOTE,
    fix=(
        ask("gpudiag check --require-gpus 1", "on every worker, before training"),
        edit_note("correct the address of {wrong} in TF_CONFIG: starting it does not help"),
        unset("TF_CONFIG", note="if this program is to train alone: its strategy waits for tasks that are not started"),
    ),
    url="https://www.tensorflow.org/tutorials/distribute/multi_worker_with_keras",
    finding="host.collectives.other_workers",
    row_only=True,
)
_MAY_COME = ("Connection refused", "no answer")
"""How connecting ends if the program has not been started, or if something between is slow or drops it."""

_BEFORE = ", as before a program starts"


def find(facts: Facts, environment: EnvironmentFacts) -> Matches:
    workers, task = collectives.training_workers(facts), collectives.own_task(facts)
    if len(workers) < 2 or task not in workers:
        return
    silent: dict[str, list[str]] = defaultdict(list)
    for other, why in environment.silent_tasks.items():
        silent[why].append(other)
    answering = [other for other in workers if other not in (task, *environment.silent_tasks)]
    wrong = [other for why, others in silent.items() if not why.startswith(_MAY_COME) for other in others]
    answers = [
        f"{listed(others)} {_accept(others)} no connection now ({why}{_BEFORE if why.startswith(_MAY_COME) else ''})"
        for why, others in silent.items()
    ]
    if silent and answering:
        answers = [f"{listed(answering)} {_accept(answering)} connections", *answers]
    figures: dict[str, Figure] = {
        "task": task,
        "workers": len(workers),
        "answers": "".join(f"{answer}; " for answer in answers),
        "wrong": listed(wrong),
    }
    fix = (CAUSE.fix[0], CAUSE.fix[1] if wrong else None, CAUSE.fix[2] if silent else None)
    yield Match(evidence=(f"TF_CONFIG: {task}", *answers), figures=figures, fix=fix)


def _accept(tasks: list[str]) -> str:
    return "accepts" if len(tasks) == 1 else "accept"
