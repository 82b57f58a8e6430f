"""The events of a program that rules look at: what it does with TensorFlow's devices, in order.

:mod:`gpudiag.lint.reading` makes them. An event knows the events that surely happened before it; those in one branch of
an ``if`` are not certain.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from gpudiag.knowledge import tensorflow_api as api
from gpudiag.lint.project import Module
from gpudiag.lint.shell import Assignment
from gpudiag.lint.sources import Piece
from gpudiag.lint.values import Made, ProjectFunction, Table, Value

STEPS = ("().fit", "().train_on_batch", "().predict", "().evaluate")
"""The ends of the names of what runs steps of a Keras model."""
Effects = frozenset[str]
"""The effects of an event: ``import`` of TensorFlow; ``keras``: Keras is imported; ``query`` of the devices, which
initialises the CUDA driver; ``devices``: the eager context makes its devices; ``allocators``: the allocators of the
GPUs are made, outside the eager context; ``session``: a session is made; ``cluster``: TF_CONFIG is read; ``steps``: a
Keras model has run a step; ``hides``: no GPU is visible any more; ``reset``: the context is reset."""


_FARTHEST = 1000
"""The most events that are looked back; a generated program can have very many."""


@dataclass(eq=False)
class Frame:
    """The surroundings of a statement in a program."""

    module: Module
    piece: Piece
    scopes: tuple[dict[str, Value], ...]
    """The names that the statement sees, the innermost scope last."""
    guards: tuple[ast.AST, ...] = ()
    """The tests and the exception handlers around the statement."""
    stack: tuple[tuple[Module, Piece, ast.AST], ...] = ()
    """The calls of functions of the project that lead to the statement."""
    functions: tuple[ProjectFunction, ...] = ()
    """The functions that contain the statement, the innermost last."""
    returns: list[tuple[Past | None, Value]] | None = None
    """The ends of the innermost function so far: the events before each, and the returned value."""
    contexts: tuple[Made, ...] = ()
    """The context managers around the statement, such as devices and scopes, the innermost last."""
    doubtful: bool = False
    """True if the statement may not be run."""
    dead: ast.AST | None = None
    """The test that keeps a machine with GPUs from the statement; None if there is none."""
    child: bool = False
    """True in a process that imports the program again before it calls a function of it."""
    graph: bool = False
    """True if the operations of the statement become part of a graph."""
    uncalled: bool = False
    """True in a function for which no call was seen, and in the functions that it calls."""
    imports: int = 0
    """The number of nested imports of modules of the project around the statement."""

    def changed(self, changes: dict[str, Any]) -> Frame:
        """Return a frame that differs in some fields; :func:`dataclasses.replace` takes three times as long."""
        frame = object.__new__(Frame)
        frame.__dict__.update(self.__dict__)
        frame.__dict__.update(changes)
        return frame


@dataclass(eq=False)
class ProgramEvent:
    """An action of a program."""

    node: ast.AST
    frame: Frame
    past: Past | None
    """The events that surely happened before this one."""
    effects: Effects

    @property
    def module(self) -> Module:
        """The file of the event."""
        return self.frame.module

    @property
    def piece(self) -> Piece:
        """The part of its file that the event is in."""
        return self.frame.piece

    @property
    def guards(self) -> tuple[ast.AST, ...]:
        """The tests and the exception handlers around the event."""
        return self.frame.guards

    @property
    def stack(self) -> tuple[tuple[Module, Piece, ast.AST], ...]:
        """The calls of functions of the project that lead to the event."""
        return self.frame.stack

    @property
    def functions(self) -> tuple[ProjectFunction, ...]:
        """The functions that contain the event, the innermost last."""
        return self.frame.functions

    def before(self, *effects: str) -> ProgramEvent | None:
        """Return the first event that surely happened before and had one of these effects; see :data:`Effects`."""
        if self.past is None:
            return None
        found = [self.past.first[effect] for effect in effects if effect in self.past.first]
        return min(found, key=lambda state: state.number).event if found else None

    def history(self) -> Iterator[ProgramEvent]:
        """Yield the events that surely happened before, the latest first, as far back as :data:`_FARTHEST`."""
        at = self.past
        for _ in range(_FARTHEST):
            if at is None:
                return
            yield at.event
            at = at.before

    @property
    def line(self) -> int:
        return getattr(self.node, "lineno", 1)

    def place(self, program: LintedProgram) -> str:
        """Return the place for another event's message: ``line 3``, ``cell 2, line 1``, ``line 7 of other.py``."""
        inside = "" if self.piece.cell is None else f"cell {self.piece.cell}, "
        file = "" if self.module is program.module else f" of {self.module.source.path.name}"
        return f"{inside}line {self.line}{file}"

    @property
    def what(self) -> str:
        """A few words about what the program does at this event."""
        if isinstance(self, Import):
            return f"import {self.name}"
        node = self.node
        if isinstance(node, ast.Call):
            name = ast.unparse(node.func)
            call = f"{name if len(name) <= 60 else '...' + name[-57:]}()"
            return f"with {call}" if isinstance(self, Entered) else call
        return ast.unparse(node)[:60]


