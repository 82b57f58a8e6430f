"""NCCL_SOCKET_IFNAME names none of this machine's network interfaces

NCCL opens a socket before any GPU exchanges data, also on a single machine. NCCL_SOCKET_IFNAME names the interface by
its beginning (eth), or whole (=eth0), or all but some (^docker). A value that matches none, often copied from another
cluster, ends in "no socket interface found" and "unhandled system error".
"""

from __future__ import annotations

from gpudiag.cause import Cause, Match, Matches
from gpudiag.causes.shared.multi_gpu import INTERFACE, interface_not_here
from gpudiag.fix import Kind, note, unset
from gpudiag.model.facts import DeviceNodeFacts, Facts
from gpudiag.model.report import Severity

CAUSE = Cause(
    title="NCCL_SOCKET_IFNAME={value!r} names none of this machine's network interfaces: {interfaces}",
    severity=Severity.WARNING,
    fix=(unset("NCCL_SOCKET_IFNAME"), note("or set it to one of these: {interfaces}", kind=Kind.SET_VARIABLE)),
    url="https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/env.html#nccl-socket-ifname",
    finding="host.collectives.no_interface",
)


def find(facts: Facts, nodes: DeviceNodeFacts) -> Matches:
    if value := interface_not_here(facts):
        here = " ".join(nodes.network)
        yield Match(
            evidence=(f"{INTERFACE}={value!r}", f"network interfaces: {here}"),
            figures={"value": value, "interfaces": here},
            about=(INTERFACE,),
        )
