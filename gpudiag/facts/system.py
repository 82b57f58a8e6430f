"""The family ``system``: operating system, Python, size of the host."""

from __future__ import annotations

import contextlib
import getpass
import os
import platform
import re
import shutil
import sys
from pathlib import Path

from gpudiag.facts import kernel_release, printable, python_environment
from gpudiag.facts.limits import control_group
from gpudiag.knowledge import starters
from gpudiag.knowledge.sandboxes import of_unit
from gpudiag.model.facts import SystemFacts


def gather(root: Path = Path("/")) -> SystemFacts:
    """Return the facts of this host, whose kernel files are under ``root``, and of this interpreter."""
    import psutil

    release = kernel_release(root)
    return SystemFacts(
        os=_distribution(root),
        kernel=release,
        machine=platform.machine(),
        libc=" ".join(platform.libc_ver()).strip(),
        hostname=printable(platform.node()),
        user=printable(_user()),
        home=printable(_home()),
        python=platform.python_version(),
        executable=printable(sys.executable),
        prefix=printable(sys.prefix),
        cpus=len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1,
        memory_bytes=psutil.virtual_memory().total,
        wsl="microsoft" in release.lower(),
        root=os.geteuid() == 0 if hasattr(os, "geteuid") else None,
        sudo=shutil.which("sudo") is not None,
        python_environment=python_environment.gather(),
        started_by=starters.names(os.environ, _unit(root)),
        bios=_of_firmware(root, "bios_version", "bios_date"),
        product=_of_firmware(root, "sys_vendor", "product_name"),
    )


def _of_firmware(root: Path, *names: str) -> str:
    """Return what the firmware says of the machine, in one line; "" on machines without DMI, such as most of ARM.

    These files can be read by everybody, the serial numbers beside them by root alone. A simulated machine has none.
    """
    texts = []
    for name in names:
        with contextlib.suppress(OSError, ValueError):
            texts.append(" ".join((root / "sys/class/dmi/id" / name).read_text(errors="replace").split())[:80])
    return printable(" ".join(filter(None, texts)))


def _unit(root: Path) -> str:
    """Return the unit of systemd that this process is in; "" if it is in none that is a service."""
    sandbox, name = of_unit(control_group(root, "devices") or "") or ("", "")
    return name if sandbox == "systemd" else ""


def _distribution(root: Path) -> str:
    """Return the name in ``etc/os-release`` under ``root``; a simulated machine need not have that file."""
    if root != Path("/"):
        try:
            named = re.search(r'^PRETTY_NAME="?([^"\n]+)', (root / "etc/os-release").read_text(), re.MULTILINE)
        except (OSError, ValueError):
            named = None
        if named:
            return printable(named[1])
    try:
        return platform.freedesktop_os_release()["PRETTY_NAME"]
    except (OSError, ValueError):  # there is no /etc/os-release, or it is not UTF-8
        return f"{platform.system()} {platform.version()}"


def _home() -> str:
    try:
        return str(Path("~").expanduser())
    except RuntimeError:  # HOME is not set, and the user has no entry in the password database
        return ""


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a container may run under a uid without a name; KeyError until Python 3.12
        return str(os.getuid())
