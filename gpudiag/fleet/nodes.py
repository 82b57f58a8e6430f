"""The nodes of a fleet as columns: what each answered, and which nodes have a fact, a cause or a figure.

One node after the other is added and forgotten, so that 100,000 fit: of a node there are a few words, and its number in
the columns of what it has.
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Iterable, Mapping

import msgspec

from gpudiag.fleet.sources import Source
from gpudiag.model.fleet import Answer, NodeRow, NodeVerdict, NoReport, Summary
from gpudiag.model.report import Verdict
from gpudiag.model.together import Witness

MOST_VALUES = 5000
_WORST_FIRST = list(NodeVerdict)


class NodeTable:
    """Every node that was asked for, in order, and what came back."""

    def __init__(self, asked: Iterable[str] = (), racks: Mapping[str, str] | None = None) -> None:
        self.names: list[str] = []
        self.number: dict[str, int] = {}
        self.facts: dict[tuple[str, str], array[int]] = {}
        """The numbers of the nodes that have a fact: by its name and value. A fact with more than :data:`MOST_VALUES`
        values tells nodes apart, not groups of them, and is left out."""
        self.labels: dict[str, array[int]] = {}
        """The numbers of the nodes that have a cause or a finding, whatever their verdict. A node that has it in
        several attempts is there several times."""
        self.figures: dict[tuple[str, str], tuple[array[int], array[int], array[float]]] = {}
        """By model of GPU and name of the figure: numbers of nodes, places of GPUs, values."""
        self.actions: dict[tuple[str, str, str], array[int]] = {}
        """The numbers of the nodes for which something has to be done: by the kind of the action, the place where it is
        done, and its command or, if it has none, its sentence. A node may be there several times."""
        self.simulated = 0
        """How many nodes have simulated GPUs."""
        self._values: Counter[str] = Counter()
        """The number of values of each fact; more than :data:`MOST_VALUES` if it was left out."""
        self.witnesses: dict[str, Witness] = {}
        """What each node saw of the others, if they trained together."""
        self._rows: list[NodeRow | None] = []
        self._racks = dict(racks or {})
        for name in asked:
            self._add_name(name)

    @classmethod
    def of(cls, source: Source) -> NodeTable:
        """Return the table of the answers of a source."""
        table = cls(source.asked, source.racks)
        for answer in source.answers:
            table.add(answer)
        return table

    def add(self, answer: Answer) -> None:
        """Take the answer of one attempt.

        Facts and figures are those of the node's first report, as every node was asked then and only some again. Causes
        and actions are those of all its reports: a node that is FLAKY failed for a reason, too.
        """
        number = self.number.get(answer.node)
        if number is None:
            number = self._add_name(answer.node)
        if answer.summary is not None and answer.summary.together is not None:
            self.witnesses[answer.node] = answer.summary.together
        before = self._rows[number]
        self._rows[number] = _row(answer, before)
        if answer.summary is not None:
            self._add_causes(number, answer.summary)
            if before is None or before.verdict is NodeVerdict.NO_REPORT:
                self._add_columns(number, answer.summary)

    def rows(self) -> tuple[NodeRow, ...]:
        """Return a row for each node; one that nothing is known of gave no answer."""
        return tuple(
            row or NodeRow(name, NodeVerdict.NO_REPORT, NoReport.NO_ANSWER, NoReport.NO_ANSWER.value)
            for name, row in zip(self.names, self._rows, strict=True)
        )

    def row(self, number: int) -> NodeRow:
        """Return the row of one node."""
        return self._rows[number] or NodeRow(
            self.names[number], NodeVerdict.NO_REPORT, NoReport.NO_ANSWER, NoReport.NO_ANSWER.value
        )

    def with_report(self) -> list[int]:
        """Return the numbers of the nodes that have a report."""
        return [number for number, row in enumerate(self._rows) if row is not None and row.reason is None]

    def _add_name(self, name: str) -> int:
        number = self.number.setdefault(name, len(self.names))
        if number == len(self.names):
            self.names.append(name)
            self._rows.append(None)
            if rack := self._racks.get(name):
                self._add_fact(number, "rack", rack)
        return number

    def _add_fact(self, number: int, name: str, value: str) -> None:
        column = self.facts.get((name, value))
        if column is not None:
            column.append(number)
            return
        self._values[name] += 1
        if self._values[name] <= MOST_VALUES:
            self.facts[name, value] = array("I", [number])
        elif self._values[name] == MOST_VALUES + 1:
            self.facts = {fact: numbers for fact, numbers in self.facts.items() if fact[0] != name}

    def _add_causes(self, number: int, summary: Summary) -> None:
        for label in labels_of(summary):
            self.labels.setdefault(label, array("I")).append(number)
        for action in summary.actions:
            key = (action.kind.value, action.where.value, action.command or action.clause)
            self.actions.setdefault(key, array("I")).append(number)

    def _add_columns(self, number: int, summary: Summary) -> None:
        self.simulated += summary.simulated
        for name, value in summary.facts.items():
            if name != "rack":  # only the file of the racks says so
                self._add_fact(number, name, value)
        for figure, values in summary.figures.items():
            for place, (model, measured) in enumerate(zip(summary.gpus, values, strict=False)):
                if measured is not None:
                    column = self.figures.setdefault((model, figure), (array("I"), array("I"), array("d")))
                    column[0].append(number)
                    column[1].append(place)
                    column[2].append(measured)


def labels_of(summary: Summary) -> tuple[str, ...]:
    """Return the causes and findings of a node, the first one first; none for a PASS."""
    if summary.verdict is Verdict.PASS:
        return ()
    causes = tuple(dict.fromkeys(cause.cause_id for cause in summary.causes))
    return causes or summary.findings or (summary.verdict.value.lower(),)


def _row(answer: Answer, before: NodeRow | None) -> NodeRow:
    """Return the row of a node after one more attempt."""
    if answer.summary is None:
        reason = answer.reason or NoReport.NO_ANSWER
        row = NodeRow(answer.node, NodeVerdict.NO_REPORT, reason, reason.value, answer.last_line)
    else:
        verdict = NodeVerdict.of(answer.summary.verdict)
        labels = labels_of(answer.summary)
        row = NodeRow(
            answer.node,
            verdict,
            None,
            labels[0] if labels else "",
            answer.summary.headline,
            simulated=answer.summary.simulated,
        )
    if before is None:
        return row
    attempts = (*(before.attempts or (_word(before),)), _word(row))
    if NoReport.DUPLICATE in (row.reason, before.reason):  # nobody knows which of the reports is that of the node
        row = row if row.reason is NoReport.DUPLICATE else before
    elif row.verdict is NodeVerdict.NO_REPORT and before.reason is None:  # an earlier attempt gave a report
        row = before
    elif before.reason is None and row.reason is None and before.verdict is not row.verdict:
        worse = min(before, row, key=lambda one: _WORST_FIRST.index(one.verdict))
        is_flaky = NodeVerdict.PASS in (before.verdict, row.verdict) or before.verdict is NodeVerdict.FLAKY
        row = msgspec.structs.replace(worse, verdict=NodeVerdict.FLAKY if is_flaky else worse.verdict)
    return msgspec.structs.replace(row, attempts=attempts)


def _word(row: NodeRow) -> str:
    return row.reason.value if row.reason is not None else row.verdict.value
