"""TensorFlow is not installed for this Python

A virtual environment that is not activated, or a notebook whose kernel is another Python than the one that pip
installed into, has no TensorFlow: the interpreter that runs the program counts.
"""

from __future__ import annotations

from shlex import quote

from gpudiag.cause import Cause, Match, Matches
from gpudiag.causes.shared.imports import active_environment, executable, interpreter
from gpudiag.causes.shared.packages import INSTALLATION
from gpudiag.fix import Action, Kind, Role, ask, note, run
from gpudiag.knowledge.managers import BY_NAME
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
_OTHER = ask("gpudiag check --python ENVIRONMENT", "if TensorFlow is in another environment")
_OF_A_TOOL = (*BY_NAME["pipx"].folders, *BY_NAME["uv tool"].folders)
"""Where pipx and uv keep environments for a single tool: nobody's programs run there."""


def find(facts: Facts, installed: TensorflowFacts) -> Matches:
    if installed.module_path is not None or installed.distributions:
        return
    python = executable(facts)
    active = active_environment(facts)
    system = facts.system
    prefix = "" if isinstance(system, Unknown) else system.prefix.replace("\\", "/")
    is_of_a_tool = any(folder in prefix for folder in _OF_A_TOOL)
    folders = installed.without_init
    left_over = "is a folder without __init__.py: what an uninstall leaves, or another folder"
    newest = _newest_python(facts)
    installation = _installation(newest, active, is_of_a_tool=is_of_a_tool)
    another = (
        run(
            f"gpudiag check --python {quote(installed.elsewhere)}",
            "if programs are started by this Python, which has TensorFlow",
            kind=Kind.NONE,
        )
        if installed.elsewhere
        else None
    )
    yield Match(
        (
            f"{python} finds no module tensorflow",
            *interpreter(facts),
            *([f"TensorFlow {NEWEST} has wheels for Python {' to '.join(pythons(NEWEST))}"] if newest else []),
            *(f"{folder} {left_over}" for folder in folders),
            *([f"{installed.elsewhere}, on PATH, has TensorFlow"] if installed.elsewhere else []),
        ),
        figures={"executable": python},
        fix=(
            *((installation, another) if _is_chosen(facts) else (another, installation)),
            run(
                f"{quote(active)}/bin/python -m pip list",
                "or run the program with this Python: it is active",
                role=Role.ALTERNATIVE,
            )
            if active and not is_of_a_tool
            else None,
            None if installed.elsewhere else _OTHER,
            note(f"rename or delete {' and '.join(folders)}") if folders else None,
        ),
    )


def _is_chosen(facts: Facts) -> bool:
    """Return whether the user chose this environment, which is not gpudiag's own."""
    system = facts.system
    if isinstance(system, Unknown) or system.python_environment is None:
        return False
    return system.python_environment.of_gpudiag not in ("", system.executable)


def _installation(newest: str, active: str, *, is_of_a_tool: bool) -> Action | None:
    """Return how to install TensorFlow where programs can use it; None if no such environment is known."""
    if newest:
        command = f"python{newest} -m venv tf && tf/bin/pip install 'tensorflow[and-cuda]'"
        return run(command, kind=Kind.NEW_ENVIRONMENT)
    if not is_of_a_tool:
        return CAUSE.fix[0]
    command = f"{quote(active)}/bin/python -m pip install 'tensorflow[and-cuda]'"
    return run(command, "into the active environment", kind=Kind.INSTALL) if active else None


def _newest_python(facts: Facts) -> str:
    """Return the newest Python with wheels, if there are none for this Python; else ""."""
    system = facts.system
    own = None if isinstance(system, Unknown) else release(system.python)
    first, last = (release(python) for python in pythons(NEWEST))
    return pythons(NEWEST)[1] if own and first and last and not first <= own <= last else ""
