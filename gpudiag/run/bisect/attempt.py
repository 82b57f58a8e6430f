"""Tries a variant of the environment: in a child of gpudiag, starts a new interpreter with it."""

from __future__ import annotations

import json
import re
import site
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import msgspec

from gpudiag.interpreter import SAFE_PATH
from gpudiag.record import Record
from gpudiag.run.bisect.parts import StartFiles, Variant

TARGET = "gpudiag.run.bisect.attempt:run"
_SCRIPT = Path(__file__).with_name("script.py")
_ASKED = ("skipped", "user_site", "on_path", "driver", "libraries")
"""The fields of a variant that are sent to the new interpreter."""


_LIMITS = {"Max address space": ("RLIMIT_AS", None), "Max data size": ("RLIMIT_DATA", None)} | {
    "Max open files": ("RLIMIT_NOFILE", 1024)
}
"""The limits that can be tried, by their names in ``/proc/self/limits``, each with the value that systems set; None:
no limit."""


def low_limits() -> tuple[str, ...]:
    """Return the limits of this process that are below the usual, and that it may raise."""
    if sys.platform == "win32":
        return ()
    import resource

    low = []
    for name, (constant, usual) in _LIMITS.items():
        now, most = resource.getrlimit(getattr(resource, constant))
        if now not in (most, resource.RLIM_INFINITY) and (usual is None or now < usual):
            low.append(name)
    return tuple(low)


def _raise_limit(name: str) -> None:
    """Raise a limit of this process, and of those that it starts, as far as any user may: to the hard one."""
    import resource

    limit = getattr(resource, _LIMITS[name][0])
    most = resource.getrlimit(limit)[1]
    resource.setrlimit(limit, (most, most))


class Reached(Record):
    """How far a new interpreter got on its way to a GPU."""

    driver_error: str = ""
    """The error with which the driver does not start, or makes no context; then TensorFlow was not imported."""
    imported: bool = False
    listed: int = 0
    computed: bool = False
    """True if a product and a convolution came out right on each GPU."""
    failed: str = ""
    """The error that the interpreter raised, or the result that was wrong."""
    ended: str = ""
    """How the process ended, if it did not record the last step."""
    cut_short: bool = False
    """True if gpudiag ended the process, so that it is not known how far it got."""

    def works(self, wanted: int) -> bool:
        """Return whether at least this many GPUs are listed and compute; for 0, whether TensorFlow was imported."""
        return self.imported and self.listed >= wanted and (self.computed or not wanted)

    def is_like(self, other: Reached) -> bool:
        """Return whether both interpreters ended in the same way; process numbers and times are ignored."""
        return re.sub(r"\d", "", repr(self)) == re.sub(r"\d", "", repr(other)) and self.listed == other.listed

    def text(self, wanted: int) -> str:
        """Describe in a few words how far the interpreter got."""
        if self.computed and self.listed < wanted:
            return f"TensorFlow lists {self.listed} of {wanted} GPUs"
        if self.computed:
            return f"GPUs listed: {self.listed}; a product and a convolution on each came out right"
        why = " ".join((self.driver_error or self.failed or self.ended).split())
        if self.cut_short:
            return f"ended by gpudiag: {why}"
        if not self.imported and not self.driver_error:
            return f"import tensorflow: {why}"
        if why:
            return f"GPUs listed: {self.listed}; {why}" if self.listed else why
        return "TensorFlow lists no GPU" if wanted else "TensorFlow is imported"


def argument(variant: Variant) -> dict[str, Any]:
    """Build the argument of :func:`run`."""
    return msgspec.to_builtins(variant)  # type: ignore[no-any-return]


def run(given: dict[str, Any]) -> bytes:
    """Start a new interpreter with the variant ``given`` and return :class:`Reached`."""
    scratch = Path(tempfile.mkdtemp(prefix="try-"))
    notes, empty = scratch / "notes", scratch / "empty"
    empty.mkdir()
    environment = dict(given["variables"])
    environment["TMPDIR"] = str(scratch)
    environment.setdefault("HOME", str(empty))  # without it Python takes the folder of the password database
    alone = bool(given["skipped"]) or not given["user_site"]
    asked = {name: given[name] for name in _ASKED} | {"notes": str(notes)}
    for name in given["raised"]:
        _raise_limit(name)
    done = subprocess.run(
        [
            sys.executable,
            *SAFE_PATH,
            *(["-S"] if alone else []),
            "-c",
            _SCRIPT.read_text(encoding="utf-8"),
            json.dumps(asked),
        ],
        env=environment,
        cwd=empty if given["elsewhere"] else None,
        stdin=subprocess.DEVNULL,
        check=False,
    )
    noted = json.loads(notes.read_bytes()) if notes.exists() else {}
    noted.pop("ended", None)
    whole = noted.get("driver_error") or noted.get("failed") or noted.get("computed") or noted.get("listed") == 0
    return msgspec.json.encode(Reached(**noted, ended="" if whole else _ending(done.returncode)))


def _ending(code: int) -> str:
    from gpudiag.isolate.job import how_it_ended

    return f"the process {how_it_ended(code).replace('exited', 'ended')}"


def start_files(_: dict[str, Any]) -> bytes:
    """Return the :class:`~gpudiag.run.bisect.parts.StartFiles` of this interpreter.

    The answering process was forked from one that started like the user's programs, and so it knows which files Python
    ran. Another interpreter would run them again.
    """
    modules = [sys.modules.get(name) for name in ("sitecustomize", "usercustomize")]
    user = site.getusersitepackages() if site.ENABLE_USER_SITE else ""
    user = user if user in sys.path else ""
    folders = [Path(folder) for folder in (*site.getsitepackages(), user) if folder]
    return msgspec.json.encode(
        StartFiles(
            customize=tuple(file for module in modules if (file := getattr(module, "__file__", None))),
            pth=tuple(str(file) for folder in folders for file in sorted(folder.glob("*.pth"))),
            user_site=user,
        )
    )
