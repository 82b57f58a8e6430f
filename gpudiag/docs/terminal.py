"""Formats the manual's Markdown for a terminal: filled to its width, with colour if the terminal has it.

It supports what the manual uses: headings, paragraphs, lists, quotations, tables, fenced blocks, code, emphasis and
links.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from gpudiag import docs

WIDEST = 100
"""The most columns of text: longer lines are hard to read, however wide the terminal is."""
_LEAST_LAST_COLUMN = 30
"""If a table leaves fewer columns for its last one, its rows become paragraphs."""
_MOST_HELD = 60
"""The most characters of code that is kept on one line if there is room."""
_HELD = "\0"
"""Replaces the spaces of code that is kept on one line."""

_ITEM = re.compile(r"^(?P<mark> *(?:[-*]|\d+\.) +)(?P<text>.*)$")
_HEADING = re.compile(r"^(?P<level>#{1,6}) +(?P<text>.*)$")
_LINK = re.compile(r"\[(?P<text>[^\[\]]*)\]\((?P<target>[^()\s]*)\)")
_CODE = re.compile(r"`([^`]+)`")
_STRONG = re.compile(r"\*\*([^*]+)\*\*")
_CELL_END = re.compile(r"(?<!\\)\|")
_FENCE = "```"

_BOLD, _CYAN = "1", "36"


def rendered(markdown: str, width: int, *, color: bool) -> str:
    """Return ``markdown`` for a terminal of ``width`` columns."""
    terminal = Terminal(min(width, WIDEST), color)
    return "\n\n".join(map(terminal.block, _blocks(markdown.splitlines()))) + "\n"


def _blocks(lines: Sequence[str]) -> Iterator[list[str]]:
    """Yield the lines of each block: the text between empty lines, or a fenced block."""
    block: list[str] = []
    fenced = False
    for line in lines:
        fence = line.startswith(_FENCE)
        if block and not fenced and (fence or not line.strip()):
            yield block
            block = []
        if fenced or line.strip():
            block.append(line)
        if fenced and fence:
            yield block
            block = []
        fenced ^= fence
    if block:
        yield block


@dataclass(frozen=True)
class Terminal:
    """A terminal: its columns, and whether it shows colour."""

    width: int
    color: bool

    def block(self, lines: Sequence[str]) -> str:
        """Return one block of Markdown."""
        first = lines[0]
        if first.startswith(_FENCE):
            return self._sample(lines[1:-1])
        if heading := _HEADING.match(first):
            return self._heading(len(heading["level"]), _resolved(heading["text"]).replace("`", ""))
        if first.startswith("|"):
            return self._table(lines)
        if first.startswith(">"):
            return self._filled(" ".join(line.lstrip("> ") for line in lines), "  | ", "  | ")
        if _ITEM.match(first):
            return "\n".join(self._items(lines))
        return self._filled(" ".join(lines))

    def _heading(self, level: int, title: str) -> str:
        line = "=-"[level - 1] * min(len(title), self.width) if level <= 2 else ""
        return "\n".join(self._styled(text, _BOLD) for text in (title, line) if text)

    def _sample(self, lines: Sequence[str]) -> str:
        """Return a fenced block unchanged, and indented unless a line would become too long."""
        indent = "" if any(self.width - 4 < len(line) <= self.width for line in lines) else " " * 4
        return "\n".join(self._styled(f"{indent}{line}", _CYAN) if line else "" for line in lines)

    def _items(self, lines: Sequence[str]) -> Iterator[str]:
        """Yield the items of a list, and of lists inside it, each filled below its mark."""
        items: list[list[str]] = []
        for line in lines:
            if item := _ITEM.match(line):
                items.append([item["mark"], item["text"]])
            else:
                items[-1].append(line.strip())
        for mark, *texts in items:
            yield self._filled(" ".join(texts), mark, " " * len(mark))

    def _table(self, lines: Sequence[str]) -> str:
        """Return rows in columns, the last one filled; each row becomes a paragraph if that would be too narrow."""
        head, _, *rows = [_cells(line) for line in lines]
        widths = [max(map(self._columns, column)) for column in zip(head, *rows, strict=True)]
        room = self.width - sum(width + 2 for width in widths[:-1])
        if room < min(_LEAST_LAST_COLUMN, widths[-1]):
            return "\n".join(self._paragraph(head, row) for row in rows)
        widths[-1] = min(room, widths[-1])
        return "\n".join(self._row(row, widths) for row in (head, ["-" * width for width in widths], *rows))

    def _row(self, row: Sequence[str], widths: Sequence[int]) -> str:
        cells = zip(row[:-1], widths, strict=False)
        start = "".join(cell + " " * (size - self._columns(cell) + 2) for cell, size in cells)
        if not row[-1]:
            return self._highlighted(start.rstrip())
        return self._filled(row[-1], start, " " * self._columns(start))

    def _paragraph(self, head: Sequence[str], row: Sequence[str]) -> str:
        titles = [f"{title}: " for title in head[1:]] if len(head) > 2 else [""]
        cells = [f"{title}{cell}" for title, cell in zip(titles, row[1:], strict=True) if cell]
        return "\n".join([self._filled(row[0]), *(self._filled(cell, " " * 4, " " * 4) for cell in cells)])

    def _filled(self, text: str, first: str = "", rest: str = "") -> str:
        """Return a paragraph with ``first`` before its first line and ``rest`` before each other."""
        room = min(_MOST_HELD, self.width - len(rest) - 2)  # a mark may follow
        filled = textwrap.fill(
            _CODE.sub(lambda code: code[0].replace(" ", _HELD) if len(code[0]) <= room else code[0], _resolved(text)),
            self.width,
            initial_indent=first,
            subsequent_indent=rest,
            break_long_words=False,
            break_on_hyphens=False,
        )
        return self._highlighted(filled.replace(_HELD, " "))

    def _columns(self, text: str) -> int:
        """Return the columns that ``text`` takes in a table."""
        return len(text.replace("`", "") if self.color else text)

    def _highlighted(self, text: str) -> str:
        """Return ``text`` with code and emphasis in colour; without colour code keeps its quotation marks."""
        text = _STRONG.sub(lambda strong: self._styled(strong[1], _BOLD), text)
        return _CODE.sub(lambda code: self._styled(code[1], _CYAN), text) if self.color else text

    def _styled(self, text: str, style: str) -> str:
        return f"\x1b[{style}m{text}\x1b[0m" if self.color else text


def _cells(line: str) -> list[str]:
    texts = (cell.strip().replace("\\|", "|") for cell in _CELL_END.split(line.strip())[1:-1])
    return [_LINK.sub(lambda link: _link(link["text"], link["target"], named=False), text) for text in texts]


def _resolved(text: str) -> str:
    """Return ``text`` with each link's target: a command that opens the page, an address, a file."""
    return _LINK.sub(lambda link: _link(link["text"], link["target"]), text)


def _link(text: str, target: str, *, named: bool = True) -> str:
    """Return a link as text; if not ``named``, a name that ``gpudiag docs`` finds needs no command."""
    page, _, anchor = target.partition("#")
    if target.startswith(("http://", "https://")):
        return f"<{target}>" if text == target else f"{text} <{target}>"
    if not page:
        return text
    path = page.removeprefix("../../").removeprefix("../")
    if page.startswith("../../"):
        return text if text == path else f"{text} ({path})"
    name = path.removesuffix(".md")
    title = text.replace("`", "")
    command = f"`gpudiag docs {name}{' ' * bool(anchor)}{anchor}`"
    if title == name and anchor:
        return command
    if title == name or (docs.anchor(title) == anchor and " " not in title):
        return f"`gpudiag docs {title}`" if named else text
    return f"{text} ({command})"
