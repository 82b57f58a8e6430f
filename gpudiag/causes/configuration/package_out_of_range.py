"""a package is not in the range that TensorFlow's metadata asks for

PyTorch pins each of NVIDIA's packages exactly, JAX and others have their own ranges. Whatever is installed last
replaces the libraries that TensorFlow was tested with; pip says so in one line that scrolls away. The effect depends on
the library: a crash, a failing operation, or nothing.
"""

from __future__ import annotations

from gpudiag.cause import Cause, Match, Matches
from gpudiag.causes.shared.packages import beside, reinstall
from gpudiag.fix import Kind, install, run
from gpudiag.model.facts import Facts, TensorflowFacts
from gpudiag.model.report import Severity
from gpudiag.probes.host.packages import out_of_range

CAUSE = Cause(
    title="{packages} is not in the range that TensorFlow's metadata asks for",
    severity=Severity.WARNING,
    fix=(
        install("{requirements}"),
        run(
            "python -m venv tf && tf/bin/pip install '{with_cuda}'",
            "if another framework needs the other version",
            kind=Kind.NEW_ENVIRONMENT,
        ),
    ),
    url="https://pip.pypa.io/en/stable/topics/dependency-resolution/",
    finding="host.packages.out_of_range",
)


def find(facts: Facts, installed: TensorflowFacts) -> Matches:
    wrong = list(out_of_range(installed)) if facts.given_a_gpu else []
    if not wrong:
        return
    yield Match(
        evidence=tuple(
            f"{distribution.name} {distribution.version}, TensorFlow asks for {installed.ranges[distribution.name]}"
            for distribution in wrong
        )
        + tuple(
            f"{framework} asks for {distribution.name}{versions}"
            for distribution in wrong
            for framework, versions in installed.required_by_others.get(distribution.name, {}).items()
        )
        + beside(installed),
        figures={
            "packages": ", ".join(f"{distribution.name} {distribution.version}" for distribution in wrong),
            "requirements": " ".join(
                f"'{distribution.name}{installed.ranges[distribution.name]}'" for distribution in wrong
            ),
            "with_cuda": reinstall(installed)["with_cuda"],
        },
    )
