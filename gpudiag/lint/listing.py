"""The rules as text for people: the list, and the explanation of one rule."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence

from gpudiag.lint.rule import Known


def table(rules: Sequence[Known], width: int) -> str:
    """Return a table of the rules: their names, and what each finds."""
    longest = max((len(rule.name) for rule in rules), default=0)
    return "".join(
        textwrap.fill(
            f"{rule.name:<{longest}}  {rule.general}",
            max(width, longest + 30),
            subsequent_indent=" " * (longest + 2),
            break_on_hyphens=False,
            break_long_words=False,
        )
        + "\n"
        for rule in rules
    )


def explanation(known: Known, width: int) -> str:
    """Return the text of ``gpudiag explain`` for a rule."""
    return "\n\n".join(_paragraphs(known, width)) + "\n"


def _paragraphs(known: Known, width: int) -> Iterator[str]:
    def filled(text: str) -> str:
        return textwrap.fill(text, width, break_on_hyphens=False, break_long_words=False)

    yield filled(f"{known.name} (a rule of 'gpudiag lint'; severity: {known.declared.severity.value})")
    yield filled(known.general)
    yield from map(filled, known.why)
    for title, example in (("Bad", known.bad), ("Good", known.good)):
        yield title
        yield textwrap.indent(example.rstrip("\n"), "    ")
    if known.declared.cause:
        yield filled(f"What it does on a machine: gpudiag explain {known.declared.cause}")
    yield known.declared.url
