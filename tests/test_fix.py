"""What to do is data: the builders of actions, and what every action of the catalogue keeps to."""

from __future__ import annotations

import ast
import re
import subprocess
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import gpudiag
from examples.facts import example, example_with_gpus
from gpudiag import catalogue, causes
from gpudiag.cause import CatalogueCause, Cause, Evidence, Match
from gpudiag.fix import (
    Action,
    Kind,
    Role,
    Where,
    distinct,
    export,
    fill_in,
    install,
    manual,
    note,
    prepend,
    reboot,
    run,
    shown,
    unset,
)
from gpudiag.knowledge.messages import MESSAGES
from gpudiag.model.diagnosis import Stage
from gpudiag.model.facts import ContainerFacts
from reports import unreadable

_PACKAGE = Path(gpudiag.__file__).parent
LOOKS = (Kind.NONE, Kind.LOOK_AT_SYSTEM)
_COMMENT = re.compile(r"(?:^|\s)#(?:\s|$)")


def declared() -> list[tuple[str, tuple[Action, ...]]]:
    """Return each declared fix, with the name of the cause, message or finding that declares it."""
    messages = [known for message in MESSAGES for known in (message, *message.codes.values())]
    return [
        *((known.id, known.declared.fix) for known in causes.all_of_them()),
        *((message.name, message.fix) for message in messages),
        *((f"{entry.name}.{kind.name}", kind.fix) for entry in catalogue.entries() for kind in entry.kinds),
    ]


OTHERS = ("context", "made", "report", "asked_for", "self")
"""Names of other things that have a command or a note."""


def read_by_text(path: Path) -> Iterator[str]:
    """Yield each place that compares, searches or splits the text of an action."""
    for node in ast.walk(ast.parse(path.read_text())):
        parts: list[ast.expr] = []
        if isinstance(node, ast.Compare):
            parts = [node.left, *node.comparators]
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            patterns = ("match", "search", "fullmatch", "split", "findall", "sub")
            parts = [node.func.value, *(node.args if node.func.attr in patterns else ())]
        elif isinstance(node, ast.Subscript):
            parts = [node.value]
        for part in parts:
            texts = isinstance(part, ast.Attribute) and part.attr in ("command", "note", "clause")
            if texts and ast.unparse(part.value) not in OTHERS:  # type: ignore[attr-defined]
                yield f"{path.name}: {ast.unparse(part)}"


def test_no_code_reads_a_fix_by_its_text() -> None:
    """Only the codec of schema 1 does, and what fits a command to its place; a program decides by the kind."""
    paths = [path for path in _PACKAGE.rglob("*.py") if path.name not in ("fix.py", "place.py")]
    assert [place for path in paths for place in read_by_text(path)] == []
    assert [path.name for path in paths if re.search(r"import .*\bschema_1\b", path.read_text())] == ["codec.py"]


def test_a_command_has_no_comment_and_a_note_stands_beside_it() -> None:
    every = [(name, action) for name, fix in declared() for action in fix]
    assert len(every) > 2000
    assert [(name, action.command) for name, action in every if _COMMENT.search(action.command)] == []
    assert [(name, action.note) for name, action in every if action.note.startswith(("#", "or: "))] == []
    assert [name for name, action in every if not action.command and not action.note] == []
    assert [name for name, action in every if (action.role is Role.NOTE) is not (action.command == "")] == []


class Figure:
    """A figure of any format."""

    def __format__(self, form: str) -> str:
        return "x"

    __repr__ = __str__ = lambda self: "x"


def test_every_command_is_one_that_python_or_a_shell_reads() -> None:
    words: defaultdict[str, Figure] = defaultdict(Figure)
    every = [action for _, fix in declared() for action in fix if action.command]
    commands = [action.replaced(command=action.command.format_map(words)) for action in every]
    assert [why for action in commands if (why := unreadable(action))] == []
    script = "\n".join(action.command for action in commands if action.where is not Where.PROGRAM)
    assert subprocess.run(["bash", "-n"], input=script, capture_output=True, text=True, check=False).stderr == ""


def test_what_comes_first_is_no_alternative() -> None:
    assert [name for name, fix in declared() if fix and fix[0].role is Role.ALTERNATIVE] == []


def test_what_only_looks_changes_nothing() -> None:
    looks = [(name, action) for name, fix in declared() for action in fix if action.role is Role.CHECK]
    assert len(looks) > 200
    assert [name for name, action in looks if action.kind not in LOOKS or action.change] == []


def test_the_kind_says_what_an_action_does() -> None:
    """A program decides by it; ``COMMAND`` is for the few that nothing else describes."""
    every = [action for _, fix in declared() for action in fix]
    assert {action.role for action in every if action.kind in LOOKS} == {Role.CHECK, Role.NOTE}
    others = [action for action in every if action.kind is Kind.COMMAND]
    assert {action.role for action in others} <= {Role.FIX, Role.ALTERNATIVE}
    assert len(others) < 30
    manual = (_PACKAGE / "docs" / "reports.md").read_text()
    assert [kind for kind in Kind if f"| `{kind.value}` |" not in manual] == []


def test_a_change_of_variables_can_be_tried_as_it_stands() -> None:
    assert unset("A", "B").change == {"A": None, "B": None}
    assert export("A", "x y") == Action("export A='x y'", kind=Kind.SET_VARIABLE, change={"A": "x y"})
    assert prepend("A", "/x y").command == "export A='/x y':$A"
    assert prepend("A", "/x").change is None
    assert install("numpy<2", note="why") == Action("pip install 'numpy<2'", "why", kind=Kind.INSTALL, pip=("numpy<2",))


def test_figures_are_put_into_every_text_and_a_path_is_one_word() -> None:
    template = export("{name}", "{path}", "as {name}")
    filled = fill_in(template, {"name": "A", "path": "/a b"})
    assert filled == Action("export A='/a b'", "as A", kind=Kind.SET_VARIABLE, change={"A": "/a b"})
    assert fill_in(run("rm '{path}'"), {"path": "/a b"}).command == "rm '/a b'"


def test_no_action_stands_twice() -> None:
    assert distinct((unset("A"), reboot(), unset("A"))) == (unset("A"), reboot())


def test_an_action_is_shown_with_what_it_is_for() -> None:
    fix = (note("do it by hand"), export("A", "1", "if it helps", role=Role.ALTERNATIVE), note("look again"))
    assert [(item.heading, item.text, item.clause) for item in shown(fix)] == [
        ("fix", "do it by hand", ""),
        ("or", "export A=1", "if it helps"),
        ("note", "look again", ""),
    ]
    assert list(manual((run("x", where=Where.HOST), unset("{name}")))) == [
        "fix    x",
        "       on the host",
        "fix    unset <name>",
        "       [set a variable]",
    ]


def test_in_a_container_the_driver_is_changed_on_the_host() -> None:
    actions = (reboot(), unset("A"), run("srun x", kind=Kind.START_CONTAINER, where=Where.SCHEDULER))
    known = CatalogueCause("a_cause", Stage.DRIVER, "a cause", "why", Cause(fix=actions, url=""), lambda: iter(()))
    (inside, outside) = (
        known.cause_of(Match(("seen",)), Evidence(facts))
        for facts in (example(container=ContainerFacts("docker", (), False, None)), example_with_gpus())
    )
    assert [action.where for action in inside.fix] == [Where.HOST, Where.HERE, Where.SCHEDULER]
    assert [action.where for action in outside.fix] == [Where.HERE, Where.HERE, Where.SCHEDULER]
