"""TensorFlow cannot be imported, because a file hides a module that it needs

Python takes the first module of a name on sys.path: the folder of the program, then PYTHONPATH, then its own modules
and the installed packages. Your own file numpy.py, keras.py, random.py or logging.py hides the module that
TensorFlow, or a package that it needs, asks for. The error names what that file does not have.
"""

from __future__ import annotations

import re
from pathlib import PurePath

from gpudiag.cause import TRACE, Cause, Match, Matches, Rows
from gpudiag.causes.shared.packages import PATH, FailedImport, off_the_path, rest_of_path, shown_source
from gpudiag.fix import note, run, unset
from gpudiag.knowledge.frames import is_installed
from gpudiag.knowledge.log_lines import Log
from gpudiag.knowledge.messages.code import MODULE_LACKS
from gpudiag.model.diagnosis import Confidence
from gpudiag.model.facts import Facts, TensorflowFacts
from gpudiag.probes.host import tensorflow as host_tensorflow

CAUSE = Cause(
    title="TensorFlow cannot be imported, because {path} is imported in place of {name}",
    fix=(run("mv {path} {new}"), unset("PYTHONPATH", note="instead")),
    url="https://docs.python.org/3/library/sys_path_init.html",
    needs_gpu=False,
)
_FILE = re.compile(r"(?:File \"|consider renaming ')(?P<file>/[^\"']+\.py)[\"']")


def find(facts: Facts, rows: Rows, failed: FailedImport, installed: TensorflowFacts) -> Matches:
    error = failed.error
    log = [line for row in rows if row.probe == TRACE for line in row.log]
    found = Log((error,)).first(MODULE_LACKS)
    name = _hidden_by_an_outer_module(error, log, installed) if found is None else found["module"].partition(".")[0]
    if not name:
        return
    told = [hit["file"] for line in (error, *log) for hit in _FILE.finditer(line)]
    named = [file for file in told if PurePath(host_tensorflow.of_module(file)).stem == name]
    file = (found["file"] if found else "") or next(iter(named), None) or installed.outside.get(name)
    if name == "tensorflow" or file is None or is_installed(file):
        return
    path = host_tensorflow.of_module(file)
    if PurePath(path).stem != name:  # a module below it: the folder of the package is not known
        return
    folder = PurePath(path).parent
    rest = rest_of_path(facts, folder)
    real = next(
        (distribution for distribution in installed.companions if distribution.name.replace("-", "_") == name), None
    )
    yield Match(
        evidence=(
            f"import tensorflow: {error}",
            f"import {name} takes {file}",
            *([f"{real.name} {real.version} is in {real.location}"] if real else []),
            *([f"{PATH}={facts.variables[PATH]}"] if rest is not None else shown_source(facts, folder)),
        ),
        confidence=Confidence.LIKELY,
        figures={"name": name, "path": path, "new": str(PurePath(path).parent / f"my_{PurePath(path).name}")},
        fix=(
            CAUSE.fix[0],
            off_the_path(facts, folder)
            or note(f"or run the program in another folder than {folder}: Python looks there first"),
        ),
        about=(str(folder), *((PATH,) if rest is not None else ())),
    )


def _hidden_by_an_outer_module(error: str, log: list[str], installed: TensorflowFacts) -> str:
    """Return the module from a folder of the user's own that the error, or a frame of the traceback, names."""
    for name, file in installed.outside.items():
        if f"No module named '{name}." in error or any(f'File "{file}"' in line for line in log):
            return name
    return ""
