"""the system is Alpine Linux, whose C library is musl: TensorFlow's packages are made for glibc

pip finds no wheel of TensorFlow there ("from versions: none"), and a wheel that was forced upon it is not loaded:
musl's loader says "Error loading shared library" or "Error relocating".
"""

from __future__ import annotations

import re

from gpudiag.cause import Cause, LogAlone, Match, Matches
from gpudiag.fix import Role, Where, run, run_container
from gpudiag.knowledge.log_lines import text
from gpudiag.knowledge.messages.installing import NO_WHEEL_TO_BUILD
from gpudiag.knowledge.messages.python_packages import NO_WHEEL, NO_WHEEL_OF_ANOTHER
from gpudiag.knowledge.origin import Origin
from gpudiag.model.diagnosis import Confidence

CAUSE = Cause(
    fix=(
        run(
            "FROM python:3.12-slim",
            "in the Dockerfile: an image of Debian or Ubuntu in place of one of Alpine",
            where=Where.IMAGE,
        ),
        run_container(
            "--gpus all",
            "-it",
            image="tensorflow/tensorflow:latest-gpu",
            note="or TensorFlow's own image",
            role=Role.ALTERNATIVE,
        ),
    ),
    url="https://www.tensorflow.org/install/docker",
    needs_gpu=False,
)
_LOADER = re.compile(r"Error relocating /|Error loading shared library \S{1,200}: .{1,80}\(needed by")


def find(program: LogAlone, origin: Origin) -> Matches:
    if not origin.musl:
        return
    said = tuple(text(line) for line in program.lines if _LOADER.search(line))[:2]
    said = said or program.said(NO_WHEEL, NO_WHEEL_OF_ANOTHER) or program.said(NO_WHEEL_TO_BUILD)
    if said:
        yield Match(said, Confidence.LIKELY)
