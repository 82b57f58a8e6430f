"""TensorFlow is installed, whole, once, in a supported version, and built for the GPUs that are there.

What it does
    Reads the metadata of the installed distributions and TensorFlow's own build description. TensorFlow is not
    imported.
Why it matters
    A build without CUDA never uses a GPU and never says so. Two distributions that install the same folder
    (`tensorflow` and `tensorflow-cpu`, most often) overwrite each other's files.
What to do
    Remove every distribution that provides `tensorflow`, then install exactly one:
    `pip install --force-reinstall 'gpudiag[tensorflow]'`, or `'gpudiag[cuda]'` for NVIDIA GPUs.
"""

from __future__ import annotations

import re
from pathlib import PurePath

from gpudiag.model.facts import (
    Distribution,
    Facts,
    TensorflowFacts,
    Unknown,
)
from gpudiag.probe import Needs, Probe

PROBE = Probe(needs=Needs(tensorflow=False), families=("tensorflow",), quick=True)


def figure(facts: Facts) -> str:
    tensorflow = facts.tensorflow
    if isinstance(tensorflow, Unknown):
        return "not known"
    if tensorflow.module_path is None or shadowing(tensorflow):
        return "no TensorFlow"
    if tensorflow.build is None:
        return imported(tensorflow)
    cuda = f"CUDA {tensorflow.build.cuda_version}" if tensorflow.build.cuda else "no CUDA"
    return f"{imported(tensorflow)}, {cuda}"


def shadowing(tensorflow: TensorflowFacts) -> str | None:
    """Return the file or folder that Python imports instead of TensorFlow; None if it imports TensorFlow itself."""
    if tensorflow.module_path is None or tensorflow.build is not None or providers_of(tensorflow):
        return None
    return of_module(tensorflow.module_path)


def of_module(path: str) -> str:
    """Return the folder or file of the module whose code is in ``path``."""
    module = PurePath(path)
    return str(module.parent if module.name == "__init__.py" else module)


def hidden(tensorflow: TensorflowFacts) -> str:
    """Return the installed TensorFlow if Python imports another module instead."""
    found = tensorflow.distributions
    return f"{found[0].name} {found[0].version} is in {found[0].location}" if found else "which is not installed"


def providers_of(tensorflow: TensorflowFacts) -> tuple[Distribution, ...]:
    """Return the distributions installed in the folder of the imported module; those elsewhere on ``sys.path`` are
    hidden."""
    folder = PurePath(tensorflow.module_path or "").parent.parent
    return tuple(found for found in tensorflow.distributions if PurePath(found.location) == folder)


def imported(tensorflow: TensorflowFacts) -> str:
    """Return the distribution that is imported, and its version."""
    providers = providers_of(tensorflow)
    return f"{providers[0].name} {providers[0].version}" if providers else "TensorFlow without metadata"


def release(version: str) -> tuple[int, int] | None:
    """Return the first two numbers of a version."""
    found = re.match(r"(\d+)\.(\d+)", version)
    return (int(found[1]), int(found[2])) if found else None


def is_imported(tensorflow: TensorflowFacts) -> bool:
    """Return True if programs import TensorFlow itself."""
    return tensorflow.module_path is not None and shadowing(tensorflow) is None


def several(tensorflow: TensorflowFacts) -> bool:
    """Return True if the imported module is a mixture of several distributions."""
    return is_imported(tensorflow) and len({distribution.name for distribution in providers_of(tensorflow)}) > 1


def version(tensorflow: TensorflowFacts) -> tuple[int, int] | None:
    """Return the imported release, as numbers."""
    providers = providers_of(tensorflow)
    return release(providers[0].version) if providers else None
