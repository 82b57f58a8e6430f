"""The manual: the Markdown pages beside this file, found by name or by words and read without a network.

A page is named by its path, without ``.md``: ``start``, ``causes/memory``. ``README.md`` is the list of all pages.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from gpudiag.errors import UsageError, nearest

FOLDER = Path(__file__).parent
INDEX = "README"
_MOST_HITS = 8
_MOST_SHOWN = 90
"""Characters of each."""
_IN_TITLE, _IN_PAGE_TITLE, _MOST_IN_TEXT = 12, 4, 5
"""What a word counts in each of them; in the text it counts as often as it is found, up to this."""
_COVERED = 0.6
"""Of a question, weighed by how rare its words are, this much must be found in a section."""
_CLEARLY_BEST = 1.4
"""A section whose score is so many times that of the next one is printed; otherwise the hits are listed."""

_FENCE = re.compile(r"^\s*(```|~~~)")
_HEADING = re.compile(r"^(#{1,6}) +(.+?)\s*$")
_COMMENT = re.compile(r"^<!--.*-->$")
_LINK = re.compile(r"\[([^\]]*)\]\([^)\s]*\)")


@dataclass(frozen=True)
class Section:
    """A heading and the text below it, up to the next heading of any level."""

    page: str
    page_title: str
    title: str
    level: int
    anchor: str
    """The part after ``#`` of a link, as GitHub makes it."""
    text: str
    """The Markdown, with the heading."""

    @property
    def names(self) -> set[str]:
        """The words that mean exactly this section: its anchor, its title, an option in it; of a page, its name."""
        title = self.title.lower()
        options = re.findall(r"(?<!\S)--?[a-z][\w-]*", title)
        return {self.anchor, title, *options, *([self.page, self.page.rpartition("/")[2]] if self.level == 1 else [])}

    @property
    def summary(self) -> str:
        """The first paragraph as one line without markup."""
        paragraphs = self.text.split("\n\n")[1:]
        return _LINK.sub(r"\1", " ".join(paragraphs[0].split())) if paragraphs else ""


@cache
def pages() -> dict[str, tuple[Section, ...]]:
    """Return the sections of every page by the page's name; the first section of a page is its title."""
    found = {file.relative_to(FOLDER).with_suffix("").as_posix(): file for file in sorted(FOLDER.rglob("*.md"))}
    return {name: tuple(_sections(name, file.read_text(encoding="utf-8"))) for name, file in found.items()}


def answer(topic: Sequence[str]) -> str:
    """Return the Markdown for the words of ``topic``: the list of pages, a page, a section, or a list of sections.

    The first word may be a page; the words after it are then looked for in that page. Raises :class:`UsageError` with
    the nearest topics for words that are not in the manual.
    """
    words = [word for one in topic for word in re.split(r"[\s#]+", one.lower()) if word]
    if not words:
        return _markdown(pages()[INDEX])
    if chosen := _page(words[0]):
        return _within(pages()[chosen], words[1:]) if words[1:] else _markdown(pages()[chosen])
    return _within(_all_sections(), words)


def _page(word: str) -> str:
    """Return the page that ``word`` names, by its path or by its last part alone; "" for none, or more than one."""
    name = word.removesuffix(".md")
    named = [page for page in pages() if page.lower() == name] or [
        page for page in pages() if page.lower().rpartition("/")[2] == name
    ]
    return named[0] if len(named) == 1 else ""


def _within(sections: Sequence[Section], words: Sequence[str]) -> str:
    """Return the one of ``sections`` that ``words`` ask for, or a list of those that they may mean."""
    asked = " ".join(words)
    if exact := [one for one in sections if asked in one.names]:
        return _opened(exact[0]) if len(exact) == 1 else _hits(exact)
    ranked = _ranked(sections, words)
    if not ranked:
        known = {name for one in sections for name in (*one.names, *re.findall(r"\w{4,}", one.title.lower()))}
        near = nearest(asked, known)
        raise UsageError(f"the manual has no topic {asked!r}. {near}{' ' * bool(near)}'gpudiag docs' lists the pages.")
    scores = [score for score, _ in ranked]
    if len(ranked) == 1 or scores[0] >= _CLEARLY_BEST * scores[1]:
        return _opened(ranked[0][1])
    return _hits([one for _, one in ranked])


