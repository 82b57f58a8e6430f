"""The table of a fleet, for the terminal: the last lines are above the prompt, so the worst comes last.

From the top: what drifts and what changed, odd figures, the groups of nodes from PASS to the largest one that fails,
each with what its nodes have in common, then what to do, and the counts.
"""

from __future__ import annotations

from gpudiag.model.fleet import FleetReport, Group, NodeVerdict
from gpudiag.report.fleet import words
from gpudiag.report.fleet.together import add_together
from gpudiag.report.formats.table import LEAST_WIDTH, Page
from gpudiag.text import counted, one_line

SUFFIX = ".txt"
STYLES = {
    NodeVerdict.FAIL: "bold red",
    NodeVerdict.FLAKY: "bold red",
    NodeVerdict.BROKEN: "bold magenta",
    NodeVerdict.NOT_VERIFIED: "bold yellow",
    NodeVerdict.NO_REPORT: "bold yellow",
    NodeVerdict.PASS: "bold green",
}
_MOST_GROUPS = 12
"""The most groups of one verdict."""
_MOST_ROWS = 6
"""The most odd figures, facts that drift and changes."""
_MOST_ACTIONS = 4
_MOST_LAST_LINES = 3
_NODES_LINES = 2
"""The most lines of folded names of nodes."""
_TEXT_LINES = 2
_MOST_VALUES = 3
_REST = "the rest is in the JSON"
_INDENT = "  "


def render(report: FleetReport, *, width: int, color: bool) -> str:
    """Return the table, no line wider than ``width`` columns but commands."""
    page = Page(max(width, LEAST_WIDTH), color=color)
    _head(page, report)
    _drift(page, report)
    _outliers(page, report)
    _changes(page, report)
    _groups(page, report)
    _actions(page, report)
    if report.together is not None:
        add_together(page, report.together)
    _expectations(page, report)
    for note in report.notes:
        page.add(one_line(note), "dim", lead="note  ", lead_style="dim", most=_TEXT_LINES)
    verdicts = [NodeVerdict(verdict) for verdict in report.counts]
    page.add(words.counts(report), STYLES[NodeVerdict.FAIL if report.unmet else _worst(verdicts)])
    return page.text()


def _worst(verdicts: list[NodeVerdict]) -> NodeVerdict:
    return min(verdicts, key=list(NodeVerdict).index, default=NodeVerdict.NO_REPORT)


def _head(page: Page, report: FleetReport) -> None:
    page.add(f"{words.title(report)} · {one_line(report.origin)}", "bold", most=2)
    if simulation := words.simulation(report):
        page.add(simulation, "bold yellow")
    page.blank()


def _drift(page: Page, report: FleetReport) -> None:
    """Add each fact in which nodes differ from the majority."""
    if not report.drift:
        return
    page.add("Drift: most nodes have one value, and these differ", "bold")
    for differing in report.drift[:_MOST_ROWS]:
        majority = f"{words.value(differing.majority)} on {counted(differing.number, 'node', ',')}"
        page.add(majority, lead=f"{_INDENT}{one_line(differing.fact)}  ", lead_style="bold", most=_TEXT_LINES)
        for value, nodes, number in words.drift_values(differing, _MOST_VALUES):
            _names(page, f"{value} on {number:,}", nodes, _INDENT * 2)
        if beside := words.drift_beside(differing):
            page.add(beside, "dim", lead=_INDENT * 2, most=_TEXT_LINES)
    _rest(page, len(report.drift))


def _outliers(page: Page, report: FleetReport) -> None:
    if not report.outliers:
        return
    for model, odd_figures in words.outliers_by_model(report).items():
        page.add(f"Odd figures among {model}", "bold")
        for odd in odd_figures[:_MOST_ROWS]:
            page.add(words.outlier(odd), lead=_INDENT, most=_TEXT_LINES)
        _rest(page, len(odd_figures))


def _changes(page: Page, report: FleetReport) -> None:
    """Add the changes since an older run: facts, figures, and verdicts, those for the worse last."""
    if not report.against:
        return
    something = report.changes or report.fact_changes or any(change.counts for change in report.figure_changes)
    lead = "Changed since" if something else "Nothing changed since"
    page.add(f"{lead} {one_line(report.against)}", "bold", most=_TEXT_LINES)
    for fact in report.fact_changes[:_MOST_ROWS]:
        page.add(words.fact_change(fact), lead=_INDENT, most=_TEXT_LINES)
        if fact.kept_number:
            _names(page, f"still {words.value(fact.old)} on {fact.kept_number:,}", fact.kept, _INDENT * 2)
    _rest(page, len(report.fact_changes), ends=False)
    figures = [change for change in report.figure_changes if change.counts]
    for change in figures[:_MOST_ROWS]:
        lead = f"{_INDENT}{'worse' if change.worse else '':5}  "
        page.add(words.figure_change(change), lead=lead, lead_style="bold red", most=_TEXT_LINES)
    _rest(page, len(figures), ends=False)
    _rest(page, len(report.changes), ends=False)
    shown = report.changes[:_MOST_ROWS]
    numbers = max((len(f"{change.number:,}") for change in shown), default=1)
    for node_change in reversed(shown):
        text = one_line(f"{node_change.old} -> {node_change.new}")
        lead = f"{_INDENT}{'worse' if node_change.worse else '':5}  {node_change.number:>{numbers},}  "
        _names(page, text, node_change.nodes, lead, "bold red")
    page.blank()


