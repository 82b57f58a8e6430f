"""a package is registered as installed, but its files are gone

tensorflow, tensorflow-cpu, tf-nightly and others all install the folder `tensorflow`. Uninstalling one of them
deletes the files of the other. What is left is a folder without __init__.py: `import tensorflow` still works, and
everything fails with "module 'tensorflow' has no attribute ...".
"""

from __future__ import annotations

from gpudiag.cause import Cause, Match, Matches
from gpudiag.causes.shared.packages import INSTALLATION, reinstall, shown
from gpudiag.fix import Kind, run
from gpudiag.model.facts import TensorflowFacts

CAUSE = Cause(
    title="{listed} is registered as installed, and its files are gone",
    fix=(
        run("pip uninstall -y {names}", kind=Kind.REMOVE),
        run("pip install --force-reinstall '{with_cuda}'", kind=Kind.INSTALL),
    ),
    url=INSTALLATION,
    needs_gpu=False,
    finding="host.tensorflow.damaged",
)


def find(installed: TensorflowFacts) -> Matches:
    if installed.module_path is None and installed.distributions:
        yield Match((*shown(installed), "no file tensorflow/__init__.py"), figures=reinstall(installed))