def _ranked(sections: Sequence[Section], words: Sequence[str]) -> list[tuple[float, Section]]:
    """Return the sections in which the words stand, the best first, each with its score."""
    texts = [one.text.lower() for one in sections]
    counts = [[len(pattern.findall(text)) for text in texts] for pattern in map(_pattern, words)]
    weights = [math.log(1 + len(sections) / (1 + sum(map(bool, row)))) for row in counts]
    found = []
    for at, section in enumerate(sections):
        score = covered = 0.0
        for word, row, weight in zip(words, counts, weights, strict=True):
            pattern = _pattern(word)
            title = bool(pattern.search(section.title.lower()))
            page = bool(pattern.search(f"{section.page} {section.page_title}".lower()))
            if row[at] or page:
                covered += weight
                score += weight * (_IN_TITLE * title + _IN_PAGE_TITLE * page + min(row[at], _MOST_IN_TEXT))
        if covered >= _COVERED * sum(weights):
            found.append((score, section))
    return sorted(found, key=lambda one: -one[0])


@cache
def _pattern(word: str) -> re.Pattern[str]:
    """Return what finds ``word`` at the beginning of a word, in the singular and the plural."""
    stem = word[:-1] if len(word) > 3 and word.endswith("s") else word
    return re.compile(rf"(?<!\w){re.escape(stem)}")


def _opened(section: Section) -> str:
    """Return the Markdown of a section with the sections inside it."""
    sections = pages()[section.page]
    start = sections.index(section)
    end = next((at for at in range(start + 1, len(sections)) if sections[at].level <= section.level), len(sections))
    return _markdown(sections[start:end])


def _hits(sections: Sequence[Section]) -> str:
    """Return a list of sections, each with the command that opens it."""
    shown = "".join(f"- `gpudiag docs {_shortest(one)}`{_begins(one)}\n" for one in sections[:_MOST_HITS])
    return f"Several places of the manual say something about this:\n\n{shown}"


def _shortest(section: Section) -> str:
    """Return the shortest words that open the section: a name that no other has, or its page and its anchor."""
    if section.level == 1:
        return section.page
    others = {name for one in _all_sections() if one != section for name in one.names}
    title = section.title.lower()
    own = [name for name in section.names - others if name.startswith("--") or (name == title and " " not in name)]
    return own[0] if own else f"{section.page} {section.anchor}"


def _begins(section: Section) -> str:
    """Return the first words of a section as the end of a line; "" if a list, table or sample comes first."""
    text = section.summary
    if not text or text.startswith(("|", "- ", "```", "**")):
        return ""
    return f": {text}" if len(text) <= _MOST_SHOWN else f": {text[:_MOST_SHOWN].rpartition(' ')[0]} ..."


def _all_sections() -> list[Section]:
    return [one for name, sections in pages().items() if name != INDEX for one in sections]


def _markdown(sections: Sequence[Section]) -> str:
    return "\n\n".join(one.text for one in sections) + "\n"


def _sections(page: str, text: str) -> Iterator[Section]:
    """Yield the sections of a page; comments, which mark what was generated, are left out."""
    lines: list[str] = []
    blocks: list[tuple[str, int, list[str]]] = []
    fenced = False
    for line in text.splitlines():
        fenced ^= bool(_FENCE.match(line))
        if not fenced and _COMMENT.match(line):
            continue
        if not fenced and (heading := _HEADING.match(line)):
            lines = []
            blocks.append((heading[2].replace("`", ""), len(heading[1]), lines))
        lines.append(line)
    anchors: dict[str, int] = {}
    for title, level, content in blocks:
        name = anchor(title)
        before = anchors.get(name, 0)
        anchors[name] = before + 1
        body = re.sub(r"\n{3,}", "\n\n", "\n".join(content)).strip()
        yield Section(page, blocks[0][0], title, level, f"{name}-{before}" if before else name, body)


def anchor(title: str) -> str:
    """Return the anchor that GitHub gives a heading."""
    return re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-")
