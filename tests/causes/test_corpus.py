"""Every misconfiguration of the corpus is named, with its fix; see :mod:`corpus`."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import staged
from msgspec.structs import replace

from conftest import Gpudiag
from corpus import Item, items
from gpudiag.causes import messages
from gpudiag.model import codec
from gpudiag.model.diagnosis import Diagnosis, RootCause
from gpudiag.report.masking import mask
from gpudiag.run import rejudging
from gpudiag.run.diagnosis import diagnose
from reports import fix_lines
from voice import contradictions
from withheld import contradicts, with_any_one_probe

NUMBERS = frozenset(
    {
        1,
        2,
        3,
        5,
        6,
        7,
        9,
        11,
        12,
        15,
        16,
        18,
        20,
        21,
        22,
        23,
        25,
        26,
        28,
        30,
        32,
        33,
        34,
        36,
        37,
        40,
        41,
        44,
        45,
        46,
        48,
    }
    | {50, 51, 53, 54, 55, 56, 58, 59, 61, 63, 64, 66, 67, 68, 70, 71, 72, 74, 75, 77, 78, 80}
)
REPORTED = frozenset(
    {
        *{101, 102, 103, 104, 105, 106, 107, 109, 111, 112, 113},
        *{121, 122, 123, 124, 125, 126},
        *{131, 132, 133, 134, 135, 136, 137, 138, 140},
        *{151, 152, 153, 154, 155, 158, 160, 161, 162, 165},
        *{171, 172, 173, 174, 175, 176, 181},
    }
)
"""Machines of public threads, one thread each, staged by somebody who had not read the causes."""


STAGED = frozenset(range(81, 88))
"""Faults that no cause knew when they were staged; no public thread shows just these."""


def test_the_whole_corpus_is_here() -> None:
    assert len(NUMBERS) == 53
    assert len(REPORTED) >= 40
    assert {item.number for item in items()} == NUMBERS | REPORTED | STAGED
    of_threads = [item for item in items() if item.number in REPORTED]
    assert len({item.source for item in of_threads}) == len(of_threads) == len(REPORTED)
    assert all(item.settled for item in of_threads)


MACHINES = [
    pytest.param(item, id=str(item), marks=[pytest.mark.slow] if item.recording.exists() else []) for item in items()
]
"""One whose report is recorded is not built by default."""


@pytest.mark.usefixtures("no_child_left")
@pytest.mark.parametrize("item", MACHINES)
def test_the_cause_is_named_first_and_its_fix_given(
    item: Item, gpudiag: Gpudiag, record_property: Callable[[str, object], None]
) -> None:
    record_property("corpus", [item.number, item.title, item.kind])
    _is_as_wanted(item, _of_a_machine(item, gpudiag) if item.machine is not None else _of_evidence(item))


@pytest.mark.parametrize("item", [item for item in items() if item.recording.exists()], ids=str)
def test_what_was_recorded_is_enough_to_name_it(item: Item) -> None:
    report = codec.load(item.recording)
    again = rejudging.rejudge(report)
    assert _shown(again.diagnosis) == _shown(report.diagnosis), f"python scripts/record.py corpus {item.number}"
    _is_as_wanted(item, again.diagnosis)
    assert contradictions(again.rows, again.diagnosis) == []
    assert not any(contradicts(shortened) for shortened in with_any_one_probe(again)), (
        "PASS, whatever is known against it"
    )
    masked = rejudging.rejudge(mask(report)).diagnosis
    assert _named(masked) == _named(again.diagnosis), "a word that the diagnosis needs is masked"


RENAMED = {"named_in_log": messages.all_of_them()}
"""What recorded reports call a cause, to the names that it may have today."""


def _shown(diagnosis: Diagnosis) -> Diagnosis:
    """Return a diagnosis without what reports of schema 1 do not say: what a cause is about, and its fix as data."""
    causes, folded = ([_of_schema_1(cause) for cause in several] for several in (diagnosis.causes, diagnosis.folded))
    return replace(diagnosis, causes=tuple(causes), folded=tuple(folded))


def _of_schema_1(cause: RootCause) -> RootCause:
    rule = next((old for old, new in RENAMED.items() if cause.cause_id in new), cause.cause_id)
    return replace(cause, cause_id=rule, fix=(), about=(), explains=())


def _named(diagnosis: Diagnosis) -> list[list[str]]:
    return [[cause.cause_id for cause in causes] for causes in (diagnosis.causes, diagnosis.folded)]


def _is_as_wanted(item: Item, diagnosis: Diagnosis) -> None:
    if item.harmless:
        assert diagnosis.causes == ()
        assert any(item.harmless in line for line in diagnosis.harmless), diagnosis.harmless
        return
    assert diagnosis.causes, "no cause was found"
    if item.after:
        assert diagnosis.causes[0].cause_id == item.after, diagnosis.causes
        found = next(cause for cause in (*diagnosis.causes[1:], *diagnosis.folded) if cause.cause_id == item.rule)
    else:
        found = diagnosis.causes[0]
    assert found.cause_id == item.rule, found
    fix = item.fix.removeprefix("sudo ")  # root is not told to use it
    assert any(fix in line for line in fix_lines(found)), found.fix
    assert found.evidence
    if item.tried is not None:
        assert found.trial is not None
        assert found.trial.outcome == item.tried, found.trial


def _of_evidence(item: Item) -> Diagnosis:
    assert item.evidence is not None
    assert item.why_not_built, "say why it is not end to end"
    return diagnose(item.evidence)


def _of_a_machine(item: Item, gpudiag: Gpudiag) -> Diagnosis:
    report = staged.check(item, gpudiag, staged.stage(item, gpudiag))
    assert rejudging.rejudge(report).diagnosis == report.diagnosis, (
        "a saved report is diagnosed alike, without the machine"
    )
    assert contradictions(report.rows, report.diagnosis) == []
    assert not any(contradicts(shortened) for shortened in with_any_one_probe(report)), (
        "PASS, whatever is known against it"
    )
    return report.diagnosis
