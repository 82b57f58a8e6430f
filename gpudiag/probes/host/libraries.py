"""Every dynamic library that TensorFlow opens can be opened here, and is the one that it was built for.

What it does
    Finds each library as the loader would for TensorFlow in this environment: in `LD_LIBRARY_PATH`, in the folders that
    `libtensorflow_framework.so.2` names (its RUNPATH), in the loader's cache and default folders. Each was opened in a
    child process, so the words are the loader's own; TensorFlow is not imported.
Why it matters
    Where one of seven libraries cannot be opened TensorFlow uses no GPU, and at its default log level it does not say
    which. Where a variable puts an older copy first, it is loaded without a word, and operations fail later.
What a failure means
    `unopened`: a library that every GPU needs cannot be opened, or one that it needs in turn.
    `cudnn_too_old`: the cuDNN that is found is older than the one that TensorFlow was built with.
    `older_first`: `LD_LIBRARY_PATH` supplies an older copy of a library than NVIDIA's package in this environment.
    `other_soname`: a file has the name of a library and is another release or library, often by a link made by hand.
    `no_libdevice`: XLA does not find `libdevice.10.bc`, so what is compiled for the GPU can fail.
    `not_gathered`: the libraries could not be looked at.
    A machine that was given no NVIDIA GPU needs none of them: nothing is found.
What to do
    Each finding names the package or the folder. `LD_LIBRARY_PATH` is read when a process starts: set it before Python.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import PurePath

from gpudiag.hostfacts import (
    Distribution,
    Facts,
    Library,
    LibraryCopy,
    Unknown,
)
from gpudiag.model import Finding, Limits, Severity
from gpudiag.probe import Kind, Needs, Probe
from gpudiag.probes.common import CUDNN_NEEDED, cudnn_serves

PROBE = Probe(needs=Needs(tensorflow=False), families=("libraries",), quick=True)

UNOPENED = Kind("unopened", Severity.FAIL, "{library} cannot be opened: {error}", "{cure}")
CUDNN_TOO_OLD = Kind(
    "cudnn_too_old",
    Severity.FAIL,
    "cuDNN {found} in {path}, TensorFlow needs {needed} or a later {major}: convolutions will fail",
    "pip install {requirement}, and keep folders with another cuDNN out of LD_LIBRARY_PATH.",
)
OLDER_FIRST = Kind(
    "older_first",
    Severity.WARNING,
    "LD_LIBRARY_PATH supplies {library} {found} from {folder}, before {owner} of this environment",
    "Take {folder} out of LD_LIBRARY_PATH.",
)
OTHER_SONAME = Kind(
    "other_soname",
    Severity.WARNING,
    "{path} is {own} by its own account, not {library}",
    "Remove that file or link and install the right one: pip install {requirement}",
)
NO_LIBDEVICE = Kind(
    "no_libdevice",
    Severity.WARNING,
    "XLA finds no libdevice.10.bc: a model that is compiled for the GPU (jit_compile) can fail",
    "pip install {requirement}, or export XLA_FLAGS=--xla_gpu_cuda_data_dir=<the folder that has nvvm/libdevice>",
)
NOT_GATHERED = Kind(
    "not_gathered",
    Severity.NOTE,
    "the libraries could not be looked at: {reason}",
    "See what TensorFlow itself opens: TF_CPP_VMODULE=dso_loader=1 python program.py",
)

RUNTIME = "libcudart.so.12"
CUDNN = "libcudnn.so.9"
OF_THE_DRIVER = ("libcuda.so.1", "libnvidia-ml.so.1")
OPTIONAL = ("libnccl.so.2", "libcupti.so.12")
"""Opened only when they are used; without them GPUs are listed and work (measured, 2.21)."""

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
"""The distribution that holds a library of TensorFlow 2.18-2.21 (CUDA 12), by the name before the first dot."""


def judge(facts: Facts, limits: Limits) -> Iterator[Finding]:
    if isinstance(facts.libraries, Unknown):
        yield NOT_GATHERED.found(reason=facts.libraries.reason)
        return
    if not _is_given_a_gpu(facts) or not _has_cuda(facts):
        return
    for one in unopened(facts):
        yield UNOPENED.found(library=one.soname, error=one.error, cure=_cure(facts, one))
    cudnn = cudnn_too_old(facts)
    if cudnn is not None:
        yield CUDNN_TOO_OLD.found(
            found=cudnn.version,
            path=cudnn.path,
            needed=CUDNN_NEEDED,
            major=CUDNN_NEEDED[0],
            requirement=requirement(facts, CUDNN),
        )
    for one, copy in older_first(facts):
        folder = str(PurePath(one.path or "").parent)
        yield OLDER_FIRST.found(library=one.soname, found=one.version, folder=folder, owner=copy.owner)
    for one in with_other_soname(facts):
        yield OTHER_SONAME.found(
            path=one.path, own=one.own_soname, library=one.soname, requirement=requirement(facts, one.soname)
        )
    if without_libdevice(facts):
        yield NO_LIBDEVICE.found(requirement=requirement(facts, "libdevice"))


def figure(facts: Facts) -> str:
    if isinstance(facts.libraries, Unknown):
        return "not known"
    if facts.libraries.opener is None:
        return "no TensorFlow that opens any"
    if not _is_given_a_gpu(facts):
        return "no GPU, none needed"
    needed = _needed(facts)
    return f"{len(needed) - len(unopened(facts))} of {len(needed)} CUDA libraries open"


# What the rules of the diagnosis judge by, too.


def unopened(facts: Facts) -> tuple[Library, ...]:
    """Return the CUDA libraries that every GPU needs and that cannot be opened; the driver's own are not among them."""
    return tuple(one for one in _needed(facts) if one.error is not None)


