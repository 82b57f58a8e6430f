"""Gathers host facts, one file for each family, and judges nothing; the records are in ``gpudiag.model.facts``."""

from __future__ import annotations

import importlib
import platform
from pathlib import Path
from typing import Any

import msgspec

from gpudiag.model.facts import Facts
from gpudiag.text import printable as printable

FAMILIES: tuple[str, ...] = tuple(field.name for field in msgspec.structs.fields(Facts))
"""The families in the order of the fields of :class:`gpudiag.model.facts.Facts`; a module of this package each."""


_ROOTED = ("system", "driver", "nvml", "device_nodes", "container", "libraries", "tried", "kernel")
"""The families that read files of the machine; their ``gather`` takes its root."""


def gather_family(argument: dict[str, Any]) -> bytes:
    """Gather the family that ``argument["family"]`` names and return its record as JSON.

    ``argument["root"]``, if it is given, replaces / when files of the machine are read.

    Run it in a child process with a deadline: the families ``driver``, ``nvml``, ``cuda`` and ``calls`` call into
    NVIDIA's libraries, which can hang. Raises ``ValueError`` for an unknown family.
    """
    family = argument["family"]
    if family not in FAMILIES:
        raise ValueError(f"no family of host facts is called {family!r}")
    where = [Path(argument["root"])] if "root" in argument and family in _ROOTED else []
    return msgspec.json.encode(importlib.import_module(f"{__name__}.{family}").gather(*where))


def read_text(file: Path) -> str:
    """Return the text of ``file``; "" if it does not exist, or if this user may not read it."""
    try:
        return file.read_text(errors="replace")
    except OSError:
        return ""


def kernel_release(root: Path) -> str:
    """Return the kernel release of the machine under ``root``."""
    return read_text(root / "proc/sys/kernel/osrelease").strip() or platform.release()


def user_name(number: int) -> str:
    """Return the name of a user; its number if it has no name here, as in a container, or on Windows."""
    try:
        import pwd

        return printable(pwd.getpwuid(number).pw_name)
    except (ImportError, KeyError):
        return str(number)
