"""The effects of methods of lists and dictionaries, which change them in place."""

from __future__ import annotations

from gpudiag.lint.folding import items, table
from gpudiag.lint.values import UNKNOWN, Const, Items, Part, Table, Value, devices, use

_CHANGES = frozenset(
    {"append", "extend", "insert", "remove", "pop", "clear", "sort", "reverse", "update", "setdefault", "popitem"}
)


def list_method(base: Items, name: str, args: list[Value], *, sure: bool) -> Value:
    """Return the result of a list's method; an unknown one, or one not ``sure`` to be run, makes its content
    unknown."""
    at = args[0].value if args and isinstance(args[0], Const) else -1 if not args else None
    if name == "copy":
        return items(base.items)
    if name not in _CHANGES:
        return UNKNOWN
    if sure and name == "append" and len(args) == 1:
        base.items = [*base.items, args[0]]
        base.size += 1
        base.lost = base.size > 1000
        return Const(None)
    if sure and name == "extend" and len(args) == 1 and isinstance(args[0], Items):
        base.items = [*base.items, *args[0].items]
        base.size += args[0].size
        base.lost = base.size > 1000
        return Const(None)
    if sure and name == "pop" and isinstance(at, int) and -len(base.items) <= at < len(base.items):
        base.items = list(base.items)
        return base.items.pop(at)
    if sure and name == "reverse":
        base.items = base.items[::-1]
        return Const(None)
    for value in (*base.items, *args):
        use(value)
    base.lost = True
    return UNKNOWN


def dict_method(base: Table, name: str, args: list[Value], kwargs: dict[str, Value], *, sure: bool) -> Value:
    """Return the result of a dictionary's method; one that is not ``sure`` to be run makes its values unknown."""
    key = args[0] if args else UNKNOWN
    known = base.get(key.value) if isinstance(key, Const) else None
    if name == "get":
        return known or (UNKNOWN if base.environ or not isinstance(key, Const) else (*args, UNKNOWN, UNKNOWN)[1])
    if name in ("items", "keys", "values", "copy"):
        return {
            "items": lambda: items(items(pair) for pair in base.pairs),
            "keys": lambda: items(key for key, _ in base.pairs),
            "values": lambda: items(value for _, value in base.pairs),
            "copy": lambda: table(base.pairs),
        }[name]()
    if name not in _CHANGES:
        return UNKNOWN
    if name == "update":
        changes = [*args[0].pairs] if args and isinstance(args[0], Table) else []
        if args and not isinstance(args[0], Table):
            base.put(UNKNOWN, UNKNOWN)
        for changed, value in (*changes, *((Const(name), value) for name, value in kwargs.items())):
            base.put(changed, value if sure else UNKNOWN)
    elif name == "pop":
        base.put(key, UNKNOWN)
        return known or UNKNOWN
    elif name == "setdefault" and len(args) == 2:
        if known is None:
            base.put(key, args[1] if sure and not base.environ else UNKNOWN)
        return base.get(key.value) or UNKNOWN if isinstance(key, Const) else UNKNOWN
    else:
        base.put(UNKNOWN, UNKNOWN)
    return Const(None)


def device_method(base: Value, name: str, args: list[Value]) -> Value:
    """Return the result of a method of a list of devices that is made at run time."""
    whole = devices(base)
    at = args[0].value if args and isinstance(args[0], Const) else -1 if not args else None
    if whole is None or whole.one:
        return UNKNOWN
    if name == "copy":
        return base
    return Part(base, at if isinstance(at, int) else None) if name == "pop" else UNKNOWN
