"""Recognises errors about limits of simulated GPUs, which are limits of gpudiag and never faults of the machine."""

from __future__ import annotations

import ctypes
import os

# The form of beyond_simulation() in src/tensorflow.cc: all errors of this kind are made there.
_BEFORE, _AFTER = "simulated GPU: ", " cannot run here"


def limit_of(error: BaseException) -> str:
    """Return the operation that a simulated GPU cannot run, if ``error`` was raised for that reason.

    "" for every other error, and on a real machine for all errors.
    """
    from gpudiag.simulator.machine import MACHINE_VARIABLE

    if MACHINE_VARIABLE not in os.environ:
        return ""
    limit, found, _ = str(error).partition(_BEFORE)[2].partition(_AFTER)
    if found:
        return limit.removesuffix(",")
    kernel = _stopping_kernel()
    return f"the CUDA kernel {kernel}" if kernel else ""


def _stopping_kernel() -> str:
    """Return the kernel whose launch stopped a simulated GPU of this process: later reads from that GPU raise CUDA
    errors without a name."""
    from gpudiag.simulator.machine import CORE

    try:
        ask = ctypes.CDLL(CORE, mode=os.RTLD_NOLOAD).gpudiag_stopping_kernel
    except (OSError, AttributeError):  # this process has not used CUDA, or the libraries are of another version
        return ""
    ask.restype = ctypes.c_char_p
    name: bytes = ask()
    return name.decode(errors="replace")
