"""Lists what `gpudiag explain` explains: probes, causes, rules, expectations, and messages of logs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from fnmatch import fnmatchcase
from itertools import groupby

from gpudiag.cli.explanation import Explanation, Kind

TITLES = {
    Kind.PROBE: "Probes: what gpudiag check tries",
    Kind.CAUSE: "Causes: why TensorFlow does not use a GPU, or not as configured",
    Kind.MESSAGE: "Messages: causes that a line of a log names by itself",
    Kind.RULE: "Rules: what gpudiag lint finds in a program",
    Kind.EXPECTATION: "Expectations: what gpudiag check --expect compares",
}
_LEAST_SUMMARY_WIDTH = 24
"""With fewer columns beside the names, summaries are below them."""


def topics(explanations: Sequence[Explanation]) -> dict[str, None]:
    """Return the words that list a group or a kind, such as ``memory``, ``cuda-build`` and ``rules``, in order."""
    groups = (explanation.group.replace(" ", "-") for explanation in explanations if explanation.group)
    return dict.fromkeys((*groups, *(f"{kind.value}s" for kind in Kind)))


def matching(explanations: Sequence[Explanation], topic: str) -> list[Explanation]:
    """Return what ``topic`` names: a kind, an area, a stage, a pattern, or a word of names or of summaries."""
    wanted = _words(topic)

    def is_in_group(explanation: Explanation) -> bool:
        return bool(wanted.strip()) and wanted in (
            _words(explanation.group),
            f" {explanation.kind} ",
            f" {explanation.kind}s ",
        )

    def is_named(explanation: Explanation) -> bool:
        return fnmatchcase(explanation.name, topic.lower()) or wanted in _words(explanation.name)

    def is_about(explanation: Explanation) -> bool:
        return wanted in _words(explanation.summary)

    choices = ([entry for entry in explanations if test(entry)] for test in (is_in_group, is_named, is_about))
    return next(filter(None, choices), []) if topic else []


def _words(text: str) -> str:
    """Return the words of a text in lower case, each between spaces."""
    return f" {' '.join(''.join(char if char.isalnum() else ' ' for char in text.lower()).split())} "


def overview(explanations: Sequence[Explanation], width: int) -> str:
    """Return a line for each area and stage, and for each kind that has none: how many, and the first of them."""
    lines = []
    for kind in Kind:
        of_kind = [explanation for explanation in explanations if explanation.kind == kind]
        lines += [_cut(TITLES[kind], width)]
        for title, members in groupby(of_kind, _line_title):
            names = [explanation.name for explanation in members]
            lines += [_cut(f"  {title:<16} {len(names):>4}  {', '.join(names)}", width)]
        lines += [""]
    lines += ["To list a group:  gpudiag explain memory", "To find a word:   gpudiag explain growth"]
    return "\n".join([*lines, "To read one:      gpudiag explain memory.growth"]) + "\n"


def _line_title(explanation: Explanation) -> str:
    """Return the topic that lists the group of this explanation."""
    is_in_group = explanation.group and explanation.kind != Kind.MESSAGE
    return explanation.group.replace(" ", "-") if is_in_group else f"{explanation.kind}s"


def table(explanations: Sequence[Explanation], width: int) -> str:
    """Return the names, with a line about each, below the titles of their kinds."""
    parts = [
        "\n".join(_section(list(members), width)) for _, members in groupby(explanations, lambda entry: entry.kind)
    ]
    return "\n\n".join([*parts, f"To read one: gpudiag explain {explanations[0].name}"]) + "\n"


def _section(explanations: Sequence[Explanation], width: int) -> Iterator[str]:
    yield _cut(TITLES[Kind(explanations[0].kind)], width)
    longest = max(len(explanation.name) for explanation in explanations)
    is_beside = width - longest - 4 >= _LEAST_SUMMARY_WIDTH
    for explanation in explanations:
        if is_beside:
            yield _cut(f"  {explanation.name:<{longest}}  {explanation.summary}", width)
        else:
            yield from (f"  {explanation.name}", _cut(f"    {explanation.summary}", width))


def _cut(line: str, width: int) -> str:
    """Return the line, or as many of its words as fit."""
    return line if len(line) <= width else f"{line[: width - 3].rpartition(' ')[0].rstrip(' ,')} ..."
