"""Searches a machine for the driver's libraries outside of the loader's path: only then can they be called missing.

Container runtimes, distributions and clusters put them into folders of their own, and a variable or a link that is lost
on the way hides them. They are looked for only where a GPU's driver is in the kernel or a device is here.
"""

from __future__ import annotations

import os
import re
import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from gpudiag import trust
from gpudiag.facts import read_text, start_files
from gpudiag.hardware.processes import environment
from gpudiag.text import printable

_PLACES = (
    "run/opengl-driver/lib",  # NixOS, where it is a link
    "cvmfs/software.eessi.io/host_injections/nvidia/*/*/host",  # https://github.com/EESSI/software-layer/issues/381
)
"""Folders that the walk does not reach."""
_NOT_WALKED = ("proc", "sys", "dev", "tmp", "root", "mnt", "media", "boot", "cvmfs", "nix", "snap", "lost+found")
"""Folders of / without a driver, or that other machines share; of /home only that of Google's nodes is looked at."""
_SKIPPED = re.compile(
    r"(?:site|dist)-packages|python[\d.]+|node_modules|share|include|src|doc|kernel|firmware|debug|locale|stubs|.*compat"
    r"|i386-linux-gnu|docker|containerd|overlay2?|containers|kubelet|cache|log|spool|user|build|simulator|\.(?!singularity\.d$).*"
)
"""Folders without a driver, or with one for linking, or for another kernel module (CUDA's forward compatibility)."""
_MOST_FOLDERS = 20_000
_MOST_SECONDS = 3.0
_DEEPEST = 8
_MOST_CLOSED = 8
_CDI = ("etc/cdi/*", "var/run/cdi/*", "run/cdi/*")
_IN_CDI = re.compile(r"(/[^\s\"':]{1,500})/lib(?:cuda|nvidia-ml)\.so\.[\d.]{1,20}")
_LARGEST = 1 << 20
_SIGNS = ("dev/nvidiactl", "dev/dxg", "dev/nvidia0", "proc/driver/nvidia/version")
_VARIABLE = "LD_LIBRARY_PATH"
_REMOTE = ("nfs", "autofs", "cifs", "fuse.", "lustre", "gpfs", "beegfs", "ceph", "proc", "sysfs", "cgroup")
"""Beginnings of the names of file systems that are not searched: those of other machines, and the kernel's own."""


