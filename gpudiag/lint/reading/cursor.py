"""The current place of reading: the frame, the events that surely happened before, and the records."""

from __future__ import annotations

import ast
import re
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from gpudiag.lint.program import Effects, Frame, LintedProgram, Past, ProgramEvent
from gpudiag.lint.project import Module, Project
from gpudiag.lint.sources import Piece
from gpudiag.lint.values import Made, ProjectFunction, Value

MOST_STEPS = 100_000
"""The most nodes of a program that are visited."""
NO_EFFECTS: Effects = frozenset()
DEVICES: Effects = frozenset({"query", "devices"})

_GRAPH_STYLE = re.compile(
    r"\btf\w*\.(?:placeholder|get_variable|Session|ConfigProto|InteractiveSession|GPUOptions|disable_v2_behavior|"
    r"disable_eager_execution|global_variables_initializer|contrib|app\.run|estimator)\b|\bdisable_v2_behavior\("
    r"|\bdisable_eager_execution\("
)
_V2_STYLE = re.compile(r"\btf\.(?:function|GradientTape|random\.set_seed|io\.gfile)\b")


class TooLongError(Exception):
    """The program needs more steps than are allowed."""


def is_eager(module: Module) -> bool:
    """Return whether operations in a file make devices, which they do not in code for graphs and sessions."""
    return not _GRAPH_STYLE.search(module.text) or bool(_V2_STYLE.search(module.text))


class Cursor(ABC):
    """A place in a program, and the records up to it."""

    def __init__(self, project: Project, module: Module) -> None:
        self.project = project
        self.program = LintedProgram(module)
        piece = module.source.pieces[0] if module.source.pieces else Piece("")
        self.frame = Frame(module, piece, (module.namespace,))
        self.past: Past | None = None
        """The events that surely happened before."""
        self.eager = is_eager(module)
        """True if operations run when they are called; a call may switch that off for all later code."""
        self.steps = 0
        self.functions: list[ProjectFunction] = []
        """Every function that was defined so far."""
        self.call_counts: Counter[ProjectFunction] = Counter()
        self.main: list[tuple[Piece, list[ast.stmt]]] = []
        """The bodies below ``if __name__ == "__main__"``, which are read last."""
        self.imported: Past | None = None
        """The events that surely happen when the program is imported: at its top level, without the part for
        ``__main__``."""
        self._open: dict[int, tuple[Made, ...]] = {}
        """The context managers in which a generator yields, by the identity of the call that makes the generator."""
        self._relevant_names: set[str] | None = None
        self._matters: dict[ProjectFunction, bool] = {}

    @abstractmethod
    def block(self, body: list[ast.stmt]) -> bool:
        """Read statements; return whether what follows them is reached."""

    @contextmanager
    def inside(self, **changes: Any) -> Iterator[Frame]:
        """Read in a frame that differs in ``changes``, then return to the frame before."""
        before = self.frame
        self.frame = before.changed(changes)
        try:
            yield self.frame
        finally:
            self.frame = before

    @property
    def scope(self) -> dict[str, Value]:
        """The names of the innermost function, or of the module."""
        return self.frame.scopes[-1]

    @property
    def makes_devices(self) -> bool:
        """True if an operation would make TensorFlow's devices here."""
        return self.eager and not self.frame.graph

    def record(self, kind: type[Any], node: ast.AST, effects: Effects = NO_EFFECTS, **values: Any) -> ProgramEvent:
        """Record an event."""
        event: ProgramEvent = kind(node, self.frame, self.past, effects, **values)
        self.program.events.append(event)
        self.past = Past(event, self.past)
        return event

    def is_of_interest(self, function: ProjectFunction) -> bool:
        """Return whether a function may matter to a rule, by its words, or by a function that it names."""
        return function.module.is_telling(function.text) or not self.relevant_names.isdisjoint(function.words)

    @property
    def relevant_names(self) -> set[str]:
        """The names of the functions of this module that are of interest, directly or through another."""
        if self._relevant_names is None:
            module = self.frame.module
            own = {function.name: function for function in self.functions if function.module is module}
            own.pop("", None)
            names = {name for name, function in own.items() if module.is_telling(function.text)}
            while names and (
                more := {name for name, function in own.items() if name not in names and function.words & names}
            ):
                names |= more
            self._relevant_names = names
        return self._relevant_names
