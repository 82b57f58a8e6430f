"""Lets one call of gpudiag's isolation fail with one errno: ``FAULT_INJECT=<process>:<function>:<errno>:<which>``.

Python imports this file at its start where its folder is on ``PYTHONPATH``. ``process`` is ``supervisor`` or ``server``
(with the forks of it), ``which`` is ``1`` for the first call or ``all``. Only calls from gpudiag/isolate/ fail.
"""

from __future__ import annotations

import errno
import importlib
import os
import sys
from typing import Any


def _install(function: str, number: int, which: str) -> None:
    module_name, _, name = function.rpartition(".")
    module = importlib.import_module(module_name)
    real = getattr(module, name)
    calls = 0

    def fails(*arguments: Any, **named: Any) -> Any:
        nonlocal calls
        caller = sys._getframe(1).f_code.co_filename
        if f"gpudiag{os.sep}isolate{os.sep}" in caller:
            calls += 1
            if which == "all" or calls == int(which):
                raise OSError(number, os.strerror(number))
        return real(*arguments, **named)

    setattr(module, name, fails)


_asked = os.environ.get("FAULT_INJECT", "")
if _asked:
    _process, _function, _errno, _which = _asked.split(":")
    _is_server = any("gpudiag.isolate.server" in word for word in sys.orig_argv)
    if _is_server == (_process == "server"):
        _install(_function, getattr(errno, _errno), _which)
