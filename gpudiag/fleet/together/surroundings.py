"""What decides on a node over the way to the others: variables and network interfaces."""

from __future__ import annotations

import ipaddress
import os
import re
from collections.abc import Iterable, Mapping

import psutil

from gpudiag.model.together import Interface

_VARIABLE = re.compile(
    r"NCCL_(?:SOCKET|IB|NET|COMM|CROSS_NIC|P2P|DEBUG).*|(?:grpc|https?|no|no_grpc)_proxy|GRPC_.*|TF_GRPC_.*|GLOO_.*"
)
"""What gRPC and NCCL read; gRPC reads its proxies in small letters only."""
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")


def variables(environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Return the variables that decide over addresses and interfaces, without user names and passwords.

    One for proxies counts for gRPC if it is set, also to nothing.
    """
    return {
        name: _masked(value)[:500]
        for name, value in sorted(environ.items())
        if (value or name.endswith("_proxy")) and _VARIABLE.fullmatch(name)
    }


def _masked(value: str) -> str:
    """Return the value of a variable without user name and password; a scheme may be missing (``user:word@proxy``)."""
    head, at, rest = value.rpartition("@")
    scheme = _SCHEME.match(head)
    return f"{scheme[0] if scheme else ''}...@{rest}" if at else value


def without_passwords(text: str, environ: Mapping[str, str] = os.environ) -> str:
    """Return a text, such as a line of gRPC's log, with the values of these variables masked in it."""
    for name, value in environ.items():
        if "@" in value and _VARIABLE.fullmatch(name):
            text = text.replace(value, _masked(value))
    return text


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


def proxy(addresses: Iterable[str], environ: Mapping[str, str] = os.environ) -> str:
    """Return the variable by which gRPC takes a proxy to one of these addresses; "" if it connects to all itself.

    These are the rules of gRPC's ``http_proxy_mapper.cc``, as measured with TensorFlow 2.21: the first variable that is
    set counts, also an empty one, and a proxy of another scheme than ``http`` is passed over.
    """
    name = next((name for name in ("grpc_proxy", "https_proxy", "http_proxy") if name in environ), "")
    value = environ.get(name, "")
    authority = re.split(r"[/?#]", value[len("http://") :], maxsplit=1)[0]
    if not value.lower().startswith("http://") or not authority.rpartition("@")[2]:
        return ""
    exceptions = environ.get("no_grpc_proxy", environ.get("no_proxy", ""))
    return "" if all(_is_excepted(address, exceptions) for address in addresses) else name


def _is_excepted(address: str, exceptions: str) -> bool:
    """Return whether a list such as ``.example.org,10.0.0.0/8`` has an address: any end of it, or its network."""
    entries = [entry.strip().lower() for entry in exceptions.split(",") if entry]
    return any(address.lower().endswith(entry) or _is_in_network(address, entry) for entry in entries)


def _is_in_network(address: str, network: str) -> bool:
    if not network.partition("/")[2].isdecimal():
        return False
    try:
        return ipaddress.ip_address(address) in ipaddress.ip_network(network, strict=False)
    except ValueError:  # a name, or no network
        return False
