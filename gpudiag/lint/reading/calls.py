"""Reads calls: functions of the project are followed; for all others the effects on TensorFlow are recorded."""

from __future__ import annotations

import ast
import re
from typing import NamedTuple

from gpudiag.knowledge import tensorflow_api as api
from gpudiag.lint.folding import RESULTS, UNROLLED, same, table, text_method
from gpudiag.lint.program import Call, Effects, Past, Unreached, Variable, common
from gpudiag.lint.reading.command_line import declares, is_parsed
from gpudiag.lint.reading.containers import device_method, dict_method, list_method
from gpudiag.lint.reading.cursor import DEVICES, NO_EFFECTS
from gpudiag.lint.reading.expressions import Expressions
from gpudiag.lint.shell import assignments
from gpudiag.lint.syntax import bound
from gpudiag.lint.values import (
    UNKNOWN,
    Attribute,
    Class,
    Const,
    Instance,
    Items,
    Made,
    Method,
    Name,
    Part,
    ProjectFunction,
    Table,
    Template,
    Value,
    constants,
    devices,
    elements,
    is_built,
    is_empty_list,
    is_environ,
    name_of,
    use,
)

_DEPTH = 10
"""The most nested calls of functions of the project that are followed."""
_CALLS = 4
"""The most calls of one function that are followed."""
_SHORT = 8
"""The most lines of a function whose result may be a constant."""
_TENSORFLOW = re.compile(r"\b(?:tf\w*|tensorflow|keras|K)\.|environ|sys\.exit")
_STEPS = frozenset({"fit", "predict", "evaluate", "train_on_batch", "test_on_batch", "predict_on_batch"})
_MAKES_VARIABLES = frozenset({"build", "load_weights", "compile", "adapt"}) | _STEPS
"""Methods of Keras models and layers that run steps, and those that make variables."""
_OF_DATASETS = frozenset({"prefetch", "with_options"})
"""Methods that only datasets have: an unknown value with one of them is taken for a dataset."""
_SHELLS = re.compile(
    r"(?:os\.(?:system|popen)|subprocess\.(?:run|Popen|call|check_\w{1,9}|getoutput|getstatusoutput))\Z"
)
_PROCESSES = re.compile(
    r"(?:multiprocessing|multiprocess|billiard)(?:\.(?:context|process|get_context\(\)))?\.(?:Base|Spawn|Fork)?Process\Z"
)
"""Classes of processes that run a function of the program, or the method ``run``."""
_THREADS = re.compile(r"threading\.Thread\Z")
_WORKERS = r"(?:multiprocessing|multiprocess|billiard|concurrent\.futures)\.[\w.()]{0,80}"
_PIPELINE, _PROCESS, _REPLICA, _THREAD = "pipeline", "process", "replica", "thread"
_EACH, _EACH_UNPACKED = "iterable", "iterable of arguments"


class _Caller(NamedTuple):
    """A call that runs a function that it is given."""

    api: re.Pattern[str]
    at: int
    name: str
    """The position and the name of the argument that is the function."""
    args_at: int
    args_name: str
    """The position and the name of the argument that has the function's own; ``*``: all from there on, ``iterable``:
    one call for each item; ``iterable of arguments``: one for each item, whose own items are the arguments."""
    how: str
    """Where the function runs: in a thread, a process, a replica or the pipeline of a dataset; "" for here."""


