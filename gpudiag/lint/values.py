"""The possible values of a program's expressions, as far as they are known without running it."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

from gpudiag.knowledge import tensorflow_api as api

if TYPE_CHECKING:
    from gpudiag.lint.project import Module
    from gpudiag.lint.sources import Piece


_WORD = re.compile(r"\w+")


class Value:
    """A value about which nothing is known."""

    __slots__ = ()


UNKNOWN = Value()


@dataclass(eq=False)
class Const(Value):
    """A number, a text, True, False or None."""

    value: Any
    assumed: bool = False
    """True for the default of a command-line option, which the user may replace."""


@dataclass(eq=False)
class Template(Value):
    """A text with unknown parts."""

    text: str
    """The text with :data:`gpudiag.lint.shell.HOLE` in place of each unknown part."""


@dataclass(eq=False)
class Items(Value):
    """A list, a tuple or a set whose elements are known one by one; :func:`gpudiag.lint.folding.items` makes it."""

    items: list[Value]
    size: int
    lost: bool = False
    """True if the list was changed in a way that is not followed."""


@dataclass(eq=False)
class Table(Value):
    """A dictionary whose keys and values are known one by one; :func:`gpudiag.lint.folding.table` makes it."""

    pairs: list[tuple[Value, Value]]
    size: int
    environ: bool = False
    """True for a copy of the environment, with its changes."""
    used: bool = False
    """True if the dictionary was passed on."""

    def get(self, key: object) -> Value | None:
        """Return the value of a key, or None if it is unknown whether the key exists."""
        return next(
            (value for name, value in reversed(self.pairs) if isinstance(name, Const) and name.value == key), None
        )

    def put(self, key: Value, value: Value) -> None:
        """Set an item in place."""
        if not isinstance(key, Const):
            self.pairs = [(name, UNKNOWN) for name, _ in self.pairs]
            return
        self.pairs = [pair for pair in self.pairs if not (isinstance(pair[0], Const) and pair[0].value == key.value)]
        self.pairs.append((key, value))


@dataclass(eq=False)
class Name(Value):
    """A name that is defined outside the project, with dots: ``tensorflow.config.set_visible_devices``."""

    path: str


@dataclass(eq=False)
class Made(Value):
    """The result of a call of something outside the project."""

    name: str
    """The dotted name of the called object; for a method ``tensorflow.Graph().as_default``."""
    args: list[Value]
    kwargs: dict[str, Value]
    node: ast.Call
    options: dict[str, Value] = field(default_factory=dict)
    """Attributes that were assigned to the object, by their path: ``gpu_options.allow_growth``."""
    doubtful: set[str] = field(default_factory=set)
    """Attributes that are assigned only under a condition."""
    used: bool = False
    """True if the object was passed on, or something was asked of it."""
    entered: bool = False
    """True if the object is a context manager that was entered."""
    owner: Value | None = None
    """The object that a method belongs to."""
    held: str = ""
    """The attribute of a project's object to which this object was assigned."""

    @property
    def api(self) -> str:
        """The canonical name below TensorFlow; for other packages the whole name."""
        return api.canonical(self.name)

    def argument(self, at: int, name: str) -> Value | None:
        """Return an argument by its position or its name; None if it is not given."""
        if name in self.kwargs:
            return self.kwargs[name]
        return self.args[at] if len(self.args) > at else None

    def constant(self, at: int, name: str) -> Any:
        """Return the value of an argument if it is a constant, else None."""
        value = self.argument(at, name)
        return value.value if isinstance(value, Const) else None


@dataclass(eq=False)
class Attribute(Value):
    """An attribute of an object whose content is not examined."""

    of: Value
    name: str


def name_of(value: Value) -> str:
    """Return the name of something outside the project, or "".

    For example ``tensorflow.Graph``, or for a method of a made object ``tensorflow.Graph().as_default``.
    """
    names = []
    while isinstance(value, Attribute):
        names.append(value.name)
        value = value.of
    if isinstance(value, Name):
        return ".".join((value.path, *reversed(names)))
    return f"{value.name}().{'.'.join(reversed(names))}" if isinstance(value, Made) and names else ""


@dataclass(eq=False)
class Part(Value):
    """An element, or some elements, of a list that is made at run time."""

    of: Value
    index: int | None = None
    """The place of an element in its list, if it is known."""
    several: bool = False
    """True for a part of the list; False for one element."""
    each: bool = False
    """True for the element of a loop over the whole list."""
    by: ast.expr | None = None
    """The expression for the element's index, if its value is not known."""


