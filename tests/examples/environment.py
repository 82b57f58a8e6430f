"""Of what was found by trying other environments."""

from __future__ import annotations

from dataclasses import replace

from examples import Example
from examples.facts import example_gpu, example_with_gpus
from gpudiag.cause import Evidence
from gpudiag.fix import export, unset
from gpudiag.model.diagnosis import Bisection, BisectionOutcome, EnvironmentChange
from gpudiag.model.visibility import gpus_in_scope

IN_THE_WAY = EnvironmentChange("/opt/x", "entry 3 of LD_LIBRARY_PATH (/opt/x)", export("LD_LIBRARY_PATH", "/a:/b"))
MISSING = EnvironmentChange(
    "CUDA_HOME",
    "CUDA_HOME=/usr/local/cuda",
    export("CUDA_HOME", "/usr/local/cuda"),
    "~/.bashrc line 12 sets it; this process was not started by a shell that read it",
    missing=True,
)
_ALONE = "GPU 1 alone: GPUs listed: 1; InternalError: CUDA_ERROR_LAUNCH_FAILED: unspecified launch failure"


def _gpu(origin: str = _ALONE) -> EnvironmentChange:
    of_others = export("CUDA_VISIBLE_DEVICES", example_gpu(0).uuid)
    return EnvironmentChange(example_gpu(1).uuid, f"GPU 1 ({example_gpu(1).uuid})", of_others, origin)


def _machine(*changes: EnvironmentChange, outcome: BisectionOutcome = BisectionOutcome.FOUND) -> Evidence:
    tried = Bisection(outcome, changes, "TensorFlow lists no GPU", "GPUs listed: 1", wanted=1, tried=5, seconds=20.0)
    facts = example_with_gpus(2)
    return Evidence(facts, gpus_in_scope(facts), bisection=tried)


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
        Example("a GPU fails alone", _machine(_gpu()), fires=False),
        Example("nothing was tried", Evidence(example_with_gpus()), fires=False),
    ),
    "gpu_fails": (
        Example("one of two", _machine(_gpu())),
        Example("its process names no error", _machine(_gpu("GPU 1 alone: TensorFlow lists no GPU"))),
        Example("it has room, and no memory", _machine(_gpu("GPU 1 alone: CUDA_ERROR_OUT_OF_MEMORY"))),
        Example("a GPU that is not in scope", replace(_machine(_gpu()), gpus=()), fires=False),
        Example("an entry of a list", _machine(IN_THE_WAY), fires=False),
        Example("all fail alone", _machine(outcome=BisectionOutcome.NOT_THE_ENVIRONMENT), fires=False),
    ),
}
