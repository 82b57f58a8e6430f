"""a file or folder is imported in place of TensorFlow, because it has the same name and comes first

Python takes the first module of a name on sys.path: the folder of the program (with `python -m` and in notebooks the
working directory), then PYTHONPATH, and the installed packages last. Your own file tensorflow.py, a folder
tensorflow for data, or a checkout of TensorFlow's sources hides the package. What follows is "module 'tensorflow' has
no attribute ...", "partially initialized module" or an ImportError.
"""

from __future__ import annotations

from pathlib import PurePath

from gpudiag.cause import Cause, Match, Matches, Program
from gpudiag.causes.shared.packages import PATH, off_the_path, shown_source
from gpudiag.fix import note, run
from gpudiag.knowledge.messages.code import NOT_TENSORFLOW
from gpudiag.model.diagnosis import Confidence
from gpudiag.model.facts import Facts, TensorflowFacts
from gpudiag.probes.host import tensorflow as host_tensorflow

CAUSE = Cause(
    title="{path} is imported in place of TensorFlow, because it has the same name and comes first",
    fix=(
        run("mv {path} {new}"),
        note("or run the program in another folder than /home/someone/project: Python looks there first"),
    ),
    url="https://docs.python.org/3/library/sys_path_init.html",
    needs_gpu=False,
    finding="host.tensorflow.shadowed",
    views=("host.tensorflow.hidden_here",),
)


def find(facts: Facts, program: Program, installed: TensorflowFacts) -> Matches:
    module, sure = installed.module_path, Confidence.PROVED
    path = host_tensorflow.shadowing(installed)
    said: tuple[str, ...] = ()
    if path is None and installed.module_path is not None and installed.in_working_directory is not None:
        # gpudiag is not started from the program's folder: that the program took it, its log must show.
        module, sure = installed.in_working_directory, Confidence.LIKELY
        said = program.said(NOT_TENSORFLOW, most=1)
        path = host_tensorflow.of_module(module) if module and said else None
    if path is None:
        return
    folder = PurePath(path).parent
    entries = facts.variables.get(PATH, "").split(":")
    do = off_the_path(facts, folder)
    yield Match(
        evidence=(
            f"import tensorflow takes {module}",
            *said,
            f"TensorFlow: {host_tensorflow.hidden(installed)}",
            *([f"{PATH}={':'.join(entries)}"] if str(folder) in entries else shown_source(facts, folder)),
        ),
        confidence=sure,
        figures={"path": path, "new": str(PurePath(path).parent / f"my_{PurePath(path).name}"), "folder": str(folder)},
        about=(PATH, str(folder)) if do else (),
        fix=(CAUSE.fix[0], do or note(f"or run the program in another folder than {folder}: Python looks there first")),
    )
