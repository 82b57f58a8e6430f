"""Files of hosts for the engine ``ssh``: lists of names, and inventories of Ansible, read by ``ansible-inventory``."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from gpudiag.errors import UsageError, shortage
from gpudiag.fleet.engines import Roster
from gpudiag.fleet.launcher import launch
from gpudiag.fleet.names import MOST, expand, is_name
from gpudiag.text import one_line

_LARGEST = 16 << 20
_SUFFIXES = (".ini", ".yml", ".yaml", ".cfg", ".json", ".toml")
_OF_ANSIBLE = re.compile(rb"^[ \t]*\[[A-Za-z_][\w.:-]*\][ \t]*(?:[#;].*)?$|\bansible_\w+[ \t]*[=:]", re.MULTILINE)
"""The head of a group or a variable of Ansible, in a file whose name says nothing."""
_ADDRESS = re.compile(r"[A-Za-z0-9_.:][A-Za-z0-9_.:%-]*")
_SSH = ("ssh", "smart", "paramiko", "paramiko_ssh", "ansible.builtin.ssh", "ansible.netcommon.paramiko_ssh")


@dataclass(frozen=True)
class Host:
    """How ssh reaches one host."""

    address: str
    options: tuple[str, ...] = ()
    rack: str = ""
    fault: str = ""
    """Why it cannot be reached as the file says."""


@dataclass(frozen=True)
class Hosts:
    """What a file of hosts says."""

    file: Path
    by_name: Mapping[str, Host]
    groups: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """The hosts of each group of an inventory, those of its children among them."""

    def roster(self, names: Sequence[str]) -> Roster:
        """Return all hosts, or those that are named, each alone or by its group."""
        chosen: dict[str, None] = {}
        for name in names or self.by_name:
            members = (name,) if name in self.by_name else self.groups.get(name, (name,))
            chosen |= dict.fromkeys(members)
        faults = {name: fault for name in chosen if (fault := self.fault(name))}
        racks = {name: self.by_name[name].rack for name in chosen if name not in faults and self.by_name[name].rack}
        return Roster(tuple(chosen), faults, racks)

    def fault(self, name: str) -> str:
        """Return why ssh cannot connect to the host of this name; "" if it may."""
        if name in self.by_name:
            return self.by_name[name].fault
        return f"{self.file} has no {'group or host' if self.groups else 'host'} of this name"


async def read_hosts(path: Path) -> Hosts:
    """Read a file of hosts; raises :class:`UsageError` if it cannot be read, or has none."""
    try:
        content = b"" if path.is_dir() else _content(path)
    except OSError as error:
        raise UsageError(f"{path}: cannot be read: {shortage(error)}.") from None
    hosts = await _inventory(path) if _is_inventory(path, content) else _list(path, content)
    if not hosts.by_name:
        raise UsageError(f"{path}: has no host.")
    return hosts


def _content(path: Path) -> bytes:
    if not path.is_file():
        raise UsageError(f"{path}: is not a file.")
    with path.open("rb") as file:
        content = file.read(_LARGEST + 1)
    if len(content) > _LARGEST:
        raise UsageError(f"{path}: is larger than {_LARGEST >> 20} MiB; that is no list of hosts.")
    return content


def _is_inventory(path: Path, content: bytes) -> bool:
    program = content.startswith((b"#!", b"\x7fELF")) and os.access(path, os.X_OK)
    return path.is_dir() or path.suffix in _SUFFIXES or program or _OF_ANSIBLE.search(content) is not None


def _list(path: Path, content: bytes) -> Hosts:
    names: dict[str, None] = {}
    for number, line in enumerate(content.decode("utf-8-sig", errors="replace").splitlines(), 1):
        words = line.partition("#")[0].split()
        try:
            names |= dict.fromkeys(expand(words))
        except UsageError as error:
            user = "; give a user by --engine-option=-lUSER, or in ~/.ssh/config" if "@" in line else ""
            raise UsageError(f"{path}: line {number}: {str(error).rstrip('.')}{user}.") from None
        if len(names) > MOST:
            raise UsageError(f"{path}: names more than {MOST:,} nodes; check a part of them at a time.")
    return Hosts(path, {name: Host(name) for name in names})


async def _inventory(path: Path) -> Hosts:
    done = await launch(("ansible-inventory", "--list", "-i", str(path.absolute())), 120)
    if done.status is None:
        raise UsageError(
            f"{path}: is an inventory of Ansible, and ansible-inventory was not found: pip install ansible-core"
        )
    try:
        groups = msgspec.json.decode(done.output, type=dict[str, dict[str, Any]]) if done.status == 0 else None
    except msgspec.MsgspecError:
        groups = None
    if groups is None:
        raise UsageError(f"{path}: cannot be read as an inventory of Ansible: {done.last_line or 'no text'}")
    variables = groups.pop("_meta", {}).get("hostvars", {})
    members = {name: tuple(_members(groups, name)) for name in groups}
    names = dict.fromkeys(host for hosts in members.values() for host in hosts)
    strange = next((name for name in names if not is_name(name)), None)
    if strange is not None:
        raise UsageError(
            f"{path}: {one_line(strange)!r} cannot be the name of a node: letters, digits, '_', '.' and '-' only, and "
            "no '-' or '.' first. Put the address into ansible_host."
        )
    if not names and done.errors.strip():  # it ends with 0, and says there what it could not read
        raise UsageError(f"{path}: has no host for Ansible: {one_line(done.errors)[:500]}")
    return Hosts(path, {name: _host(name, variables.get(name, {})) for name in names}, members)


def _members(groups: Mapping[str, Mapping[str, Any]], name: str) -> dict[str, None]:
    """Return the hosts of a group and of its children, each once."""
    hosts: dict[str, None] = {}
    waiting, seen = [name], {name}
    while waiting:
        group = groups.get(waiting.pop(), {})
        hosts |= dict.fromkeys(group.get("hosts", ()))
        children = [child for child in group.get("children", ()) if child not in seen]
        seen.update(children)
        waiting += children
    return hosts


def _host(name: str, variables: Mapping[str, Any]) -> Host:
    """Return how Ansible would reach a host; see "Connecting to hosts: behavioral inventory parameters" there."""

    def value(*keys: str) -> str:
        return next((str(variables[key]) for key in keys if variables.get(key) not in (None, "")), "")

    address = value("ansible_host", "ansible_ssh_host") or name
    user, port = value("ansible_user", "ansible_ssh_user"), value("ansible_port", "ansible_ssh_port")
    key = value("ansible_private_key_file", "ansible_ssh_private_key_file")
    arguments = f"{value('ansible_ssh_common_args')} {value('ansible_ssh_extra_args')}"
    connection = value("ansible_connection")
    for text in (address, user, port, key, arguments, connection):
        if "{{" in text:
            return Host(
                address, fault=f"{text.strip()!r} in the inventory is a template, which only a playbook fills in"
            )
    if connection and connection not in _SSH:
        return Host(address, fault=f"its ansible_connection is {one_line(connection)!r}, not ssh")
    if not _ADDRESS.fullmatch(address) or not re.fullmatch(r"[0-9]*", port):
        return Host(address, fault=f"ssh cannot connect to address {one_line(address)!r}, port {one_line(port)!r}")
    options: list[str] = []
    for flag, text in (("-p", port), ("-l", user), ("-i", str(Path(key).expanduser()) if key else "")):
        options += [flag, text] if text else []
    try:
        options += shlex.split(arguments)
    except ValueError as error:
        return Host(address, fault=f"its ansible_ssh_common_args cannot be read: {error}")
    return Host(address, tuple(options), one_line(value("rack")))
