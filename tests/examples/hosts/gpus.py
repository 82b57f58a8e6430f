"""Examples of ``host.gpus``."""

from __future__ import annotations

from msgspec.structs import replace

from examples.facts import example, example_gpu, example_with_gpus
from examples.hosts import Case
from gpudiag.model.facts import EnvironmentFacts, NvmlFacts, Unknown
from gpudiag.model.report import Limits

_REQUIRED = Limits(require_gpus=2)


_SIMULATED = example_with_gpus(
    2, nvml=NvmlFacts(None, None, None, tuple(replace(example_gpu(n), name="Simulated GPU") for n in range(2)))
)


CASES = (
    Case("no GPU, none required", expect=(), facts=example()),
    Case("NVML did not answer", expect=("not_known",), facts=example(nvml=Unknown("no result within 15 s"))),
    Case("NVML fails", expect=("not_known",), facts=example(nvml=NvmlFacts("Unknown Error", None, None, ()))),
    Case(
        "a GPU that is lost, and not in scope",
        expect=(),
        facts=example_with_gpus(
            2,
            nvml=NvmlFacts("GPU 1: GPU is lost", None, None, (example_gpu(0),)),
            environment=EnvironmentFacts({"CUDA_VISIBLE_DEVICES": "0"}),
        ),
    ),
    Case("no GPU, two required", expect=("too_few",), facts=example(), limits=_REQUIRED),
    Case("one GPU, two required", expect=("too_few",), facts=example_with_gpus(1), limits=_REQUIRED),
    Case("two GPUs, two required", expect=(), facts=example_with_gpus(2), limits=_REQUIRED),
    Case("two simulated GPUs, two real ones required", expect=("too_few",), facts=_SIMULATED, limits=_REQUIRED),
    Case(
        "two simulated GPUs, two of any kind required",
        expect=(),
        facts=_SIMULATED,
        limits=Limits(require_gpus=2, count_simulated=True),
    ),
    Case(
        "two GPUs, one masked, two required",
        expect=("too_few",),
        facts=example_with_gpus(2, environment=EnvironmentFacts({"CUDA_VISIBLE_DEVICES": "1"})),
        limits=_REQUIRED,
    ),
    Case(
        "nothing could be gathered, two required",
        expect=("not_known", "too_few"),
        facts=example(
            **dict.fromkeys(("nvml", "device_nodes", "driver", "environment"), Unknown("no answer within 10 s"))
        ),
        limits=_REQUIRED,
    ),
)
