"""the port of this process's own task in TF_CONFIG is in use

A task listens on its own port of ``TF_CONFIG`` as soon as TensorFlow's strategy or server is made. If another process
listens there, it ends with "Address already in use", or the other tasks talk to that process. The one that listens may
be the training itself, or what is left of an earlier one.
"""

from __future__ import annotations

from gpudiag.cause import Cause, Match, Matches
from gpudiag.fix import check, note
from gpudiag.model.facts import EnvironmentFacts
from gpudiag.model.report import Severity

CAUSE = Cause(
    title="port {port} of TF_CONFIG's own task is in use by {who}: no second process can be that task here",
    severity=Severity.NOTE,
    fix=(
        check("ss -ltnp 'sport = :{port}'", "shows who listens there"),
        note("if it is what is left of an earlier run, end it; else give the task another port, in every TF_CONFIG"),
    ),
    url="https://www.tensorflow.org/tutorials/distribute/multi_worker_with_keras",
    finding="host.collectives.port_taken",
    row_only=True,
)


def find(environment: EnvironmentFacts) -> Matches:
    taken = environment.port_taken
    if taken is not None:
        who = "a process that this user cannot see" if taken.pid is None else f"process {taken.pid}"
        words = taken.process.words if taken.process else ""
        yield Match(
            evidence=(f"port {taken.port}: {who}{f' ({words})' if words else ''} listens",),
            figures={"port": taken.port, "who": f"{who} ({words})" if words else who},
        )
