"""What a run did not verify, by its rows."""

from __future__ import annotations

import msgspec
import pytest

from gpudiag import catalogue
from gpudiag.model import codec
from gpudiag.model.report import Broken, Gap, Judged, Level, NoReading, Report, Row, Skipped
from gpudiag.report import render
from gpudiag.run.gaps import with_gaps
from gpudiag.run.plan import planned
from gpudiag.run.rejudging import rejudge
from reports import GPUS, passed, report, row

LEFT_OUT = Judged(gaps=(Gap("13.0 of 14.1 GiB of memory", "3 s of writing had passed"),))


def everything(*others: Row) -> Report:
    """Return a report with a row of each probe, all passed but ``others``."""
    named = {other.probe for other in others}
    rows = [row(entry.name, passed(), *GPUS) for entry in catalogue.entries() if entry.name not in named]
    return report(*rows, *others, gpus=GPUS)


def gaps(shown: Report) -> dict[str, Gap]:
    return {gap.what: gap for gap in with_gaps(shown).not_verified or ()}


def test_what_no_probe_runs_is_always_named() -> None:
    assert {gap.why for gap in gaps(everything()).values()} == {"no probe runs it"}


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        (
            [row("memory.capacity", LEFT_OUT, gpu) for gpu in GPUS],
            Gap("13.0 of 14.1 GiB of memory", "3 s of writing had passed", "", "memory.capacity"),
        ),
        (
            [row("memory.capacity", LEFT_OUT, GPUS[0]), row("memory.capacity", passed(), GPUS[1])],
            Gap("13.0 of 14.1 GiB of memory", "3 s of writing had passed", "GPU 0", "memory.capacity"),
        ),
        (
            [
                row("memory.capacity", passed(), GPUS[0]),
                row("memory.capacity", Skipped("GPU 1 is used by python"), GPUS[1]),
            ],
            Gap("memory above 1536 MiB", "GPU 1 is used by python", "GPU 1", "memory.capacity"),
        ),
        (
            [row("libraries.xla", Skipped("needs real GPUs, these are simulated"), *GPUS)],
            Gap("XLA", "needs real GPUs, these are simulated", "", "libraries.xla"),
        ),
        (
            [row("logical.gpu_split", Broken(NoReading.TIMEOUT, "no result within 60 s"), *GPUS)],
            Gap("logical.gpu_split", "timeout: no result within 60 s", "", "logical.gpu_split"),
        ),
    ],
    ids=["of every GPU", "of one GPU", "a busy GPU", "a skipped probe", "a broken probe"],
)
def test_a_row_says_what_it_did_not_verify(rows: list[Row], expected: Gap) -> None:
    found = gaps(everything(*rows))
    assert found[expected.what] == expected
    assert [gap for gap in found.values() if gap.why != "no probe runs it"] == [expected]


def test_level_quick_and_what_was_not_selected() -> None:
    quick = [row(entry.name, passed(), *GPUS) for entry in catalogue.entries() if entry.probe.quick]
    found = gaps(msgspec.structs.replace(report(*quick[:-1], gpus=GPUS), level=Level("quick", "GPU 0 is used")))
    memory = sum(entry.area == "memory" for entry in catalogue.entries())
    assert found["memory above 512 MiB"] == Gap("memory above 512 MiB", "level quick", probe="memory.capacity")
    assert found[f"{memory - 1} other probes of memory"].why == "level quick"
    area = quick[-1].area
    assert found[f"1 other probe of {area}"].why == "not selected"


def test_without_a_gpu_or_in_an_older_report_there_is_no_list() -> None:
    assert with_gaps(report(row("memory.growth", Skipped("no GPU")))).not_verified is None
    older = everything()
    assert rejudge(older).not_verified is None
    assert rejudge(with_gaps(older)).not_verified == with_gaps(older).not_verified
    plain = msgspec.to_builtins(older)
    del plain["not_verified"]
    assert codec.decode(msgspec.json.encode(plain).decode(), "older").not_verified is None


@pytest.mark.parametrize("format_", ["table", "markdown", "html", "json"])
def test_every_format_has_the_list(format_: str) -> None:
    shown = with_gaps(everything(*(row("memory.capacity", LEFT_OUT, gpu) for gpu in GPUS)))
    text = render(shown, format_, width=200, color=False)
    assert "13.0 of 14.1 GiB of memory" in text
    whole = render(shown, format_, width=200, color=False, verbose=True)
    assert all(gap.what in whole.replace("\\", "") for gap in shown.not_verified or ())


def test_on_the_terminal_it_takes_two_lines() -> None:
    text = render(with_gaps(everything()), "table", width=80, color=False)
    _, _, after = text.partition("\nNot verified: ")
    assert "more, which -v names" in " ".join(after.splitlines()[:2])


def test_of_many_gpus_a_sampled_probe_names_those_that_it_left_out() -> None:
    gpus = tuple(msgspec.structs.replace(GPUS[0], index=number, uuid=f"GPU-{number}") for number in range(20))
    last = msgspec.structs.replace(gpus[-1], name="Simulated T4")
    (task,) = planned((catalogue.get("libraries.reproducible"),), (*gpus[:-1], last))
    assert [gpu.index for gpu in task.gpus] == [0, 3, 6, 9, 12, 15, 18, 19]
    (all_of_them,) = planned((catalogue.get("libraries.cublas"),), gpus)
    assert all_of_them.gpus == gpus
    shown = with_gaps(report(row("libraries.reproducible", passed(), *task.gpus), gpus=gpus))
    (gap,) = [gap for gap in shown.not_verified or () if gap.what == "libraries.reproducible"]
    assert gap.where == "GPU 1-2,4-5,7-8,10-11,13-14,16-17"


def test_all_of_eight_gpus_are_in_the_sample() -> None:
    gpus = tuple(msgspec.structs.replace(GPUS[0], index=number, uuid=f"GPU-{number}") for number in range(8))
    assert [task.gpus for task in planned((catalogue.get("memory.growth"),), gpus)] == [(gpu,) for gpu in gpus]
