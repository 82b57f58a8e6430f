"""The task of each node: its name, its address and its port, in the order of ``TF_CONFIG``."""

from __future__ import annotations

import base64
import binascii
import zlib
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from gpudiag.errors import UsageError, shortage
from gpudiag.fleet.names import is_name
from gpudiag.model.together import Place, Task

PORT = 22220
"""Below the ports that Linux gives to connections by itself (32768 and above), so that none of those has it."""
LAST_PORT = 65535


def planned(run: str, nodes: Sequence[str], addresses: Mapping[str, str], port: int, wait_s: float) -> Task:
    """Return the task of these nodes. Nodes of one address, such as on this machine, get ports one after the other."""
    used: Counter[str] = Counter()
    places = []
    for node in nodes:
        address = addresses.get(node, node)
        machine = "127" if address.startswith("127.") else address  # TensorFlow listens on all addresses of a machine
        places.append(Place(node, address, port + used[machine]))
        used[machine] += 1
    if len(places) < 2:
        raise UsageError(f"--together needs two nodes or more, and {len(places)} can be used.")
    highest = max(place.port for place in places)
    if highest > LAST_PORT:
        raise UsageError(f"--port {port} is too high: {len(places)} nodes of one address need ports up to {highest}.")
    return Task(run, tuple(places), wait_s)


def addresses_in(words: str, nodes: Sequence[str]) -> dict[str, str]:
    """Return the addresses that ``--addresses`` says: a pattern such as ``{node}-ib0``, or a file of ``NODE: ADDRESS``.

    Raises :class:`UsageError`.
    """
    if "{node}" in words:
        return {node: _checked(words.replace("{node}", node), words) for node in nodes}
    address_of: dict[str, str] = {}
    try:
        lines = Path(words).read_text(errors="replace").splitlines()
    except OSError as error:
        raise UsageError(
            f"--addresses {words}: is neither a file nor a pattern such as '{{node}}-ib0': {shortage(error)}"
        ) from None
    for number, line in enumerate(lines, 1):
        text = line.partition("#")[0].strip()
        node, colon, address = text.partition(":")
        if text and not colon:
            raise UsageError(f"{words}: line {number} is not 'NODE: ADDRESS', such as 'n1: 10.0.0.1'.")
        if text:
            address_of[node.strip()] = _checked(address.strip(), f"{words}: line {number}")
    lacking = [node for node in nodes if node not in address_of]
    if lacking:
        raise UsageError(f"{words}: has no address of {', '.join(lacking[:5])}.")
    return address_of


def _checked(address: str, where: str) -> str:
    if not is_name(address.replace(":", "")):  # IPv6 has colons
        raise UsageError(f"{where}: {address!r} cannot be an address.")
    return address


def packed(task: Task) -> str:
    """Return a task as a word of a command line."""
    return base64.urlsafe_b64encode(zlib.compress(msgspec.json.encode(task), 9)).decode()


def unpacked(word: str) -> Task:
    """Return the task in a word of a command line; raises :class:`UsageError`."""
    try:
        return msgspec.json.decode(zlib.decompress(base64.urlsafe_b64decode(word)), type=Task)
    except (binascii.Error, ValueError, zlib.error, msgspec.MsgspecError):
        raise UsageError(
            "the task of this node cannot be read: it is given by 'gpudiag fleet check --together'."
        ) from None
