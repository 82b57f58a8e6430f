"""Computes expressions of constants and of lists of devices without running them, in bounded time and memory.

Every number, text and collection that folding makes is made by :func:`number` or :func:`bounded`: a value that is too
large becomes UNKNOWN, so that no line of a program uses up the memory (``s = f"{s}{s}"``, sixty times), or ends the run
by an overflow.
"""

from __future__ import annotations

import ast
import math
import operator
import re
import string
from collections.abc import Callable, Iterable, Iterator
from itertools import chain, repeat
from typing import Any

from gpudiag.lint.shell import HOLE
from gpudiag.lint.values import (
    EACH_INDEX,
    UNKNOWN,
    Attribute,
    Class,
    Const,
    Imported,
    Items,
    Made,
    Name,
    Part,
    ProjectFunction,
    Table,
    Template,
    Value,
    count_of_gpus,
    devices,
    use,
)

LARGEST = 10_000
"""The most letters of a text, or elements of a collection including nested ones."""
_BITS = 1000
"""The most bits of a whole number: Python makes no text of more than 4,300 digits, and no float beyond 1024 bits."""
UNROLLED = 8
"""The most elements of a list for which a loop is followed."""

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


def number(value: complex) -> Value:
    """Return a number that a program has or computes; UNKNOWN if it is not finite, or has too many digits."""
    if isinstance(value, int):
        return Const(value) if value.bit_length() <= _BITS else UNKNOWN
    return Const(value) if isinstance(value, float) and math.isfinite(value) else UNKNOWN


def _size(value: Value) -> int:
    """Return how large a value is: its letters, digits, or elements including nested ones; at least 1."""
    if isinstance(value, Items | Table):
        return value.size
    if isinstance(value, Const):
        inner = value.value
        return max(len(inner), 1) if isinstance(inner, str | bytes) else 1 + getattr(inner, "bit_length", int)() // 3
    return 1


def bounded(parts: Iterable[Value], make: Callable[[list[Value], int], Value]) -> Value:
    """Return the result of ``make`` for some values, and its size; UNKNOWN if the values together are too large."""
    taken: list[Value] = []
    size = 1
    parts = iter(parts)
    for part in parts:
        taken.append(part)
        size += _size(part)
        if size > LARGEST:
            for value in chain(taken, () if isinstance(parts, repeat) else parts):
                use(value)  # what becomes of it is not followed any further
            return UNKNOWN
    return make(taken, size)


def items(values: Iterable[Value]) -> Value:
    """Return a list of these values."""
    return bounded(values, Items)


def table(pairs: Iterable[tuple[Value, Value]]) -> Value:
    """Return a dictionary of these keys and values."""
    return bounded(chain.from_iterable(pairs), _paired)


def _paired(flat: list[Value], size: int) -> Table:
    return Table([*zip(flat[::2], flat[1::2], strict=True)], size)


def text(parts: Iterable[Value]) -> Value:
    """Return the concatenated texts of some constants; UNKNOWN if one of them is not known."""
    return bounded(parts, _joined)


def _joined(parts: list[Value], _: int) -> Value:
    written = [_written(part) for part in parts]
    if None in written:
        known = [part.text if isinstance(part, Template) else text for part, text in zip(parts, written, strict=True)]
        return Template("".join(HOLE if text is None else text for text in known)) if any(known) else UNKNOWN
    return Const("".join(filter(None, written)), _any_assumed(parts))


def _written(value: Value) -> str | None:
    """Return ``str()`` of a constant, or of a list of constants; None for everything else."""
    if isinstance(value, Const):
        return str(value.value)
    if isinstance(value, Items) and value.items and all(isinstance(item, Const) for item in value.items):
        return str([item.value for item in value.items if isinstance(item, Const)])
    return None


def _any_assumed(values: Iterable[Value]) -> bool:
    return any(
        _any_assumed(value.items) if isinstance(value, Items) else isinstance(value, Const) and value.assumed
        for value in values
    )


def assumed(value: Value) -> Value:
    """Return a value that is assumed unless the user gives another on the command line."""
    if isinstance(value, Items):
        return items(map(assumed, value.items))
    return Const(value.value, True) if isinstance(value, Const) else value


