"""The possible values of expressions, and their effects."""

from __future__ import annotations

import ast
from abc import abstractmethod
from collections.abc import Callable
from typing import Any, TypeGuard

from gpudiag.lint.folding import (
    COMPARISONS,
    UNROLLED,
    computed,
    counted,
    element,
    items,
    number,
    same,
    sequence,
    sliced,
    table,
)
from gpudiag.lint.folding import text as text_of
from gpudiag.lint.program import Named, Tested, removed_name
from gpudiag.lint.reading.command_line import default_of, flag_default, is_parsed
from gpudiag.lint.reading.imports import Imports
from gpudiag.lint.syntax import names_tested, never_equal
from gpudiag.lint.values import (
    EACH_INDEX,
    UNKNOWN,
    Attribute,
    Class,
    Const,
    Imported,
    Instance,
    Items,
    Made,
    Method,
    Name,
    Part,
    ProjectFunction,
    Table,
    Value,
    count_of_gpus,
    devices,
    is_environ,
    is_false_text,
    truth,
    use,
)

_KNOWN = {"tf": "tensorflow", "os": "os", "keras": "keras", "multiprocessing": "multiprocessing", "K": "keras.backend"}
"""Names that code uses without an import, in snippets and after ``import *``."""
_BUILTINS = frozenset(
    {"len", "str", "int", "float", "bool", "list", "tuple", "sorted", "set", "range", "enumerate", "zip", "print"}
    | {"vars", "super", "dict", "round", "abs", "setattr", "exit", "quit", "open", "hasattr", "getattr"}
    | {"map", "sum", "min", "max", "any", "all", "__import__", "reversed", "iter", "next"}
)


