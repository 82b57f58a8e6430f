"""A page for people: one file that loads nothing, with the answer first, the pictures, and a section for each probe.

It needs no JavaScript; with it, one can copy a command, filter the probes and open all sections at once.
"""

from __future__ import annotations

import base64
import hashlib
import html
import re
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gpudiag.knowledge.codes import meanings
from gpudiag.model.report import Report
from gpudiag.text import plain

if TYPE_CHECKING:
    from jinja2 import Environment
    from markupsafe import Markup

SUFFIX = ".html"
_TAGS = re.compile(r"<[^<>]*>")
_PAGE = Path(__file__).parents[1] / "page"
_GLYPHS = {"pass": "✓", "note": "i", "warning": "!", "fail": "✕", "broken": "?", "interrupted": "■", "skipped": "–"}  # noqa: RUF001
"""A shape for each outcome, so that nobody needs the colour."""

VERDICTS = {"PASS": "pass", "FAIL": "fail", "BROKEN": "broken", "NOT VERIFIED": "skipped"}
"""The colour of each verdict: that of an outcome."""


def render(report: Report, *, head: bool = False, **_: object) -> str:
    """Return the page; with ``head`` it has no probes, as for a report that only looks for a cause."""
    from gpudiag.report import load, words
    from gpudiag.report.page import first_screen, load_charts, machine, operations, pictures, probe_sections

    sections = () if head else probe_sections.sections(report)
    first = first_screen.answer(report, sections)
    return page(
        "page.html",
        title=first.title,
        first=first,
        report=report,
        words=words,
        first_screen=first_screen,
        load=load,
        load_charts=load_charts,
        machine=machine,
        operations=operations,
        probe_sections=probe_sections,
        sections=sections,
        charts={rows[0].probe: chart for rows in _by_probe(report) if (chart := pictures.of_probe(report, rows))},
        lanes=pictures.run_timeline(report),
    )


def page(template: str, *, also: tuple[str, str] | None = None, most_bytes: int | None = None, **values: object) -> str:
    """Return a page made from a template that extends ``base.html``; it explains the codes that are on it.

    ``also``: a style and a script after those of all pages. ``most_bytes``: of all that the template cuts.
    """
    from gpudiag.report.page.room import LISTS_ROOM, Room

    files = zip(("style.css", "script.js"), also or ("", ""), strict=True)
    style, script = ("".join((_PAGE / name).read_text(encoding="utf-8") for name in names if name) for names in files)

    def text(codes: dict[str, str]) -> str:
        rendered = (
            _environment()
            .get_template(template)
            .render(
                **values,
                codes=codes,
                glyphs=_GLYPHS,
                room=Room(most_bytes or LISTS_ROOM),
                style=_trusted(style),
                script=_trusted(script),
                policy=_policy(style, script),
            )
        )
        return f"{rendered.rstrip()}\n"

    without_codes = text({})
    codes = meanings(html.unescape(_TAGS.sub(" ", without_codes)))
    return text(codes) if codes else without_codes


def _by_probe(report: Report) -> list[list[Any]]:
    groups: dict[str, list[Any]] = {}
    for row in report.rows:
        groups.setdefault(row.probe, []).append(row)
    return list(groups.values())


def _policy(*inline: str) -> str:
    """Return the policy with which a browser runs and loads only these two texts of gpudiag."""
    style, script = (base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() for text in inline)
    return (
        f"default-src 'none'; style-src 'sha256-{style}'; script-src 'sha256-{script}'; "
        "base-uri 'none'; form-action 'none'"
    )


@cache
def _environment() -> Environment:
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    environment = Environment(
        autoescape=True,
        finalize=_cleaned,
        loader=FileSystemLoader(_PAGE),
        lstrip_blocks=True,
        trim_blocks=True,
        undefined=StrictUndefined,
    )
    environment.filters["prose"] = _prose
    return environment


def _cleaned(value: Any) -> Any:
    """Return a text without terminal control sequences and invisible characters.

    Each text is cleaned alone: in the whole page, an unfinished sequence would swallow the markup after it.
    """
    return plain(value) if isinstance(value, str) and not hasattr(value, "__html__") else value


def _trusted(text: str) -> Markup:
    """Return gpudiag's own style or script, which is written unescaped."""
    from markupsafe import Markup

    return Markup(text)  # noqa: S704  (a file of the package)


def _prose(text: str) -> Markup:
    """Return a text of gpudiag's own in which names are in backquotes."""
    from markupsafe import Markup

    parts = re.split(r"`([^`]*)`", plain(text))
    joined = Markup()
    for number, part in enumerate(parts):
        joined += Markup("<code>{}</code>").format(part) if number % 2 else part
    return joined
