"""Starts the watcher of `gpudiag trace` in every Python that the program starts, and then what it hides.

Python imports a module of this name when it starts; `gpudiag trace` puts this folder first in PYTHONPATH. It must run
in any Python, so it is written for the oldest and lets nothing out.
"""

import sys

try:
    from os.path import dirname

    _here = dirname(__file__)
    if sys.version_info >= (3, 8):
        import gpudiag_watch

        gpudiag_watch.start_in_new_interpreter()
except Exception:  # noqa: S110  (a program must start as it would without the watcher)
    pass
finally:
    # The program finds its modules where it would without the watcher, and its own sitecustomize is run.
    sys.path[:] = [_entry for _entry in sys.path if _entry != _here]
    _ours = sys.modules.pop("sitecustomize", None)
    try:
        import sitecustomize  # noqa: F401
    except ImportError as _error:
        if getattr(_error, "name", "sitecustomize") != "sitecustomize":
            raise
        sys.modules["sitecustomize"] = _ours
