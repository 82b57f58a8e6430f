"""The family ``system`` on the machine that runs the tests."""

from __future__ import annotations

import os
import platform
import sys
from pathlib import Path

import pytest

from gpudiag.facts import system


def test_this_interpreter_and_host() -> None:
    facts = system.gather()
    assert facts.python == platform.python_version()
    assert (facts.executable, facts.prefix) == (sys.executable, sys.prefix)
    assert (facts.kernel, facts.machine) == (os.uname().release, os.uname().machine)
    assert 1 <= facts.cpus <= (os.cpu_count() or 1)
    assert facts.memory_bytes == os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def test_a_uid_without_a_name(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("LOGNAME", "USER", "LNAME", "USERNAME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("os.getuid", lambda: 54321)
    assert system.gather().user == "54321"


def test_wsl_is_known_by_its_kernel(tmp_path: Path) -> None:
    release = tmp_path / "proc/sys/kernel/osrelease"
    release.parent.mkdir(parents=True)
    release.write_text("5.15.153.1-microsoft-standard-WSL2\n")
    facts = system.gather(tmp_path)
    assert facts.wsl
    assert facts.kernel == "5.15.153.1-microsoft-standard-WSL2"
    assert not system.gather().wsl


def test_a_uid_without_a_name_and_without_a_home(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("LOGNAME", "USER", "LNAME", "USERNAME", "HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("os.getuid", lambda: 54321)
    assert (system.gather().user, system.gather().home) == ("54321", "")


def test_names_that_are_not_utf8(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def release() -> dict[str, str]:
        return {"PRETTY_NAME": b"caf\xe9".decode()}

    monkeypatch.setattr("platform.freedesktop_os_release", release)
    monkeypatch.setattr("platform.node", lambda: os.fsdecode(b"h\xffst"))
    facts = system.gather()
    assert facts.hostname == "h\\udcffst"
    assert facts.os.startswith("Linux")


def test_the_firmware_names_the_machine(tmp_path: Path) -> None:
    assert (system.gather(tmp_path).bios, system.gather(tmp_path).product) == ("", "")
    folder = tmp_path / "sys/class/dmi/id"
    folder.mkdir(parents=True)
    for name, text in {
        "bios_version": "2.4\n",
        "bios_date": "08/01/2025\n",
        "product_name": "SYS-420GP-TNR  \n",
    }.items():
        (folder / name).write_text(text)
    (folder / "sys_vendor").write_bytes(b"Super\xffmicro\x1b" + b"x" * 300)
    (folder / "product_serial").write_text("secret")
    facts = system.gather(tmp_path)
    assert facts.bios == "2.4 08/01/2025"
    assert facts.product.endswith(" SYS-420GP-TNR")
    assert len(facts.product) < 110
    assert "secret" not in facts.product
