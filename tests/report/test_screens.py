"""The screens that ``scripts/screens.py`` has written: the answer is above the prompt, the table is that of files."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest
import screens

AFTER = sorted(screens.REPORTS.glob("after*/*.txt"))
COMMAND = re.compile(r"\s+(?:fix|or|check|again)\s+(.*)")


def shown(file: Path) -> list[str]:
    """Return the rows of a screen, without its head."""
    return file.read_text("utf-8").splitlines()[len(screens.facts(file)) + 1 :]


def test_the_table_is_that_of_the_screens() -> None:
    assert (screens.REPORTS / "README.md").read_text("utf-8") == screens.index()


@pytest.mark.parametrize("kind", ["before", "after"])
def test_every_machine_has_its_screens(kind: str) -> None:
    wide = {machine.file for machine in screens.MACHINES if machine.is_shown_wide}
    assert {file.name for file in (screens.REPORTS / kind).iterdir()} == {machine.file for machine in screens.MACHINES}
    assert {file.name for file in (screens.REPORTS / f"{kind}-{screens.WIDE}").iterdir()} == wide


@pytest.mark.parametrize("machine", screens.MACHINES, ids=lambda machine: machine.name)
def test_the_fix_stands_on_the_last_screen(machine: screens.Machine) -> None:
    facts = screens.facts(screens.REPORTS / "after" / machine.file)
    assert int(facts["lines to the prompt"] if machine.fix else facts["lines"]) < screens.HEIGHT


@pytest.mark.parametrize("file", AFTER, ids=lambda file: f"{file.parent.name}-{file.stem}")
def test_a_screen_ends_with_the_exit_status_and_says_nothing_twice(file: Path) -> None:
    *rows, last, prompt = shown(file)
    assert (prompt, last.split()[-2:]) == (screens.PROMPT.strip(), ["exit", screens.facts(file)["exit status"]])
    assert {row: number for row, number in Counter(map(str.strip, rows)).items() if number > 1 and len(row) > 30} == {}
    assert [match[1] for row in rows if (match := COMMAND.match(row)) and " #" in match[1]] == []
