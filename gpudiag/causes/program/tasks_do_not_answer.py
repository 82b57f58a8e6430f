"""a worker waits for other tasks of TF_CONFIG, which accept no connection

A strategy for several workers connects to the other tasks of the cluster as soon as it is made, and waits, without a
message, for an hour or for ever, until all of them have started. A single task that was not started, that crashed, that
has another address, or that a firewall hides, stops all. The same happens in a step, if one of them ends later.
"""

from __future__ import annotations

from gpudiag.cause import Cause, Match, Matches
from gpudiag.causes.shared.traced import MOST
from gpudiag.fix import Kind, check, note
from gpudiag.model.program import ProgramTrace, place
from gpudiag.model.report import Severity
from gpudiag.text import listed

CAUSE = Cause(
    title="{task} waits for {others} of TF_CONFIG: no connection is accepted there",
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


def find(program: ProgramTrace) -> Matches:
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
                "others": listed([peer.task for peer in silent]),
                "host": host.strip("[]"),
                "port": port,
            },
        )
