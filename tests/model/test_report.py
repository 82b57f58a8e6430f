"""Verdict and exit status: what counts, in which order, and what is never green."""

from __future__ import annotations

import itertools

import msgspec
import pytest

from examples.facts import example, example_gpu
from gpudiag.model.facts import DeviceNodeFacts, FactFamily, NvmlFacts, Unknown
from gpudiag.model.reading import decode_hook
from gpudiag.model.report import (
    STATUSES,
    Broken,
    Gpu,
    Interrupted,
    Judged,
    Limits,
    NoReading,
    Row,
    Skipped,
    Verdict,
    World,
    conclude,
)
from reports import CAP_IGNORED, GPUS, MISSPELT, OVERRIDDEN, passed, report, row, sample

FAILED = row("memory.fraction", passed("", CAP_IGNORED), GPUS[0])
WARNED = row("host.environment", passed("", MISSPELT))
NOTED = row("host.environment", passed("", OVERRIDDEN))
BROKEN = row("placement.log", Broken(NoReading.SIGNAL, "SIGSEGV"))
BUSY = row(
    "libraries.cudnn",
    Broken(NoReading.BUSY, "no result within 60 s, its processes waited 41 of 60 s for a processor"),
)
SKIPPED = row("logical.gpu_split", Skipped("no GPU"))
INTERRUPTED = row("memory.growth", Interrupted("stopped by SIGINT"), GPUS[0])
PASSED = row("host.driver", passed())
VERIFIED = row("visibility.list_remap", passed(on=GPUS), *GPUS)

ONE = GPUS[:1]
STRICT = Limits(strict=True)
ALLOWED = Limits(allow_no_gpu=True)


@pytest.mark.parametrize(
    ("rows", "gpus", "limits", "signal", "expected"),
    [
        # Nothing verified is never a pass.
        ((), (), Limits(), None, (Verdict.NOT_VERIFIED, 5)),
        ((PASSED,), (), Limits(), None, (Verdict.NOT_VERIFIED, 5)),
        ((PASSED, SKIPPED), (), Limits(), None, (Verdict.NOT_VERIFIED, 5)),
        ((PASSED,), GPUS, Limits(), None, (Verdict.NOT_VERIFIED, 5)),
        # A pass needs every GPU in scope.
        ((VERIFIED,), GPUS, Limits(), None, (Verdict.PASS, 0)),
        ((VERIFIED, SKIPPED, NOTED), GPUS, Limits(), None, (Verdict.PASS, 0)),
        ((row("memory.growth", passed(on=ONE), *ONE),), GPUS, Limits(), None, (Verdict.NOT_VERIFIED, 5)),
        ((VERIFIED,), (), Limits(), None, (Verdict.NOT_VERIFIED, 5)),
        # --allow-no-gpu speaks of machines without a GPU, and of nothing else.
        ((PASSED, SKIPPED), (), ALLOWED, None, (Verdict.NOT_VERIFIED, 0)),
        ((PASSED,), GPUS, ALLOWED, None, (Verdict.NOT_VERIFIED, 5)),
        ((FAILED,), (), ALLOWED, None, (Verdict.FAIL, 1)),
        ((BROKEN,), (), ALLOWED, None, (Verdict.BROKEN, 3)),
        ((PASSED,), (), ALLOWED, 2, (Verdict.NOT_VERIFIED, 130)),
        # Warnings count where --strict is given.
        ((VERIFIED, WARNED), GPUS, Limits(), None, (Verdict.PASS, 0)),
        ((VERIFIED, WARNED), GPUS, STRICT, None, (Verdict.FAIL, 1)),
        ((VERIFIED, NOTED), GPUS, STRICT, None, (Verdict.PASS, 0)),
        # Several at once: signal, failed, broken, not verified, pass.
        ((VERIFIED, BROKEN), GPUS, Limits(), None, (Verdict.BROKEN, 3)),
        ((BROKEN,), GPUS, Limits(), None, (Verdict.BROKEN, 3)),
        ((BROKEN, FAILED, VERIFIED), GPUS, Limits(), None, (Verdict.FAIL, 1)),
        ((BROKEN, FAILED, VERIFIED), GPUS, Limits(), 15, (Verdict.FAIL, 143)),
        ((BROKEN,), GPUS, Limits(), 2, (Verdict.BROKEN, 130)),
        # What a busy machine had no time for is not verified, and neither a pass nor a fault of gpudiag.
        ((VERIFIED, BUSY), GPUS, Limits(), None, (Verdict.NOT_VERIFIED, 5)),
        ((VERIFIED, BUSY, FAILED), GPUS, Limits(), None, (Verdict.FAIL, 1)),
        ((VERIFIED, BUSY, BROKEN), GPUS, Limits(), None, (Verdict.BROKEN, 3)),
        ((PASSED, BUSY), (), ALLOWED, None, (Verdict.NOT_VERIFIED, 5)),
        # A run that was cut short passes nothing.
        ((VERIFIED,), GPUS, Limits(), 2, (Verdict.NOT_VERIFIED, 130)),
        ((VERIFIED, INTERRUPTED), GPUS, Limits(), 2, (Verdict.NOT_VERIFIED, 130)),
        ((FAILED, INTERRUPTED), GPUS, Limits(), 2, (Verdict.FAIL, 130)),
        ((VERIFIED, INTERRUPTED), GPUS, Limits(), None, (Verdict.NOT_VERIFIED, 5)),
        ((PASSED, INTERRUPTED), (), ALLOWED, None, (Verdict.NOT_VERIFIED, 5)),
    ],
)
def test_verdict_and_exit_status(
    rows: tuple[Row, ...], gpus: tuple[Gpu, ...], limits: Limits, signal: int | None, expected: tuple[Verdict, int]
) -> None:
    concluded = report(*rows, gpus=gpus, limits=limits, signal=signal)
    assert (concluded.verdict, concluded.exit_code) == expected


