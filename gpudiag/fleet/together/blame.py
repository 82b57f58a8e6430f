"""Who keeps a fleet from training together, by what all its nodes say.

In this order: what a node says is wrong with itself; an address that leads to another node; nodes of which nothing
came back and that others name; two nodes that cannot connect; NCCL, or a proxy; nodes that came less far than the
others; nodes that the errors of others name; last, nodes of which nothing came back. An error names whoever ended first
as TensorFlow sees it, so a node that ended after an error which names another ended as a consequence.

A report may be lost on its way although its node took part: without the evidence of others, that is not its fault, and
what it would have said is not held against others.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping

from gpudiag import fix
from gpudiag.fix import Action
from gpudiag.fleet.together.judging import judge, reason
from gpudiag.fleet.together.training import RING, planned
from gpudiag.model.report import Verdict
from gpudiag.model.together import NOT_TRIED, Blame, Peer, Place, Stage, Sum, Task, Together, Witness
from gpudiag.text import counted, listed, size

MOST = 6
"""The most lines of evidence."""
OVERLAP_S = 10.0
"""How long two nodes that cannot connect must have met at the same time: one of them may have begun late."""
_OF_OTHERS = frozenset({"cannot_connect", "wrong_address", "raised"})
"""Kinds of faults that a node has because of another one, or that are judged with those of others."""


def together(task: Task, witnesses: Mapping[str, Witness], missing: Mapping[str, str]) -> Together:
    """Return whether the nodes of a task train together; ``missing`` says of nodes without a testimony why."""
    witnesses = dict(sorted(witnesses.items(), key=lambda item: item[1].index))  # they came in any order
    seen = tuple(witnesses.values())
    blames = _blames(task, witnesses, missing)
    done = len(seen) == len(task.places) and all(witness.stage is Stage.DONE for witness in seen)
    nodes = counted(len(task.places), "node")
    if blames:
        verdict, text = "FAIL", f"{nodes} do not train together"
    elif done and all(witness.models for witness in seen):
        verdict, text = "PASS", f"{nodes} train together: every sum is right on every node"
    elif done:
        verdict, text = "NOT VERIFIED", f"every sum is right on {nodes}, on the CPU: TensorFlow lists no GPU"
    elif seen and all(witness.stage is Stage.DONE for witness in seen):
        lost = listed([place.node for place in task.places if place.node not in witnesses])
        verdict, text = "NOT VERIFIED", f"{len(seen)} of {nodes} added to the end; no report of {lost}"
    else:
        verdict, text = "NOT VERIFIED", f"{nodes} do not train together, and none stands out"
    sums, alone = _slowest(seen, lambda each: each.sums), _slowest(seen, lambda each: each.alone)
    notes = (*_versions(seen), *_times(task, seen, sums, alone))
    return Together(verdict, text, task.places, blames, sums, alone, notes)


def _blames(task: Task, witnesses: Mapping[str, Witness], missing: Mapping[str, str]) -> tuple[Blame, ...]:
    own = [blame for witness in witnesses.values() if (blame := _own(witness, task, witnesses)) is not None]
    absent = _absent(task, witnesses, missing)
    first = (*own, *_strangers(task, witnesses), *(blame for blame in absent if blame.evidence))
    declared = _connections(task, witnesses, declared=True)
    if first or declared:
        return (*first, *declared)
    return (
        _wrong_sums(task, witnesses)
        or _late(task, witnesses)
        or _connections(task, witnesses, declared=False)
        or _nccl(task, witnesses)
        or _proxies(task, witnesses)
        or _left(task, witnesses)
        or (absent if not witnesses or any(each.stage is not Stage.DONE for each in witnesses.values()) else ())
    )


def _own(witness: Witness, task: Task, witnesses: Mapping[str, Witness]) -> Blame | None:
    """Return what a node says against itself, and what the others say of it."""
    verdict, kind, text = judge(witness, task)
    if verdict is not Verdict.FAIL or kind in _OF_OTHERS:
        return None
    advice = _ADVICE.get(kind)
    actions = () if advice is None else advice(task.places[witness.index])
    lines = [_testimony(other) for other in witnesses.values() if witness.node in other.accused[:1]]
    return Blame((witness.node,), text, tuple(lines[:MOST]), actions)


def _port_advice(place: Place) -> tuple[Action, ...]:
    return (
        fix.check(f"ss -ltnp 'sport = :{place.port}'", f"on {place.node}: shows who listens there"),
        fix.note("if it is left of an earlier run, end it; else give the fleet another port by --port"),
    )


def _node_advice(place: Place) -> tuple[Action, ...]:
    return (fix.ask("gpudiag check", f"on {place.node}: says why TensorFlow fails, or lists fewer GPUs, there"),)


def _kernel_advice(place: Place) -> tuple[Action, ...]:
    return (fix.kernel_log(f"on {place.node}: look for errors of the GPU"),)


_ADVICE: dict[str, Callable[[Place], tuple[Action, ...]]] = {
    "port_taken": _port_advice,
    "unlike_gpus": _node_advice,
    "alone": _node_advice,
    "hangs": _kernel_advice,
    "wrong_sum": _kernel_advice,
}


def _strangers(task: Task, witnesses: Mapping[str, Witness]) -> tuple[Blame, ...]:
    """Return the nodes at whose address another node answers."""
    lines: dict[str, list[str]] = {}
    for witness in witnesses.values():
        if witness.kind == "wrong_address":
            for peer in witness.peers:
                if peer.answer.endswith(" answers there"):
                    lines.setdefault(peer.node, []).append(f"{witness.node}: {witness.fault}")
    places = {place.node: place for place in task.places}
    return tuple(
        Blame(
            (node,),
            "its address is wrong",
            tuple(its[:MOST]),
            (fix.check(f"getent ahosts {places[node].address}", "on each node: the address it has there"),),
        )
        for node, its in lines.items()
    )


def _absent(task: Task, witnesses: Mapping[str, Witness], missing: Mapping[str, str]) -> tuple[Blame, ...]:
    """Return the nodes of which nothing came back, with what the others say against them."""
    blames = []
    for place in task.places:
        if place.node in witnesses:
            continue
        lines = []
        for witness in witnesses.values():
            answer = next((peer.answer for peer in _unreached(witness) if peer.node == place.node), "")
            if place.node in witness.accused[:1]:
                lines.append(_testimony(witness))
            elif place.node in witness.told:
                lines.append(f"{witness.node} heard of it: {witness.told[place.node]}")
            elif answer:
                lines.append(f"{witness.node}: {place.target}: {answer}")
        why = f"no report: {missing.get(place.node, 'no answer')}"
        blames.append(Blame((place.node,), why, tuple(lines[:MOST])))
    return tuple(blames)


def _wrong_sums(task: Task, witnesses: Mapping[str, Witness]) -> tuple[Blame, ...]:
    """Return the nodes whose sums are wrong, if all nodes are known to have added right values to the end."""
    wrong = [witness for witness in witnesses.values() if any(total.wrong for total in witness.sums)]
    done = [witness for witness in witnesses.values() if witness.stage is Stage.DONE]
    if not wrong or len(done) < len(task.places):
        return ()
    lines = [f"{witness.node}: {judge(witness, task)[2]}" for witness in wrong]
    nodes = tuple(witness.node for witness in wrong)
    return (Blame(nodes, "a sum is wrong, and every node added right values", tuple(lines[:MOST])),)


def _late(task: Task, witnesses: Mapping[str, Witness]) -> tuple[Blame, ...]:
    """Return the nodes that began when the others had given up: those that heard of none, and of which none heard.

    The clocks of machines may differ, so a node that another one heard of cannot have been late, whatever they show.
    """
    unheard = {node: {peer.node for peer in witness.peers if not peer.heard} for node, witness in witnesses.items()}
    blames = []
    for node, witness in witnesses.items():
        others = [other for other in witnesses.values() if other is not witness]
        is_alone = len(unheard[node]) == len(task.places) - 1 and all(node in unheard[other.node] for other in others)
        late_s = witness.met_at[0] - max((other.met_at[1] for other in others), default=witness.met_at[0])
        if is_alone and late_s > 0:
            why = f"began {late_s:.0f} s after the others had given up"
            lines = (f"by the clocks of the nodes; each waits {task.wait_s:.0f} s, and none heard of {node}",)
            wait = fix.note(f"give the nodes more time to start than {task.wait_s:.0f} s, by --wait")
            blames.append(Blame((node,), why, lines, (wait,)))
    return tuple(blames)


def _unreached(witness: Witness) -> list[Peer]:
    """Return the nodes that a node tried in vain to reach until it gave up.

    One whose waiting was cut short by a fault knows only of the node that it could not reach, if that is the fault.
    """
    if witness.stage is not Stage.MEETING:
        return []
    if witness.kind == "cannot_connect":
        return [peer for peer in witness.peers if witness.fault.startswith(f"cannot connect to {peer.node} at ")]
    if witness.fault or witness.told:
        return []
    return [peer for peer in witness.peers if not peer.heard and peer.answer != NOT_TRIED]


def _connections(task: Task, witnesses: Mapping[str, Witness], *, declared: bool) -> tuple[Blame, ...]:
    """Return the pairs of nodes of which one cannot connect to the other; a node that is in all pairs, alone.

    ``declared``: only those of which the other was known to be there at that time.
    """
    pairs: dict[tuple[str, str], list[str]] = {}
    places = {place.node: place for place in task.places}
    for witness in witnesses.values():
        for peer in _unreached(witness) if (witness.kind == "cannot_connect") is declared else ():
            other = witnesses.get(peer.node)
            if other is None or (not declared and _met_together_s(witness, other) < OVERLAP_S):
                continue
            first, second = sorted((witness.node, peer.node))
            route = f" (from {witness.route})" if witness.route else ""
            line = f"{witness.node}{route} to {places[peer.node].target}: {peer.answer}"
            pairs.setdefault((first, second), []).append(line)
    number = Counter(node for pair in pairs for node in pair)
    others = len(witnesses) - 1
    alone = [node for node in number if others > 1 and number[node] == others]
    blames = []
    for node in alone:
        lines = [line for pair, its in pairs.items() if node in pair for line in its]
        why = f"no connection to or from {others} other nodes"
        blames.append(Blame((node,), why, tuple(lines[:MOST]), _network(places[node], witnesses)))
    for (first, second), lines in pairs.items():
        if first not in alone and second not in alone:
            why = "they cannot connect"
            blames.append(Blame((first, second), why, tuple(lines[:MOST]), _network(places[second], witnesses)))
    return tuple(blames)


def _met_together_s(first: Witness, second: Witness) -> float:
    """Return for how long both met, by their clocks."""
    return min(first.met_at[1], second.met_at[1]) - max(first.met_at[0], second.met_at[0])


def _network(place: Place, witnesses: Mapping[str, Witness]) -> tuple[Action, ...]:
    witness = witnesses.get(place.node)
    names = [] if witness is None else _interface_names(witness)
    actions = [fix.check(f"getent ahosts {place.address}", "on each node: the address it has there")]
    if names:
        actions.append(fix.note(f"{place.node} has {listed(names, 6)}: name other addresses by --addresses"))
    actions.append(
        fix.note(
            f"open port {place.port} between the nodes in their firewalls, and for NCCL all above 1023: it takes any"
        )
    )
    return tuple(actions)


def _interface_names(witness: Witness) -> list[str]:
    return [f"{each.name} {each.addresses[0]}" for each in witness.interfaces if each.name != "lo"]


def _training(witnesses: Mapping[str, Witness]) -> list[Witness]:
    """Return the nodes that TensorFlow left, or that left it, before all was added."""
    return [witness for witness in witnesses.values() if witness.stage in (Stage.CLUSTER, Stage.SUMS)]


def _nccl(task: Task, witnesses: Mapping[str, Witness]) -> tuple[Blame, ...]:
    """Return that NCCL fails on all nodes, if all added by gRPC before, and each says that it is NCCL, or waited in it.

    A process that was killed, or raised another error, is no fault of NCCL.
    """
    seen = _training(witnesses)
    by_grpc = planned([RING], task.times)
    if len(seen) < len(task.places) or not all(
        witness.begun > by_grpc
        and {total.way for total in witness.sums} == {RING}
        and (
            witness.by_limit or ("NCCL" in witness.error and not witness.error.startswith(("killed by", "ended with")))
        )
        for witness in seen
    ):
        return ()
    lines = []
    for witness in seen:
        own = [line.removeprefix("NCCL ").removeprefix("INFO ") for line in witness.log]
        lines += [f"{witness.node}: {line}" for line in own[:2]]
        lines.append(
            f"{witness.node}: {reason(witness.error)}; it has {listed(_interface_names(witness), 4) or 'lo alone'}"
        )
    set_variables = {
        f"{name}={value} on {witness.node}"
        for witness in seen
        for name, value in witness.variables.items()
        if name.startswith("NCCL_") and not name.startswith("NCCL_DEBUG")
    }
    route = next((witness.route for witness in seen if "(" in witness.route), "")
    interface = route.partition("(")[2].rstrip(")") or "eth0"
    settings = listed(sorted(set_variables), 4) or "no variable of NCCL is set"
    advice = (
        fix.export(
            "NCCL_SOCKET_IFNAME", interface, f"on every node: an interface by which they reach each other; {settings}"
        ),
        fix.export("NCCL_IB_DISABLE", "1", "if it helps, InfiniBand or RoCE is the fault"),
    )
    nodes = tuple(witness.node for witness in seen)
    return (Blame(nodes, "NCCL fails between the nodes, and gRPC works between them", tuple(lines[:MOST]), advice),)


def _proxies(task: Task, witnesses: Mapping[str, Witness]) -> tuple[Blame, ...]:
    """Return the nodes whose gRPC takes a proxy, if TensorFlow does not connect where a plain connection succeeded."""
    blames = []
    addresses = ",".join(dict.fromkeys(place.address for place in task.places))
    for witness in _training(witnesses):
        name = witness.proxy
        if witness.stage is Stage.CLUSTER and name and not witness.accused:
            kept = next((each for each in ("no_grpc_proxy", "no_proxy") if each in witness.variables), "")
            lines = (
                f"{witness.node}: connections without it succeeded; TensorFlow waited {witness.waited_s:.0f} s",
                f"{witness.node}: {kept}={witness.variables[kept]}" if kept else f"{witness.node}: no_proxy is not set",
            )
            why = f"TensorFlow's connections go to the proxy in {name}={witness.variables[name]}"
            advice = (fix.export("no_grpc_proxy", addresses, "on every node"), fix.unset(name))
            blames.append(Blame((witness.node,), why, lines, advice))
    return tuple(blames)


def _left(task: Task, witnesses: Mapping[str, Witness]) -> tuple[Blame, ...]:
    """Return the nodes that came less far than others, or that the errors of others name first."""
    seen = _training(witnesses)
    if not seen:
        return ()
    votes = Counter(witness.accused[0] for witness in seen if witness.accused)
    innocent = {witness.node for witness in seen if witness.accused}
    ended = {witness.node for witness in seen if not witness.by_limit} - innocent
    furthest = max((witness.begun, witness.ready) for witness in seen)
    behind = {witness.node for witness in seen if (witness.begun, witness.ready) < furthest} - innocent
    most = {node for node, number in votes.items() if number == max(votes.values())}
    guilty = ended & {*votes}
    if len(witnesses) == len(task.places):  # else the node without a report may be the one that left
        guilty = guilty or behind or ended or most
    if len(guilty) == len(task.places):  # all say the same: nobody stands out
        return ()
    return tuple(_departed(witnesses, node) for node in sorted(guilty))


def _departed(witnesses: Mapping[str, Witness], node: str) -> Blame:
    lines = [_testimony(witness) for witness in witnesses.values() if node in witness.accused[:1]]
    witness = witnesses.get(node)
    why = "left the others"
    if witness is not None and witness.stage in (Stage.CLUSTER, Stage.SUMS):
        verb = "hung" if witness.by_limit else "ended"
        why = f"TensorFlow {verb} {_at(witness)}: {reason(witness.error)}"
    if lines:
        why += f"; {counted(len(lines), 'other node')} name{'s' if len(lines) == 1 else ''} it"
    return Blame((node,), why, tuple(lines[:MOST]), (fix.kernel_log(f"on {node}: look for the end of a process"),))


def _testimony(witness: Witness) -> str:
    return f"{witness.node}, {_at(witness)}: {reason(witness.error)}"


def _at(witness: Witness) -> str:
    return f"in exchange {witness.begun} of {witness.planned}" if witness.begun else "when it connected to the others"


def _slowest(seen: tuple[Witness, ...], sums_of: Callable[[Witness], tuple[Sum, ...]]) -> tuple[Sum, ...]:
    slowest: dict[tuple[str, int], Sum] = {}
    for total in (total for witness in seen for total in sums_of(witness)):
        key = total.way, total.bytes
        if key not in slowest or slowest[key].seconds < total.seconds:
            slowest[key] = total
    return tuple(slowest.values())


def _versions(seen: tuple[Witness, ...]) -> list[str]:
    versions: dict[str, list[str]] = {}
    for witness in seen:
        if witness.tensorflow:
            versions.setdefault(witness.tensorflow, []).append(witness.node)
    if len(versions) < 2:
        return []
    parts = [f"{version} on {listed(nodes)}" for version, nodes in versions.items()]
    return [f"the versions of TensorFlow differ: {listed(parts, 4)}"]


def _times(task: Task, seen: tuple[Witness, ...], sums: tuple[Sum, ...], alone: tuple[Sum, ...]) -> list[str]:
    """Return the time of each sum, beside that of one node alone, and what the link of a node carried."""
    alone_s = {total.bytes: total.seconds for total in alone}
    replicas = max((len(witness.models) for witness in seen), default=1) * len(task.places) or len(task.places)
    notes = []
    for total in sums:
        text = f"{size(total.bytes)} by {total.way}: {1000 * total.seconds:.1f} ms"
        if total.bytes in alone_s:
            text += f", {1000 * alone_s[total.bytes]:.1f} ms on one node alone"
        if total.bytes >= 1 << 20:  # each replica of a ring sends and receives so much
            gigabytes = 2 * (replicas - 1) / replicas * total.bytes / total.seconds / 1e9
            text += f"; {gigabytes:.3g} GB/s each way on the link of a node"
        notes.append(text)
    return notes
