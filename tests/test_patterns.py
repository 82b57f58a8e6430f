"""No regular expression of the package is worse than linear: what they read comes from other programs.

Every pattern is found: those that calls of ``re`` in the source name, and those that modules have compiled, however
they were made. The texts that are tried are made of each pattern's own letters: what leads Python's engine, which goes
back and tries again, into trying the most.
"""

from __future__ import annotations

import ast
import dataclasses
import functools
import importlib
import inspect
import pkgutil
import re
import string
import sys
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pytest

import gpudiag
from counting import Engine, TooMany, constants, is_of, parser
from gpudiag.causes.shared import last_resort
from gpudiag.fleet.engines import slurm, ssh
from gpudiag.knowledge import cards, log, origin, requirements, settings_of_files, stated
from gpudiag.knowledge.messages import MESSAGES
from gpudiag.model import frame
from gpudiag.report import masking
from reports import sample

MODES = ("match", "fullmatch", "search", "findall", "finditer", "sub", "subn", "split")
METHOD = re.compile(rf"\.(?:{'|'.join((*MODES, 'compile'))})\b")
"""A module without any of these has no pattern, or hands it to one that has."""
SMALL = 16
"""Characters of the shorter of two texts that are compared, or more: a part is repeated four times at least."""
LARGE = 6
"""How often as long the longer one is."""
MOST = 12
"""How often as many steps that may take: linear is 6, quadratic 36, less what both take at each place."""
CAP = 100_000
"""More steps than the shorter text may take."""


def of_masking(*, paths: bool) -> list[str]:
    """Return the patterns that masking a report composes: that for paths which it knows, or that for all."""
    seen: list[Any] = []
    compile_ = re.compile

    def noted(pattern: Any, flags: int = 0) -> Any:
        if sys._getframe(1).f_globals["__name__"] == masking.__name__:
            seen.append(pattern)
        return compile_(pattern, flags)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(re, "compile", noted)
        masking.mask(sample())
    return [pattern for pattern in seen if isinstance(pattern, str) and pattern.startswith("[<~-]") is paths]


def shapes() -> Iterable[str]:
    """Return the expressions of the table of messages: each pattern, and one of the texts with the same fields.

    A text is fields with literals between them, of which only the edges matter to how long a search takes.
    """
    found: dict[object, str] = {}
    for message in MESSAGES:
        if message.pattern:
            found[message.pattern] = message.pattern
        for text in message.texts:
            parts = list(string.Formatter().parse(text))
            fields = tuple((kind, re.sub(r"\w", "w", literal[-1:])) for literal, _, kind, _ in parts)
            found.setdefault(fields, log._prepared(message, 0, text).expression)
    return found.values()


SOURCES: dict[tuple[str, str], Callable[[], Iterable[str]]] = {
    ("gpudiag.causes.shared.last_resort", "match"): lambda: [meaning.codes for meaning in last_resort.MEANINGS],
    ("gpudiag.knowledge.log", "_prepared"): lambda: [r"^(?:\w|\{\w*:[wd]\})", r"\w$"],
    ("gpudiag.knowledge.log", "pattern"): shapes,
    ("gpudiag.causes.shared.machine", "install_command"): lambda: ["Red Hat|Rocky|Alma|CentOS"],
    ("gpudiag.causes.context.variable_refused", "_stands_in"): lambda: [r"\bTF_X\b", r"(?<![\w./-])aaa(?![\w-]|\.\w)"],
    ("gpudiag.fix", "fill_in"): lambda: [r"['\"]\{file\}"],
    ("gpudiag.facts.tensorflow", "_altered"): lambda: [r"(?m)^tensorflow/a\.so,sha256=([^,\n]*),(\d+)$"],
    ("gpudiag.report.masking", "mask"): lambda: of_masking(paths=False),
    ("gpudiag.report.masking", "_named_path_rules"): lambda: of_masking(paths=True),
    ("gpudiag.knowledge.cards", ""): lambda: [pattern.pattern for _, pattern in cards._CARDS],
    ("gpudiag.knowledge.stated", ""): lambda: [pattern.pattern for _, pattern in stated._LABELS],
    ("gpudiag.knowledge.origin", ""): lambda: [pattern.pattern for pattern, _ in origin._HINTS],
    ("gpudiag.knowledge.requirements", ""): lambda: [pattern.pattern for _, pattern in requirements._STATED],
    ("gpudiag.fleet.engines", "__init__"): lambda: [
        rule.text.pattern for rule in (*slurm.Engine.reasons, ssh._REFUSED)
    ],
    ("gpudiag.fleet.facts", "_without_host"): lambda: [r"(?<![\w-])node\-7(?![\w-])"],
    ("gpudiag.fleet.together.member", "accused"): lambda: [r"(?<![\w.-])10\.0\.0\.7:2222(?!\d)"],
    ("gpudiag.model.frame", ""): lambda: [frame._BEGIN[frame.WORD].pattern.decode()],
    ("gpudiag.lint.check", "check"): lambda: [r"tf\.device\(|GPUOptions|set_memory_growth"],
    ("gpudiag.lint.rules.result_dropped", "_is_read"): lambda: [
        r"\.gpus\b(?!\s{0,9}(?:\.\w[\w.]{0,99}\s{0,9})?=[^=])|__dict__|getattr\(|vars\("
    ],
    ("gpudiag.lint.settings", "is_never_called"): lambda: [r"\bset_growth\b"],
    ("gpudiag.lint.shell", "_is_misspelt"): lambda: [r"(?<![${\w])GPU_ID\b"],
    ("gpudiag.knowledge.settings_of_files", "entries"): lambda: list(settings_of_files._SEPARATED.values()),
    ("gpudiag.simulator.faults", "_function"): lambda: [
        r"(?P<function>(?:__)?(?:cu|nv|nccl)\w+):(?P<code>\d+)(?::(?P<first>\d+))?",
        r"(?P<function>(?:__)?(?:cu|nv|nccl)\w+):(?P<seconds>\d+(?:\.\d+)?)",
    ],
    ("gpudiag.simulator.faults", "build"): lambda: [r"\d+(\.\d+){2}"],
    ("gpudiag.simulator.spec", "_text"): lambda: [r"\d+\.\d", r"GPU-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}"],
}
"""Patterns that a function composes, or is given: the module and the function, to what they come to."""


