"""{file} was built for another release of TensorFlow than the one that is installed

An extension in C++ (custom operations, tensorflow-text, tensorflow-addons, Horovod) calls TensorFlow's functions by
their names in the machine's code, which change with each release and compiler.
"""

from __future__ import annotations

from gpudiag.cause import Cause, Match, Matches, Program
from gpudiag.knowledge.messages.python_packages import UNDEFINED_OF_TENSORFLOW
from gpudiag.model.diagnosis import Confidence

CAUSE = Cause(
    fix=(
        "pip install --force-reinstall --no-cache-dir --no-binary :all: PACKAGE  # build {file} again, or",
        "pip install 'PACKAGE==VERSION'  # the release of it that was made for the installed TensorFlow",
    ),
    url="https://www.tensorflow.org/guide/create_op",
    needs_gpu=False,
)


def find(program: Program) -> Matches:
    if said := program.first(UNDEFINED_OF_TENSORFLOW):
        file = said["file"].rpartition("/")[2]
        yield Match(program.said(UNDEFINED_OF_TENSORFLOW), Confidence.LIKELY, {"file": file})
