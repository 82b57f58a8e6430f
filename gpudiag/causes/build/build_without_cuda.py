"""the installed TensorFlow is a build without CUDA, which never looks for a GPU

tensorflow-cpu, and builds for the CPU of conda and others, list no GPU, and print nothing about it.
tf.test.is_built_with_cuda() is False there.
"""

from __future__ import annotations

from gpudiag.cause import Cause, Match, Matches
from gpudiag.causes.shared.imports import executable
from gpudiag.causes.shared.packages import INSTALLATION, USER_SITE, CpuBuild, names, reinstall, shown
from gpudiag.fix import Action, Kind, export, install, note, run
from gpudiag.model.facts import Facts, SystemFacts

CAUSE = Cause(
    title="{own} is a build without CUDA, which never looks for a GPU",
    fix=(run("pip uninstall -y tensorflow-cpu", kind=Kind.REMOVE), install("tensorflow[and-cuda]==2.21.0")),
    url=INSTALLATION,
    views=("host.tensorflow.no_cuda",),
)


def find(facts: Facts, build: CpuBuild) -> Matches:
    installed, own, system = build.installed, build.own, facts.system
    if isinstance(system, SystemFacts) and (system.os.startswith("Windows") or system.machine == "aarch64"):
        return  # if that is another cause
    conda = facts.variables.get("CONDA_PREFIX")
    first, second = (
        run(f"pip uninstall -y {names(installed)}", kind=Kind.REMOVE),
        run(f"pip install '{reinstall(installed)['with_cuda']}'", kind=Kind.INSTALL),
    )
    hides = next(
        (distribution for distribution in installed.distributions if distribution.location != own.location), None
    )
    hide: Action | None = None
    if hides is not None:  # of two installations the wrong one goes
        first = run(f"{executable(facts)} -m pip uninstall -y {own.name}", f"in {own.location}", kind=Kind.REMOVE)
        second = note(f"{hides.name} {hides.version} in {hides.location} is then the one that is imported")
        if USER_SITE.search(own.location):
            hide = export("PYTHONNOUSERSITE", "1", "makes Python ignore ~/.local")
            first, second = hide, first.replaced(note=f"{first.note}; for good")
    elif conda and own.name == "tensorflow" and own.location.startswith(conda):
        first = run("conda install 'tensorflow=*=cuda*'", "conda chose the build for the CPU", kind=Kind.INSTALL)
        second = note("if conda sees no driver, as on a login node, put CONDA_OVERRIDE_CUDA=12.6 before the command")
    yield Match(
        evidence=(*shown(installed), "is_cuda_build is False"),
        figures={"own": f"{own.name} {own.version}{f' in {own.location}' if hides else ''}"},
        fix=(first, second),
        tried=hide,
    )