def cudnn_too_old(facts: Facts) -> Library | None:
    """Return the cuDNN that is found, where TensorFlow refuses its version."""
    cudnn = next((one for one in _needed(facts) if one.soname == CUDNN), None)
    if cudnn is None or cudnn.error is not None or cudnn.version is None:
        return None
    return None if cudnn_serves(cudnn.version) else cudnn


def older_first(facts: Facts) -> Iterator[tuple[Library, LibraryCopy]]:
    """Yield libraries that ``LD_LIBRARY_PATH`` supplies, each with the newer copy of a package that it hides."""
    for one in _needed(facts):
        for copy in one.copies:
            known = one.version is not None and copy.version is not None and copy.owner is not None
            if not known or one.source != "LD_LIBRARY_PATH" or one.error is not None:
                continue
            found, packaged = _numbers(one.version or ""), _numbers(copy.version or "")
            length = min(len(found), len(packaged))  # cuDNN says 9.3.0, its package 9.3.0.75
            if found[:length] < packaged[:length]:
                yield one, copy


def with_other_soname(facts: Facts) -> tuple[Library, ...]:
    """Return libraries that open, and whose file says that it is another release, or another library altogether."""
    needed = _needed(facts, optional=True)
    return tuple(one for one in needed if one.error is None and one.own_soname not in (None, one.soname))


def is_another_release(one: Library) -> bool:
    """Return True where the file of ``one`` says that it is the same library in another release."""
    return one.own_soname is not None and one.own_soname.partition(".so")[0] == one.soname.partition(".so")[0]


def without_libdevice(facts: Facts) -> bool:
    """Return True where CUDA is installed in a way that is known, and XLA finds no ``libdevice`` in it."""
    libraries = facts.libraries
    if isinstance(libraries, Unknown) or libraries.libdevice:
        return False
    runtime = next((one for one in libraries.libraries if one.soname == RUNTIME), None)
    if runtime is None or runtime.path is None or runtime.error is not None:
        return False
    return runtime.owner is not None or bool(libraries.libdevice_elsewhere) or "/cuda" in runtime.path


def requirement(facts: Facts, library: str) -> str:
    """Return the package that holds ``library``, in TensorFlow's own range, as a word of a shell; "" if not known."""
    package = PACKAGES.get(library.partition(".")[0])
    if package is None:
        return ""
    ranges = {} if isinstance(facts.tensorflow, Unknown) else facts.tensorflow.ranges
    return shlex.quote(package + ranges.get(package, ""))


def installed(facts: Facts, library: str) -> Distribution | None:
    """Return the distribution that should hold ``library``, where it is installed."""
    companions = () if isinstance(facts.tensorflow, Unknown) else facts.tensorflow.companions
    return next((one for one in companions if one.name == PACKAGES.get(library.partition(".")[0])), None)


def _needed(facts: Facts, *, optional: bool = False) -> tuple[Library, ...]:
    if isinstance(facts.libraries, Unknown) or facts.libraries.opener is None:
        return ()
    others = OF_THE_DRIVER if optional else OF_THE_DRIVER + OPTIONAL
    return tuple(one for one in facts.libraries.libraries if one.soname not in others)


def _is_given_a_gpu(facts: Facts) -> bool:
    return bool(facts.nvml_devices or (not isinstance(facts.device_nodes, Unknown) and facts.device_nodes.nodes))


def _has_cuda(facts: Facts) -> bool:
    build = None if isinstance(facts.tensorflow, Unknown) else facts.tensorflow.build
    return build is not None and build.cuda


def _cure(facts: Facts, one: Library) -> str:
    if one.instead is not None:
        return (
            f"Take {' and '.join(one.damaged_folders)} out of LD_LIBRARY_PATH: {one.instead} comes after it and opens."
        )
    good = next((copy for copy in one.copies if copy.error is None), None)
    if good is not None:
        return f"export LD_LIBRARY_PATH={PurePath(good.path).parent}:$LD_LIBRARY_PATH before Python starts."
    lacking = " ".join(filter(None, (requirement(facts, name) for name in one.lacks)))
    return f"pip install {lacking or requirement(facts, one.soname)}"


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(number) for number in re.findall(r"\d+", version))
