"""the Python that ran the program has no TensorFlow

pip installs into the Python that it belongs to. A notebook's kernel, an editor, sudo, cron or a service often start
another one.
"""

from __future__ import annotations

from gpudiag.cause import Cause, Match, Matches, Program
from gpudiag.fix import Kind, check, run
from gpudiag.knowledge.messages.python_packages import NO_TENSORFLOW, NO_WHEEL

CAUSE = Cause(
    fix=(
        check("python -c 'import sys; print(sys.executable)'", "in the program itself: which Python it is"),
        run(
            "python -m pip install 'tensorflow[and-cuda]'",
            "by that Python; in a notebook: %pip install",
            kind=Kind.INSTALL,
        ),
    ),
    url="https://www.tensorflow.org/install/pip",
    needs_gpu=False,
    symptom=True,
)


def find(program: Program) -> Matches:
    if not program.first(NO_WHEEL) and (said := program.said(NO_TENSORFLOW)):
        yield Match(said)
