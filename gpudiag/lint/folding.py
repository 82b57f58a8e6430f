"""What expressions of constants and of lists of devices come to, without running them, in bounded time."""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Callable
from itertools import chain
from typing import Any

from gpudiag.lint.values import (
    EACH_INDEX,
    UNKNOWN,
    Attribute,
    Class,
    Const,
    Function,
    Imported,
    Items,
    Made,
    Name,
    Part,
    Value,
    count_of_gpus,
    devices,
)

_LONGEST = 10_000
"""Of texts and lists that are computed."""
UNROLLED = 8
"""Elements of a list that a loop is followed for."""

_OPERATIONS: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.LShift: operator.lshift,
    ast.Pow: operator.pow,
}
COMPARISONS: dict[type[ast.cmpop], Callable[[Any, Any], Any]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}


def computed(op: ast.operator, left: Value, right: Value) -> Value:
    if isinstance(left, Items) and isinstance(right, Items) and isinstance(op, ast.Add):
        return Items([*left.items, *right.items][:_LONGEST])
    if isinstance(left, Items) and len(left.items) == 1 and isinstance(op, ast.Mult):
        many = right.value if isinstance(right, Const) and isinstance(right.value, int) else 1
        return Items(left.items * min(max(many, 1), UNROLLED))
    if not (isinstance(left, Const) and isinstance(right, Const)):
        return UNKNOWN
    one, other = left.value, right.value
    function = _OPERATIONS.get(type(op))
    small = all(
        isinstance(value, str) or (isinstance(value, int | float) and abs(value) < 1 << 64) for value in (one, other)
    )
    if function is None or not small:
        return UNKNOWN
    if isinstance(op, ast.Pow | ast.LShift) and not (isinstance(other, int) and 0 <= other <= 64):
        return UNKNOWN
    if isinstance(op, ast.Mult) and (isinstance(other, str) or (isinstance(one, str) and other > 100)):
        return UNKNOWN
    if isinstance(op, ast.Mod) and isinstance(one, str) and re.search(r"%[^%]*\d{4}", one):
        return UNKNOWN
    try:
        result = function(one, other)
    except Exception:  # as it would when the program is run
        return UNKNOWN
    return Const(result) if not isinstance(result, str) or len(result) <= _LONGEST else UNKNOWN


def element(items: Value) -> Value:
    """Return what a loop over something gives its variable."""
    if isinstance(items, Items):
        return same(items.items)
    if isinstance(items, Made) and items.name == "builtins.enumerate" and items.args:
        of = items.args[0]
        whole = devices(of)
        return Items([EACH_INDEX if whole and whole.all and len(items.args) == 1 else UNKNOWN, element(of)])
    if counts_all(items):
        return EACH_INDEX
    found = devices(items)
    if found is None:
        return UNKNOWN
    return Part(items, each=found.all) if found.all else Part(items)


def counts_all(items: Value) -> bool:
    """Return whether a value is the numbers of all devices of a list: ``range(len(gpus))``."""
    return isinstance(items, Made) and items.name == "builtins.range" and [*map(count_of_gpus, items.args)] == [True]


def sliced(items: Items, part: ast.Slice) -> Value:
    bounds: list[int | None] = []
    for one in (part.lower, part.upper, part.step):
        if one is None:
            bounds.append(None)
        elif isinstance(one, ast.Constant) and isinstance(one.value, int) and one.value:
            bounds.append(one.value)
        else:
            return UNKNOWN
    return Items(items.items[slice(bounds[0], bounds[1], bounds[2])])


def counted(op: ast.cmpop, number: int) -> Value:
    """Return whether the number of devices compares so, if it is not known but is above 0."""
    if isinstance(op, ast.Gt):
        return Const(True) if number < 1 else UNKNOWN
    if isinstance(op, ast.GtE):
        return Const(True) if number <= 1 else UNKNOWN
    if isinstance(op, ast.NotEq):
        return Const(True) if number == 0 else UNKNOWN
    if isinstance(op, ast.Eq | ast.Lt):
        return Const(False) if number <= (0 if isinstance(op, ast.Eq) else 1) else UNKNOWN
    return UNKNOWN