@dataclasses.dataclass(frozen=True)
class Found:
    """A regular expression of the package, and how it is used."""

    where: str
    pattern: str
    flags: int
    modes: frozenset[str]


def modules() -> Iterator[tuple[Any, str]]:
    for package in pkgutil.walk_packages(gpudiag.__path__, "gpudiag."):
        if not package.name.startswith(("gpudiag.suite.", "gpudiag.simulator.src", "gpudiag.__main__")):
            module = importlib.import_module(package.name)
            yield module, inspect.getsource(module)


def uses(tree: ast.Module) -> tuple[dict[str, set[str]], dict[str, set[str]]]:
    """Return which methods of each compiled pattern a module uses: of its own, and of another's as ``lines.NAME``."""
    own: dict[str, set[str]] = {}
    others: dict[str, set[str]] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and node.attr in MODES:
            owner = node.value
            own.setdefault(getattr(owner, "id", ""), set()).add(node.attr)
            others.setdefault(getattr(owner, "attr", ""), set()).add(node.attr)
    return own, others


def calls(tree: ast.AST, function: str = "", name: str = "") -> Iterator[tuple[str, str, ast.Call]]:
    """Yield every call of a function of ``re``: the function that it stands in, what its result is called, the call."""
    for node in ast.iter_child_nodes(tree):
        inside = node.name if isinstance(node, ast.FunctionDef) else function
        called = node.targets[0].id if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name) else name
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.args:
            owner = node.func.value
            if isinstance(owner, ast.Name) and owner.id == "re" and node.func.attr in (*MODES, "compile"):
                yield function, name, node
        yield from calls(node, inside, called)


