"""The screen: a line for each area, what did not pass, and at the end the answer: the cause and what to do about it.

The last lines stand above the prompt, so they are the ones to act on: the first cause with its commands, the command
that runs the failed probes again, and a line of counts. The whole table is shown with ``--verbose``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from gpudiag.model.diagnosis import Confidence, RootCause
from gpudiag.model.report import LOAD, Broken, Finding, Interrupted, Report, Row, Severity, Skipped, Verdict
from gpudiag.report import words
from gpudiag.report.formats import table
from gpudiag.report.formats.table import LEAST_WIDTH, STYLES, Page
from gpudiag.text import listed, one_line

SUFFIX = ""
SEPARATOR = " · "
HEIGHT = 23
"""Lines of a small terminal above the prompt, within which the fix of the first cause stands at the end."""
SAME = "for the same reason"
_MOST_MACHINE_LINES = 2
_MOST_EVIDENCE = 2
_MOST_EVIDENCE_LINES = 2
_MOST_NAMES = 6
_WORDS = {"fail": "FAIL", "broken": "BROKEN"}
_STATUS = 9
"""Columns of a status below its area."""


def render(report: Report, *, width: int, color: bool, verbose: bool, head: bool = False) -> str:
    """Return the screen, no line wider than ``width`` columns but commands and addresses.

    ``verbose``: the whole table above the answer, and all evidence in it. ``head``: no areas.
    """
    width = max(width, LEAST_WIDTH)
    page, answer = Page(width, color=color), Page(width, color=color)
    _answer(answer, report, verbose=verbose, head=head)
    if verbose or report.program is not None or report.is_log_alone:
        table.add_header(page, report)
    else:
        _machine(page, report)
    table.add_program(page, report, verbose=verbose)
    if not head and report.program is None:
        if verbose:
            table.add_rows(page, report, verbose=True)
            table.add_gaps(page, report)
        else:
            _areas(page, report)
    page.add_codes(answer)
    table.add_changes(page, report)
    page.extend(answer)
    return page.text()


def _machine(page: Page, report: Report) -> None:
    """Add the machine, in two lines if they are long enough for its names, and what the reader must know about the
    run."""
    lines = _filled(words.machine_in_brief(report), page.width)
    if len(lines) > _MOST_MACHINE_LINES:
        lines = _filled(words.machine_in_brief(report, is_short=True), page.width)
    for line in lines:
        page.add(line, "bold")
    for heading, text in words.about_the_run(report):
        page.add(text, "dim", lead=f"{heading}  ", lead_style="dim")
    page.blank()


def _filled(parts: Iterable[str], width: int) -> list[str]:
    """Return the parts on as few lines as they need, none wider than ``width`` if no part is."""
    lines: list[str] = []
    for part in map(one_line, parts):
        if lines and len(longer := f"{lines[-1]}{SEPARATOR}{part}") <= width:
            lines[-1] = longer
        else:
            lines.append(part)
    return lines


def _areas(page: Page, report: Report) -> None:
    """Add a line for each area, and below it what did not pass."""
    if not report.rows:
        return
    widest = max(len(one_line(area)) for area in report.areas)
    reported = _Reported()
    for area, rows in report.areas.items():
        page.add(_counts(rows, reported), lead=f"  {one_line(area):<{widest}}  ", lead_style="bold")
        for group in _groups(report, rows):
            _add_group(page, report, rows, group, reported)
        if area == LOAD:
            table.add_load(page, report, verbose=False, indentation="    ")
    if gaps := words.not_verified(report):
        page.blank()
        page.add(one_line(gaps), "dim")
    page.blank()


def _counts(rows: Sequence[Row], reported: _Reported) -> str:
    """Return how many rows of an area have each outcome, and once why rows did not run."""
    ran = [row for row in rows if not isinstance(row.outcome, Skipped | Interrupted)]
    reasons = Counter((row.status, words.figure(row)) for row in rows if row not in ran)
    left_out = [
        f"{number} {status} ({SAME if reason in reported.skips and len(reason) > len(SAME) else reason})"
        for (status, reason), number in reasons.items()
    ]
    reported.skips += (reason for _, reason in reasons)
    return ", ".join(filter(None, [words.counts(ran), *left_out]))


class _Problem(NamedTuple):
    """What a row that did not pass shows: findings of one kind, or why it broke."""

    row: Row
    status: str
    text: str
    finding: Finding | None
    cause: RootCause | None

    @property
    def key(self) -> tuple[object, ...]:
        """Problems with the same key have one reason."""
        if self.cause is not None:
            return (self.status, self.cause.cause_id, self.cause.cause)
        return (self.status, _error(self.finding) or self.text, words.advice(self.finding) if self.finding else "")


def _groups(report: Report, rows: Iterable[Row]) -> list[list[_Problem]]:
    """Return the problems of an area, those of one reason together."""
    groups: dict[tuple[object, ...], list[_Problem]] = {}
    for row in rows:
        for problem in _problems(report, row):
            groups.setdefault(problem.key, []).append(problem)
    return list(groups.values())


def _error(finding: Finding | None) -> str:
    """Return the error of a library or of the driver that a finding is about, if it is nothing but that."""
    return str(finding.figures.get("error") or "") if finding is not None and not finding.fix else ""


def _problems(report: Report, row: Row) -> Iterator[_Problem]:
    if isinstance(row.outcome, Broken):
        yield _Problem(row, "broken", words.figure(row), None, words.reason_for(report, row))
    alike: dict[tuple[object, ...], list[Finding]] = {}
    for finding in row.findings:
        alike.setdefault((finding.kind, finding.severity, words.advice(finding), _error(finding)), []).append(finding)
    for first, *more in alike.values():
        message = one_line(first.message)
        text = f"{words.figure(row)}: {message} (and {len(more)} more)" if more else message
        yield _Problem(row, first.severity.value, text, first, words.reason_for(report, row, first))


class _Reported:
    """The causes, the reasons for which rows did not run, and the advice that stand on the page already."""

    def __init__(self) -> None:
        self.reasons: list[object] = []
        self.skips: list[str] = []
        self.advice: list[str] = []


def _add_group(page: Page, report: Report, area: Sequence[Row], group: list[_Problem], reported: _Reported) -> None:
    """Add problems of one reason: the names of their rows, the reason, and the advice unless a cause has it."""
    first = group[0]
    names = _names(report, area, [problem.row for problem in group])
    word = _WORDS.get(first.status, first.status)
    text = first.text
    if (reason := first.cause or _error(first.finding)) in reported.reasons:
        text = SAME
    elif reason:
        reported.reasons.append(reason)
        text = "for the reason below" if first.cause and text == one_line(first.cause.cause) else text
    page.add(f"{names}: {text}", lead=f"    {word:<{_STATUS}}", lead_style=STYLES[first.status])
    indentation = " " * (4 + _STATUS)
    if first.finding is None and first.cause is None:
        for logged in words.log_lines(first.row, verbose=False):
            page.add(logged, "dim", lead=f"{indentation}| ", lead_style="dim")
    if first.finding is None or first.cause is not None:
        return
    accepted = first.finding.accepted is not None
    if (accepted or first.finding.severity is not Severity.NOTE) and words.advice(first.finding) not in reported.advice:
        reported.advice.append(words.advice(first.finding))
        for line in words.advice_lines(report, first.finding):
            page.add(line.text, lead=f"{indentation}{'-> ' if line.heading else '   '}", whole=line.is_copied)


def _names(report: Report, area: Sequence[Row], rows: list[Row]) -> str:
    """Return the names of rows, with their GPUs where a probe has several rows."""
    several = {row.probe for row in area if sum(other.probe == row.probe for other in area) > 1}
    names = [
        one_line(f"{row.name} ({report.device_label(row)})" if row.probe in several else row.name)
        for number, row in enumerate(rows)
        if not any(row is earlier for earlier in rows[:number])
    ]
    return listed(names, _MOST_NAMES)


def _answer(page: Page, report: Report, *, verbose: bool, head: bool) -> None:
    """Add the causes, the first one last, then what to run again, and the counts."""
    diagnosis = report.diagnosis
    causes = sorted(diagnosis.causes, key=lambda cause: not words.is_failure(report, cause))
    settled = causes[0].confidence is Confidence.PROVED if causes else report.facts.without_gpu
    of_logs = verbose or bool(report.lines) or not settled
    others = words.others(diagnosis, of_logs=of_logs)
    if not causes and (heading := words.headline(report) or (words.NO_CAUSE if head else "")):
        page.add(heading, "bold")
    if verbose and diagnosis.steps and report.program is None and not report.is_log_alone:
        page.add(words.steps(report), "dim", lead=_lead("stages"), lead_style="dim")
    for line in others:
        page.add(line.text, "dim", lead=_lead(line.heading), lead_style="dim", whole=line.is_copied)
    if causes and report.program is not None:
        page.add(words.headline(report), "bold")
    if causes and (others or report.program is not None):
        page.blank()
    for cause in reversed(causes[1:]):
        _cause(page, report, cause, verbose=verbose, whole=verbose)
        page.blank()
    last = Page(page.width, color=page.color)
    _again(last, report, head=head)
    if causes:
        _cause(page, report, causes[0], words.opening(report, causes[0]), verbose=verbose, room=HEIGHT - last.height)
    page.extend(last)


def _cause(
    page: Page,
    report: Report,
    cause: RootCause,
    opening: str = "",
    *,
    verbose: bool,
    whole: bool = True,
    room: int = HEIGHT,
) -> None:
    """Add a cause on one line, its evidence and its actions; ``whole``: with evidence and address.

    Unless ``verbose``, the first action and what follows fit in ``room`` lines.
    """
    is_said = bool(opening) and cause.confidence is not Confidence.PROVED
    sentence = cause.cause if opening else words.sentence(cause.cause)
    text = f"{opening}{sentence} ({'' if is_said else f'{cause.confidence.value}, '}{cause.cause_id})"
    page.add(one_line(text), "bold red" if words.is_failure(report, cause) else "bold yellow")
    _, *lines = words.cause(cause)
    evidence = [line for line in lines if line.heading == "seen"] if whole else []
    left_out = ("seen",) if whole else ("seen", "see", "note")
    actions = [line for line in lines if line.heading not in left_out]
    shown = evidence if verbose else evidence[:_MOST_EVIDENCE]
    for line in shown:
        page.add(line.text, "dim", lead=_lead("seen"), lead_style="dim", most=None if verbose else _MOST_EVIDENCE_LINES)
    if more := len(evidence) - len(shown):
        page.add(f"and {more} more: -v shows all", "dim", lead=_lead(""))
    below = Page(page.width, color=page.color)
    for line in actions:
        before = len(below)
        style = "bold" if line.is_copied else "" if line.heading else "dim"
        below.add(line.text, style, lead=_lead(line.heading), lead_style="dim", whole=line.is_copied)
        if not verbose and before and below.height > room:
            below.cut(before)
            below.add("-v shows the rest", "dim", lead=_lead("more"), lead_style="dim")
            break
    page.extend(below)


def _lead(heading: str) -> str:
    return f"  {heading:<7} "


def _again(page: Page, report: Report, *, head: bool) -> None:
    """Add what to do next, and the line of counts."""
    step = words.next_of(report)
    if step.command and report.diagnosis.causes:
        page.add(step.command, "bold", lead=_lead("again"), lead_style="dim", whole=True)
    elif step.text and not head and (report.verdict is Verdict.PASS or not report.diagnosis.causes):
        page.add_advice(step.pieces)
    verdict = words.verdict(report)
    for line in _last_lines(report, page.width, head=head):
        page.add(line, STYLES.get(verdict, "bold"))


def _last_lines(report: Report, width: int, *, head: bool) -> list[str]:
    """Return the last line, and above it what it has no room for; ``head``: that of ``gpudiag why``."""
    first = [] if head else [words.verdict(report)]
    rest = words.after_counts(report, head=head)
    choices = [
        (above, SEPARATOR.join([*first, counts, *rest])) for above, counts in words.counts_by_length(report, head=head)
    ]
    above, line = next((choice for choice in choices if len(choice[1]) <= width), choices[-1])
    return [*filter(None, [above]), line]
