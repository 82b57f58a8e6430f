"""GPUs of one model are compared, and the odd one is named; healthy twins, with honest noise, are not."""

from __future__ import annotations

import random
from typing import Any

import pytest
from msgspec.structs import replace

from examples.machines import example_evidence, example_facts
from examples.senses import card, devices
from gpudiag.cause import Evidence
from gpudiag.model.diagnosis import RootCause
from gpudiag.model.facts import GpuState, KernelFacts, NvmlDevice
from gpudiag.model.report import Judged, Row
from gpudiag.probe import Kernel
from gpudiag.probes.discovery import first_op
from gpudiag.probes.libraries import copies
from gpudiag.run.diagnosis import diagnose

MODELS = ("NVIDIA A100-SXM4-40GB", "NVIDIA GeForce RTX 3090", "Tesla T4", "NVIDIA H100 80GB HBM3")


def twin(name: str = MODELS[0], **state: Any) -> NvmlDevice:
    """Return a GPU whose state differs from a healthy one's."""
    whole = {"nvlinks": (True,) * 12, "power_limit_watts": 400, "power_default_watts": 400, "corrected_errors": 0}
    return card(name, **{**whole, **state})


def machine(
    gpus: list[NvmlDevice], first: list[float], rates: list[float], awake: list[int] | None = None, **families: Any
) -> Evidence:
    """Return the evidence of a machine on which each GPU computed and copied; ``awake`` are the performance states
    after that."""
    nvml = devices(*gpus)
    facts = example_facts(len(gpus), nvml=nvml, **families)
    given = tuple(device.pci_bus_id for device in nvml.devices)
    operations = tuple(
        first_op.RepeatedOperation(Kernel(f"GPU:{number}", pci, True), first[number], first[number] / 100)
        for number, pci in enumerate(given)
    )
    reading = first_op.Reading(
        given=given,
        list_s=0.1,
        create_s=0.3,
        operations=operations,
        compiled=(),
        states={pci: GpuState(performance_state=state) for pci, state in zip(given, awake or (), strict=False)},
    )
    size = 64 << 20
    copied = copies.Reading(
        given=given,
        made={f"GPU:{number}": pci for number, pci in enumerate(given)},
        copies=tuple(
            copies.DeviceCopy(*ends, size, seconds=size / rate / 1e9)
            for number, rate in enumerate(rates)
            for ends in ((copies.PINNED, f"GPU:{number}"), (f"GPU:{number}", copies.PINNED))
        ),
    )
    rows = (
        Row("discovery.first_op", (), Judged(()), 0.0, reading),
        Row("libraries.copies", (), Judged(()), 0.0, copied),
    )
    return example_evidence(facts, *rows, listed=len(gpus))


def causes(evidence: Evidence) -> list[RootCause]:
    found = diagnose(evidence)
    assert found.failed == ()
    return [*found.causes, *found.folded]


def honest(chance: random.Random, count: int) -> Evidence:
    """Return a healthy machine with the noise that healthy machines have."""
    name = chance.choice(MODELS)
    far = chance.random() < 0.5  # half of the GPUs are at the other processor, whose copies are slower
    slots = chance.choice([[16], [16, 8], [16, 16, 8, 8], [8]])
    busy = chance.random() < 0.3
    gpus, first, rates = [], [], []
    for number in range(count):
        idle = chance.random() < 0.3
        sold = chance.choice([350, 370, 390]) if "GeForce" in name else 400
        state = {
            "pcie_width": slots[number % len(slots)],
            "pcie_generation": chance.choice([1, 2, 4]) if idle else 4,
            "performance_state": chance.choice([5, 8]) if idle else chance.choice([0, 2]),
            "slowed_by": ("idle",) if idle else chance.choice([(), ("power_cap",), ("warm",)]),
            "clock_mhz": chance.randrange(210 if idle else 900, 1411),
            "power_limit_watts": sold - chance.randrange(0, 8),
            "power_default_watts": sold,
            "corrected_errors": chance.choice([0, 0, 0, 3, 40, 300]),
            "remapped_rows": chance.choice([0, 0, 1, 4]),
            "nvlinks": None if "T4" in name or "GeForce" in name else (True,) * 12,
        }
        gpus.append(replace(twin(name, **state), memory_used_bytes=chance.randrange(0, 2 << 30)))
        spread = chance.lognormvariate(0, 0.3) * (2 if busy else 1)
        first.append((6 if number == 0 else 0.4) * spread)
        near = 24.0 * slots[number % len(slots)] / 16
        rates.append(near * chance.uniform(0.85, 1.0) * (0.7 if far and number >= count / 2 else 1.0))
    return machine(gpus, first, rates, awake=[chance.choice([0, 2, 3, 5]) for _ in gpus])


