"""several packages install the same folder: TensorFlow opens the files of the one that was installed last

nvidia-cudnn-cu12 and nvidia-cudnn-cu13 both install nvidia/cudnn; NCCL and others do likewise. A framework for CUDA
13 beside TensorFlow, which needs CUDA 12, replaces the library in place. Uninstalling one of them deletes the files
of the other.
"""

from __future__ import annotations

from gpudiag.cause import Cause, Match, Matches
from gpudiag.causes.shared.packages import beside, reinstall
from gpudiag.fix import Kind, Role, run
from gpudiag.model.facts import Facts, TensorflowFacts
from gpudiag.model.report import Severity
from gpudiag.probes.host.packages import folder, sharing_a_folder, wanted

CAUSE = Cause(
    title="{packages} install the same folder: TensorFlow opens the files of the one that was installed last",
    severity=Severity.WARNING,
    fix=(
        run("python -m venv tf && tf/bin/pip install '{with_cuda}'", kind=Kind.NEW_ENVIRONMENT),
        run(
            "pip uninstall -y {names}; pip install --force-reinstall --no-deps {wanted}",
            "or here",
            kind=Kind.REMOVE,
            role=Role.ALTERNATIVE,
        ),
    ),
    url="https://github.com/pytorch/pytorch/issues/119989",
    finding="host.packages.shared_folder",
)


def find(facts: Facts, installed: TensorflowFacts) -> Matches:
    pairs = list(sharing_a_folder(installed)) if facts.given_a_gpu else []
    if not pairs:
        return
    yield Match(
        evidence=tuple(f"{folder(pair[0])}: {' and '.join(f'{o.name} {o.version}' for o in pair)}" for pair in pairs)
        + beside(installed),
        figures={
            "packages": ", ".join(distribution.name for pair in pairs for distribution in pair),
            "names": " ".join(distribution.name for pair in pairs for distribution in pair),
            "wanted": " ".join(f"'{wanted(installed, pair)}'" for pair in pairs),
            "with_cuda": reinstall(installed)["with_cuda"],
        },
    )