KINDS = {
    "failed": FAILED,
    "warned": WARNED,
    "broken": BROKEN,
    "interrupted": INTERRUPTED,
    "skipped": SKIPPED,
    "verified": VERIFIED,
}


@pytest.mark.parametrize("gpus", [(), GPUS])
@pytest.mark.parametrize("limits", [Limits(), STRICT, ALLOWED])
@pytest.mark.parametrize("signal", [None, 15])
def test_zero_needs_verification_or_leave(gpus: tuple[Gpu, ...], limits: Limits, signal: int | None) -> None:
    for size in range(len(KINDS) + 1):
        for names in itertools.combinations(KINDS, size):
            concluded = report(*map(KINDS.__getitem__, names), gpus=gpus, limits=limits, signal=signal)
            bad = {"failed", "broken", "interrupted", *(["warned"] if limits.strict else [])} & set(names)
            green = not bad and signal is None and ("verified" in names if gpus else limits.allow_no_gpu)
            assert (concluded.exit_code == 0) is green, names
            assert (concluded.verdict is Verdict.PASS) is (green and bool(gpus)), names


def test_a_report_that_was_not_concluded_is_not_verified() -> None:
    assert conclude(sample()) == sample()
    unconcluded = msgspec.json.decode(msgspec.json.encode(sample()))
    del unconcluded["verdict"], unconcluded["exit_code"]
    decoded = msgspec.convert(unconcluded, type(sample()), dec_hook=decode_hook)
    assert (decoded.verdict, decoded.exit_code) == (Verdict.NOT_VERIFIED, 5)


def test_simulation_is_no_part_of_the_verdict_and_stays_in_the_report() -> None:
    simulated = report(VERIFIED, gpus=GPUS, world=World(simulated=True, spec="2x16GiB"))
    assert simulated.verdict is Verdict.PASS
    assert simulated.world.simulated


