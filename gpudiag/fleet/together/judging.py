"""What a node's own testimony says of it: the summary that the fleet keeps of the node."""

from __future__ import annotations

import platform
import socket
from datetime import datetime, timezone

import gpudiag
from gpudiag.model.diagnosis import Confidence
from gpudiag.model.fleet import CauseSummary, Summary
from gpudiag.model.report import SIMULATED, Verdict
from gpudiag.model.together import Stage, Sum, Task, Witness
from gpudiag.text import counted, listed, one_line, size

LEVEL = "together"


def summarized(witness: Witness, task: Task, seconds: float) -> Summary:
    """Return the summary of a node.

    A node fails for what is wrong with itself. One that waited for others, or that others left, is not verified.
    """
    verdict, kind, headline = judge(witness, task)
    causes: tuple[CauseSummary, ...] = ()
    if witness.kind == "alone" and "No module named 'tensorflow'" in witness.fault:
        causes = (CauseSummary("tensorflow_missing", "TensorFlow is not installed", Confidence.PROVED),)
    return Summary(
        gpudiag_version=gpudiag.__version__,
        started_at=datetime.now(timezone.utc).isoformat(timespec="seconds"),
        duration_s=round(seconds, 1),
        level=LEVEL,
        verdict=verdict,
        headline=one_line(headline),
        hostname=socket.gethostname(),
        simulated=any(model.startswith(SIMULATED) for model in witness.models),
        causes=causes,
        findings=(f"together.{kind}",) if kind else (),
        gpus=witness.models,
        facts={"kernel": platform.release(), "Python": platform.python_version(), "TensorFlow": witness.tensorflow}
        | {f"variable {name}": value for name, value in witness.variables.items()},
        together=witness,
    )


def judge(witness: Witness, task: Task) -> tuple[Verdict, str, str]:
    """Return the verdict of a node, the kind of its finding, and a sentence."""
    own = next((total for total in witness.sums if total.own_wrong), None)
    wrong = next((total for total in witness.sums if total.wrong), None)
    if witness.fault:
        return Verdict.FAIL, witness.kind, witness.fault
    if own is not None:
        text = f"{counted(own.own_wrong, 'wrong element')} in this node's own vectors of {size(own.bytes)}"
        return Verdict.FAIL, "wrong_sum", f"{text}, before they were added by {own.way}"
    if wrong is not None:
        text = f"{counted(wrong.wrong, 'wrong element')} in sums of {size(wrong.bytes)} by {wrong.way}"
        return Verdict.NOT_VERIFIED, "others_wrong", f"{text}; what this node added is right"
    if witness.stage is Stage.DONE and not witness.models:
        return Verdict.NOT_VERIFIED, "no_gpu", f"TensorFlow lists no GPU; on the CPU {right(witness, task)}"
    if witness.stage is Stage.DONE:
        return Verdict.PASS, "", right(witness, task)
    if witness.unlike:
        return _judge_unlike(witness)
    if witness.stage in (Stage.CLUSTER, Stage.SUMS):
        return _judge_broken_off(witness)
    return Verdict.NOT_VERIFIED, "waited", waiting(witness, task)


def _judge_unlike(witness: Witness) -> tuple[Verdict, str, str]:
    counts = sorted(witness.unlike.values())
    usual = max(set(counts), key=lambda count: (counts.count(count), count))
    own = witness.unlike[witness.node]
    if own != usual:
        lists = counted(own, "GPU") if own else "no GPU"
        return Verdict.FAIL, "unlike_gpus", f"TensorFlow lists {lists} here, and {usual} on other nodes"
    others = [f"{node} has {count}" for node, count in witness.unlike.items() if count != usual]
    return (
        Verdict.NOT_VERIFIED,
        "others_unlike",
        f"TensorFlow needs as many GPUs on each node: {usual} here, {listed(others)}",
    )


def _judge_broken_off(witness: Witness) -> tuple[Verdict, str, str]:
    at = f"in exchange {witness.begun} of {witness.planned}" if witness.begun else "when TensorFlow connected to them"
    if witness.by_limit and witness.ready < witness.begun:
        return Verdict.FAIL, "hangs", f"this node's devices hang in exchange {witness.begun} of {witness.planned}"
    if witness.by_limit:
        return Verdict.NOT_VERIFIED, "waited", f"waited {witness.waited_s:.0f} s for the others {at}"
    if witness.accused:
        return Verdict.NOT_VERIFIED, "others_left", f"{witness.accused[0]} left {at}: {reason(witness.error)}"
    return Verdict.FAIL, "raised", f"{at}: {reason(witness.error)}"


def right(witness: Witness, task: Task) -> str:
    """Return that the sums are right, and how long the largest took, in a few words."""
    replicas = max(len(witness.models), 1) * len(task.places)
    largest = [
        max((total for total in sums if total.way == way), key=lambda total: total.bytes)
        for way, sums in _by_way(witness.sums)
    ]
    times = ", ".join(f"{size(total.bytes)} by {total.way} in {1000 * total.seconds:.1f} ms" for total in largest)
    return f"all sums are right over {counted(len(task.places), 'node')} and {counted(replicas, 'replica')}: {times}"


def _by_way(sums: tuple[Sum, ...]) -> list[tuple[str, tuple[Sum, ...]]]:
    ways = dict.fromkeys(total.way for total in sums)
    return [(way, tuple(total for total in sums if total.way == way)) for way in ways]


def waiting(witness: Witness, task: Task) -> str:
    """Return for whom a node waited, and why."""
    targets = {place.node: place.target for place in task.places}
    if witness.told:
        return f"did not begin, because of {listed([f'{node}: {fault}' for node, fault in witness.told.items()])}"
    parts = [f"{peer.node} at {targets[peer.node]}: {peer.answer}" for peer in witness.peers]
    for_whom = listed(parts) if parts else "nodes that were not ready"
    return f"waited {witness.waited_s:.0f} s for {for_whom}"


def reason(error: str) -> str:
    """Return the first line of an error that says something, without TensorFlow's tasks."""
    line = next((line.strip() for line in error.splitlines() if line.strip()), "")
    return line[:200]