class Expressions(Imports):
    """Evaluates expressions."""

    @abstractmethod
    def bind(self, target: ast.expr, value: Value, statement: ast.AST, *, whole: bool = False) -> None:
        """Assign a value to a target."""

    @abstractmethod
    def call(self, node: ast.Call) -> Value:
        """Return the result of a call, and record its effects."""

    def evaluate(self, node: ast.expr) -> Value:
        """Return the possible value of an expression, and record its effects."""
        self.steps += 1
        kind = type(node)
        if kind is ast.Constant:
            value = node.value  # type: ignore[attr-defined]
            return number(value) if type(value) in (int, float) else Const(value)
        if kind is ast.Call:
            return self.call(node)  # type: ignore[arg-type]
        result = self._EXPRESSIONS.get(kind, Expressions._other)(self, node)
        return UNKNOWN if type(result) is Items and result.lost else result

    def test(self, node: ast.expr) -> bool | None:
        """Return whether a test is true, or None, and record the names that are tested instead of called."""
        for part in names_tested(node):
            tested = self.evaluate(part)
            if isinstance(tested, Name) and tested.path.rpartition(".")[2] == getattr(
                part, "attr", getattr(part, "id", "")
            ):
                self.record(Tested, part, name=tested.path)
        return self._truth(self.evaluate(node), node)

    def _truth(self, value: Value, node: ast.expr) -> bool | None:
        """Return whether a value is true, or None, and record a text of the environment that is tested as a number."""
        if is_false_text(value):
            self.record(Tested, node, name="os.environ")
        return truth(value)

    def _other(self, node: ast.expr) -> Value:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.expr):
                use(self.evaluate(child))
        return UNKNOWN

    def _name(self, node: ast.Name) -> Value:
        name = node.id
        for scope in reversed(self.frame.scopes):
            if name in scope:
                return scope[name]
        if name in _KNOWN:
            return Name(_KNOWN[name])
        return Name(f"builtins.{name}") if name in _BUILTINS else UNKNOWN

    def _attribute(self, node: ast.Attribute) -> Value:
        base = self.evaluate(node.value)
        name = node.attr
        if isinstance(base, Name):
            path = f"{base.path}.{name}"
            if removed_name(path):
                self.record(Named, node, name=path, statement=False)
            return (flag_default(self.program, path) if "FLAGS." in path else None) or Name(path)
        found: Value | None = None
        if isinstance(base, Imported):
            found = base.module.namespace.get(name)
        elif isinstance(base, Instance):
            found = self.attribute_of(base, name, node)
        elif isinstance(base, Class):
            found = base.find(name)
            if isinstance(found, ProjectFunction) and found.takes_class:
                found = Method(found, base)
        elif is_parsed(base) and isinstance(base, Made):
            found = None if self._is_asked_for(name) else default_of(self.program, base, name)
            found = found or Attribute(base, name)
        elif isinstance(base, Made):
            found = base.options.get(name, Attribute(base, name))
        elif isinstance(base, Const) and name == "value":
            found = base  # of a member of an Enum
        elif isinstance(base, Attribute | Part | Const | Items | Table) or devices(base):
            found = Attribute(base, name)
        return UNKNOWN if found is None else found

    def _is_asked_for(self, name: str) -> bool:
        """Return whether a test around this place is about an option, so that it may not have its default here."""
        return any(
            isinstance(node, ast.Attribute) and node.attr == name
            for guard in self.frame.guards
            for node in ast.walk(guard)
        )

    @abstractmethod
    def attribute_of(self, instance: Instance, name: str, node: ast.AST) -> Value | None:
        """Return an attribute of an object of the project: a value, a method, or the value of a property."""

    def _subscript(self, node: ast.Subscript) -> Value:
        base = self.evaluate(node.value)
        if isinstance(node.slice, ast.Slice):
            return self._slice(base, node.slice)
        key = self.evaluate(node.slice)
        at = key.value if isinstance(key, Const) else None
        base = sequence(base) if isinstance(base, Const) else base
        if isinstance(base, Table):
            found = base.get(at)
            return UNKNOWN if found is None else found
        if isinstance(base, Items):
            if isinstance(at, int) and -len(base.items) <= at < len(base.items):
                return base.items[at]
            return UNKNOWN
        if listed := devices(base):
            index, each = at if isinstance(at, int) else None, key is EACH_INDEX and listed.all
            return Part(base, index, each=each, by=None if each or isinstance(at, int) else node.slice)
        if is_parsed(base) and isinstance(base, Made):  # of parse_known_args, or of vars(args)
            return base if at == 0 else default_of(self.program, base, str(at)) or UNKNOWN
        return UNKNOWN

    def _slice(self, base: Value, part: ast.Slice) -> Value:
        bounds = [None if bound is None else self.evaluate(bound) for bound in (part.lower, part.upper, part.step)]
        if isinstance(base, Items):
            return sliced(base, bounds)
        if not devices(base):
            return UNKNOWN
        if part.lower is None and part.upper is None:
            return base
        first, end = (bound.value if isinstance(bound, Const) and not bound.assumed else None for bound in bounds[:2])
        first = 0 if part.lower is None else first
        if isinstance(first, int) and isinstance(end, int) and 0 <= first < end <= first + UNROLLED:
            return items(Part(base, at) for at in range(first, end))
        return Part(base, several=True, by=part.lower or part.upper)

    def _binary(self, node: ast.BinOp) -> Value:
        left, right = self.evaluate(node.left), self.evaluate(node.right)
        of_environ = is_environ(left) or (isinstance(left, Table) and left.environ)
        if isinstance(right, Table) and of_environ and isinstance(node.op, ast.BitOr):
            made = Table([*(left.pairs if isinstance(left, Table) else []), *right.pairs], right.size, environ=True)
            self.set_variables(right, node, "env", made)
            return made
        return computed(node.op, left, right)

    def _unary(self, node: ast.UnaryOp) -> Value:
        value = self.evaluate(node.operand)
        if isinstance(node.op, ast.Not):
            known = self._truth(value, node.operand)
            return UNKNOWN if known is None else Const(not known)
        if isinstance(node.op, ast.USub) and isinstance(value, Const) and isinstance(value.value, int | float):
            return Const(-value.value)
        return UNKNOWN

    def _boolean(self, node: ast.BoolOp) -> Value:
        values = [self.evaluate(operand) for operand in node.values]
        known = [self._truth(value, operand) for value, operand in zip(values, node.values, strict=True)]
        if isinstance(node.op, ast.And):
            if False in known:
                return Const(False)
            return values[-1] if all(known) else UNKNOWN
        while len(values) > 1 and known[0] is False:
            del values[0], known[0]
        if known[0] is True or len(values) == 1:
            return values[0]
        return Const(True) if True in known else UNKNOWN

    def _compare(self, node: ast.Compare) -> Value:
        left = self.evaluate(node.left)
        rights = [self.evaluate(comparator) for comparator in node.comparators]
        if len(rights) != 1:
            return UNKNOWN
        right, op = rights[0], node.ops[0]
        if (same_always := never_equal(left, op, right, node.left)) is not None:
            self.record(Tested, node, name="", always=same_always)
        if count_of_gpus(left) and isinstance(right, Const) and isinstance(right.value, int):
            return counted(op, right.value)
        compare = COMPARISONS.get(type(op))
        if compare and isinstance(left, Const) and isinstance(right, Const):
            if left.assumed or right.assumed:
                return UNKNOWN
            try:
                return Const(bool(compare(left.value, right.value)))
            except TypeError:
                return UNKNOWN
        if devices(left) and isinstance(right, Items) and not right.items:
            return Const(isinstance(op, ast.NotEq))
        if devices(left) and isinstance(right, Const) and right.value is None and isinstance(op, ast.Is | ast.IsNot):
            return Const(isinstance(op, ast.IsNot))
        return UNKNOWN

    def _choice(self, node: ast.IfExp) -> Value:
        known = self.test(node.test)
        with self.inside(doubtful=self.frame.doubtful or known is None):
            body, other = self.evaluate(node.body), self.evaluate(node.orelse)
        use(body)
        use(other)
        return same([body, other]) if known is None else body if known else other

    def _list(self, node: ast.List | ast.Tuple | ast.Set) -> Value:
        values: list[Value] = []
        for item in node.elts:
            if isinstance(item, ast.Starred):
                inner = self.evaluate(item.value)
                if not isinstance(inner, Items):
                    return UNKNOWN
                values += inner.items
            else:
                values.append(self.evaluate(item))
        return items(values)

    def _dict(self, node: ast.Dict) -> Value:
        pairs = []
        environ = False
        for key, value in zip(node.keys, node.values, strict=True):
            inner = self.evaluate(value)
            if key is not None:
                pairs.append((self.evaluate(key), inner))
            elif isinstance(inner, Table):
                pairs += inner.pairs
                environ |= inner.environ
            environ |= key is None and is_environ(inner)
        made = table(pairs)
        if environ and isinstance(made, Table):
            made.environ = True
            self.set_variables(made, node, "env", made)
        for _, value_of in pairs:
            if isinstance(value_of, ProjectFunction):
                value_of.chosen = True
        return made

    @abstractmethod
    def set_variables(self, table: Table, node: ast.AST, how: str, copy: Table | None = None) -> None:
        """Record that the environment, or the ``copy`` of it, is given all items of a dictionary."""

    def _joined(self, node: ast.JoinedStr) -> Value:
        parts: list[Value] = []
        for part in node.values:
            if isinstance(part, ast.FormattedValue):
                value = self.evaluate(part.value)
                plain = part.format_spec is None and part.conversion in (-1, ord("s"))
                parts.append(value if plain else UNKNOWN)
            else:
                parts.append(self.evaluate(part))
        return text_of(parts)

    def _comprehension(self, node: ast.ListComp | ast.SetComp | ast.GeneratorExp) -> Value:
        with self.inside(scopes=(*self.frame.scopes, {})):
            sources = []
            filtered = False
            for generator in node.generators:
                source = sequence(self.evaluate(generator.iter))
                use(source)
                sources.append(source)
                self.bind(generator.target, element(source), node)
                for test in generator.ifs:
                    filtered = True
                    self.evaluate(test)
            source = sources[0]
            if len(sources) == 1 and not filtered and _is_short(source):
                results = []
                for item in source.items:
                    self.bind(node.generators[0].target, item, node)
                    results.append(self.evaluate(node.elt))
                return items(results)
            result = self.evaluate(node.elt)
        if isinstance(result, Part) and result.each:
            return Part(result.of, several=True) if filtered else result.of
        use(result)
        return UNKNOWN

    def _dict_comprehension(self, node: ast.DictComp) -> Value:
        with self.inside(scopes=(*self.frame.scopes, {})):
            source: Value = UNKNOWN
            for generator in node.generators:
                source = self.evaluate(generator.iter)
                self.bind(generator.target, element(source), node)
                for test in generator.ifs:
                    self.evaluate(test)
            generator = node.generators[0]
            if len(node.generators) == 1 and not generator.ifs and _is_short(source):
                pairs = []
                for item in source.items:
                    self.bind(generator.target, item, node)
                    pairs.append((self.evaluate(node.key), self.evaluate(node.value)))
                return table(pairs)
            use(self.evaluate(node.key))
            use(self.evaluate(node.value))
        return UNKNOWN

    def _yield(self, node: ast.Yield) -> Value:
        if self.frame.stack:
            self._open[id(self.frame.stack[-1][2])] = self.frame.contexts
        return self._other(node)

    def left_open(self, node: ast.expr) -> tuple[Made, ...]:
        """Return the context managers around what uses the values of a generator: also those it yields in."""
        opened = (self._open.pop(id(call)) for call in ast.walk(node) if id(call) in self._open)
        return next(opened, self.frame.contexts)

    def _lambda(self, node: ast.Lambda) -> Value:
        function = ProjectFunction(node, self.frame.module, self.frame.piece, self.frame.scopes)
        self.functions.append(function)
        return function

    def _walrus(self, node: ast.NamedExpr) -> Value:
        value = self.evaluate(node.value)
        self.bind(node.target, value, node)
        return value

    _EXPRESSIONS: dict[type[ast.expr], Callable[[Any, Any], Value]] = {
        ast.Name: _name,
        ast.Attribute: _attribute,
        ast.Subscript: _subscript,
        ast.BinOp: _binary,
        ast.UnaryOp: _unary,
        ast.BoolOp: _boolean,
        ast.Compare: _compare,
        ast.IfExp: _choice,
        ast.List: _list,
        ast.Tuple: _list,
        ast.Set: _list,
        ast.Dict: _dict,
        ast.JoinedStr: _joined,
        ast.ListComp: _comprehension,
        ast.SetComp: _comprehension,
        ast.GeneratorExp: _comprehension,
        ast.DictComp: _dict_comprehension,
        ast.Lambda: _lambda,
        ast.NamedExpr: _walrus,
        ast.Yield: _yield,
    }


def _is_short(source: Value) -> TypeGuard[Items]:
    """Return whether a value is a list that is short enough to follow a loop over it, element by element."""
    return isinstance(source, Items) and 0 < len(source.items) <= UNROLLED