_CALLERS = (
    _Caller(_THREADS, 1, "target", 3, "args", _THREAD),
    _Caller(re.compile(r"ThreadPoolExecutor\(\)\.submit\Z"), 0, "fn", 1, "*", _THREAD),
    _Caller(re.compile(r"ThreadPool(?:Executor)?\(\)\.i?map(?:_\w{1,9})?\Z"), 0, "fn", 1, _EACH, _THREAD),
    _Caller(_PROCESSES, 1, "target", 3, "args", _PROCESS),
    _Caller(re.compile(_WORKERS + r"Pool\Z"), 1, "initializer", 2, "initargs", _PROCESS),
    _Caller(re.compile(_WORKERS + r"ProcessPoolExecutor\Z"), 2, "initializer", 3, "initargs", _PROCESS),
    _Caller(re.compile(_WORKERS + r"Pool(?:Executor)?\(\)\.i?map(?:_\w{1,9})?\Z"), 0, "func", 1, _EACH, _PROCESS),
    _Caller(re.compile(_WORKERS + r"Pool\(\)\.apply(?:_async)?\Z"), 0, "func", 1, "args", _PROCESS),
    _Caller(re.compile(_WORKERS + r"Pool\(\)\.starmap(?:_async)?\Z"), 0, "func", 1, _EACH_UNPACKED, _PROCESS),
    _Caller(re.compile(_WORKERS + r"ProcessPoolExecutor\(\)\.submit\Z"), 0, "func", 1, "*", _PROCESS),
    _Caller(re.compile(r"distribute\.[\w.]{1,60}\(\)\.(?:experimental_)?run(?:_v2)?\Z"), 0, "fn", 1, "args", _REPLICA),
    _Caller(re.compile(r"(?:absl\.)?app\.run\Z"), 0, "main", 1, "argv", ""),
    _Caller(
        re.compile(r"(?:data\.|.{0,60}_dataset_from_).{0,2000}\(\)\.(?:map|filter|flat_map|interleave)\Z"),
        0,
        "map_func",
        1,
        "",
        _PIPELINE,
    ),
)
SPAWNS = re.compile(r"(?:set_start_method|get_context)\(\s*(?:method\s*=\s*)?['\"](?:spawn|forkserver)")

_SESSION: Effects = frozenset({"query", "allocators", "session"})
_LISTED: Effects = frozenset({"query", "allocators"})
_QUERIED: Effects = frozenset({"query"})
_CLUSTER: Effects = frozenset({"cluster"})
_RESET: Effects = frozenset({"reset"})
_HIDES: Effects = frozenset({"hides"})
_STEPPED: Effects = frozenset({"steps"})


