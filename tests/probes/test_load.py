"""The judges of level stress: what counts as slow, and what a busy host, a lone GPU or the hardware's words make of
it."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from examples.facts import example, example_gpu
from gpudiag import probe
from gpudiag.model.facts import Facts, NvmlDevice
from gpudiag.model.health import COPIED, GpuHealth, HealthCounters, HealthSample
from gpudiag.model.report import Broken, Finding, Gap, NoReading
from gpudiag.probe import Beside, Slice, Verified
from gpudiag.probes import under_load
from gpudiag.probes.load import all_reduce, gpus, links

KINDS = ("float32 product", "float16 product", "memory", *COPIED)
replace = msgspec.structs.replace


def slices(rate: float, noise: float = 0.02, seed: int = 1, waited: float = 0.0, count: int = 12) -> Iterator[Slice]:
    """Yield slices of each kind of work; a process that waits is slower by the part that it waits."""
    rng = random.Random(seed)
    for number in range(count):
        for work in KINDS:
            yield Slice(number * 2.5, 0.5, work, rate * rng.gauss(1, noise) * (1 - waited), waited, 100)


def reading(index: int, *parts: Slice, **fields: Any) -> gpus.Reading:
    return gpus.Reading(given=(example_gpu(index).pci_bus_id,), seen=1, slices=parts, planned_s=30.0, **fields)


def test_the_memory_that_a_load_takes_is_limited_unless_nvml_does_not_say() -> None:
    """An error that nobody expects ends the load: without a limit, TensorFlow would take what others need."""

    def fails(gpu: object) -> int:
        raise ValueError("unexpected")

    context: Any = SimpleNamespace(gpus=(example_gpu(0),), used_memory=fails)
    with pytest.raises(ValueError, match="unexpected"):
        gpus._limit_memory(context)


def machine(*devices: NvmlDevice) -> Facts:
    return example(nvml=msgspec.structs.replace(example().nvml, devices=devices))


def judged(*readings: gpus.Reading, of: int = 0, health: tuple[GpuHealth, ...] = (), **device: Any) -> list[Any]:
    """Return what is found of one GPU; ``device`` are changes to it."""
    devices = [example_gpu(number) for number in range(len(readings))]
    devices[of] = replace(devices[of], **device)
    others = tuple(one for number, one in enumerate(readings) if number != of)
    return list(gpus.judge(readings[of], machine(*devices), Beside(others, health)))


def findings(found: Iterable[Any]) -> list[Finding]:
    return [it for it in found if isinstance(it, Finding)]


def kinds(found: Iterable[Any]) -> list[str]:
    return [it.kind for it in findings(found)]


def gpu(index: int, rate: float = 1e12, **of_slices: Any) -> gpus.Reading:
    return reading(index, *slices(rate, seed=of_slices.pop("seed", index + 1), **of_slices))


def test_a_gpu_that_is_slower_than_its_twins_is_found_and_by_how_much() -> None:
    found = judged(gpu(0, 0.8e12), gpu(1), gpu(2), gpu(3))
    assert kinds(found) == ["slower"]
    assert 18 <= found[0].figures["percent"] <= 22
    assert "the median of 3 other GPUs of its model" in findings(found)[0].message
    assert kinds(judged(gpu(0, 0.8e12), gpu(1), gpu(2), gpu(3), of=1)) == []


@pytest.mark.parametrize(("rate", "expected"), [(0.95e12, []), (0.8e12, ["slower"]), (0.6e12, ["much_slower"])])
def test_how_much_slower_counts(rate: float, expected: list[str]) -> None:
    assert kinds(judged(gpu(0, rate), gpu(1), gpu(2)))[:1] == expected


def test_which_of_two_is_the_odd_one_is_not_said() -> None:
    found = judged(gpu(0, 0.6e12), gpu(1))
    assert found[0].kind == "slower"
    assert "the other GPU of its model" in findings(found)[0].message


def test_gpus_of_another_model_are_no_measure() -> None:
    found = judged(gpu(0, 0.5e12), gpu(1), name="NVIDIA A2")
    assert kinds(found) == []
    assert [gap.what for gap in found if isinstance(gap, Gap)] == ["rates"]


@pytest.mark.parametrize("count", [4, 12, 60])
def test_no_healthy_gpu_is_slow_at_honest_noise(count: int) -> None:
    for seed in range(200):
        found = judged(*(gpu(number, noise=0.05, seed=1000 * seed + number, count=count) for number in range(4)))
        assert kinds(found) == [], seed


def test_a_busy_host_makes_no_gpu_slow_and_hides_no_slow_one() -> None:
    found = judged(gpu(0, waited=0.3), gpu(1), gpu(2))
    assert kinds(found) == []
    assert [gap.what for gap in found if isinstance(gap, Gap)] == ["rates that differ by less than 40 %"]
    assert kinds(judged(gpu(0, 0.7e12, waited=0.2), gpu(1), gpu(2)))[:1] == ["much_slower"]


def test_one_kind_of_work_that_is_much_slower_is_named() -> None:
    slow = [replace(part, rate=part.rate / 2) if part.work == "memory" else part for part in gpu(0).slices]
    found = judged(reading(0, *slow), gpu(1), gpu(2))
    assert kinds(found) == ["slow_work"]
    assert found[0].message.startswith("memory: ")


def test_a_gpu_that_becomes_slower_is_found_without_twins() -> None:
    falling = [replace(part, rate=part.rate * (1 if part.began_s < 15 else 0.7)) for part in slices(1e12)]
    found = judged(reading(0, *falling))
    assert kinds(found) == ["slower_with_time"]
    assert 25 <= found[0].figures["percent"] <= 35


def test_wrong_elements_are_counted_by_kind_of_work_and_the_first_is_named() -> None:
    parts = list(slices(1e12))
    parts[7] = replace(parts[7], wrong=3, where="in block 0")
    found = judged(reading(0, *parts), gpu(1))
    assert kinds(found) == ["wrong"]
    assert f"{parts[7].work}: 3 wrong elements in 1200 results; the first in block 0" in findings(found)[0].message


def sampled(*samples: dict[str, Any], after: HealthCounters = HealthCounters()) -> GpuHealth:  # noqa: B008  # frozen
    """Return what NVML said of the first GPU, while it computed and at rest before."""
    known = [HealthSample(0.0, busy_percent=0, slowed_by=("idle", "hot"))]
    known += [HealthSample(1.0 + number, busy_percent=100, **sample) for number, sample in enumerate(samples)]
    return GpuHealth(example_gpu(0).uuid, tuple(known), HealthCounters(0, 0, 0, 0, 0), after)


def test_lowered_clocks_are_told_with_their_time_and_most_specific_reason() -> None:
    hot = {"slowed_by": ("hardware", "hot"), "clock_mhz": 700, "temperature": 91}
    normal = {"slowed_by": ("power_cap",), "clock_mhz": 1400, "temperature": 70}
    found = judged(gpu(0), health=(sampled(*[normal] * 3, hot),))
    assert kinds(found) == ["slowed"]
    assert "in 25 % of the time under load, down to 700 MHz at up to 91 degrees: too hot" in findings(found)[0].message
    assert kinds(judged(gpu(0), health=(sampled(normal, normal),))) == []


def test_counters_that_rose_are_told() -> None:
    found = judged(gpu(0), health=(sampled(after=HealthCounters(2, 1, 0, None, 0)),))
    assert [(it.kind, it.figures["count"]) for it in findings(found)] == [
        ("counted", 2),
        ("uncorrected", 1),
    ]


@pytest.mark.parametrize(
    ("generation", "width", "expected"), [(4, 16, []), (4, 8, ["half_link"]), (4, 4, ["narrow"]), (3, 16, ["narrow"])]
)
def test_the_link_under_load_is_compared_with_what_it_can_be(generation: int, width: int, expected: list[str]) -> None:
    state = replace(example_gpu(0).state, pcie_generation_max=4, pcie_width_max=16, virtualization="none")
    health = sampled({"pcie_generation": 1, "pcie_width": width}, {"pcie_generation": generation, "pcie_width": width})
    fast = [replace(part, rate=20e9) if part.work in COPIED else part for part in slices(1e12)]
    found = judged(reading(0, *fast), health=(health,), state=state)
    assert kinds(found) == expected


def test_copies_that_reach_less_than_half_of_the_link_are_told_of_real_gpus_alone() -> None:
    state = replace(example_gpu(0).state, pcie_generation_max=4, pcie_width_max=16, virtualization="none")
    health = sampled({"pcie_generation": 4, "pcie_width": 16})
    slow = [replace(part, rate=6e9) if part.work in COPIED else part for part in slices(1e12)]
    found = judged(reading(0, *slow), health=(health,), state=state)
    assert kinds(found) == ["under_link"] * 2
    assert (
        "6 GB/s, less than half of the 31.5 GB/s of its link (PCI Express generation 4 x16)"
        in findings(found)[0].message
    )
    assert kinds(judged(reading(0, *slow), health=(health,), state=state, name="Simulated GPU")) == []


def test_a_gpu_that_dies_fails_and_is_not_verified_and_an_interruption_is_no_failure() -> None:
    dead = Broken(NoReading.SIGNAL, "killed by SIGABRT")
    found = judged(reading(0, *slices(1e12), ended=dead), gpu(1))
    assert kinds(found) == ["ended"]
    assert "after 28.0 of 30.0 s under load: killed by SIGABRT" in findings(found)[0].message
    assert not any(isinstance(it, Verified) for it in found)
    stopped = Broken(NoReading.INTERRUPTED, "SIGINT")
    assert kinds(judged(reading(0, *slices(1e12), ended=stopped), gpu(1))) == []


@pytest.mark.parametrize(("display", "left"), [(None, 0.1), (False, 0.1), (True, 0.3)])
def test_memory_stays_free_and_more_of_it_where_a_display_is_on(display: bool | None, left: float) -> None:
    free = 40 << 30
    assert free - gpus.bytes_to_take(free, display=display) == pytest.approx(left * free + probe.CONTEXT_BYTES)
    assert gpus.bytes_to_take(64 << 20, display=display) > 0


@pytest.mark.parametrize("pool", [512 << 20, 2 << 30, 7 << 30, 21 << 30, 72 << 30])
def test_products_and_patterns_fit_into_the_memory_of_any_gpu(pool: int) -> None:
    side = gpus.sides_within(pool)[-1]
    prepared, compared = 36 * side**2, 13 * side**2
    count, block = gpus.blocks_within(pool - prepared)
    int64s = 2.5 * block
    assert prepared + (count + 3) * block + max(compared, int64s) <= pool
    assert count * block > pool / 4
    if pool > 20 << 30:
        assert side == 8192
        assert count * block > 0.75 * pool


def linked(rates: dict[str, float], wrong: str = "") -> links.Reading:
    parts = [
        Slice(
            number * 1.0, 0.5, f"copy {link}", rate * random.Random(number).gauss(1, 0.02), 0.0, 10, int(link == wrong)
        )
        for number in range(6)
        for link, rate in rates.items()
    ]
    return links.Reading(given=("0000:01:00.0",) * 3, seen=3, slices=tuple(parts))


def test_links_are_compared_with_their_way_back_and_with_those_of_other_gpus() -> None:
    pairs = [(a, b) for a in range(4) for b in range(4) if a != b]
    even = {f"GPU:{a} to GPU:{b}": 2e11 for a, b in pairs}
    nothing = Beside()
    assert list(links.judge(linked(even), example(), nothing)) == []
    one_way = even | {"GPU:0 to GPU:1": 1e11}
    (found,) = links.judge(linked(one_way), example(), nothing)
    assert isinstance(found, Finding)
    assert "copies from GPU:0 to GPU:1 are 50 % slower than back" in found.message
    slow = {link: rate / 4 if "GPU:2" in link else rate for link, rate in even.items()}
    assert [
        it.figures["device"] for it in links.judge(linked(slow), example(), nothing) if isinstance(it, Finding)
    ] == ["GPU:2"]
    (wrong,) = links.judge(linked(even, "GPU:1 to GPU:3"), example(), nothing)
    assert isinstance(wrong, Finding)
    assert "6 wrong elements in 60 copies" in wrong.message


def test_a_wrong_sum_over_all_gpus_fails() -> None:
    parts = (
        Slice(0.0, 0.5, "all-reduce by NCCL", 1e9, 0.0, 50, 2),
        Slice(0.5, 0.5, "all-reduce by copies", 1e9, 0.0, 50),
    )
    reading = all_reduce.Reading(given=("0000:01:00.0", "0000:02:00.0"), seen=2, slices=parts)
    (found,) = all_reduce.judge(reading, example(), Beside())
    assert isinstance(found, Finding)
    assert found.message == "all-reduce by NCCL: 2 wrong elements in 50 sums"
    assert reading.figure() == "over 2 GPUs: 100 sums, 2 wrong elements"


def test_time_that_threads_wait_for_a_processor_is_counted() -> None:
    assert (under_load.waited_s() or 0.0) >= 0.0
