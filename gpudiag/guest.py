"""gpudiag as a guest: in an interpreter of another environment, in which it is not installed.

That environment is examined, so gpudiag leaves no trace in it: no variable and no entry of ``sys.path`` names its
folders. A finder gives gpudiag its modules, and the packages that it needs, and only to these: whatever else imports
a package of the same name, as TensorFlow imports ``packaging``, gets that of its own environment, or none.

The program of such an interpreter, and of each that gpudiag starts from there, begins with :func:`boot`.
"""

from __future__ import annotations

import os
import sys
from importlib import import_module
from importlib.machinery import PathFinder

TYPE_CHECKING = False
if TYPE_CHECKING:  # typing itself would take time in each child
    from importlib.machinery import ModuleSpec
    from typing import Any

NAME = "gpudiag"
home: dict[str, Any] = {}
"""What gpudiag brings along; empty in its own environment.

``executable``: its own interpreter. ``gpudiag``: the folders of its modules. ``packages``: the folder of each other
module that it needs. ``note``: which environment is examined, and why, if another interpreter has started this one.
``archive``: the ``gpudiag.pyz`` that was started, if it was; it is a guest of every interpreter.
"""


def folders() -> list[str]:
    """Return the folders of gpudiag's modules: two in an editable install, whose libraries are not in the checkout."""
    return list(sys.modules[NAME].__path__)


class Finder:
    """Finds gpudiag's modules, and for them alone the packages that they need."""

    def __init__(self, brought: dict[str, Any]) -> None:
        self._own: list[str] = brought[NAME]
        self._packages: dict[str, str] = brought["packages"]

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        """Return the spec of the module ``name``; None leaves it to the other finders."""
        if name == NAME:
            spec = PathFinder.find_spec(name, list(map(os.path.dirname, self._own)))
            if spec is not None:
                spec.submodule_search_locations = list(self._own)
            return spec
        if name in self._packages and self._is_own(_importer()):
            return PathFinder.find_spec(name, [self._packages[name]])
        return None

    def _is_own(self, importer: str) -> bool:
        return importer == NAME or importer in self._packages


def _importer() -> str:
    """Return the top-level name of the module whose code imports something."""
    frame = sys._getframe(2)
    while frame is not None:
        name = str(frame.f_globals.get("__name__", "")).partition(".")[0]
        if name not in ("importlib", "_frozen_importlib", "_frozen_importlib_external"):
            return name
        frame = frame.f_back  # type: ignore[assignment]
    return ""


def enter(brought: dict[str, Any]) -> None:
    """Make gpudiag importable in this interpreter; ``brought`` is the :data:`home` of the one that started it."""
    sys.meta_path.insert(0, Finder(brought))
    import_module("gpudiag.guest").home.update(brought)


def boot(brought: dict[str, Any] | None = None) -> str:
    """Return the first statements of a program that uses gpudiag; "" in its own environment."""
    brought = home if brought is None else brought
    if not brought:
        return ""
    read = f"exec(compile(open({__file__!a}, encoding='utf-8').read(), {__file__!a}, 'exec'), guest)"
    return f"guest = {{'__name__': 'gpudiag.guest'}}; {read}; guest['enter']({brought!a}); "
