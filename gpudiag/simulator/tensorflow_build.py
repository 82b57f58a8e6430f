"""Checks that the TensorFlow of the machine is a CUDA build, and forwards its kernels."""

from __future__ import annotations

import ctypes
import importlib.metadata
import importlib.util
import os
import re
import sys
from pathlib import Path

from gpudiag.simulator.errors import CudaWheelMissing, RealDriverMapped, SimulatorError
from gpudiag.simulator.machine import CORE, MACHINE_VARIABLE, require_linux

FIRST_RELEASE, LAST_RELEASE = (2, 18), (2, 21)
"""The releases that simulated GPUs work with, as in forwarding.c."""


def _tensorflow_directory() -> Path | None:
    spec = importlib.util.find_spec("tensorflow")
    return Path(spec.origin).parent if spec is not None and spec.origin else None


def cpu_only_tensorflow() -> str:
    """Return an error text if this interpreter's TensorFlow is a build without CUDA; otherwise nothing.

    TensorFlow is not imported.
    """
    directory = _tensorflow_directory()
    if directory is None:
        return ""
    try:
        build_info = (directory / "python/platform/build_info.py").read_text()
    except OSError:
        return (
            f"{directory} is imported as tensorflow, but is not TensorFlow: rename it, remove its folder from "
            "PYTHONPATH, or run gpudiag in another folder"
        )
    if re.search(r"'is_cuda_build'[,:] *True", build_info):
        return ""
    return (
        "the TensorFlow of this Python is a build without CUDA (tensorflow-cpu, or not for Linux "
        "x86-64), which never looks for a GPU; the CUDA wheel is needed: pip uninstall "
        "tensorflow-cpu, then pip install tensorflow"
    )


def unknown_tensorflow() -> str:
    """Return an error text if this interpreter's TensorFlow is a release that simulated GPUs do not know; otherwise
    nothing.

    Only metadata is read. For a TensorFlow without metadata the process itself checks the release (forwarding.c).
    """
    directory = _tensorflow_directory()
    names = [folder.name for folder in directory.parent.glob("t*.dist-info")] if directory else []
    found = (
        re.match(r"(?:tensorflow|tf_nightly)-((\d{1,4})\.(\d{1,4})[^-]{0,80})\.dist-info$", name) for name in names
    )
    for match in found:
        if match and (not FIRST_RELEASE <= (int(match[2]), int(match[3])) <= LAST_RELEASE or "dev" in match[1]):
            first, last = (f"{major}.{minor}" for major, minor in (FIRST_RELEASE, LAST_RELEASE))
            after = f"{LAST_RELEASE[0]}.{LAST_RELEASE[1] + 1}"
            return (
                f"simulated GPUs know TensorFlow {first} to {last}, and this is {match[1]}: "
                f"pip install 'tensorflow>={first},<{after}'"
            )
    return ""


def require_cuda_wheel() -> None:
    """Raise CudaWheelMissing if this interpreter's TensorFlow cannot see a simulated GPU."""
    require_linux()
    if _tensorflow_directory() is None:
        if any(True for _ in importlib.metadata.distributions(name="tensorflow")):
            raise CudaWheelMissing(
                "files of the installed TensorFlow are missing. Run 'gpudiag check host' for the fix."
            )
        raise CudaWheelMissing("TensorFlow is not installed in this Python. Run 'pip install tensorflow'.")
    fault = cpu_only_tensorflow() or unknown_tensorflow()
    if fault:
        raise CudaWheelMissing(fault)


def preload() -> None:
    """Forward TensorFlow's kernels now: for a process that imports TensorFlow once and forks a
    child for each task.

    Call it after `import tensorflow` in a process started with Machine.environment(). It
    initialises no device and asks for none, so children stay free to set CUDA_VISIBLE_DEVICES and
    GPUDIAG_SIM_FAULTS. Without it each child does the same work at its first device.
    """
    directory = os.environ.get(MACHINE_VARIABLE)
    if not directory:
        raise SimulatorError("this process is not on a simulated machine: start it with Machine.environment()")
    if "tensorflow" not in sys.modules:
        raise SimulatorError("import tensorflow first: its kernels are forwarded, not loaded")
    core = ctypes.CDLL(f"{directory}/lib/{CORE}")
    core.gpudiag_real_driver.restype = ctypes.c_char_p
    core.gpudiag_preload.restype = ctypes.c_char_p
    mapped = core.gpudiag_real_driver()
    if mapped:
        raise RealDriverMapped(
            f"this process has mapped the real driver, {mapped.decode()}; real and simulated GPUs "
            "cannot mix in one process (look for LD_PRELOAD, or an import that opens libcuda.so.1 "
            "by its path)"
        )
    fault = core.gpudiag_preload()
    if fault:
        raise SimulatorError(f"TensorFlow's kernels cannot be forwarded: {fault.decode()}")
