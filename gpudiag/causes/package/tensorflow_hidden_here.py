"""in this folder a file or folder hides TensorFlow, or a module that it needs, from programs that are started here

Python looks into the folder of the program first. A program in this folder, a notebook, and `python -m` or `python -c`
started here import the file in place of TensorFlow, and end with "module 'tensorflow' has no attribute ..." or
"partially initialized module 'tensorflow'". The same is true of any module that TensorFlow imports in turn: code.py,
inspect.py, random.py or numpy.py. gpudiag is started from elsewhere, so it takes the installed ones.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import PurePath
from shlex import quote

from gpudiag.cause import Cause, Match, Matches, Program
from gpudiag.fix import note, run
from gpudiag.knowledge.messages.code import NOT_TENSORFLOW
from gpudiag.model.diagnosis import Stage
from gpudiag.model.facts import TensorflowFacts
from gpudiag.model.report import Severity
from gpudiag.probes.discovery import trace
from gpudiag.probes.host.tensorflow import is_imported, of_module

CAUSE = Cause(
    title="{path} hides {name} from programs that are started in this folder",
    severity=Severity.NOTE,
    fix=(run("mv {path} {new}"), note("and delete the folder __pycache__ beside it, if it is there")),
    url="https://docs.python.org/3/library/sys_path_init.html",
    needs_gpu=False,
    finding="host.tensorflow.hidden_here",
)


def find(installed: TensorflowFacts, program: Program, traced: trace.Reading | None) -> Matches:
    module = installed.in_working_directory
    if module is not None and is_imported(installed) and not program.first(NOT_TENSORFLOW):  # else it was taken
        yield _match("TensorFlow", module, f"imports tensorflow takes {module}")
    for name, file in (traced.hidden if traced is not None else {}).items():
        if name != "tensorflow":
            found = _match(f"the module {name}, which TensorFlow imports,", file, f"imports TensorFlow takes {file}")
            yield replace(found, stage=Stage.CONFIGURATION)


def _match(name: str, module: str, takes: str) -> Match:
    path = PurePath(of_module(module))
    return Match(
        evidence=(f"a program in {path.parent} that {takes}",),
        figures={"name": name, "path": quote(str(path)), "new": quote(str(path.with_name(f"my_{path.name}")))},
    )