def _rest(page: Page, number: int, *, ends: bool = True) -> None:
    """Say how many more there are, and unless more follows end the block."""
    if number > _MOST_ROWS:
        page.add(f"and {number - _MOST_ROWS:,} more: {_REST}", "dim", lead=_INDENT)
    if ends:
        page.blank()


def _names(page: Page, text: str, nodes: str, lead: str, style: str = "") -> None:
    """Add a text and behind it as many folded names as the line has room for, or on the next line if that is little."""
    room = page.width - len(lead) - len(text) - 2
    if not nodes:
        page.add(text, lead=lead, lead_style=style, most=_TEXT_LINES)
    elif room >= min(len(nodes), LEAST_WIDTH):
        page.add(f"{text}: {words.shortened(nodes, room)}", lead=lead, lead_style=style, most=_TEXT_LINES)
    else:
        page.add(f"{text}:", lead=lead, lead_style=style, most=_TEXT_LINES)
        page.add(words.shortened(nodes, max(page.width - len(lead), LEAST_WIDTH)), lead=" " * len(lead), most=1)


def _groups(page: Page, report: FleetReport) -> None:
    """Add the groups, the worst and largest last."""
    numbers = max((len(f"{group.number:,}") for group in report.groups), default=1)
    verdicts = max((len(group.verdict.value) for group in report.groups), default=1)
    for verdict in reversed(NodeVerdict):
        groups = [group for group in report.groups if group.verdict is verdict]
        if rest := groups[_MOST_GROUPS:]:
            number = sum(group.number for group in rest)
            text = f"{number:,} nodes for {counted(len(rest), 'other reason', ',')}: {_REST}"
            page.add(text, "dim", lead=f"{verdict.value:<{verdicts}}  ", lead_style=STYLES[verdict])
        for group in reversed(groups[:_MOST_GROUPS]):
            _group(page, report, group, f"{verdict.value:<{verdicts}}  {group.number:>{numbers},}  ")
    shown = {group.label for group in report.groups}
    for separation in report.separations[:_MOST_ROWS]:
        if separation.label not in shown:  # a further cause of nodes that are in a group of another
            page.add(f"{one_line(separation.label)}: {words.in_common(separation)}", lead=_INDENT)
    page.blank()


def _group(page: Page, report: FleetReport, group: Group, lead: str) -> None:
    """Add a group: its nodes and reason, a sentence of one of them, and what they have in common."""
    room = max(page.width - len(lead), LEAST_WIDTH)
    label = "" if group.label == group.verdict.value.lower() else one_line(group.label)
    nodes = words.in_lines(group.nodes, room, 1 if group.verdict is NodeVerdict.PASS else _NODES_LINES)
    page.add(f"{nodes}  {label}".rstrip(), lead=lead, lead_style=STYLES[group.verdict], most=_NODES_LINES + _TEXT_LINES)
    below = " " * min(len(lead), 6) if group.verdict is NodeVerdict.PASS else " " * len(lead)
    if group.verdict is NodeVerdict.NO_REPORT:
        _last_lines(page, report, group, below)
    elif group.verdict is NodeVerdict.FLAKY and (order := words.attempts(report, group)):
        page.add(f"{order}: {one_line(group.text)}", "dim", lead=below, most=_TEXT_LINES)
    elif group.text:
        page.add(one_line(group.text), "dim", lead=below, most=_TEXT_LINES)
    for separation in report.separations:
        if separation.label == group.label and group.verdict is not NodeVerdict.PASS:
            page.add(words.in_common(separation), "bold", lead=below, most=_TEXT_LINES + 1)


def _last_lines(page: Page, report: FleetReport, group: Group, indentation: str) -> None:
    """Add the last line that was seen of some nodes; nodes with the same one share it."""
    seen: dict[str, list[str]] = {}
    for row in words.with_last_lines(report):
        if row.label == group.label:
            seen.setdefault(one_line(row.text), []).append(one_line(row.node))
    for text, nodes in list(seen.items())[:_MOST_LAST_LINES]:
        who = nodes[0] if len(nodes) == 1 else f"{nodes[0]} and {len(nodes) - 1:,} more"
        page.add(f"{who}: {text}", "dim", lead=indentation, most=_TEXT_LINES)
    if len(seen) > _MOST_LAST_LINES:
        page.add(f"and {len(seen) - _MOST_LAST_LINES:,} other last lines: {_REST}", "dim", lead=indentation)


def _actions(page: Page, report: FleetReport) -> None:
    """Add what has to be done, what most nodes need last."""
    if not report.actions:
        return
    shown = report.actions[:_MOST_ACTIONS]
    page.add("To do", "bold")
    if len(report.actions) > len(shown):
        page.add(f"and {len(report.actions) - len(shown):,} more kinds: {_REST}", "dim", lead=_INDENT)
    for asked in reversed(shown):
        _names(page, f"{words.action(asked)} ({counted(asked.number, 'node', ',')})", asked.nodes, _INDENT)
        for line, is_command, nodes in words.texts(asked):
            page.add(line, "bold" if is_command else "", lead=_INDENT * 2, whole=is_command)
            if nodes:
                page.add(f"on {nodes}", "dim", lead=_INDENT * 3)
    page.blank()


def _expectations(page: Page, report: FleetReport) -> None:
    """Add the expectations that are not met, and how many are."""
    if not report.expected_by:
        return
    for text in report.met:
        page.add(one_line(text), "dim", lead="met    ", lead_style="green", most=_TEXT_LINES)
    for text in report.unmet:
        page.add(one_line(text), lead="UNMET  ", lead_style="bold red", most=_TEXT_LINES + 1)
    page.blank()
