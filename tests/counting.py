"""Counts what is done, where a test asks how the cost of something grows: a clock depends on what else is running.

:func:`lines_run` counts the lines of Python. :class:`Engine` is a regular expression engine that counts its steps; it
tries what Python's engine tries, in the same order: that goes back, too, and tries again. What Python's leaves out,
by a literal that it looks for first, is of no other order of growth. A repeat with a bound costs at most that bound at
each place, so that bounds are taken as :data:`BOUND` here, and a short text shows how the pattern grows.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from itertools import groupby
from typing import Any

try:
    from re import _constants as constants  # type: ignore[attr-defined]
    from re import _parser as parser  # type: ignore[attr-defined]
except ImportError:  # Python 3.10
    import sre_constants as constants
    import sre_parse as parser

__all__ = ["Engine", "TooMany", "constants", "is_of", "lines_run", "parser"]

BOUND = 4
"""What a bound of a repeat is taken as, if it is more."""
DEEPEST = 20_000
"""How deep calls may be: each turn of a repeat is some calls inside the one before."""
CATEGORIES = {
    constants.CATEGORY_DIGIT: r"\d",
    constants.CATEGORY_NOT_DIGIT: r"\D",
    constants.CATEGORY_SPACE: r"\s",
    constants.CATEGORY_NOT_SPACE: r"\S",
    constants.CATEGORY_WORD: r"\w",
    constants.CATEGORY_NOT_WORD: r"\W",
}
_SINGLE = (constants.LITERAL, constants.NOT_LITERAL, constants.ANY, constants.IN)
_REPEATS = (constants.MAX_REPEAT, constants.MIN_REPEAT, getattr(constants, "POSSESSIVE_REPEAT", None))

Rest = Callable[[int], int | None]
"""What is still to match from a place on: returns where it ends, or None."""
Matcher = Callable[[int, Rest], int | None]


def lines_run(work: Callable[[], object]) -> int:
    """Return how many lines of Python ``work`` runs, each as often as it runs; regular expressions are not seen."""
    lines = 0

    def trace(_frame: object, event: str, _value: object) -> Any:
        nonlocal lines
        lines += event == "line"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        work()
    finally:
        sys.settrace(before)
    return lines


def _end(place: int) -> int:
    return place


class TooMany(Exception):  # noqa: N818  # the name states the result
    """More was looked at than was allowed."""


def is_of(choices: list[tuple[Any, Any]], letter: str) -> bool:
    """Return whether a class of characters, as the parser gives it, has a letter."""
    negated = bool(choices) and choices[0][0] is constants.NEGATE
    hit = False
    for kind, what in choices:
        if kind is constants.LITERAL:
            hit |= ord(letter) == what
        elif kind is constants.RANGE:
            hit |= what[0] <= ord(letter) <= what[1]
        elif kind is constants.CATEGORY:
            hit |= re.match(CATEGORIES[what], letter) is not None
    return hit is not negated


class Engine:
    """Matches one pattern, and counts in ``steps`` how often it looked at a character or tried a choice."""

    def __init__(self, pattern: str, flags: int, bound: int = BOUND) -> None:
        parsed = parser.parse(pattern, flags)
        self._bound = bound
        self._groups: dict[int, tuple[int, int]] = {}
        self._text = ""
        self._most = 0
        self.steps = 0
        self._matcher = self._sequence(list(parsed), parsed.state.flags)

    def count(self, text: str, mode: str, most: int, begins: int | None = None) -> int:
        """Return the steps of a use of the pattern; ``mode`` is a method of :class:`re.Pattern`.

        ``begins`` is the last place at which a match may begin, if not the end of the text. Raises :class:`TooMany` at
        ``most`` steps.
        """
        with self._reading(text, most):
            place = 0
            while place <= (len(text) if begins is None else begins):
                end = self._from(place, whole=mode == "fullmatch")
                if mode in ("match", "fullmatch") or (mode == "search" and end is not None):
                    break
                place = place + 1 if end is None or end == place else end
        return self.steps

    def find(self, text: str) -> tuple[int, int] | None:
        """Return where the first match of a search begins and ends."""
        with self._reading(text, 1 << 30):
            places = ((place, self._from(place)) for place in range(len(text) + 1))
            return next(((begin, end) for begin, end in places if end is not None), None)

    @contextmanager
    def _reading(self, text: str, most: int) -> Iterator[None]:
        self._text, self._most, self.steps = text, most, 0
        deepest = sys.getrecursionlimit()
        sys.setrecursionlimit(DEEPEST)
        try:
            yield
        finally:
            sys.setrecursionlimit(deepest)

    def _from(self, place: int, *, whole: bool = False) -> int | None:
        self._groups.clear()
        return self._matcher(place, self._end_of_all if whole else _end)

    def _end_of_all(self, place: int) -> int | None:
        return place if place == len(self._text) else None

    def _step(self, number: int = 1) -> None:
        self.steps += number
        if self.steps > self._most:
            raise TooMany

    def _sequence(self, tokens: list[Any], flags: int) -> Matcher:
        """Return what matches one token after the other; characters that stand together are matched by one loop."""
        matchers: list[Matcher] = []
        for are_single, together in groupby(tokens, lambda token: token[0] in _SINGLE):
            if are_single:
                matchers.append(self._characters([self._fits(kind, what, flags) for kind, what in together]))
            else:
                matchers += [self._token(kind, what, flags) for kind, what in together]
        last = len(matchers) - 1

        def match(place: int, rest: Rest, number: int = 0) -> int | None:
            if number == last:
                return matchers[last](place, rest)
            return matchers[number](place, lambda end: match(end, rest, number + 1))

        return match if last > 0 else matchers[0] if matchers else lambda place, rest: rest(place)

    def _token(self, kind: Any, what: Any, flags: int) -> Matcher:
        if kind is constants.AT:
            return self._at(what, flags)
        if kind is constants.BRANCH:
            return self._branch([self._sequence(list(branch), flags) for branch in what[1]])
        if kind is constants.SUBPATTERN:
            number, more, fewer, body = what
            return self._group(number, self._sequence(list(body), (flags | more) & ~fewer))
        if kind in (constants.ASSERT, constants.ASSERT_NOT):
            return self._assertion(what, flags, wanted=kind is constants.ASSERT)
        if kind is constants.GROUPREF:
            return self._same_as(what)
        if kind is constants.GROUPREF_EXISTS:
            number, yes, no = what
            return self._if_group(number, self._sequence(list(yes), flags), self._sequence(list(no or ()), flags))
        if kind is getattr(constants, "ATOMIC_GROUP", None):
            return self._atomic(self._sequence(list(what), flags))
        assert kind in _REPEATS, f"{kind} is new: say how it is matched"
        return self._repeat(kind, what, flags)

    def _fits(self, kind: Any, what: Any, flags: int) -> Callable[[str], bool]:
        """Return what tells whether a character fits a token of one character."""

        def plain(letter: str) -> bool:
            if kind is constants.ANY:
                return letter != "\n" or bool(flags & re.DOTALL)
            if kind is constants.IN:
                return is_of(what, letter)
            return (ord(letter) == what) is (kind is constants.LITERAL)

        if not flags & re.IGNORECASE:
            return cache(plain)
        each = all if kind is constants.NOT_LITERAL else any
        return cache(lambda letter: each(plain(form) for form in {letter.lower(), letter.upper()[:1]}))

    def _characters(self, fits: list[Callable[[str], bool]]) -> Matcher:
        first, number = fits[0], len(fits)

        def match(place: int, rest: Rest) -> int | None:
            letters = self._text[place : place + number]
            if not letters or not first(letters[0]):
                self._step()
                return None
            fitting = 1
            while fitting < len(letters) and fits[fitting](letters[fitting]):
                fitting += 1
            self._step(min(fitting + 1, number))
            return rest(place + number) if fitting == number else None

        return match

    def _at(self, what: Any, flags: int) -> Matcher:
        def is_word(place: int) -> bool:
            return 0 <= place < len(self._text) and (self._text[place] == "_" or self._text[place].isalnum())

        def holds(place: int) -> bool:
            if what in (constants.AT_BOUNDARY, constants.AT_NON_BOUNDARY):
                return (is_word(place - 1) != is_word(place)) is (what is constants.AT_BOUNDARY)
            lines = bool(flags & re.MULTILINE)
            if what in (constants.AT_BEGINNING, constants.AT_BEGINNING_STRING):
                anywhere = lines and what is constants.AT_BEGINNING
                return place == 0 or (anywhere and self._text[place - 1] == "\n")
            left = self._text[place : place + 2]
            if what is constants.AT_END_STRING:
                return not left
            return left in ("", "\n") or (lines and left[0] == "\n")

        def match(place: int, rest: Rest) -> int | None:
            self._step()
            return rest(place) if holds(place) else None

        return match

    def _branch(self, branches: list[Matcher]) -> Matcher:
        def match(place: int, rest: Rest) -> int | None:
            for branch in branches:
                self._step()
                if (end := branch(place, rest)) is not None:
                    return end
            return None

        return match

    def _group(self, number: int | None, body: Matcher) -> Matcher:
        if number is None:
            return body

        def match(place: int, rest: Rest) -> int | None:
            def after(end: int) -> int | None:
                before = self._groups.get(number)
                self._groups[number] = (place, end)
                if (result := rest(end)) is None:
                    self._groups.pop(number)
                    if before is not None:
                        self._groups[number] = before
                return result

            return body(place, after)

        return match

    def _assertion(self, what: Any, flags: int, *, wanted: bool) -> Matcher:
        direction, tokens = what
        body = self._sequence(list(tokens), flags)
        back = tokens.getwidth()[0] if direction < 0 else 0

        def match(place: int, rest: Rest) -> int | None:
            self._step()
            holds = place >= back and body(place - back, _end) is not None
            return rest(place) if holds is wanted else None

        return match

    def _same_as(self, number: int) -> Matcher:
        def match(place: int, rest: Rest) -> int | None:
            self._step()
            if number not in self._groups:
                return None
            begin, end = self._groups[number]
            self.steps += end - begin
            fits = self._text.startswith(self._text[begin:end], place)
            return rest(place + end - begin) if fits else None

        return match

    def _if_group(self, number: int, yes: Matcher, no: Matcher) -> Matcher:
        def match(place: int, rest: Rest) -> int | None:
            return yes(place, rest) if number in self._groups else no(place, rest)

        return match

    @staticmethod
    def _atomic(body: Matcher) -> Matcher:
        def match(place: int, rest: Rest) -> int | None:
            end = body(place, _end)
            return None if end is None else rest(end)

        return match

    def _repeat(self, kind: Any, what: Any, flags: int) -> Matcher:
        least, most, tokens = what
        least, most = min(least, self._bound), most if most is constants.MAXREPEAT else min(most, self._bound)
        tokens = list(tokens)
        lazy = kind is constants.MIN_REPEAT
        possessive = kind is not constants.MAX_REPEAT and not lazy
        if len(tokens) == 1 and tokens[0][0] in _SINGLE and not lazy:
            single, of_what = tokens[0]
            return self._run_of(self._fits(single, of_what, flags), least, most, possessive=possessive)
        body = self._sequence(tokens, flags)

        def again(place: int, rest: Rest, number: int) -> int | None:
            self._step()

            def once_more() -> int | None:
                if number >= most:
                    return None
                # A turn that matches nothing is the last one.
                return body(place, lambda end: rest(end) if end == place else again(end, rest, number + 1))

            if number < least:
                return body(place, lambda end: again(end, rest, number + 1))
            if lazy:
                return end if (end := rest(place)) is not None else once_more()
            return end if (end := once_more()) is not None else rest(place)

        def match(place: int, rest: Rest) -> int | None:
            return again(place, rest, 0)

        return self._atomic(match) if possessive else match

    def _run_of(self, fits: Callable[[str], bool], least: int, most: int, *, possessive: bool) -> Matcher:
        """Match as many characters as fit, then fewer, as a loop: a text may be longer than calls may be deep."""

        def match(place: int, rest: Rest) -> int | None:
            end = place
            while end < len(self._text) and end - place < most and fits(self._text[end]):
                self._step()
                end += 1
            self._step()
            for shorter in range(end, (end if possessive else place + least) - 1, -1):
                if shorter - place < least:
                    return None
                self._step()
                if (result := rest(shorter)) is not None:
                    return result
            return None

        return match
