"""What tests of the bisection start: it bisects the environment of this process, on the machine that it names."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec

from examples.facts import example_with_gpus
from gpudiag.facts import environment
from gpudiag.isolate import Bounds, ServerSpec, supervise
from gpudiag.model.diagnosis import Diagnosis
from gpudiag.run.bisect import here


def bisect_here() -> None:
    """Bisect, and print the result as JSON."""
    machine = Path(os.environ["GPUDIAG_SIM_MACHINE"])
    with supervise({"plain": ServerSpec()}, Bounds()) as children:
        facts = example_with_gpus(2, environment=environment.gather())
        nothing = Diagnosis(steps=())
        bisection = here.bisected(
            children, "plain", nothing, facts, gpus=(), environment={}, machine=machine, jobs=2, within_s=300.0
        )
    print(msgspec.json.encode(bisection).decode())
