"""Measures how `gpudiag fleet merge` grows, and whether it finds what sets bad nodes apart: writes `reports/fleet.md`.

Fleets are made up: 79 facts a node, of which most mean nothing, and bad nodes with a driver, a rack, and an image on
one model of GPU, among others that fail at random. Each merge is a process of its own; times are those of its
processors, because the machine may be shared, and memory is the most that it and its children had at a time.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from gpudiag.fix import Action, reboot, run
from gpudiag.model.diagnosis import Confidence
from gpudiag.model.fleet import Answer, CauseSummary, Summary
from gpudiag.model.report import Verdict

ROOT = Path(__file__).resolve().parent.parent
MODELS = ("NVIDIA H100 80GB HBM3", "NVIDIA A100-SXM4-80GB", "NVIDIA L40S")
RATES = {"float16 product": 6e14, "float32 product": 5e13, "memory": 2.8e12, "copy to the GPU": 2.5e10}
NODES_OF_A_RACK = 32
PACKAGES = 55

PLANTED = {
    "driver_broken": (("driver", "545.29.06"),),
    "gpu_lost": (("rack", "r3"),),
    "libraries_missing": (("image of the container", "image-2"), ("GPU", MODELS[1])),
}
"""For each cause the facts of the nodes that have it."""
_SHARES = {"driver_broken": 0.9, "gpu_lost": 0.6, "libraries_missing": 0.8}
"""Which part of the nodes with these facts has the cause."""
_RANDOM = 0.005
"""Which part of all other nodes has one of the causes, or another one."""


@dataclass(frozen=True)
class Fleet:
    """A made-up fleet."""

    number: int
    seed: int = 1
    is_healthy: bool = False
    """True: nothing sets bad nodes apart, and 3 % of all nodes fail at random."""

    def racks(self) -> dict[str, str]:
        return {self.name(number): f"r{number // NODES_OF_A_RACK}" for number in range(self.number)}

    @staticmethod
    def name(number: int) -> str:
        return f"n{number:06}"

    def answers(self) -> Iterator[Answer]:
        """Yield the answer of each node."""
        chance = random.Random(self.seed)  # noqa: S311  # the same fleet each time
        for number in range(self.number):
            facts = _facts(chance)
            cause = self._cause(chance, facts | {"rack": f"r{number // NODES_OF_A_RACK}"})
            yield Answer(self.name(number), summary=_summary(chance, facts, cause), seconds=40.0)

    def _cause(self, chance: random.Random, facts: dict[str, str]) -> str:
        if not self.is_healthy:
            for cause, planted in PLANTED.items():
                if all(facts[name] == value for name, value in planted) and chance.random() < _SHARES[cause]:
                    return cause
        if chance.random() < (0.03 if self.is_healthy else _RANDOM):
            return chance.choice([*PLANTED, "memory_faulty"])
        return ""


def _facts(chance: random.Random) -> dict[str, str]:
    """Return the facts of a node: each independent of the others."""
    model = chance.choices(MODELS, (60, 30, 10))[0]
    return {
        "driver": chance.choices(("550.90.07", "545.29.06", "535.183.01"), (90, 5, 5))[0],
        "kernel": chance.choices(("6.8.0-45-generic", "6.8.0-47-generic", "5.15.0-119-generic"), (80, 15, 5))[0],
        "BIOS": f"2.{chance.choices(range(4), (85, 5, 5, 5))[0]}",
        "GPU": model,
        "GPUs": "8",
        "image of the container": f"image-{chance.choices(range(5), (50, 20, 15, 10, 5))[0]}",
        "operating system": "Ubuntu 22.04.5 LTS",
        "memory of the machine": f"{chance.choice((500, 1000, 2000)):,} GiB",
        "Python": chance.choices(("3.11.7", "3.12.3"), (95, 5))[0],
        "LD_LIBRARY_PATH": chance.choices(("/usr/local/cuda/lib64", "/opt/cuda/lib64"), (97, 3))[0],
        **{f"fact {number}": "yes" for number in range(14)},
        **{f"package p{number}": f"1.{chance.choices(range(3), (90, 7, 3))[0]}" for number in range(PACKAGES)},
    }


def _summary(chance: random.Random, facts: dict[str, str], cause: str) -> Summary:
    model = facts["GPU"]
    return Summary(
        gpudiag_version="0.1.0",
        started_at="2026-11-28T12:00:00+00:00",
        duration_s=30.0,
        level="stress",
        verdict=Verdict.FAIL if cause else Verdict.PASS,
        headline=f"{cause}: TensorFlow uses no GPU" if cause else "",
        causes=(CauseSummary(cause, "TensorFlow uses no GPU", Confidence.PROVED, unfit=True),) if cause else (),
        actions=(_action(cause),) if cause else (),
        gpus=(model,) * 8,
        facts=facts,
        figures={
            work: tuple(round(rate * chance.gauss(1, 0.02), -6) for _ in range(8)) for work, rate in RATES.items()
        },
    )


def _action(cause: str) -> Action:
    return reboot() if cause == "gpu_lost" else run(f"sudo mend {cause}")
