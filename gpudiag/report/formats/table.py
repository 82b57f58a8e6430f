"""The table for people: one line per probe with its findings and fixes below it, and the verdict at the end."""

from __future__ import annotations

import io
import re
from itertools import chain, groupby, zip_longest
from typing import TYPE_CHECKING

from gpudiag.knowledge.codes import meanings
from gpudiag.model.report import Interrupted, Report, Row, Skipped
from gpudiag.report import accounts, changes, program, words
from gpudiag.text import one_line, plain

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from rich.text import Text

LEAST_WIDTH = 20
TIMED_WIDTH = 100
"""With fewer columns, the time is shown only with ``verbose``."""
LEAST_FIGURE_WIDTH = 16
"""If the figures have fewer columns than this, they are printed below their rows."""

STYLES = {
    "pass": "green",
    "note": "cyan",
    "warning": "yellow",
    "fail": "bold red",
    "broken": "bold magenta",
    "PASS": "bold green",
    "FAIL": "bold red",
    "BROKEN": "bold magenta",
    "NOT VERIFIED": "bold yellow",
}
"""The styles of outcomes, severities and verdicts, as rich writes them."""
"""Headings of a cause's lines that people copy and paste."""
_HEADERS = ("outcome", "probe", "device", "time")
_GAP = 2
_CUT = " ..."
_GLUE = "\ue000"
"""Replaces a space at which no line may end; a private-use character, so that no text has it."""
_UNIT = re.compile(r"(?<=\d) (?=(?:s|ms|bytes|KiB|MiB|GiB|%)(?!\w))")
_INDENT = " " * (len("outcome") + _GAP)
"""Indentation of the lines below a probe's name."""
_MANY = 4
"""From this many skipped probes on, an area in which all are skipped is not listed by name."""


SUFFIX = ".txt"


def render(report: Report, *, width: int, color: bool, verbose: bool, head: bool = False) -> str:
    """Return the table, no line wider than ``width`` columns (but at least :data:`LEAST_WIDTH`).

    With ``head`` the table ends after the diagnosis. Commands and addresses may be longer: a terminal wraps them, and
    they are copied as one piece.
    """
    page = Page(max(width, LEAST_WIDTH), color=color)
    add_header(page, report)
    _diagnosis(page, report, verbose=verbose, head=head)
    add_changes(page, report)
    add_program(page, report, verbose=verbose)
    if head or report.program is not None:
        page.add_codes()
        return page.text()
    add_rows(page, report, verbose=verbose)
    page.add_codes()
    _footer(page, report, verbose=verbose)
    return page.text()


def add_rows(page: Page, report: Report, *, verbose: bool) -> None:
    """Add a line for each row, with its findings, and the names of the skipped probes."""
    ran = [row for rows in report.areas.values() for row in rows if not isinstance(row.outcome, Skipped | Interrupted)]
    alike = [] if verbose else words.alike(ran)
    together = [row for same in alike for row in same]
    _rows(page, report, [row for row in ran if row not in together], verbose=verbose)
    _alike(page, report, alike)
    if report.has_load:
        from gpudiag.report import load

        if load.gpus(report):
            add_load(page, report, verbose=verbose, indentation="  ")
            page.blank()
    _skipped(page, report, verbose=verbose)


def add_load(page: Page, report: Report, *, verbose: bool, indentation: str) -> None:
    """Add a line for each GPU that was under load; ``verbose``: also its rates, and the slowest link."""
    from tabulate import tabulate

    from gpudiag.report import load

    for heading, cells in load.tables(report, verbose=verbose, width=page.width - len(indentation)):
        if heading:
            page.add(heading, "dim", lead=indentation)
        lines = tabulate(cells, tablefmt="plain", disable_numparse=True).splitlines()
        heads = len(lines) - len(cells) + 1
        for number, line in enumerate(lines):
            page.add(line.rstrip(), "dim" if number < heads else "", lead=indentation, whole=True)
    for text in (load.about_links(report) if verbose else "", load.about_host(report)):
        if text:
            page.add(text, lead=indentation)