class EachIndex(Value):
    """The number of an element, in a loop over the numbers of all devices that were listed."""

    __slots__ = ()


EACH_INDEX = EachIndex()


@dataclass(eq=False)
class Class(Value):
    """A class of the project."""

    node: ast.ClassDef
    module: Module
    namespace: dict[str, Value]
    bases: list[Value]

    def find(self, name: str) -> Value | None:
        if name in self.namespace:
            return self.namespace[name]
        found = (base.find(name) for base in self.bases if isinstance(base, Class))
        return next((value for value in found if value is not None), None)

    @property
    def has_outer_base(self) -> bool:
        """Whether a class outside of the project may read the attributes of its objects."""
        return any(
            base.has_outer_base if isinstance(base, Class) else not (isinstance(base, Name) and base.path == "object")
            for base in self.bases
        )

    @property
    def outer_name(self) -> str:
        """The name of the class of TensorFlow, or of Keras, that it is derived from, or ""."""
        names = (base.outer_name if isinstance(base, Class) else name_of(base) for base in self.bases)
        return next((name for name in names if name.startswith(("tensorflow.", "keras.", "tf_keras."))), "")

    def descends_from(self, names: re.Pattern[str]) -> bool:
        """Return whether a class outside the project whose name matches is one of its bases, directly or indirectly."""
        return any(
            base.descends_from(names) if isinstance(base, Class) else names.match(name_of(base)) is not None
            for base in self.bases
        )


@dataclass(eq=False)
class Instance(Value):
    """An object of a class of the project."""

    of: Class
    attributes: dict[str, Value] = field(default_factory=dict)
    outer: Made | None = None
    """The object as one of TensorFlow's class that its class is derived from."""


@dataclass(eq=False)
class ProjectFunction(Value):
    """A function of the project."""

    node: ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda
    module: Module
    piece: Piece
    scopes: tuple[dict[str, Value], ...]
    owner: Instance | None = None
    graph: bool = False
    """True for a ``tf.function``, whose operations are traced."""
    outer: tuple[ProjectFunction, ...] = ()
    """The functions around its definition."""
    chosen: bool = False
    """True for a function in a dictionary from which the program chooses the one to call."""
    kept: Value | None = None
    """The result that ``functools.cache`` keeps."""

    @property
    def name(self) -> str:
        return "" if isinstance(self.node, ast.Lambda) else self.node.name

    @cached_property
    def decorators(self) -> frozenset[str]:
        """The names of its decorators, such as ``property``."""
        listed = [] if isinstance(self.node, ast.Lambda) else self.node.decorator_list
        called = (node.func if isinstance(node, ast.Call) else node for node in listed)
        return frozenset(ast.unparse(name).rpartition(".")[2] for name in called)

    @property
    def takes_class(self) -> bool:
        """True if it is a class method."""
        return "classmethod" in self.decorators

    @cached_property
    def globals(self) -> frozenset[str]:
        """The names that it assigns in its module."""
        if "global " not in self.text:
            return frozenset()
        return frozenset(name for node in ast.walk(self.node) if isinstance(node, ast.Global) for name in node.names)

    @cached_property
    def text(self) -> str:
        """The lines of the text."""
        return "\n".join(self.piece.lines[self.node.lineno - 1 : self.node.end_lineno])

    @cached_property
    def words(self) -> frozenset[str]:
        """The words in its lines: names and everything else that is a word."""
        return frozenset(_WORD.findall(self.text))


@dataclass(eq=False)
class Method(Value):
    """A method of an object of the project."""

    function: ProjectFunction
    of: Instance | Class


@dataclass(eq=False)
class Imported(Value):
    """A module of the project."""

    module: Module


def has_weights(value: Value | None) -> bool:
    """Return whether a value is surely a Keras layer or model with weights, or a result of one."""
    waiting, seen = [value], set()
    while waiting:
        at = waiting.pop()
        if isinstance(at, Items):
            waiting += at.items
        elif isinstance(at, Made) and id(at) not in seen:
            seen.add(id(at))
            if api.WEIGHTED.match(at.api):
                return True
            if at.api.startswith("keras."):
                waiting += [*at.args, at.owner, at.kwargs.get("outputs"), at.kwargs.get("layers")]
    return False


def is_built(made: Made) -> bool:
    """Return whether a call makes the weights of a Keras layer or model: it has inputs, of a known shape."""
    if made.api.endswith("().__call__"):
        return has_weights(made.owner)
    first = next(iter(elements(made.argument(0, "layers"))), None)
    if not made.api.endswith("Sequential") or not isinstance(first, Made) or not has_weights(made):
        return False
    return first.api.endswith(("Input", "InputLayer")) or any("input" in name for name in first.kwargs)


