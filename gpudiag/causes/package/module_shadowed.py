"""TensorFlow cannot be imported, because {path} is imported in the place of {name}

Python takes the first module of a name on sys.path: the folder of the program, then PYTHONPATH, then its own modules
and the installed packages. A file numpy.py, keras.py, random.py or logging.py of one's own hides the module that
TensorFlow, or a package that it needs, asks for. The error names what that file does not have.
"""

from __future__ import annotations

import re
from pathlib import PurePath

from gpudiag.cause import TRACE, Cause, Evidence, Match, Matches
from gpudiag.causes.shared.packages import PATH, FailedImport, off_the_path, rest_of_path
from gpudiag.hostfacts import TensorflowFacts
from gpudiag.knowledge.messages.code import MODULE_LACKS
from gpudiag.log import Log
from gpudiag.model import Sure
from gpudiag.probes.host import tensorflow as host_tensorflow

CAUSE = Cause(
    fix=("mv {path} {new}", "{elsewhere}"),
    url="https://docs.python.org/3/library/sys_path_init.html",
    needs_gpu=False,
    shown={"elsewhere": "unset PYTHONPATH  # instead"},
)
_FILE = re.compile(r"(?:File \"|consider renaming ')(?P<file>/[^\"']+\.py)[\"']")
_INSTALLED = re.compile(r"/(?:site|dist)-packages/|/lib(?:64)?/python[\d.]+/")


def find(evidence: Evidence, failed: FailedImport, installed: TensorflowFacts) -> Matches:
    error = failed.error
    found = Log((error,)).first(MODULE_LACKS)
    if found is None:
        return
    name = found["module"].partition(".")[0]
    log = [line for row in evidence.rows if row.probe == TRACE for line in row.log]
    told = [hit["file"] for line in (error, *log) for hit in _FILE.finditer(line)]
    named = [file for file in told if PurePath(host_tensorflow.of_module(file)).stem == name]
    file = found["file"] or next(iter(named), None) or installed.outside.get(name)
    if name == "tensorflow" or file is None or _INSTALLED.search(file):
        return
    path = host_tensorflow.of_module(file)
    if PurePath(path).stem != name:  # a module below it: the folder of the package is not known
        return
    folder = PurePath(path).parent
    rest = rest_of_path(evidence, folder)
    real = next((one for one in installed.companions if one.name.replace("-", "_") == name), None)
    yield Match(
        evidence=(
            f"import tensorflow: {error}",
            f"import {name} takes {file}",
            *([f"{real.name} {real.version} is in {real.location}"] if real else []),
            *([f"{PATH}={evidence.facts.variables[PATH]}"] if rest is not None else []),
        ),
        sure=Sure.LIKELY,
        figures={
            "name": name,
            "path": path,
            "new": str(PurePath(path).parent / f"my_{PurePath(path).name}"),
            "elsewhere": off_the_path(evidence, folder)
            or f"# or run the program in another folder than {folder}: Python looks there first",
        },
    )
