"""What two reports of level stress say of rates: recorded runs of simulated GPUs, one healthy, and one in which GPU 1
overheats and GPU 2 is 1.3 times as slow."""

from __future__ import annotations

import re
from pathlib import Path

import msgspec

from gpudiag.comparison.reports import ComparedReport, compare
from gpudiag.model import codec
from gpudiag.model.change import ChangeSubject, ReportComparison
from gpudiag.model.reading import SavedReading, plain_reading
from gpudiag.model.report import Report
from gpudiag.report import changes, comparison
from gpudiag.report.masking import mask

RECORDED = Path(__file__).parents[1] / "recorded" / "load"
HEALTHY, FAULTY = (codec.load(RECORDED / f"{name}.json") for name in ("healthy", "faulty"))


def compared(old: Report, new: Report) -> ReportComparison:
    return compare(ComparedReport(old, "runs/old.json"), ComparedReport(new, "new.json"))


def lines(old: Report, new: Report) -> list[str]:
    return [changes.change_text(change) for change in compared(old, new).rates]


def test_a_slower_gpu_is_worse_and_its_noise_is_said() -> None:
    result = compared(HEALTHY, FAULTY)
    slower = [change for change in result.rates if change.worse]
    assert {change.name for change in slower} == {"GPU 2"}
    assert re.fullmatch(r"GPU 2: 2\d % slower than in old.json \(noise \d[.\d]* %\)", changes.change_text(slower[0]))
    assert all(change.old is None for change in slower), "rates of simulated GPUs mean nothing"
    text = comparison.render(result, "table", width=80, color=False)
    assert f"Rates under load\n  worse  {changes.change_text(slower[0])}" in text
    assert "slower rates" in text
    assert changes.change_text(slower[0]) in comparison.render(result, "html", width=80, color=False)


def test_the_other_way_round_it_is_faster_and_not_worse() -> None:
    (first, *_) = compared(FAULTY, HEALTHY).rates
    assert not first.worse
    assert "faster than in old.json" in changes.change_text(first)


def test_a_run_does_not_differ_from_itself_whatever_its_length() -> None:
    assert lines(HEALTHY, HEALTHY) == []
    shorter = tuple(
        row
        if not (plain := plain_reading(row.reading)) or row.probe != "load.gpus"
        else msgspec.structs.replace(
            row, reading=SavedReading({**plain, "slices": plain["slices"][: len(plain["slices"]) * 3 // 4]})
        )
        for row in HEALTHY.rows
    )
    assert lines(msgspec.structs.replace(HEALTHY, rows=shorter), HEALTHY) == []


def test_one_kind_of_work_is_named_with_its_rate_on_a_real_gpu() -> None:
    real = codec.decode(codec.encode(HEALTHY).replace("Simulated GPU", "NVIDIA GPU"), "test")
    rows = []
    for row in real.rows:
        plain = dict(plain_reading(row.reading) or {})
        if row.probe == "load.gpus" and row.devices == (real.gpus[1].uuid,):
            plain["slices"] = [
                {**part, "rate": part["rate"] * (0.5 if part["work"] == "float16 product" else 1)}
                for part in plain["slices"]
            ]
        rows.append(msgspec.structs.replace(row, reading=SavedReading(plain)))
    (change,) = compared(real, msgspec.structs.replace(real, rows=tuple(rows))).rates
    assert changes.change_text(change).startswith("GPU 1: float16 product 50 % slower than in old.json (noise ")
    assert change.old is not None
    assert change.old.endswith(" TFLOP/s")


def test_gpus_are_paired_by_uuid_then_by_slot_and_another_model_is_not_compared() -> None:
    swapped = codec.encode(FAULTY)
    for gpu in FAULTY.gpus:
        swapped = swapped.replace(gpu.uuid, f"GPU-new-{gpu.index}")
    assert lines(HEALTHY, codec.decode(swapped, "test")) == lines(HEALTHY, FAULTY), "by slot"
    masked = codec.encode(mask(FAULTY))
    first, _, last = (gpu.uuid for gpu in mask(FAULTY).gpus)
    swapped = masked.replace(first, "GPU-uuid-zzz").replace(last, first).replace("GPU-uuid-zzz", last)
    assert lines(mask(HEALTHY), codec.decode(swapped, "test")) == lines(HEALTHY, FAULTY), "by slot, of masked ones"
    other = codec.decode(swapped.replace("Simulated GPU", "Simulated H100"), "test")
    assert lines(HEALTHY, other) == [
        f"GPU {number}: rates are not compared: the model was Simulated GPU, and is Simulated H100"
        for number in range(3)
    ]


def test_matrices_of_another_size_are_not_compared() -> None:
    rows = tuple(
        msgspec.structs.replace(
            row,
            reading=SavedReading({**plain, "sides": {**plain["sides"], "float16 product": 8192}})
            if (plain := plain_reading(row.reading)) and "sides" in plain
            else row.reading,
        )
        for row in HEALTHY.rows
    )
    said = lines(HEALTHY, msgspec.structs.replace(HEALTHY, rows=rows))
    assert said == [
        f"GPU {number}: float16 product is not compared: its matrices have another size" for number in range(3)
    ]


def test_a_baseline_says_it_in_the_head_of_the_report() -> None:
    heading, said = changes.in_head(compared(HEALTHY, FAULTY))
    assert heading.endswith("this has changed:")
    assert said[0] == changes.change_text(compared(HEALTHY, FAULTY).rates[0])
    assert compared(HEALTHY, FAULTY).changes[-1].subject is ChangeSubject.FACT
