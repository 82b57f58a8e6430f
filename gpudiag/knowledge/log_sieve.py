"""Selects lines of a log that is too long to be read line by line: both ends, and what a fast scan finds between.

Recognising the messages of a line takes some 20 microseconds, looking up its words a tenth of that. So a line in the
middle of a long log is taken only if it has all words of a known fault, or a sign of an unknown one (:data:`SIGNS`).
Lines before it are taken, too. Lines that differ only in figures are taken a few times, and no more than :data:`MIDDLE`
characters in all.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterable, Iterator

from gpudiag.knowledge.log import may_name_fault, words_of
from gpudiag.text import counted

END = 1 << 20
"""The number of characters at each end that are read line by line."""
MIDDLE = 1 << 20
"""The most characters between the ends that are read line by line."""
SIGNS = (
    *("rror", "ailed", "ailure", "xception", "Traceback", "nterrupt", "atal", "bort", "GPU", "gpu"),
    *("annot ", "n't ", "ould not ", "nable to ", "ot found", "o such", "efused", "enied", "nsupported"),
    *("nvalid", "issing", "ismatch", "imed out", "illed", "core dumped", "ut of memory", "exit", "Xid", "SIG"),
    *(": E ", ": W ", ": F ", "E0000 ", "W0000 ", "F0000 ", "WARN", "ERR", "_STATUS_"),
)
"""Parts of a line that mark a fault that the table of messages may lack."""
_BEFORE = 12
"""The number of lines taken before a line with a sign, for the traceback that leads to it."""
_TIMES = 3
"""How many lines are kept that differ only in their figures."""
_MOST_SHAPES = 1 << 17
"""The most lines without their figures that are remembered."""
_DIGITS = b"0123456789"
_ONLY_WORDS = bytes(
    ord(" ") if byte < 128 and (char := chr(byte)).isprintable() and not char.isalpha() and char != "_" else byte
    for byte in range(256)
)
"""The translation of all but words to spaces. Bytes are translated ten times as fast as text beyond ASCII."""


class Sieve:
    """Takes the lines at both ends of a long text, and those between them that may be about a fault."""

    def __init__(self) -> None:
        self.searched = 0
        """The number of characters in the middle that were searched."""
        self.not_taken = 0
        """The number of lines with a sign for which there was no room."""
        self._room = {True: MIDDLE // 2, False: MIDDLE // 2}
        self._times: dict[str, int] = defaultdict(int)

    def lines(self, texts: Iterable[str]) -> Iterator[str]:
        """Yield the selected lines of ``texts``, each of which consists of whole lines."""
        beginning, held = 0, 0
        end: deque[str] = deque()
        for text in texts:
            if beginning < END:
                beginning += len(text)
                yield from text.splitlines()
                continue
            end.append(text)
            held += len(text)
            while held - len(end[0]) >= END:
                held -= len(end[0])
                yield from self._taken(end.popleft())
        for text in end:
            yield from text.splitlines()

    def _taken(self, text: str) -> Iterator[str]:
        """Yield the lines of a part of the log that contain a sign of a fault, each with the lines before it."""
        self.searched += len(text)
        lines, shapes = text.splitlines(), _translated(text, None, _DIGITS).splitlines()
        of_words = _translated(text.lower(), _ONLY_WORDS).splitlines()
        times, done = self._times, 0
        signs = [sign for sign in SIGNS if sign in text]  # most logs have few of them, and a block is searched fast
        for at, shape in enumerate(shapes):
            if times.get(shape, 0) >= _TIMES:
                continue
            line = lines[at]
            is_plain = line.isascii() and line.isprintable()
            is_known = may_name_fault(line, of_words[at].split() if is_plain else words_of(line))
            has_sign = is_known or _has_any(line, signs)
            if shape in times or len(times) < _MOST_SHAPES:
                times[shape] += 1 if has_sign else _TIMES
            if not has_sign:
                continue
            found = lines[max(at - _BEFORE, done) : at + 1]
            if not self._has_room(sum(map(len, found)), is_known):
                self.not_taken += 1
                continue
            done = at + 1
            yield from found

    def _has_room(self, size: int, is_known: bool) -> bool:
        """Return whether ``size`` characters can be taken: half of the room is reserved for known messages."""
        if size > self._room[is_known]:
            return False
        self._room[is_known] -= size
        return True

    @property
    def note(self) -> str:
        """A sentence about the text that was not read line by line; "" if all of it was."""
        if not self.searched:
            return ""
        lost = f"; {counted(self.not_taken, 'line')} with one were left out" if self.not_taken else ""
        return f"{self.searched:,} characters of its middle were only searched for words of faults{lost}"


def _translated(text: str, table: bytes | None, removed: bytes = b"") -> str:
    """Return ``text`` with its ASCII characters translated."""
    return text.encode("utf-8", "surrogatepass").translate(table, removed).decode("utf-8", "surrogatepass")


def _has_any(line: str, signs: Iterable[str]) -> bool:
    # any() with a generator takes twice as long.
    for sign in signs:  # noqa: SIM110
        if sign in line:
            return True
    return False