def computed(op: ast.operator, left: Value, right: Value) -> Value:
    """Return the result of an operator for two values."""
    result = _computed(op, left, right)
    return assumed(result) if _any_assumed((left, right)) else result


def _computed(op: ast.operator, left: Value, right: Value) -> Value:
    if isinstance(left, Items):
        if isinstance(op, ast.Add) and isinstance(right, Items):
            return items([*left.items, *right.items])
        if isinstance(op, ast.Mult) and len(left.items) == 1:
            many = right.value if isinstance(right, Const) and isinstance(right.value, int) else 1
            return items(_repeated(left.items[0], many))
        return UNKNOWN
    if isinstance(left, Table) and isinstance(right, Table) and isinstance(op, ast.BitOr):
        return table([*left.pairs, *right.pairs])
    if isinstance(op, ast.Add) and any(
        isinstance(side, Template) or (isinstance(side, Const) and isinstance(side.value, str))
        for side in (left, right)
    ):
        return text([left, right])
    if not (isinstance(left, Const) and isinstance(right, Const)):
        return UNKNOWN
    first, other = left.value, right.value
    if isinstance(first, str):
        return _text_computed(op, left, right)
    function = _OPERATIONS.get(type(op))
    if function is None or not all(isinstance(value, int | float) and abs(value) < 1 << 64 for value in (first, other)):
        return UNKNOWN
    if isinstance(op, ast.Pow | ast.LShift) and not (isinstance(other, int) and 0 <= other <= 64):
        return UNKNOWN
    try:
        return number(function(first, other))
    except Exception:  # as it would when the program is run
        return UNKNOWN


def _repeated(value: Value, many: int) -> Iterator[Value]:
    """Yield a value ``many`` times, but no more often than needed to see that the result is too large."""
    return repeat(value, min(max(many, 0), LARGEST))


def _text_computed(op: ast.operator, left: Const, right: Const) -> Value:
    """Return the result of an operator for a text and a constant."""
    first, other = left.value, right.value
    if isinstance(op, ast.Add) and isinstance(other, str):
        return text([left, right])
    if isinstance(op, ast.Mult) and isinstance(other, int):
        return text(_repeated(left, other))
    if isinstance(op, ast.Mod) and len(first) <= LARGEST and not re.search(r"%[^%]*\d{4}", first):
        try:
            return text([Const(first % other)]) if _size(right) <= LARGEST else UNKNOWN
        except (TypeError, ValueError, KeyError, OverflowError):  # as it would when the program is run
            return UNKNOWN
    return UNKNOWN


def element(looped: Value) -> Value:
    """Return the value that a loop over something assigns to its variable."""
    if isinstance(looped, Items):
        return same(looped.items)
    if isinstance(looped, Made) and looped.name == "builtins.enumerate" and looped.args:
        of = looped.args[0]
        whole = devices(of)
        return items([EACH_INDEX if whole and whole.all and len(looped.args) == 1 else UNKNOWN, element(of)])
    if counts_all(looped):
        return EACH_INDEX
    if is_dataset(looped):
        return Part(looped)
    found = devices(looped)
    if found is None:
        return UNKNOWN
    return Part(looped, each=found.all) if found.all else Part(looped)


def is_dataset(value: Value | None) -> bool:
    """Return whether a value is a dataset, or an iterator over one, that no strategy has distributed."""
    if isinstance(value, Made) and value.name == "builtins.iter" and value.args:
        return is_dataset(value.args[0])
    return isinstance(value, Made) and value.api.startswith("data.") and ".apply_gradients" not in value.api


def counts_all(value: Value) -> bool:
    """Return whether a value is the numbers of all devices of a list: ``range(len(gpus))``."""
    return isinstance(value, Made) and value.name == "builtins.range" and [*map(count_of_gpus, value.args)] == [True]


def sliced(whole: Items, bounds: list[Value | None]) -> Value:
    known: list[Any] = [bound.value if isinstance(bound, Const) else bound for bound in bounds]
    if not all(bound is None or isinstance(bound, int) for bound in known) or known[2] == 0:
        return UNKNOWN
    return items(whole.items[slice(*known)])


