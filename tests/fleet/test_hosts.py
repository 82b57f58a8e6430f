"""Files of hosts for ssh: lists of names, and inventories of Ansible.

``inventory.json`` is what ``ansible-inventory --list`` of ansible-core 2.19 printed for ``inventory.ini``; a program of
that name prints it here.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from gpudiag.errors import UsageError
from gpudiag.fleet.hosts import Hosts, read_hosts

DATA = Path(__file__).parent.parent / "data"


def hosts_in(path: Path) -> Hosts:
    return asyncio.run(read_hosts(path))


@pytest.fixture
def with_ansible(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "programs" / "ansible-inventory"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\n[ "$1 $2" = "--list -i" ] && cat {DATA}/inventory.json\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:/usr/bin:/bin")


def test_lines_are_names_and_comments(tmp_path: Path) -> None:
    file = tmp_path / "hosts"
    file.write_text("\ufeff# GPU nodes\nn[1-3] login # and one more\n\n  n3\r\nrack1-n[01-02].example.org\n")
    roster = hosts_in(file).roster(())
    assert roster.nodes == ("n1", "n2", "n3", "login", "rack1-n01.example.org", "rack1-n02.example.org")
    assert hosts_in(file).roster(("n2", "n9")).not_usable == {"n9": f"{file} has no host of this name"}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "has no host"),
        (b"# nothing\n", "has no host"),
        (b"n1\nroot@n2\n", "line 2: 'root@n2'.*--engine-option=-lUSER"),
        (b"n1 -oProxyCommand=x\n", "line 1: '-oProxyCommand=x' cannot be the name"),
        (b"n[1-\n", "line 1"),
        (b"n1\n\x00\xff\xfe\n", "line 2"),
        (b"n[1-300000]\n", "200,000"),
        (b"n1 slots=8\n", "line 1: 'slots=8'"),
    ],
)
def test_a_line_that_is_no_list_of_hosts_is_named(tmp_path: Path, content: bytes, message: str) -> None:
    file = tmp_path / "hosts"
    file.write_bytes(content)
    with pytest.raises(UsageError, match=message):
        hosts_in(file)


@pytest.mark.usefixtures("with_ansible")
def test_an_inventory_says_how_ssh_reaches_its_hosts() -> None:
    hosts = hosts_in(DATA / "inventory.ini")
    assert hosts.by_name["n1"].address == "n1"
    assert hosts.by_name["n3"].address == "10.0.0.3"
    assert hosts.by_name["n3"].options[:4] == ("-p", "2222", "-l", "root")
    assert hosts.by_name["n3"].options[-2:] == ("-o", "ProxyJump=bastion")
    everything = hosts.roster(())
    assert set(everything.nodes) == {"n1", "n2", "n3", "n4", "n5", "login"}
    assert everything.racks == {"n1": "r1", "n2": "r1", "n3": "r2"}
    assert set(everything.not_usable) == {"n4", "n5", "login"}
    assert "template" in everything.not_usable["n4"]
    assert "'local', not ssh" in everything.not_usable["login"]
    assert hosts.roster(("all_gpu",)).nodes == ("n5", "n1", "n2", "n3", "n4")
    assert hosts.roster(("gpu", "old")).nodes == ("n1", "n2", "n3", "n4", "n5")
    assert hosts.roster(("gpux",)).not_usable == {"gpux": f"{DATA / 'inventory.ini'} has no group or host of this name"}


@pytest.mark.usefixtures("with_ansible")
def test_a_host_that_the_file_does_not_have_has_a_fault() -> None:
    hosts = hosts_in(DATA / "inventory.ini")
    assert hosts.fault("n1") == ""
    assert hosts.fault("n7") == f"{DATA / 'inventory.ini'} has no group or host of this name"


@pytest.mark.parametrize("name", ["hosts", "hosts.ini"])
def test_without_ansible_its_package_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    file = tmp_path / name
    file.write_text("[gpu]\nn1\n")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(UsageError, match="pip install ansible-core"):
        hosts_in(file)
