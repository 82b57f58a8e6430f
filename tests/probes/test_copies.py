"""Copies between the host and GPUs, and between GPUs: the row names what was copied, and each copy counts."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest

from gpudiag.model.report import Finding
from gpudiag.probe import MIB, Raised, Verified
from gpudiag.probes.libraries.copies import HOST, PINNED, DeviceCopy, Reading, _copies_among, judge

RECORDED = Path(__file__).parents[1] / "recorded/2x16GiB/libraries.copies.json"


def reading(gpus: int) -> Reading:
    made = {f"GPU:{number}": f"0000:{number:02x}:00.0" for number in range(gpus)}
    copies = tuple(DeviceCopy(*pair, MIB) for pair in _copies_among(tuple(made)))
    return Reading(made, copies, given=tuple(made.values()), seen=gpus)


def with_copy(of: Reading, number: int, **change: object) -> Reading:
    copies = list(of.copies)
    copies[number] = msgspec.structs.replace(copies[number], **change)
    return msgspec.structs.replace(of, copies=tuple(copies))


def test_the_recorded_reading_has_every_direction_and_pair() -> None:
    recorded = msgspec.convert(json.loads(RECORDED.read_bytes()), Reading)
    assert {(copy.source, copy.target) for copy in recorded.copies} == {
        *((host, gpu) for host in (HOST, PINNED) for gpu in recorded.made),
        *((gpu, PINNED) for gpu in recorded.made),
        ("GPU:0", "GPU:1"),
        ("GPU:1", "GPU:0"),
    }
    figure = "8 of 8 copies of 1 MiB right: to and from 2 GPUs, 2 of 2 pairs; 250 rounds right on each"
    assert recorded.figure() == figure
    assert recorded.gaps() == ()


@pytest.mark.parametrize("number", range(8))
def test_each_copy_that_is_wrong_fails_and_verifies_nothing(number: int) -> None:
    wrong = with_copy(reading(2), number, wrong=1)
    (finding,) = judge(wrong)
    assert isinstance(finding, Finding)
    assert finding.kind == "corrupted"
    copy = wrong.copies[number]
    assert f"from {copy.source} to {copy.target}" in finding.message
    assert (copy.source, copy.target.partition(",")[0], "wrong", "") in wrong.table()


@pytest.mark.parametrize(("gpus", "pairs"), [(1, 0), (2, 2), (8, 56), (9, 54), (16, 112), (32, 288)])
def test_of_many_gpus_each_copies_to_some_others_and_the_row_says_so(gpus: int, pairs: int) -> None:
    of = reading(gpus)
    assert of.pairs == pairs
    assert len({(copy.source, copy.target) for copy in of.copies}) == len(of.copies) == pairs + 3 * gpus
    assert all(isinstance(judgement, Verified) for judgement in judge(of))
    sources = {copy.source for copy in of.copies if copy.target in of.made}
    targets = {copy.target for copy in of.copies if copy.source in of.made}
    assert gpus == 1 or ({*of.made} <= sources and {*of.made} <= targets), "each copies and is copied to"
    missing = gpus * (gpus - 1) - pairs
    assert [gap.what for gap in of.gaps()] == (
        [f"copies between {missing} of {gpus * (gpus - 1)} pairs of GPUs"] * bool(missing)
    )
    assert sum(len(line[1].split(",")) for line in of.table()[1:]) == len(of.copies), "the table names each"


def test_after_an_error_the_rest_is_named_as_not_verified() -> None:
    failed = with_copy(reading(2), 3, raised=Raised("InternalError", "CUDA error"))
    cut = msgspec.structs.replace(failed, copies=failed.copies[:4])
    assert [gap.what for gap in cut.gaps()] == ["4 of 8 copies"]
    assert [judgement.kind for judgement in judge(cut) if isinstance(judgement, Finding)] == ["copy_failed"]