class Calls(Expressions):
    """Follows calls."""

    def call(self, node: ast.Call) -> Value:
        """Return the result of a call, and record its effects."""
        func = self.evaluate(node.func)
        if type(func) is Attribute and type(node.func) is ast.Attribute:
            if isinstance(func.of, Items | Table) or devices(func.of):
                return self._method_of_collection(func, node)
            base = func.of  # a method of something that was made: used
            while isinstance(base, Attribute):
                base = base.of
            use(base)
        args, kwargs = self._arguments(node)
        return self.apply(func, args, kwargs, node)

    def apply(self, func: Value, args: list[Value], kwargs: dict[str, Value], node: ast.Call) -> Value:
        """Return the result of a call of a value."""
        if isinstance(func, Made) and _is_partial(func):
            return self.apply(func.args[0], [*func.args[1:], *args], func.kwargs | kwargs, node)
        if isinstance(func, Instance):
            func = self.attribute_of(func, "__call__", node) or UNKNOWN
        if isinstance(func, Method):
            return self.follow(func.function, [func.of, *args], kwargs, node)
        if isinstance(func, ProjectFunction):
            return self.follow(func, [*args], kwargs, node)
        if isinstance(func, Class):
            return self._instance(func, args, kwargs, node)
        return self._outer(func, args, kwargs, node)

    def _method_of_collection(self, func: Attribute, node: ast.Call) -> Value:
        """Return the result of a method of a list, of a dictionary or of a list of devices."""
        args, kwargs = self._arguments(node)
        sure, base = not self.frame.doubtful, func.of
        if isinstance(base, Items):
            return list_method(base, func.name, args, sure=sure)
        if isinstance(base, Table):
            if base.environ and func.name == "update":
                self._update(args, kwargs, node, "env", base)
            return dict_method(base, func.name, args, kwargs, sure=sure)
        result = device_method(base, func.name, args)
        if func.name == "pop" and isinstance(node.func, ast.Attribute):
            self.bind(node.func.value, Part(base, several=True), node)  # what is left
        return result

    def _arguments(self, node: ast.Call) -> tuple[list[Value], dict[str, Value]]:
        """Return the arguments of a call, by position and by name."""
        args: list[Value] = []
        for arg in node.args:
            if type(arg) is ast.Starred:
                inner = self.evaluate(arg.value)
                args += inner.items if isinstance(inner, Items) else [UNKNOWN]
                use(inner)
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
        """Return the result of a call of something outside the project."""
        name = ""
        if isinstance(func, Name):
            name = func.path
            if (result := self._computed(name, args, kwargs, node)) is not None:
                return result
        elif isinstance(func, Made) and func.api.startswith("keras."):
            name, func = f"{func.name}().__call__", Attribute(func, "__call__")
        elif isinstance(func, Attribute):
            name = name_of(func)
            if (result := text_method(func, args)) is not None:
                return result
        if name != "builtins.print":
            for value in (*args, *kwargs.values()):
                use(value)
        if not name and isinstance(node.func, ast.Attribute) and node.func.attr in _OF_DATASETS:
            name = f"tensorflow.data.Dataset().{node.func.attr}"
        if not name:
            return UNKNOWN
        made = Made(name, args, kwargs, node, owner=func.of if isinstance(func, Attribute) else None)
        self._environment(made, node)
        if not name.startswith("builtins."):
            self._record_made(made, kwargs, node)
            self._call_back(made, node)
        return made

    def _record_made(self, made: Made, kwargs: dict[str, Value], node: ast.Call) -> None:
        """Record a call, and its consequences for later code."""
        event = self.record(Call, node, self._effects(made), made=made)
        self.program.made.append((made, event))
        if made.api in api.WITHOUT_EAGER:
            self.eager = False
        if declares(made.name):
            self.program.options.append(made)
        if made.name in ("types.SimpleNamespace", "argparse.Namespace"):
            made.options.update(kwargs)

    def _call_back(self, made: Made, node: ast.Call) -> None:
        """Follow the functions that are passed to a call, if the call calls them."""
        for instance in elements(made.kwargs.get("callbacks")):
            if isinstance(instance, Instance) and made.api.startswith("keras."):
                for name in ("on_train_begin", "on_epoch_begin", "on_train_batch_begin", "on_epoch_end"):
                    method = instance.of.find(name)
                    if isinstance(method, ProjectFunction):
                        self.follow(method, [instance], {}, node)
        caller = next((caller for caller in _CALLERS if caller.api.search(made.api)), None)
        if caller is None:
            return
        _, at, name, args_at, args_name, how = caller
        target, given = made.argument(at, name), made.argument(args_at, args_name)
        known = given.items if isinstance(given, Items) else []
        rounds = [made.args[args_at:] if args_name == "*" else known]
        if args_name == _EACH:
            rounds = [[item] for item in known[:UNROLLED]] or [[UNKNOWN]]
        elif args_name == _EACH_UNPACKED:
            rounds = [item.items if isinstance(item, Items) else [] for item in known[:UNROLLED]] or [[]]
        for args in rounds if isinstance(target, ProjectFunction | Method) or _is_partial(target) else ():
            self._elsewhere(target, args, how, made, node)

    def _elsewhere(self, target: Value | None, args: list[Value], how: str, made: Value, node: ast.Call) -> None:
        """Follow a function that a call runs: here, or in a thread, in a process or in the pipeline of a dataset."""
        past = self.past
        target = target or UNKNOWN
        if how == _PROCESS:
            if self.frame.module.mentions(SPAWNS):
                self.past = self.imported
                with self.inside(contexts=(), guards=(), doubtful=True, child=True):
                    self.apply(target, [*args], {}, node)
        elif how == _THREAD:  # at the same time, and in no context of this thread
            with self.inside(contexts=(), doubtful=True):
                self.apply(target, [*args], {}, node)
        elif how == _PIPELINE:
            with self.inside(contexts=(made,) if isinstance(made, Made) else (), graph=True):
                self.apply(target, [UNKNOWN], {}, node)
        else:
            self.apply(target, [*args] or [UNKNOWN] * (how == _REPLICA), {}, node)
            return
        self.past = past

    def _computed(self, name: str, args: list[Value], kwargs: dict[str, Value], node: ast.Call) -> Value | None:
        """Return the result of a call that makes no object of TensorFlow's."""
        if name in RESULTS and (result := RESULTS[name](args)) is not None:
            return result
        if name == "builtins.dict":
            return self._dict_of(args, kwargs, node)
        if name in ("os.environ.copy", "copy.copy", "copy.deepcopy"):
            return Table([], 1, environ=True) if name == "os.environ.copy" or _of_environ(args) else None
        if name in ("builtins.getattr", "builtins.setattr") and len(args) >= 2 and isinstance(args[1], Const):
            context = ast.Load() if name == "builtins.getattr" else ast.Store()
            inner = ast.copy_location(ast.Attribute(node.args[0], str(args[1].value), context), node)
            if name == "builtins.getattr":
                return self.evaluate(inner)
            self.bind(inner, args[-1], node)
            return Const(None)
        if name == "builtins.super":
            return self._super()
        if name == "builtins.vars" and len(args) == 1:
            return args[0] if is_parsed(args[0]) else None
        if name in ("builtins.__import__", "importlib.import_module") and args and isinstance(args[0], Const):
            if name == "importlib.import_module":
                self.import_outer(str(args[0].value), node)
            return Name(str(args[0].value))
        return None

    def _dict_of(self, args: list[Value], kwargs: dict[str, Value], node: ast.Call) -> Value | None:
        """Return the result of ``dict()`` for keyword arguments, another dictionary or the environment."""
        if len(args) > 1 or (args and not isinstance(args[0], Table) and not _of_environ(args)):
            return None
        pairs = args[0].pairs if args and isinstance(args[0], Table) else []
        own = [(Const(name), value) for name, value in kwargs.items()]
        made = table([*pairs, *own])
        if isinstance(made, Table) and args and (_of_environ(args) or getattr(args[0], "environ", False)):
            made.environ = True
            self._update([], kwargs, node, "env", made)
        return made

    def _super(self) -> Value | None:
        """Return the object as an instance of its base class."""
        for function in reversed(self.frame.functions):
            names = [] if isinstance(function.node, ast.Lambda) else function.node.args.args
            me = self.scope.get(names[0].arg) if names else None
            if function.owner is not None and isinstance(me, Instance):
                base = next((base for base in function.owner.of.bases if isinstance(base, Class)), None)
                return None if base is None else Instance(base, me.attributes, me.outer)
        return None

    def attribute_of(self, instance: Instance, name: str, node: ast.AST) -> Value | None:
        """Return an attribute of an object of the project: a value, a method, or the value of a property."""
        if name in instance.attributes:
            return instance.attributes[name]
        found = instance.of.find(name)
        if found is None and instance.outer is not None:
            return Attribute(instance.outer, name)
        if not isinstance(found, ProjectFunction) or found.owner is None:
            return found
        if not found.decorators.isdisjoint({"property", "cached_property"}):
            return self.follow(found, [instance], {}, node)
        return Method(found, instance.of if found.takes_class else instance)

    def _effects(self, made: Made) -> Effects:
        """Return the effects of a call on TensorFlow's devices."""
        if not made.name.startswith(("tensorflow", "keras", "tf_keras")):
            return NO_EFFECTS
        name = made.api
        if name.endswith("_reset_context"):
            return _RESET
        if name == "Session":
            return _SESSION
        if name == api.VISIBLE and is_empty_list(made.argument(0, "devices")):
            return _HIDES
        if name in api.FIX_ALLOCATORS or (name in api.SERVERS and "config" not in made.kwargs):
            return _LISTED
        if name == "device":
            return NO_EFFECTS  # until it is entered
        method = name.rpartition("().")[2] if name.startswith("keras.") and "()." in name else ""
        made_here = api.makes_devices(name) or method in _MAKES_VARIABLES or is_built(made)
        effects = DEVICES if made_here and self.makes_devices else NO_EFFECTS
        if name in api.CLUSTERS:
            return effects | _CLUSTER
        return effects | _STEPPED if method in _STEPS else effects or _QUERIED if name in api.QUERY else effects

    # --- variables of the environment

    def _environment(self, made: Made, node: ast.Call) -> None:
        """Record the variables that a call sets, for this process or for one that it starts."""
        name, args, kwargs, given = made.name, made.args, made.kwargs, node.args
        if _SHELLS.match(name) and (command := _command(made)):
            self.shell(command, node)
        if isinstance(environ := kwargs.get("env"), Table) and not environ.environ:
            self.set_variables(environ, node, "env", environ)
        if name in ("os.environ.setdefault", "os.putenv", "os.environ.__setitem__") and len(given) == 2:
            how = name.rpartition(".")[2]
            self.set_variable(args[0], args[1], node, given[1], given[0], "=" if how == "__setitem__" else how)
        elif name == "os.environ.update":
            self._update(args, kwargs, node, "update")

    def _update(
        self, args: list[Value], kwargs: dict[str, Value], node: ast.Call, how: str, copy: Table | None = None
    ) -> None:
        """Record that a call gives the environment, or the ``copy`` of it, dictionaries and keyword arguments."""
        nodes = {keyword.arg: keyword.value for keyword in node.keywords}
        for value in args:
            if isinstance(value, Table):
                self.set_variables(value, node, how, copy)
        for key, value in kwargs.items():
            self.set_variable(Const(key), value, node, nodes.get(key), None, how, copy)

    def shell(self, text: str, node: ast.AST | None) -> None:
        """Record the settings of variables in a shell; ``node`` is the call that starts it, None for a script."""
        for assignment in assignments(text):
            line, column, name = assignment.line, assignment.column, assignment.name
            if node is None:  # where the file has it: its lines may have been written as shell code
                written = [*self.frame.piece.lines[line - 1 : line], ""][0]
                column = max(written.rfind(name, 0, column + len(name)), 0)
            end = column + assignment.end - assignment.column
            at = node or ast.Constant(None, lineno=line, col_offset=column, end_lineno=line, end_col_offset=end)
            if assignment.exported and (assignment.reaches or (node is None and not assignment.ended)):
                value = UNKNOWN if assignment.value is None else Const(assignment.value)
                self.set_variable(Const(assignment.name), value, at, None, None, "env")
            elif not assignment.reaches:
                self.record(Unreached, at, assignment=assignment, in_script=node is None)

    def set_variables(self, table: Table, node: ast.AST, how: str, copy: Table | None = None) -> None:
        """Record that the environment, or the ``copy`` of it, is given all items of a dictionary."""
        places = {
            key.value: (key, value)
            for inner in ast.walk(node)
            if isinstance(inner, ast.Dict)
            for key, value in zip(inner.keys, inner.values, strict=True)
            if isinstance(key, ast.Constant)
        }
        for key, value in table.pairs:
            name_node, value_node = places.get(key.value, (None, None)) if isinstance(key, Const) else (None, None)
            self.set_variable(key, value, name_node or node, value_node, name_node, how, copy)

    def set_variable(  # noqa: PLR0917
        self,
        key: Value,
        value: Value,
        node: ast.AST,
        value_node: ast.expr | None,
        name_node: ast.expr | None,
        how: str,
        table: Table | None = None,
    ) -> None:
        """Record that a variable of the environment is set, or of the copy ``table`` of it."""
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
                table=table,
            )

    # --- functions and classes of the project

    def _instance(self, made: Class, args: list[Value], kwargs: dict[str, Value], node: ast.Call) -> Value:
        instance = Instance(made)
        self.program.followed.add(id(node))
        if outer := made.outer_name:
            instance.outer = Made(outer, args, kwargs, node)
        start = made.find("__init__")
        if isinstance(start, ProjectFunction):
            self.follow(start, [instance, *args], kwargs, node)
        else:
            self._fill(instance, args, kwargs)
        for method in made.namespace.values():
            if isinstance(method, ProjectFunction) and method.owner is not None:
                method.owner.attributes = instance.attributes  # for those that nothing is seen to call
        kinds = ((_PROCESSES, "multiprocessing.Process", _PROCESS), (_THREADS, "threading.Thread", _THREAD))
        for _, name, how in (kind for kind in kinds if made.descends_from(kind[0])):
            run = made.find("run")
            target = Method(run, instance) if isinstance(run, ProjectFunction) else UNKNOWN
            self.record(Call, node, NO_EFFECTS, made=Made(name, [UNKNOWN, target], {}, node))
            self._elsewhere(target, [], how, target, node)
        for value in (*args, *kwargs.values()):
            use(value)
        return instance

    def _fill(self, instance: Instance, args: list[Value], kwargs: dict[str, Value]) -> None:
        """Set the fields of an object of a dataclass, or of a NamedTuple."""
        classes = [instance.of]
        while base := next((base for base in classes[0].bases if isinstance(base, Class)), None):
            classes.insert(0, base)
        fields = [
            line.target.id
            for class_ in classes
            for line in class_.node.body
            if isinstance(line, ast.AnnAssign) and isinstance(line.target, ast.Name)
        ]
        given = dict(zip(fields, args, strict=False)) | kwargs
        for name in fields:
            value = given.get(name)
            default = instance.of.find(name)
            if isinstance(default, Made):  # field(default_factory=...)
                factory = default.kwargs.get("default_factory", UNKNOWN)
                default = default.kwargs.get("default") or self.apply(factory, [], {}, default.node)
            instance.attributes[name] = value or default or UNKNOWN
        start = instance.of.find("__post_init__")
        if isinstance(start, ProjectFunction):
            self.follow(start, [instance], {}, start.node)

    def follow(
        self,
        function: ProjectFunction,
        args: list[Value | None],
        kwargs: dict[str, Value],
        node: ast.AST,
        *,
        called: bool = True,
    ) -> Value:
        """Read the body of a called function, and return its result."""
        frame = self.frame
        if function.kept is not None:
            return function.kept
        far = self.call_counts[function] >= _CALLS or len(frame.stack) >= _DEPTH or function in frame.functions
        if far or (called and not self._may_matter(function)):
            for value in (*args, *kwargs.values()):
                use(value)
            return UNKNOWN
        self.call_counts[function] += 1
        self.program.followed.add(id(node))
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
        result = self._result(returns, start)
        if called and not (args or kwargs) and not function.decorators.isdisjoint({"cache", "lru_cache"}):
            function.kept = result
        return result

    def _result(self, returns: list[tuple[Past | None, Value]], start: Past | None) -> Value:
        """Return the result of a function by its ends; only the effects that all ends share are certain."""
        if not returns:  # it raises, always
            return UNKNOWN
        self.past = returns[0][0] if len(returns) == 1 else common([past for past, _ in returns], start)
        results = [value for _, value in returns if not (isinstance(value, Const) and value.value is None)]
        return results[0] if len(results) == 1 else same(results) if results else Const(None)

    def _may_matter(self, function: ProjectFunction) -> bool:
        """Return whether a call has to be followed, for its effects, or for the result of a short function."""
        known = self._matters.get(function)
        if known is None:
            short = function.text.count("\n") <= _SHORT
            known = short or bool(_TENSORFLOW.search(function.text)) or self.is_of_interest(function)
            self._matters[function] = known
        return known


def _command(made: Made) -> str:
    """Return the text that a call gives to a shell, with holes for unknown parts; "" if there is none."""
    given = made.argument(0, "args")
    if isinstance(given, Items) and len(given.items) > 2 and [*constants(given)][1:2] == ["-c"]:
        given = given.items[2]
    if isinstance(given, Template):
        return given.text
    return given.value if isinstance(given, Const) and isinstance(given.value, str) else ""


def _is_partial(value: Value | None) -> bool:
    return isinstance(value, Made) and value.name == "functools.partial" and bool(value.args)


def _of_environ(args: list[Value]) -> bool:
    return len(args) == 1 and is_environ(args[0])