def same(values: list[Value]) -> Value:
    """Return what some values are alike, or UNKNOWN."""
    if not values:
        return UNKNOWN
    first = values[0]
    for one in values[1:]:
        alike = one is first or (
            isinstance(one, Const)
            and isinstance(first, Const)
            and type(one.value) is type(first.value)
            and one.value == first.value
        )
        if not (alike or (isinstance(one, Name) and isinstance(first, Name) and one.path == first.path)):
            return UNKNOWN
    return first


def merged(scopes: list[dict[str, Value]]) -> dict[str, Value]:
    """Return the names after a choice; of two values the one that is of TensorFlow, or none if both are constants."""
    first, *rest = scopes
    kept = dict(first)
    for name in dict.fromkeys(chain(first, *rest)):
        known = first.get(name)
        if known is not None and all(scope.get(name) is known for scope in rest):
            continue  # most names are those of before the choice
        values = [scope[name] for scope in scopes if name in scope]
        alike = same(values)
        if alike is UNKNOWN:
            telling = [one for one in values if not isinstance(one, Const) and one is not UNKNOWN]
            others = (one for one in values if one not in telling)
            only = all(isinstance(one, Const) and one.value is None for one in others)
            if telling and ((only and len(telling) == 1) or isinstance(telling[0], Name | Function | Class | Imported)):
                alike = telling[0]
        if alike is UNKNOWN:
            for one in values:
                if isinstance(one, Made):
                    one.used = True  # what becomes of it is not followed any further
        kept[name] = alike
    return kept


def text_method(func: Attribute, args: list[Value]) -> Value | None:
    """Return the result of a method of a text, or None if it is not one that is known."""
    base = func.of
    if not isinstance(base, Const) or not isinstance(base.value, str):
        return None
    if func.name == "join" and len(args) == 1 and isinstance(args[0], Items):
        parts = [one.value for one in args[0].items if isinstance(one, Const) and isinstance(one.value, str)]
        return Const(base.value.join(parts)) if len(parts) == len(args[0].items) else UNKNOWN
    if func.name == "format" and all(isinstance(one, Const) for one in args):
        if re.search(r"{[^{}:!.\[]{0,400}[:!.\[]", base.value):
            return UNKNOWN
        try:
            return Const(base.value.format(*(one.value for one in args if isinstance(one, Const))))
        except (IndexError, KeyError, ValueError):
            return UNKNOWN
    return UNKNOWN


def _text_of(args: list[Value]) -> Value | None:
    if len(args) == 1 and isinstance(args[0], Const) and isinstance(args[0].value, str | int | float | bool | None):
        return Const(str(args[0].value))
    return None


def _number_of(args: list[Value]) -> Value | None:
    if len(args) == 1 and isinstance(args[0], Const) and isinstance(args[0].value, int | float | str):
        try:
            return Const(int(args[0].value))
        except (ValueError, OverflowError):
            return UNKNOWN
    return None


def _list_of(args: list[Value]) -> Value | None:
    return args[0] if len(args) == 1 and (isinstance(args[0], Items) or devices(args[0])) else None


def _range_of(args: list[Value]) -> Value | None:
    bounds = [one.value for one in args if isinstance(one, Const) and isinstance(one.value, int)]
    if not args or len(bounds) != len(args) or (len(bounds) == 3 and not bounds[2]):
        return None
    numbers = range(*bounds)
    return Items([Const(one) for one in numbers]) if len(numbers) <= UNROLLED else None


RESULTS: dict[str, Callable[[list[Value]], Value | None]] = {
    "builtins.str": _text_of,
    "builtins.int": _number_of,
    "builtins.list": _list_of,
    "builtins.tuple": _list_of,
    "builtins.range": _range_of,
}
