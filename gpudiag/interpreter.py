"""How gpudiag starts new interpreters."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence

SAFE_PATH = ("-P",) if sys.version_info >= (3, 11) else ()
"""The option without which ``-c`` puts the working directory first on the path.

Anybody may have left a ``json.py`` there. To delete the entry in the first line is not enough: since 3.13 Python
imports ``linecache`` before that line (of the working directory, or ending with a SystemError if that is gone).
Python 3.10 knows no such option, and imports nothing before the line.
"""


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
