"""What a fleet keeps of a report: a sentence, and what is to do."""

from __future__ import annotations

from fleets import healthy, unfit
from msgspec.structs import replace

from gpudiag.fix import check, note, reboot
from gpudiag.fleet.summary import summarized
from gpudiag.model.diagnosis import Diagnosis
from gpudiag.model.report import conclude


def test_of_a_cause_the_fix_is_done_and_without_one_the_first_check() -> None:
    looks, fix = check("dmesg"), reboot()
    assert summarized(unfit("a", "a", looks, fix)).actions == (fix,)
    assert summarized(unfit("a", "a", note("Ask."), looks, check("lsmod"))).actions == (looks,)
    assert summarized(unfit("a", "a", note("Ask."))).actions == ()


def test_the_sentence_names_the_cause() -> None:
    assert summarized(healthy()).headline == ""
    bad = unfit("a", "TMPDIR is full")
    assert summarized(bad).headline == "Not fit for use: TMPDIR is full"
    (cause,) = bad.diagnosis.causes
    used = conclude(replace(healthy(), diagnosis=Diagnosis(causes=(replace(cause, unfit=False),))))
    assert summarized(used).headline == "The GPU is used, with configuration problems: TMPDIR is full"
