"""Reads statements, which bind names, choose, repeat, and define."""

from __future__ import annotations

import ast
from collections.abc import Callable
from typing import Any

from gpudiag.lint.folding import UNROLLED, computed, counts_all, element, is_dataset, items, merged, sequence, table
from gpudiag.lint.program import Assigned, Entered, Named, Option, Past, common
from gpudiag.lint.reading.calls import Calls
from gpudiag.lint.reading.cursor import DEVICES, MOST_STEPS, NO_EFFECTS, TooLongError
from gpudiag.lint.syntax import is_main, is_tf_function, not_none
from gpudiag.lint.values import (
    UNKNOWN,
    Attribute,
    Class,
    Const,
    Instance,
    Items,
    Made,
    Name,
    Part,
    ProjectFunction,
    Table,
    Value,
    devices,
    truth,
    use,
)

_ENDS = frozenset({"sys.exit", "os._exit", "builtins.exit", "builtins.quit", "os.abort"})
_ENVIRON = frozenset({"os.environ", "os.environb"})


class Statements(Calls):
    """Reads statements."""

    def block(self, body: list[ast.stmt]) -> bool:
        """Read statements; return whether what follows them is reached."""
        for statement in body:
            self.steps += 1
            if self.steps > MOST_STEPS:
                raise TooLongError
            method = self._STATEMENTS.get(type(statement))
            if method is None:
                continue
            try:
                if method(self, statement) is False:
                    return False
            except TooLongError:
                raise
            except Exception as error:  # costs this statement alone
                line = statement.lineno
                why = f"could not be followed, and is not checked ({type(error).__name__}: {error})"
                why = "is nested too deeply to be checked" if isinstance(error, RecursionError) else why
                self.frame.module.source.problem(f"line {line} {why}", line, self.frame.piece.cell)
        return True

    def _expression(self, statement: ast.Expr) -> bool | None:
        value = self.evaluate(statement.value)
        if isinstance(value, Name) and not isinstance(statement.value, ast.Constant):
            self.record(Named, statement.value, name=value.path, statement=True)
        return False if isinstance(value, Made) and value.name in _ENDS else None

    # --- assignments

    def _assign(self, statement: ast.Assign) -> None:
        value = self.evaluate(statement.value)
        for target in statement.targets:
            self.bind(target, value, statement, whole=len(statement.targets) == 1)

    def _annotated(self, statement: ast.AnnAssign) -> None:
        if statement.value is not None:
            self.bind(statement.target, self.evaluate(statement.value), statement, whole=False)

    def _augmented(self, statement: ast.AugAssign) -> None:
        value = self.evaluate(statement.value)
        before = self.evaluate(statement.target)
        if isinstance(before, Name) and before.path in _ENVIRON and isinstance(value, Table):
            self.set_variables(value, statement, "update")
        elif isinstance(statement.target, ast.Name):
            self.bind(statement.target, computed(statement.op, before, value), statement)
        else:
            use(value)

    def bind(self, target: ast.expr, value: Value, statement: ast.AST, *, whole: bool = False) -> None:
        """Assign a value to a target; ``whole``: the statement is this assignment alone."""
        if isinstance(target, ast.Name):
            functions = self.frame.functions
            of_module = bool(functions) and target.id in functions[-1].globals
            (self.frame.scopes[0] if of_module else self.scope)[target.id] = value
        elif isinstance(target, ast.Attribute):
            self._bind_attribute(target, value, statement, whole=whole)
        elif isinstance(target, ast.Subscript):
            self._bind_item(target, value, statement)
        elif isinstance(target, ast.Tuple | ast.List):
            for inner, part in zip(target.elts, _unpacked(value, target.elts), strict=True):
                self.bind(inner.value if isinstance(inner, ast.Starred) else inner, part, statement)

    def _bind_item(self, target: ast.Subscript, value: Value, statement: ast.AST) -> None:
        base = self.evaluate(target.value)
        key = self.evaluate(target.slice)
        if isinstance(base, Name) and base.path in _ENVIRON:
            node = statement.value if isinstance(statement, ast.Assign) else None
            self.set_variable(key, value, statement, node, target.slice, "=")
        elif isinstance(base, Attribute) and base.name == "device_count":
            self._option(base, value, statement, key)
        elif isinstance(base, Table):
            base.put(key, UNKNOWN if self.frame.doubtful else value)
            if base.environ:
                node = statement.value if isinstance(statement, ast.Assign) else None
                self.set_variable(key, value, statement, node, target.slice, "env", base)
        elif isinstance(base, Items):
            at = key.value if isinstance(key, Const) else None
            if isinstance(at, int) and -len(base.items) <= at < len(base.items) and not self.frame.doubtful:
                base.items = [*base.items]
                base.items[at] = value
            else:
                base.lost = True
            use(value)
        else:
            use(value)

    def _bind_attribute(self, target: ast.Attribute, value: Value, statement: ast.AST, *, whole: bool) -> None:
        base = self.evaluate(target.value)
        if isinstance(base, Name):
            name = f"{base.path}.{target.attr}"
            self.record(Assigned, statement, name=name, value=value, target=target, whole=whole)
            use(value)
        elif isinstance(base, Instance):
            base.attributes[target.attr] = value
            if isinstance(value, Made):
                value.held = target.attr
                value.used |= base.of.has_outer_base or self.frame.uncalled
            elif isinstance(value, Table):
                use(value)
        elif isinstance(base, Made | Attribute):
            self._option(Attribute(base, target.attr), value, statement)
        else:
            if isinstance(base, Class):
                base.namespace[target.attr] = value
            use(value)

    def _option(self, at: Attribute, value: Value, statement: ast.AST, key: Value | None = None) -> None:
        """Record an assignment to an attribute of a made object, or to the item ``key`` of such an attribute."""
        names = []
        base: Value = at
        while isinstance(base, Attribute):
            names.append(base.name)
            base = base.of
        use(value)
        if not isinstance(base, Made):
            return
        path = ".".join(reversed(names))
        if key is not None:
            value = table([(key, value)])
        base.options[path] = value
        if self.frame.doubtful:
            base.doubtful.add(path)
        self.record(Option, statement, made=base, path=path, value=value)

    def _delete(self, statement: ast.Delete) -> None:
        for target in statement.targets:
            if isinstance(target, ast.Name):
                self.scope.pop(target.id, None)

    # --- choices and loops

    def _if(self, statement: ast.If) -> bool | None:
        if is_main(statement.test) and len(self.frame.scopes) == 1:
            if self.frame.module is self.program.module:
                self.main.append((self.frame.piece, statement.body))
            return None
        known = self.test(statement.test)
        return self._branches([statement.body, statement.orelse], known, statement.test, not_none(statement.test))

    def _branches(
        self,
        arms: list[list[ast.stmt]],
        known: bool | None,
        guard: ast.AST,
        given: tuple[str, int] | None = None,
    ) -> bool | None:
        """Read the arms of a choice; after it only the effects that all continuing arms share are certain.

        ``given`` is a name and the number of the arm in which it is not None.
        """
        start, scope = self.past, self.scope
        before = dict(scope)
        ends: list[tuple[Past | None, dict[str, Value]]] = []
        live = [True, False] if known else [False, True] if known is False else [True] * len(arms)
        doubtful, returns = self.frame.doubtful or known is None, self.frame.returns
        for at, (arm, counts) in enumerate(zip(arms, live, strict=True)):
            self.past = start
            scope.clear()
            scope.update(before)
            ends_here = returns if counts else None  # a return that is never reached ends nothing
            around, dead = (*self.frame.guards, guard), self.frame.dead or (None if counts else guard)
            with self.inside(guards=around, doubtful=doubtful, dead=dead, returns=ends_here):
                goes_on = self._arm(arm, given[0] if given is not None and given[1] == at else "")
            if goes_on and counts:
                ends.append((self.past, dict(scope)))
        scope.clear()
        if not ends:
            scope.update(before)
            self.past = start
            return False
        scope.update(ends[0][1] if len(ends) == 1 else merged([names for _, names in ends]))
        self.past = ends[0][0] if len(ends) == 1 else common([past for past, _ in ends], start)
        return None

    def _arm(self, body: list[ast.stmt], not_none_name: str) -> bool:
        """Read a branch in which a name is known not to be None."""
        scope = self.scope
        none = scope.get(not_none_name)
        if not (isinstance(none, Const) and none.value is None):
            return self.block(body)
        scope[not_none_name] = UNKNOWN
        goes_on = self.block(body)
        if scope.get(not_none_name) is UNKNOWN:
            scope[not_none_name] = none
        return goes_on

    def _for(self, statement: ast.For | ast.AsyncFor) -> bool | None:
        source = sequence(self.evaluate(statement.iter))
        use(source)
        known = source.items if isinstance(source, Items) and 0 < len(source.items) <= UNROLLED else None
        if known is not None:
            for item in known:
                self.bind(statement.target, item, statement)
                if not self.block(statement.body):
                    break
            self.block(statement.orelse)
            return None
        self.bind(statement.target, element(source), statement)
        listed = devices(source) is not None or counts_all(source)
        sure = listed or truth(source) is True
        # If there are several: what the first round does comes before the second.
        with self.inside(contexts=self.left_open(statement.iter)):
            self._rounds(statement, sure, 2 if listed else 1)
        return None

    def _while(self, statement: ast.While) -> bool | None:
        self._rounds(statement, self.test(statement.test) is True)
        return None

    def _rounds(self, statement: ast.For | ast.AsyncFor | ast.While, sure: bool, most: int = 1) -> None:
        """Read the body of a loop, ``most`` times; if it is not ``sure`` to run, none of its effects is certain."""
        start = self.past
        with self.inside(doubtful=self.frame.doubtful or not sure):
            for _ in range(most):
                if not self.block(statement.body):
                    break
        if not sure:
            self.past = start
        self.block(statement.orelse)

    def _try(self, statement: ast.Try) -> bool | None:
        start, scope = self.past, self.scope
        guards = self.frame.guards
        with self.inside(guards=(*guards, *statement.handlers)):
            goes_on = self.block(statement.body)
        if goes_on:
            goes_on = self.block(statement.orelse)
        end, after = self.past, dict(scope)
        for handler in statement.handlers:
            self.past = start
            if handler.name:
                scope[handler.name] = UNKNOWN
            with self.inside(guards=(*guards, handler), doubtful=True):
                self.block(handler.body)
        scope.update(after)
        self.past = end
        final = self.block(statement.finalbody)
        return None if goes_on and final else False

    def _match(self, statement: ast.Match) -> bool | None:
        self.evaluate(statement.subject)
        return self._branches([*(case.body for case in statement.cases), []], None, statement.subject)

    def _with(self, statement: ast.With | ast.AsyncWith) -> bool | None:
        graph, contexts = self.frame.graph, self.frame.contexts
        for item in statement.items:
            value = self.evaluate(item.context_expr)
            contexts = (*contexts, *self.left_open(item.context_expr)[len(self.frame.contexts) :])
            if isinstance(value, Made):
                value.entered = value.used = True
                graph = graph or value.name.endswith("Graph().as_default")
                effects = DEVICES if value.api == "device" and self.makes_devices else NO_EFFECTS
                self.record(Entered, value.node, effects, made=value, body=statement.body)
                contexts = (*contexts, value)
                if value.name == "builtins.open":
                    value = UNKNOWN
            if item.optional_vars is not None:
                self.bind(item.optional_vars, value, statement)
        with self.inside(graph=graph, contexts=contexts):
            return None if self.block(statement.body) else False

    def _assert(self, statement: ast.Assert) -> None:
        self.test(statement.test)

    # --- what leaves a block

    def _return(self, statement: ast.Return) -> bool:
        value = self.evaluate(statement.value) if statement.value is not None else Const(None)
        if not self.frame.stack:
            use(value)  # by a caller that is not seen
        if self.frame.returns is not None:
            self.frame.returns.append((self.past, value))
        return False

    def _raise(self, statement: ast.Raise) -> bool:
        if statement.exc is not None:
            self.evaluate(statement.exc)
        return False

    def _jump(self, _: ast.stmt) -> bool:
        return False

    # --- definitions

    def _function(self, statement: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        given = [self.evaluate(decorator) for decorator in statement.decorator_list]
        for default in (*statement.args.defaults, *statement.args.kw_defaults):
            if default is not None:
                use(self.evaluate(default))
        frame = self.frame
        graph = any(is_tf_function(decorator) for decorator in given)
        function = ProjectFunction(
            statement, frame.module, frame.piece, frame.scopes, graph=graph, outer=frame.functions
        )
        self.functions.append(function)
        self.scope[statement.name] = function
        for decorator, node in reversed([*zip(given, statement.decorator_list, strict=True)]):
            if isinstance(decorator, ProjectFunction):
                result = self.follow(decorator, [self.scope[statement.name]], {}, node)
                if isinstance(result, ProjectFunction):
                    self.scope[statement.name] = result

    def _class(self, statement: ast.ClassDef) -> None:
        for decorator in statement.decorator_list:
            self.evaluate(decorator)
        bases = [self.evaluate(base) for base in statement.bases]
        scopes = self.frame.scopes
        made = Class(statement, self.frame.module, {}, bases)
        before = len(self.functions)
        with self.inside(scopes=(*scopes, made.namespace)):
            self.block(statement.body)
        me = Instance(made)
        for function in self.functions[before:]:
            if function.node in statement.body:
                function.scopes = scopes
                function.owner = None if "staticmethod" in function.decorators else me
                kept = made.namespace.get(function.node.name)
                if isinstance(kept, ProjectFunction) and kept.node not in statement.body:
                    made.namespace[function.node.name] = function  # what its decorator returns does not take self
        self.scope[statement.name] = made

    _STATEMENTS: dict[type[ast.stmt], Callable[[Any, Any], bool | None]] = {
        ast.Expr: _expression,
        ast.Assign: _assign,
        ast.AnnAssign: _annotated,
        ast.AugAssign: _augmented,
        ast.If: _if,
        ast.Match: _match,
        ast.For: _for,
        ast.AsyncFor: _for,
        ast.While: _while,
        ast.Try: _try,
        ast.With: _with,
        ast.AsyncWith: _with,
        ast.FunctionDef: _function,
        ast.AsyncFunctionDef: _function,
        ast.ClassDef: _class,
        ast.Return: _return,
        ast.Raise: _raise,
        ast.Break: _jump,
        ast.Continue: _jump,
        ast.Assert: _assert,
        ast.Delete: _delete,
        ast.Import: Calls.read_import,
        ast.ImportFrom: Calls.read_import_from,
    }


def _unpacked(value: Value, targets: list[ast.expr]) -> list[Value]:
    """Return the value that each of several targets gets."""
    if isinstance(value, Made) and value.name.endswith("().parse_known_args"):
        return [value, *[UNKNOWN] * (len(targets) - 1)]
    star = next((at for at, target in enumerate(targets) if isinstance(target, ast.Starred)), None)
    if isinstance(value, Items) and star is None and len(value.items) == len(targets):
        return value.items
    if isinstance(value, Items) and star is not None and len(value.items) >= len(targets) - 1:
        end = len(value.items) - (len(targets) - star - 1)
        return [*value.items[:star], items(value.items[star:end]), *value.items[end:]]
    if isinstance(value, Part) and is_dataset(value.of):
        return [value] * len(targets)
    return [Part(value, at) if devices(value) else UNKNOWN for at in range(len(targets))]
