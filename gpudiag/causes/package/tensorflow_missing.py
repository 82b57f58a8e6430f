"""TensorFlow is not installed for this Python

A virtual environment that is not activated, or a notebook whose kernel is another Python than the one that pip
installed into, has no TensorFlow: the interpreter that runs the program counts.
"""

from __future__ import annotations

from shlex import quote

from gpudiag.cause import Cause, Match, Matches
from gpudiag.causes.shared.imports import active_environment, executable, interpreter
from gpudiag.causes.shared.packages import INSTALLATION
from gpudiag.fix import Kind, Role, note, run
from gpudiag.knowledge.releases import NEWEST, pythons
from gpudiag.model.facts import Facts, TensorflowFacts, Unknown
from gpudiag.probes.host.tensorflow import release

CAUSE = Cause(
    title="TensorFlow is not installed for {executable}",
    fix=(run("{executable} -m pip install 'tensorflow[and-cuda]'", kind=Kind.INSTALL),),
    url=INSTALLATION,
    needs_gpu=False,
    finding="host.tensorflow.missing",
    views=("host.tensorflow.unsupported_python",),
)


def find(facts: Facts, installed: TensorflowFacts) -> Matches:
    if installed.module_path is not None or installed.distributions:
        return
    python = executable(facts)
    active = active_environment(facts)
    folders = installed.without_init
    left_over = "is a folder without __init__.py: what an uninstall leaves, or another folder"
    newest = _newest_python(facts)
    yield Match(
        (
            f"{python} finds no module tensorflow",
            *interpreter(facts),
            *([f"TensorFlow {NEWEST} has wheels for Python {' to '.join(pythons(NEWEST))}"] if newest else []),
            *(f"{folder} {left_over}" for folder in folders),
        ),
        figures={"executable": python},
        fix=(
            run(f"python{newest} -m venv tf && tf/bin/pip install 'tensorflow[and-cuda]'", kind=Kind.NEW_ENVIRONMENT)
            if newest
            else CAUSE.fix[0],
            run(
                f"{quote(active)}/bin/python -m pip list",
                "or run the program with this Python: it is active",
                role=Role.ALTERNATIVE,
            )
            if active
            else None,
            note(f"rename or delete {' and '.join(folders)}") if folders else None,
        ),
    )


def _newest_python(facts: Facts) -> str:
    """Return the newest Python with wheels, if there are none for this Python; else ""."""
    system = facts.system
    own = None if isinstance(system, Unknown) else release(system.python)
    first, last = (release(python) for python in pythons(NEWEST))
    return pythons(NEWEST)[1] if own and first and last and not first <= own <= last else ""
