"""What calls do: functions of the project are followed, of all others the effects on TensorFlow are recorded."""

from __future__ import annotations

import ast
import re

from gpudiag.knowledge import tensorflow_api as api
from gpudiag.lint.folding import RESULTS, same, text_method
from gpudiag.lint.program import Call, Effects, Past, Variable, common
from gpudiag.lint.reading.cursor import DEVICES, NO_EFFECTS
from gpudiag.lint.reading.expressions import Expressions
from gpudiag.lint.syntax import bound, is_bound, is_package
from gpudiag.lint.values import UNKNOWN, Attribute, Class, Const, Function, Instance, Made, Name, Table, Value, use

_DEPTH = 10
"""Calls of functions of the project inside of one another that are followed."""
_CALLS = 4
"""How often one function is followed."""
_SHORT = 8
"""Lines of a function whose result may be a constant."""
_TENSORFLOW = re.compile(r"\b(?:tf\w*|tensorflow|keras|K)\.|environ|sys\.exit")
_KERAS_RUNS = frozenset(
    {"fit", "predict", "evaluate", "build", "train_on_batch", "test_on_batch", "predict_on_batch", "load_weights"}
)
_PROCESSES = frozenset(
    {"multiprocessing.Process", "multiprocessing.context.Process", "multiprocessing.process.BaseProcess"}
)

_SESSION: Effects = frozenset({"query", "allocators", "session"})
_LISTED: Effects = frozenset({"query", "allocators"})
_QUERIED: Effects = frozenset({"query"})
_RESET: Effects = frozenset({"reset"})


