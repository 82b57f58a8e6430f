"""A module or a name that Python did not find: the requested name and who requested it, as a traceback shows them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property

from gpudiag.cause import LogAlone
from gpudiag.knowledge.frames import packages_in
from gpudiag.knowledge.message import Event
from gpudiag.knowledge.messages.python_packages import MODULE_NOT_THERE
from gpudiag.knowledge.names import Moved, distribution_of, moved
from gpudiag.knowledge.origin import Origin

_DOTTED = re.compile(r"\b([A-Za-z_][\w.]{0,100})\.([A-Za-z_]\w{0,100})")
_FRAME = re.compile(r'(?:File "?|^)(?P<file>[^"]{0,400}\.py)\b')
_ALIASES = {"tf": "tensorflow", "np": "numpy", "sp": "scipy", "pd": "pandas", "plt": "matplotlib.pyplot"}
_PASSED_ON = {"tensorflow_hub.tf_v1": "tensorflow", "tensorflow_hub.tf_utils.tf": "tensorflow"}
"""Modules that only pass on another package's names: a name that they lack is missing in that package."""


@dataclass(frozen=True)
class MissingName:
    """A requested module or name that was not found, according to a line of a log."""

    event: Event
    before: tuple[str, ...]
    """The lines above that line."""
    program: LogAlone
    origin: Origin
    is_known_otherwise: bool
    """True if another message of the line is a fault with a more specific cause of its own."""

    @cached_property
    def asker(self) -> str:
        """The distribution whose code asked for it, from the last frame above the error; "" for the user's program."""
        asked_for = self.event["module"] or self.event["of"]
        asked_for = _PASSED_ON.get(asked_for, asked_for)
        for line in reversed(self.before):
            if (frame := _FRAME.search(line)) is None:
                continue
            inside = packages_in(frame["file"])
            if not inside:
                return ""
            if inside[-1] != asked_for.partition(".")[0]:
                return distribution_of(inside[-1])
        return ""

    @cached_property
    def is_asked_by_program(self) -> bool:
        """True if the last frame above the error is of no installed package."""
        frame = next((found for line in reversed(self.before) if (found := _FRAME.search(line))), None)
        return frame is not None and not packages_in(frame["file"])

    @property
    def who(self) -> str:
        return self.asker or "the program"

    @property
    def name(self) -> str:
        """The requested name in the module; "" if the module itself was not found."""
        return self.event["name"] or self.event["attribute"] or self.event["lacked"]

    @cached_property
    def module(self) -> str:
        module = self.event["module"] or self.event["of"] or _imported_from(self.before, self.name)
        return _PASSED_ON.get(module, module)

    @property
    def top(self) -> str:
        """The top-level package of the module."""
        return self.module.partition(".")[0]

    @property
    def distribution(self) -> str:
        return distribution_of(self.top)

    @property
    def wanted(self) -> str:
        """The requested module or name, in words."""
        return f"{self.name} of {self.module}" if self.name else self.module

    @property
    def lacks_module(self) -> bool:
        """True if the module itself was not found."""
        return self.event.message is MODULE_NOT_THERE

    @cached_property
    def modules(self) -> tuple[str, ...]:
        """The module; for Python 2, which does not name it, the modules that the name may belong to."""
        if self.module:
            return (self.module,)
        return _called(self.before, self.name) if self.event["lacked"] else ()

    @cached_property
    def moved(self) -> Moved | None:
        """The releases that have the name, if they are known."""
        return next((known for module in self.modules if (known := moved(module, self.name)) is not None), None)

    @property
    def wanted_anywhere(self) -> str:
        """The requested module or name, in words, even if Python 2 did not name the module."""
        module = self.module or next((module for module in self.modules if moved(module, self.name)), "")
        return f"{self.name} of {module}" if self.name else module

    @property
    def is_shown(self) -> bool:
        """True if the lines show the place of the request."""
        return any(_FRAME.search(line) for line in self.before)


def _called(before: tuple[str, ...], name: str) -> tuple[str, ...]:
    """Return the modules that a name may belong to: the one in the statement above that uses it, and TensorFlow."""
    for line in reversed(before[-12:]):
        for module, asked in _DOTTED.findall(line):
            if asked == name:
                top, dot, rest = module.partition(".")
                return (f"{_ALIASES.get(top, top)}{dot}{rest}", "tensorflow")
    return ("tensorflow",)


def _imported_from(before: tuple[str, ...], name: str) -> str:
    """Return the module of the statement that asked for ``name``; Python up to 3.6 leaves it out of its error."""
    for line in reversed(before):
        if (found := re.search(r"\bfrom ([A-Za-z_][\w.]{0,200}) import\b", line)) and name in re.split(r"\W", line):
            return found[1]
    return ""
