"""Every dynamic library that TensorFlow opens can be opened here, and is the one that it was built for.

What it does
    Finds each library as the loader would for TensorFlow in this environment: in `LD_LIBRARY_PATH`, in the folders that
    `libtensorflow_framework.so.2` names (its RUNPATH), in the loader's cache and default folders. Each was opened in a
    child process, so error messages are the loader's own; TensorFlow is not imported.
Why it matters
    If one of seven libraries cannot be opened TensorFlow uses no GPU, and at its default log level it does not say
    which. If a variable puts an older copy first, it is loaded silently, and operations fail later.
What to do
    Each finding names the package or the folder. `LD_LIBRARY_PATH` is read when a process starts: set it before Python.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from gpudiag.model.facts import (
    Distribution,
    Facts,
    Library,
    LibraryCopy,
    Unknown,
)
from gpudiag.probe import Needs, Probe
from gpudiag.probes.common import cudnn_serves

PROBE = Probe(needs=Needs(tensorflow=False), families=("libraries",), quick=True)

RUNTIME = "libcudart.so.12"
CUDNN = "libcudnn.so.9"
OF_THE_DRIVER = ("libcuda.so.1", "libnvidia-ml.so.1")
PROFILER = "libcupti.so.12"
COLLECTIVES = "libnccl.so.2"
OPTIONAL = (COLLECTIVES, PROFILER)
"""Libraries that TensorFlow opens only at their first use; without them GPUs are listed and work (measured, 2.21)."""

PACKAGES = {
    "libcudart": "nvidia-cuda-runtime-cu12",
    "libcublas": "nvidia-cublas-cu12",
    "libcublasLt": "nvidia-cublas-cu12",
    "libcufft": "nvidia-cufft-cu12",
    "libcurand": "nvidia-curand-cu12",
    "libcusolver": "nvidia-cusolver-cu12",
    "libcusparse": "nvidia-cusparse-cu12",
    "libcudnn": "nvidia-cudnn-cu12",
    "libnccl": "nvidia-nccl-cu12",
    "libcupti": "nvidia-cuda-cupti-cu12",
    "libnvJitLink": "nvidia-nvjitlink-cu12",
    "libnvrtc": "nvidia-cuda-nvrtc-cu12",
    "libdevice": "nvidia-cuda-nvcc-cu12",
}
"""The distribution that holds each library of TensorFlow 2.18-2.21 (CUDA 12), by the library's name before the first
dot."""


def figure(facts: Facts) -> str:
    if isinstance(facts.libraries, Unknown):
        return "not known"
    if facts.libraries.opener is None:
        return "no TensorFlow that opens any"
    if not facts.given_a_gpu:
        return "no GPU, none needed"
    needed = _needed(facts)
    return f"{len(needed) - len(unopened(facts))} of {len(needed)} CUDA libraries open"


def concerns(facts: Facts) -> bool:
    """Return False if no CUDA library is needed: there is no GPU, or TensorFlow is built without CUDA."""
    if isinstance(facts.libraries, Unknown):
        return True
    build = None if isinstance(facts.tensorflow, Unknown) else facts.tensorflow.build
    return facts.given_a_gpu and build is not None and build.cuda


# What causes judge by.


def unopened(facts: Facts) -> tuple[Library, ...]:
    """Return the CUDA libraries that every GPU needs and that cannot be opened, except the driver's own."""
    return tuple(library for library in _needed(facts) if library.error is not None)


def cudnn_too_old(facts: Facts) -> Library | None:
    """Return the cuDNN that is found, if TensorFlow refuses its version."""
    cudnn = next((library for library in _needed(facts) if library.soname == CUDNN), None)
    if cudnn is None or cudnn.error is not None or cudnn.version is None:
        return None
    return None if cudnn_serves(cudnn.version) else cudnn


def older_first(facts: Facts) -> Iterator[tuple[Library, LibraryCopy]]:
    """Yield libraries that ``LD_LIBRARY_PATH`` supplies, each with the newer copy of a package that it hides."""
    for library in _needed(facts):
        for copy in library.copies:
            known = library.version is not None and copy.version is not None and copy.owner is not None
            if not known or library.source != "LD_LIBRARY_PATH" or library.error is not None:
                continue
            found, packaged = _numbers(library.version or ""), _numbers(copy.version or "")
            length = min(len(found), len(packaged))  # cuDNN says 9.3.0, its package 9.3.0.75
            if found[:length] < packaged[:length]:
                yield library, copy


def with_other_soname(facts: Facts) -> tuple[Library, ...]:
    """Return libraries that can be opened but whose file identifies itself as another release or another library."""
    needed = _needed(facts, optional=True)
    return tuple(
        library for library in needed if library.error is None and library.own_soname not in (None, library.soname)
    )


def is_another_release(library: Library) -> bool:
    """Return True if the file of ``library`` identifies itself as another release of the same library."""
    return (
        library.own_soname is not None and library.own_soname.partition(".so")[0] == library.soname.partition(".so")[0]
    )


def without_libdevice(facts: Facts) -> bool:
    """Return True if CUDA is installed in a known way, and XLA finds no ``libdevice`` in it."""
    libraries = facts.libraries
    if isinstance(libraries, Unknown) or libraries.libdevice:
        return False
    runtime = next((library for library in libraries.libraries if library.soname == RUNTIME), None)
    if runtime is None or runtime.path is None or runtime.error is not None:
        return False
    return runtime.owner is not None or bool(libraries.libdevice_elsewhere) or "/cuda" in runtime.path


def requirement(facts: Facts, library: str) -> str:
    """Return the package that holds ``library``, in TensorFlow's version range; "" if unknown."""
    package = PACKAGES.get(library.partition(".")[0])
    if package is None:
        return ""
    ranges = {} if isinstance(facts.tensorflow, Unknown) else facts.tensorflow.ranges
    return package + ranges.get(package, "")


def installed(facts: Facts, library: str) -> Distribution | None:
    """Return the distribution that should hold ``library``, if it is installed."""
    companions = () if isinstance(facts.tensorflow, Unknown) else facts.tensorflow.companions
    return next(
        (distribution for distribution in companions if distribution.name == PACKAGES.get(library.partition(".")[0])),
        None,
    )


def _needed(facts: Facts, *, optional: bool = False) -> tuple[Library, ...]:
    if isinstance(facts.libraries, Unknown) or facts.libraries.opener is None:
        return ()
    others = OF_THE_DRIVER if optional else OF_THE_DRIVER + OPTIONAL
    return tuple(library for library in facts.libraries.libraries if library.soname not in others)


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(number) for number in re.findall(r"\d+", version))
