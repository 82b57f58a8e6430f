"""No regular expression of the package is worse than linear: what they read comes from other programs.

Every pattern is found in the source (calls of ``re``) and in the modules (compiled ones, however they were made). The
texts that are tried are made of each pattern's own letters: what leads Python's engine, which goes back and tries
again, into trying the most.
"""

from __future__ import annotations

import ast
import contextlib
import dataclasses
import importlib
import pkgutil
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gpudiag

try:
    from re import _constants as constants  # type: ignore[attr-defined]
    from re import _parser as parser  # type: ignore[attr-defined]
except ImportError:  # Python 3.10
    import sre_constants as constants
    import sre_parse as parser

MODES = ("match", "fullmatch", "search", "findall", "finditer", "sub", "subn", "split")
LARGEST = 1 << 20
MOST = 8
"""How much longer a text that is four times as long may take: linear is 4, quadratic 16."""
LEAST_S = 0.004
"""Times below this are noise."""

EXAMPLES: dict[tuple[str, str], tuple[str, ...]] = {}
"""Patterns that a function composes when it is called: the module and the source, to what it may come to."""


@dataclasses.dataclass(frozen=True)
class Found:
    """A regular expression of the package, and how it is used."""

    where: str
    pattern: str
    flags: int
    modes: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.where}: {self.pattern[:60]}"


def modules() -> Iterator[tuple[Any, ast.Module]]:
    for one in pkgutil.walk_packages(gpudiag.__path__, "gpudiag."):
        if ".src" in one.name or "suite" in one.name or one.name.endswith("__main__"):
            continue
        module = importlib.import_module(one.name)
        yield module, ast.parse(Path(module.__file__ or "").read_text())


def uses(trees: list[ast.Module]) -> dict[str, set[str]]:
    """Map the name of a compiled pattern to the methods of it that are used somewhere in the package."""
    found: dict[str, set[str]] = {}
    for tree in trees:
        for node in ast.walk(tree):
            if isinstance(node, ast.Attribute) and node.attr in MODES:
                owner = node.value
                name = (
                    owner.id if isinstance(owner, ast.Name) else owner.attr if isinstance(owner, ast.Attribute) else ""
                )
                found.setdefault(name, set()).add(node.attr)
    return found


def everywhere() -> tuple[dict[tuple[str, int], Found], list[str]]:
    """Return every pattern of the package, and the calls whose pattern is not known."""
    both = list(modules())
    used = uses([tree for _, tree in both])
    found: dict[tuple[str, int], Found] = {}
    unknown: list[str] = []

    def add(where: str, pattern: str, flags: int, modes: set[str]) -> None:
        known = found.get((pattern, flags))
        found[pattern, flags] = Found(where, pattern, flags, tuple(sorted(modes | set(known.modes if known else ()))))

    for module, tree in both:
        for name, value in vars(module).items():
            for one in compiled(value):
                add(module.__name__, one.pattern, one.flags, used.get(name, set()) or {"search", "sub", "findall"})
        for node in ast.walk(tree):
            if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.args):
                continue
            owner = node.func.value
            if not (isinstance(owner, ast.Name) and owner.id == "re" and node.func.attr in (*MODES, "compile")):
                continue
            source = ast.unparse(node.args[0])
            try:
                pattern = eval(source, vars(module))
                flags = sum(
                    (eval(ast.unparse(one), vars(module)) for one in node.args[1:] if "re." in ast.unparse(one)), 0
                )
                patterns = (pattern,)
            except Exception:
                patterns = EXAMPLES.get((module.__name__, source), ())
                flags = 0
            if not patterns:
                unknown.append(f"{module.__name__}:{node.lineno}: {source}")
            for pattern in patterns:
                if node.func.attr != "compile":
                    add(module.__name__, pattern, int(flags), {node.func.attr})
    return found, unknown


def compiled(value: object, depth: int = 0) -> Iterator[re.Pattern[str]]:
    """Yield the compiled patterns inside a value of a module."""
    if isinstance(value, re.Pattern):
        yield value
    elif depth < 4:
        inner: Any = ()
        if isinstance(value, dict):
            inner = [*value.keys(), *value.values()]
        elif isinstance(value, list | tuple | set | frozenset):
            inner = value
        elif dataclasses.is_dataclass(value) and not isinstance(value, type):
            inner = [getattr(value, one.name) for one in dataclasses.fields(value)]
        for one in inner:
            yield from compiled(one, depth + 1)


# ---- the worst letters of a pattern ----


def letter(choices: list[tuple[Any, Any]], flags: int) -> str:
    pattern = parser.SubPattern(parser.State(), [(constants.IN, choices)])
    for one in "a1A_ .:/-\"'()[],;=\n\t\\{}<>%$#@+*|~^&!?`\x1b\x07é":
        with contextlib.suppress(Exception):
            if in_class(choices, one):
                return one
    return "a"


CATEGORIES = {
    "CATEGORY_DIGIT": r"\d",
    "CATEGORY_NOT_DIGIT": r"\D",
    "CATEGORY_SPACE": r"\s",
    "CATEGORY_NOT_SPACE": r"\S",
    "CATEGORY_WORD": r"\w",
    "CATEGORY_NOT_WORD": r"\W",
}


