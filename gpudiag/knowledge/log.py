"""Recognising messages: a line is turned into events here, before it is shortened.

Causes ask for events and have no patterns; the messages are in :mod:`gpudiag.knowledge.messages`. A text matches whole
words, so a line can match only if it has all words of the text. This is checked before any pattern is tried, so that
hundreds of messages cost hardly more than ten.
"""

from __future__ import annotations

import re
import string
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache, cached_property, lru_cache

from gpudiag.knowledge.message import Event, Message, Worth
from gpudiag.knowledge.messages import MESSAGES
from gpudiag.text import one_line

_FIELDS = {
    "": r".{0,300}?",
    "m": r".{0,1000}?",
    "d": r"\d{1,30}",
    "w": r"\w{1,300}",
    "s": r"\S{0,300}?",
    "v": r"\d{1,30}(?:\.\d{1,30}){0,9}",
    "q": r"[^'\"]{0,300}",
    "l": r"[^\]()\[]{0,2000}",
    "b": r"[\da-fA-F:.]{1,40}",
    "p": r"/[^()]{1,300}",
}
_AT_THE_END = {"": r".{0,1000}", "s": r"\S{0,300}"}
"""Patterns for fields at the end of a text, which match as much as possible."""
_WORD = re.compile(r"[a-z_]+")
_FAILURES = ("failed to ", "failed call to ", "could not ", "couldn't ", "cannot ", "unable to ")
_LEAST = 3
"""The fewest letters of a word that serves to look up messages."""


@dataclass(frozen=True, eq=False)
class _Text:
    """One text of a message, or its pattern, prepared for searching."""

    message: Message
    order: int
    """The position of the message in the table, and of the text in the message."""
    words: frozenset[str]
    """Words in lower case that every matching line has."""
    expression: str

    @cached_property
    def pattern(self) -> re.Pattern[str]:
        return re.compile(self.expression)  # the first time that a line has its words: most texts are never met

    def event(self, line: str, clean: str) -> Event | None:
        """Return the event if the text is in a line, given in its original form and on one line."""
        if (match := self.pattern.search(clean)) is None:
            return None
        fields = {name: value for name, value in match.groupdict().items() if value is not None}
        return Event(self.message.codes.get(fields.get("code", ""), self.message), fields, line, match[0])


def words_of(line: str) -> frozenset[str]:
    """Return the words by which messages for a line are looked up; control characters are removed first."""
    return _words(one_line(line))


def _words(text: str) -> frozenset[str]:
    """Return the words of a text: letters of the ASCII and ``_``, in lower case."""
    return frozenset(_WORD.findall(text.lower()))


def _prepared(message: Message, order: int, text: str) -> _Text:
    expression, words = "", set[str]()
    parts = list(string.Formatter().parse(text))
    for number, (literal, name, kind, _) in enumerate(parts):
        expression += re.escape(literal)
        # What stands at the edge of a field may be a part of a longer word.
        inside = re.sub(r"^\w+", "", literal) if number else literal
        inside = inside if name is None else re.sub(r"(?<!\w)\w+$", "", inside)
        words |= {word for word in _words(inside) if len(word) >= _LEAST}
        if name is not None:
            field = _AT_THE_END.get(kind or "") if number == len(parts) - 1 else None
            expression += f"(?P<{name}>" if name else "(?:"
            expression += f"{field or _FIELDS[kind or '']})"
    starts, ends = (r"\b" if re.search(edge, text) else "" for edge in (r"^(?:\w|\{\w*:[wd]\})", r"\w$"))
    return _Text(message, order, frozenset(words), starts + expression + ends)


def _in_the_other_case(text: str) -> Iterator[str]:
    """Yield a text about a failure with its first letter in the other case, in which releases of a program differ."""
    if text.lower().startswith(_FAILURES):
        yield text[0].swapcase() + text[1:]


@cache
def _by_word() -> dict[str, tuple[_Text, ...]]:
    """The table by words: each text is listed under its rarest word, the longest one of several."""
    found: dict[str, list[_Text]] = defaultdict(list)
    texts: list[_Text] = []
    order = 0
    for message in MESSAGES:
        for word in message.words:
            found[word].append(_Text(message, order, frozenset(), message.pattern))
        for text in message.texts:
            order += 1
            texts.append(_prepared(message, order, text))
        for other in [variant for text in message.texts for variant in _in_the_other_case(text)]:
            if other not in message.texts:
                order += 1  # after all as they were read: one of those may have more fields
                texts.append(_prepared(message, order, other))
        order += 1
    times = Counter(word for pattern in texts for word in pattern.words)
    for pattern in texts:
        found[min(pattern.words, key=lambda word: (times[word], -len(word), word))].append(pattern)
    return {word: tuple(several) for word, several in found.items()}


@lru_cache(maxsize=1 << 12)
def recognised(line: str) -> tuple[Event, ...]:
    """Return the messages in ``line``, in the order of the table, each once."""
    if not line.replace("\t", " ").isprintable():  # what cannot be seen may stand inside of a word
        return _recognised(line)
    words = _WORD.findall(line.lower())
    if _by_word().keys().isdisjoint(words) or not any(_candidates(frozenset(words))):
        return ()  # nearly all lines of nearly all programs
    return _recognised(line)


def may_name_fault(line: str, words: Iterable[str]) -> bool:
    """Return whether ``line``, which has these ``words``, has all words of a text of a fault, or matches a pattern.

    True for each line in which :func:`recognised` finds a fault or a misleading message, and for few others.
    """
    table = _faults_by_word()
    if table.keys().isdisjoint(words):
        return False  # nearly all lines of nearly all programs
    has = frozenset(words)
    candidates = (text for word in has & table.keys() for text in table[word] if text.words <= has)
    return any(text.words or text.pattern.search(one_line(line)) for text in candidates)


@cache
def _faults_by_word() -> dict[str, tuple[_Text, ...]]:
    faults = {
        word: tuple(text for text in texts if text.message.worth in (Worth.FAULT, Worth.MISLEADING))
        for word, texts in _by_word().items()
    }
    return {word: texts for word, texts in faults.items() if texts}


def _candidates(words: frozenset[str]) -> Iterator[_Text]:
    """Yield the texts whose words a line has all."""
    table = _by_word()
    return (text for word in words & table.keys() for text in table[word] if text.words <= words)


def _recognised(line: str) -> tuple[Event, ...]:
    clean = one_line(line)
    found: dict[Message, Event] = {}
    matched = set[Message]()  # those of the table: the first text that matches says which code the line has
    for text in sorted(_candidates(_words(clean)), key=lambda candidate: candidate.order):
        if text.message not in matched and (event := text.event(line, clean)):
            matched.add(text.message)
            found.setdefault(event.message, event)
    return tuple(found.values())
