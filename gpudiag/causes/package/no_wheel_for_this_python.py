"""pip has no {what} for this Python: {why}

Each release of TensorFlow has wheels for a few versions of Python, 64 bit only: 2.21 for 3.10 to 3.13, 2.16 for 3.9 to
3.12, 2.10 for 3.7 to 3.10, 2.4 for 3.6 to 3.8, 1.15 for 3.5 to 3.7. The package tensorflow-gpu was removed in December
2022: since 2.1 `tensorflow` itself has GPU support.
"""

from __future__ import annotations

import re

from gpudiag.cause import Cause, Match, Matches, Program
from gpudiag.knowledge.messages.python_packages import GPU_PACKAGE_GONE, NO_WHEEL
from gpudiag.knowledge.releases import NEWEST, Version, pythons

CAUSE = Cause(
    fix=("{first}", "{second}"),
    url="https://www.tensorflow.org/install/source#gpu",
    needs_gpu=False,
    shown={
        "first": "python -c 'import sys; print(sys.version)'  # then a Python that has wheels: conda create -n tf "
        "python=3.11",
        "second": "pip install --upgrade pip",
    },
)

_UPGRADE = "python -m pip install --upgrade pip  # an old one does not see newer wheels"
_LISTED = re.compile(r"\(from versions: (?P<versions>\d[^()]{0,4000})\)")


def find(program: Program) -> Matches:
    if program.first(GPU_PACKAGE_GONE):
        yield Match(
            program.said(GPU_PACKAGE_GONE),
            figures={
                "what": "tensorflow-gpu",
                "why": "the package was removed, tensorflow itself has GPU support",
                "first": "pip install 'tensorflow[and-cuda]'",
                "second": "",
            },
        )
    elif said := program.first(NO_WHEEL):
        environment = _environment(said["what"])
        listed = _listed(program)
        lines = (environment, listed or _UPGRADE)
        if _release(listed) == _release(said["what"]) != "":
            lines = (listed, environment)
        yield Match(
            program.said(NO_WHEEL),
            figures={
                "what": said["what"],
                "why": "it has none for its version, or the Python has 32 bits, or pip is old",
                "first": lines[0],
                "second": lines[1],
            },
        )


def _listed(program: Program) -> str:
    """Return the line that installs the newest release that pip lists for this machine; "" if it lists none."""
    for event in program.all(NO_WHEEL):
        if listed := _LISTED.search(event.line):
            last = listed["versions"].rpartition(",")[2].strip()
            return f"pip install 'tensorflow=={last}'  # the newest that pip lists for this Python and processor"
    return ""


def _release(text: str) -> str:
    found = re.search(r"==(\d\.\d{1,2})", text)
    return found[1] if found else ""


def _environment(what: str) -> str:
    """Return the line that makes an environment with a Python for which there are wheels of ``what``."""
    pinned = re.search(r"(\d)\.(\d{1,2})", what)
    release = Version(int(pinned[1]), int(pinned[2])) if pinned else NEWEST
    first, last = pythons(release)
    return (
        f"conda create -n tf python={last}; conda activate tf; pip install '{what}'  # {release} has wheels for Python "
        f"{first} to {last}"
    )