def counted(op: ast.cmpop, number: int) -> Value:
    """Return the result of comparing the unknown, positive number of devices with ``number``."""
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
    """Return the value that all of some values are, or UNKNOWN if they differ."""
    if not values:
        return UNKNOWN
    first = values[0]
    for value in values[1:]:
        alike = value is first or (
            isinstance(value, Const)
            and isinstance(first, Const)
            and value.assumed == first.assumed
            and type(value.value) is type(first.value)
            and value.value == first.value
        )
        if not (alike or (isinstance(value, Name) and isinstance(first, Name) and value.path == first.path)):
            return UNKNOWN
    return first


def merged(scopes: list[dict[str, Value]]) -> dict[str, Value]:
    """Return the names after a choice; of two values TensorFlow's own counts, none if both are constants."""
    first, *rest = scopes
    kept = dict(first)
    for name in dict.fromkeys(chain(first, *rest)):
        known = first.get(name)
        if known is not None and all(scope.get(name) is known for scope in rest):
            continue  # most names are those of before the choice
        values = [scope[name] for scope in scopes if name in scope]
        alike = same(values)
        if alike is UNKNOWN:
            telling = [value for value in values if not isinstance(value, Const) and value is not UNKNOWN]
            others = (value for value in values if value not in telling)
            only = all(isinstance(value, Const) and value.value is None for value in others)
            if telling and (
                (only and len(telling) == 1) or isinstance(telling[0], Name | ProjectFunction | Class | Imported)
            ):
                alike = telling[0]
        if alike is UNKNOWN:
            for value in values:
                if isinstance(value, Made):
                    value.used = True  # what becomes of it is not followed any further
        kept[name] = alike
    return kept


def text_method(func: Attribute, args: list[Value]) -> Value | None:
    """Return the result of a method of a text, or None for an unknown method."""
    base = func.of
    if not isinstance(base, Const) or not isinstance(base.value, str):
        return None
    if func.name in ("strip", "lower", "upper", "lstrip", "rstrip") and not args:
        return Const(getattr(base.value, func.name)(), base.assumed)
    if func.name == "replace" and len(args) == 2 and all(isinstance(arg, Const) for arg in args):
        old, new = (arg.value for arg in args if isinstance(arg, Const))
        if isinstance(old, str) and isinstance(new, str) and old and len(base.value) * (len(new) + 1) <= LARGEST:
            return Const(base.value.replace(old, new), base.assumed or _any_assumed(args))
    if func.name == "split" and len(args) == 1 and isinstance(args[0], Const) and isinstance(args[0].value, str):
        return items(Const(part, base.assumed) for part in base.value.split(args[0].value or None))
    if func.name == "join" and len(args) == 1 and isinstance(args[0], Items):
        parts = args[0].items
        if not all(isinstance(part, Const) and isinstance(part.value, str) for part in parts):
            return UNKNOWN
        return text(chain.from_iterable((base, part) if at else (part,) for at, part in enumerate(parts)))
    if func.name == "format":
        return _formatted(base.value, args)
    return UNKNOWN


