"""Recognising messages: a line is turned into events here, before it is shortened.

Causes ask for events and have no patterns; the messages are in :mod:`gpudiag.knowledge.messages`. A text matches whole
words, so a line can match only if it has all words of the text, and then all its literal parts. This is checked before
any pattern is tried, so that hundreds of messages cost hardly more than ten. Lines that differ only in figures have the
same texts, but for the few texts that have figures themselves: these lines are searched once.
"""

from __future__ import annotations

import re
import string
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from functools import cache, cached_property, lru_cache

from gpudiag.knowledge.expressions import needed_parts
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
_REMEMBERED = 1 << 14
"""The number of lines whose messages are remembered: programs print the same lines again and again."""


_RAISES = re.compile(r"(?:Error|Exception): (?:[\w.]{1,60}: ){0,3}$")
"""What comes before the message of an exception."""
_ZEROS = bytes.maketrans(b"123456789", b"000000000")
"""A translation of bytes, which are translated twice as fast as text, and ten times as fast as text beyond ASCII."""
_QUOTATION_MARKS = str.maketrans(
    dict.fromkeys("\u2018\u2019\u201b\u02bc\u00b4", "'") | dict.fromkeys("\u201c\u201d\u201f", '"')
)
"""Marks that web pages and word processors put in place of plain ones."""
_FIGURELESS = re.compile(r"\{[\d,]{1,9}\}|\\d|0-9")
"""Parts of an expression that have digits, and match any."""


@dataclass(frozen=True, eq=False)
class _Text:
    """One text of a message, or its pattern, prepared for searching."""

    message: Message
    order: int
    """The position of the message in the table, and of the text in the message."""
    words: frozenset[str]
    """Words in lower case that every matching line has."""
    literals: tuple[str, ...]
    """Parts that every matching line has, in this order; () for a pattern."""
    expression: str

    @cached_property
    def pattern(self) -> re.Pattern[str]:
        return re.compile(self.expression)  # the first time that a line has its words: most texts are never met

    @cached_property
    def has_figures(self) -> bool:
        """Whether it may match one of two lines that differ only in their figures."""
        return re.search(r"\d|\(\?P=", _FIGURELESS.sub("", self.expression)) is not None

    @cached_property
    def _needs(self) -> tuple[tuple[str, ...], ...]:
        return needed_parts(self.expression)

    @cached_property
    def _literals_of_shape(self) -> tuple[str, ...]:
        return tuple(map(shape, self.literals))

    @cached_property
    def _needs_of_shape(self) -> tuple[tuple[str, ...], ...]:
        return tuple(tuple(map(shape, parts)) for parts in self._needs)

    def search(self, clean: str, lower: str) -> re.Match[str] | None:
        """Search a line on one line, which is also given in lower case.

        Parts that a match needs are looked for first, which is ten times as fast.
        """
        is_possible = _has_in_order(clean, self.literals) if self.literals else _has_each(lower, self._needs)
        return self.pattern.search(clean) if is_possible else None

    def may_match(self, shape: str, lower: str) -> bool:
        """Return whether it may match a line of this shape; for a text without figures, whether it matches all."""
        if not self.has_figures:
            return self.search(shape, lower) is not None
        if self.literals:
            return _has_in_order(shape, self._literals_of_shape)
        return _has_each(lower, self._needs_of_shape)

    def event(self, line: str, clean: str, lower: str) -> Event | None:
        """Return the event if the text is in a line, given in its original form and as :meth:`search` takes it."""
        if (match := self.search(clean, lower)) is None:
            return None
        fields = {name: _figure(value) for name, value in match.groupdict().items() if value is not None}
        return Event(self.message.codes.get(fields.get("code", ""), self.message), fields, line, match[0])


def _has_in_order(line: str, literals: tuple[str, ...]) -> bool:
    at = 0
    for literal in literals:
        if (at := line.find(literal, at)) < 0:
            return False
        at += len(literal)
    return True


def _has_each(lower: str, groups: tuple[tuple[str, ...], ...]) -> bool:
    """Return whether a line in lower case has a part of each group."""
    for parts in groups:
        for part in parts:  # any() with a generator takes twice as long
            if part in lower:
                break
        else:
            return False
    return True


_PARTS_OF_A_VERSION = 3


def _figure(value: str) -> str:
    """Return a field; a version that is printed as a tuple, such as PyTorch's ``8, 3, 2`` of cuDNN, with points."""
    parts = value.split(", ")
    return ".".join(parts) if len(parts) == _PARTS_OF_A_VERSION and all(map(str.isdecimal, parts)) else value


def words_of(line: str) -> frozenset[str]:
    """Return the words by which messages for a line are looked up; control characters are removed first."""
    return _words(one_line(line).lower())


def _words(text: str) -> frozenset[str]:
    """Return the words of a text in lower case: letters of the ASCII and ``_``."""
    return frozenset(_WORD.findall(text))


