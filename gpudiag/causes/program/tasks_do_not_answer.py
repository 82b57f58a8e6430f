"""a worker waits for other tasks of TF_CONFIG, which accept no connection

A strategy for several workers connects to the other tasks of the cluster as soon as it is made, and waits, without a
message, for an hour or for ever, until all of them have started. A single task that was not started, that crashed, that
has another address, or that a firewall hides, stops all. The same happens in a step, if one of them ends later.
"""

from __future__ import annotations

from collections.abc import Mapping

from gpudiag.cause import Cause, Match, Matches
from gpudiag.causes.shared.traced import MOST
from gpudiag.fix import Kind, check, note
from gpudiag.knowledge.variables import CLUSTER
from gpudiag.model.diagnosis import Confidence
from gpudiag.model.facts import EnvironmentFacts, Facts
from gpudiag.model.program import ProgramTrace, place
from gpudiag.model.report import Severity
from gpudiag.probes.host import collectives

CAUSE = Cause(
    title="{task} {waits} for {others} of TF_CONFIG: no connection is accepted there",
    severity=Severity.WARNING,
    fix=(
        note(
            "start {others}: the same program and cluster in TF_CONFIG, and its own 'task' there",
            kind=Kind.START_CONTAINER,
        ),
        check("nc -vz {host} {port}", "from this machine, if it runs: its address in TF_CONFIG, or a firewall"),
    ),
    url="https://www.tensorflow.org/guide/distributed_training#TF_CONFIG",
    needs_gpu=False,
)
_NAMED = 3


def find(facts: Facts, program: ProgramTrace | None, environment: EnvironmentFacts | None) -> Matches:
    if program is None:
        if environment is not None and environment.silent_tasks:
            yield _before_a_program(collectives.own_task(facts) or "a task", environment.silent_tasks)
        return
    for cluster in program.clusters:
        silent = cluster.silent
        if not silent or (cluster.joined and program.ended.startswith("exit status 0")):
            continue  # the others may end first
        host, _, port = silent[0].address.rpartition(":")
        stands = f"joined it at {cluster.at_s:.1f} s" if cluster.joined else f"stands here since {cluster.at_s:.1f} s"
        yield Match(
            evidence=(
                f"{place(cluster.line)}: {cluster.task} {stands} of {program.seconds:.1f}",
                *(f"{peer.task} at {peer.address}: {peer.answer}" for peer in silent[:MOST]),
            ),
            figures={
                "task": cluster.task,
                "waits": "waits",
                "others": _names([peer.task for peer in silent]),
                "host": host.strip("[]"),
                "port": port,
            },
        )


def _before_a_program(own: str, silent: Mapping[str, str]) -> Match:
    """Match tasks that do not answer a check: a task listens as soon as its program runs, so it may start later."""
    may_start = all("refused" in answer for answer in silent.values())
    look = "also from this machine: its address in TF_CONFIG, a firewall, or a proxy in http_proxy"
    return Match(
        evidence=tuple(f"{task} of {CLUSTER}: {answer}" for task, answer in list(silent.items())[:MOST]),
        confidence=Confidence.POSSIBLE if may_start else Confidence.LIKELY,
        figures={"task": own, "waits": "would wait", "others": _names([*silent]), "host": "HOST", "port": "PORT"},
        fix=(CAUSE.fix[0], check("nc -vz HOST PORT", look)),
        about=(CLUSTER,),
    )


def _names(tasks: list[str]) -> str:
    few = tasks[:_NAMED]
    if len(tasks) > _NAMED:
        return f"{', '.join(few)} and {len(tasks) - _NAMED} more"
    return " and ".join(filter(None, (", ".join(few[:-1]), few[-1])))
