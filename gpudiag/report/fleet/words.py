"""Texts that several formats of a fleet's report share. What comes from nodes is made one line here."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from gpudiag.fix import Kind
from gpudiag.model.fleet import (
    ActionSum,
    Drift,
    FactChange,
    FigureChange,
    FleetReport,
    Group,
    NodeRow,
    NodeVerdict,
    Outlier,
    Separation,
)
from gpudiag.report import load
from gpudiag.text import counted, listed, one_line

STATUSES = {
    NodeVerdict.FAIL: "fail",
    NodeVerdict.FLAKY: "warning",
    NodeVerdict.BROKEN: "broken",
    NodeVerdict.NOT_VERIFIED: "skipped",
    NodeVerdict.NO_REPORT: "interrupted",
    NodeVerdict.PASS: "pass",
}
"""The outcome of a probe whose colour and sign a verdict has."""

_PLACES = {
    "host": "on the host",
    "image": "in the image",
    "program": "in the program",
    "scheduler": "in the job",
}
_KINDS = {"command": "run a command"}
CUT = " ..."
"""The end of a list of names that was cut."""
_MOST_VALUES = 6
_MOST_LETTERS = 200
"""The most characters of one value of a fact."""


def title(report: FleetReport) -> str:
    """Return what was checked, in a line."""
    engine = f" by {one_line(report.engine)}" if report.engine else ""
    return f"gpudiag fleet {one_line(report.gpudiag_version)}: {counted(report.asked, 'node', ',')}{engine}"


def simulation(report: FleetReport) -> str:
    """Return how many nodes had simulated GPUs; "" if none."""
    if not report.simulated:
        return ""
    return f"SIMULATED GPUs on {counted(report.simulated, 'node', ',')}: nothing here is about real ones"


def counts(report: FleetReport) -> str:
    """Return how many nodes have each verdict, and the exit status."""
    parts = [f"{number:,} {verdict}" for verdict, number in report.counts.items()]
    return one_line(" · ".join([counted(report.asked, "node", ","), *parts, f"exit {report.exit_code}"]))


def shortened(nodes: str, most: int) -> str:
    """Return folded names, cut between two of them if they have more than ``most`` characters."""
    text = one_line(nodes)
    if len(text) <= most:
        return text
    room = max(most - len(CUT), 1)
    head, comma, _ = text[:room].rpartition(",")
    return f"{head}{comma}{CUT}" if comma else f"{text[:room]}{CUT}"


def in_lines(nodes: str, width: int, most: int) -> str:
    """Return folded names with a blank after the comma at which each line of ``width`` characters ends; at most so
    many lines, and the last one shows that names were cut."""
    lines: list[str] = []
    rest = one_line(nodes)
    while len(lines) + 1 < most and len(rest) > width:
        head, comma, _ = rest[:width].rpartition(",")
        line = f"{head}{comma}" if comma else rest[:width]
        lines.append(line)
        rest = rest[len(line) :]
    return " ".join([*lines, shortened(rest, width)])


def with_last_lines(report: FleetReport) -> list[NodeRow]:
    """Return the nodes without a report of which something was heard."""
    return [row for row in report.rows if row.verdict is NodeVerdict.NO_REPORT and one_line(row.text)]


def attempts(report: FleetReport, group: Group) -> str:
    """Return what most nodes of a group had in turn, such as ``FAIL, then PASS``; "" if all were asked once."""
    same = [row for row in report.rows if (row.verdict, row.label) == (group.verdict, group.label)]
    orders = Counter(", then ".join(row.attempts) for row in same if row.attempts)
    if not orders:
        return ""
    ((order, number),) = orders.most_common(1)
    return one_line(order if number == group.number else f"{order} on {number:,} of {group.number:,}")


def facts(pairs: Iterable[tuple[str, str]], joined: str = " and ") -> str:
    """Return facts and their values, such as ``driver 550.54 and rack r7``."""
    return joined.join(f"{one_line(name)} {value(text)}" for name, text in pairs)


def value(text: str) -> str:
    """Return the value of a fact, cut if it is long."""
    shown = one_line(text)
    return f"{shown[:_MOST_LETTERS]}..." if len(shown) > _MOST_LETTERS else shown or "(empty)"


def in_common(separation: Separation) -> str:
    """Return what nodes with a cause have in common, with counts of those nodes and of all others."""
    others_with = separation.with_facts - separation.bad_with
    common = (
        f"{separation.bad_with:,} of {separation.bad:,} have in common: {facts(separation.facts)} "
        f"({others_with:,} of {separation.others:,} others have it)"
    )
    return "; ".join([common, *beside(separation)])


def beside(separation: Separation) -> list[str]:
    """Return what else is true of the nodes of a separation: facts, causes, and facts that fit nearly as well."""
    lines = []
    if separation.same:
        lines.append(f"the same nodes have {names(separation.same)}")
    if separation.same_labels:
        lines.append(f"the same nodes have the cause {names(separation.same_labels)}")
    if separation.near:
        near = [
            f"{facts([(fact.fact, fact.value)])} ({fact.bad_with:,} of {separation.bad:,})" for fact in separation.near
        ]
        lines.append(f"nearly as well: {names(near)}")
    return lines


def names(texts: Sequence[str]) -> str:
    """Return names of facts as part of a sentence."""
    return listed([one_line(text) for text in texts])


def probability(p: float) -> str:
    """Return a probability as people write it."""
    return "< 0.001" if p < 0.001 else f"{p:.3f}"


def figure(name: str, number: float) -> str:
    """Return a figure of a GPU with its unit."""
    if load.is_work(name):
        return f"{load.number(load.in_unit(name, number))} {load.unit(name)}"
    return f"{number:,.4g}"


def outlier(odd: Outlier) -> str:
    """Return a figure that is far from those of other GPUs of its model."""
    also = f"; odd too: {names(odd.also)}" if odd.also else ""
    value = f"{odd_value(odd)}{'' if _is_relative(odd) else ','} {deviation(odd)}"
    return f"{one_line(odd.node)} GPU {odd.gpu}: {one_line(odd.figure)} {value}{also}"


def odd_value(odd: Outlier) -> str:
    """Return an odd figure; rates of simulated GPUs are those of their host, so they are parts of the median."""
    if _is_relative(odd):
        return percent(odd.value / odd.median)
    return figure(odd.figure, odd.value)


def deviation(odd: Outlier) -> str:
    """Return the median of the model, and by which part of it a figure differs."""
    among = f" of {odd.number:,} GPUs" if odd.number else ""
    if _is_relative(odd):
        return f"of the median{among}"
    part = f" ({percent((odd.value - odd.median) / odd.median, sign='+')})" if odd.median else ""
    return f"median{among} {figure(odd.figure, odd.median)}{part}"


def _is_relative(odd: Outlier) -> bool:
    return odd.model.startswith("Simulated") and load.is_work(odd.figure) and bool(odd.median)


def percent(part: float, *, sign: str = "") -> str:
    return f"{100 * part:{sign}.{1 if abs(part) < 0.1 else 0}f} %"


def outliers_by_model(report: FleetReport) -> dict[str, list[Outlier]]:
    """Return the odd figures of each model of GPU."""
    found: dict[str, list[Outlier]] = {}
    for odd in report.outliers:
        found.setdefault(one_line(odd.model), []).append(odd)
    return found


def drift_values(differing: Drift, most: int = _MOST_VALUES) -> list[tuple[str, str, int]]:
    """Return the values that differ from the majority, the nodes that have them and their number; the last of many
    stands for the rest."""
    shown = list(differing.others[:most])
    rest = differing.others[most:]
    found = [(value(text), one_line(nodes), number) for text, nodes, number in shown]
    if rest:
        found.append((counted(len(rest), "more value", ","), "", sum(number for _, _, number in rest)))
    return found


def drift_beside(differing: Drift) -> str:
    """Return which nodes were compared, and what else is different on those that differ; "" if nothing is to say."""
    among = f"among nodes with {one_line(differing.among)}" if differing.among else ""
    same = f"the same nodes differ in {names(differing.same)}" if differing.same else ""
    return "; ".join(filter(None, (among, same)))


def fact_change(change: FactChange) -> str:
    """Return a fact that changed in the same way on many nodes, and the nodes on which it did not."""
    text = (
        f"{one_line(change.fact)} {value(change.old)} -> {value(change.new)} on {change.number:,} of "
        f"{counted(change.had, 'node', ',')}"
    )
    if change.same:
        text += f"; with it {names(change.same)}"
    return text


def figure_change(change: FigureChange) -> str:
    """Return a figure of the GPUs of a model before and after."""
    name = one_line(change.figure)
    simulated = change.model.startswith("Simulated") and load.is_work(change.figure)
    values = "" if simulated else f" {figure(change.figure, change.old)} -> {figure(change.figure, change.new)},"
    noise = "" if change.counts else ", within noise"
    return (
        f"{one_line(change.model)}: {name}{values} {percent(change.change, sign='+')} ± {percent(change.error)} of "
        f"{counted(change.number, 'GPU', ',')}{noise}"
    )


def action(asked: ActionSum) -> str:
    """Return the kind of an action, and the place where it has to be done unless that is the node itself."""
    kind = one_line(_KINDS.get(asked.kind, asked.kind))
    if asked.kind == Kind.NONE:
        kind = "check" if any(text.is_command for text in asked.texts) else "to know"
    place = "" if asked.kind == Kind.EDIT_PROGRAM else _PLACES.get(asked.where, "")
    return f"{kind} {place}".rstrip()


def group_of(report: FleetReport, label: str) -> Group | None:
    """Return the group of nodes whose first cause is ``label``."""
    return next((group for group in report.groups if group.label == label), None)


def headline(report: FleetReport) -> str:
    """Return the state of the fleet in a sentence."""
    bad = {
        NodeVerdict.FAIL: "failed",
        NodeVerdict.FLAKY: "passed only once of two times",
        NodeVerdict.BROKEN: "broke a check",
        NodeVerdict.NOT_VERIFIED: "verified nothing",
        NodeVerdict.NO_REPORT: "gave no report",
    }
    parts = [f"{number:,} {bad[verdict]}" for verdict in bad if (number := report.counts.get(verdict.value, 0))]
    if not report.asked:
        return "No node was asked for"
    if not parts:
        return f"{'The only node' if report.asked == 1 else f'All {report.asked:,} nodes'} passed"
    return f"{counted(report.asked, 'node', ',')}: {', '.join(parts)}"


def status(report: FleetReport) -> str:
    """Return the outcome of a probe whose colour the whole fleet has."""
    worst = next((verdict for verdict in NodeVerdict if report.counts.get(verdict.value, 0)), NodeVerdict.NO_REPORT)
    return "fail" if report.unmet else STATUSES[worst]


def texts(asked: ActionSum) -> list[tuple[str, bool, str]]:
    """Return what is to be done: a command or a sentence, whether it is a command, and for how many nodes, if not for
    all of them."""
    return [
        (line, text.is_command, counted(text.number, "node", ",") if text.number < asked.number else "")
        for text in asked.texts
        if (line := one_line(text.text))
    ]