@pytest.mark.parametrize("count", range(2, 9))
def test_healthy_twins_are_never_odd(count: int) -> None:
    chance = random.Random(count)
    for _ in range(40):
        assert [cause.cause for cause in causes(honest(chance, count))] == []


ODD: dict[str, tuple[dict[str, Any], str, str]] = {
    # state of the odd one, words of the cause, words of the fix
    "a link of four lanes": ({"pcie_width": 4}, "PCI Express x4", "into another slot"),
    "an older generation": ({"pcie_generation": 3}, "PCI Express generation 3", "into another slot"),
    "a lower power limit": ({"power_limit_watts": 300}, "a power limit of 75 %", "-pl 400"),
    "clocks that somebody set": ({"slowed_by": ("chosen_clocks",), "clock_mhz": 600}, "clocks set by", "-rgc"),
    "links that are down": ({"nvlinks": (True,) * 10 + (False,) * 2}, "10 NVLinks are active", "nvlink -s"),
    "no ECC": ({"ecc": False}, "ECC off", "-e 1"),
    "no persistence": ({"persistence": False}, "persistence mode off", "-pm 1"),
    "errors of its memory": ({"corrected_errors": 250_000}, "250000 corrected memory errors", "ROW_REMAPPER"),
}


@pytest.mark.parametrize("name", ODD)
@pytest.mark.parametrize("count", [4, 8])
def test_the_odd_one_is_named(name: str, count: int) -> None:
    state, words, fix = ODD[name]
    gpus = [twin() for _ in range(count)]
    gpus[count - 2] = twin(**state)
    (cause,) = causes(machine(gpus, [5.0] + [0.4] * (count - 1), [24.0] * count))
    assert cause.cause_id == "gpu_differs_from_twins"
    assert cause.cause.startswith(f"GPU {count - 2} differs from {count - 1} others of its model: {words}")
    assert cause.gpus == (devices(*gpus).devices[count - 2].pci_bus_id,)
    assert any(fix in action.text for action in cause.fix)


def test_a_gpu_whose_first_result_or_copies_take_long_is_named() -> None:
    gpus = [twin() for _ in range(4)]
    (slow,) = causes(machine(gpus, [5.0, 0.4, 9.0, 0.5], [24.0] * 4))
    assert slow.cause.startswith("GPU 2 differs from 2 others of its model: first result after 9.0 s")
    (narrow,) = causes(machine(gpus, [5.0, 0.4, 0.4, 0.5], [24.0, 22.5, 23.1, 3.1]))
    assert narrow.cause.startswith("GPU 3 differs from 3 others of its model: copies at 3.1 GB/s")


def test_a_gpu_that_does_not_wake_is_named() -> None:
    """As in https://github.com/microsoft/pai/issues/3387."""
    gpus = [twin() for _ in range(4)]
    (asleep,) = causes(machine(gpus, [5.0, 0.4, 0.4, 0.5], [24.0] * 4, awake=[0, 2, 0, 8]))
    assert "GPU 3 differs from 3 others of its model: performance state P8 right after it computed" in asleep.cause
    late = machine(gpus, [5.0, 0.4, 3.0, 4.0], [24.0] * 4, awake=[8, 8, 0, 0])
    assert causes(late) == []  # the first two had seconds to fall asleep


def test_a_gpu_without_the_firmware_that_its_twins_run_is_named() -> None:
    gpus = [twin() for _ in range(3)]
    places = [device.pci_bus_id for device in devices(*gpus).devices]
    firmware = dict(zip(places, ("570.86.15", "N/A", "570.86.15"), strict=True))
    (cause,) = causes(machine(gpus, [5.0, 0.4, 0.4], [24.0] * 3, kernel=KernelFacts(firmware=firmware)))
    assert "GPU 1 differs from 2 others of its model: driven without GSP firmware" in cause.cause


def test_two_halves_are_not_odd_and_other_models_are_no_twins() -> None:
    halves = [twin(persistence=number < 2, pcie_width=16 if number < 2 else 4) for number in range(4)]
    assert causes(machine(halves, [5.0] + [0.4] * 3, [24.0, 24.0, 6.0, 6.0])) == []
    models = [twin(), twin(), twin("NVIDIA GeForce RTX 3090", ecc=None, nvlinks=None, power_limit_watts=250)]
    assert causes(machine(models, [5.0, 0.4, 0.4], [24.0, 24.0, 6.0])) == []
