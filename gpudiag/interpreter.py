"""How gpudiag starts new interpreters, and what may be wrong with this one."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence

SAFE_PATH = ("-P",) if sys.version_info >= (3, 11) else ()
"""The option without which ``-c`` puts the working directory first on the path.

Anybody may have left a ``json.py`` there. Deleting the entry in the first line of the script is not enough: since 3.13
Python imports ``linecache`` before that line (from the working directory, or with a SystemError if that is gone).
Python 3.10 has no such option, and imports nothing before that line.
"""


def said_of(error: BaseException) -> str:
    """Name the file that hides a module of Python itself, if that may be why ``error`` was raised.

    A ``random.py`` in a folder of ``PYTHONPATH`` takes the place of Python's module, for gpudiag as for TensorFlow.
    """
    import os

    if not isinstance(error, ImportError | AttributeError | TypeError | SyntaxError):
        return ""
    standard = os.path.dirname(os.__file__)  # noqa: PTH120  # pathlib may be what is hidden
    before = sys.path[: sys.path.index(standard)] if standard in sys.path else []
    for folder in before:
        try:
            names = sorted(os.listdir(folder))  # noqa: PTH208  # see above
        except OSError:
            continue
        for name in names:
            module, file = name.removesuffix(".py"), os.path.abspath(f"{folder}/{name}")  # noqa: PTH100  # see above
            # Nothing imports Python's own tests, and many a project has a folder of that name.
            if module in sys.stdlib_module_names - {"test"} and os.access(
                file if name != module else f"{file}/__init__.py", os.R_OK
            ):
                return (
                    f"{file} is found in place of Python's own module {module}: rename it, or take its folder out of "
                    "PYTHONPATH"
                )
    return ""


# Without the working directory, which Python 3.10 puts first on the path: any file there may be called json.py.
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
    """Run ``script`` in a new interpreter, started as the user's programs are, and return its variable ``answer``.

    With the option ``-S`` the interpreter does not import :mod:`site`; the script may do so. Output of
    ``sitecustomize`` and ``.pth`` files, at start or end, is discarded. The script has ``sys``, ``json`` and ``os``.
    Raises ``OSError`` and ``subprocess.SubprocessError``.
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