def _prepared(message: Message, order: int, text: str) -> _Text:
    expression, words = "", set[str]()
    parts = list(string.Formatter().parse(text))
    for number, (literal, name, kind, _) in enumerate(parts):
        expression += re.escape(literal)
        # What stands at the edge of a field may be a part of a longer word.
        inside = re.sub(r"^\w+", "", literal) if number else literal
        inside = inside if name is None else re.sub(r"(?<!\w)\w+$", "", inside)
        words |= {word for word in _words(inside.lower()) if len(word) >= _LEAST}
        if name is not None:
            field = _AT_THE_END.get(kind or "") if number == len(parts) - 1 else None
            expression += f"(?P<{name}>" if name else "(?:"
            expression += f"{field or _FIELDS[kind or '']})"
    starts, ends = (r"\b" if re.search(edge, text) else "" for edge in (r"^(?:\w|\{\w*:[wd]\})", r"\w$"))
    literals = tuple(literal for literal, _, _, _ in parts if literal)
    return _Text(message, order, frozenset(words), literals, starts + expression + ends)


def _in_the_other_case(text: str) -> Iterator[str]:
    """Yield a text about a failure with its first letter in the other case, in which releases of a program differ."""
    if text.lower().startswith(_FAILURES):
        yield text[0].swapcase() + text[1:]


@cache
def _by_word() -> _Table:
    """The table of all messages."""
    found: dict[str, list[_Text]] = defaultdict(list)
    texts: list[_Text] = []
    order = 0
    for message in MESSAGES:
        for word in message.words:
            found[word].append(_Text(message, order, frozenset(), (), message.pattern))
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
    return _Table({word: tuple(several) for word, several in found.items()})


@lru_cache(maxsize=_REMEMBERED)
def recognised(line: str) -> tuple[Event, ...]:
    """Return the messages in ``line``, in the order of the table, each once.

    A fault that is only the reason which a harmless message gives is left out.
    """
    clean = one_line(line if line.isascii() else line.translate(_QUOTATION_MARKS))
    texts = _matching(shape(clean))
    if not texts:
        return ()  # nearly all lines of nearly all programs
    lower = clean.lower()
    found: dict[Message, Event] = {}
    matched = set[Message]()  # those of the table: the first text that matches says which code the line has
    for text in texts:
        if text.message not in matched and (event := text.event(line, clean, lower)):
            matched.add(text.message)
            found.setdefault(event.message, event)
    statements = [event.text for event in found.values() if event.message.worth is Worth.HARMLESS]
    return tuple(event for event in found.values() if not any(_is_reason(event, clean, text) for text in statements))


def _is_reason(event: Event, line: str, statement: str) -> bool:
    """Return whether a fault is only the reason that a harmless statement gives, such as for a back end JAX lacks.

    It is not if the statement was raised: then the program asked for what failed.
    """
    if event.message.worth is not Worth.FAULT or event.text not in statement or statement.startswith(event.text):
        return False
    return _RAISES.search(line.partition(statement)[0]) is None


@lru_cache(maxsize=1 << 8)
def shape(line: str) -> str:
    """Return a line with zeros as its digits."""
    return line.encode("utf-8", "surrogatepass").translate(_ZEROS).decode("utf-8", "surrogatepass")


@lru_cache(maxsize=_REMEMBERED)
def _matching(shape: str) -> tuple[_Text, ...]:
    """Return the texts in all lines of this shape, and those that may be in one of them."""
    lower = shape.lower()
    texts = [text for text in _by_word().candidates(_words(lower)) if text.may_match(shape, lower)]
    return tuple(sorted(texts, key=lambda text: text.order))


def messages_of_shape(shape: str) -> frozenset[Message]:
    """Return the messages that all lines of this shape have, except those with codes, which differ in their codes."""
    texts = _matching(one_line(shape))
    return frozenset(text.message for text in texts if not (text.has_figures or text.message.codes))


def may_have_other(line: str, known: Collection[Message], *, of_its_shape: bool = False) -> bool:
    """Return whether ``line``, or ``of_its_shape`` any such line, may have a message that is not ``known``."""
    clean = one_line(line)
    lower = clean.lower()
    for text in _by_word().candidates(_words(lower)):
        if of_its_shape:
            if (text.message.codes or text.message not in known) and text.may_match(clean, lower):
                return True
        elif text.message.codes:
            if (event := text.event(line, clean, lower)) and event.message not in known:
                return True
        elif text.message not in known and text.search(clean, lower):
            return True
    return False


def may_name_fault(line: str, words: Iterable[str]) -> bool:
    """Return whether ``line``, which has these ``words``, has all words of a text of a fault, or matches a pattern.

    True for each line in which :func:`recognised` finds a fault or a misleading message, and for few others.
    """
    table = _faults_by_word()
    if table.words.isdisjoint(words):
        return False  # nearly all lines of nearly all programs
    candidates = table.candidates(frozenset(words))
    return any(text.words or text.search(one_line(line), one_line(line).lower()) for text in candidates)


class _Table:
    """Texts, each listed under its rarest word, the longest one of several."""

    def __init__(self, texts: dict[str, tuple[_Text, ...]]) -> None:
        self.texts = texts
        self.words = frozenset(texts)  # compared with other words three times as fast as the keys of a dictionary

    def candidates(self, words: frozenset[str]) -> Iterator[_Text]:
        """Yield the texts whose words a line with these ``words`` has all."""
        return (text for word in words & self.words for text in self.texts[word] if text.words <= words)


@cache
def _faults_by_word() -> _Table:
    faults = {
        word: tuple(text for text in texts if text.message.worth in (Worth.FAULT, Worth.MISLEADING))
        for word, texts in _by_word().texts.items()
    }
    return _Table({word: texts for word, texts in faults.items() if texts})
