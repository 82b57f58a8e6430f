"""a number of a GPU is used as a condition, and 0 is false: GPU 0 is left out

The first GPU has the number 0. `if args.gpu:` is then the same as "no GPU was chosen", and `args.gpu or 1` is another
GPU. A text "0" is true: only an option of type int is concerned.

Bad
    import argparse
    import os

    parser = argparse.ArgumentParser()
    parser.add_argument("--gpu", type=int)
    args = parser.parse_args()
    if args.gpu:
        os.environ["CUDA_VISIBLE_DEVICES"] = str(args.gpu)
    import tensorflow as tf

Good
    import argparse
    import os

    parser = argparse.ArgumentParser()
    parser.add_argument("--gpu", type=int)
    args = parser.parse_args()
    if args.gpu is not None:
        os.environ["CUDA_VISIBLE_DEVICES"] = str(args.gpu)
    import tensorflow as tf
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from gpudiag.fix import edit
from gpudiag.knowledge import tensorflow_api as api
from gpudiag.lint.program import Call, LintedProgram, ProgramEvent, Variable
from gpudiag.lint.reading.command_line import is_of_integer
from gpudiag.lint.rule import Matches, Rule, Violation
from gpudiag.lint.settings import MASK, PLACING
from gpudiag.lint.syntax import names_tested
from gpudiag.lint.values import Const
from gpudiag.model.report import Severity

RULE = Rule(
    message="{name} is a number, and 0 is false: for GPU 0 {what} is left out",
    severity=Severity.WARNING,
    fix=(edit("{name} is not None", "compare with what means that none is chosen"),),
    words=(MASK, "set_visible_devices", "tf.device("),
    url="https://docs.python.org/3/library/stdtypes.html#truth-value-testing",
    cause="mask_hides_all",
)
_COUNTS = re.compile(r"num|count|n_|gpus\Z|frac|mem|limit|growth", re.IGNORECASE)
"""Words in names of numbers and amounts, for which 0 means none."""


def find(program: LintedProgram) -> Matches:
    for event in program.events:
        if isinstance(event, Variable) and event.name == MASK:
            what = f"the setting of {MASK}"
        elif isinstance(event, Call) and event.api in (api.VISIBLE, *PLACING):
            what = f"{ast.unparse(event.made.node.func)}()"
        else:
            continue
        for place, test, name in _tests(event):
            text = ast.unparse(name)
            last = text.rpartition(".")[2]
            if not _COUNTS.search(last) and _uses(event, text) and _is_number(last, event, program):
                yield Violation(place, {"name": text, "what": what}, node=test)
                break


def _tests(event: ProgramEvent) -> Iterator[tuple[ProgramEvent, ast.expr, ast.expr]]:
    """Yield the names tested around an event or in it: the event to show, the test and the name."""
    for guard in event.guards:
        if isinstance(guard, ast.expr):
            for name in names_tested(guard):
                yield _at(guard, event), guard, name
    for node in ast.walk(event.node):
        if isinstance(node, ast.IfExp):
            for name in names_tested(node.test):
                yield event, node, name
        elif isinstance(node, ast.BoolOp) and isinstance(node.op, ast.Or) and isinstance(node.values[0], _NAMES):
            yield event, node, node.values[0]


_NAMES = ast.Name | ast.Attribute


def _at(test: ast.expr, event: ProgramEvent) -> ProgramEvent:
    """Return the event, or the call that led to it, that is in the file of the test."""
    for module, piece, _ in (*event.stack, (event.module, event.piece, event.node)):
        lines = "".join(piece.lines[test.lineno - 1 : test.end_lineno])
        if ast.unparse(test).replace(" ", "") in lines.replace(" ", ""):
            return ProgramEvent(test, event.frame.changed({"module": module, "piece": piece}), event.past, frozenset())
    return event


def _uses(event: ProgramEvent, name: str) -> bool:
    """Return whether an event, or a call that led to it, uses a name."""
    return any(name in _PATH.findall(ast.unparse(node)) for node in (event.node, *(call for _, _, call in event.stack)))


_PATH = re.compile(r"[A-Za-z_]\w*(?:\.\w+)*")
_DECLARED = re.compile(r"^\s{0,80}(?:self\.)?(\w{1,80})\s{0,9}(?::[^=\n]{0,40}\bint\b|=\s{0,9}int\()", re.MULTILINE)


def _is_number(name: str, event: ProgramEvent, program: LintedProgram) -> bool:
    """Return whether a name, or an attribute of this name, is declared as an integer."""
    if any(is_of_integer(option, name) for option in program.options):
        return True
    for function in event.functions:
        arguments = function.node.args
        named = [*arguments.posonlyargs, *arguments.args]
        pairs = [*zip(reversed(named), reversed(arguments.defaults), strict=False)]
        pairs += [
            (argument, value)
            for argument, value in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)
            if value
        ]
        for argument in (*named, *arguments.kwonlyargs):
            if argument.arg == name and argument.annotation is not None:
                return re.search(r"\bint\b", ast.unparse(argument.annotation)) is not None
        for argument, default in pairs:
            if argument.arg == name:
                return isinstance(default, ast.Constant) and type(default.value) is int
    known = next((scope[name] for scope in reversed(event.frame.scopes) if name in scope), None)
    if isinstance(known, Const) and not known.assumed:
        return type(known.value) is int
    return any(name in _DECLARED.findall(module.text) for module in program.modules)
