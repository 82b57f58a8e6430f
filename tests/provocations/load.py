"""What provokes the probes of the area load.

What a rate is compared with is made from the recorded reading itself: a twin of it, faster or as fast, in the steady
rates of GPUs that nothing disturbs. Machines with faults of load are checked in ``scripts/stress_machines.py``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from msgspec.structs import replace

from gpudiag.model.health import GpuHealth, HealthCounters, HealthSample
from gpudiag.probe import Beside, LoadReading
from provocations import NOTHING, Altered, OnMachine

_ENDED = {"cause": "signal", "detail": "killed by SIGABRT"}
_STOPPED = {"outcome": "broken", "cause": "interrupted", "detail": "stopped by SIGINT"}


def _slices(*rates: float, work: str = "float32 product", wrong: int = 0) -> list[dict[str, Any]]:
    """Return slices with these rates, in their order in time."""
    where = "in a product of 128 x 128" if wrong else ""
    return [
        {"began_s": 0.5 * at, "seconds": 0.5, "work": work, "rate": rate, "results": 9, "wrong": wrong, "where": where}
        for at, rate in enumerate(rates)
    ]


_STEADY = _slices(*[100.0, 101.0, 99.0] * 4)
_BACK = "copy to the host and back"
_COPIES = _slices(*[100.0, 101.0, 99.0] * 4, work=_BACK)


def _twins(factor: float, count: int = 1, work: str = "") -> Callable[[Any], Beside]:
    """Return a function that makes the readings of other GPUs: so many times as fast, in this work or in all."""

    def make(reading: LoadReading) -> Beside:
        slices = (
            replace(part, rate=part.rate * (factor if part.work.startswith(work) else 1.0)) for part in reading.slices
        )
        return Beside((replace(reading, slices=tuple(slices)),) * count)

    return make


def _health(*samples: HealthSample, **rose: int) -> Callable[[Any], Beside]:
    """Return a function that makes what NVML said of the first GPU: these samples, and counters that rose from 0."""
    before, after = HealthCounters(**dict.fromkeys(rose, 0)), HealthCounters(**rose)
    return lambda _: Beside(health=(GpuHealth("GPU-1", samples, before, after),))


def _hot(of_ten: int) -> list[HealthSample]:
    """Return samples of ten seconds under load, in so many of which the GPU was too hot."""
    return [
        HealthSample(at_s=at, clock_mhz=900, temperature=91, busy_percent=99, slowed_by=("hot",) * (at < of_ten))
        for at in range(10)
    ]


_AT_REST = HealthSample(at_s=0.0, busy_percent=0, slowed_by=("hot",))
_NARROW = HealthSample(at_s=0.0, pcie_generation=4, pcie_width=4)
_HALF = HealthSample(at_s=0.0, pcie_generation=4, pcie_width=8)
_WIDE = HealthSample(at_s=0.0, pcie_generation=4, pcie_width=16)
_OF_16_LANES = {"nvml.devices.0.state": {"pcie_width_max": 16, "pcie_generation_max": 4}}


def _gpus(
    kind: str, slices: list[dict[str, Any]], beside: Callable[[Any], Beside] | None = None, **more: Any
) -> Altered:
    return Altered("load.gpus", kind, {"slices": slices, **more.pop("change", {})}, beside=beside, **more)


PROVOCATIONS: tuple[OnMachine | Altered, ...] = (
    _gpus(NOTHING, _STEADY),
    _gpus("wrong", _slices(100.0, 101.0, wrong=2)),
    _gpus(NOTHING, _STEADY, _twins(1.09)),  # healthy GPUs differ
    _gpus("slower", _STEADY, _twins(1.25)),
    _gpus("slower", _STEADY, _twins(2.0)),  # of two GPUs nobody knows which is the odd one
    _gpus("much_slower", _STEADY, _twins(2.0, count=3)),
    _gpus(NOTHING, _slices(*[60.0, 140.0, 100.0, 20.0] * 3), _twins(1.25)),  # within its noise
    _gpus(
        "slow_work",
        [*_STEADY, *_slices(*[100.0] * 9, work="TF32 product"), *_slices(*[100.0] * 9, work="memory")],
        _twins(2.0, count=3, work="TF32"),
    ),
    _gpus("slow_copies", [*_STEADY, *_COPIES], _twins(2.0, count=3, work="copy")),
    _gpus(NOTHING, [*_STEADY, *_COPIES], _twins(1.2, count=3, work="copy")),  # another socket's memory
    _gpus("slower_with_time", _slices(*[100.0, 101.0, 99.0, 100.0] * 4, *[80.0, 81.0, 79.0, 80.0] * 2)),
    _gpus(NOTHING, _slices(*[100.0, 101.0, 99.0, 100.0] * 4, *[94.0, 95.0, 93.0, 94.0] * 2)),
    _gpus("slowed", _STEADY, _health(*_hot(3))),
    _gpus(NOTHING, _STEADY, _health(*_hot(0), _AT_REST)),
    _gpus("counted", _STEADY, _health(corrected_errors=3)),
    _gpus("counted", _STEADY, _health(pcie_replays=12)),
    _gpus("uncorrected", _STEADY, _health(uncorrected_errors=1)),
    _gpus("half_link", _STEADY, _health(_HALF), facts=_OF_16_LANES),
    _gpus("narrow", _STEADY, _health(_NARROW), facts=_OF_16_LANES),
    _gpus(NOTHING, _STEADY, _health(_WIDE, _NARROW), facts=_OF_16_LANES),
    _gpus(
        "under_link",
        _slices(*[5e9] * 9, work=_BACK),
        _health(_WIDE),
        facts={**_OF_16_LANES, "nvml.devices.0.name": "Some GPU"},
    ),
    _gpus(
        NOTHING,
        _slices(*[22e9] * 9, work=_BACK),
        _health(_WIDE),
        facts={**_OF_16_LANES, "nvml.devices.0.name": "Some GPU"},
    ),
    _gpus("ended", _STEADY, change={"ended": _ENDED}),
    *(Altered(f"load.{name}", "ended", {"ended": _ENDED}) for name in ("links", "all_reduce")),
    *(Altered(f"load.{name}", "wrong", {"slices.0.wrong": 5}) for name in ("links", "all_reduce")),
    Altered(
        "load.links",
        "one_way",
        {
            "slices": [
                *_slices(*[100.0] * 5, work="copy GPU:0 to GPU:1"),
                *_slices(*[50.0] * 5, work="copy GPU:1 to GPU:0"),
            ]
        },
    ),
    Altered(
        "load.links",
        "slow_gpu",
        {
            "slices": [
                part
                for source, target, rate in ((0, 1, 100.0), (1, 2, 98.0), (2, 0, 101.0), (3, 0, 50.0), (2, 3, 51.0))
                for part in _slices(*[rate] * 5, work=f"copy GPU:{source} to GPU:{target}")
            ]
        },
    ),
    Altered(
        "load.all_reduce",
        "slower_with_time",
        {"slices": _slices(*[100.0, 101.0, 99.0, 100.0] * 4, *[80.0, 81.0, 79.0, 80.0] * 2, work="all-reduce by NCCL")},
    ),
)
