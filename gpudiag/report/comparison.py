"""The output of ``gpudiag diff``."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import msgspec

from gpudiag import report
from gpudiag.errors import UsageError
from gpudiag.knowledge.codes import meanings
from gpudiag.model.change import Change, ChangeSubject, ReportComparison, Side
from gpudiag.report.changes import change_text, when
from gpudiag.report.formats.markdown import escaped_text
from gpudiag.report.formats.markdown import page as markdown_page
from gpudiag.report.formats.table import Page
from gpudiag.text import counted, escaped, one_line

FORMATS = ("table", "json", "markdown", "html")
_KEY = re.compile(r"\[[^][]*\]")
MANY_FIELDS = 4
"""From this many changes on, those of one package, library or GPU are a single line."""
_MOST_LINES = 400
"""The most changes of a subject on the page."""
MOST_NAMED = 6
"""The most names of facts that changed in the same way."""

_HEADINGS = {
    ChangeSubject.VERDICT: "Verdict",
    ChangeSubject.GPU: "GPUs",
    ChangeSubject.CAUSE: "Causes",
    ChangeSubject.OUTCOME: "Probes",
    ChangeSubject.FINDING: "Findings",
    ChangeSubject.RATE: "Rates under load",
    ChangeSubject.FACT: "Machine",
}


def format_of(path: Path) -> str:
    """Return the format of a comparison that the suffix of ``path`` means; raises :class:`UsageError` for any other."""
    format_ = report.format_of(path)
    if format_ not in FORMATS:
        raise UsageError(f"{path}: a comparison has no format for this suffix: write .txt, .json, .md or .html.")
    return format_


def render(comparison: ReportComparison, format_: str, *, width: int, color: bool) -> str:
    """Return the comparison in one of :data:`FORMATS`, with a final newline."""
    if format_ == "json":
        plain = msgspec.to_builtins(comparison)
        codes = meanings(msgspec.json.encode(plain).decode())
        return escaped(msgspec.json.format(msgspec.json.encode({**plain, "codes": codes}), indent=2).decode()) + "\n"
    if format_ == "markdown":
        return _markdown(comparison)
    if format_ == "html":
        return _html(comparison)
    page = Page(max(width, 20), color=color)
    for name, side in (("old", comparison.old), ("new", comparison.new)):
        page.add(_side(side), lead=f"{name}  ", lead_style="dim")
    page.blank()
    for heading, lines in _blocks(comparison):
        page.add(heading, "bold")
        for text, worse in lines:
            page.add(text, "red" if worse else "", lead="  worse  " if worse else "         ", lead_style="bold red")
        page.blank()
    page.add_codes()
    page.add(summary(comparison), "bold red" if comparison.worse else "bold")
    return page.text()


def _markdown(comparison: ReportComparison) -> str:
    blocks = [f"# {escaped_text(summary(comparison))}"]
    sides = (("old", comparison.old), ("new", comparison.new))
    blocks.append("\n".join(f"- {name}: {escaped_text(_side(side))}" for name, side in sides))
    for heading, lines in _blocks(comparison):
        items = (f"- {'**worse** ' if worse else ''}{escaped_text(text)}" for text, worse in lines)
        blocks += [f"## {heading}", "\n".join(items)]
    return markdown_page(blocks)


def _html(comparison: ReportComparison) -> str:
    from gpudiag.report.formats import html

    result = summary(comparison)
    return html.page(
        "diff.html",
        title=f"{result.rstrip('.')} · gpudiag diff",
        summary=result,
        status="fail" if comparison.worse else "pass",
        sides=[
            (name, html.VERDICTS.get(side.verdict, "skipped"), side.verdict, _origin(side))
            for name, side in (("old", comparison.old), ("new", comparison.new))
        ],
        blocks=list(_blocks(comparison)),
        most=_MOST_LINES,
    )


def summary(comparison: ReportComparison) -> str:
    """Return the result of the comparison in a sentence."""
    worse = comparison.worse
    if not worse:
        return "Nothing got worse." if comparison.changes else "Nothing has changed."
    names = {
        ChangeSubject.VERDICT: "the verdict",
        ChangeSubject.GPU: "GPU",
        ChangeSubject.CAUSE: "new cause",
        ChangeSubject.OUTCOME: "outcome of a probe",
        ChangeSubject.FINDING: "new finding",
        ChangeSubject.RATE: "slower rate",
    }
    parts = []
    for subject, noun in names.items():
        number = sum(change.subject is subject for change in worse)
        if subject is ChangeSubject.OUTCOME and number:
            parts.append("1 outcome" if number == 1 else f"{number} outcomes")
        elif number:
            parts.append(noun if subject is ChangeSubject.VERDICT else counted(number, noun))
    return f"Worse: {', '.join(parts)}."


def _side(side: Side) -> str:
    return one_line(f"{side.verdict}, {_origin(side)}")


def _origin(side: Side) -> str:
    return one_line(f"{when(side)}, gpudiag {side.gpudiag_version}: {side.source}")


def _blocks(comparison: ReportComparison) -> Iterator[tuple[str, list[tuple[str, bool]]]]:
    """Yield each heading with its lines, the worsened ones first, and whether each line got worse."""
    for subject, heading in _HEADINGS.items():
        changes = [change for change in comparison.changes if change.subject is subject]
        together = _TOGETHER.get(subject)
        lines = list(together(changes)) if together else [(change_text(change), change.worse) for change in changes]
        if lines:
            yield heading, sorted(lines, key=lambda line: not line[1])


def _outcomes(changes: list[Change]) -> Iterator[tuple[str, bool]]:
    """Yield a line for all probes whose outcome changed in the same way."""
    for same in _alike(changes, lambda change: ""):
        old, new = same[0].old or "not run", same[0].new or "not run"
        few = len(same) <= MOST_NAMED or not {None, "skipped"} & {same[0].old, same[0].new} or same[0].worse
        names = ", ".join(change.name for change in same) if few else counted(len(same), "probe")
        yield one_line(f"{old} -> {new}: {names}"), same[0].worse


def _findings(changes: list[Change]) -> Iterator[tuple[str, bool]]:
    """Yield one line for each change of a finding, with all probes that it appears in."""
    for same in _alike(changes, lambda change: change.name.rpartition(": ")[2]):
        kind = same[0].name.rpartition(": ")[2]
        places = _few([change.name.rpartition(": ")[0] for change in same])
        yield change_text(msgspec.structs.replace(same[0], name=f"{kind} in {places}")), same[0].worse


def _facts(changes: list[Change]) -> Iterator[tuple[str, bool]]:
    """Yield a line for each change; equal changes, such as the folder of many packages, share one.

    If many fields of one item have changed, as of a library that was not found before, most are only named.
    """
    things: dict[str, list[Change]] = {}
    for change in changes:
        things.setdefault(change.path.rpartition("]")[0] or change.path, []).append(change)
    lines: dict[tuple[str | None, ...], list[Change]] = {}
    for thing, same in things.items():
        for change in same:
            much = len(same) >= MANY_FIELDS
            alike = (_KEY.sub("[]", change.path), change.old, change.new)
            key: tuple[str | None, ...] = (thing,) if much else alike
            lines.setdefault(key, []).append(change)
    for key, same in lines.items():
        yield (_of_one_thing(same) if len(key) == 1 else _of_many(same)), False


def _of_one_thing(changes: list[Change]) -> str:
    first, *rest = sorted(changes, key=lambda change: not change.path.endswith(".version"))
    others = (change.path.rpartition("].")[2].replace("_", " ") for change in rest)
    return f"{change_text(first)}; also: {', '.join(filter(None, dict.fromkeys(others)))}"


def _of_many(changes: list[Change]) -> str:
    return change_text(msgspec.structs.replace(changes[0], name=_few([change.name for change in changes])))


def _alike(changes: list[Change], kind: Callable[[Change], str]) -> Iterable[list[Change]]:
    """Return groups of changes that have the same kind and the same values."""
    groups: dict[tuple[str, str | None, str | None, bool], list[Change]] = {}
    for change in changes:
        groups.setdefault((kind(change), change.old, change.new, change.worse), []).append(change)
    return groups.values()


def _few(names: list[str]) -> str:
    more = len(names) - MOST_NAMED
    return ", ".join([*names[:MOST_NAMED], *([f"{more} more"] if more > 0 else [])])


_TOGETHER: dict[ChangeSubject, Callable[[list[Change]], Iterator[tuple[str, bool]]]] = {
    ChangeSubject.OUTCOME: _outcomes,
    ChangeSubject.FINDING: _findings,
    ChangeSubject.FACT: _facts,
}
"""The functions that merge the changes of each subject into fewer lines."""
