"""Texts about nodes that train together: whether they do, who is to blame, by whose evidence, and the times."""

from __future__ import annotations

from gpudiag.fix import Action, Role
from gpudiag.model.together import Together
from gpudiag.report.formats.table import Page
from gpudiag.text import one_line

_TITLES = {Role.CHECK: "check", Role.NOTE: "note"}
_STYLES = {"PASS": "bold green", "FAIL": "bold red"}


def add_together(page: Page, together: Together) -> None:
    """Add what is said of nodes that train together."""
    page.add(
        one_line(f"{together.verdict}: {together.text}"),
        _STYLES.get(together.verdict, "bold yellow"),
        lead="TOGETHER  ",
    )
    for blame in together.blames:
        page.add(one_line(f"{' - '.join(blame.nodes)}: {blame.why}"), "bold", lead="  ")
        for line in blame.evidence:
            page.add(one_line(line), "dim", lead="    ")
        for action in blame.fix:
            page.add(one_line(words(action)), lead=f"    {title(action)}: ")
    for note in together.notes:
        page.add(one_line(note), "dim", lead="  ")
    page.blank()


def title(action: Action) -> str:
    """Return what an action is for, in a word."""
    return _TITLES.get(action.role, "fix")


def words(action: Action) -> str:
    """Return the command of an action and the clause beside it."""
    return " · ".join(filter(None, (action.command, action.clause)))