def is_environ(value: Value) -> bool:
    """Return whether a value is ``os.environ``."""
    return isinstance(value, Name) and value.path == "os.environ"


def use(value: Value | None) -> None:
    """Record that a value was passed on."""
    kind = type(value)  # no class of values that are handed on is derived from
    if kind is Made:
        value.used = True  # type: ignore[union-attr]
    elif kind is Items:
        for item in value.items:  # type: ignore[union-attr]
            use(item)
    elif kind is Instance:
        for item in value.attributes.values():  # type: ignore[union-attr]
            if type(item) is Made:
                item.used = True
    elif kind is Attribute:
        use(value.of)  # type: ignore[union-attr]
    elif kind is Table:
        value.used = True  # type: ignore[union-attr]
        for _, item in value.pairs:  # type: ignore[union-attr]
            use(item)


# --- devices


@dataclass(frozen=True)
class Devices:
    """Devices that TensorFlow listed, all or some."""

    kind: str | None
    """``GPU``, ``CPU``, None for all kinds, or "" if it is not known."""
    listing: Made
    index: int | None = None
    one: bool = False
    all: bool = True
    by: ast.expr | None = None
    """The expression for the number, if its value is not known."""


def devices(value: Value | None) -> Devices | None:
    """Return the devices that a value stands for, or None."""
    if isinstance(value, Made) and value.api in api.LISTS:
        kind = value.argument(0, "device_type")
        text = "" if kind is not None and not isinstance(kind, Const) else kind.value if kind else None
        return Devices(text.upper() if isinstance(text, str) else text, value)
    if isinstance(value, Part) and (whole := devices(value.of)):
        if value.each:
            return Devices(whole.kind, whole.listing, one=True, all=whole.all)
        # The CPU is the first of all devices; of some of them the type is not known.
        of_all = "CPU" if value.index == 0 and whole.all else ""
        inner_kind = of_all if whole.kind is None else whole.kind
        return Devices(inner_kind, whole.listing, value.index, one=not value.several, all=False, by=value.by)
    if isinstance(value, Items) and value.items:
        inner = [devices(item) for item in value.items]
        first = inner[0]
        if first and all(inner):
            only = first if len(inner) == 1 else Devices(None, first.listing)
            return Devices(first.kind, first.listing, only.index, all=False, by=only.by)
    return None


def of_gpus(value: Value | None) -> Devices | None:
    """Return the GPUs that a value surely stands for, or None."""
    found = devices(value)
    return found if found and found.kind == "GPU" else None


def elements(value: Value | None) -> list[Value]:
    """Return the known elements of a list; a value that is not a list is returned as the only element."""
    return value.items if isinstance(value, Items) else [] if value is None else [value]


def is_empty_list(value: Value | None) -> bool:
    return isinstance(value, Items) and not value.items


def constants(value: Value | None) -> Iterator[Any]:
    """Yield the constants in a value: itself, or the elements of a list."""
    return (element.value for element in elements(value) if isinstance(element, Const))


def count_of_gpus(value: Value) -> bool:
    """Return whether a value is the number of devices that were listed."""
    return isinstance(value, Made) and value.name == "builtins.len" and devices([*value.args, None][0]) is not None


_FALSE_TEXTS = frozenset({"0", "false", "no", "off", "none"})


def is_false_text(value: Value) -> bool:
    """Return whether a value is a variable of the environment, or its bool(), whose default means no but is true."""
    if isinstance(value, Made) and value.name == "builtins.bool" and value.args:
        value = value.args[0]
    default = value.args[1] if isinstance(value, Made) and len(value.args) == 2 else None
    named = isinstance(value, Made) and value.name in ("os.environ.get", "os.getenv")
    return named and isinstance(default, Const) and str(default.value).lower() in _FALSE_TEXTS and bool(default.value)


_TRUE = frozenset({"test.is_gpu_available", "test.is_built_with_cuda", "test.is_built_with_gpu_support"})


def truth(value: Value) -> bool | None:
    """Return whether a value is true on a machine with GPUs; None if that is unknown."""
    if isinstance(value, Const):
        return None if value.assumed else bool(value.value)
    if isinstance(value, Items):
        return bool(value.items)
    if devices(value) is not None or count_of_gpus(value):
        return True
    if isinstance(value, Made) and value.api in _TRUE:
        return True
    return None
