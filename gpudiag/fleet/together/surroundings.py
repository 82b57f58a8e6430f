"""What decides on a node over the way to the others: variables and network interfaces."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping

import psutil

from gpudiag.model.together import Interface

_VARIABLE = re.compile(
    r"NCCL_(?:SOCKET|IB|NET|COMM|CROSS_NIC|P2P|DEBUG).*|(?:grpc|https?|no|no_grpc)_proxy|GRPC_.*|TF_GRPC_.*|GLOO_.*"
)
"""What gRPC and NCCL read; gRPC reads its proxies in small letters only."""
_PASSWORD = re.compile(r"//[^/@\s]*@")


def variables(environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Return the variables that decide over addresses and interfaces, without passwords."""
    return {
        name: _PASSWORD.sub("//...@", value)[:500]
        for name, value in sorted(environ.items())
        if value and _VARIABLE.fullmatch(name)
    }


def interfaces() -> tuple[Interface, ...]:
    """Return the network interfaces that are up and have an address."""
    try:
        states, addresses = psutil.net_if_stats(), psutil.net_if_addrs()
    except OSError:  # no /proc or /sys
        return ()
    return tuple(
        Interface(name, inet, states[name].speed or None)
        for name, entries in sorted(addresses.items())
        if name in states
        and states[name].isup
        and (inet := tuple(entry.address for entry in entries if entry.family.name in ("AF_INET", "AF_INET6")))
    )


def proxy(environ: Mapping[str, str] = os.environ) -> str:
    """Return the variable by which gRPC takes a proxy; "" if there is none."""
    return next((name for name in ("grpc_proxy", "https_proxy", "http_proxy") if environ.get(name)), "")
