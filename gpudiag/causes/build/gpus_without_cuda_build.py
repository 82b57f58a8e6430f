"""this TensorFlow is built without CUDA and cannot use the GPUs of this machine

A build for the CPU never looks for a GPU and prints no line about it. Other causes say which distribution installed it.
"""

from __future__ import annotations

from gpudiag.cause import Cause, Match, Matches
from gpudiag.fix import Kind, note
from gpudiag.model.facts import Facts, TensorflowFacts
from gpudiag.model.report import Severity
from gpudiag.probes.host.tensorflow import imported, is_imported
from gpudiag.text import counted

CAUSE = Cause(
    title="{distribution} is built without CUDA and cannot use the {shown} of this machine",
    severity=Severity.WARNING,
    fix=(note("remove every distribution of TensorFlow, then install one that is built with CUDA", kind=Kind.REMOVE),),
    url="https://www.tensorflow.org/install/pip",
    finding="host.tensorflow.no_cuda",
    row_only=True,
)


def find(facts: Facts, installed: TensorflowFacts) -> Matches:
    build, gpus = installed.build, len(facts.nvml_devices)
    if is_imported(installed) and build is not None and not build.cuda and gpus:
        own = imported(installed)
        yield Match(
            evidence=(f"{own}: is_cuda_build is False",),
            figures={"distribution": own, "gpus": gpus, "shown": counted(gpus, "GPU")},
        )
