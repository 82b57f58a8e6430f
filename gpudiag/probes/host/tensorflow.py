"""TensorFlow is installed, whole, once, in a supported version, and built for the GPUs that are there.

What it does
    Reads the metadata of the installed distributions and TensorFlow's own build description. TensorFlow is not
    imported.
Why it matters
    A build without CUDA never uses a GPU and never says so. Two distributions that install the same folder
    (`tensorflow` and `tensorflow-cpu`, most often) overwrite each other's files.
What a failure means
    `missing`: no module `tensorflow` can be imported, so no probe of TensorFlow can run.
    `damaged`: a distribution is registered, but its files are gone; removing another one of them does that.
    `shadowed`: what is imported as `tensorflow` is a folder or file of that name, and not TensorFlow.
    `hidden_here`: such a folder or file is in the working directory, where programs would take it; gpudiag does not.
    `several`: the files in use are a mixture of several distributions.
    `no_cuda`: this build cannot use the GPUs of this machine.
    `old_version`, `untested_version`, `unsupported_python`: outside what gpudiag was tested with.
    `build_unknown`: TensorFlow's build description cannot be read, so it is not known whether it was built for CUDA.
    `not_gathered`: the facts could not be read, so none of the above was judged.
What to do
    Remove every distribution that provides `tensorflow`, then install exactly one:
    `pip install --force-reinstall 'gpudiag[tensorflow]'`, or `'gpudiag[cuda]'` for NVIDIA GPUs.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import PurePath

from gpudiag.hostfacts import (
    Distribution,
    Facts,
    SystemFacts,
    TensorflowFacts,
    Unknown,
)
from gpudiag.model import Finding, Limits, Severity
from gpudiag.probe import Kind, Needs, Probe

PROBE = Probe(needs=Needs(tensorflow=False), families=("tensorflow",), quick=True)

NOT_GATHERED = Kind(
    "not_gathered",
    Severity.FAIL,
    "TensorFlow's metadata could not be read: {reason}",
    "Look whether the folders on sys.path can be read (a hung network file system is a common cause), then run again.",
)
MISSING = Kind(
    "missing",
    Severity.FAIL,
    "TensorFlow is not installed for {executable} (Python {python})",
    "pip install 'gpudiag[tensorflow]'; for NVIDIA GPUs pip install 'gpudiag[cuda]', which adds the CUDA libraries.",
)
DAMAGED = Kind(
    "damaged",
    Severity.FAIL,
    "{distributions} is registered as installed, but there is no tensorflow/__init__.py",
    "pip uninstall {names}, then pip install --force-reinstall 'gpudiag[tensorflow]'",
)
SHADOWED = Kind(
    "shadowed",
    Severity.FAIL,
    "{path} is imported as tensorflow, and is not TensorFlow ({installed})",
    "Rename it, take its folder out of PYTHONPATH, or run the program in another folder.",
)
HIDDEN_HERE = Kind(
    "hidden_here",
    Severity.NOTE,
    "{path} hides TensorFlow from a program of this folder, and is not TensorFlow",
    "Rename it: Python looks into the folder of the program first.",
)
SEVERAL = Kind(
    "several",
    Severity.FAIL,
    "{distributions} all install the folder tensorflow: their files overwrite each other",
    "pip uninstall {names}, then install the one you want with pip install --force-reinstall",
)
NO_CUDA = Kind(
    "no_cuda",
    Severity.WARNING,
    "{distribution} is built without CUDA: it cannot use the {gpus} GPU(s) of this machine",
    "{cure}",
)
BUILD_UNKNOWN = Kind(
    "build_unknown",
    Severity.NOTE,
    "the build description of {distribution} cannot be read: not known whether it is built for CUDA",
    "Run python -c 'import tensorflow as tf; print(tf.sysconfig.get_build_info())'",
)
OLD_VERSION = Kind(
    "old_version",
    Severity.WARNING,
    "{distribution} is older than 2.18, the oldest that gpudiag knows",
    "Findings may be wrong for it. If you can: pip install --upgrade 'gpudiag[tensorflow]'",
)
UNTESTED_VERSION = Kind(
    "untested_version",
    Severity.NOTE,
    "{distribution} is newer than 2.21, the newest that gpudiag was tested with",
    "Look for a newer gpudiag: pip install --upgrade gpudiag",
)
UNSUPPORTED_PYTHON = Kind(
    "unsupported_python",
    Severity.WARNING,
    "Python {python}: TensorFlow 2.18 to 2.21 is published for Python 3.9 to 3.13",
    "Make a virtual environment with Python 3.10 to 3.13.",
)

_FROM_PIP = "pip uninstall {names}, then pip install 'tensorflow[and-cuda]'"
_ON_AARCH64 = "The aarch64 wheels on PyPI have no CUDA: use NVIDIA's TensorFlow container, or a build from source."


def judge(facts: Facts, limits: Limits) -> Iterator[Finding]:
    tensorflow = facts.tensorflow
    python = _release(facts.system.python) if isinstance(facts.system, SystemFacts) else None
    if python and python > (3, 13):
        yield UNSUPPORTED_PYTHON.found(python=_dotted(python))
    if isinstance(tensorflow, Unknown):
        yield NOT_GATHERED.found(reason=tensorflow.reason)
        return
    names = " ".join(distribution.name for distribution in tensorflow.distributions)
    listed = " and ".join(f"{distribution.name} {distribution.version}" for distribution in tensorflow.distributions)
    if tensorflow.module_path is None and tensorflow.distributions:
        yield DAMAGED.found(distributions=listed, names=names)
    elif tensorflow.module_path is None:
        executable = facts.system.executable if isinstance(facts.system, SystemFacts) else "this interpreter"
        yield MISSING.found(executable=executable, python=_dotted(python) if python else "not known")
    else:
        yield from _judge_installed(facts, tensorflow)


def figure(facts: Facts) -> str:
    tensorflow = facts.tensorflow
    if isinstance(tensorflow, Unknown):
        return "not known"
    if tensorflow.module_path is None or shadowing(tensorflow):
        return "no TensorFlow"
    if tensorflow.build is None:
        return _imported(tensorflow)
    cuda = f"CUDA {tensorflow.build.cuda_version}" if tensorflow.build.cuda else "no CUDA"
    return f"{_imported(tensorflow)}, {cuda}"


def shadowing(tensorflow: TensorflowFacts) -> str | None:
    """Return the file or folder that is imported in TensorFlow's place; None where that is TensorFlow itself."""
    if tensorflow.module_path is None or tensorflow.build is not None or providers_of(tensorflow):
        return None
    return of_module(tensorflow.module_path)


