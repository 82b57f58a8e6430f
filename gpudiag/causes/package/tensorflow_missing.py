"""TensorFlow is not installed for {executable}

A virtual environment that is not activated, or a notebook whose kernel is another Python than the one that pip
installed into, has no TensorFlow: the interpreter that runs the program counts.
"""

from __future__ import annotations

from gpudiag.cause import Cause, Match, Matches
from gpudiag.causes.shared.imports import active_environment, executable, interpreter
from gpudiag.causes.shared.packages import INSTALLATION
from gpudiag.model.facts import Facts, TensorflowFacts

CAUSE = Cause(
    fix=("{executable} -m pip install 'tensorflow[and-cuda]'",),
    url=INSTALLATION,
    needs_gpu=False,
    finding="host.tensorflow.missing",
)


def find(facts: Facts, installed: TensorflowFacts) -> Matches:
    if installed.module_path is not None or installed.distributions:
        return
    python = executable(facts)
    active = active_environment(facts)
    folders = installed.without_init
    left_over = "is a folder without __init__.py: what an uninstall leaves, or another folder"
    yield Match(
        (
            f"{python} finds no module tensorflow",
            *interpreter(facts),
            *(f"{folder} {left_over}" for folder in folders),
        ),
        figures={"executable": python},
        fix=(
            ...,
            f"{active}/bin/python -m pip list  # or run the program with this Python: it is active" if active else "",
            f"# rename or delete {' and '.join(folders)}" if folders else "",
        ),
    )