def in_class(choices: list[tuple[Any, Any]], one: str) -> bool:
    negated = bool(choices) and choices[0][0] is constants.NEGATE
    hit = False
    for kind, what in choices:
        if kind is constants.LITERAL:
            hit |= ord(one) == what
        elif kind is constants.RANGE:
            hit |= what[0] <= ord(one) <= what[1]
        elif kind is constants.CATEGORY:
            hit |= re.match(CATEGORIES[str(what)], one) is not None
    return hit is not negated


Piece = tuple[str, bool]
"""A text that a part of the pattern matches, and whether that part may be repeated without end."""


def readings(tokens: Any, flags: int) -> list[list[Piece]]:
    """Return the pattern as lists of pieces: one list with the first choice everywhere, one more for each other."""
    lists: list[list[Piece]] = [[]]

    def extend(others: list[list[Piece]]) -> None:
        nonlocal lists
        first = lists[0]
        more = [[*first, *other] for other in others[1:]]
        lists = [[*one, *others[0]] for one in lists] + more

    for kind, what in tokens:
        if kind is constants.LITERAL:
            extend([[(chr(what), False)]])
        elif kind is constants.NOT_LITERAL:
            extend([[("a" if what != ord("a") else "b", False)]])
        elif kind is constants.ANY:
            extend([[("a", False)]])
        elif kind is constants.IN:
            extend([[(letter(what, flags), False)]])
        elif kind is constants.BRANCH:
            extend([one for branch in what[1] for one in readings(branch, flags)])
        elif kind is constants.SUBPATTERN:
            extend(readings(what[-1], flags))
        elif kind in (constants.MAX_REPEAT, constants.MIN_REPEAT):
            least, most, body = what
            for_body = readings(body, flags)
            if most > 64:
                extend(
                    [[("".join(text for text, _ in one) or "a", True)] for one in for_body]
                    + [[*one] for one in for_body if any(flag for _, flag in one)]
                )
            else:
                extend([one * max(1, min(least, 8)) for one in for_body])
        elif kind in (constants.ASSERT, constants.ASSERT_NOT):
            inner = readings(what[1], flags)
            if kind is constants.ASSERT:
                extend(inner)
            else:
                lists += [[*lists[0], *one] for one in inner]
    return lists


def seeds(pattern: str, flags: int) -> set[tuple[str, str, str]]:
    """Return texts as what comes once, what is repeated, and what ends it."""
    found: set[tuple[str, str, str]] = set()
    for pieces in readings(parser.parse(pattern, flags), flags)[:24]:
        merged: list[Piece] = []
        for text, endless in pieces:
            if merged and not endless and not merged[-1][1]:
                merged[-1] = (merged[-1][0] + text, False)
            else:
                merged.append((text, endless))
        texts = [text for text, _ in merged]
        for number, (text, endless) in enumerate(merged):
            before = "".join(texts[:number])
            if endless:
                for tail in ("", "\0", "\n"):
                    found.add((before, text, tail))
                    found.add(("", text, tail))
                if number:
                    found.add(("", texts[number - 1], "\0"))
                    found.add((before, texts[number - 1], "\0"))
                found.add(("", before, "\0"))
                found.add(("", before + text, "\0"))
                if number + 1 < len(texts):
                    found.add(("", text + texts[number + 1], "\0"))
                    found.add((before, texts[number + 1], "\0"))
                    found.add((before, text + texts[number + 1], "\0"))
                    found.add(("", texts[number + 1], "\0"))
        whole = "".join(texts)
        found.add(("", whole, ""))
        found.add(("", whole[:-1], "\0"))
    return {seed for seed in found if seed[1]}


def seconds(compiled_: re.Pattern[str], mode: str, text: str) -> float:
    call = getattr(compiled_, mode)
    began = time.thread_time()
    if mode in ("sub", "subn"):
        call("", text)
    elif mode == "finditer":
        for _ in call(text):
            pass
    else:
        call(text)
    return time.thread_time() - began


def too_slow(found: Found) -> list[str]:
    """Say at which of its worst texts the pattern takes more than four times as long for four times the length."""
    one = re.compile(found.pattern, found.flags)
    said = []
    modes = {"sub" if mode in ("sub", "subn", "split", "findall", "finditer") else mode for mode in found.modes}
    for head, body, tail in sorted(seeds(found.pattern, found.flags)):

        def at(size: int) -> float:
            return seconds(one, mode, (head + body * (size // len(body) + 1))[:size] + tail)

        for mode in sorted(modes):
            size, now = 1 << 9, 0.0
            while size < LARGEST and now < LEAST_S:
                size *= 2
                now = at(size)
            if now < LEAST_S:
                continue
            now, before = min(now, at(size)), min(at(size // 4), at(size // 4))
            if now > MOST * before and now > LEAST_S:
                return [
                    f"{mode} of {head[:30]!r} + {body[:30]!r} * n + {tail!r}: {before:.5f} s, {now:.5f} s at {size}"
                ]
    return said


if __name__ == "__main__":
    began = time.process_time()
    patterns, unknown = everywhere()
    print(len(patterns), "patterns")
    print("\n".join(unknown))
    n = 0
    for found in patterns.values():
        t = time.process_time()
        said = too_slow(found)
        t = time.process_time() - t
        if t > 0.5:
            print("COST", round(t, 2), found)
        if said:
            n += 1
            print(found.where, found.modes, found.pattern)
            for one in said[:2]:
                print("     ", one)
    print(n, "slow;", time.process_time() - began, "s")
