"""What the form of code shows without following the program: tests, decorators, and parameters of functions."""

from __future__ import annotations

import ast
import operator
from collections.abc import Iterator

from gpudiag.knowledge import tensorflow_api as api
from gpudiag.lint.folding import COMPARISONS, items, table
from gpudiag.lint.values import UNKNOWN, Const, Made, Name, ProjectFunction, Value, count_of_gpus, devices


def is_main(test: ast.expr) -> bool:
    return (
        isinstance(test, ast.Compare)
        and isinstance(test.left, ast.Name)
        and test.left.id == "__name__"
        and isinstance(test.ops[0], ast.Eq)
    )


def not_none(test: ast.expr) -> tuple[str, int] | None:
    """Return the name that is not None in one arm of an ``if``, and the arm: 0 if the test is true, else 1."""
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not) and isinstance(test.operand, ast.Name):
        return test.operand.id, 1
    if isinstance(test, ast.Name):
        return test.id, 0
    if not (isinstance(test, ast.Compare) and isinstance(test.left, ast.Name) and len(test.ops) == 1):
        return None
    other = test.comparators[0]
    if not (isinstance(other, ast.Constant) and other.value is None):
        return None
    if isinstance(test.ops[0], ast.Is | ast.Eq):
        return test.left.id, 1
    return (test.left.id, 0) if isinstance(test.ops[0], ast.IsNot | ast.NotEq) else None


_NAMES_GPU = "test.gpu_device_name"


def never_equal(left: Value, op: ast.cmpop, right: Value, node: ast.expr) -> bool | None:
    """Return the answer of comparing a listing of devices, or a length, with what it never is; None if it varies."""
    if isinstance(op, ast.In | ast.NotIn):
        of_text = isinstance(left, Const) and isinstance(left.value, str)
        return isinstance(op, ast.NotIn) if of_text and devices(right) else None
    if count_of_gpus(left) and isinstance(right, Const) and isinstance(right.value, int) and right.value <= 0:
        compare = COMPARISONS.get(type(op), operator.is_)
        without, with_one = compare(0, right.value), compare(1, right.value)
        return without if without == with_one else None
    if not isinstance(right, Const) or not isinstance(op, ast.Eq | ast.NotEq | ast.Is | ast.IsNot):
        return None
    differs = isinstance(op, ast.NotEq | ast.IsNot)
    if isinstance(left, Made) and left.api == _NAMES_GPU:
        is_name = isinstance(right.value, str) and (not right.value or right.value.startswith("/device:GPU:"))
        return None if is_name else differs
    listed = devices(left)
    if listed is None or listed.one:
        return None
    # A name may be None where this is not seen; a call never is.
    return differs if right.value is not None or isinstance(node, ast.Call) else None


def names_tested(test: ast.expr) -> Iterator[ast.Name | ast.Attribute]:
    """Yield the names whose truth a test checks, except names that the test also calls."""
    if isinstance(test, ast.BoolOp):
        called = {ast.dump(node.func) for node in ast.walk(test) if isinstance(node, ast.Call)}
        for value in test.values:
            yield from (name for name in names_tested(value) if ast.dump(name) not in called)
    elif isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        yield from names_tested(test.operand)
    elif isinstance(test, ast.Compare) and len(test.ops) == 1 and isinstance(test.comparators[0], ast.Constant):
        if test.comparators[0].value in (True, False) and isinstance(
            test.ops[0], ast.Eq | ast.NotEq | ast.Is | ast.IsNot
        ):
            yield from names_tested(test.left)
    elif isinstance(test, ast.Name | ast.Attribute):
        yield test


def is_tf_function(decorator: Value) -> bool:
    if isinstance(decorator, Made):
        return decorator.api == "function"
    return isinstance(decorator, Name) and api.canonical(decorator.path) in ("function", "contrib.eager.defun")


def bound(function: ProjectFunction, args: list[Value | None], kwargs: dict[str, Value]) -> dict[str, Value]:
    """Return the local names of a function at its beginning."""
    parameters = function.node.args
    names = [posonlyarg.arg for posonlyarg in (*parameters.posonlyargs, *parameters.args)]
    scope: dict[str, Value] = {}
    defaults = dict(zip(reversed(names), reversed(parameters.defaults), strict=False))
    defaults |= {
        key.arg: value for key, value in zip(parameters.kwonlyargs, parameters.kw_defaults, strict=True) if value
    }
    for at, name in enumerate((*names, *(kwonlyarg.arg for kwonlyarg in parameters.kwonlyargs))):
        given = args[at] if at < len(args) and at < len(names) else None
        if given is None:
            given = kwargs.get(name)
        if given is None and (default := defaults.get(name)) is not None:
            # What a caller that is not seen may give is not known; of a call that is seen it is the default.
            given = _constant(default, function) if args or kwargs else None
        if given is None and name in ("tf", "tensorflow"):
            given = Name("tensorflow")
        scope[name] = UNKNOWN if given is None else given
    if parameters.vararg is not None:
        rest = [UNKNOWN if value is None else value for value in args[len(names) :]]
        scope[parameters.vararg.arg] = items(rest) if args or kwargs else UNKNOWN
    if parameters.kwarg is not None:
        others = [(Const(name), value) for name, value in kwargs.items() if name not in scope]
        scope[parameters.kwarg.arg] = table(others) if args or kwargs else UNKNOWN
    return scope


def _constant(default: ast.expr, function: ProjectFunction) -> Value | None:
    """Return the default of a parameter if it is a constant, or the name of one."""
    if isinstance(default, ast.Constant):
        return Const(default.value)
    scopes = reversed(function.scopes) if isinstance(default, ast.Name) else ()
    named = next((scope[default.id] for scope in scopes if default.id in scope), None)  # type: ignore[attr-defined]
    return named if isinstance(named, Const) else None