def of_module(path: str) -> str:
    """Return the folder or file that makes a module of the name, whose code is in ``path``."""
    module = PurePath(path)
    return str(module.parent if module.name == "__init__.py" else module)


def hidden(tensorflow: TensorflowFacts) -> str:
    """Return what of TensorFlow is installed where it is not imported from."""
    found = tensorflow.distributions
    return f"{found[0].name} {found[0].version} is in {found[0].location}" if found else "which is not installed"


def _judge_installed(facts: Facts, tensorflow: TensorflowFacts) -> Iterator[Finding]:
    if path := shadowing(tensorflow):
        yield SHADOWED.found(path=path, installed=hidden(tensorflow))
        return
    if tensorflow.in_working_directory is not None:
        yield HIDDEN_HERE.found(path=tensorflow.in_working_directory)
    providers = providers_of(tensorflow)
    distribution = _imported(tensorflow)
    names = " ".join(sorted({provider.name for provider in providers}))
    if len({provider.name for provider in providers}) > 1:
        listed = " and ".join(f"{provider.name} {provider.version}" for provider in providers)
        yield SEVERAL.found(distributions=listed, names=names)
    release = _release(providers[0].version) if providers else None
    if release and release < (2, 18):
        yield OLD_VERSION.found(distribution=distribution)
    elif release and release > (2, 21):
        yield UNTESTED_VERSION.found(distribution=distribution)
    if tensorflow.build is None:
        yield BUILD_UNKNOWN.found(distribution=distribution)
    elif not tensorflow.build.cuda and facts.nvml_devices:
        aarch64 = isinstance(facts.system, SystemFacts) and facts.system.machine == "aarch64"
        cure = _ON_AARCH64 if aarch64 else _FROM_PIP.format(names=names or "tensorflow")
        yield NO_CUDA.found(distribution=distribution, gpus=len(facts.nvml_devices), cure=cure)


def providers_of(tensorflow: TensorflowFacts) -> tuple[Distribution, ...]:
    """Return the distributions installed where the imported module lies; those elsewhere on ``sys.path`` are hidden."""
    folder = PurePath(tensorflow.module_path or "").parent.parent
    return tuple(found for found in tensorflow.distributions if PurePath(found.location) == folder)


def _imported(tensorflow: TensorflowFacts) -> str:
    providers = providers_of(tensorflow)
    return f"{providers[0].name} {providers[0].version}" if providers else "TensorFlow without metadata"


def _release(version: str) -> tuple[int, int] | None:
    found = re.match(r"(\d+)\.(\d+)", version)
    return (int(found[1]), int(found[2])) if found else None


def _dotted(release: tuple[int, int]) -> str:
    return f"{release[0]}.{release[1]}"
