"""The nodes of a fleet as columns: what each answered, and which nodes have a fact, a cause or a figure.

One node after the other is added and forgotten, so that 100,000 fit: of a node there are a few words, and its number in
the columns of what it has.
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping

import msgspec

from gpudiag.fleet.facts import kind_of
from gpudiag.fleet.sources import Source
from gpudiag.model.fleet import Answer, FactKind, NodeRow, NodeVerdict, NoReport, Summary
from gpudiag.model.report import Verdict
from gpudiag.model.together import Witness

MOST_VALUES = 5000
ABSENT = "(none seen)"
"""The value of a variable or a package that a node does not have, though its report has the others."""
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
        """By model of GPU and name of the figure: numbers of nodes, indices of GPUs, values."""
        self.unread: dict[FactKind, array[int]] = {}
        """For packages and for variables, the numbers of the nodes on which not all of them were read or kept."""
        self.actions: dict[tuple[str, str, str, bool], array[int]] = {}
        """The numbers of the nodes for which something has to be done: by the kind of the action, the place where it is
        done, its command or, if it has none, its sentence, and whether that is a command. A node may be there several
        times."""
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
        if twice := {number for number, row in enumerate(table._rows) if row and row.reason is NoReport.DUPLICATE}:
            table._forget(twice)
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

    def values(self, among: int) -> dict[str, dict[str, int]]:
        """Return by the name of each fact its values, each with the nodes that have it, as bits; nodes outside
        ``among``, bits as well, are left out. Nodes that lack a variable or a package have the value :data:`ABSENT`."""
        size = len(self.names)
        unread = {kind: bits(numbers, size) for kind, numbers in self.unread.items()}
        nodes_by_value: dict[str, dict[str, int]] = {}
        for (name, value), numbers in self.facts.items():
            if nodes := bits(numbers, size) & among:
                nodes_by_value.setdefault(name, {})[value] = nodes
        read = bits(self.with_report(), size) & among
        for name, values in nodes_by_value.items():
            kind = kind_of(name)
            if kind is not None:
                absent = read & ~unread.get(kind, 0)
                for nodes in values.values():
                    absent &= ~nodes
                if absent:
                    values[ABSENT] = absent
        return nodes_by_value

    def has_too_many_values(self, fact: str) -> bool:
        """Return whether a fact was left out, because it tells nodes apart and not groups of them."""
        return self._values[fact] > MOST_VALUES

    def _forget(self, nodes: Collection[int]) -> None:
        """Forget what reports said of nodes of which nobody knows which report is theirs; their rows stay."""

        def kept(numbers: array[int]) -> array[int]:
            return array("I", (number for number in numbers if number not in nodes))

        self.facts = {fact: kept(numbers) for fact, numbers in self.facts.items()}
        self.labels = {label: kept(numbers) for label, numbers in self.labels.items()}
        self.actions = {action: left for action, numbers in self.actions.items() if (left := kept(numbers))}
        for numbers, indices, values in self.figures.values():
            places = [place for place, number in enumerate(numbers) if number not in nodes]
            for column in (numbers, indices):
                column[:] = array("I", (column[place] for place in places))
            values[:] = array("d", (values[place] for place in places))

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
            text = action.command or action.clause
            key = (action.kind.value, action.where.value, text, bool(action.command))
            self.actions.setdefault(key, array("I")).append(number)

    def _add_columns(self, number: int, summary: Summary) -> None:
        for kind in summary.unread:
            self.unread.setdefault(kind, array("I")).append(number)
        for name, value in summary.facts.items():
            if name != "rack":  # only the file of the racks says so
                self._add_fact(number, name, value)
        indices = summary.indices or range(len(summary.gpus))
        for figure, values in summary.figures.items():
            for index, model, measured in zip(indices, summary.gpus, values, strict=False):
                if measured is not None:
                    column = self.figures.setdefault((model, figure), (array("I"), array("I"), array("d")))
                    column[0].append(number)
                    column[1].append(index)
                    column[2].append(measured)


def bits(numbers: Iterable[int], size: int) -> int:
    """Return the set of these numbers as an integer: bit N is 1 if N is among them. All are below ``size``."""
    mask = bytearray(size // 8 + 1)
    for number in numbers:
        mask[number >> 3] |= 1 << (number & 7)
    return int.from_bytes(mask, "little")


def numbers_of(nodes: int) -> Iterator[int]:
    """Yield the numbers of the bits that are set."""
    for at, byte in enumerate(nodes.to_bytes(nodes.bit_length() // 8 + 1, "little")):
        if byte:
            yield from (at * 8 + bit for bit in range(8) if byte >> bit & 1)


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
        worse = min(before, row, key=lambda attempt: _WORST_FIRST.index(attempt.verdict))
        is_flaky = NodeVerdict.PASS in (before.verdict, row.verdict) or before.verdict is NodeVerdict.FLAKY
        row = msgspec.structs.replace(worse, verdict=NodeVerdict.FLAKY if is_flaky else worse.verdict)
    return msgspec.structs.replace(row, attempts=attempts)


def _word(row: NodeRow) -> str:
    return row.reason.value if row.reason is not None else row.verdict.value