@functools.cache
def everywhere() -> tuple[list[Found], list[str]]:
    """Return every pattern of the package, and the calls whose pattern is not known."""
    both = [
        (module, ast.parse(source) if METHOD.search(source) else ast.Module([], [])) for module, source in modules()
    ]
    own = [uses(tree) for _, tree in both]
    others: dict[str, set[str]] = {}
    for _, elsewhere in own:
        for name, modes in elsewhere.items():
            others.setdefault(name, set()).update(modes)
    found: dict[tuple[str, int], Found] = {}
    unknown: list[str] = []

    def add(where: str, pattern: str | bytes, flags: int, modes: set[str]) -> None:
        pattern = pattern.decode("latin-1") if isinstance(pattern, bytes) else pattern
        known = found.get((pattern, flags))
        found[pattern, flags] = Found(where, pattern, flags, known.modes | modes if known else frozenset(modes))

    for (module, tree), (here, _) in zip(both, own, strict=True):
        used = {name: others.get(name, set()) | here.get(name, set()) for name in others.keys() | here.keys()}
        for name, value in vars(module).items():
            for pattern in compiled(value):  # given to a function, it may be used in any way
                add(module.__name__, pattern.pattern, pattern.flags, used.get(name) or {"search", "sub"})
        for function, name, call in calls(tree):
            mode = ast.unparse(call.func).removeprefix("re.")
            modes = {mode} if mode != "compile" else used.get(name) or {"search", "sub"}
            flags = [expression for expression in call.args[1:] if ast.unparse(expression).startswith("re.")]
            flags += [word.value for word in call.keywords if word.arg == "flags"]
            value = sum(int(eval(ast.unparse(expression), vars(module))) for expression in flags)
            try:
                patterns = [eval(ast.unparse(call.args[0]), vars(module))]
            except NameError:
                patterns = list(SOURCES.get((module.__name__, function), list)())
            if not patterns:
                unknown.append(f"{module.__name__}.{function}, line {call.lineno}: {ast.unparse(call)}")
            for pattern in patterns:
                add(f"{module.__name__}.{function}", pattern, re.compile(pattern, value).flags, modes)
    return list(found.values()), unknown


def compiled(value: object, depth: int = 0) -> Iterator[re.Pattern[str]]:
    """Yield the compiled patterns inside a value of a module."""
    if isinstance(value, re.Pattern):
        yield value
    elif depth < 4:
        inner: Iterable[object] = ()
        if isinstance(value, dict):
            inner = [*value.keys(), *value.values()]
        elif isinstance(value, list | tuple | set | frozenset):
            inner = value
        elif dataclasses.is_dataclass(value) and not isinstance(value, type):
            inner = [getattr(value, field.name) for field in dataclasses.fields(value)]
        for item in inner:
            yield from compiled(item, depth + 1)


# ---- the worst letters of a pattern ----

LETTERS = ("a1A_ .:/-\"'()[],;=\n\t\\{}<>%$#@+*|~^&!?`\x1b\x07\u00e9", "\n1 \ta./-(")
"""What stands for a class of characters: the first of these that is one of it."""
ENDLESS = 64
"""A repeat that may be longer is tried without end; a shorter one costs what it may, once for each place."""

Piece = tuple[str, bool]
"""A text that a part of the pattern matches, and whether that part may be repeated without end."""


def readings(tokens: Any, letters: str) -> list[list[Piece]]:
    """Return what a pattern reads as lists of pieces: the first choice everywhere, and one list more for each other."""
    lists: list[list[Piece]] = [[]]

    def follow(others: list[list[Piece]]) -> None:
        nonlocal lists
        more = [[*lists[0], *other] for other in others[1:]]
        lists = [[*steps, *others[0]] for steps in lists] + more

    for kind, what in tokens:
        if kind is constants.LITERAL:
            follow([[(chr(what), False)]])
        elif kind is constants.NOT_LITERAL:
            follow([[(next(letter for letter in letters if ord(letter) != what), False)]])
        elif kind is constants.ANY:
            follow([[("a", False)]])
        elif kind is constants.IN:
            follow([[(next((letter for letter in (*letters, *LETTERS[0]) if is_of(what, letter)), "a"), False)]])
        elif kind is constants.BRANCH:
            follow([reading for branch in what[1] for reading in readings(branch, letters)])
        elif kind is constants.SUBPATTERN:
            follow(readings(what[-1], letters))
        elif kind in (constants.MAX_REPEAT, constants.MIN_REPEAT):
            least, most, body = what
            bodies = readings(body, letters)
            if most > ENDLESS:
                inner = [body for body in bodies if any(endless for _, endless in body)]
                follow([[("".join(text for text, _ in body) or "a", True)] for body in bodies] + inner)
            else:
                follow([body * max(1, min(least, 8)) for body in bodies])
        elif kind is constants.ASSERT:
            follow(readings(what[1], letters))
        elif kind is constants.ASSERT_NOT:
            lists += [[*lists[0], *reading] for reading in readings(what[1], letters)]
    return lists


