"""The manual: the Markdown pages beside this file, found by name or by words and read without a network.

A page is named by its path, without ``.md``: ``start``, ``causes/memory``. ``README.md`` is the list of all pages. The
files of a deployment have the names that they have there: ``slurm-prolog.sh``.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from itertools import takewhile
from pathlib import Path

from gpudiag.errors import UsageError, nearest, sentences

FOLDER = Path(__file__).parent
INDEX = "README"
_FILES = FOLDER / "deployment"
_MOST_HITS = 8
_MOST_SHOWN = 90
"""The most characters of an excerpt in a list of hits."""
_IN_TITLE, _IN_PAGE_TITLE, _MOST_IN_TEXT = 12, 4, 5
"""The weight of a word found in a section's title, in a page's title and in the text, where it counts up to this
often."""
_AS_PHRASE = 12
"""Additional weight of words that are found one after the other, as in a line of a log."""
_OF_MESSAGES = 0.8
"""Weight of words in the page of messages: it has most of the sections, and a cause or a probe says more."""
_LONG = 2000
"""Length of a section, in characters, at which a word counts half as much as in a very short one."""
_COVERED = 0.6
"""Part of the question, weighted by the rarity of its words, that a section must contain."""
_CLEARLY_BEST = 1.4
"""A section is printed if its score is this many times that of the next one; otherwise the hits are listed."""

_HEADING = re.compile(r"^(#{1,6}) +(\S.*)$")
_LINK = re.compile(r"\[([^\[\]]*)\]\([^()\s]*\)")


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

    @cached_property
    def names(self) -> frozenset[str]:
        """The words that identify this section: its anchor, its title, an option in it or, for a page, its name."""
        title = self.title.lower()
        options = re.findall(r"(?<!\S)--?[a-z][\w-]*", title)
        page = [self.page, self.page.rpartition("/")[2]] if self.level == 1 else []
        return frozenset((self.anchor, title, *options, *page))

    def is_named_by(self, words: Sequence[str]) -> bool:
        """Return whether words are parts of the name of a probe or a cause, as ``growth`` of memory.growth."""
        return {*words} <= {*re.findall(r"\w+", self.title.lower())} and re.fullmatch(r"[\w.]+", self.title) is not None

    @property
    def summary(self) -> str:
        """The first paragraph as one line without links, or the first line of a sample; "" for a list or a table."""
        _, _, text = self.text.partition("\n\n")
        if text.startswith("```"):
            return f"`{text.splitlines()[1]}`"
        first = " ".join(text.partition("\n\n")[0].split())
        return "" if first.startswith(("|", "- ", "**", "#")) else _LINK.sub(r"\1", first)


@cache
def pages() -> tuple[str, ...]:
    """Return the names of all pages."""
    return tuple(sorted(file.relative_to(FOLDER).with_suffix("").as_posix() for file in FOLDER.rglob("*.md")))


@cache
def files() -> tuple[str, ...]:
    """Return the names of the files that are no pages: scripts, units and manifests to copy."""
    return tuple(sorted(file.name for file in _FILES.iterdir()))


def file(topic: Sequence[str]) -> str:
    """Return the content of the file that the one word of ``topic`` names, also with its folder; "" for none."""
    name = topic[0].rpartition("/")[2] if len(topic) == 1 else ""
    return (_FILES / name).read_text(encoding="utf-8") if name in files() else ""


@cache
def sections_of(page: str) -> tuple[Section, ...]:
    """Return the sections of a page; the first is its title."""
    return tuple(parse(page, (FOLDER / f"{page}.md").read_text(encoding="utf-8")))


def parse(page: str, text: str) -> Iterator[Section]:
    """Yield the sections of a page, without the comments that mark generated parts."""
    found: list[tuple[str, int, list[str]]] = []
    fenced = False
    for line in text.splitlines():
        fenced ^= line.startswith("```")
        if not fenced and line.startswith("<!--") and line.endswith("-->"):
            continue
        if not fenced and (heading := _HEADING.match(line)):
            found.append((heading[2].replace("`", ""), len(heading[1]), []))
        found[-1][2].append(line)
    anchors: Counter[str] = Counter()
    for title, level, lines in found:
        name = anchor(title)
        again = f"-{anchors[name]}" if anchors[name] else ""
        anchors[name] += 1
        yield Section(page, found[0][0], title, level, f"{name}{again}", "\n".join(lines).strip())


def anchor(title: str) -> str:
    """Return the anchor that GitHub gives a heading."""
    return re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-")


def answer(topic: Sequence[str]) -> str:
    """Return the Markdown for the words of ``topic``: the list of pages, a page, a section, or a list of sections.

    If the first word is a page, the others are looked for in that page first. Raises :class:`UsageError` with the
    nearest topics for words that are not in the manual.
    """
    words = [word for argument in topic for word in re.split(r"[\s#]+", argument.lower()) if word]
    page = _page(words[0]) if words else INDEX
    if page and not words[1:]:
        return _markdown(sections_of(page))
    found = (_found(sections_of(page), words[1:]) if page else "") or _found(_all_sections(), words)
    if found:
        return found
    asked = " ".join(words)
    names_of_topics = {
        name for section in _all_sections() for name in (*section.names, *re.findall(r"\w{4,}", section.title.lower()))
    }
    near = nearest(asked, names_of_topics)
    raise UsageError(sentences(f"the manual has no topic {asked!r}.", near, "'gpudiag docs' lists the pages."))


def _page(word: str) -> str:
    """Return the page that ``word`` names, by its path or its last part; "" if there is none or more than one."""
    name = word.removesuffix(".md")
    named = [page for page in pages() if page == name] or [page for page in pages() if page.rpartition("/")[2] == name]
    return named[0] if len(named) == 1 else ""


def _found(sections: Sequence[Section], words: Sequence[str]) -> str:
    """Return the text of the section that ``words`` name, or a list if several are possible; "" for none."""
    asked = " ".join(words)
    if exact := [section for section in sections if asked in section.names]:
        return _opened(exact[0]) if len(exact) == 1 else _hits(exact)
    ranked = _ranked(sections, words)
    best, *others = [score for score, _ in ranked] or [0.0]
    if best and best >= _CLEARLY_BEST * max(others, default=0.0):
        return _opened(ranked[0][1])
    return _hits([section for _, section in ranked]) if ranked else ""


def _ranked(sections: Sequence[Section], words: Sequence[str]) -> list[tuple[float, Section]]:
    """Return the sections in which the words are found, each with its score: first those that the words name."""
    scores = [0.0] * len(sections)
    covered = [0.0] * len(sections)
    total = 0.0
    for word in words:
        stem = word[:-1] if len(word) > 3 and word.endswith("s") else word
        counts = [_count(stem, section.text) for section in sections]
        weight = math.log(1 + len(sections) / (1 + sum(map(bool, counts))))
        total += weight
        for at, (section, count) in enumerate(zip(sections, counts, strict=True)):
            page = bool(_count(stem, f"{section.page} {section.page_title}"))
            title = bool(_count(stem, section.title))
            scores[at] += weight * (_IN_TITLE * title + _IN_PAGE_TITLE * page + min(count, _MOST_IN_TEXT))
            covered[at] += weight * bool(count or page)
    phrase = " ".join(words)
    ranked = []
    for score, part, section in zip(scores, covered, sections, strict=True):
        if part >= _COVERED * total:
            whole = len(words) > 1 and phrase in " ".join(section.text.lower().split())
            share = _OF_MESSAGES if section.page == "messages" else 1
            ranked.append(((share * score + _AS_PHRASE * total * whole) / (_LONG + len(section.text)), section))
    return sorted(ranked, key=lambda hit: (not hit[1].is_named_by(words), -hit[0]))


def _count(stem: str, text: str) -> int:
    """Return how many words of ``text`` begin with ``stem``, ignoring case."""
    text = f" {text.lower()}"
    count, at = 0, text.find(stem)
    while at > 0:
        count += not (text[at - 1].isalnum() or text[at - 1] == "_")
        at = text.find(stem, at + 1)
    return count


def _opened(section: Section) -> str:
    """Return the Markdown of a section with its subsections."""
    sections = sections_of(section.page)
    start = sections.index(section)
    inside = takewhile(lambda other: other.level > section.level, sections[start + 1 :])
    return _markdown((section, *inside))


def _hits(sections: Sequence[Section]) -> str:
    """Return a list of sections, each with the command that opens it and its first words."""
    lines = []
    for section in sections[:_MOST_HITS]:
        text = section.summary
        short = text if len(text) <= _MOST_SHOWN else f"{text[:_MOST_SHOWN].rpartition(' ')[0]} ..."
        lines.append(f"- `gpudiag docs {_shortest(section)}`{': ' * bool(short)}{short}\n")
    return f"Several places of the manual say something about this:\n\n{''.join(lines)}"


def _shortest(section: Section) -> str:
    """Return the shortest words that open the section: a unique name, or its page and its anchor."""
    if section.level == 1:
        return section.page
    title = section.title.lower()
    own = [name for name in section.names if name.startswith("--") or (name == title and " " not in name)]
    return next((name for name in sorted(own, key=len) if _uses()[name] == 1), f"{section.page} {section.anchor}")


@cache
def _uses() -> Counter[str]:
    """Return for each name the number of sections that have it."""
    return Counter(name for section in _all_sections() for name in section.names)


def _all_sections() -> list[Section]:
    return [section for page in pages() if page != INDEX for section in sections_of(page)]


def _markdown(sections: Sequence[Section]) -> str:
    return "\n\n".join(section.text for section in sections) + "\n"