class Page:
    """Lines that fit a width, whatever they contain: words without a break, characters two columns wide."""

    def __init__(self, width: int, *, color: bool) -> None:
        from rich.console import Console

        self.width, self.color = width, color
        self._console = Console(
            width=width,
            height=25,
            file=io.StringIO(),
            force_terminal=color,
            force_jupyter=False,  # in a notebook rich would also display what is only rendered here
            color_system="standard" if color else None,
            no_color=not color,
            legacy_windows=False,
            _environ={},  # the caller has decided; COLUMNS, TERM and NO_COLOR must not decide again
        )
        self._lines: list[Text] = []

    def wrap(self, text: str, width: int, style: str = "") -> list[Text]:
        """Return ``text`` as lines, at least one; only an empty text gives an empty line.

        No line ends between a number and its unit.
        """
        from rich.text import Text

        lines = Text(_UNIT.sub(_GLUE, text), style).wrap(self._console, width)
        for line in lines:
            line.rstrip()
            line.plain = line.plain.replace(_GLUE, " ")
        return [line for line in lines if line.plain] or [Text()]

    def __len__(self) -> int:
        return len(self._lines)

    @property
    def height(self) -> int:
        """How many lines a terminal shows; it breaks those that are too long."""
        return sum(max(1, -(-line.cell_len // self.width)) for line in self._lines)

    def extend(self, other: Page) -> None:
        """Add the lines of another page."""
        self._lines += other._lines

    def cut(self, length: int) -> None:
        """Remove all lines after the first ``length``."""
        del self._lines[length:]

    def add(
        self,
        text: str,
        style: str = "",
        *,
        lead: str = "",
        lead_style: str = "",
        whole: bool = False,
        most: int | None = None,
    ) -> None:
        """Add a paragraph with ``lead`` before its first line and the other lines indented as far.

        ``whole``: on one line. ``most``: the most lines; the last one shows that text was cut.
        """
        from rich.text import Text

        if whole:
            self._lines.append(Text.assemble((lead, lead_style), (plain(text), style)))
            return

        room = self.width - len(lead)
        if room < LEAST_WIDTH // 2:
            text, lead, room = f"{lead.strip()} {text}", "", self.width
        lines = self.wrap(plain(text), room, style)
        if most is not None and len(lines) > most:
            lines[most:] = []
            lines[-1].truncate(room - len(_CUT))
            if " " in lines[-1].plain:
                lines[-1].right_crop(len(lines[-1].plain) - lines[-1].plain.rindex(" "))
            lines[-1].append(_CUT)
        for number, line in enumerate(lines):
            before = (lead, lead_style) if number == 0 else " " * len(lead)
            self._lines.append(Text.assemble(before, line))

    def add_advice(self, advice: Iterable[tuple[str, bool]], *, lead: str = "") -> None:
        """Add a paragraph in which no command is broken: a command longer than a line gets a wider line of its own.

        ``advice`` has its pieces, each with whether it is a command.
        """
        room = self.width - len(lead)
        pieces: list[str] = []
        for piece, is_command in advice:
            if is_command and len(piece) > room:
                self._add_glued(pieces, lead)
                self.add(piece, lead=" " * len(lead) if "".join(pieces) else lead, whole=True)
                lead = " " * len(lead)
                pieces = []
            else:
                pieces.append(piece.replace(" ", _GLUE) if is_command else piece)
        self._add_glued(pieces, lead)

    def _add_glued(self, pieces: list[str], lead: str) -> None:
        if text := "".join(pieces).strip(" ,"):
            self.add(text, lead=lead)

    def blank(self) -> None:
        self.add("")

    def add_codes(self, *others: Page) -> None:
        """Add the meanings of codes that the page, or one of the others, mentions without one."""
        codes = meanings("\n".join(line.plain for page in (self, *others) for line in page._lines))
        if codes:
            self.add("Codes", "bold dim")
        for code, meaning in codes.items():
            self.add(f"{code}: {meaning}", lead="  ")
        if codes:
            self.blank()

    def text(self) -> str:
        with self._console.capture() as captured:
            for line in self._lines:
                self._console.print(line, soft_wrap=True)
        return captured.get()


def add_header(page: Page, report: Report) -> None:
    page.add(words.made_by(report), "bold")
    if report.world.simulated:
        page.add(words.simulation(report), "bold yellow")
    pairs = words.machine(report)
    widest = max(len(heading) for heading, _ in pairs)
    for heading, text in pairs:
        page.add(text, lead=f"{heading:{widest}}  ", lead_style="dim")
    page.blank()


def _diagnosis(page: Page, report: Report, *, verbose: bool, head: bool) -> None:
    """Add why no GPU is used and how to fix it; the other causes have a line each."""
    heading = words.headline(report) or (words.NO_CAUSE if head else "")
    if not heading:
        return
    diagnosis = report.diagnosis
    page.add(heading, "bold red" if diagnosis.causes else "bold")
    of_machine = not report.is_log_alone and report.program is None
    if diagnosis.steps and of_machine and (diagnosis.causes or verbose):
        page.add(words.steps(report), "dim", lead="  ")
    for cause in diagnosis.causes:
        for line in words.cause(cause, is_titled=words.is_titled(report, cause)):
            style = "bold" if line.is_copied else "" if line.heading else "dim"
            page.add(line.text, style, lead=f"  {line.heading:<8}  ", lead_style="dim", whole=line.is_copied)
    for line in words.others(diagnosis):
        page.add(line.text, "dim", lead=f"  {line.heading:<8}  ", lead_style="dim", whole=line.is_copied)
    page.blank()


def add_changes(page: Page, report: Report) -> None:
    """Add the changes since the report that this one was compared with."""
    if report.since is None:
        return
    heading, lines = changes.in_head(report.since)
    page.add(heading, "bold")
    for line in lines:
        page.add(line, lead="  ")
    page.blank()


def add_program(page: Page, report: Report, *, verbose: bool) -> None:
    """Add the actions of a traced program, a section for each subject."""
    if report.program is None:
        return
    for heading, lines in program.sections(report.program, verbose=verbose):
        page.add(heading, "bold")
        widest = min(max(len(name) for name, _ in lines), page.width // 3)
        for name, text in lines:
            page.add(one_line(text), lead=f"  {one_line(name):{widest}}  ", lead_style="dim")
        page.blank()


def _rows(page: Page, report: Report, ran: list[Row], *, verbose: bool) -> None:
    """Add a line for each row of ``ran`` below the name of its area, with its findings below it."""
    from tabulate import tabulate

    if not ran:
        return
    columns = 4 if verbose or page.width >= TIMED_WIDTH else 3
    heads = [(_outcome(row), one_line(row.name), report.device_label(row), words.seconds(row))[:columns] for row in ran]
    names = _HEADERS[:columns]
    room = page.width - sum(max(map(len, column)) + _GAP for column in zip(names, *heads, strict=True))
    if narrow := room < LEAST_FIGURE_WIDTH:
        headers: tuple[str, ...] = names[:2]
        blocks: list[list[tuple[str, ...]]] = [[head[:2]] for head in heads]
    else:
        headers = (*names, "measured")
        figures = [[line.plain for line in page.wrap(words.figure(row), room)] for row in ran]
        blocks = [
            list(zip_longest(*([cell] for cell in head), figure, fillvalue=""))
            for head, figure in zip(heads, figures, strict=True)
        ]
    cells = list(chain([headers], *blocks))
    # Not tabulate's own header: it would make columns wider than needed.
    cells.insert(1, tuple("-" * max(map(len, column)) for column in zip(*cells, strict=True)))
    alignment = tuple("right" if header == "time" else "left" for header in headers)
    lines = iter(tabulate(cells, tablefmt="plain", colalign=alignment, disable_numparse=True).splitlines())
    page.add(next(lines), "bold")
    page.add(next(lines), "dim")
    area = ""
    for row, block in zip(ran, blocks, strict=True):
        if row.area != area:
            if area:
                page.blank()
            area = row.area
            page.add(one_line(area), "bold", lead=_INDENT)
        line = next(lines)
        page.add(line[len(_INDENT) :], lead=line[: len(_INDENT)], lead_style=STYLES[row.status])
        for _ in block[1:]:
            page.add(next(lines))
        if narrow:
            page.add(f"{report.device_label(row)}, {words.seconds(row)}: {words.figure(row)}", lead=_INDENT)
        _below(page, row, verbose=verbose)
    page.blank()


def _outcome(row: Row) -> str:
    """Return the row's status, in a form that shows problems without colours."""
    return row.status.upper() if row.status in ("fail", "broken") else row.status


def _findings(page: Page, row: Row) -> None:
    for finding in row.findings:
        severity = finding.severity.value
        page.add(one_line(finding.message), lead=f"{_INDENT}{severity}: ", lead_style=STYLES[severity])
        page.add_advice(words.pieces(finding), lead=f"{_INDENT}  -> ")


def _below(page: Page, row: Row, *, verbose: bool) -> None:
    _findings(page, row)
    for line in words.log_lines(row, verbose=verbose):
        page.add(line, "dim", lead=f"{_INDENT}| ", lead_style="dim")
    if cells := words.table(row, verbose=verbose):
        from tabulate import tabulate

        plain_cells = [[one_line(cell) for cell in line] for line in cells]
        for line in tabulate(plain_cells, tablefmt="plain", disable_numparse=True).splitlines():
            page.add(line, lead="    ")  # further left than the rest: a UUID is wide
    if verbose and (ran := words.evidence(row)):
        page.add(ran, "dim", lead=f"{_INDENT}ran: ", lead_style="dim")


def _alike(page: Page, report: Report, alike: list[list[Row]]) -> None:
    """Add rows that have the same findings, which are printed once."""
    for rows in alike:
        outcome = f"{_outcome(rows[0]):<{len(_INDENT)}}"
        page.add(words.found_alike(rows), lead=outcome, lead_style=STYLES[rows[0].status])
        _below(page, rows[0], verbose=False)
        page.add(", ".join(words.label(report, row) for row in rows), "dim", lead=_INDENT)
    if alike:
        page.blank()


def _skipped(page: Page, report: Report, *, verbose: bool) -> None:
    """Add the names of the probes that were skipped or interrupted, by reason, so that they do not hide the others."""
    reasons: dict[str, list[Row]] = {}
    for row in report.rows:
        if isinstance(row.outcome, Skipped | Interrupted):
            reasons.setdefault(words.figure(row), []).append(row)
    for reason, rows in reasons.items():
        page.add(f"{len(rows)} {rows[0].status}: {reason}", "bold dim")
        page.add(", ".join(_names(report, rows, verbose=verbose)), "dim", lead=_INDENT)
    if reasons:
        page.blank()


def _names(report: Report, rows: list[Row], *, verbose: bool) -> Iterator[str]:
    """Yield the probes skipped for one reason, or their whole area if that is shorter."""
    for area, same in groupby(rows, key=lambda row: row.area):
        skipped = [*same]
        if len(skipped) >= _MANY and len(skipped) == len(report.areas[area]) and not verbose:
            yield f"all {len(skipped)} of {area}"
        else:
            yield from (words.label(report, row) for row in skipped)


def add_gaps(page: Page, report: Report) -> None:
    """Add each unverified part."""
    if report.not_verified:
        page.add("Not verified", "bold dim")
        for gap in report.not_verified:
            page.add(words.gap(gap), "dim", lead=_INDENT)
        page.blank()


def _footer(page: Page, report: Report, *, verbose: bool) -> None:
    if verbose:
        add_gaps(page, report)
    verdict = report.verdict.value
    page.add(words.summary(report), lead=f"{verdict}: ", lead_style=STYLES[verdict])
    not_verified = "" if verbose else words.not_verified(report)
    for text in filter(None, (accounts.summary(report), not_verified)):
        page.add(one_line(text))
    if words.next_step(report):
        page.add_advice(words.next_of(report).pieces)
