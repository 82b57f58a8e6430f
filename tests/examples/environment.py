"""Of what was found by trying other environments."""

from __future__ import annotations

from examples import Example
from examples.facts import example_with_gpus
from gpudiag.cause import Evidence
from gpudiag.fix import export, unset
from gpudiag.model.diagnosis import Bisection, BisectionOutcome, EnvironmentChange

IN_THE_WAY = EnvironmentChange("/opt/x", "entry 3 of LD_LIBRARY_PATH (/opt/x)", export("LD_LIBRARY_PATH", "/a:/b"))
MISSING = EnvironmentChange(
    "CUDA_HOME",
    "CUDA_HOME=/usr/local/cuda",
    export("CUDA_HOME", "/usr/local/cuda"),
    "~/.bashrc line 12 sets it; this process was not started by a shell that read it",
    missing=True,
)


def _machine(*changes: EnvironmentChange, outcome: BisectionOutcome = BisectionOutcome.FOUND) -> Evidence:
    tried = Bisection(outcome, changes, "TensorFlow lists no GPU", "GPUs listed: 1", wanted=1, tried=5, seconds=20.0)
    return Evidence(example_with_gpus(), bisection=tried)


EXAMPLES = {
    "environment_in_the_way": (
        Example("an entry of a list is in the way", _machine(IN_THE_WAY)),
        Example("a variable is missing that a file of the shell sets", _machine(MISSING)),
        Example("two are in the way", _machine(IN_THE_WAY, EnvironmentChange("EDITOR", "EDITOR=vi", unset("EDITOR")))),
        Example(
            "TensorFlow also fails in a clean environment",
            _machine(outcome=BisectionOutcome.NOT_THE_ENVIRONMENT),
            fires=False,
        ),
        Example("nothing was tried", Evidence(example_with_gpus()), fires=False),
    ),
}
