"""{own} is a build without CUDA, which never looks for a GPU

tensorflow-cpu, and builds for the CPU of conda and others, list no GPU, and print not one line about it.
tf.test.is_built_with_cuda() is False there.
"""

from __future__ import annotations

from gpudiag.cause import Cause, Match, Matches
from gpudiag.causes.shared.packages import INSTALLATION, CpuBuild, names, reinstall, shown
from gpudiag.model.facts import Facts, SystemFacts

CAUSE = Cause(
    fix=("{first}", "pip install '{with_cuda}'"),
    url=INSTALLATION,
    shown={"first": "pip uninstall -y tensorflow-cpu"},
    views=("host.tensorflow.no_cuda",),
)


def find(facts: Facts, build: CpuBuild) -> Matches:
    installed, own, system = build.installed, build.own, facts.system
    if isinstance(system, SystemFacts) and (system.os.startswith("Windows") or system.machine == "aarch64"):
        return  # if that is another cause
    conda = facts.variables.get("CONDA_PREFIX")
    first = f"pip uninstall -y {names(installed)}"
    if conda and own.name == "tensorflow" and own.location.startswith(conda):
        first = "conda install 'tensorflow=*=cuda*'  # conda chose the build for the CPU"
    yield Match(
        evidence=(*shown(installed), "is_cuda_build is False"),
        figures={**reinstall(installed), "own": f"{own.name} {own.version}", "first": first},
    )