@pytest.mark.parametrize(
    ("row_", "status"),
    [
        (PASSED, "pass"),
        (NOTED, "note"),
        (WARNED, "warning"),
        (FAILED, "fail"),
        (BROKEN, "broken"),
        (SKIPPED, "skipped"),
        (INTERRUPTED, "interrupted"),
        (row("host.environment", passed("", OVERRIDDEN, CAP_IGNORED, MISSPELT)), "fail"),
        (row("host.environment", passed("", OVERRIDDEN, MISSPELT)), "warning"),
    ],
)
def test_the_gravest_finding_is_the_status(row_: Row, status: str) -> None:
    assert row_.status == status


def test_counts_are_in_a_fixed_order_and_complete() -> None:
    counts = report(SKIPPED, BROKEN, SKIPPED, WARNED, PASSED).counts
    assert counts == {"pass": 1, "warning": 1, "broken": 1, "skipped": 2}
    assert list(counts) == ["pass", "warning", "broken", "skipped"]
    assert list(sample().counts) == list(STATUSES)
    assert sum(sample().counts.values()) == len(sample().rows)


def test_areas_keep_the_order_of_the_report() -> None:
    shown = report(PASSED, VERIFIED, WARNED, SKIPPED)
    assert shown.areas == {"host": (PASSED, WARNED), "visibility": (VERIFIED,), "logical": (SKIPPED,)}


@pytest.mark.parametrize(
    ("outcome", "probe", "indices", "label"),
    [
        (passed(), "host.driver", (), "host"),
        (passed(), "placement.log", (), "CPU"),
        (Broken(NoReading.TIMEOUT, ""), "placement.log", (), "CPU"),
        (Skipped("no GPU"), "memory.growth", (), ""),
        (passed(), "memory.growth", (2,), "GPU 2"),
        (Skipped("stopped"), "memory.growth", (2,), "GPU 2"),
        (passed(), "visibility.list_remap", (1, 0, 3, 2), "GPU 0-3"),
        (passed(), "visibility.list_remap", (4, 0, 1, 3), "GPU 0-1,3-4"),
        (passed(), "visibility.list_remap", (0, 2), "GPU 0,2"),
    ],
)
def test_device_labels(outcome: Judged | Skipped | Broken, probe: str, indices: tuple[int, ...], label: str) -> None:
    gpus = tuple(Gpu.of(device, device.uuid) for device in map(example_gpu, range(5)))
    shown = row(probe, outcome, *(gpus[index] for index in indices))
    assert report(shown, gpus=gpus).device_label(shown) == label


def test_a_device_that_the_report_does_not_know() -> None:
    shown = row("memory.growth", passed(), GPUS[1])
    assert report(shown, gpus=ONE).device_label(shown) == "GPU ?"


def test_unverified_gpus_are_named() -> None:
    assert report(row("memory.growth", passed(on=ONE), *ONE), gpus=GPUS).unverified == GPUS[1:]


@pytest.mark.parametrize(
    ("changed", "status"),
    [
        ({}, 0),
        ({"nvml": NvmlFacts("Driver Not Loaded", None, None, ())}, 0),
        ({"nvml": NvmlFacts("Unknown Error", None, None, ())}, 5),
        ({"nvml": Unknown("no result within 15 s")}, 5),
        ({"device_nodes": Unknown("no result within 15 s")}, 5),
        ({"device_nodes": DeviceNodeFacts((), ("0000:01:00.0",))}, 5),
        ({"nvml": NvmlFacts(None, "560.35.05", "12.6", (example_gpu(0),))}, 5),
    ],
)
def test_no_gpu_is_allowed_only_where_it_is_known_that_there_is_none(
    changed: dict[str, FactFamily], status: int
) -> None:
    made = msgspec.structs.replace(
        report(row("host.gpus", passed()), limits=ALLOWED), facts=example(**changed), gpus=()
    )
    assert conclude(made).exit_code == status
