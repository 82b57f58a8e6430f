"""a file of yours is imported in place of the package that has its name

Python looks in the folder of the program first. A file tensorflow.py, keras.py or numpy.py there, or its copy in
__pycache__, hides the package of that name.
"""

from __future__ import annotations

import re
import sys

from gpudiag.cause import Cause, Match, Matches, Program
from gpudiag.fix import Kind, ask, note, run
from gpudiag.knowledge.frames import FRAME, is_installed
from gpudiag.knowledge.messages.python_packages import EMPTY_TENSORFLOW, NAME_OF_ANOTHER_FILE, PARTIAL_MODULE
from gpudiag.knowledge.names import MOVED
from gpudiag.model.diagnosis import Confidence

CAUSE = Cause(
    title="{path} is imported in place of the package {name}",
    fix=(run("mv tensorflow.py my_tensorflow.py"), note("and delete the folder __pycache__ beside it")),
    url="https://docs.python.org/3/library/sys_path_init.html",
    needs_gpu=False,
)

_OURS = ("tensorflow", "keras")
_PACKAGES = {*_OURS, *sys.stdlib_module_names, *(name.partition(".")[0] for name in MOVED)}
"""Packages whose names programs give to files of their own by mistake; any other file is meant to be imported."""


def find(program: Program) -> Matches:
    for said in program.all(NAME_OF_ANOTHER_FILE):
        name, file = said["module"].partition(".")[0], said["file"]
        if _stem(file) == name and name in _PACKAGES and not is_installed(file):
            yield _match(program.said(NAME_OF_ANOTHER_FILE), Confidence.PROVED, name, file)
            return
    for said in program.all(PARTIAL_MODULE):
        name = said["module"].partition(".")[0]
        files = [hit["file"] for line in program.lines for hit in FRAME.finditer(line)]
        own = next((file for file in files if _stem(file) == name and not is_installed(file)), "")
        yield _match(program.said(PARTIAL_MODULE), Confidence.LIKELY, name, own or f"{name}.py")
        return
    for line in program.lines:
        file = found["file"] if (found := FRAME.search(line)) else ""
        if file.endswith(".py") and _stem(file) in _OURS and not is_installed(file):
            yield _match((line.strip(),), Confidence.LIKELY, _stem(file), file)
            return
    if program.first(EMPTY_TENSORFLOW):
        yield Match(
            program.said(EMPTY_TENSORFLOW),
            Confidence.POSSIBLE,
            {
                "name": "tensorflow",
                "path": "a file, an empty folder or the rest of a removed installation of the name 'tensorflow'",
            },
            fix=(
                ask(
                    "python -c 'import tensorflow; print(tensorflow)'",
                    "if it prints your own file or folder, rename that; if it is in site-packages, it is the "
                    "rest of an old installation",
                ),
                CAUSE.fix[1],
                run(
                    "pip uninstall tensorflow tensorflow-gpu; pip install tensorflow",
                    "if it is in site-packages",
                    kind=Kind.REMOVE,
                ),
            ),
        )


def _stem(file: str) -> str:
    return re.split(r"[\\/]", file)[-1].partition(".")[0]


def _match(said: tuple[str, ...], confidence: Confidence, name: str, file: str) -> Match:
    move = "ren" if re.match(r"[A-Za-z]:", file) else "mv"
    new = f"my_{name}.py" if move == "ren" else re.sub(r"[^/]*$", f"my_{name}.py", file, count=1)
    return Match(said, confidence, {"name": name, "path": file}, fix=(run(f"{move} {file} {new}"), CAUSE.fix[1]))
