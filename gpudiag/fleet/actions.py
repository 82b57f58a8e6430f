"""Finds what has to be done, and on how many nodes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from gpudiag.fix import Kind, Where
from gpudiag.fleet.names import fold
from gpudiag.fleet.nodes import NodeTable
from gpudiag.model.fleet import ActionSum, ActionText, NoReport

_MOST_TEXTS = 3
_UNSUMMED = frozenset({Kind.NONE.value, Kind.COMMAND.value})
"""Kinds that say nothing by themselves: such actions are summed by their texts."""
_WITHOUT_REPORT = {
    NoReport.NOT_USABLE: (Kind.ASK_ADMIN, "Bring the node back into service."),
    NoReport.REFUSED: (Kind.ASK_ADMIN, "Let this user in without a question, such as by a key for ssh."),
    NoReport.UNREACHABLE: (
        Kind.LOOK_AT_SYSTEM,
        "Check that the node is up, and that a command which you type begins there.",
    ),
    NoReport.LOST: (Kind.LOOK_AT_SYSTEM, "Check whether the node went down or ran out of memory: uptime, dmesg."),
    NoReport.NO_GPUDIAG: (
        Kind.INSTALL,
        "Install gpudiag there, say where it is with --gpudiag, or carry it there with --ship.",
    ),
    NoReport.NO_TENSORFLOW: (
        Kind.INSTALL,
        "Install TensorFlow there, or name the gpudiag of the environment that has it with --gpudiag.",
    ),
    NoReport.OTHER_VERSION: (Kind.INSTALL, "Install this version of gpudiag there, or carry it there with --ship."),
    NoReport.TIMED_OUT: (Kind.COMMAND, "Check again with a longer --deadline."),
}
"""What to do about a node without a report, by the reason. Of reasons that are not here, the last line says enough."""


def summed(table: NodeTable) -> tuple[ActionSum, ...]:
    """Return what has to be done by its kind and place, for the most nodes first; a node counts once in each."""
    kinds: dict[tuple[str, str, str], dict[tuple[str, bool], set[int]]] = {}
    for (kind, where, text, is_command), numbers in _each(table):
        group = kinds.setdefault((kind, where, text if kind in _UNSUMMED else ""), {})
        group.setdefault((text, is_command), set()).update(numbers)
    sums = []
    for (kind, where, _), texts in kinds.items():
        needing_any = sorted(set().union(*texts.values()))
        ordered = sorted(texts.items(), key=lambda item: (-len(item[1]), item[0]))
        most = tuple(ActionText(*text, len(needing)) for text, needing in ordered[:_MOST_TEXTS])
        nodes = fold(table.names[number] for number in needing_any)
        sums.append(ActionSum(kind, where, nodes, len(needing_any), most))
    return tuple(sorted(sums, key=lambda action: (-action.number, action.kind, action.where, action.texts[0].text)))


def _each(table: NodeTable) -> Iterator[tuple[tuple[str, str, str, bool], Iterable[int]]]:
    """Yield each action as in ``table.actions``, and what to do about nodes without a report."""
    yield from table.actions.items()
    missing: dict[NoReport | None, list[int]] = {}
    for number in range(len(table.names)):
        missing.setdefault(table.row(number).reason, []).append(number)
    for reason, (kind, text) in _WITHOUT_REPORT.items():
        if reason in missing:
            yield (kind.value, Where.HERE.value, text, False), missing[reason]