def _formatted(template: str, args: list[Value]) -> Value:
    """Return the result of ``template.format(*args)``; UNKNOWN for fields with a name, a format or a conversion."""
    parts: list[Value] = []
    if len(template) > LARGEST:
        return UNKNOWN
    try:
        for literal, field, form, conversion in string.Formatter().parse(template):
            parts.append(Const(literal))
            if field is not None:
                if form or conversion or not (field.isdecimal() or not field):
                    return UNKNOWN
                parts.append(args[int(field or len(parts) // 2)])
    except (IndexError, ValueError):
        return UNKNOWN
    return text(parts)


def _text_of(args: list[Value]) -> Value | None:
    if len(args) != 1 or not isinstance(args[0], Const | Items):
        return None
    result = text(args)
    return None if result is UNKNOWN else result


def _number_of(args: list[Value]) -> Value | None:
    return _called(int, args) if len(args) == 1 else None


def _called(function: Callable[..., Any], args: list[Value]) -> Value | None:
    """Return the result of a function for constants; None if they are not known."""
    values = [arg.value for arg in args if isinstance(arg, Const) and isinstance(arg.value, int | float | str)]
    if not args or len(values) != len(args) or any(_size(arg) > _BITS for arg in args):
        return None
    try:
        result = number(function(*values))
    except Exception:  # as it would when the program is run
        return UNKNOWN
    return assumed(result) if _any_assumed(args) else result


def _of_numbers(function: Callable[..., Any]) -> Callable[[list[Value]], Value | None]:
    """Return the folding of ``min``, ``max`` or ``sum``."""

    def fold(args: list[Value]) -> Value | None:
        if len(args) == 1 and isinstance(args[0], Items) and args[0].items:
            args = args[0].items
        return _called(lambda *values: function(values), args)

    return fold


def sequence(value: Value) -> Value:
    """Return the elements that Python takes from a value: the letters of a text, the keys of a dictionary."""
    if isinstance(value, Const) and isinstance(value.value, str):
        return items(Const(letter, value.assumed) for letter in value.value)
    return items(key for key, _ in value.pairs) if isinstance(value, Table) else value


def _list_of(args: list[Value]) -> Value | None:
    listed = [sequence(arg) for arg in args]
    if len(listed) == 1 and isinstance(listed[0], Items):
        return items(listed[0].items)  # a copy: either may be changed
    return args[0] if len(args) == 1 and devices(args[0]) else None


def _length_of(args: list[Value]) -> Value | None:
    of = sequence(args[0]) if len(args) == 1 else UNKNOWN
    return Const(len(of.items), _any_assumed([of])) if isinstance(of, Items) else None


def _enumerated(args: list[Value]) -> Value | None:
    of = sequence(args[0]) if len(args) == 1 else UNKNOWN
    return items(items([Const(at), item]) for at, item in enumerate(of.items)) if isinstance(of, Items) else None


def _zipped(args: list[Value]) -> Value | None:
    parts = [sequence(arg) for arg in args]
    groups = zip(*(part.items for part in parts if isinstance(part, Items)), strict=False)
    return items(items(group) for group in groups) if parts and all(isinstance(part, Items) for part in parts) else None


def _mapped(args: list[Value]) -> Value | None:
    if len(args) != 2 or not isinstance(args[0], Name) or not isinstance(args[1], Items):
        return None
    fold = RESULTS.get(args[0].path)
    results = [] if fold is None else [fold([item]) for item in args[1].items]
    known = [result for result in results if result is not None]
    return items(known) if fold and len(known) == len(results) else None


def _reversed(args: list[Value]) -> Value | None:
    return items(reversed(args[0].items)) if len(args) == 1 and isinstance(args[0], Items) else None


def _range_of(args: list[Value]) -> Value | None:
    bounds = [value.value for value in args if isinstance(value, Const) and isinstance(value.value, int)]
    if not args or len(bounds) != len(args) or (len(bounds) == 3 and not bounds[2]):
        return None
    numbers = range(*bounds)
    return items(Const(number) for number in numbers) if not numbers[UNROLLED:] else None  # len() of a huge one raises


def _next_of(args: list[Value]) -> Value | None:
    return Part(args[0]) if args and is_dataset(args[0]) else None


RESULTS: dict[str, Callable[[list[Value]], Value | None]] = {
    "builtins.str": _text_of,
    "builtins.int": _number_of,
    "builtins.float": lambda args: _called(float, args) if len(args) == 1 else None,
    "builtins.round": lambda args: _called(round, args),
    "builtins.abs": lambda args: _called(abs, args) if len(args) == 1 else None,
    "builtins.min": _of_numbers(min),
    "builtins.max": _of_numbers(max),
    "builtins.sum": _of_numbers(sum),
    "builtins.list": _list_of,
    "builtins.tuple": _list_of,
    "builtins.len": _length_of,
    "builtins.enumerate": _enumerated,
    "builtins.zip": _zipped,
    "builtins.map": _mapped,
    "builtins.reversed": _reversed,
    "builtins.range": _range_of,
    "builtins.next": _next_of,
}