class Search:
    """The files of the driver's libraries under ``root``, by the name that programs open, such as ``libcuda.so.1``."""

    def __init__(self, root: Path, names: Sequence[str], environ: Mapping[str, str] = os.environ) -> None:
        self._root = root
        self._stems = {name.removesuffix("1"): name for name in names}
        self.files: dict[str, dict[Path, str]] = {name: {} for name in names}
        """The files, links to nothing included, each with the place that names its folder; "" for none."""
        self._remote: set[str] = set()
        self.walked: tuple[str, ...] = ()
        """The folders that were looked through to the end, with those below; none if that took too long."""
        self.closed: list[str] = []
        """Folders that this user may not look into, a few of them."""
        if not names or not any(os.path.lexists(root / sign) for sign in _SIGNS):
            return
        for folder, place in self._named(environ):
            self._look(folder, place)
        for pattern in _PLACES:
            for folder in sorted(root.glob(pattern)):
                self._look(folder, "")
        tops = [folder for folder in sorted(root.glob("*")) if folder.is_dir() and not folder.is_symlink()]
        tops = [folder for folder in tops if folder.name not in (*_NOT_WALKED, "home")]
        if self._walk([*tops, *(root / "home").glob("kubernetes")]):
            self.walked = tuple(printable(f"/{top.relative_to(root)}") for top in tops) or ("/",)

    def _look(self, folder: Path, place: str) -> None:
        try:
            names = os.listdir(folder)  # noqa: PTH208  # names alone
        except OSError:
            return
        self._take(folder, names, place)

    def _take(self, folder: Path, names: Sequence[str], place: str) -> None:
        for stem, name in self._stems.items():
            # The name itself, or else the file that lacks a link of this name.
            versions = [name] if name in names else sorted(n for n in names if _has_release(n, stem))
            for version in versions[-1:]:
                self.files[name].setdefault(folder / version, place)

    def _named(self, environ: Mapping[str, str]) -> Iterator[tuple[Path, str]]:
        """Yield each folder that a mount, a device specification (CDI), a start-up file or the first process names.

        Each comes with what named it.
        """
        yield from self._mounted()
        for pattern in _CDI:
            for file in sorted(self._root.glob(pattern)):
                try:
                    text = trust.read(file, _LARGEST).decode(errors="replace")
                except OSError:
                    continue
                for folder in dict.fromkeys(_IN_CDI.findall(text)):
                    yield self._root / folder.lstrip("/"), printable(str(file))
        seen: set[Path] = set()
        files = list(start_files.files(self._root, environ))
        scripts = sorted(self._root.glob(".singularity.d/env/*.sh"))
        files += [(file, printable(f"/{file.relative_to(self._root)}"), start_files.SHELL) for file in scripts]
        for file, shown, kind in files:
            for setting in start_files.of_file(file, shown, kind, environ, seen, names=frozenset({_VARIABLE})):
                if setting.name == _VARIABLE:
                    yield from self._entries(setting.added, f"{setting.file} line {setting.line}")
        first = environment(self._root / "proc/1").get(_VARIABLE, "")
        yield from self._entries(first, "the first process of this container")

    def _mounted(self) -> Iterator[tuple[Path, str]]:
        """Yield the folders of mounted libraries, and mounted folders of libraries; note what is not to be walked."""
        for line in read_text(self._root / "proc/self/mountinfo").splitlines():
            fields = line.split()
            if "-" not in fields[5:]:
                continue
            point = Path(fields[4])
            if fields[fields.index("-", 5) + 1].startswith(_REMOTE):
                self._remote.add(str(self._root / fields[4].lstrip("/")))
            else:
                is_library = point.name.startswith(tuple(self._stems))
                for folder in (point.parent,) if is_library else (point, point / "lib64", point / "lib"):
                    if is_library or folder.name.startswith(("lib", "nvidia")):
                        yield folder, f"{point} is mounted" if is_library else ""

    def _entries(self, value: str, place: str) -> Iterator[tuple[Path, str]]:
        for entry in value.split(":"):
            if entry.startswith("/"):
                yield Path(entry), place
                if self._root != Path("/"):
                    yield self._root / entry.lstrip("/"), place

    def _walk(self, tops: list[Path]) -> bool:
        """Look through the folders below ``tops``, the nearest first; return whether that came to its end."""
        ends = time.monotonic() + _MOST_SECONDS
        pending = deque((str(top), 1) for top in tops)
        for _ in range(_MOST_FOLDERS):
            if not pending:
                return True
            if time.monotonic() > ends:
                return False
            folder, depth = pending.popleft()
            names = []
            try:
                with os.scandir(folder) as found:
                    for entry in found:
                        if entry.name.startswith("lib") and ".so." in entry.name:
                            names.append(entry.name)
                        elif (
                            depth < _DEEPEST
                            and entry.path not in self._remote
                            and not _SKIPPED.fullmatch(entry.name)
                            and entry.is_dir(follow_symlinks=False)
                        ):
                            pending.append((entry.path, depth + 1))
            except PermissionError:
                if len(self.closed) < _MOST_CLOSED:
                    self.closed.append(printable(f"/{Path(folder).relative_to(self._root)}"))
                continue
            except OSError:  # gone
                continue
            self._take(Path(folder), names, "")
        return False


def _has_release(name: str, stem: str) -> bool:
    """Return whether a file is called ``stem`` with the release of a driver, such as ``libcuda.so.580.65.06``."""
    release = name.removeprefix(stem)
    return release != name and "." in release and release.replace(".", "").isdecimal()
