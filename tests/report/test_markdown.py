"""Markdown: tables that hold, text shown as it is."""

from __future__ import annotations

import re

import pytest

from gpudiag.knowledge.placement import Placement
from gpudiag.model.report import Broken, NoReading, Report, Row, World
from gpudiag.report import render, words
from gpudiag.text import one_line
from reports import hostile, passed, report, row, sample

REPORTS = {"sample": sample(), "hostile": hostile(), "empty": report()}


def markdown(shown: Report, *, verbose: bool = False) -> str:
    return render(shown, "markdown", width=80, color=False, verbose=verbose)


def as_shown(text: str) -> str:
    """Return what a reader sees of text: backslashes before punctuation are gone."""
    return re.sub(r"\\([!-/:-@\[-`{-~])", r"\1", text)


@pytest.mark.parametrize("name", REPORTS)
def test_every_line_of_the_table_has_its_five_columns(name: str) -> None:
    lines = [line for line in markdown(REPORTS[name]).splitlines() if line.startswith("|")]
    assert len(lines) == len(REPORTS[name].rows) + 2 * bool(REPORTS[name].rows)
    for line in lines:
        assert len(re.findall(r"(?<!\\)(?:\\\\)*\|", line)) == 6, line
        assert line.endswith("|")
    assert all(set(line) <= set("|-:") for line in lines[1:2])


@pytest.mark.parametrize("name", REPORTS)
def test_everything_is_there_and_reads_as_written(name: str) -> None:
    shown = REPORTS[name]
    text = as_shown(markdown(shown))
    for shown_row in shown.rows:
        assert one_line(shown_row.probe) in text
        for finding in shown_row.findings:
            assert f"- **{finding.severity.value}** `" in text
            assert f": {one_line(finding.message)} (`{finding.kind}`)\n  - {words.advice(finding)}\n" in text
    assert f"# gpudiag: {shown.verdict.value}\n" in text
    assert f"exit status {shown.exit_code};" in text


HOSTILE_MARKUP = r"a | b `c` <d> *e* _f_ [g](h) ~~i~~ $j$ &lt; \ k_l"


def test_markup_of_others_is_shown_and_not_obeyed() -> None:
    text = markdown(report(row("host.driver", passed(HOSTILE_MARKUP))))
    escaped = r"a \| b \`c\` \<d\> \*e\* \_f\_ \[g\](h) \~\~i\~\~ \$j\$ \&lt; \\ k_l"
    assert f"| {escaped} |" in text


def test_a_log_stays_in_its_block() -> None:
    shown = report(row("placement.log", Broken(NoReading.EXCEPTION, "E"), log=("~~~ # a", "b\n# c", "   ", "\x1b[1md")))
    assert "\n\n  ~~~text\n  b\n  # c\n  d\n  ~~~" in markdown(shown)
    assert "\n  ~ ~ ~ # a\n" in markdown(shown, verbose=True)


def test_simulated_gpus_are_announced() -> None:
    simulated = markdown(sample(World(simulated=True, spec="2x16GiB")))
    assert simulated.splitlines()[2].startswith("> **SIMULATED GPUs (2x16GiB)")
    assert "SIMULATED" not in markdown(sample())


def test_where_operations_ran_is_told_on_request() -> None:
    shown = report(Row("placement.log", (), passed(), 0.1, placements=(Placement("MatMul", "GPU:0", count=3),)))
    assert "MatMul" not in markdown(shown)
    assert "- `placement.log`: MatMul x3 on GPU:0\n" in markdown(shown, verbose=True)


def test_what_is_wrong_stands_out() -> None:
    outcomes = re.findall(r"^\| (\S+) ", markdown(sample()), re.MULTILINE)
    assert set(outcomes[1:]) == {"pass", "skipped", "interrupted", "**note**", "**warning**", "**fail**", "**broken**"}