class Past:
    """An event, linked to the events before it."""

    def __init__(self, event: ProgramEvent, before: Past | None) -> None:
        self.event = event
        self.before = before
        self.number: int = 0 if before is None else before.number + 1
        self.first: dict[str, Past] = {} if before is None else before.first
        """The first event with each effect since the last reset; a program can have very many events."""
        if "reset" in event.effects:
            self.first = {}
        elif not event.effects <= self.first.keys():
            self.first = dict.fromkeys(event.effects, self) | self.first


@dataclass(eq=False)
class Call(ProgramEvent):
    """A call of something outside the project."""

    made: Made

    @property
    def api(self) -> str:
        return self.made.api


@dataclass(eq=False)
class Entered(ProgramEvent):
    """The beginning of a ``with`` statement."""

    made: Made
    body: list[ast.stmt]


@dataclass(eq=False)
class Assigned(ProgramEvent):
    """An assignment to an attribute of something outside the project: ``tf.config.set_visible_devices = []``."""

    name: str
    value: Value
    target: ast.Attribute
    whole: bool
    """True if the statement consists of this assignment alone."""


@dataclass(eq=False)
class Named(ProgramEvent):
    """A statement that only names something outside the project, or names something that does not exist."""

    name: str
    statement: bool


@dataclass(eq=False)
class Tested(ProgramEvent):
    """A test with the same answer on every machine, or such an operand of ``and``, ``or`` or ``not`` in a test."""

    name: str
    """The name outside the project that is tested instead of called; "" for a comparison."""
    always: bool = True
    """The answer of the test on every machine."""


@dataclass(eq=False)
class Variable(ProgramEvent):
    """A setting of an environment variable."""

    name: str
    value: Value
    value_node: ast.expr | None
    name_node: ast.expr | None
    how: str
    """``=``, ``setdefault``, ``update`` or ``putenv``; ``env``: in the environment of a process that is started."""
    certain: bool
    """False if the setting is under a condition that may be false."""
    table: Table | None = None
    """The copy of the environment in which the variable is set."""


@dataclass(eq=False)
class Unreached(ProgramEvent):
    """A variable that is set in a shell but reaches no program."""

    assignment: Assignment
    in_script: bool
    """True in a script, False in a command that the program gives to a shell."""


@dataclass(eq=False)
class Option(ProgramEvent):
    """An assignment to an attribute of a TensorFlow object: ``config.gpu_options.allow_growth = True``."""

    made: Made
    path: str
    value: Value


@dataclass(eq=False)
class Import(ProgramEvent):
    """An import of a module outside the project."""

    name: str


@dataclass(eq=False)
class SetByImport(ProgramEvent):
    """An import of a module of the project that surely sets an environment variable, or hides the GPUs."""

    setting: ProgramEvent


class LintedProgram:
    """The record of a program that begins in one file."""

    def __init__(self, module: Module) -> None:
        self.module = module
        self.events: list[ProgramEvent] = []
        self.modules: dict[Module, None] = {module: None}
        """The module of the program and those that it imports, in order."""
        self.made: list[tuple[Made, ProgramEvent]] = []
        """The objects that the program makes, each with its event."""
        self.followed: set[int] = set()
        """The calls of functions and classes of the project that were followed, by their identity in the tree."""
        self.options: list[Made] = []
        """The calls that declare options of the command line."""
        self.gpu_bytes: int | None = None
        """The memory of the GPU that the program is for, if the user gives it."""
        self.shared = False
        """True if another file imports this program, so that its objects may be used there."""

    @cached_property
    def by_node(self) -> dict[int, Made]:
        """The made objects, by the identity of the call in the syntax tree."""
        return {id(made.node): made for made, _ in self.made}

    @cached_property
    def makers(self) -> dict[int, ProgramEvent]:
        """The event at which each object was made, by the object's identity."""
        return {id(made): event for made, event in self.made}

    def runs_of(self, models: Callable[[ProgramEvent], bool], methods: tuple[str, ...] = STEPS) -> Iterator[Call]:
        """Yield the calls of these methods of Keras models, if ``models`` accepts what made the model."""
        for event in self.of(Call):
            if event.api.startswith("keras.") and event.api.endswith(methods):
                maker = self.makers.get(id(event.made.owner))
                if maker is not None and models(maker):
                    yield event

    def calls(self, *names: str, dead: bool = False) -> Iterator[Call]:
        """Yield the calls of these functions, by their canonical names, that a machine with GPUs may run.

        ``dead``: those that it never runs.
        """
        return (call for call in self.of(Call) if call.made.api in names and (call.frame.dead is not None) is dead)

    def of(self, kind: type[Any]) -> Iterator[Any]:
        """Yield the events of one kind."""
        return (event for event in self.events if type(event) is kind)

    def mentions(self, pattern: re.Pattern[str]) -> bool:
        """Return whether the program, or a module of the project that it imports, matches this text or pattern."""
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
    """Return what surely happened after a choice: the events before it, and the effects that all its arms have."""
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
