"""the installed TensorFlow is the aarch64 wheel, which is built without CUDA

The aarch64 wheels on PyPI are for the CPU. The extra [and-cuda] still installs gigabytes of NVIDIA's packages beside
them, but TensorFlow opens none of them: paths and drivers are not the reason.
"""

from __future__ import annotations

from gpudiag.cause import Cause, Match, Matches
from gpudiag.causes.shared.packages import CpuBuild, shown
from gpudiag.fix import Kind, note, run_container
from gpudiag.model.facts import Facts, SystemFacts

CAUSE = Cause(
    title="{own} is the aarch64 wheel, which is built without CUDA",
    fix=(
        run_container("--gpus all", "-it", image="nvcr.io/nvidia/tensorflow:25.02-tf2-py3", note="NVIDIA's container"),
        note(
            "on Jetson: NVIDIA's wheels for JetPack; otherwise build TensorFlow from source with --config=cuda",
            kind=Kind.INSTALL,
        ),
    ),
    url="https://docs.nvidia.com/deeplearning/frameworks/tensorflow-release-notes/",
    needs_gpu=False,
    views=("host.tensorflow.no_cuda",),
)


def find(facts: Facts, build: CpuBuild, system: SystemFacts) -> Matches:
    packages = [
        distribution.name for distribution in build.installed.companions if distribution.name.startswith("nvidia-")
    ]
    if system.machine != "aarch64" or not (packages or facts.nvml_devices):
        return
    useless = [f"{len(packages)} packages of NVIDIA beside it, of no use to it"] if packages else []
    yield Match(
        evidence=(*shown(build.installed), "machine aarch64", "is_cuda_build is False", *useless),
        figures={"own": f"{build.own.name} {build.own.version}"},
    )
