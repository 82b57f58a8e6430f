"""What a program does with TensorFlow's devices, in order: the events that rules look at.

:mod:`gpudiag.lint.reading` makes them. An event knows what surely happened before it: what happened in one branch of an
``if`` alone did not.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from gpudiag.knowledge import tensorflow_api as api
from gpudiag.lint.project import Module
from gpudiag.lint.shell import Assignment
from gpudiag.lint.sources import Piece
from gpudiag.lint.values import Function, Made, Table, Value

Effects = frozenset[str]
"""What something does: ``import`` of TensorFlow; ``query`` of the devices, which initialises the CUDA driver;
``devices`` are made, as the eager context has them; ``allocators`` of the GPUs are made, outside of it; a ``session``
is made; ``cluster``: TF_CONFIG is read; ``hides``: no GPU is visible any more; ``reset`` of the context."""


_FARTHEST = 1000
"""Events: a program that was generated can have very many."""


@dataclass(eq=False)
class Frame:
    """What surrounds a statement of a program."""

    module: Module
    piece: Piece
    scopes: tuple[dict[str, Value], ...]
    """The names that it sees, the innermost last."""
    guards: tuple[ast.AST, ...] = ()
    """The tests and the handlers of exceptions around it."""
    stack: tuple[tuple[Module, Piece, ast.AST], ...] = ()
    """The calls of functions of the project that led to it."""
    functions: tuple[Function, ...] = ()
    """The functions that it is in, the innermost last."""
    returns: list[tuple[Past | None, Value]] | None = None
    """How the innermost function ended so far: what had happened before, and what it returned."""
    contexts: tuple[Made, ...] = ()
    """The context managers that are entered around it, such as devices and scopes; the innermost last."""
    doubtful: bool = False
    """True: it may not be run."""
    child: bool = False
    """True: in a process that imports the program again before it calls a function of it."""
    graph: bool = False
    """True: its operations are put into a graph."""
    uncalled: bool = False
    """True: in a function that nothing was seen to call, or in what it calls."""
    imports: int = 0
    """How many imports of modules of the project led to it."""

    def changed(self, changes: dict[str, Any]) -> Frame:
        """Return a frame that differs in some fields; :func:`dataclasses.replace` takes three times as long."""
        frame = object.__new__(Frame)
        frame.__dict__.update(self.__dict__)
        frame.__dict__.update(changes)
        return frame


@dataclass(eq=False)
class Event:
    """Something that a program does."""

    node: ast.AST
    frame: Frame
    past: Past | None
    """What surely happened before."""
    effects: Effects

    @property
    def module(self) -> Module:
        """The file that it is in."""
        return self.frame.module

    @property
    def piece(self) -> Piece:
        """The part of its file that it is in."""
        return self.frame.piece

    @property
    def guards(self) -> tuple[ast.AST, ...]:
        """The tests and the handlers of exceptions around it."""
        return self.frame.guards

    @property
    def stack(self) -> tuple[tuple[Module, Piece, ast.AST], ...]:
        """The calls of functions of the project that led to it."""
        return self.frame.stack

    @property
    def functions(self) -> tuple[Function, ...]:
        """The functions that it is in, the innermost last."""
        return self.frame.functions

    def before(self, *effects: str) -> Event | None:
        """Return the first thing that surely happened before and had one of these effects; see :data:`Effects`."""
        if self.past is None:
            return None
        found = [self.past.first[effect] for effect in effects if effect in self.past.first]
        return min(found, key=lambda state: state.number).event if found else None

    def history(self) -> Iterator[Event]:
        """Yield what surely happened before, the latest first, as far back as :data:`_FARTHEST`."""
        at = self.past
        for _ in range(_FARTHEST):
            if at is None:
                return
            yield at.event
            at = at.before

    @property
    def line(self) -> int:
        return getattr(self.node, "lineno", 1)

    def place(self, program: Program) -> str:
        """Return its place, for a message about another: ``line 3``, ``cell 2, line 1``, ``line 7 of other.py``."""
        inside = "" if self.piece.cell is None else f"cell {self.piece.cell}, "
        file = "" if self.module is program.module else f" of {self.module.source.path.name}"
        return f"{inside}line {self.line}{file}"

    @property
    def what(self) -> str:
        """What the program does there, in a few words."""
        if isinstance(self, Import):
            return f"import {self.name}"
        node = self.node
        if isinstance(node, ast.Call):
            name = ast.unparse(node.func)
            call = f"{name if len(name) <= 60 else '...' + name[-57:]}()"
            return f"with {call}" if isinstance(self, Entered) else call
        return ast.unparse(node)[:60]


class Past:
    """An event, and what came before it."""

    def __init__(self, event: Event, before: Past | None) -> None:
        self.event = event
        self.before = before
        self.number: int = 0 if before is None else before.number + 1
        self.first: dict[str, Past] = {} if before is None else before.first
        """Where each effect was had first since the last reset; a program can have very many events."""
        if "reset" in event.effects:
            self.first = {}
        elif not event.effects <= self.first.keys():
            self.first = dict.fromkeys(event.effects, self) | self.first


@dataclass(eq=False)
class Call(Event):
    """Something outside of the project is called."""

    made: Made

    @property
    def api(self) -> str:
        return self.made.api


@dataclass(eq=False)
class Entered(Event):
    """A ``with`` statement begins."""

    made: Made
    body: list[ast.stmt]


@dataclass(eq=False)
class Assigned(Event):
    """An attribute of something outside of the project is assigned: ``tf.config.set_visible_devices = []``."""

    name: str
    value: Value
    target: ast.Attribute
    whole: bool
    """True: the statement is this assignment alone."""


@dataclass(eq=False)
class Named(Event):
    """A statement that is the name of something outside of the project, or that names what is not there."""

    name: str
    statement: bool


@dataclass(eq=False)
class Tested(Event):
    """A test, or what ``and``, ``or`` and ``not`` join in one, that has the same answer on every machine."""

    name: str
    """What is named instead of called, outside of the project; "" for a comparison."""
    always: bool = True
    """The answer."""


@dataclass(eq=False)
class Variable(Event):
    """An environment variable is set."""

    name: str
    value: Value
    value_node: ast.expr | None
    name_node: ast.expr | None
    how: str
    """``=``, ``setdefault``, ``update`` or ``putenv``; ``env``: for a process that is started."""
    certain: bool
    """False: under a condition that may be false."""
    table: Table | None = None
    """The copy of the environment that it is set in."""


@dataclass(eq=False)
class Unreached(Event):
    """A shell sets a variable that no program gets."""

    assignment: Assignment
    in_script: bool
    """True: in a script, False: in a command that the program gives to a shell."""


@dataclass(eq=False)
class Option(Event):
    """An attribute of an object of TensorFlow is assigned: ``config.gpu_options.allow_growth = True``."""

    made: Made
    path: str
    value: Value


@dataclass(eq=False)
class Import(Event):
    """A module outside of the project is imported."""

    name: str


@dataclass(eq=False)
class SetByImport(Event):
    """An import of a module of the project surely sets an environment variable, or hides the GPUs."""

    setting: Event


class Program:
    """What was read of a program that begins in one file."""

    def __init__(self, module: Module) -> None:
        self.module = module
        self.events: list[Event] = []
        self.modules: dict[Module, None] = {module: None}
        """The module and those that it imports, in their order."""
        self.made: list[tuple[Made, Event]] = []
        """The objects that the program makes, each with the event."""
        self.options: list[Made] = []
        """The calls that declare an option of the command line."""
        self.gpu_bytes: int | None = None
        """Memory of the GPU that the program is for, if the user says so."""
        self.shared = False
        """True: another file imports this one, so what it makes may be used there."""

    @cached_property
    def by_node(self) -> dict[int, Made]:
        """What was made, by the identity of the call in the syntax tree."""
        return {id(made.node): made for made, _ in self.made}

    def calls(self, *names: str) -> Iterator[Call]:
        """Yield the calls of these functions, by their canonical names."""
        return (event for event in self.events if type(event) is Call and event.made.api in names)

    def of(self, kind: type[Any]) -> Iterator[Any]:
        """Yield the events of a kind."""
        return (event for event in self.events if type(event) is kind)

    def mentions(self, pattern: re.Pattern[str]) -> bool:
        """Return whether the text of the program, or of a module of the project that it imports, has this."""
        return any(module.mentions(pattern) for module in self.modules)


_REMOVED_BELOW = re.compile(
    r"\A(?:tensorflow\.)?(?:compat\.v1\.)?(keras\.(?:backend|utils)\.)(?:tensorflow_backend\.)?(\w+)\Z"
)


def removed_name(path: str) -> str | None:
    """Return the key of a name in :data:`gpudiag.knowledge.tensorflow_api.REMOVED`, or None."""
    short = path.removeprefix("tensorflow.")
    if found := _REMOVED_BELOW.match(path):
        short = f"{found[1]}{found[2]}"
    elif short == path:
        return None
    return short if short in api.REMOVED else None


def common(ends: list[Past | None], start: Past | None) -> Past | None:
    """Return what every arm of a choice has surely done: what came before it, and effects that all arms have."""
    suffixes = []
    for end in ends:
        events = []
        at = end
        while at is not None and at is not start:
            events.append(at.event)
            at = at.before
        suffixes.append(list(reversed(events)))
    shared = set.intersection(*({effect for event in events for effect in event.effects} for events in suffixes))
    past = start
    for event in suffixes[0]:
        if event.effects & shared:
            past = Past(event, past)
    return past
