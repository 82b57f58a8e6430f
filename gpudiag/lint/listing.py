"""The list of the rules as text for people."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence

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
