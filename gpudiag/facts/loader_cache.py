"""The loader's own configuration: the folders of ``/etc/ld.so.conf``, and the cache that ``ldconfig`` makes of them."""

from __future__ import annotations

import glob
import os
import re
import subprocess
from pathlib import Path

from gpudiag import trust
from gpudiag.facts import printable, read_text

CONFIGURATION = Path("/etc/ld.so.conf")
_MOST_INCLUDES = 8
_TIMEOUT_S = 5


def configured(file: Path = CONFIGURATION, depth: int = 0) -> dict[str, str]:
    """Return the folders that the configuration names, each with file and line, in ``ldconfig``'s order."""
    folders: dict[str, str] = {}
    for number, line in enumerate(read_text(file).splitlines(), 1):
        words = line.partition("#")[0].split()
        if words[:1] == ["include"] and depth < _MOST_INCLUDES:
            for pattern in words[1:]:
                for included in sorted(glob.glob(os.path.join(file.parent, pattern))):  # noqa: PTH118, PTH207
                    folders = configured(Path(included), depth + 1) | folders
        elif words and words[0].startswith("/"):
            # An entry may end in "=libc6", which ldconfig ignores today.
            folders.setdefault(printable(words[0].partition("=")[0].rstrip("/") or "/"), f"{file} line {number}")
    return folders


def cached() -> dict[str, list[Path]]:
    """Return the files of each name in the cache: ``libz.so.1 (libc6,x86-64) => /lib/x86_64-linux-gnu/libz.so.1``."""
    command = _ldconfig()
    if command is None:
        return {}
    try:
        printed = subprocess.run([command, "-p"], capture_output=True, text=True, timeout=_TIMEOUT_S, check=True).stdout
    except (OSError, subprocess.SubprocessError):
        return {}
    cache: dict[str, list[Path]] = {}
    for name, path in re.findall(r"^[ \t]+(\S+) \(.*\) => (.+)$", printed, re.MULTILINE):
        cache.setdefault(name, []).append(Path(path))
    return cache


def _ldconfig() -> Path | None:
    """Return the program ``ldconfig``: the system's, or else one on ``PATH`` that no other user can write."""
    folders = ("/sbin", "/usr/sbin", *filter(os.path.isabs, os.environ.get("PATH", "").split(os.pathsep)))
    programs = (Path(folder, "ldconfig") for folder in folders)
    return next((file for file in programs if os.access(file, os.X_OK) and not trust.distrust(file)), None)
