"""Reads imports: modules of the project are read once; everything else is a name."""

from __future__ import annotations

import ast
import re
from abc import abstractmethod

from gpudiag.lint.program import Effects, Import, Named, Past, ProgramEvent, SetByImport, Variable, removed_name
from gpudiag.lint.project import Module
from gpudiag.lint.reading.cursor import NO_EFFECTS, Cursor, is_eager
from gpudiag.lint.shell import as_shell
from gpudiag.lint.values import UNKNOWN, Imported, Name, Value

_TENSORFLOW = re.compile(
    r"(?:tensorflow|tf_keras|keras|tf_agents|tfx|horovod\.tensorflow|horovod\.keras)\b|tensorflow_"
)
"""Modules that import TensorFlow."""
_IMPORTED: Effects = frozenset({"import"})
_KERAS = re.compile(r"(?:tensorflow\.)?keras(?:_(?:core|cv|hub|nlp|tuner))?(?:\.|$)")
_DEEPEST = 40
"""The most nested imports and calls."""


class Imports(Cursor):
    """Follows imports."""

    def read_import(self, statement: ast.Import) -> None:
        """Read ``import a.b as c``."""
        for alias in statement.names:
            module = self._module(alias.name, 0, statement)
            if module is None:
                self.import_outer(alias.name, statement)
            if alias.asname is None:
                top = alias.name.partition(".")[0]
                own = module if top == alias.name else self._module(top, 0)
                self.scope[top] = Imported(own) if own else Name(top)
            else:
                self.scope[alias.asname] = Imported(module) if module else Name(alias.name)

    def read_import_from(self, statement: ast.ImportFrom) -> None:
        """Read ``from a import b as c``."""
        name = statement.module or ""
        module = self._module(name, statement.level, statement)
        if module is None and not statement.level:
            self.import_outer(name, statement)
        for alias in statement.names:
            if alias.name == "*":
                if module is not None:
                    self.scope.update({key: own for key, own in module.namespace.items() if not key.startswith("_")})
                continue
            value = self._member_of_module(module, name, alias.name, statement)
            self.scope[alias.asname or alias.name] = value
            if isinstance(value, Name) and removed_name(value.path):
                self.record(Named, alias, name=value.path, statement=False)

    def _member_of_module(self, module: Module | None, name: str, member: str, statement: ast.ImportFrom) -> Value:
        """Return the value that ``from name import member`` binds."""
        value = None if module is None else module.namespace.get(member)
        if value is not None:
            return value
        below = self._module(f"{name}.{member}".lstrip("."), statement.level, statement)
        if below is not None:
            return Imported(below)
        return Name(f"{name}.{member}") if module is None and not statement.level else UNKNOWN

    def import_outer(self, name: str, node: ast.AST) -> None:
        """Record the import of a module outside of the project."""
        effects = _IMPORTED if _TENSORFLOW.match(name) else NO_EFFECTS
        self.record(Import, node, effects | {"keras"} if _KERAS.match(name) else effects, name=name)

    def _module(self, name: str, level: int, node: ast.stmt | None = None) -> Module | None:
        """Read the module of the project that the statement ``node`` imports, and return it."""
        module = self.project.find(name, level, self.frame.module.source.path)
        if module is None or module is self.frame.module:
            return None
        if module not in self.program.modules:
            self.program.modules[module] = None
            if module.effects is None:
                module.effects = ()
                self._execute(module)
            if node is not None:
                for event in module.effects:
                    if (isinstance(event, Variable) and event.how != "env") or "hides" in event.effects:
                        self.record(SetByImport, node, setting=event)
            for event in module.effects:
                self.past = Past(event, self.past)
        return module

    def _execute(self, module: Module) -> None:
        """Read the top level of an imported module, once: its definitions and its effects.

        Findings of rules in it are made when it is read as a program.
        """
        frame = self.frame
        if len(frame.stack) + frame.imports > _DEEPEST:
            return
        events, made = len(self.program.events), len(self.program.made)
        past, eager = self.past, self.eager
        self.past, self.eager = None, is_eager(module)
        try:
            with self.inside(
                module=module,
                scopes=(module.namespace,),
                guards=(),
                functions=(),
                doubtful=False,
                graph=False,
                returns=None,
                imports=frame.imports + 1,
            ):
                self.read_top_level(module)
            done: list[ProgramEvent] = []
            while self.past is not None:
                if self.past.event.effects or isinstance(self.past.event, Variable):
                    done.append(self.past.event)
                self.past = self.past.before
            module.effects = tuple(reversed(done))
        finally:
            self.past, self.eager = past, eager
            del self.program.events[events:], self.program.made[made:]

    @abstractmethod
    def shell(self, text: str, node: ast.AST | None) -> None:
        """Record the settings of variables in a shell; ``node`` is the call that starts it, None for a script."""

    def read_top_level(self, module: Module) -> None:
        """Read all statements of a module."""
        for piece in module.source.pieces:
            if piece.tree is not None:
                with self.inside(piece=piece):
                    if piece.is_script:
                        self.shell(as_shell(module.source.path, piece.text), None)
                    self.block(piece.tree.body)
