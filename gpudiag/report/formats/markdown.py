"""Markdown as GitHub reads it: for an issue, a pull request or a page."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from gpudiag.knowledge.codes import meanings
from gpudiag.model.report import Report, Row
from gpudiag.report import accounts, changes, program, words
from gpudiag.text import one_line, plain

_MARKUP = re.compile(r"[\\`*|<>\[\]~&$]|(?<!\w)_|_(?!\w)")
# A backslash does not help against these: GitHub looks for them in the text that is shown. A comment splits it.
_CALLS = re.compile(r"@(?=\w)|#(?=\d)|\b(?:GH-(?=\d)|[A-Za-z][A-Za-z+.-]{1,15}:(?=//)|www(?=\.))", re.ASCII)
_OURS = re.compile(r"https://[\w./#?=&%:+,~-]+", re.ASCII)
_HEADERS = ("outcome", "probe", "device", "time", "measured")
_ALIGNMENT = ("left", "left", "left", "right", "left")


SUFFIX = ".md"


def render(report: Report, *, verbose: bool, head: bool = False, **_: object) -> str:
    """Return the report as GitHub-flavoured Markdown; ``head``: only what was looked at and the diagnosis."""
    if head or report.program is not None:
        heading = words.headline(report) or words.NO_CAUSE
        about = [f"- {name}: {escaped_text(text)}" for name, text in words.machine(report)]
        blocks = list(_diagnosis(report)) or [f"## {escaped_text(heading)}"]
        return page([*blocks, *_since(report), "\n".join(about), *_program(report, verbose)])
    rows = [row for rows in report.areas.values() for row in rows]
    alike = [] if verbose else words.alike(rows)
    together = [row for same in alike for row in same]
    findings = [item for same in alike for item in _of_alike(report, same)]
    findings += [item for row in rows if row not in together for item in _findings(report, row, verbose=verbose)]
    placed = {words.label(report, row): words.evidence(row) for row in rows}
    ran = [f"- {code(label)}: {escaped_text(evidence)}" for label, evidence in placed.items() if evidence]
    banner = words.simulation(report)
    blocks = [
        f"# gpudiag: {report.verdict.value}",
        f"> **{escaped_text(banner)}**" if banner else "",
        f"{report.verdict.value}: {words.summary(report)}",
        escaped_text(accounts.summary(report)),
        escaped_text(words.next_step(report)),
        "\n".join(f"- {heading}: {escaped_text(text)}" for heading, text in words.machine(report)),
        f"gpudiag {escaped_text(report.gpudiag_version)}, {escaped_text(words.started(report))}",
        *_diagnosis(report),
        *_since(report),
        *(["## Probes", _table(report, rows)] if rows else []),
        *(["## Findings", "\n".join(findings)] if findings else []),
        *_load(report),
        *(_cells(report, row) for row in rows if words.table(row, verbose=verbose)),
        *_not_verified(report),
        *(["## Where operations ran", "\n".join(ran)] if ran and verbose else []),
    ]
    return page(filter(None, blocks))


def page(blocks: Iterable[str]) -> str:
    """Return the blocks, and the meanings of codes that they mention without one."""
    text = "\n\n".join(blocks)
    codes = [f"- {code(name)}: {escaped_text(meaning)}" for name, meaning in meanings(_read(text)).items()]
    return plain("\n\n".join([text, *(["## Codes", "\n".join(codes)] if codes else [])]) + "\n")


def _read(text: str) -> str:
    """Return Markdown without the escapes of :func:`escaped_text`."""
    return re.sub(r"\\(?=[\\`*|<>\[\]~&$_])", "", text)


def _diagnosis(report: Report) -> Iterator[str]:
    """Yield the blocks of the diagnosis; none if it is empty."""
    heading = words.headline(report)
    if not heading:
        return
    yield f"## {escaped_text(heading)}"
    diagnosis = report.diagnosis
    if diagnosis.causes and not report.is_log_alone and report.program is None:
        yield escaped_text(words.steps(report))
    for cause in diagnosis.causes:
        first, *rest = words.cause(cause, is_titled=words.is_titled(report, cause))
        yield "\n".join([f"- **{escaped_text(first.text)}**", *map(_line, rest)])
    if other := words.others(diagnosis):
        yield "\n".join(_line(line).removeprefix("  ") if line.heading else _line(line) for line in other)


def _not_verified(report: Report) -> Iterator[str]:
    """Yield the parts that the run did not verify."""
    if report.not_verified:
        yield "## Not verified"
        yield "\n".join(f"- {escaped_text(words.gap(gap))}" for gap in report.not_verified)


def _program(report: Report, verbose: bool) -> Iterator[str]:
    """Yield the actions of a traced program."""
    for heading, lines in program.sections(report.program, verbose=verbose) if report.program is not None else ():
        yield f"## {heading.capitalize()}"
        yield "\n".join(f"- {escaped_text(name)}: {escaped_text(text)}" for name, text in lines)


def _since(report: Report) -> Iterator[str]:
    """Yield the changes since the report that this one was compared with."""
    if report.since is not None:
        heading, lines = changes.in_head(report.since)
        yield f"## {escaped_text(heading)}"
        yield "\n".join(f"- {escaped_text(line)}" for line in lines)


def _table(report: Report, rows: list[Row]) -> str:
    from tabulate import tabulate

    cells = [
        (
            _outcome(row),
            escaped_text(row.probe),
            report.device_label(row),
            words.seconds(row),
            escaped_text(words.figure(row)),
        )
        for row in rows
    ]
    return tabulate(cells, _HEADERS, tablefmt="github", colalign=_ALIGNMENT, disable_numparse=True)


def _cells(report: Report, row: Row) -> str:
    from tabulate import tabulate

    headers, *lines = ([escaped_text(cell) for cell in line] for line in words.table(row, verbose=True))
    table = tabulate(lines, headers, tablefmt="github", disable_numparse=True)
    return f"## {code(words.label(report, row))}\n\n{table}"


def _load(report: Report) -> Iterator[str]:
    """Yield what each GPU did under load."""
    if not report.has_load:
        return
    from tabulate import tabulate

    from gpudiag.report import load

    for heading, cells in load.tables(report, verbose=True):
        headers, *lines = ([escaped_text(cell) for cell in line] for line in cells)
        yield escaped_text(f"{heading[0].upper()}{heading[1:]}:") if heading else "## Under load"
        yield tabulate(lines, headers, tablefmt="github", disable_numparse=True)
    yield from map(escaped_text, filter(None, (load.about_links(report), load.about_host(report))))


def _outcome(row: Row) -> str:
    return row.status if row.status in ("pass", "interrupted", "skipped") else f"**{row.status}**"


def _of_findings(report: Report, rows: list[Row]) -> Iterator[str]:
    """Yield a list item for each finding of the rows, which all have the same findings."""
    names = ", ".join(code(words.label(report, row)) for row in rows)
    for finding in rows[0].findings:
        yield f"- **{finding.severity.value}** {names}: {escaped_text(finding.message)} ({code(finding.kind)})"
        if advice := words.advice(finding):
            yield f"  - {escaped_text(advice)}"


def _of_alike(report: Report, rows: list[Row]) -> Iterator[str]:
    """Yield the items of rows that have the same findings, or that broke in the same way."""
    yield from _of_findings(report, rows)
    if rows[0].status == "broken":
        yield f"- **broken** {escaped_text(words.found_alike(rows))}"
        yield f"  - {', '.join(code(words.label(report, row)) for row in rows)}"


def _findings(report: Report, row: Row, *, verbose: bool) -> Iterator[str]:
    """Yield a list item for each finding of the row, and the reason if it broke."""
    yield from _of_findings(report, [row])
    if row.status == "broken":
        yield f"- **broken** {code(words.label(report, row))}: {escaped_text(words.figure(row))}"
    log = words.log_lines(row, verbose=verbose)
    if log:
        yield "\n".join(["", "  ~~~text", *(f"  {line.replace('~~~', '~ ~ ~')}" for line in log), "  ~~~"])


def code(text: str) -> str:
    """Return ``text`` on one line as code."""
    return f"`{one_line(text).replace('`', '')}`"


def escaped_text(text: str) -> str:
    """Return ``text`` on one line, written so that Markdown shows it unchanged, also in a table."""
    return _CALLS.sub(r"\g<0><!-- -->", _MARKUP.sub(r"\\\g<0>", one_line(text)))


def _address(text: str) -> str:
    """Return a documentation address as a link."""
    return f"<{text}>" if _OURS.fullmatch(text) else escaped_text(text)


def _line(line: words.Line) -> str:
    """Return a line about a cause: a command as code, and below it what is said about it as text."""
    if line.heading == "see":
        return f"  - see: {_address(line.text)}"
    text = code(line.text) if line.is_copied else escaped_text(line.text)
    return f"  - {line.heading}: {text}" if line.heading else f"    {text}"