class Calls(Expressions):
    """Follows calls."""

    def call(self, node: ast.Call) -> Value:
        """Return the result of a call, and record what it does."""
        func = self.evaluate(node.func)
        if type(func) is Attribute and type(node.func) is ast.Attribute:  # a method of something that was made: used
            base = func.of
            while isinstance(base, Attribute):
                base = base.of
            use(base)
        args, kwargs = self._arguments(node)
        if isinstance(func, Function):
            return self.follow(func, [*([func.owner] if is_bound(func, node) else []), *args], kwargs, node)
        if isinstance(func, Class):
            return self._instance(func, args, kwargs, node)
        return self._outer(func, args, kwargs, node)

    def _arguments(self, node: ast.Call) -> tuple[list[Value], dict[str, Value]]:
        """Return the arguments of a call, by position and by name."""
        args: list[Value] = []
        for arg in node.args:
            if type(arg) is ast.Starred:
                args.append(UNKNOWN)
                use(self.evaluate(arg.value))
            else:
                args.append(self.evaluate(arg))
        kwargs: dict[str, Value] = {}
        for keyword in node.keywords:
            value = self.evaluate(keyword.value)
            if keyword.arg is not None:
                kwargs[keyword.arg] = value
            elif isinstance(value, Table):
                kwargs |= {key.value: inner for key, inner in value.pairs if isinstance(key, Const)}
            else:
                use(value)
        return args, kwargs

    def _outer(self, func: Value, args: list[Value], kwargs: dict[str, Value], node: ast.Call) -> Value:
        """Return the result of a call of something outside of the project."""
        name = ""
        if isinstance(func, Name):
            name = func.path
            if (result := self._computed(name, args, node)) is not None:
                return result
        elif isinstance(func, Attribute):
            name = _method_name(func)
            if (result := text_method(func, args)) is not None:
                return result
        if name != "builtins.print":
            for value in (*args, *kwargs.values()):
                use(value)
        if not name:
            return UNKNOWN
        made = Made(name, args, kwargs, node, owner=func.of if isinstance(func, Attribute) else None)
        if name.startswith("os."):
            self._environment(name, args, kwargs, node)
        if name.startswith("builtins."):
            return made
        event = self.record(Call, node, self._effects(made), made=made)
        self.program.made.append((made, event))
        if made.api in api.WITHOUT_EAGER:
            self.eager = False
        return made

    def _computed(self, name: str, args: list[Value], node: ast.Call) -> Value | None:
        """Return the result of a call if it is not something that is made."""
        if name in RESULTS and (result := RESULTS[name](args)) is not None:
            return result
        if name in ("builtins.__import__", "importlib.import_module") and args and isinstance(args[0], Const):
            if name == "importlib.import_module":
                self.import_outer(str(args[0].value), node)
            return Name(str(args[0].value))
        return None

    def _effects(self, made: Made) -> Effects:
        """Return what a call does to TensorFlow's devices."""
        if not made.name.startswith(("tensorflow", "keras", "tf_keras")):
            return NO_EFFECTS
        name = made.api
        if name.endswith("_reset_context"):
            return _RESET
        if name == "Session":
            return _SESSION
        if name in api.FIX_ALLOCATORS:
            return _LISTED
        if name == "device":
            return NO_EFFECTS  # until it is entered
        if name in api.INITIALISE or name.startswith("keras.applications."):
            return DEVICES if self.makes_devices and not is_package(name) else NO_EFFECTS
        if name.startswith("keras.") and name.rpartition("().")[2] in _KERAS_RUNS and "()." in name:
            return DEVICES if self.makes_devices else NO_EFFECTS
        return _QUERIED if name in api.QUERY else NO_EFFECTS

    # --- variables of the environment

    def _environment(self, name: str, args: list[Value], kwargs: dict[str, Value], node: ast.Call) -> None:
        given = node.args
        if name in ("os.environ.setdefault", "os.putenv", "os.environ.__setitem__") and len(given) == 2:
            how = name.rpartition(".")[2]
            self.set_variable(args[0], args[1], node, given[1], given[0], "=" if how == "__setitem__" else how)
        elif name == "os.environ.update":
            for value in args:
                if isinstance(value, Table):
                    self.set_variables(value, node, "update")
            for key, value in kwargs.items():
                value_node = next((keyword.value for keyword in node.keywords if keyword.arg == key), None)
                self.set_variable(Const(key), value, node, value_node, None, "update")

    def set_variables(self, table: Table, node: ast.AST, how: str) -> None:
        """Record that the environment is given all items of a dictionary."""
        places = {
            key.value: (key, value)
            for inner in ast.walk(node)
            if isinstance(inner, ast.Dict)
            for key, value in zip(inner.keys, inner.values, strict=True)
            if isinstance(key, ast.Constant)
        }
        for key, value in table.pairs:
            name_node, value_node = places.get(key.value, (None, None)) if isinstance(key, Const) else (None, None)
            self.set_variable(key, value, name_node or node, value_node, name_node, how)

    def set_variable(  # noqa: PLR0917
        self, key: Value, value: Value, node: ast.AST, value_node: ast.expr | None, name_node: ast.expr | None, how: str
    ) -> None:
        """Record that a variable of the environment is set."""
        use(value)
        if isinstance(key, Const) and isinstance(key.value, str):
            self.record(
                Variable,
                node,
                name=key.value,
                value=value,
                value_node=value_node,
                name_node=name_node,
                how=how,
                certain=not self.frame.doubtful,
            )

    # --- functions and classes of the project

    def _instance(self, made: Class, args: list[Value], kwargs: dict[str, Value], node: ast.Call) -> Value:
        instance = Instance(made)
        start = made.find("__init__")
        if isinstance(start, Function):
            if start.owner is not None:
                instance = start.owner
            self.follow(start, [instance, *args], kwargs, node)
        if made.descends_from(_PROCESSES):
            self.record(Call, node, NO_EFFECTS, made=Made("multiprocessing.Process", args, kwargs, node))
        for value in (*args, *kwargs.values()):
            use(value)
        return instance

    def follow(
        self,
        function: Function,
        args: list[Value | None],
        kwargs: dict[str, Value],
        node: ast.AST,
        *,
        called: bool = True,
    ) -> Value:
        """Read the body of a function that is called, and return its result."""
        frame = self.frame
        far = self.call_counts[function] >= _CALLS or len(frame.stack) >= _DEPTH or function in frame.functions
        if far or (called and not self._may_matter(function)):
            for value in (*args, *kwargs.values()):
                use(value)
            return UNKNOWN
        self.call_counts[function] += 1
        if function.graph and called and self.makes_devices and isinstance(node, ast.Call):
            self.record(Call, node, DEVICES, made=Made("tensorflow.function()", [], {}, node))
        returns: list[tuple[Past | None, Value]] = []
        start = self.past
        with self.inside(
            module=function.module,
            piece=function.piece,
            scopes=(*function.scopes, bound(function, args, kwargs)),
            guards=frame.guards if called else (),
            stack=(*frame.stack, (frame.module, frame.piece, node)) if called else frame.stack,
            functions=(*frame.functions, function),
            graph=frame.graph or function.graph,
            returns=returns,
        ):
            if isinstance(function.node, ast.Lambda):
                return self.evaluate(function.node.body)
            if self.block(function.node.body):
                returns.append((self.past, Const(None)))
        return self._result(returns, start)

    def _result(self, returns: list[tuple[Past | None, Value]], start: Past | None) -> Value:
        """Return the result of a function by its ends; what surely happened is what all of them have done."""
        if not returns:  # it raises, always
            return UNKNOWN
        self.past = returns[0][0] if len(returns) == 1 else common([past for past, _ in returns], start)
        results = [value for _, value in returns if not (isinstance(value, Const) and value.value is None)]
        return results[0] if len(results) == 1 else same(results) if results else Const(None)

    def _may_matter(self, function: Function) -> bool:
        """Return whether a call need be followed: for what it does, or for its result if it is short."""
        known = self._matters.get(function)
        if known is None:
            short = function.text.count("\n") <= _SHORT
            known = short or bool(_TENSORFLOW.search(function.text)) or self.is_of_interest(function)
            self._matters[function] = known
        return known


def _method_name(func: Attribute) -> str:
    """Return the name of a method of something that was made: ``tensorflow.Graph().as_default``; else ""."""
    names = []
    base: Value = func
    while isinstance(base, Attribute):
        names.append(base.name)
        base = base.of
    return f"{base.name}().{'.'.join(reversed(names))}" if isinstance(base, Made) else ""
