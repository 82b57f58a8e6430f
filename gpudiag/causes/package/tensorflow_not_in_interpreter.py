"""the Python that ran the program has no TensorFlow

pip installs into the Python that it belongs to. A notebook's kernel, an editor, sudo, cron or a service often start
another one.
"""

from __future__ import annotations

from gpudiag.cause import Cause, Match, Matches, Program
from gpudiag.fix import ask, install
from gpudiag.knowledge.messages.python_packages import NO_TENSORFLOW, NO_WHEEL

CAUSE = Cause(
    fix=(
        ask("python -c 'import sys; print(sys.executable)'", "put it into the program: it shows which Python runs"),
        install("tensorflow[and-cuda]", note="run it with that Python; in a notebook: %pip install", python="python"),
    ),
    url="https://www.tensorflow.org/install/pip",
    needs_gpu=False,
    symptom=True,
)


def find(program: Program) -> Matches:
    if not program.first(NO_WHEEL) and (said := program.said(NO_TENSORFLOW)):
        yield Match(said)
