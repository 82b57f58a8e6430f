"""How gpudiag starts new interpreters, and what may be wrong with this one."""

from __future__ import annotations

import sys
<<<<<<< HEAD
from collections.abc import Mapping, Sequence
=======
import sysconfig
from pathlib import Path
>>>>>>> ae1f598 (A module that shadows Python's own is named; the trials compute on every GPU; why computes, too)

SAFE_PATH = ("-P",) if sys.version_info >= (3, 11) else ()
"""The option without which ``-c`` puts the working directory first on the path.

Anybody may have left a ``json.py`` there. To delete the entry in the first line is not enough: since 3.13 Python
imports ``linecache`` before that line (of the working directory, or ending with a SystemError if that is gone).
Python 3.10 knows no such option, and imports nothing before the line.
"""


<<<<<<< HEAD
def hiding() -> str:
    """Return a file on the path that is found instead of a module of Python itself; "" if there is none."""
    import os

    standard = os.path.dirname(os.__file__)  # noqa: PTH120  # pathlib may be what is hidden
    before = sys.path[: sys.path.index(standard)] if standard in sys.path else []
    for folder in before:
        names = sorted(os.listdir(folder)) if os.path.isdir(folder) else []  # noqa: PTH112, PTH208  # see above
        for name in names:
            if name.endswith(".py") and name[:-3] in sys.stdlib_module_names:
                return os.path.abspath(f"{folder}/{name}")  # noqa: PTH100  # see above
    return ""


_FIRST = """
import sys
if sys.path and not sys.path[0]: del sys.path[0]
import json, os
"""
_LAST = """
sys.stdout.write("\\n" + json.dumps(answer))
sys.stdout.flush()
os._exit(0)
"""


def asked(
    script: str, *arguments: str, env: Mapping[str, str], timeout_s: float | None = None, options: Sequence[str] = ()
) -> bytes:
    """Return, as JSON, the ``answer`` of ``script`` in a new interpreter that starts as the user's programs do.

    With the option ``-S`` it starts before what :mod:`site` does, and may do that itself.
    What ``sitecustomize`` and ``.pth`` files print there, at its start or its end, is not part of it. The script has
    ``sys``, ``json`` and ``os``. Raises ``OSError`` and ``subprocess.SubprocessError``.
    """
    import subprocess

    done = subprocess.run(
        [sys.executable, *SAFE_PATH, *options, "-c", f"{_FIRST}{script}{_LAST}", *arguments],
        env=dict(env),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=timeout_s,
        check=True,
    )
    return done.stdout.rpartition(b"\n")[2]
=======
def shadowed() -> tuple[str, str] | None:
    """Return a module of Python's own that was imported from elsewhere, and its file; None if there is none.

    A ``random.py`` in a folder of ``PYTHONPATH``, or a backport in site-packages, takes the place of Python's module,
    for gpudiag as for TensorFlow.
    """
    own = [Path(sysconfig.get_path(name)).resolve() for name in ("stdlib", "platstdlib")]
    for name in sys.stdlib_module_names - {"distutils"}:  # setuptools brings its own of that
        file = getattr(sys.modules.get(name), "__file__", None)
        folders = Path(file).resolve().parents if file else ()
        if folders and (
            not any(one in folders for one in own) or any(one.name.endswith("-packages") for one in folders)
        ):
            return name, str(file)
    return None


def said_of(error: Exception) -> str:
    """Say which module is in the way if that is why ``error`` was raised; "" if none is."""
    found = shadowed() if isinstance(error, ImportError | AttributeError | TypeError) else None
    if found is None:
        return ""
    name, file = found
    return f"{file} is imported in place of Python's own module {name}: rename it, or remove its folder from PYTHONPATH"
>>>>>>> ae1f598 (A module that shadows Python's own is named; the trials compute on every GPU; why computes, too)