def attacks(pattern: str, flags: int) -> set[tuple[str, str, str]]:
    """Return texts that may be slow as what comes once, what is repeated, and what ends it and fits nothing."""
    found: set[tuple[str, str, str]] = set()
    tokens = parser.parse(pattern, flags)
    lines = r"\s" in pattern or "[^" in pattern  # then the end of a line may be what is repeated
    for pieces in (reading for letters in LETTERS[: 1 + lines] for reading in readings(tokens, letters)[:24]):
        joined: list[Piece] = []
        for text, endless in pieces:
            if joined and not endless and not joined[-1][1]:
                joined[-1] = (joined[-1][0] + text, False)
            else:
                joined.append((text, endless))
        texts = [text for text, _ in joined]
        for number in (number for number, (_, endless) in enumerate(joined) if endless):
            before, text = "".join(texts[:number]), texts[number]
            after = texts[number + 1] if number + 1 < len(texts) else ""
            last = texts[number - 1] if number else ""
            for body in {text, last, after, text + after, last + text}:
                found |= {("", body, "\0"), (before, body, "\0")}
            found |= {("", before, "\0"), ("", before + text, "\0"), (before, text, "\n")}
        found.add(("", "".join(texts)[:-1], "\0"))
    return {attack for attack in found if attack[1]}


def too_slow(found: Found) -> str:
    """Say on which of its worst texts a pattern takes more than in proportion to their length; "" where on none."""
    # To find all, to replace and to split is the same work; a search is the beginning of it, and a match of a search.
    modes = {mode if mode in ("match", "fullmatch", "search") else "sub" for mode in found.modes}
    modes -= {"search", "match"} if "sub" in modes else {"match"} if "search" in modes else set()
    engine = Engine(found.pattern, found.flags)
    tried = attacks(found.pattern, found.flags)
    for attack in sorted(tried):
        head, *rest = attack
        begins = len(head) if head and ("", *rest) in tried else None  # without the head, it is counted from everywhere
        for mode in sorted(modes):
            most, few = CAP, max(4, SMALL // len(attack[1]))
            for times in (few, LARGE * few):
                try:
                    most = MOST * engine.count(text_of(attack, times), mode, most, begins)
                except TooMany:
                    return told(mode, attack, times)
    return ""


def text_of(attack: tuple[str, str, str], times: int) -> str:
    head, body, tail = attack
    return head + body * times + tail


def told(mode: str, attack: tuple[str, str, str], times: int) -> str:
    head, body, tail = attack
    return f"{mode} of {head[:40]!r} + {body[:40]!r} * {times} + {tail!r}"


def test_what_counts_matches_as_the_engine_of_python_does() -> None:
    patterns, _ = everywhere()
    for found in patterns[::8]:
        engine, own = Engine(found.pattern, found.flags, bound=1 << 20), re.compile(found.pattern, found.flags)
        for attack in sorted(attacks(found.pattern, found.flags)):
            text = text_of(attack, 2)
            match = own.search(text)
            assert engine.find(text) == (match and match.span()), (found, text)


@pytest.mark.parametrize(
    ("pattern", "mode"),
    [
        ("(a+)+$", "match"),
        ("begins .*ends", "search"),
        (r"\d+\.", "search"),
        (r"\w*gpu\w*\[", "search"),
        (r"(?m)^\s+name", "search"),
        (r"\w*(?:Dataset|Iterator)\w*", "fullmatch"),
        ("[^:]*busy", "search"),
        (r"/[\w./-]*/gpudiag-sim-\w+", "sub"),
        (r"from .*? to (?!.*not) there", "search"),
        ("(?:a|b)*?c.*d", "search"),
    ],
)
def test_a_pattern_that_is_worse_than_linear_is_found_out(pattern: str, mode: str) -> None:
    assert too_slow(Found("here", pattern, 0, frozenset({mode})))


@pytest.mark.parametrize(
    ("pattern", "mode"),
    [
        ("begins .{0,50}ends", "search"),
        (r"(?<!\d)\d+\.", "search"),
        (r"(?m)^ +name", "search"),
        (r"(?:(?!Dataset)\w)*Dataset\w*", "fullmatch"),
        ("(?<![^:])[^:]*busy", "search"),
        (r"\w+ is \d+", "match"),
    ],
)
def test_a_pattern_that_is_linear_is_not(pattern: str, mode: str) -> None:
    assert too_slow(Found("here", pattern, 0, frozenset({mode}))) == ""


SHARES = 2
"""Tests that share the patterns: the workers of pytest take them side by side."""


def test_every_pattern_is_found() -> None:
    patterns, unknown = everywhere()
    assert unknown == [], "say in SOURCES what these come to"
    assert len(patterns) > 150


@pytest.mark.parametrize("share", range(SHARES))
def test_no_pattern_of_the_package_is_worse_than_linear(share: int) -> None:
    patterns, _ = everywhere()
    mine = patterns[share::SHARES]
    slow = {f"{found.where}: {found.pattern}": text for found in mine if (text := too_slow(found))}
    assert slow == {}
